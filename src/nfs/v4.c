/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Version 4 with compounds of our own: libnfs 4.0's path functions fail for directories, and need
 * many calls for a file. Everything uses file handles and the all-zero stateid, without opening
 * files; only creating one needs an OPEN, see v4_open.h.
 */

#include <errno.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "nfs/error.h"
#include "nfs/v4_compound.h"
#include "nfs/v4_open.h"
#include "nfs/v4_send.h"
#include "nfs/v4_session.h"

#define READDIR_BYTES 32768
#define NAMES_BYTES 2048 /* of a file and its owners, with OPEN and SETATTR around them */
#define EXPORT_DEPTH_MAX 64 /* components of an exported path */
#define MINOR_MAX 2 /* the newest minor version that we speak */

static void v4_encode_lookup(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	v4_add_lookup(c, op->name);
	v4_add(c, OP_GETFH);
	v4_add_getattr(c, op->full ? V4_FULL : V4_PLAIN);
}

static void v4_encode_getattr(struct v4_compound *c, const struct nfs_op *op)
{
	const enum v4_attributes what = op->full ? V4_FULL : V4_OWNER;
	size_t i;

	if (op->n_handles == 0) {
		v4_add_putfh(c, op->dir);
		v4_add_getattr(c, what);
	}
	for (i = 0; i < op->n_handles; i++) {
		v4_add_putfh(c, op->handles[i]);
		v4_add_getattr(c, what);
	}
}

static void v4_encode_setattr(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	/* The all-zero stateid: only a change of size uses it, like WRITE. */
	v4_add(c, OP_SETATTR)->nfs_argop4_u.opsetattr.obj_attributes = v4_change(c, &op->change);
	if (op->full)
		v4_add_getattr(c, V4_FULL);
}

static void v4_encode_mkdir(struct v4_compound *c, const struct nfs_op *op)
{
	const struct nfs_change change = { .has_mode = true, .mode = op->mode };
	CREATE4args *args;

	v4_add_putfh(c, op->dir);
	args = &v4_add(c, OP_CREATE)->nfs_argop4_u.opcreate;
	args->objtype.type = NF4DIR;
	args->objname = v4_text(op->name);
	args->createattrs = v4_change(c, &change);
	v4_add(c, OP_GETFH);
	v4_add_getattr(c, V4_FULL);
}

static void v4_encode_symlink(struct v4_compound *c, const struct nfs_op *op)
{
	CREATE4args *args;

	v4_add_putfh(c, op->dir);
	args = &v4_add(c, OP_CREATE)->nfs_argop4_u.opcreate;
	args->objtype.type = NF4LNK;
	args->objtype.createtype4_u.linkdata = v4_text(op->text);
	args->objname = v4_text(op->name);
}

static void v4_encode_readlink(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	if (op->name != NULL)
		v4_add_lookup(c, op->name);
	v4_add(c, OP_READLINK);
}

static void v4_encode_remove(struct v4_compound *c, const struct nfs_op *op)
{
	size_t i;

	v4_add_putfh(c, op->dir);
	if (op->n_names == 0)
		v4_add(c, OP_REMOVE)->nfs_argop4_u.opremove.target = v4_text(op->name);
	for (i = 0; i < op->n_names; i++)
		v4_add(c, OP_REMOVE)->nfs_argop4_u.opremove.target = v4_text(op->names[i]);
}

/* REMOVE removes files too, so VERIFY the type first: the server stops there if it differs. */
static void v4_encode_rmdir(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	v4_add_lookup(c, op->name);
	v4_add(c, OP_VERIFY)->nfs_argop4_u.opverify.obj_attributes = v4_type(c, NF4DIR);
	v4_encode_remove(c, op);
}

static void v4_encode_rename(struct v4_compound *c, const struct nfs_op *op)
{
	RENAME4args *args;

	v4_add_putfh(c, op->dir);
	v4_add(c, OP_SAVEFH);
	v4_add_putfh(c, op->to_dir);
	args = &v4_add(c, OP_RENAME)->nfs_argop4_u.oprename;
	args->oldname = v4_text(op->name);
	args->newname = v4_text(op->to_name);
}

