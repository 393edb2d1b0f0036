/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "nfs/connection.h"
#include "nfs/error.h"
#include "nfs/v3_results.h"

#define READDIR_BYTES 32768 /* per page; servers may return less */
#define READDIR_BYTES_MIN 4096 /* an entry of READDIRPLUS may have nearly 1,000 */

#define AUTH_FLAVOR_NONE 0 /* RFC 5531, section 8.2 */
#define AUTH_FLAVOR_SYS 1

static void put_handle(nfs_fh3 *to, const struct nfs_handle *from)
{
	to->data.data_len = from->len;
	to->data.data_val = (char *)(uintptr_t)from->data; /* only read by the encoder */
}

static void put_name(diropargs3 *to, const struct nfs_handle *dir, const char *name)
{
	put_handle(&to->dir, dir);
	to->name = (char *)(uintptr_t)name; /* only read by the encoder */
}

static void v3_take_handle(struct nfs_handle *to, const nfs_fh3 *from)
{
	if (from->data.data_len > sizeof(to->data))
		return; /* over the protocol's limit: as if none was sent */
	to->len = from->data.data_len;
	memcpy(to->data, from->data.data_val, to->len);
}

static void v3_take_handle_if(struct nfs_handle *to, const post_op_fh3 *from)
{
	if (from->handle_follows)
		v3_take_handle(to, &from->post_op_fh3_u.handle);
}

/*
 * Version 3 counts seconds since 1970 in 32 bits (RFC 1813, section 2.5), and servers send the low
 * 32 bits of their time: 1960 and 2096 look the same. Read the last quarter of the range, 2072 to
 * 2106, as 1936 to 1970: there are files with dates of that age, and none from the future.
 */
#define TIME_NEGATIVE 0xc0000000U

static struct nfs_time v3_take_time(const nfstime3 *from)
{
	const int64_t sec = from->seconds;

	return (struct nfs_time){
		.sec = from->seconds >= TIME_NEGATIVE ? sec - (INT64_C(1) << 32) : sec,
		.nsec = from->nseconds,
	};
}

static void v3_take_attr(struct nfs_attr *to, const fattr3 *from)
{
	switch (from->type) {
	case NF3DIR:
		to->type = NFS_TYPE_DIRECTORY;
		break;
	case NF3REG:
		to->type = NFS_TYPE_FILE;
		break;
	case NF3LNK:
		to->type = NFS_TYPE_SYMLINK;
		break;
	case NF3FIFO:
		to->type = NFS_TYPE_FIFO;
		break;
	case NF3SOCK:
		to->type = NFS_TYPE_SOCKET;
		break;
	case NF3BLK:
		to->type = NFS_TYPE_BLOCK;
		break;
	case NF3CHR:
		to->type = NFS_TYPE_CHARACTER;
		break;
	default:
		to->type = NFS_TYPE_OTHER;
		break;
	}
	to->has_mode = true;
	to->mode = from->mode & 07777;
	to->has_owner = true;
	to->uid = from->uid;
	to->gid = from->gid;
	to->is_full = true;
	to->links = from->nlink;
	to->size = from->size;
	to->used = from->used;
	to->fileid = from->fileid;
	to->has_fsid = true;
	to->fsid = from->fsid;
	to->device = (struct nfs_device){ from->rdev.specdata1, from->rdev.specdata2 };
	to->atime = v3_take_time(&from->atime);
	to->mtime = v3_take_time(&from->mtime);
	to->ctime = v3_take_time(&from->ctime);
}

static void v3_take_attr_if(struct nfs_attr *to, const post_op_attr *from)
{
	if (from->attributes_follow)
		v3_take_attr(to, &from->post_op_attr_u.attributes);
}

static void set_mode(sattr3 *to, uint32_t mode)
{
	to->mode.set_it = 1;
	to->mode.set_mode3_u.mode = mode;
}

/* Clamp to the times that the protocol can carry, see nfs_time_fits(). */
static nfstime3 make_time(const struct nfs_time *from)
{
	nfstime3 to = { .nseconds = from->nsec };

	if (from->sec < 0 || from->sec > UINT32_MAX)
		to.nseconds = 0;
	if (from->sec >= 0)
		to.seconds = from->sec > UINT32_MAX ? UINT32_MAX : (uint32_t)from->sec;
	return to;
}

