/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Removing the directories above volumes. Each one that the driver made has a record in
 * .csi-nfs/parents/, so that the last volume in it takes it along.
 */

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory_change.h"
#include "store/directory_parts.h"
#include "store/layout.h"
#include "store/path_key.h"

static bool is_anothers_parent(struct nfs_client *c, const struct directory_place *place)
{
	struct nfs_handle handle;
	struct nfs_attr attr;

	return nfs_lookup(c, &place->parent, place->base, &handle, &attr) == 0 &&
	       (directory_is_anothers(c, &handle) || directory_is_anothers(c, &place->parent));
}

int directory_is_made_parent(struct nfs_client *c, const char *path, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	char key[RECORD_NAME_MAX + 1];
	const struct nfs_handle *folder;
	int r;

	r = store_folder(c, STORE_PARENTS, false, &folder, err);
	if (r == 0) {
		path_key(key, path, strlen(path));
		r = record_read(c, folder, key, &rec, err);
	}
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return str_eq(record_get(&rec, PARENT_KEY_DIR), path);
}

/*
 * After the removal of a directory and its note: another call may have made the directory in
 * between, and have relied on the note. Return 1 where it is gone, 0 where it is there.
 */
static int note_parent_again(struct nfs_client *c, const char *path, struct error *err)
{
	int gone, r;

	gone = directory_is_gone(c, path, err);
	if (gone != 0)
		return gone;
	r = directory_note_parent(c, path, strlen(path), err);
	return r < 0 ? r : 0;
}

/* Return 1 where the directory was removed, or was gone before; 0 where it has to stay. */
static int remove_parent(struct nfs_client *c, const struct nfs_handle *folder, const char *path,
			 struct error *err)
{
	const struct owner_question q = { .scope = OWNER_AT };
	cleanup_record struct record rec = { .n = 0 };
	char key[RECORD_NAME_MAX + 1];
	struct directory_place place;
	struct owner owner;
	int r;

	path_key(key, path, strlen(path));
	r = record_read(c, folder, key, &rec, err);
	if (r == -ENOENT)
		return directory_is_gone(c, path, err); /* somebody else's, if it is there */
	if (r < 0)
		return r;
	if (!str_eq(record_get(&rec, PARENT_KEY_DIR), path))
		return 0;
	r = owner_find(c, path, &q, &owner, err);
	if (r != 0)
		return r < 0 ? r : 0; /* it has become a volume's directory */
	r = directory_locate(c, path, &place, err);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0)
		r = nfs_rmdir(c, &place.parent, place.base);
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	/* Made for an earlier volume by another identity: it stays, empty. */
	if ((r == -EACCES || r == -EPERM) && is_anothers_parent(c, &place))
		return 0;
	if (r < 0 && r != -ENOENT)
		return nfs_error_set(err, c, r, "removing directory '%s'", path);
	r = record_remove(c, folder, key, &rec, err);
	return r < 0 ? r : note_parent_again(c, path, err);
}

int directory_remove_parents(struct nfs_client *c, const char *path, struct error *err)
{
	cleanup_free char *above = NULL;
	const struct nfs_handle *folder;
	char *slash;
	int r;

	if (strchr(path, '/') == NULL)
		return 0;
	r = store_folder(c, STORE_PARENTS, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	above = strdup(path);
	if (above == NULL)
		return error_oom(err);
	while ((slash = strrchr(above, '/')) != NULL) {
		*slash = '\0';
		r = remove_parent(c, folder, above, err);
		if (r <= 0)
			return r;
	}
	return 0;
}
