/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A volume's directory and the directories above it, below the root of a share. Paths have been
 * checked by path_check_relative(); they are walked component by component, by handle, and a
 * symbolic link in them is an error. Worker threads; blocks.
 */
#ifndef STORE_DIRECTORY_H
#define STORE_DIRECTORY_H

#include "nfs/client.h"
#include "store/owner.h"
#include "store/record.h"
#include "store/settings.h"

/* Where a path ends: the directory that holds it, and its last component. */
struct directory_place {
	struct nfs_handle parent;
	const char *base; /* points into the path */
};

/* Mode of directories that are made, where nothing else is asked for. */
#define DIRECTORY_MODE 0755

#define DIRECTORY_ARCHIVE_PREFIX "archived-" /* as csi-driver-nfs has it */

/*
 * A name for what the driver notes about a directory: its path, escaped, or cut and with a hash where that
 * is too long. The hash is the same for names that differ in the case of ASCII letters only.
 */
void directory_key(char key[RECORD_NAME_MAX + 1], const char *path, size_t len);

/*
 * Finds the place of a path. -ENOENT, unreported, where a directory above it is missing. A path that
 * leads into the driver's own folder, by whatever spelling, is FAILED_PRECONDITION.
 */
int directory_locate(struct nfs_client *c, const char *path, struct directory_place *ret,
		     struct error *err);

/*
 * The directory at path, with its attributes. -ENOENT, unreported, where there is nothing, and
 * FAILED_PRECONDITION where there is something else, or the driver's own folder.
 */
int directory_find(struct nfs_client *c, const char *path, struct directory_place *ret_place,
		   struct nfs_handle *ret, struct nfs_attr *ret_attr, struct error *err);

/* Whether it belongs to another identity than the client's: it may never be ours to remove. */
bool directory_is_anothers(struct nfs_client *c, const struct nfs_handle *dir);

/* FAILED_PRECONDITION for a rename that the server does not do: -EXDEV. */
int directory_apart(struct nfs_client *c, const char *path, struct error *err);

/*
 * Whether path, or the directory above it that is there, is on the file system of the driver's own
 * folder: nothing can be renamed from there to here otherwise. 0, or FAILED_PRECONDITION.
 */
int directory_check_file_system(struct nfs_client *c, const char *path, struct error *err);

/*
 * As directory_locate(), but makes the directories above that are missing, and notes on the share
 * that they are the driver's, to be removed with the last volume in them.
 */
int directory_make_parents(struct nfs_client *c, const char *path, struct directory_place *ret,
			   struct error *err);

/* What a volume's directory has to be like. */
struct directory_wish {
	uint32_t mode; /* 0: 0755 for a new one, and an old one's is left alone */
	struct volume_owner owner;
	enum volume_existing existing; /* what one that is there means */
	const struct owner_question *others; /* whose must it not be; see store/owner.h */
};

/*
 * Makes the directory at path, with parents, or finds it. Errors: FAILED_PRECONDITION where one is
 * there, or is not, against the wish, otherwise as nfs_error_set(). What was made is gone after one that is
 * final.
 * *ret_made tells whether it was made just now.
 */
int directory_make(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		   bool *ret_made, struct error *err);

/*
 * Takes back what directory_make() has made, unless somebody has it since, or something is in it, after the
 * error in err. Where that fails, the error becomes ABORTED: a CO has to come back for it.
 */
void directory_unmake(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		      struct error *err);

/*
 * Removes the directory at place: at once when it is empty, else by a move into the trash under a
 * name that starts with key. 0 too where there is none. *ret_trashed: there is something to purge.
 */
int directory_remove(struct nfs_client *c, const struct directory_place *place, const char *key,
		     bool *ret_trashed, struct error *err);

/*
 * As directory_remove(), of the directory that has that handle. Returns 1 where another one had come into
 * its place, which is there again then. ret_name: its name in the trash, or "".
 */
int directory_remove_known(struct nfs_client *c, const struct directory_place *place,
			   const struct nfs_handle *known, const char *key,
			   char ret_name[NFS_NAME_MAX + 1], struct error *err);

/*
 * Whether what was moved to that place is the directory that was meant. What is not goes back: 1. 0 too
 * where it has gone from there.
 */
int directory_check_moved(struct nfs_client *c, const struct directory_place *from,
			  const struct nfs_handle *known, const struct nfs_handle *to,
			  const char *name, struct error *err);

/*
 * Renames path, which is that of volume key, to archived-path. Where there is an archive of that name
 * it is removed first, if it is to be replaced (*ret_trashed as above), or else the new one gets a dated
 * name; where others have what it would touch, a date behind the first component. 0 too where path is
 * gone. known as for directory_remove_known(), with its result.
 */
int directory_archive(struct nfs_client *c, const char *path, const char *key,
		      const struct nfs_handle *known, bool replace, bool *ret_trashed,
		      struct error *err);

/*
 * Removes what directory_remove() has put into the trash under that key, now or in a call before this
 * one. Blocks as long as it takes.
 */
int directory_purge(struct nfs_client *c, const char *key, struct error *err);

/* Whether there is nothing at path. Returns 1, 0 or a negative errno. */
int directory_is_gone(struct nfs_client *c, const char *path, struct error *err);

/*
 * Removes the directories above path that the driver made, that are empty and that are no volume's,
 * deepest first.
 */
int directory_remove_parents(struct nfs_client *c, const char *path, struct error *err);

#endif
