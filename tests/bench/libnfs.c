/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "libnfs.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <nfsc/libnfs-zdr.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-nfs.h>

#include "base/clock.h"
#include "base/str.h"
#include "net/ping.h"
#include "nfs/error.h"

/* More than any piece of a file, and more than all that are in flight. */
#define MALLOC_BLOCK_BYTES (1 << 20)
#define MALLOC_KEPT_BYTES (64 << 20)

struct libnfs_client {
	struct nfs_client client; /* first: the two are the same pointer */
	struct rpc_context *rpc; /* NULL once broken */
	unsigned int finished; /* operations ever, and the connection; wraps */
};

static void put_handle(nfs_fh3 *to, const struct nfs_handle *from)
{
	to->data.data_len = from->len;
	to->data.data_val = (char *)(uintptr_t)from->data; /* only read by the encoder */
}

static void put_name(diropargs3 *to, const struct nfs_op *op)
{
	put_handle(&to->dir, op->dir);
	to->name = (char *)(uintptr_t)op->name; /* only read by the encoder */
}

static void put_mode(sattr3 *to, uint32_t mode)
{
	to->mode.set_it = 1;
	to->mode.set_mode3_u.mode = mode;
}

/* Nothing else is changed by bare. */
static void put_change(sattr3 *to, const struct nfs_change *from)
{
	if (from->has_mode)
		put_mode(to, from->mode);
	if (!from->has_times)
		return;
	to->atime.set_it = SET_TO_CLIENT_TIME;
	to->atime.set_atime_u.atime.seconds = (u_int)from->atime.sec;
	to->atime.set_atime_u.atime.nseconds = from->atime.nsec;
	to->mtime.set_it = SET_TO_CLIENT_TIME;
	to->mtime.set_mtime_u.mtime.seconds = (u_int)from->mtime.sec;
	to->mtime.set_mtime_u.mtime.nseconds = from->mtime.nsec;
}

static void take_handle(struct nfs_handle *to, const nfs_fh3 *from)
{
	if (from->data.data_len > sizeof(to->data))
		return; /* no server has one */
	to->len = from->data.data_len;
	memcpy(to->data, from->data.data_val, to->len);
}

static void take_attr(struct nfs_attr *to, const post_op_attr *from)
{
	const fattr3 *attr = &from->post_op_attr_u.attributes;

	if (!from->attributes_follow)
		return;
	to->type = attr->type == NF3DIR ? NFS_TYPE_DIRECTORY : NFS_TYPE_FILE;
	to->has_mode = true;
	to->mode = attr->mode & 07777;
	to->has_owner = true;
	to->uid = attr->uid;
	to->gid = attr->gid;
}

static void take_made(struct nfs_op *op, const post_op_fh3 *handle, const post_op_attr *attr)
{
	if (handle->handle_follows)
		take_handle(&op->handle, &handle->post_op_fh3_u.handle);
	take_attr(&op->attr, attr);
}

static void take_lookup(struct nfs_op *op, const void *data)
{
	const LOOKUP3resok *ok = &((const LOOKUP3res *)data)->LOOKUP3res_u.resok;

	take_handle(&op->handle, &ok->object);
	take_attr(&op->attr, &ok->obj_attributes);
}

static void take_mkdir(struct nfs_op *op, const void *data)
{
	const MKDIR3resok *ok = &((const MKDIR3res *)data)->MKDIR3res_u.resok;

	take_made(op, &ok->obj, &ok->obj_attributes);
}

static void take_create(struct nfs_op *op, const void *data)
{
	const CREATE3resok *ok = &((const CREATE3res *)data)->CREATE3res_u.resok;

	take_made(op, &ok->obj, &ok->obj_attributes);
}

static void take_read(struct nfs_op *op, const void *data)
{
	const READ3resok *ok = &((const READ3res *)data)->READ3res_u.resok;

	if (ok->data.data_len > op->count) {
		op->error = -EREMOTEIO;
		return;
	}
	op->count = ok->data.data_len;
	op->eof = ok->eof;
	memcpy(op->buffer, ok->data.data_val, op->count);
}

static void take_write(struct nfs_op *op, const void *data)
{
	op->count = ((const WRITE3res *)data)->WRITE3res_u.resok.count;
}

