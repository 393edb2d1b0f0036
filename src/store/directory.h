/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A volume's directory and the directories above it, below the root of a share. Paths must have
 * passed path_check_relative(). They are walked one component at a time, by handle; a symbolic link
 * on the way is an error.
 */
#ifndef STORE_DIRECTORY_H
#define STORE_DIRECTORY_H

#include "nfs/client.h"
#include "store/record.h"

/* The end of a path: the directory that holds its last component, and that component. */
struct directory_place {
	struct nfs_handle parent;
	const char *path; /* borrowed */
	const char *base; /* points into the path */
};

/* Mode of new directories, unless another one is asked for. */
#define DIRECTORY_MODE 0755

#define DIRECTORY_ARCHIVE_PREFIX "archived-" /* as in csi-driver-nfs */

/* Whether the name is one of an archive, on a server that folds case, too. */
bool directory_is_archive_name(const char *path);

/*
 * Return the path whose archive would be at path, or NULL if path is not an archive's. If another
 * path overlaps with the one returned, its archive overlaps with path. A date in the archive's name
 * is not stripped: nobody else makes a directory of a dated name at that moment.
 */
const char *directory_archived_from(const char *path);

/*
 * Find the place of a path. -ENOENT, unreported, if a directory above it is missing;
 * FAILED_PRECONDITION if the path leads into the driver's own folder, in any spelling.
 */
int directory_locate(struct nfs_client *c, const char *path, struct directory_place *ret,
		     struct error *err);

/*
 * Find what is at path, whatever it is, with all its attributes. -ENOENT, unreported, if there
 * is nothing.
 */
int directory_look_up(struct nfs_client *c, const char *path, struct directory_place *ret_place,
		      struct nfs_handle *ret, struct nfs_attr *ret_attr, struct error *err);

/* Likewise for a directory. FAILED_PRECONDITION for anything else, and the driver's own folder. */
int directory_find(struct nfs_client *c, const char *path, struct directory_place *ret_place,
		   struct nfs_handle *ret, struct nfs_attr *ret_attr, struct error *err);

/* Whether there is nothing at path: 1, 0 or a negative errno. */
int directory_is_gone(struct nfs_client *c, const char *path, struct error *err);

/*
 * Whether the directory belongs to another identity than the client's, or the server does not tell
 * the owner. The client may be unable to remove such a directory.
 */
bool directory_is_anothers(struct nfs_client *c, const struct nfs_handle *dir);

/*
 * Check that path, or the lowest directory above it that exists, is on the file system of the
 * driver's own folder: else nothing can be renamed between them. Return 0, or -EXDEV with
 * FAILED_PRECONDITION.
 */
int directory_check_file_system(struct nfs_client *c, const char *path, struct error *err);

/*
 * As nfs_rename(), also for a directory that its owner may not write to. A rename to another parent
 * changes "..", so it needs write permission on the directory itself. If the server refuses the
 * rename, give the owner that permission while it is repeated. A kill or a lost connection in that
 * time leaves the directory writable for its owner, who could make it so anyway.
 */
int directory_rename(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		     const struct nfs_handle *to_dir, const char *to_name);

/* Whether directory_rename() may have to change that mode. Return the mode that it sets. */
bool directory_mode_is_closed(uint32_t mode, uint32_t *ret_open);

/* Report a rename that the server refused with -EXDEV: FAILED_PRECONDITION. Return -EXDEV. */
int directory_apart(struct nfs_client *c, const char *path, struct error *err);

/*
 * As directory_locate(), but make missing directories. Notes on the share mark them as the
 * driver's, so that they are removed with the last volume in them.
 */
int directory_make_parents(struct nfs_client *c, const char *path, struct directory_place *ret,
			   struct error *err);

/*
 * Make an empty directory again that was removed, with the mode and owner in attr, and those above
 * if they are gone, too; *place becomes where it is then. Return 0 also if somebody else has made
 * it. Errors are unreported.
 */
int directory_make_again(struct nfs_client *c, struct directory_place *place,
			 const struct nfs_attr *attr);

/* -------- notes about directories above, see directory_notes.c -------- */

/*
 * Remove the notes about a directory that was removed or moved, if it has any. attr has to be full
 * (nfs_lookup_full()).
 */
int directory_note_forget(struct nfs_client *c, const char *path, const struct nfs_handle *handle,
			  const struct nfs_attr *attr, struct error *err);

/*
 * Remove the notes of path, except those of the directory that is there now. Return 1 if there is
 * no directory, 0 if there is one, or a negative errno.
 */
int directory_note_sweep(struct nfs_client *c, const char *path, struct error *err);

/*
 * Likewise for all directories above path. Call this after -ESTALE: a directory that this call has
 * made or found was removed again. Errors are ignored.
 */
void directory_note_sweep_above(struct nfs_client *c, const char *path);

#endif