static void set_attr(sattr3 *to, const struct nfs_change *from)
{
	if (from->has_mode)
		set_mode(to, from->mode);
	to->uid.set_it = from->has_uid;
	to->uid.set_uid3_u.uid = from->uid;
	to->gid.set_it = from->has_gid;
	to->gid.set_gid3_u.gid = from->gid;
	to->size.set_it = from->has_size;
	to->size.set_size3_u.size = from->size;
	if (!from->has_times)
		return;
	to->atime.set_it = SET_TO_CLIENT_TIME;
	to->atime.set_atime_u.atime = make_time(&from->atime);
	to->mtime.set_it = SET_TO_CLIENT_TIME;
	to->mtime.set_mtime_u.mtime = make_time(&from->mtime);
}

static void v3_take_lookup(struct nfs_op *op, const void *data)
{
	const LOOKUP3resok *ok = &((const LOOKUP3res *)data)->LOOKUP3res_u.resok;

	v3_take_handle(&op->handle, &ok->object);
	v3_take_attr_if(&op->attr, &ok->obj_attributes);
	if (op->handle.len == 0)
		op->error = nfs_op_refuse(op);
	/* See ask_parent(). */
	if (op->fileid == 0 || op->attr.type != NFS_TYPE_DIRECTORY ||
	    op->attr.fileid == op->fileid || !ok->dir_attributes.attributes_follow)
		op->parent_fileid = 0;
	else
		op->parent_fileid = ok->dir_attributes.post_op_attr_u.attributes.fileid;
}

static void v3_take_parent(struct nfs_op *op, const void *data)
{
	const LOOKUP3resok *ok = &((const LOOKUP3res *)data)->LOOKUP3res_u.resok;
	struct nfs_attr parent = { .type = NFS_TYPE_UNKNOWN };

	v3_take_attr_if(&parent, &ok->obj_attributes);
	if (parent.type != NFS_TYPE_UNKNOWN)
		op->attr.is_mount = !nfs_fsid_is_equal(&parent, &op->attr) ||
				    parent.fileid != op->parent_fileid;
}

static void v3_take_getattr(struct nfs_op *op, const void *data)
{
	v3_take_attr(&op->attr, &((const GETATTR3res *)data)->GETATTR3res_u.resok.obj_attributes);
}

static void v3_take_setattr(struct nfs_op *op, const void *data)
{
	v3_take_attr_if(&op->attr, &((const SETATTR3res *)data)->SETATTR3res_u.resok.obj_wcc.after);
}

static void v3_take_mkdir(struct nfs_op *op, const void *data)
{
	const MKDIR3resok *ok = &((const MKDIR3res *)data)->MKDIR3res_u.resok;

	v3_take_handle_if(&op->handle, &ok->obj);
	v3_take_attr_if(&op->attr, &ok->obj_attributes);
}

static void v3_take_symlink(struct nfs_op *op, const void *data)
{
	v3_take_handle_if(&op->handle, &((const SYMLINK3res *)data)->SYMLINK3res_u.resok.obj);
}

static void v3_take_readlink(struct nfs_op *op, const void *data)
{
	const char *text = ((const READLINK3res *)data)->READLINK3res_u.resok.data;
	const size_t len = strlen(text); /* a NUL in it makes the reply unreadable */

	if (len > NFS_LINK_MAX) {
		op->error = -ENAMETOOLONG;
		return;
	}
	memcpy(op->link, text, len + 1);
}

static void v3_take_readdir(struct nfs_op *op, const void *data)
{
	const READDIRPLUS3resok *ok = &((const READDIRPLUS3res *)data)->READDIRPLUS3res_u.resok;
	const entryplus3 *e;

	memcpy(op->verifier, ok->cookieverf, sizeof(op->verifier));
	op->eof = ok->reply.eof;
	for (e = ok->reply.entries; e != NULL && op->error == 0; e = e->nextentry) {
		struct nfs_entry entry = { .cookie = e->cookie, .fileid = e->fileid };

		v3_take_handle_if(&entry.handle, &e->name_handle);
		v3_take_attr_if(&entry.attr, &e->name_attributes);
		/* LOOKUP finds out whether it is a mount point. */
		if (entry.attr.type == NFS_TYPE_DIRECTORY && entry.attr.fileid != e->fileid) {
			entry.handle.len = 0;
			entry.attr = (struct nfs_attr){ .type = NFS_TYPE_UNKNOWN };
		}
		op->error = nfs_op_take_entry(op, e->name, strlen(e->name), &entry);
	}
}