static void (*const takers[NFS_OPS])(struct nfs_op *op, const void *data) = {
	[NFS_OP_LOOKUP] = take_lookup, [NFS_OP_MKDIR] = take_mkdir, [NFS_OP_CREATE] = take_create,
	[NFS_OP_READ] = take_read,     [NFS_OP_WRITE] = take_write,
};

static void replied(struct rpc_context *rpc, int status, void *data, void *private_data)
{
	struct nfs_op *op = private_data;

	(void)rpc;
	op->error = -ECONNABORTED;
	/* All replies start with their status. */
	if (status == RPC_STATUS_SUCCESS)
		op->error = nfsstat3_to_errno((int)*(const nfsstat3 *)data);
	if (op->error == 0 && takers[op->type] != NULL)
		takers[op->type](op, data);
	op->finished = true;
	((struct libnfs_client *)op->client)->finished++;
	if (op->done != NULL)
		op->done(op);
}

static int start_lookup(struct rpc_context *rpc, struct nfs_op *op)
{
	LOOKUP3args args;

	put_name(&args.what, op);
	return rpc_nfs3_lookup_async(rpc, replied, &args, op);
}

static int start_setattr(struct rpc_context *rpc, struct nfs_op *op)
{
	SETATTR3args args;

	memset(&args, 0, sizeof(args));
	put_handle(&args.object, op->dir);
	put_change(&args.new_attributes, &op->change);
	return rpc_nfs3_setattr_async(rpc, replied, &args, op);
}

static int start_mkdir(struct rpc_context *rpc, struct nfs_op *op)
{
	MKDIR3args args;

	memset(&args, 0, sizeof(args));
	put_name(&args.where, op);
	put_mode(&args.attributes, op->mode);
	return rpc_nfs3_mkdir_async(rpc, replied, &args, op);
}

static int start_symlink(struct rpc_context *rpc, struct nfs_op *op)
{
	SYMLINK3args args;

	memset(&args, 0, sizeof(args));
	put_name(&args.where, op);
	args.symlink.symlink_data = (char *)(uintptr_t)op->text; /* only read by the encoder */
	return rpc_nfs3_symlink_async(rpc, replied, &args, op);
}

static int start_remove(struct rpc_context *rpc, struct nfs_op *op)
{
	REMOVE3args args;

	put_name(&args.object, op);
	return rpc_nfs3_remove_async(rpc, replied, &args, op);
}

static int start_create(struct rpc_context *rpc, struct nfs_op *op)
{
	CREATE3args args;

	memset(&args, 0, sizeof(args));
	put_name(&args.where, op);
	args.how.mode = GUARDED;
	put_change(&args.how.createhow3_u.g_obj_attributes, &op->change);
	return rpc_nfs3_create_async(rpc, replied, &args, op);
}

static int start_read(struct rpc_context *rpc, struct nfs_op *op)
{
	READ3args args = { .offset = op->offset, .count = op->count };

	put_handle(&args.file, op->dir);
	return rpc_nfs3_read_async(rpc, replied, &args, op);
}

static int start_write(struct rpc_context *rpc, struct nfs_op *op)
{
	WRITE3args args = { .offset = op->offset, .count = op->count };

	put_handle(&args.file, op->dir);
	args.stable = op->stable ? FILE_SYNC : UNSTABLE;
	args.data.data_len = op->count;
	args.data.data_val = op->buffer;
	return rpc_nfs3_write_async(rpc, replied, &args, op);
}

static int start_commit(struct rpc_context *rpc, struct nfs_op *op)
{
	COMMIT3args args = { .offset = 0, .count = 0 }; /* all of the file */

	put_handle(&args.file, op->dir);
	return rpc_nfs3_commit_async(rpc, replied, &args, op);
}

static int (*const starters[NFS_OPS])(struct rpc_context *rpc, struct nfs_op *op) = {
	[NFS_OP_LOOKUP] = start_lookup, [NFS_OP_SETATTR] = start_setattr,
	[NFS_OP_MKDIR] = start_mkdir,   [NFS_OP_SYMLINK] = start_symlink,
	[NFS_OP_REMOVE] = start_remove, [NFS_OP_CREATE] = start_create,
	[NFS_OP_READ] = start_read,     [NFS_OP_WRITE] = start_write,
	[NFS_OP_COMMIT] = start_commit,
};