/* What a page may take of a reply, which a session limits. */
static uint32_t page_max(const struct nfs_op *op, uint32_t bytes)
{
	const uint32_t max = op->client->session.reply_max;

	return max == 0 || bytes < max - NAMES_BYTES ? bytes : max - NAMES_BYTES;
}

static void v4_encode_readdir(struct v4_compound *c, const struct nfs_op *op)
{
	READDIR4args *args;

	v4_add_putfh(c, op->dir);
	args = &v4_add(c, OP_READDIR)->nfs_argop4_u.opreaddir;
	args->cookie = op->cookie;
	memcpy(args->cookieverf, op->verifier, sizeof(args->cookieverf));
	args->maxcount = page_max(op, READDIR_BYTES);
	args->dircount = args->maxcount / 4;
	args->attr_request = v4_mask(op->full ? V4_ENTRY_FULL : V4_ENTRY);
}

static void v4_encode_fsstat(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	v4_add_getattr(c, V4_SPACE);
}

static void v4_encode_mknod(struct v4_compound *c, const struct nfs_op *op)
{
	CREATE4args *args;

	v4_add_putfh(c, op->dir);
	args = &v4_add(c, OP_CREATE)->nfs_argop4_u.opcreate;
	args->objtype.type = op->node == NFS_TYPE_FIFO     ? NF4FIFO
			     : op->node == NFS_TYPE_SOCKET ? NF4SOCK
			     : op->node == NFS_TYPE_BLOCK  ? NF4BLK
							   : NF4CHR;
	/* Only encoded for devices. */
	args->objtype.createtype4_u.devdata.specdata1 = op->device.major;
	args->objtype.createtype4_u.devdata.specdata2 = op->device.minor;
	args->objname = v4_text(op->name);
	args->createattrs = v4_change(c, &op->change);
	v4_add(c, OP_GETFH);
}

static void v4_encode_link(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	v4_add(c, OP_SAVEFH);
	v4_add_putfh(c, op->to_dir);
	v4_add(c, OP_LINK)->nfs_argop4_u.oplink.newname = v4_text(op->to_name);
}

/* READ and WRITE use the all-zero stateid: the file is not open (RFC 7530, section 9.1.4.3). */
static void v4_encode_read(struct v4_compound *c, const struct nfs_op *op)
{
	READ4args *args;

	v4_add_putfh(c, op->dir);
	args = &v4_add(c, OP_READ)->nfs_argop4_u.opread;
	args->offset = op->offset;
	args->count = nfs_read_count(op);
	if (op->full)
		v4_add_getattr(c, V4_STATE);
	/* Last, since it may fail alone. */
	if (op->xattr != NULL)
		v4_add_later(c, V4_OP_LISTXATTRS)->listxattrs.max = NFS_XATTR_PAGE;
}

static void v4_encode_write(struct v4_compound *c, const struct nfs_op *op)
{
	WRITE4args *args;

	v4_add_putfh(c, op->dir);
	args = &v4_add(c, OP_WRITE)->nfs_argop4_u.opwrite;
	args->offset = op->offset;
	args->stable = op->stable ? FILE_SYNC4 : UNSTABLE4;
	args->data.data_len = op->count;
	args->data.data_val = op->buffer;
}

static void v4_encode_commit(struct v4_compound *c, const struct nfs_op *op)
{
	COMMIT4args *args;

	v4_add_putfh(c, op->dir);
	args = &v4_add(c, OP_COMMIT)->nfs_argop4_u.opcommit;
	args->offset = op->offset;
	args->count = op->count;
}

/* -------- version 4.2 -------- */

/* Leave the file dir saved and to_dir current. */
static void add_two_files(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	v4_add(c, OP_SAVEFH);
	v4_add_putfh(c, op->to_dir);
}

/*
 * CLONE returns no verifier, and its result need not be on the disk. The COMMIT tells the verifier
 * before it: if the one of a later COMMIT differs, the server was restarted in between.
 */
