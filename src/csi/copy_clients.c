/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/copy_clients.h"

#include <errno.h>
#include <string.h>

#include "nfs/calls.h"
#include "store/handles.h"
#include "store/layout.h"

/* -------- the version -------- */

#define LOOKS_MAX 3 /* at two directories, one of which may change in between */

/* File systems that were made alike have the same fileids, but not the same times. */
static bool is_same_directory(struct nfs_client *a, const struct nfs_handle *in_a,
			      struct nfs_client *b, const struct nfs_handle *in_b)
{
	struct nfs_attr attr_a, attr_b;
	unsigned int looks;

	for (looks = 0; looks < LOOKS_MAX; looks++) {
		if (nfs_stat(a, in_a, &attr_a) < 0 || nfs_stat(b, in_b, &attr_b) < 0 ||
		    !attr_a.is_full || !attr_b.is_full || attr_a.fileid != attr_b.fileid)
			return false;
		if (nfs_time_is_equal(&attr_a.mtime, &attr_b.mtime) &&
		    nfs_time_is_equal(&attr_a.ctime, &attr_b.ctime))
			return true;
	}
	return false;
}

/*
 * A path may name different directories in two versions of NFS (fsid=0), so compare the roots, and
 * the driver's own folders, which change less often.
 */
static bool is_same_share(struct nfs_client *a, struct nfs_client *b)
{
	struct nfs_handle in_a, in_b;
	int r;

	if (!is_same_directory(a, &a->root, b, &b->root))
		return false;
	r = nfs_lookup(a, &a->root, NFS_STATE_DIR, &in_a, NULL);
	if (r < 0)
		return r == -ENOENT && nfs_lookup(b, &b->root, NFS_STATE_DIR, &in_b, NULL) == r;
	return nfs_lookup(b, &b->root, NFS_STATE_DIR, &in_b, NULL) == 0 &&
	       is_same_directory(a, &in_a, b, &in_b);
}

static int lease_same(const struct csi_driver *driver, struct nfs_client *c,
		      struct nfs_client **ret, struct error *err)
{
	return nfs_pool_lease(driver->pool, &c->export, ret, err);
}

/* Lease a client like c for a tree: over version 3, unless the options ask for another one. */
static int lease_for_tree(const struct csi_driver *driver, struct nfs_client *c,
			  struct nfs_client **ret, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	struct nfs_export e = c->export; /* borrows its strings */

	if (c->version != 3 && nfs_export_leaves_version(&e)) {
		e.version = 3;
		if (nfs_pool_lease(driver->pool, &e, ret, &ignored) == 0) {
			if (is_same_share(*ret, c))
				return 0;
			nfs_pool_return(driver->pool, *ret);
		}
	}
	*ret = NULL;
	return lease_same(driver, c, ret, err);
}

/* -------- what the server copies -------- */

static bool clients_share_server(const struct nfs_client *a, const struct nfs_client *b)
{
	return a->export.port == b->export.port && strcmp(a->address, b->address) == 0;
}

static bool is_on_file_system(struct nfs_client *c, const struct nfs_handle *folder,
			      const struct nfs_attr *tree)
{
	struct nfs_attr attr;

	return nfs_getattr(c, folder, &attr) == 0 && nfs_fsid_is_equal(&attr, tree);
}

/* Make two files in the folder, where they stay, and try CLONE between them, else COPY. */
static int try_offload(struct nfs_client *c, const struct nfs_handle *folder,
		       char names[2][NFS_NAME_MAX + 1], bool copy)
{
	struct nfs_handle files[2];
	struct nfs_op op;
	size_t i;
	int r;

	for (i = 0; i < 2; i++) {
		r = nfs_create(c, folder, names[i], 0600, &files[i]);
		if (r < 0)
			return r;
	}
	op = (struct nfs_op){ .type = NFS_OP_CLONE, .dir = &files[0], .to_dir = &files[1] };
	r = nfs_client_call(c, &op);
	if (r == 0 || r == -ESTALE || !copy)
		return r;
	r = nfs_write(c, &files[0], 0, "x", 1);
	if (r < 0)
		return r;
	op = (struct nfs_op){
		.type = NFS_OP_COPY,
		.dir = &files[0],
		.to_dir = &files[1],
		.length = 1,
	};
	r = nfs_client_call(c, &op);
	return r == -EOPNOTSUPP && op.is_async ? 0 : r; /* asynchronously only */
}

#define OFFLOAD_TRIES 3 /* a purge under way may remove the files too soon */

