/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A volume's directory and the directories above it, below the root of a share. Paths must have
 * passed path_check_relative(). They are walked one component at a time, by handle; a symbolic link
 * in them is an error. directory.c looks, directory_parents.c makes and removes the directories
 * above, directory_make.c, directory_remove.c and directory_archive.c do what their names say.
 * Worker threads; blocks.
 */
#ifndef STORE_DIRECTORY_H
#define STORE_DIRECTORY_H

#include "nfs/client.h"
#include "store/owner.h"
#include "store/record.h"
#include "store/settings.h"

/* The end of a path: the directory that holds its last component, and that component. */
struct directory_place {
	struct nfs_handle parent;
	const char *base; /* points into the path */
};

/* Mode of new directories, unless another one is asked for. */
#define DIRECTORY_MODE 0755

#define DIRECTORY_ARCHIVE_PREFIX "archived-" /* as in csi-driver-nfs */

/* -------- looking -------- */

/*
 * Format a name for notes about a directory: its path, escaped; where that is too long, cut and
 * with a hash, which is the same for paths that differ only in the case of ASCII letters.
 */
void directory_key(char key[RECORD_NAME_MAX + 1], const char *path, size_t len);

/*
 * Find the place of a path. -ENOENT, unreported, where a directory above it is missing;
 * FAILED_PRECONDITION where the path leads into the driver's own folder, by whatever spelling.
 */
int directory_locate(struct nfs_client *c, const char *path, struct directory_place *ret,
		     struct error *err);

/*
 * Find the directory at path, with its attributes. -ENOENT, unreported, where there is nothing;
 * FAILED_PRECONDITION where there is something else, or the driver's own folder.
 */
int directory_find(struct nfs_client *c, const char *path, struct directory_place *ret_place,
		   struct nfs_handle *ret, struct nfs_attr *ret_attr, struct error *err);

/* Whether there is nothing at path: 1, 0 or a negative errno. */
int directory_is_gone(struct nfs_client *c, const char *path, struct error *err);

/*
 * Whether the directory belongs to another identity than the client's, which may be unable to
 * remove it.
 */
bool directory_is_anothers(struct nfs_client *c, const struct nfs_handle *dir);

/*
 * Check that path, or the lowest directory above it that exists, is on the file system of the
 * driver's own folder: else nothing can be renamed between them. Return 0, or -EXDEV with
 * FAILED_PRECONDITION.
 */
int directory_check_file_system(struct nfs_client *c, const char *path, struct error *err);

/* Report a rename that the server refused with -EXDEV: FAILED_PRECONDITION. Return -EXDEV. */
int directory_apart(struct nfs_client *c, const char *path, struct error *err);

/* -------- directories above -------- */

/*
 * As directory_locate(), but make the missing directories above, and note on the share that they
 * are the driver's, to be removed with the last volume in them.
 */
int directory_make_parents(struct nfs_client *c, const char *path, struct directory_place *ret,
			   struct error *err);

/*
 * Remove the directories above path that the driver made, deepest first, if empty and no volume's.
 */
int directory_remove_parents(struct nfs_client *c, const char *path, struct error *err);

/* -------- making -------- */

/* Requirements for a volume's directory. */
struct directory_wish {
	uint32_t mode; /* 0: DIRECTORY_MODE for a new one; an existing one keeps its own */
	struct volume_owner owner;
	enum volume_existing existing; /* whether it may, must or must not be there */
	const struct owner_question *others; /* who must not have it; see store/owner.h */
};

/*
 * Make the directory at path, with parents, or find it. *ret_made tells whether it was made.
 * Errors: FAILED_PRECONDITION where it is there, or is not, against the wish; else as
 * nfs_error_set(). After a final error, what was made is gone again.
 */
int directory_make(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		   bool *ret_made, struct error *err);

/*
 * Remove what directory_make() made, after the error in err, unless somebody has it by now or
 * something is in it. Where that fails, the error becomes ABORTED, so that the CO comes back.
 */
void directory_unmake(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		      struct error *err);

/* -------- removing -------- */

/*
 * Remove the directory at place: at once where it is empty, else by a rename into the trash, to a
 * name that begins with key. Return 0 also where there is none. *ret_trashed tells whether there is
 * something to purge.
 */
int directory_remove(struct nfs_client *c, const struct directory_place *place, const char *key,
		     bool *ret_trashed, struct error *err);

/*
 * As directory_remove(), for the directory with that handle. Return 1 where another one had taken
 * its place, which has been put back. ret_name: its name in the trash, or "".
 */
int directory_remove_known(struct nfs_client *c, const struct directory_place *place,
			   const struct nfs_handle *known, const char *key,
			   char ret_name[NFS_NAME_MAX + 1], struct error *err);

/*
 * Check that what was renamed from a place to name in the directory to is the known directory.
 * Return 1 after renaming anything else back; 0 also where it is gone from there: the purger of
 * another replica may have it, but only after it was in the trash for a while.
 */
int directory_check_moved(struct nfs_client *c, const struct directory_place *from,
			  const struct nfs_handle *known, const struct nfs_handle *to,
			  const char *name, struct error *err);

/*
 * Rename path, the directory of volume key, to archived-path. An archive of that name is removed
 * first where replace is set (*ret_trashed as above); else the new one gets a dated name. Where it
 * would touch what others have, the date goes behind the first component. Return 0 also where path
 * is gone; known as for directory_remove_known(), with its result.
 */
int directory_archive(struct nfs_client *c, const char *path, const char *key,
		      const struct nfs_handle *known, bool replace, bool *ret_trashed,
		      struct error *err);

/*
 * Purge what directory_remove() has moved into the trash under that key, in this call or an earlier
 * one. Blocks as long as it takes.
 */
int directory_purge(struct nfs_client *c, const char *key, struct error *err);

#endif