static void v4_encode_clone(struct v4_compound *c, const struct nfs_op *op)
{
	add_two_files(c, op);
	v4_add(c, OP_COMMIT);
	(void)v4_add_later(c, V4_OP_CLONE);
	v4_add_getattr(c, V4_STATE);
}

static void v4_encode_copy(struct v4_compound *c, const struct nfs_op *op)
{
	union v4_later_args *args;
	COMMIT4args *commit;

	add_two_files(c, op);
	/*
	 * As for CLONE: neither the reply of a COPY that goes on nor its status need tell a
	 * verifier. A COMMIT of one byte does not wait for all that an earlier COPY has written.
	 */
	if (op->allow_async) {
		commit = &v4_add(c, OP_COMMIT)->nfs_argop4_u.opcommit;
		commit->offset = op->offset;
		commit->count = 1;
	}
	args = v4_add_later(c, V4_OP_COPY);
	args->copy.offset = op->offset;
	args->copy.length = op->length;
	args->copy.allow_async = op->allow_async;
}

static void v4_encode_copy_status(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	memcpy(v4_add_later(c, V4_OP_OFFLOAD_STATUS)->offload, op->copy_id, sizeof(op->copy_id));
}

static void v4_encode_copy_cancel(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	memcpy(v4_add_later(c, V4_OP_OFFLOAD_CANCEL)->offload, op->copy_id, sizeof(op->copy_id));
}

static void v4_encode_seek(struct v4_compound *c, const struct nfs_op *op)
{
	union v4_later_args *args;

	v4_add_putfh(c, op->dir);
	args = v4_add_later(c, V4_OP_SEEK);
	args->seek.offset = op->offset;
	args->seek.hole = op->hole;
}

static void take_copy(struct nfs_op *op, const nfs_resop4 *res)
{
	const union v4_later_result *result = v4_later_result(res);

	op->is_async = result->copy.is_async;
	if (op->is_async)
		memcpy(op->copy_id, result->copy.id, sizeof(op->copy_id));
	/* The COMMIT in front has told one. */
	if (!op->is_async || !op->allow_async)
		memcpy(op->verifier, result->copy.verifier, sizeof(op->verifier));
	if (op->is_async)
		return;
	if (result->copy.length > op->length) {
		op->error = -EREMOTEIO;
		return;
	}
	op->length = result->copy.length;
	op->stable = result->copy.stable == FILE_SYNC4;
}

/* Find out whether a server that refuses a synchronous COPY would do an asynchronous one. */
static void take_copy_error(struct nfs_op *op, const COMPOUND4res *res)
{
	const union v4_later_result *result;
	const nfs_resop4 *last;

	op->is_async = false;
	if ((uint32_t)res->status != V4_ERR_OFFLOAD_NO_REQS || res->resarray.resarray_len == 0)
		return;
	last = &res->resarray.resarray_val[res->resarray.resarray_len - 1];
	if ((uint32_t)last->resop != V4_OP_COPY)
		return;
	result = v4_later_result(last);
	op->is_async = result->copy_refused.consecutive && !result->copy_refused.synchronous;
}

static void take_copy_status(struct nfs_op *op, const nfs_resop4 *res)
{
	const union v4_later_result *result = v4_later_result(res);

	op->length = result->offload_status.length;
	op->ended = result->offload_status.ended;
	op->copy_error = nfs_status_errno(result->offload_status.status);
}

/* At the end of the file some servers say so instead of NXIO. */
static void take_seek(struct nfs_op *op, const nfs_resop4 *res)
{
	const union v4_later_result *result = v4_later_result(res);

	op->offset = result->seek.offset;
	if (result->seek.eof && !op->hole)
		op->error = -ENXIO;
}

/* -------- extended attributes -------- */

static void v4_encode_xattr_support(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	v4_add_getattr(c, V4_XATTRS);
}