/* READDIR: no handles and attributes; the caller looks them up. */
static void v3_take_names(struct nfs_op *op, const void *data)
{
	const READDIR3resok *ok = &((const READDIR3res *)data)->READDIR3res_u.resok;
	const entry3 *e;

	memcpy(op->verifier, ok->cookieverf, sizeof(op->verifier));
	op->eof = ok->reply.eof;
	for (e = ok->reply.entries; e != NULL && op->error == 0; e = e->nextentry) {
		struct nfs_entry entry = { .cookie = e->cookie, .fileid = e->fileid };

		op->error = nfs_op_take_entry(op, e->name, strlen(e->name), &entry);
	}
}

static void v3_take_fsstat(struct nfs_op *op, const void *data)
{
	const FSSTAT3resok *ok = &((const FSSTAT3res *)data)->FSSTAT3res_u.resok;

	op->space = (struct nfs_space){ .total = ok->tbytes, .available = ok->abytes };
}

static void v3_take_create(struct nfs_op *op, const void *data)
{
	const CREATE3resok *ok = &((const CREATE3res *)data)->CREATE3res_u.resok;

	v3_take_handle_if(&op->handle, &ok->obj);
	v3_take_attr_if(&op->attr, &ok->obj_attributes);
}

static void v3_take_mknod(struct nfs_op *op, const void *data)
{
	v3_take_handle_if(&op->handle, &((const MKNOD3res *)data)->MKNOD3res_u.resok.obj);
}

static void v3_take_read(struct nfs_op *op, const void *data)
{
	const READ3resok *ok = &((const READ3res *)data)->READ3res_u.resok;

	if (ok->count != ok->data.data_len)
		op->error = nfs_op_refuse(op);
	else
		op->error = nfs_op_take_data(op, ok->data.data_val, ok->data.data_len, ok->eof);
	if (op->full)
		v3_take_attr_if(&op->attr, &ok->file_attributes);
}

static void v3_take_write(struct nfs_op *op, const void *data)
{
	const WRITE3resok *ok = &((const WRITE3res *)data)->WRITE3res_u.resok;

	op->error = nfs_op_take_written(op, ok->count, ok->committed != UNSTABLE, ok->verf);
}

static void v3_take_commit(struct nfs_op *op, const void *data)
{
	memcpy(op->verifier, ((const COMMIT3res *)data)->COMMIT3res_u.resok.verf,
	       sizeof(op->verifier));
}

static void v3_take_nothing(struct nfs_op *op, const void *data)
{
	(void)op;
	(void)data;
}

union args {
	LOOKUP3args lookup;
	GETATTR3args getattr;
	SETATTR3args setattr;
	MKDIR3args mkdir;
	SYMLINK3args symlink;
	READLINK3args readlink;
	REMOVE3args remove;
	RMDIR3args rmdir;
	RENAME3args rename;
	READDIRPLUS3args readdir;
	READDIR3args names;
	FSSTAT3args fsstat;
	CREATE3args create;
	MKNOD3args mknod;
	LINK3args link;
	READ3args read;
	WRITE3args write;
	COMMIT3args commit;
};

static void put_lookup(union args *args, const struct nfs_op *op)
{
	put_name(&args->lookup.what, op->dir, op->name);
}

static void put_parent(union args *args, const struct nfs_op *op)
{
	put_name(&args->lookup.what, &op->handle, "..");
}

static void put_getattr(union args *args, const struct nfs_op *op)
{
	put_handle(&args->getattr.object, op->dir);
}

static void put_setattr(union args *args, const struct nfs_op *op)
{
	put_handle(&args->setattr.object, op->dir);
	set_attr(&args->setattr.new_attributes, &op->change);
}

static void put_mkdir(union args *args, const struct nfs_op *op)
{
	put_name(&args->mkdir.where, op->dir, op->name);
	set_mode(&args->mkdir.attributes, op->mode);
}

