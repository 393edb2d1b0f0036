/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The directories above volumes. Each one that the driver makes has a record in .csi-nfs/parents/,
 * so that the last volume in it takes it along.
 */

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory_parts.h"
#include "store/layout.h"

#define PARENT_KEY_DIR "dir" /* its path */

/* -------- making -------- */

static int note_parent(struct nfs_client *c, const char *path, size_t len, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_free char *dir = strndup(path, len);
	const struct nfs_handle *folder;
	char key[RECORD_NAME_MAX + 1];
	int r;

	if (dir == NULL || record_set(&rec, PARENT_KEY_DIR, dir) < 0)
		return error_oom(err);
	r = store_folder(c, STORE_PARENTS, true, &folder, err);
	if (r < 0)
		return r;
	directory_key(key, path, len);
	r = record_create(c, folder, key, &rec, err);
	return r == -EEXIST ? 0 : r; /* the directory was removed by hand */
}

/*
 * Take back a note that turned out wrong. A leftover note could delete a foreign empty directory.
 */
static void forget_parent(struct nfs_client *c, const char *path, size_t len)
{
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *folder;
	char key[RECORD_NAME_MAX + 1];

	if (store_folder(c, STORE_PARENTS, false, &folder, &ignored) < 0)
		return;
	directory_key(key, path, len);
	(void)record_remove(c, folder, key, NULL, &ignored);
}

/*
 * The note comes first: after a crash between the two, a retry could not tell who made the
 * directory.
 */
int directory_make_parent(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			  const char *path, size_t len, struct nfs_handle *ret,
			  struct nfs_attr *ret_attr, struct error *err)
{
	int r;

	r = note_parent(c, path, len, err);
	if (r < 0)
		return r;
	r = nfs_mkdir(c, dir, name, DIRECTORY_MODE, ret, ret_attr);
	if (r == -EEXIST) {
		forget_parent(c, path, len);
		r = nfs_lookup(c, dir, name, ret, ret_attr);
	}
	if (r == -ENOENT)
		r = -ESTALE; /* dir itself was removed meanwhile */
	if (r < 0)
		return nfs_error_set(err, c, r, "making directory '%.*s'", (int)len, path);
	return 0;
}

/* -------- removing -------- */

static bool is_anothers_parent(struct nfs_client *c, const struct directory_place *place)
{
	struct nfs_handle handle;
	struct nfs_attr attr;

	return nfs_lookup(c, &place->parent, place->base, &handle, &attr) == 0 &&
	       (directory_is_anothers(c, &handle) || directory_is_anothers(c, &place->parent));
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

	directory_key(key, path, strlen(path));
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
	return r < 0 ? r : 1;
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
