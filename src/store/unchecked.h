/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Unchecked entries of the trash: directories that a deletion has moved there without comparing
 * their handles afterwards. The deletion may have paused before the move for so long that it moved
 * a directory that another volume uses by now. It puts such a directory back itself
 * (store/tombstone.h); if it is killed before that, the purger does. Worker threads; blocks.
 */
#ifndef STORE_UNCHECKED_H
#define STORE_UNCHECKED_H

#include "nfs/client.h"

/*
 * Put an unchecked entry (store_trash_name_is_unchecked()) back if a volume or snapshot uses the
 * directory, or if its place is free and it is an archive, or a deleted volume left it, or one in
 * or around it, and did not want that deleted. Return 1 if the caller must leave the entry alone:
 * it is back, or a deletion of that path is under way and decides. Return 0 if the directory has no
 * user, or a negative errno with the error set if nobody can tell, or if its user has another
 * directory in its place by now.
 */
int unchecked_put_back(struct nfs_client *c, const char *name, struct error *err);

/*
 * Rename an entry of the trash to path, for its user, or NULL for none. Return 1 if it is not
 * in the trash any more, 0 if there is another directory at path by now, or a negative errno.
 */
int unchecked_rename_back(struct nfs_client *c, const struct nfs_handle *trash, const char *name,
			  const char *path, const char *user, struct error *err);

#endif
