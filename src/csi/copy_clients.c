/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/copy_clients.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "csi/session.h"
#include "net/connect.h"
#include "nfs/calls.h"
#include "store/directory.h"
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

/*
 * A file system that is mounted inside the share and exported by a line of its own is there for
 * every client of version 4. Without crossmnt or nohide, one of version 3 finds the directory
 * underneath, so compare what is at the path, which may lie below such a mount point.
 */
static bool is_same_path(struct nfs_client *a, struct nfs_client *b, const char *path)
{
	struct error ignored = { .code = ERROR_OK };
	struct nfs_handle in_a, in_b;
	struct directory_place place;
	struct nfs_attr unused;

	return directory_look_up(a, path, &place, &in_a, &unused, &ignored) == 0 &&
	       directory_look_up(b, path, &place, &in_b, &unused, &ignored) == 0 &&
	       is_same_directory(a, &in_a, b, &in_b);
}

static int lease_same(const struct csi_driver *driver, struct nfs_client *c,
		      struct nfs_client **ret, struct error *err)
{
	int r = nfs_pool_lease(driver->pool, &c->export, ret, err);

	if (r < 0 && session_share_is_gone(driver, &c->export, err))
		err->code = ERROR_ABORTED;
	return r;
}

/*
 * Lease a client like c for a tree: over version 3, unless the options ask for another one, or what
 * is at path (NULL: nothing is read) is not the same there.
 */
static int lease_for_tree(const struct csi_driver *driver, struct nfs_client *c, const char *path,
			  struct nfs_client **ret, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	struct nfs_export e = c->export; /* borrows its strings */

	if (c->version != 3 && nfs_export_leaves_version(&e)) {
		e.version = 3;
		if (nfs_pool_lease(driver->pool, &e, ret, &ignored) == 0) {
			if (is_same_share(*ret, c) && (path == NULL || is_same_path(*ret, c, path)))
				return 0;
			nfs_pool_return(driver->pool, *ret);
		}
	}
	*ret = NULL;
	return lease_same(driver, c, ret, err);
}

/* Refuse a lease over another version: attributes would be lost, or blocks not shared. */
static int check_leased_version(const struct nfs_client *leased, const struct nfs_client *asked,
				struct error *err)
{
	if (leased->version == asked->version && leased->minor == asked->minor)
		return 0;
	return error_set(err, ERROR_ABORTED,
			 "server '%s' has just changed its versions of NFS; try again",
			 leased->export.server);
}

/* -------- what the server copies -------- */

bool copy_clients_share_server(const struct nfs_client *a, const struct nfs_client *b)
{
	return a->export.port == b->export.port && strcmp(a->address, b->address) == 0;
}

static int check_file_system(struct nfs_client *c, const struct nfs_handle *folder,
			     const struct nfs_attr *tree)
{
	struct nfs_attr attr;
	int r = nfs_getattr(c, folder, &attr);

	if (r < 0)
		return r;
	return nfs_fsid_is_equal(&attr, tree) ? 0 : -EXDEV;
}

/*
 * Try CLONE or COPY. Return 0 or -EOPNOTSUPP, also for a server that hangs up on it, or another
 * negative errno, which says nothing about the operation.
 */
static int try_operation(struct nfs_client *c, struct nfs_op *op)
{
	int r = nfs_client_call(c, op);

	if (r == 0 || (r == -EOPNOTSUPP && op->is_async)) /* asynchronously only */
		return 0;
	if (r == -EAGAIN || r == -ESTALE || r == -ENOENT || net_is_own_failure(r))
		return r;
	if (c->broken)
		log_warn("The connection broke on CLONE or COPY, which are not used",
			 LOG_STR("server", c->export.server), LOG_STR("share", c->export.share));
	return -EOPNOTSUPP;
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
	r = try_operation(c, &op);
	if (r != -EOPNOTSUPP || !copy || c->broken)
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
	return try_operation(c, &op);
}

#define OFFLOAD_TRIES 3 /* a purge under way may remove the files too soon */

/* If the process dies here, the purger removes the files. */
static int try_offload_in_trash(struct nfs_client *c, const struct nfs_attr *tree, bool copy,
				struct error *err)
{
	char names[2][NFS_NAME_MAX + 1];
	const struct nfs_handle *trash;
	unsigned int tries;
	int i, r;

	r = store_folder(c, STORE_TRASH, true, &trash, err);
	if (r < 0)
		return r;
	r = check_file_system(c, trash, tree);
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up the trash");
	for (tries = 0; tries < OFFLOAD_TRIES; tries++) {
		for (i = 0; i < 2; i++)
			store_trash_name(names[i], &c->export, "clone");
		r = try_offload(c, trash, names, copy);
		for (i = 0; i < 2; i++)
			(void)nfs_remove(c, trash, names[i]);
		if (r != -ESTALE && r != -ENOENT)
			break;
	}
	return r < 0 ? nfs_error_set(err, c, r, "trying CLONE and COPY in the trash") : 0;
}

/*
 * Over a connection of its own, which a server that hangs up on CLONE or COPY may break. Other
 * errors mean no only if they are final: what may pass soon must not make a copy of all bytes.
 */
int copy_clients_can_offload(const struct csi_driver *driver, const struct nfs_client *from,
			     const struct nfs_attr *tree, struct nfs_client *to, bool copy,
			     struct error *err)
{
	struct error why = { .code = ERROR_OK };
	struct nfs_client *c;
	int r;

	if (driver->verify_clones || (to->offload & NFS_OFFLOAD_CLONE) == 0 ||
	    !copy_clients_share_server(from, to) || from->minor != to->minor)
		return 0;
	r = lease_same(driver, to, &c, err);
	if (r < 0)
		return r;
	r = check_leased_version(c, to, &why);
	if (r == 0)
		r = try_offload_in_trash(c, tree, copy, &why);
	nfs_pool_return(driver->pool, c);
	if (r == 0)
		return 1;
	if (error_is_final(why.code) && !net_is_own_failure(r))
		return 0;
	*err = why;
	return r;
}

/*
 * Return what the server can copy by itself. Exports of one server may lie on different file
 * systems. Both handles go over one connection, so their protocol version has to be the same.
 */
static unsigned int find_offload(const struct nfs_client *from, const struct nfs_client *to)
{
	const unsigned int copies = NFS_OFFLOAD_CLONE | NFS_OFFLOAD_COPY;

	return (from->offload & NFS_OFFLOAD_SEEK) |
	       (copy_clients_share_server(from, to) && from->version == to->version
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

int copy_clients_lease(const struct csi_driver *driver, struct nfs_client *from,
		       struct nfs_client *to, const char *path, bool same_version,
		       struct tree_work *work, struct error *err)
{
	const bool is_one = nfs_export_is_equal(&from->export, &to->export);
	const bool keep_from = same_version || work->from_xattrs; /* the version */
	const bool keep_to = same_version || work->to_xattrs || (is_one && keep_from);
	int r;

	r = keep_to ? lease_same(driver, to, &work->to, err)
		    : lease_for_tree(driver, to, is_one ? path : NULL, &work->to, err);
	if (r < 0)
		return r;
	nfs_pool_spare(driver->pool, work->to); /* the call has those of its sessions, too */
	if (is_one)
		work->from = work->to;
	else if (keep_from)
		r = lease_same(driver, from, &work->from, err);
	else
		r = lease_for_tree(driver, from, path, &work->from, err);
	if (r == 0)
		nfs_pool_spare(driver->pool, work->from);
	if (r == 0 && keep_from)
		r = check_leased_version(work->from, from, err);
	if (r == 0 && keep_to)
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
