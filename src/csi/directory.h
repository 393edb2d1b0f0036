/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A volume's directory and the directories above it, below the root of a share. Paths have been
 * checked by path_check_relative(); they are walked component by component, by handle, and a
 * symbolic link in them is an error. Worker threads; blocks.
 */
#ifndef CSI_DIRECTORY_H
#define CSI_DIRECTORY_H

#include "csi/params.h"
#include "nfs/client.h"
#include "nfs/record.h"

/* Where a path ends: the directory that holds it, and its last component. */
struct directory_place {
	struct nfs_handle parent;
	const char *base; /* points into the path */
};

/*
 * A name for what the driver notes about a directory: its path, escaped, or cut and with a hash where that
 * is too long.
 */
void directory_key(char key[RECORD_NAME_MAX + 1], const char *path, size_t len);

/* Finds the place of a path. -ENOENT, unreported, where a directory above it is missing. */
int directory_locate(struct nfs_client *c, const char *path, struct directory_place *ret,
		     struct error *err);

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
	/* Whether one that is there may be taken: 0, or the error. NULL: it may. */
	int (*check)(struct nfs_client *c, const char *path, struct error *err);
	bool *ret_made; /* becomes true where it was not there before; may be NULL */
};

/*
 * Makes the directory at path, with parents, or finds it. Errors: FAILED_PRECONDITION where one is
 * there, or is not, against the wish, otherwise as nfs_error_set(). What was made is gone after one.
 */
int directory_make(struct nfs_client *c, const char *path, const struct directory_wish *wish,
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
 * Renames path to archived-path. Where there is an archive of that name it is removed first, if it is
 * to be replaced (*ret_trashed as above), or else the new one gets a dated name. 0 too where path is
 * gone. known, unless NULL, as for directory_remove_known(), with its result.
 */
int directory_archive(struct nfs_client *c, const char *path, const struct nfs_handle *known,
		      bool replace, bool *ret_trashed, struct error *err);

/*
 * Removes what directory_remove() has put into the trash under that key, now or in a call before this
 * one. Blocks as long as it takes.
 */
int directory_purge(struct nfs_client *c, const char *key, struct error *err);

/* Whether there is nothing at path. Returns 1, 0 or a negative errno. */
int directory_is_gone(struct nfs_client *c, const char *path, struct error *err);

/* Removes the directories above path that the driver made and that are empty, deepest first. */
int directory_remove_parents(struct nfs_client *c, const char *path, struct error *err);

#endif
