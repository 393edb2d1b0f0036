/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "nfs/calls.h"

#define FOLDER_MODE 0700

static const char *const names[] = {
	[NFS_FOLDER_VOLUMES] = "volumes",
	[NFS_FOLDER_PARENTS] = "parents",
	[NFS_FOLDER_TRASH] = "trash",
};

static_assert(ARRAY_SIZE(names) == NFS_FOLDERS, "a client has a slot for each folder");

/* A link or file of that name is somebody else's, and nothing below it may be trusted. */
static int check_directory(struct nfs_client *c, const char *name, const struct nfs_attr *attr,
			   struct error *err)
{
	if (attr->type == NFS_TYPE_DIRECTORY)
		return 0;
	return nfs_error_set(err, c, -ENOTDIR, "'%s' is not a directory: remove it", name);
}

static int open_directory(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			  bool create, struct nfs_handle *ret, struct error *err)
{
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(c, dir, name, &handle, &attr);
	if (r == -ENOENT && create) {
		r = nfs_mkdir(c, dir, name, FOLDER_MODE, &handle, &attr);
		/* Somebody else made it in between. */
		if (r == -EEXIST)
			r = nfs_lookup(c, dir, name, &handle, &attr);
		if (r == -ENOENT)
			r = -ESTALE; /* and it vanished again: not what ENOENT means to callers */
	}
	if (r == -ENOENT)
		return r;
	if (r < 0)
		return nfs_error_set(err, c, r, "%s '%s'", create ? "making" : "opening", name);
	r = check_directory(c, name, &attr, err);
	if (r < 0)
		return r;
	*ret = handle;
	return 0;
}

int nfs_state_folder(struct nfs_client *c, enum nfs_folder folder, bool create,
		     const struct nfs_handle **ret, struct error *err)
{
	struct nfs_handle *handle = &c->folders[folder];
	struct nfs_handle top;
	int r;

	if (handle->len == 0) {
		r = open_directory(c, &c->root, NFS_STATE_DIR, create, &top, err);
		if (r < 0)
			return r;
		r = open_directory(c, &top, names[folder], create, handle, err);
		if (r < 0)
			return r;
	}
	*ret = handle;
	return 0;
}

void nfs_state_forget(struct nfs_client *c)
{
	memset(c->folders, 0, sizeof(c->folders));
}
