/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Moving a directory back to the place that it was moved from. */

#include <errno.h>

#include "nfs/calls.h"
#include "store/directory_change.h"

int directory_rename_back(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			  const struct directory_place *place)
{
	struct error ignored = { .code = ERROR_OK };
	struct directory_place again;
	struct nfs_handle unused;
	int r = directory_rename(c, dir, name, &place->parent, place->base);

	if ((r != -ESTALE && r != -ENOENT) || nfs_lookup(c, dir, name, &unused, NULL) < 0)
		return r;
	r = directory_make_parents(c, place->path, &again, &ignored);
	if (r == 0)
		r = directory_rename(c, dir, name, &again.parent, again.base);
	if (r < 0)
		(void)directory_remove_parents(c, place->path, &ignored);
	return r;
}

int directory_move_back(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			const struct directory_place *place)
{
	struct error ignored = { .code = ERROR_OK };
	int r = directory_is_gone(c, place->path, &ignored);

	if (r <= 0)
		return r == 0 ? -EEXIST : r;
	r = directory_rename_back(c, dir, name, place);
	return r == -ENOTEMPTY ? -EEXIST : r;
}
