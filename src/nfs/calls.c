/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/calls.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mode.h"
#include "nfs/cookies.h"
#include "nfs/names.h"
#include "nfs/owner.h"

#define READDIR_RESTARTS_MAX 16 /* of one listing */
#define READDIR_PAUSE_MS 10
#define READDIR_NAMES_MAX 1000000 /* remembered; larger directories cannot start over */

/* fileid: see nfs_op. */
static int lookup(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		  uint64_t fileid, struct nfs_handle *ret_handle, struct nfs_attr *ret_attr)
{
	struct nfs_op op = { .type = NFS_OP_LOOKUP, .dir = dir, .name = name, .fileid = fileid };
	int r = nfs_client_call(c, &op);

	if (r < 0)
		return r;
	*ret_handle = op.handle;
	if (ret_attr == NULL)
		return 0;
	*ret_attr = op.attr;
	/* Attributes are optional in a version 3 reply. */
	if (op.attr.type == NFS_TYPE_UNKNOWN)
		return nfs_getattr(c, ret_handle, ret_attr);
	return 0;
}

int nfs_lookup(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
	       struct nfs_handle *ret_handle, struct nfs_attr *ret_attr)
{
	return lookup(c, dir, name, 0, ret_handle, ret_attr);
}

int nfs_lookup_mount(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		     struct nfs_handle *ret_handle, struct nfs_attr *ret_attr)
{
	return lookup(c, dir, name, NFS_FILEID_ANY, ret_handle, ret_attr);
}

int nfs_lookup_full(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    struct nfs_handle *ret_handle, struct nfs_attr *ret_attr)
{
	struct nfs_op op = { .type = NFS_OP_LOOKUP, .dir = dir, .name = name, .full = true };
	int r = nfs_client_call(c, &op);

	if (r < 0)
		return r;
	*ret_handle = op.handle;
	*ret_attr = op.attr;
	return nfs_complete_attr(c, ret_handle, ret_attr);
}

static int getattr(struct nfs_client *c, const struct nfs_handle *handle, bool full,
		   struct nfs_attr *ret_attr)
{
	struct nfs_op op = { .type = NFS_OP_GETATTR, .dir = handle, .full = full };
	int r = nfs_client_call(c, &op);

	if (r < 0)
		return r;
	*ret_attr = op.attr;
	ret_attr->is_mount = false; /* the caller has asked for an object, not for a name */
	return 0;
}

int nfs_getattr(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *ret_attr)
{
	return getattr(c, handle, false, ret_attr);
}

int nfs_stat(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *ret_attr)
{
	return getattr(c, handle, true, ret_attr);
}

int nfs_complete_attr(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *attr)
{
	const bool is_mount = attr->is_mount;
	int r;

	if (attr->is_full)
		return 0;
	r = nfs_stat(c, handle, attr);
	attr->is_mount = is_mount;
	return r;
}

/* Check whether setting the owner changed the mode, or may have. */
static bool has_lost_mode(const struct nfs_change *change, const struct nfs_attr *now)
{
	if (!change->has_mode)
		return false;
	return now->has_mode ? now->mode != change->mode : (change->mode & MODE_SPECIAL) != 0;
}

int nfs_setattr(struct nfs_client *c, const struct nfs_handle *handle,
		const struct nfs_change *change)
{
	const bool owner = change->has_uid || change->has_gid;
	struct nfs_op op = { .type = NFS_OP_SETATTR, .dir = handle, .full = owner };
	int r;

	op.change = *change;
	r = nfs_client_call(c, &op);
	if (r < 0 || !owner)
		return r;
	/* Attributes are optional in a version 3 reply. */
	if (!op.attr.has_owner && !op.attr.is_named)
		r = nfs_getattr(c, handle, &op.attr);
	if (r < 0)
		return r;
	if (nfs_owner_is_other(change, &op.attr))
		return -NFS_EOWNER;
	return has_lost_mode(change, &op.attr) ? nfs_setmode(c, handle, change->mode) : 0;
}

int nfs_setmode(struct nfs_client *c, const struct nfs_handle *handle, uint32_t mode)
{
	const struct nfs_change change = { .has_mode = true, .mode = mode };

	return nfs_setattr(c, handle, &change);
}

int nfs_mkdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name, uint32_t mode,
	      struct nfs_handle *ret_handle, struct nfs_attr *ret_attr)
{
	struct nfs_op op = { .type = NFS_OP_MKDIR, .dir = dir, .name = name, .mode = mode };
	int r = nfs_client_call(c, &op);

	if (r < 0)
		return r;
	/* The handle is optional in a version 3 reply. */
	if (op.handle.len == 0)
		return nfs_lookup(c, dir, name, ret_handle, ret_attr);
	*ret_handle = op.handle;
	*ret_attr = op.attr;
	return 0;
}

