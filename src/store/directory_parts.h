/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Private to the files of store/directory.h. Messages name path[0..len). */
#ifndef STORE_DIRECTORY_PARTS_H
#define STORE_DIRECTORY_PARTS_H

#include "store/directory.h"

/* Refuse an entry that is not a directory: FAILED_PRECONDITION. */
int directory_refuse_entry(struct nfs_client *c, const char *path, size_t len,
			   const struct nfs_attr *attr, struct error *err);

/* Refuse the driver's own folder. A server may fold names in unknown ways, so compare handles. */
int directory_check_not_own(struct nfs_client *c, const struct nfs_handle *handle, const char *path,
			    size_t len, struct error *err);

/* Fetch all attributes, which a LOOKUP of version 4 does not bring, unless attr has them. */
int directory_complete_attr(struct nfs_client *c, const struct nfs_handle *handle,
			    struct nfs_attr *attr);

/* Whether two objects are on one file system; true also if the server does not tell for one. */
bool directory_is_same_file_system(const struct nfs_attr *a, const struct nfs_attr *b);

/* Check that the object is on the file system of the driver's folder: 0, or -EXDEV, reported. */
int directory_check_same_file_system(struct nfs_client *c, const char *path,
				     const struct nfs_handle *handle, struct nfs_attr *attr,
				     struct error *err);

/* -------- notes about directories above, see directory_notes.c -------- */

#define DIRECTORY_NOTE_MAX (RECORD_NAME_MAX + 40)

/* The notes of one path. */
struct directory_note {
	const struct nfs_handle *folder; /* borrowed from the client */
	const char *path; /* borrowed */
	size_t len; /* of the path */
	char key[RECORD_NAME_MAX + 1]; /* name of the pending note */
	char name[DIRECTORY_NOTE_MAX]; /* of the final one; "" if there is none, or not yet */
	bool begun; /* this call has written the pending note */
};

/* Write the pending note for path[0..len). */
int directory_note_begin(struct nfs_client *c, struct directory_note *note, const char *path,
			 size_t len, struct error *err);

/* Write the final note about the directory that was made, instead of the pending one. */
int directory_note_finish(struct nfs_client *c, struct directory_note *note,
			  const struct nfs_handle *handle, const struct nfs_attr *attr,
			  struct error *err);

/* Remove the pending note, if this call has written it: the directory was not made. */
void directory_note_withdraw(struct nfs_client *c, const struct directory_note *note);

/*
 * Find the note about the directory that is at path now: 1, 0 or a negative errno. attr has to be
 * full (nfs_lookup_full()).
 */
int directory_note_find(struct nfs_client *c, struct directory_note *note, const char *path,
			const struct nfs_handle *handle, const struct nfs_attr *attr,
			struct error *err);

/*
 * Whether there is a note about any directory at path, of now or before: 1, 0 or a negative errno.
 */
int directory_note_is_there(struct nfs_client *c, const char *path, struct error *err);

/* Remove what directory_note_find() found, after the directory, and a pending note. */
int directory_note_remove(struct nfs_client *c, const struct directory_note *note,
			  struct error *err);

#endif