static void put_symlink(union args *args, const struct nfs_op *op)
{
	put_name(&args->symlink.where, op->dir, op->name);
	args->symlink.symlink.symlink_data =
		(char *)(uintptr_t)op->text; /* only read by the encoder */
}

static void put_readlink(union args *args, const struct nfs_op *op)
{
	put_handle(&args->readlink.symlink, op->dir);
}

static void put_remove(union args *args, const struct nfs_op *op)
{
	put_name(&args->remove.object, op->dir, op->name);
}

static void put_rmdir(union args *args, const struct nfs_op *op)
{
	put_name(&args->rmdir.object, op->dir, op->name);
}

static void put_rename(union args *args, const struct nfs_op *op)
{
	put_name(&args->rename.from, op->dir, op->name);
	put_name(&args->rename.to, op->to_dir, op->to_name);
}

/* Ask for no more than a server with small buffers can return. */
static uint32_t page_bytes(const struct nfs_op *op)
{
	const uint32_t max = nfs_op_connection(op)->page_max;

	if (max == 0 || max >= READDIR_BYTES)
		return READDIR_BYTES;
	return max > READDIR_BYTES_MIN ? max : READDIR_BYTES_MIN;
}

static void put_readdir(union args *args, const struct nfs_op *op)
{
	put_handle(&args->readdir.dir, op->dir);
	args->readdir.cookie = op->cookie;
	memcpy(args->readdir.cookieverf, op->verifier, sizeof(args->readdir.cookieverf));
	args->readdir.dircount = page_bytes(op) / 4;
	args->readdir.maxcount = page_bytes(op);
}

static void put_names(union args *args, const struct nfs_op *op)
{
	put_handle(&args->names.dir, op->dir);
	args->names.cookie = op->cookie;
	memcpy(args->names.cookieverf, op->verifier, sizeof(args->names.cookieverf));
	args->names.count = page_bytes(op);
}

static void put_fsstat(union args *args, const struct nfs_op *op)
{
	put_handle(&args->fsstat.fsroot, op->dir);
}

static void put_create(union args *args, const struct nfs_op *op)
{
	put_name(&args->create.where, op->dir, op->name);
	args->create.how.mode = GUARDED;
	set_attr(&args->create.how.createhow3_u.g_obj_attributes, &op->change);
}

static void put_mknod(union args *args, const struct nfs_op *op)
{
	/* All union members begin with the attributes; only a device's has more. */
	devicedata3 *device = &args->mknod.what.mknoddata3_u.chr_device;

	put_name(&args->mknod.where, op->dir, op->name);
	set_attr(&device->dev_attributes, &op->change);
	device->spec.specdata1 = op->device.major;
	device->spec.specdata2 = op->device.minor;
	args->mknod.what.type = op->node == NFS_TYPE_FIFO     ? NF3FIFO
				: op->node == NFS_TYPE_SOCKET ? NF3SOCK
				: op->node == NFS_TYPE_BLOCK  ? NF3BLK
							      : NF3CHR;
}

static void put_link(union args *args, const struct nfs_op *op)
{
	put_handle(&args->link.file, op->dir);
	put_name(&args->link.link, op->to_dir, op->to_name);
}

static void put_read(union args *args, const struct nfs_op *op)
{
	put_handle(&args->read.file, op->dir);
	args->read.offset = op->offset;
	args->read.count = nfs_read_count(op);
}

static void put_write(union args *args, const struct nfs_op *op)
{
	put_handle(&args->write.file, op->dir);
	args->write.offset = op->offset;
	args->write.count = op->count;
	args->write.stable = op->stable ? FILE_SYNC : UNSTABLE;
	args->write.data.data_len = op->count;
	args->write.data.data_val = op->buffer;
}

static void put_commit(union args *args, const struct nfs_op *op)
{
	put_handle(&args->commit.file, op->dir);
	args->commit.offset = op->offset;
	args->commit.count = op->count;
}