int nfs_symlink(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		const char *text)
{
	struct nfs_op op = { .type = NFS_OP_SYMLINK, .dir = dir, .name = name, .text = text };

	return nfs_client_call(c, &op);
}

#define READLINK_TRIES 3

int nfs_readlink(struct nfs_client *c, const struct nfs_handle *dir, const char *name, char *link)
{
	struct nfs_op op = { .type = NFS_OP_READLINK, .link = link };
	struct nfs_handle handle;
	struct nfs_attr attr;
	unsigned int tries;
	int r = -ESTALE;

	if (c->version == 4) {
		op.dir = dir;
		op.name = name;
		return nfs_client_call(c, &op);
	}
	/* NFSv3 takes two calls: another client may remove or replace the link between them. */
	for (tries = 0; tries < READLINK_TRIES; tries++) {
		r = nfs_lookup(c, dir, name, &handle, &attr);
		if (r < 0)
			return r;
		if (attr.type != NFS_TYPE_SYMLINK)
			return -EINVAL;
		op.dir = &handle;
		r = nfs_client_call(c, &op);
		if (r != -ESTALE)
			return r;
	}
	return r;
}

int nfs_create(struct nfs_client *c, const struct nfs_handle *dir, const char *name, uint32_t mode,
	       struct nfs_handle *ret_handle)
{
	struct nfs_op op = { .type = NFS_OP_CREATE, .dir = dir, .name = name };
	int r;

	op.change = (struct nfs_change){ .has_mode = true, .mode = mode };
	r = nfs_client_call(c, &op);
	if (r < 0)
		return r;
	/* The handle is optional in a version 3 reply. */
	if (op.handle.len == 0)
		return nfs_lookup(c, dir, name, ret_handle, NULL);
	*ret_handle = op.handle;
	return 0;
}

int nfs_read(struct nfs_client *c, const struct nfs_handle *file, uint64_t offset, char *data,
	     uint32_t *len)
{
	struct nfs_op op = { .type = NFS_OP_READ, .dir = file };
	uint32_t done = 0;
	int r;

	while (done < *len && !op.eof) {
		op.offset = offset + done;
		op.buffer = data + done;
		op.count = *len - done;
		r = nfs_client_call(c, &op);
		if (r < 0)
			return r;
		/* Neither data nor EOF: this would loop forever. */
		if (op.count == 0 && !op.eof)
			return -EIO;
		done += op.count;
	}
	*len = done;
	return 0;
}

/* COMMIT the data of a WRITE. */
static int commit_write(struct nfs_client *c, const struct nfs_op *written)
{
	struct nfs_op op = { .type = NFS_OP_COMMIT, .dir = written->dir };
	int r = nfs_client_call(c, &op);

	if (r < 0)
		return r;
	/* The server was restarted in between, and may have lost the data. */
	return memcmp(op.verifier, written->verifier, sizeof(op.verifier)) == 0 ? 0 : -EIO;
}

int nfs_write(struct nfs_client *c, const struct nfs_handle *file, uint64_t offset,
	      const char *data, uint32_t len)
{
	struct nfs_op op = { .type = NFS_OP_WRITE, .dir = file };
	uint32_t done = 0;
	int r;

	while (done < len) {
		op.offset = offset + done;
		op.buffer = (char *)(uintptr_t)data + done; /* only read by the encoder */
		op.count = len - done;
		op.stable = true;
		r = nfs_client_call(c, &op);
		if (r < 0)
			return r;
		if (op.count == 0)
			return -EIO;
		done += op.count;
		/* The server ignored FILE_SYNC. */
		if (!op.stable)
			r = commit_write(c, &op);
		if (r < 0)
			return r;
	}
	return 0;
}

int nfs_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name)
{
	struct nfs_op op = { .type = NFS_OP_REMOVE, .dir = dir, .name = name };

	return nfs_client_call(c, &op);
}

static int end_at_first_entry(void *data, const struct nfs_entry *entry)
{
	(void)data;
	(void)entry;
	return -ENOTEMPTY;
}

int nfs_has_entry(struct nfs_client *c, const struct nfs_handle *dir)
{
	int r = nfs_readdir(c, dir, end_at_first_entry, NULL);

	return r == -ENOTEMPTY ? 1 : r;
}

static bool is_full_directory(struct nfs_client *c, const struct nfs_handle *dir, const char *name)
{
	struct nfs_handle handle;
	struct nfs_attr attr;

	return nfs_lookup(c, dir, name, &handle, &attr) == 0 && attr.type == NFS_TYPE_DIRECTORY &&
	       nfs_has_entry(c, &handle) == 1;
}