static int start(struct nfs_client *c, struct nfs_op *op)
{
	struct libnfs_client *l = (struct libnfs_client *)c;

	if (l->rpc == NULL)
		return -ECONNABORTED;
	if (starters[op->type] == NULL)
		return -EOPNOTSUPP;
	return starters[op->type](l->rpc, op) == 0 ? 0 : -ENOMEM;
}

/*
 * Run one turn of the loop that libnfs.h describes. Sending before waiting (which saves a poll) or
 * TCP_NODELAY (which libnfs does not set) makes it no faster, on a host or in a guest.
 */
static int serve(struct rpc_context *rpc, uint64_t deadline_ns)
{
	struct pollfd p = { .fd = rpc_get_fd(rpc), .events = (short)rpc_which_events(rpc) };
	int n;

	n = poll(&p, 1, clock_left_ms(deadline_ns));
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ETIMEDOUT;
	return rpc_service(rpc, p.revents) == 0 ? 0 : -ECONNABORTED;
}

/* Destroying the context ends what is in flight through the ordinary callbacks. */
static void break_off(struct libnfs_client *l)
{
	struct rpc_context *rpc = steal_ptr(&l->rpc);

	l->client.broken = true;
	if (rpc != NULL)
		rpc_destroy_context(rpc);
}

static int run(struct nfs_client *c, uint64_t deadline_ns)
{
	struct libnfs_client *l = (struct libnfs_client *)c;
	const unsigned int before = l->finished;
	int r = l->rpc != NULL ? 0 : -ECONNABORTED;

	while (r == 0 && l->finished == before)
		r = serve(l->rpc, deadline_ns);
	if (r < 0)
		break_off(l);
	return r;
}

static void free_client(struct nfs_client *c)
{
	struct libnfs_client *l = (struct libnfs_client *)c;

	break_off(l);
	nfs_export_done(&c->export);
	free(l);
}

static const struct nfs_client_ops libnfs_ops = {
	.start = start,
	.run = run,
	.free = free_client,
};

static void connected(struct rpc_context *rpc, int status, void *data, void *private_data)
{
	struct libnfs_client *l = private_data;

	(void)rpc;
	(void)status; /* rpc_service() fails, too */
	(void)data;
	l->finished++;
}

/*
 * libnfs allocates a block for each call and each reply. A block with a piece of a file is so large
 * that glibc returns it to the kernel and faults in new pages for the next one. In a guest that
 * takes three quarters of the time, and it says nothing about libnfs.
 */
static void keep_memory(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, MALLOC_BLOCK_BYTES);
	(void)mallopt(M_TRIM_THRESHOLD, MALLOC_KEPT_BYTES);
}

/* By libnfs itself, which only then reads from the socket until there is nothing left in it. */
static int open_context(struct libnfs_client *l)
{
	const struct nfs_export *e = &l->client.export;

	keep_memory();
	l->rpc = rpc_init_context();
	if (l->rpc == NULL)
		return -ENOMEM;
	rpc_set_uid(l->rpc, (int)e->uid);
	rpc_set_gid(l->rpc, (int)e->gid);
	if (rpc_connect_async(l->rpc, l->client.address, e->port != 0 ? e->port : NET_NFS_PORT,
			      connected, l) != 0)
		return -ECONNABORTED;
	return nfs_client_run(&l->client);
}

int libnfs_client_connect(struct nfs_client **ret, const struct nfs_export *e, struct error *err)
{
	cleanup_nfs_client struct nfs_client *found = NULL, *c = NULL;
	struct libnfs_client *l;
	int r;

	if (e->version != 3)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "over libnfs there is NFS version 3 only: set vers=3 in the mount options");
	r = nfs_client_connect(&found, e, err);
	if (r < 0)
		return r;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return error_oom(err);
	c = &l->client;
	c->ops = &libnfs_ops;
	c->version = found->version;
	c->write_max = found->write_max;
	c->root = found->root;
	memcpy(c->address, found->address, sizeof(c->address));
	r = nfs_export_copy(&c->export, e);
	if (r < 0)
		return error_oom(err);
	r = open_context(l);
	if (r < 0)
		return nfs_error_set(err, c, r, "connecting by libnfs");
	*ret = steal_ptr(&c);
	return 0;
}