static void v4_encode_getxattr(struct v4_compound *c, const struct nfs_op *op)
{
	v4_add_putfh(c, op->dir);
	v4_add_later(c, V4_OP_GETXATTR)->getxattr = op->name;
}

static void v4_encode_setxattr(struct v4_compound *c, const struct nfs_op *op)
{
	union v4_later_args *args;

	v4_add_putfh(c, op->dir);
	args = v4_add_later(c, V4_OP_SETXATTR);
	args->setxattr.name = op->name;
	args->setxattr.value = op->buffer;
	args->setxattr.len = op->count;
}

static void v4_encode_listxattrs(struct v4_compound *c, const struct nfs_op *op)
{
	union v4_later_args *args;

	v4_add_putfh(c, op->dir);
	args = v4_add_later(c, V4_OP_LISTXATTRS);
	args->listxattrs.cookie = op->cookie;
	args->listxattrs.max = page_max(op, NFS_XATTR_PAGE);
}

static void take_getxattr(struct nfs_op *op, const nfs_resop4 *res)
{
	const struct v4_bytes *value = &v4_later_result(res)->getxattr;

	op->xattr(op, value->data, value->len);
}

static void take_listxattrs(struct nfs_op *op, const nfs_resop4 *res)
{
	const union v4_later_result *result = v4_later_result(res);
	uint32_t i;

	op->listed = result->listxattrs.eof;
	if (op->type == NFS_OP_LISTXATTRS) {
		op->cookie = result->listxattrs.cookie;
		op->eof = result->listxattrs.eof;
	} else if (!op->listed) {
		return; /* the caller lists them page by page */
	}
	for (i = 0; i < result->listxattrs.n; i++)
		op->xattr(op, result->listxattrs.names[i].data, result->listxattrs.names[i].len);
}

/* -------- replies -------- */

static void take_link(struct nfs_op *op, const nfs_resop4 *res)
{
	const linktext4 *link = &res->nfs_resop4_u.opreadlink.READLINK4res_u.resok4.link;

	if (link->utf8string_len > NFS_LINK_MAX) {
		op->error = -ENAMETOOLONG;
		return;
	}
	if (memchr(link->utf8string_val, '\0', link->utf8string_len) != NULL) {
		op->error = nfs_op_refuse(op);
		return;
	}
	memcpy(op->link, link->utf8string_val, link->utf8string_len);
	op->link[link->utf8string_len] = '\0';
}

static void v4_take_entry(struct nfs_op *op, const entry4 *e)
{
	struct nfs_entry entry = { .cookie = e->cookie };

	v4_take_attr(&e->attrs, op->client, &entry.attr, &entry.handle);
	op->error = nfs_op_take_entry(op, e->name.utf8string_val, e->name.utf8string_len, &entry);
}

static void take_readdir(struct nfs_op *op, const nfs_resop4 *res)
{
	const READDIR4resok *ok = &res->nfs_resop4_u.opreaddir.READDIR4res_u.resok4;
	const entry4 *e;

	memcpy(op->verifier, ok->cookieverf, sizeof(op->verifier));
	op->eof = ok->reply.eof;
	for (e = ok->reply.entries; e != NULL && op->error == 0; e = e->nextentry)
		v4_take_entry(op, e);
}

static void take_read(struct nfs_op *op, const nfs_resop4 *res)
{
	const READ4resok *ok = &res->nfs_resop4_u.opread.READ4res_u.resok4;

	op->error = nfs_op_take_data(op, ok->data.data_val, ok->data.data_len, ok->eof);
}

static void take_write(struct nfs_op *op, const nfs_resop4 *res)
{
	const WRITE4resok *ok = &res->nfs_resop4_u.opwrite.WRITE4res_u.resok4;

	op->error = nfs_op_take_written(op, ok->count, ok->committed != UNSTABLE4, ok->writeverf);
}

static void take_commit(struct nfs_op *op, const nfs_resop4 *res)
{
	memcpy(op->verifier, res->nfs_resop4_u.opcommit.COMMIT4res_u.resok4.writeverf,
	       sizeof(op->verifier));
}