/* If the process dies here, the purger removes the files. */
static bool can_offload(struct nfs_client *c, const struct nfs_attr *tree, bool copy)
{
	struct error ignored = { .code = ERROR_OK };
	char names[2][NFS_NAME_MAX + 1];
	const struct nfs_handle *trash;
	unsigned int tries;
	int i, r;

	if (store_folder(c, STORE_TRASH, true, &trash, &ignored) < 0 ||
	    !is_on_file_system(c, trash, tree))
		return false;
	for (tries = 0; tries < OFFLOAD_TRIES; tries++) {
		for (i = 0; i < 2; i++)
			store_trash_name(names[i], &c->export, "clone");
		r = try_offload(c, trash, names, copy);
		for (i = 0; i < 2; i++)
			(void)nfs_remove(c, trash, names[i]);
		if (r != -ESTALE && r != -ENOENT)
			return r == 0;
	}
	return false;
}

/* Over a connection of its own, which a server that hangs up on CLONE or COPY may break. */
bool copy_clients_can_offload(const struct csi_driver *driver, const struct nfs_client *from,
			      const struct nfs_attr *tree, struct nfs_client *to, bool copy)
{
	struct error ignored = { .code = ERROR_OK };
	struct nfs_client *c;
	bool found;

	if (driver->verify_clones || (to->offload & NFS_OFFLOAD_CLONE) == 0 ||
	    !clients_share_server(from, to) || from->minor != to->minor ||
	    lease_same(driver, to, &c, &ignored) < 0)
		return false;
	found = c->minor == to->minor && can_offload(c, tree, copy);
	nfs_pool_return(driver->pool, c);
	return found;
}

/*
 * Return what the server can copy by itself. Exports of one server may lie on different file
 * systems. Both handles go over one connection, so their protocol version has to be the same.
 */
static unsigned int find_offload(const struct nfs_client *from, const struct nfs_client *to)
{
	const unsigned int copies = NFS_OFFLOAD_CLONE | NFS_OFFLOAD_COPY;

	return (from->offload & NFS_OFFLOAD_SEEK) |
	       (clients_share_server(from, to) && from->version == to->version
			? to->offload & copies
			: 0);
}

/* -------- extended attributes -------- */

static int ask_for_xattrs(struct nfs_client *c, const struct nfs_handle *dir, bool *ret,
			  struct error *err)
{
	int r = nfs_has_xattrs(c, dir, ret);

	return r < 0 ? nfs_error_set(err, c, r, "asking for extended attributes") : 0;
}

/*
 * Read the source's attributes even if the target takes none, to count the losses. If the source
 * has none, don't ask the target.
 */
int copy_clients_find_xattrs(struct nfs_client *from, const struct nfs_handle *tree,
			     struct nfs_client *to, enum copy_kind kind, struct tree_work *work,
			     struct error *err)
{
	const struct nfs_handle *folder;
	int r = 0;

	work->from_xattrs = work->to_xattrs = false;
	if (kind == COPY_CLONE || kind == COPY_ARCHIVE)
		r = ask_for_xattrs(from, tree, &work->from_xattrs, err);
	if (r < 0 || kind == COPY_ARCHIVE || (kind == COPY_CLONE && !work->from_xattrs))
		return r;
	r = store_folder(to, STORE_WORK, true, &folder, err);
	return r < 0 ? r : ask_for_xattrs(to, folder, &work->to_xattrs, err);
}

/* Refuse a lease over another version: the attributes would be lost. */
static int check_leased_version(const struct nfs_client *leased, const struct nfs_client *asked,
				struct error *err)
{
	if (leased->version == asked->version && leased->minor == asked->minor)
		return 0;
	return error_set(err, ERROR_ABORTED,
			 "server '%s' has just changed its versions of NFS; try again",
			 leased->export.server);
}

int copy_clients_lease(const struct csi_driver *driver, struct nfs_client *from,
		       struct nfs_client *to, bool same_version, struct tree_work *work,
		       struct error *err)
{
	const bool is_one = nfs_export_is_equal(&from->export, &to->export);
	const bool keep_from = same_version || work->from_xattrs; /* the version */
	const bool keep_to = same_version || work->to_xattrs || (is_one && keep_from);
	int r;

	r = keep_to ? lease_same(driver, to, &work->to, err)
		    : lease_for_tree(driver, to, &work->to, err);
	if (r < 0)
		return r;
	if (is_one)
		work->from = work->to;
	else if (keep_from)
		r = lease_same(driver, from, &work->from, err);
	else
		r = lease_for_tree(driver, from, &work->from, err);
	if (r == 0 && work->from_xattrs)
		r = check_leased_version(work->from, from, err);
	if (r == 0 && work->to_xattrs)
		r = check_leased_version(work->to, to, err);
	if (r == 0)
		work->offload = find_offload(work->from, work->to);
	work->names_differ = store_names_have_handles;
	return r;
}

void copy_clients_return(const struct csi_driver *driver, struct tree_work *work)
{
	if (work->from != work->to)
		nfs_pool_return(driver->pool, work->from);
	nfs_pool_return(driver->pool, work->to);
	work->from = work->to = NULL;
}
