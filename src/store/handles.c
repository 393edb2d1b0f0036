/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/handles.h"

#include <errno.h>
#include <stdbool.h>

#include "nfs/calls.h"
#include "store/layout.h"

/* As store_handle_follows_name(), but -ENOENT if a purge has removed the directory in between. */
static int try_rename(struct nfs_client *c)
{
	char name[NFS_NAME_MAX + 1], renamed[NFS_NAME_MAX + 1];
	struct error ignored = { .code = ERROR_OK };
	struct nfs_handle before, after;
	const struct nfs_handle *trash;
	struct nfs_attr unused;
	int r;

	r = store_folder(c, STORE_TRASH, true, &trash, &ignored);
	if (r < 0)
		return r;
	store_trash_name(name, &c->export, "handle");
	store_trash_name(renamed, &c->export, "handle");
	r = nfs_mkdir(c, trash, name, 0700, &before, &unused);
	if (r == 0)
		r = nfs_rename(c, trash, name, trash, renamed);
	if (r == 0)
		r = nfs_lookup(c, trash, renamed, &after, NULL);
	if (r < 0)
		return r;
	(void)nfs_rmdir(c, trash, renamed); /* else the purger does */
	return !nfs_handle_is_equal(&before, &after);
}

#define TRIES 10 /* a purge under way may remove what is tried too soon */

int store_handle_follows_name(struct nfs_client *c)
{
	unsigned int tries;
	int r = -ENOENT;

	for (tries = 0; tries < TRIES && r == -ENOENT; tries++)
		r = try_rename(c);
	return r;
}

/* Link a new file into a new directory of the trash. Return 1, 0 or a negative errno. */
static int try_link(struct nfs_client *c, const struct nfs_handle *trash, const char *folder,
		    const char *file)
{
	struct nfs_handle dir, first, second;
	struct nfs_attr unused;
	struct nfs_op link = { .type = NFS_OP_LINK, .dir = &first, .to_dir = &dir };
	int r;

	link.to_name = file;
	r = nfs_mkdir(c, trash, folder, 0700, &dir, &unused);
	if (r == 0)
		r = nfs_create(c, trash, file, 0600, &first);
	if (r == 0)
		r = nfs_client_call(c, &link);
	if (r == 0)
		r = nfs_lookup(c, &dir, file, &second, NULL);
	if (r < 0)
		return r;
	(void)nfs_remove(c, &dir, file); /* else the purger does */
	(void)nfs_rmdir(c, trash, folder);
	return !nfs_handle_is_equal(&first, &second);
}

bool store_names_have_handles(struct nfs_client *c)
{
	char folder[NFS_NAME_MAX + 1], file[NFS_NAME_MAX + 1];
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *trash;
	unsigned int tries;
	int r = -ENOENT;

	if (store_folder(c, STORE_TRASH, true, &trash, &ignored) < 0)
		return true;
	for (tries = 0; tries < TRIES && (r == -ENOENT || r == -ESTALE); tries++) {
		store_trash_name(folder, &c->export, "link");
		store_trash_name(file, &c->export, "link");
		r = try_link(c, trash, folder, file);
		(void)nfs_remove(c, trash, file);
	}
	return r != 0;
}