static void take_getattr(struct nfs_op *op, const nfs_resop4 *res)
{
	const fattr4 *attr = &res->nfs_resop4_u.opgetattr.GETATTR4res_u.resok4.obj_attributes;

	if (op->type == NFS_OP_FSSTAT)
		v4_take_space(attr, &op->space);
	else if (op->type == NFS_OP_XATTR_SUPPORT)
		op->error = v4_take_xattrs(attr) ? 0 : -EOPNOTSUPP;
	else
		v4_take_attr(attr, op->client, &op->attr, &op->handle);
}

/* Without a handle, MKDIR and others look their name up. */
static void take_getfh(struct nfs_op *op, const nfs_resop4 *res)
{
	v4_take_handle(res, &op->handle);
	if (op->handle.len == 0 && op->type == NFS_OP_LOOKUP)
		op->error = nfs_op_refuse(op);
}

/* Operations with a result that is read if they succeeded. */
static const struct {
	uint32_t opnum;
	void (*take)(struct nfs_op *op, const nfs_resop4 *res);
} takers[] = {
	{ OP_GETFH, take_getfh },
	{ OP_GETATTR, take_getattr },
	{ OP_READLINK, take_link },
	{ OP_READDIR, take_readdir },
	{ OP_READ, take_read },
	{ OP_WRITE, take_write },
	{ OP_COMMIT, take_commit },
	{ V4_OP_COPY, take_copy },
	{ V4_OP_OFFLOAD_STATUS, take_copy_status },
	{ V4_OP_SEEK, take_seek },
	{ V4_OP_GETXATTR, take_getxattr },
	{ V4_OP_LISTXATTRS, take_listxattrs },
};

static void take_results(struct nfs_op *op, const COMPOUND4res *res)
{
	u_int i;
	size_t j;

	for (i = 0; i < res->resarray.resarray_len; i++) {
		const nfs_resop4 *one = &res->resarray.resarray_val[i];

		if (one->nfs_resop4_u.opillegal.status != NFS4_OK)
			return;
		for (j = 0; j < ARRAY_SIZE(takers) && op->error == 0; j++)
			if (takers[j].opnum == (uint32_t)one->resop)
				takers[j].take(op, one);
	}
}

/* Check whether a READ has succeeded, and only the listing of attributes behind it has not. */
static bool data_is_read(const struct nfs_op *op, const COMPOUND4res *res)
{
	const u_int n = res->resarray.resarray_len;

	return op->type == NFS_OP_READ && n > 0 &&
	       (uint32_t)res->resarray.resarray_val[n - 1].resop == V4_OP_LISTXATTRS;
}

/*
 * Check whether the change itself was made. What follows it in the compound only tells what was
 * made, and may fail alone: the handle and the attributes are optional then, as in version 3.
 */
static bool change_is_made(const struct nfs_op *op, const COMPOUND4res *res)
{
	static const nfs_opnum4 changes[NFS_OPS] = {
		[NFS_OP_SETATTR] = OP_SETATTR,
		[NFS_OP_MKDIR] = OP_CREATE,
		[NFS_OP_MKNOD] = OP_CREATE,
	};
	u_int i;

	for (i = 0; i < res->resarray.resarray_len; i++) {
		const nfs_resop4 *one = &res->resarray.resarray_val[i];

		if (one->resop == changes[op->type] && one->resop != 0)
			return one->nfs_resop4_u.opillegal.status == NFS4_OK;
	}
	return false;
}

/* The server stops at the first operation that fails, and returns the results up to it. */
static void count_removed(struct nfs_op *op, const COMPOUND4res *res)
{
	u_int i;

	op->count = 0;
	for (i = 0; i < res->resarray.resarray_len; i++) {
		const nfs_resop4 *one = &res->resarray.resarray_val[i];

		if (one->resop == OP_REMOVE && one->nfs_resop4_u.opremove.status == NFS4_OK)
			op->count++;
	}
}