#define PROCEDURE(NAME)                                                                            \
	NET_RPC_WHOLE_PROCEDURE(NFS_PROGRAM, NFS_V3, NFS3_##NAME, zdr_##NAME##3args,               \
				v3_take_##NAME##3res, NAME##3res)

/* A result of numbers alone, behind which some servers send more (go-nfs: 4 bytes). */
#define LOOSE_PROCEDURE(NAME)                                                                      \
	NET_RPC_PROCEDURE(NFS_PROGRAM, NFS_V3, NFS3_##NAME, zdr_##NAME##3args,                     \
			  v3_take_##NAME##3res, NAME##3res)

struct procedure {
	struct net_rpc_procedure call;
	void (*put)(union args *args, const struct nfs_op *op); /* args is zeroed */
	void (*take)(struct nfs_op *op, const void *data); /* data: a successful reply */
};

static const struct procedure procedures[NFS_OPS] = {
	[NFS_OP_LOOKUP] = { PROCEDURE(LOOKUP), put_lookup, v3_take_lookup },
	[NFS_OP_GETATTR] = { PROCEDURE(GETATTR), put_getattr, v3_take_getattr },
	[NFS_OP_SETATTR] = { PROCEDURE(SETATTR), put_setattr, v3_take_setattr },
	[NFS_OP_MKDIR] = { PROCEDURE(MKDIR), put_mkdir, v3_take_mkdir },
	[NFS_OP_SYMLINK] = { PROCEDURE(SYMLINK), put_symlink, v3_take_symlink },
	[NFS_OP_READLINK] = { PROCEDURE(READLINK), put_readlink, v3_take_readlink },
	[NFS_OP_REMOVE] = { PROCEDURE(REMOVE), put_remove, v3_take_nothing },
	[NFS_OP_RMDIR] = { PROCEDURE(RMDIR), put_rmdir, v3_take_nothing },
	[NFS_OP_RENAME] = { PROCEDURE(RENAME), put_rename, v3_take_nothing },
	[NFS_OP_READDIR] = { PROCEDURE(READDIRPLUS), put_readdir, v3_take_readdir },
	[NFS_OP_FSSTAT] = { LOOSE_PROCEDURE(FSSTAT), put_fsstat, v3_take_fsstat },
	[NFS_OP_CREATE] = { PROCEDURE(CREATE), put_create, v3_take_create },
	[NFS_OP_MKNOD] = { PROCEDURE(MKNOD), put_mknod, v3_take_mknod },
	[NFS_OP_LINK] = { PROCEDURE(LINK), put_link, v3_take_nothing },
	[NFS_OP_READ] = { PROCEDURE(READ), put_read, v3_take_read },
	[NFS_OP_WRITE] = { PROCEDURE(WRITE), put_write, v3_take_write },
	[NFS_OP_COMMIT] = { PROCEDURE(COMMIT), put_commit, v3_take_commit },
};

static const struct procedure names_only = { PROCEDURE(READDIR), put_names, v3_take_names };
static const struct procedure parent_of = { PROCEDURE(LOOKUP), put_parent, v3_take_parent };

/* All replies start with their status. */
static void v3_take_reply(struct nfs_op *op, const struct procedure *procedure, int error,
			  const void *results)
{
	if (error == -EREMOTEIO)
		error = nfs_op_refuse(op);
	op->error = error == 0 ? nfs_status_errno(*(const nfsstat3 *)results) : error;
	if (op->error == 0)
		procedure->take(op, results);
}

static void v3_names_replied(void *data, int error, const void *results)
{
	struct nfs_op *op = data;

	v3_take_reply(op, &names_only, error, results);
	nfs_op_finish(op, op->error);
}

/*
 * If the server refuses access to "..", assume that something is mounted here; if it fails to look
 * it up for another reason, that nothing is.
 */
static void v3_parent_replied(void *data, int error, const void *results)
{
	struct nfs_op *op = data;

	v3_take_reply(op, &parent_of, error, results);
	if (error == 0 && (op->error == -EACCES || op->error == -EPERM))
		op->attr.is_mount = true;
	nfs_op_finish(op, error == 0 && op->error != -EAGAIN ? 0 : op->error);
}

/*
 * READDIR and LOOKUP gave different file ids. They do so for mount points that the server crosses,
 * but also for btrfs subvolumes and on some overlays. Look up "..": it leads back to the directory
 * of the entry unless something is mounted here.
 */
static int ask_parent(struct nfs_op *op)
{
	union args args;

	memset(&args, 0, sizeof(args));
	parent_of.put(&args, op);
	return net_rpc_call(nfs_op_connection(op)->rpc, &parent_of.call, &args, v3_parent_replied,
			    op);
}

/* Some servers have only READDIR: -EAGAIN makes the caller ask again, then by READDIR. */
static void v3_replied(void *data, int error, const void *results)
{
	struct nfs_op *op = data;

	v3_take_reply(op, &procedures[op->type], error, results);
	if (op->type == NFS_OP_READDIR && op->error == -EOPNOTSUPP) {
		nfs_op_connection(op)->no_readdirplus = true;
		op->error = -EAGAIN;
	}
	if (op->type == NFS_OP_LOOKUP && op->error == 0 && op->parent_fileid != 0) {
		op->error = ask_parent(op);
		if (op->error == 0)
			return;
	}
	nfs_op_finish(op, op->error);
}

static int v3_start(struct nfs_connection *conn, struct nfs_op *op)
{
	const bool names = op->type == NFS_OP_READDIR && conn->no_readdirplus;
	const struct procedure *procedure;
	union args args;

	if (op->type > NFS_OP_COMMIT)
		return -EOPNOTSUPP; /* of version 4.2 */
	procedure = names ? &names_only : &procedures[op->type];
	memset(&args, 0, sizeof(args));
	procedure->put(&args, op);
	return net_rpc_call(conn->rpc, &procedure->call, &args,
			    names ? v3_names_replied : v3_replied, op);
}

struct mnt_results {
	bool has_sys; /* the export takes AUTH_SYS */
	bool has_none; /* it takes AUTH_NONE, and looks at no identity */
	struct nfs_handle root;
};

static int v3_take_mnt(void *data, const void *results)
{
	struct mnt_results *mnt = data;
	const mountres3 *res = results;
	const mountres3_ok *ok = &res->mountres3_u.mountinfo;
	u_int i;

	if (res->fhs_status != MNT3_OK)
		return nfs_status_errno(res->fhs_status);
	if (ok->fhandle.fhandle3_len > sizeof(mnt->root.data))
		return -EREMOTEIO;
	mnt->root.len = ok->fhandle.fhandle3_len;
	memcpy(mnt->root.data, ok->fhandle.fhandle3_val, mnt->root.len);
	/* An empty list means that the server takes any flavor. */
	mnt->has_sys = ok->auth_flavors.auth_flavors_len == 0;
	for (i = 0; i < ok->auth_flavors.auth_flavors_len; i++) {
		mnt->has_sys |= ok->auth_flavors.auth_flavors_val[i] == AUTH_FLAVOR_SYS;
		mnt->has_none |= ok->auth_flavors.auth_flavors_val[i] == AUTH_FLAVOR_NONE;
	}
	return 0;
}

static int mount_port(const struct nfs_connection *conn, const struct net_address *address,
		      uint16_t *ret, struct error *err)
{
	const struct nfs_export *e = &conn->client.export;
	int r;

	if (e->mount_port != 0) {
		*ret = e->mount_port;
		return 0;
	}
	r = net_portmap(address, NET_MOUNT_PROGRAM, MOUNT_V3, ret);
	if (r == 0)
		return 0;
	return error_sys(err, ERROR_UNAVAILABLE, -r,
			 "server '%s': NFSv3 needs the port of the mount service, which rpcbind did not give; set mountport= in the mount options, or use NFSv4",
			 e->server);
}

static int set_mnt_error(const struct nfs_connection *conn, int r, struct error *err)
{
	const struct nfs_export *e = &conn->client.export;

	if (r == -ENOENT || r == -ENOTDIR)
		return error_sys(err, ERROR_NOT_FOUND, -r, "server '%s' has no export '%s'",
				 e->server, e->share);
	if (r == -EACCES || r == -EPERM)
		return error_sys(err, ERROR_PERMISSION_DENIED, -r,
				 "server '%s' does not let this client mount '%s': there is no such export, or it must allow our address, and have the option 'insecure' for source ports above 1023",
				 e->server, e->share);
	return nfs_error_set(err, &conn->client, r, "mounting");
}

struct limits {
	struct nfs_connection *conn;
	int error; /* of the call; the status is ignored */
};

static void fsinfo_replied(void *data, int error, const void *results)
{
	struct limits *limits = data;
	struct nfs_connection *conn = limits->conn;
	const FSINFO3res *res = results; /* NULL after an error */
	struct nfs_attr attr = { .type = NFS_TYPE_UNKNOWN };
	const FSINFO3resok *ok;

	conn->in_flight--;
	conn->finished++;
	limits->error = error;
	if (error < 0 || res->status != NFS3_OK)
		return;
	ok = &res->FSINFO3res_u.resok;
	v3_take_attr_if(&attr, &ok->obj_attributes);
	conn->client.root_type = attr.type;
	conn->client.read_max = ok->rtmax;
	conn->client.write_max = ok->wtmax;
	/* Some servers set dtpref to one page of memory, far below what they can return. */
	conn->page_max = ok->dtpref > ok->rtmax ? ok->dtpref : ok->rtmax;
}

/*
 * Ask for the limits of READ and WRITE. The Linux server closes the connection on a longer one, and
 * with less than 1 GiB of memory its limits are low. Without an answer, use our own limits. Return
 * the error of the call in ret_error.
 */
static int get_limits(struct nfs_connection *conn, int *ret_error, struct error *err)
{
	static const struct net_rpc_procedure fsinfo = LOOSE_PROCEDURE(FSINFO);
	struct limits limits = { .conn = conn };
	FSINFO3args args;
	int r;

	put_handle(&args.fsroot, &conn->client.root);
	r = net_rpc_call(conn->rpc, &fsinfo, &args, fsinfo_replied, &limits);
	if (r < 0)
		return error_oom(err);
	conn->in_flight++;
	r = conn->client.ops->run(&conn->client, nfs_connection_deadline(conn));
	if (r < 0)
		return nfs_error_set(err, &conn->client, r, "asking for limits");
	*ret_error = limits.error;
	return 0;
}

/*
 * Make the first call on the export. Servers whose list has only AUTH_NONE may take AUTH_SYS
 * nevertheless, and then know who we are. If they refuse it, go on without an identity.
 */
static int begin_calls(struct nfs_connection *conn, const struct mnt_results *mnt,
		       struct error *err)
{
	int error = 0, r;

	r = get_limits(conn, &error, err);
	if (r < 0 || error != -EACCES || !mnt->has_none)
		return r;
	net_rpc_drop_user(conn->rpc);
	return get_limits(conn, &error, err);
}

/* MNT goes over a connection of its own: the mount service has its own port. */
static int v3_attach(struct nfs_connection *conn, const struct net_address *address,
		     struct error *err)
{
	static const struct net_rpc_procedure mnt_procedure =
		NET_RPC_PROCEDURE(MOUNT_PROGRAM, MOUNT_V3, MOUNT3_MNT, zdr_dirpath,
				  v3_take_mountres3, mountres3);
	const struct nfs_export *e = &conn->client.export;
	dirpath path = e->share; /* only read by the encoder */
	struct mnt_results mnt = { .has_sys = false };
	struct net_rpc *rpc;
	uint16_t port;
	int r;

	r = mount_port(conn, address, &port, err);
	if (r < 0)
		return r;
	r = nfs_connect_rpc(&rpc, address, port, e);
	/* The message leaves out the port: most servers choose another one each time they start. */
	if (r < 0)
		return error_sys(err, ERROR_UNAVAILABLE, -r,
				 "cannot reach the mount service of server '%s'", e->server);
	r = net_rpc_ask(rpc, &mnt_procedure, &path, v3_take_mnt, &mnt,
			nfs_connection_deadline(conn));
	net_rpc_free(rpc, -ECONNABORTED);
	if (r < 0)
		return set_mnt_error(conn, r, err);
	if (!mnt.has_sys && !mnt.has_none)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "export %s:%s does not accept AUTH_SYS (sec=sys), the only one that the controller supports",
				 e->server, e->share);
	conn->client.root = mnt.root;
	return begin_calls(conn, &mnt, err);
}

static const struct net_rpc_procedure null =
	NET_RPC_PROCEDURE(NFS_PROGRAM, NFS_V3, NFS3_NULL, zdr_void, zdr_void, uint32_t);

const struct nfs_protocol nfs_protocol_v3 = {
	.version = 3,
	.null = &null,
	.attach = v3_attach,
	.start = v3_start,
};