/* Servers that pass on their system's errors in their own way say EIO for a full directory. */
static bool may_mean_full(int error)
{
	return error == -EIO || error == -EREMOTEIO || error == -EINVAL;
}

int nfs_rmdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name)
{
	struct nfs_op op = { .type = NFS_OP_RMDIR, .dir = dir, .name = name };
	int r = nfs_client_call(c, &op);

	if (may_mean_full(r) && is_full_directory(c, dir, name))
		return -ENOTEMPTY;
	return r;
}

int nfs_rename(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
	       const struct nfs_handle *to_dir, const char *to_name)
{
	struct nfs_op op = { .type = NFS_OP_RENAME,
			     .dir = dir,
			     .name = name,
			     .to_dir = to_dir,
			     .to_name = to_name };

	return nfs_client_call(c, &op);
}

int nfs_link(struct nfs_client *c, const struct nfs_handle *file, const struct nfs_handle *dir,
	     const char *name)
{
	struct nfs_op op = { .type = NFS_OP_LINK, .dir = file, .to_dir = dir, .to_name = name };

	return nfs_client_call(c, &op);
}

int nfs_has_xattrs(struct nfs_client *c, const struct nfs_handle *handle, bool *ret)
{
	struct nfs_op op = { .type = NFS_OP_XATTR_SUPPORT, .dir = handle };
	int r;

	*ret = false;
	if (c->version != 4 || c->minor < 2)
		return 0;
	r = nfs_client_call(c, &op);
	*ret = r == 0;
	return r == -EOPNOTSUPP ? 0 : r;
}

int nfs_fsstat(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_space *ret)
{
	struct nfs_op op = { .type = NFS_OP_FSSTAT, .dir = handle };
	int r = nfs_client_call(c, &op);

	if (r == 0)
		*ret = op.space;
	return r;
}

struct readdir_walk {
	int (*entry)(void *data, const struct nfs_entry *entry);
	void *data;
	struct nfs_names given;
	struct nfs_cookies cookies;
	bool is_huge; /* too many names to remember: the listing cannot start over */
	uint64_t seen; /* entries and pages, against a listing that does not end */
	int result;
};

static void readdir_entry(struct nfs_op *op, const struct nfs_entry *entry)
{
	struct readdir_walk *walk = op->data;
	int r = 1;

	if (walk->result < 0)
		return;
	if (++walk->seen > NFS_LISTING_MAX) {
		walk->result = -EOVERFLOW;
		return;
	}
	walk->is_huge = walk->is_huge || walk->given.n == READDIR_NAMES_MAX;
	if (!walk->is_huge)
		r = nfs_names_add(&walk->given, entry->name);
	if (r == 1)
		r = walk->entry(walk->data, entry);
	walk->result = r;
}

/* The directory changed and the server lost its place. Names passed already are skipped. */
static void restart_readdir(struct nfs_op *op, struct readdir_walk *walk, unsigned int restarts)
{
	walk->cookies = (struct nfs_cookies){ .pages = 0 };
	walk->seen = 0;
	op->cookie = 0;
	op->eof = false;
	memset(op->verifier, 0, sizeof(op->verifier));
	clock_sleep_ms(READDIR_PAUSE_MS * restarts);
}

static int readdir_pages(struct nfs_client *c, struct nfs_op *op, struct readdir_walk *walk)
{
	unsigned int restarts = 0;

	do {
		int r = nfs_client_call(c, op);

		if (r == -ERESTART && !walk->is_huge && restarts < READDIR_RESTARTS_MAX) {
			restart_readdir(op, walk, ++restarts);
			continue;
		}
		if (nfs_readdir_lost_entry(r) && restarts < READDIR_RESTARTS_MAX) {
			clock_sleep_ms(READDIR_PAUSE_MS * ++restarts);
			continue;
		}
		/* A handle has no name that could be missing: the directory is gone. */
		if (r == -ENOENT)
			return -ESTALE;
		if (r < 0)
			return r;
		if (walk->result < 0)
			return walk->result;
		if (!op->eof && nfs_cookies_repeat(&walk->cookies, op->cookie))
			return -EIO;
		if (++walk->seen > NFS_LISTING_MAX)
			return -EOVERFLOW;
	} while (!op->eof);
	return 0;
}

int nfs_readdir(struct nfs_client *c, const struct nfs_handle *dir,
		int (*entry)(void *data, const struct nfs_entry *entry), void *data)
{
	struct readdir_walk walk = { .entry = entry, .data = data };
	struct nfs_op op = {
		.type = NFS_OP_READDIR, .dir = dir, .entry = readdir_entry, .data = &walk
	};
	int r = readdir_pages(c, &op, &walk);

	nfs_names_done(&walk.given);
	return r;
}