/* Likewise, for GETATTR of several files. */
static void take_attrs(struct nfs_op *op, const COMPOUND4res *res)
{
	struct nfs_handle unused;
	u_int i;

	op->count = 0;
	for (i = 0; i < res->resarray.resarray_len && op->count < op->n_handles; i++) {
		const nfs_resop4 *one = &res->resarray.resarray_val[i];
		const GETATTR4res *getattr = &one->nfs_resop4_u.opgetattr;

		if (one->resop == OP_GETATTR && getattr->status == NFS4_OK)
			v4_take_attr(&getattr->GETATTR4res_u.resok4.obj_attributes, op->client,
				     &op->attrs[op->count++], &unused);
	}
}

static void v4_replied(void *data, int error, const void *results)
{
	struct nfs_op *op = data;
	const COMPOUND4res *res = results;

	if (error < 0) {
		nfs_op_finish(op, error);
		return;
	}
	op->error = nfs_status_errno(res->status);
	op->in_grace = res->status == NFS4ERR_GRACE;
	/* For READDIR, unlike RMDIR, NOT_SAME says that the cookie verifier no longer matches. */
	if (res->status == NFS4ERR_NOT_SAME && op->type == NFS_OP_READDIR)
		op->error = -ERESTART;
	if (op->type == NFS_OP_REMOVE)
		count_removed(op, res);
	if (op->type == NFS_OP_COPY && op->error < 0)
		take_copy_error(op, res);
	if (op->error < 0 && (change_is_made(op, res) || data_is_read(op, res)))
		op->error = 0;
	if (op->n_handles > 0)
		take_attrs(op, res);
	else if (op->error == 0)
		take_results(op, res);
	nfs_op_finish(op, op->error);
}

static void (*const encoders[NFS_OPS])(struct v4_compound *c, const struct nfs_op *op) = {
	[NFS_OP_LOOKUP] = v4_encode_lookup,
	[NFS_OP_GETATTR] = v4_encode_getattr,
	[NFS_OP_SETATTR] = v4_encode_setattr,
	[NFS_OP_MKDIR] = v4_encode_mkdir,
	[NFS_OP_SYMLINK] = v4_encode_symlink,
	[NFS_OP_READLINK] = v4_encode_readlink,
	[NFS_OP_REMOVE] = v4_encode_remove,
	[NFS_OP_RMDIR] = v4_encode_rmdir,
	[NFS_OP_RENAME] = v4_encode_rename,
	[NFS_OP_READDIR] = v4_encode_readdir,
	[NFS_OP_FSSTAT] = v4_encode_fsstat,
	[NFS_OP_MKNOD] = v4_encode_mknod,
	[NFS_OP_LINK] = v4_encode_link,
	[NFS_OP_READ] = v4_encode_read,
	[NFS_OP_WRITE] = v4_encode_write,
	[NFS_OP_COMMIT] = v4_encode_commit,
	[NFS_OP_CLONE] = v4_encode_clone,
	[NFS_OP_COPY] = v4_encode_copy,
	[NFS_OP_COPY_STATUS] = v4_encode_copy_status,
	[NFS_OP_COPY_CANCEL] = v4_encode_copy_cancel,
	[NFS_OP_SEEK] = v4_encode_seek,
	[NFS_OP_XATTR_SUPPORT] = v4_encode_xattr_support,
	[NFS_OP_GETXATTR] = v4_encode_getxattr,
	[NFS_OP_SETXATTR] = v4_encode_setxattr,
	[NFS_OP_LISTXATTRS] = v4_encode_listxattrs,
};

/* Whether it is about extended attributes, which only version 4.2 has (RFC 8276). */
static bool is_xattr_operation(enum nfs_op_type type)
{
	return type >= NFS_OP_XATTR_SUPPORT && type <= NFS_OP_LISTXATTRS;
}

static int v4_start(struct nfs_connection *conn, struct nfs_op *op)
{
	struct v4_compound c = { .n = 0 };

	if (op->type == NFS_OP_CREATE)
		return v4_open_start(conn, op);
	if (conn->client.minor < 2 && is_xattr_operation(op->type))
		return -EOPNOTSUPP;
	if (op->type == NFS_OP_SETXATTR &&
	    op->count + strlen(op->name) > v4_session_room(conn->session))
		return -EMSGSIZE;
	encoders[op->type](&c, op);
	return v4_send(conn, &c, v4_replied, op);
}

static int set_attach_error(const struct nfs_connection *conn, int r, struct error *err)
{
	const struct nfs_export *e = &conn->client.export;

	if (r == -EPROTONOSUPPORT)
		return error_sys(err, ERROR_FAILED_PRECONDITION, -r,
				 "server '%s' has NFSv4 but not %s: enable it on the server, or change vers= in the mount options",
				 e->server,
				 e->has_minor ? nfs_version_text(&conn->client)
					      : "any of 4.0, 4.1 and 4.2");
	if (r == -ENOENT || r == -ENOTDIR)
		return error_sys(err, ERROR_NOT_FOUND, -r,
				 "server '%s' has no NFSv4 export '%s', or does not show it to this client",
				 e->server, e->share);
	if (r == -EACCES || r == -EPERM)
		return error_sys(err, ERROR_PERMISSION_DENIED, -r,
				 "server '%s' refuses '%s' to this client: allow its address in the export, with the option 'insecure' for source ports above 1023; the controller supports only sec=sys",
				 e->server, e->share);
	return nfs_error_set(err, &conn->client, r, "looking up the export");
}

/* The limits are the last result, and optional. */
static void v4_attach_replied(void *data, int error, const void *results)
{
	struct nfs_client *client = ((struct nfs_op *)data)->client;
	const COMPOUND4res *res = results;

	if (error == 0 && res->status == NFS4_OK && res->resarray.resarray_len > 0) {
		const nfs_resop4 *last =
			&res->resarray.resarray_val[res->resarray.resarray_len - 1];

		if (last->resop == OP_GETATTR)
			v4_take_limits(&last->nfs_resop4_u.opgetattr.GETATTR4res_u.resok4
						.obj_attributes,
				       client);
	}
	v4_replied(data, error, results);
}

static int walk_once(struct nfs_connection *conn, char *const names[], size_t n,
		     struct nfs_handle *handle)
{
	struct nfs_op op = { .type = NFS_OP_LOOKUP, .client = &conn->client };
	struct v4_compound c = { .n = 0 };
	size_t i;
	int r;

	if (handle->len == 0)
		v4_add(&c, OP_PUTROOTFH);
	else
		v4_add_putfh(&c, handle);
	for (i = 0; i < n; i++)
		if (names[i][0] != '\0')
			v4_add_lookup(&c, names[i]);
	v4_add(&c, OP_GETFH);
	v4_add_getattr(&c, V4_LIMITS);
	r = v4_send(conn, &c, v4_attach_replied, &op);
	if (r < 0)
		return r;
	conn->in_flight++;
	r = conn->client.ops->run(&conn->client, nfs_connection_deadline(conn));
	if (op.finished)
		r = op.error; /* says more than that of a connection that it broke */
	if (r < 0)
		return r;
	*handle = op.handle;
	return op.handle.len == 0 ? -EREMOTEIO : 0;
}

/* Walk names, from the pseudo root or from *handle, which becomes what they lead to. */
static int walk(struct nfs_connection *conn, char *const names[], size_t n,
		struct nfs_handle *handle)
{
	struct nfs_patience patience = nfs_patience_until(nfs_connection_deadline(conn));
	int r;

	do
		r = walk_once(conn, names, n, handle);
	while (r == -EAGAIN && !conn->client.in_grace && nfs_patience_wait(&patience));
	return r;
}

/* Walk from the pseudo root to the export: in one compound, if the session has room for it. */
static int find_root(struct nfs_connection *conn, const struct strv *parts)
{
	const unsigned int operations = conn->client.operations;
	/* Beside PUTFH, GETFH and GETATTR. */
	const size_t max = operations == 0 || operations > EXPORT_DEPTH_MAX + 3 ? EXPORT_DEPTH_MAX
										: operations - 3;
	size_t i = 0, n;
	int r;

	conn->client.root.len = 0;
	do {
		n = parts->n - i < max ? parts->n - i : max;
		r = walk(conn, parts->items + i, n, &conn->client.root);
		i += n;
	} while (r == 0 && i < parts->n);
	return r;
}

static bool is_minor_refused(int error)
{
	return error == -EPROTONOSUPPORT || error == -EREMOTEIO || error == -EBADMSG ||
	       error == -EBADRQC || error == -EINVAL;
}

/*
 * Open a session for the newest minor version that server and options allow, or use 4.0. A server
 * that has the version in name only, and fails, is used with the next one.
 */
static int choose_minor(struct nfs_connection *conn, struct error *err)
{
	const struct nfs_export *e = &conn->client.export;
	unsigned int minor = e->has_minor ? e->minor : MINOR_MAX;
	int r;

	for (;; minor--) {
		conn->client.minor = minor;
		if (minor == 0)
			return 0;
		r = v4_session_open(conn, minor, e->has_minor ? err : NULL);
		if (e->has_minor || !is_minor_refused(r))
			return r;
	}
}

/* A small file takes PUTFH, OPEN, GETFH, WRITE, SETATTR, GETATTR and CLOSE. */
static uint32_t whole_max(const struct nfs_client *c)
{
	const uint32_t write_max = nfs_write_max(c);

	if ((c->operations > 0 && c->operations < 7) || write_max <= NAMES_BYTES)
		return 0;
	return write_max - NAMES_BYTES < NFS_WHOLE_MAX ? write_max - NAMES_BYTES : NFS_WHOLE_MAX;
}

/* PUTFH, READ, GETATTR and LISTXATTRS in one compound. */
static uint32_t lists_max(const struct nfs_client *c)
{
	const uint32_t other = NFS_XATTR_PAGE + NAMES_BYTES;

	if (c->minor < 2 || c->operations < 4 || c->session.reply_max <= other)
		return 0;
	return c->session.reply_max - other;
}

static int v4_attach(struct nfs_connection *conn, const struct net_address *address,
		     struct error *err)
{
	cleanup_strv struct strv parts = { NULL, 0 };
	int r;

	(void)address; /* version 4 uses one port for everything */
	r = strv_split(&parts, conn->client.export.share + 1, '/');
	if (r < 0)
		return error_oom(err);
	if (parts.n > EXPORT_DEPTH_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT, "share: more than %d path components",
				 EXPORT_DEPTH_MAX);
	r = choose_minor(conn, err);
	if (r == 0)
		r = find_root(conn, &parts);
	if (r < 0)
		return set_attach_error(conn, r, err);
	if (conn->session != NULL) {
		v4_session_cap(conn->session);
		conn->client.whole_max = whole_max(&conn->client);
		conn->client.lists_max = lists_max(&conn->client);
	}
	if (conn->client.minor >= 2)
		conn->client.offload = NFS_OFFLOAD_CLONE | NFS_OFFLOAD_COPY | NFS_OFFLOAD_SEEK;
	return 0;
}

static bool v4_is_fresh(const struct nfs_connection *conn)
{
	return conn->session == NULL || v4_session_is_fresh(conn->session);
}

static void v4_leave(struct nfs_connection *conn)
{
	if (conn->session != NULL)
		v4_session_leave(conn->session);
}

static void v4_broken(struct nfs_connection *conn, int failure)
{
	v4_session_broken(conn, failure);
	v4_open_broken(conn, failure);
}

static const struct net_rpc_procedure null =
	NET_RPC_PROCEDURE(NFS4_PROGRAM, NFS_V4, NFSPROC4_NULL, zdr_void, zdr_void, uint32_t);

const struct nfs_protocol nfs_protocol_v4 = {
	.version = 4,
	.null = &null,
	.attach = v4_attach,
	.start = v4_start,
	.is_fresh = v4_is_fresh,
	.leave = v4_leave,
	.broken = v4_broken,
};
