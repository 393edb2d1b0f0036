/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * NFSv4.0 by compounds of our own, and only those that need no client id: libnfs 4.0's path calls
 * fail for directories, and nothing here opens a file.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "nfs/connection.h"
/* After libnfs.h, whose types it uses. */
#include <nfsc/libnfs-raw-nfs4.h>

#define READDIR_BYTES 32768
#define COMPOUND_MAX 72 /* operations in one compound */
#define EXPORT_DEPTH_MAX 64 /* components of an exported path */
#define OWNER_DIGITS_MAX 10 /* of a 32-bit number */
#define ATTR_VALUES_MAX (4 + 2 * (4 + 12)) /* mode, owner and group with their padding */

/* Attributes that are asked for, RFC 7530 section 5.8: bits of the two words of the mask. */
#define ATTR_TYPE (1U << 1)
#define ATTR_RDATTR_ERROR (1U << 11)
#define ATTR_FILEHANDLE (1U << 19)
#define ATTR_MODE (1U << (33 - 32))
#define ATTR_OWNER (1U << (36 - 32))
#define ATTR_OWNER_GROUP (1U << (37 - 32))
#define ATTR_SPACE_AVAIL (1U << (42 - 32))
#define ATTR_SPACE_TOTAL (1U << (44 - 32))

static uint32_t mask_plain[2] = { ATTR_TYPE, ATTR_MODE };
static uint32_t mask_readdir[2] = { ATTR_TYPE | ATTR_RDATTR_ERROR | ATTR_FILEHANDLE, ATTR_MODE };
/* Owners are asked for where they matter: a server may look up a name for each. */
static uint32_t mask_owner[2] = { ATTR_TYPE, ATTR_MODE | ATTR_OWNER | ATTR_OWNER_GROUP };
static uint32_t mask_space[2] = { 0, ATTR_SPACE_AVAIL | ATTR_SPACE_TOTAL };

struct compound {
	nfs_argop4 ops[COMPOUND_MAX];
	unsigned int n;
	uint32_t mask[2]; /* of the attributes that are set */
	char values[ATTR_VALUES_MAX]; /* and what they are */
	size_t values_len;
};

static nfs_argop4 *add(struct compound *c, nfs_opnum4 opnum)
{
	nfs_argop4 *op = &c->ops[c->n++];

	memset(op, 0, sizeof(*op));
	op->argop = opnum;
	return op;
}

static utf8string text(const char *s)
{
	utf8string u = {
		.utf8string_len = (u_int)strlen(s),
		.utf8string_val = (char *)(uintptr_t)s, /* only read by the encoder */
	};

	return u;
}

static bitmap4 mask(uint32_t *words)
{
	bitmap4 b = { .bitmap4_len = 2, .bitmap4_val = words };

	return b;
}

static void add_putfh(struct compound *c, const struct nfs_handle *handle)
{
	PUTFH4args *args = &add(c, OP_PUTFH)->nfs_argop4_u.opputfh;

	args->object.nfs_fh4_len = handle->len;
	args->object.nfs_fh4_val = (char *)(uintptr_t)handle->data; /* only read by the encoder */
}

static void add_getattr(struct compound *c, uint32_t *what)
{
	add(c, OP_GETATTR)->nfs_argop4_u.opgetattr.attr_request = mask(what);
}

static void put_u32(struct compound *c, uint32_t value)
{
	uint32_t be = htonl(value);

	memcpy(c->values + c->values_len, &be, sizeof(be));
	c->values_len += sizeof(be);
}

/* A number in digits: what servers take from clients without id mapping (RFC 7530, section 5.9). */
static void put_owner(struct compound *c, uint32_t id)
{
	char digits[OWNER_DIGITS_MAX + 1];
	int n = snprintf(digits, sizeof(digits), "%" PRIu32, id);

	put_u32(c, (uint32_t)n);
	memcpy(c->values + c->values_len, digits, (size_t)n);
	c->values_len += ((size_t)n + 3) & ~(size_t)3;
}

/* The values follow each other in the order of their numbers. */
static fattr4 change_attr(struct compound *c, const struct nfs_change *change)
{
	fattr4 attr = { .attrmask = mask(c->mask) };

	if (change->has_mode) {
		c->mask[1] |= ATTR_MODE;
		put_u32(c, change->mode);
	}
	if (change->has_uid) {
		c->mask[1] |= ATTR_OWNER;
		put_owner(c, change->uid);
	}
	if (change->has_gid) {
		c->mask[1] |= ATTR_OWNER_GROUP;
		put_owner(c, change->gid);
	}
	attr.attr_vals.attrlist4_len = (u_int)c->values_len;
	attr.attr_vals.attrlist4_val = c->values;
	return attr;
}

static void encode_lookup(struct compound *c, const struct nfs_op *op)
{
	add_putfh(c, op->dir);
	add(c, OP_LOOKUP)->nfs_argop4_u.oplookup.objname = text(op->name);
	add(c, OP_GETFH);
	add_getattr(c, mask_plain);
}

static void encode_getattr(struct compound *c, const struct nfs_op *op)
{
	add_putfh(c, op->dir);
	add_getattr(c, mask_owner);
}

static void encode_setattr(struct compound *c, const struct nfs_op *op)
{
	add_putfh(c, op->dir);
	/* The all-zero stateid is right for anything but the size (RFC 7530, section 16.32.4). */
	add(c, OP_SETATTR)->nfs_argop4_u.opsetattr.obj_attributes = change_attr(c, &op->change);
}

static void encode_mkdir(struct compound *c, const struct nfs_op *op)
{
	const struct nfs_change change = { .has_mode = true, .mode = op->mode };
	CREATE4args *args;

	add_putfh(c, op->dir);
	args = &add(c, OP_CREATE)->nfs_argop4_u.opcreate;
	args->objtype.type = NF4DIR;
	args->objname = text(op->name);
	args->createattrs = change_attr(c, &change);
	add(c, OP_GETFH);
	add_getattr(c, mask_owner);
}

static void encode_symlink(struct compound *c, const struct nfs_op *op)
{
	CREATE4args *args;

	add_putfh(c, op->dir);
	args = &add(c, OP_CREATE)->nfs_argop4_u.opcreate;
	args->objtype.type = NF4LNK;
	args->objtype.createtype4_u.linkdata = text(op->text);
	args->objname = text(op->name);
}

static void encode_readlink(struct compound *c, const struct nfs_op *op)
{
	add_putfh(c, op->dir);
	if (op->name != NULL)
		add(c, OP_LOOKUP)->nfs_argop4_u.oplookup.objname = text(op->name);
	add(c, OP_READLINK);
}

static void encode_remove(struct compound *c, const struct nfs_op *op)
{
	add_putfh(c, op->dir);
	add(c, OP_REMOVE)->nfs_argop4_u.opremove.target = text(op->name);
}

/* REMOVE takes files as well, and what comes after a VERIFY that does not hold is not done. */
static void encode_rmdir(struct compound *c, const struct nfs_op *op)
{
	fattr4 *is_directory;

	add_putfh(c, op->dir);
	add(c, OP_LOOKUP)->nfs_argop4_u.oplookup.objname = text(op->name);
	is_directory = &add(c, OP_VERIFY)->nfs_argop4_u.opverify.obj_attributes;
	c->mask[0] = ATTR_TYPE;
	put_u32(c, NF4DIR);
	is_directory->attrmask = mask(c->mask);
	is_directory->attr_vals.attrlist4_len = (u_int)c->values_len;
	is_directory->attr_vals.attrlist4_val = c->values;
	encode_remove(c, op);
}

static void encode_rename(struct compound *c, const struct nfs_op *op)
{
	RENAME4args *args;

	add_putfh(c, op->dir);
	add(c, OP_SAVEFH);
	add_putfh(c, op->to_dir);
	args = &add(c, OP_RENAME)->nfs_argop4_u.oprename;
	args->oldname = text(op->name);
	args->newname = text(op->to_name);
}

static void encode_readdir(struct compound *c, const struct nfs_op *op)
{
	READDIR4args *args;

	add_putfh(c, op->dir);
	args = &add(c, OP_READDIR)->nfs_argop4_u.opreaddir;
	args->cookie = op->cookie;
	memcpy(args->cookieverf, op->verifier, sizeof(args->cookieverf));
	args->dircount = READDIR_BYTES / 4;
	args->maxcount = READDIR_BYTES;
	args->attr_request = mask(mask_readdir);
}

static void encode_fsstat(struct compound *c, const struct nfs_op *op)
{
	add_putfh(c, op->dir);
	add(c, OP_GETATTR)->nfs_argop4_u.opgetattr.attr_request = mask(mask_space);
}

/*
 * Attribute values follow each other in the order of their numbers, so every attribute that a
 * server may answer with has to be known here; it may only send what was asked for.
 */
struct attr_reader {
	const char *p;
	size_t left;
};

static bool read_u32(struct attr_reader *r, uint32_t *ret)
{
	uint32_t be;

	if (r->left < sizeof(be))
		return false;
	memcpy(&be, r->p, sizeof(be));
	r->p += sizeof(be);
	r->left -= sizeof(be);
	*ret = ntohl(be);
	return true;
}

static bool read_u64(struct attr_reader *r, uint64_t *ret)
{
	uint32_t high, low;

	if (!read_u32(r, &high) || !read_u32(r, &low))
		return false;
	*ret = (uint64_t)high << 32 | low;
	return true;
}

static bool read_handle(struct attr_reader *r, struct nfs_handle *ret)
{
	size_t padded;
	uint32_t len;

	if (!read_u32(r, &len))
		return false;
	padded = ((size_t)len + 3) & ~(size_t)3;
	if (len > sizeof(ret->data) || padded > r->left)
		return false;
	ret->len = len;
	memcpy(ret->data, r->p, len);
	r->p += padded;
	r->left -= padded;
	return true;
}

/* "1000", and for the superuser also "root@domain". Other names mean nothing here. */
static bool read_owner(struct attr_reader *r, bool *ret_known, uint32_t *ret)
{
	char name[OWNER_DIGITS_MAX + 1];
	uint64_t id;
	size_t padded;
	uint32_t len;

	*ret_known = false;
	if (!read_u32(r, &len) || len > r->left)
		return false;
	padded = ((size_t)len + 3) & ~(size_t)3;
	if (padded > r->left)
		return false;
	if (len < sizeof(name)) {
		memcpy(name, r->p, len);
		name[len] = '\0';
		*ret_known = str_parse_u64(name, 10, UINT32_MAX, &id) == 0;
	}
	if (len >= 4 && memcmp(r->p, "root", 4) == 0 && (len == 4 || r->p[4] == '@')) {
		*ret_known = true;
		id = 0;
	}
	if (*ret_known)
		*ret = (uint32_t)id;
	r->p += padded;
	r->left -= padded;
	return true;
}

static void take_owner(struct attr_reader *r, struct nfs_attr *attr)
{
	bool has_uid, has_gid;

	if (!read_owner(r, &has_uid, &attr->uid) || !read_owner(r, &has_gid, &attr->gid))
		return;
	attr->has_owner = has_uid && has_gid;
}

static enum nfs_type type_of(uint32_t type)
{
	switch (type) {
	case NF4DIR:
		return NFS_TYPE_DIRECTORY;
	case NF4REG:
		return NFS_TYPE_FILE;
	case NF4LNK:
		return NFS_TYPE_SYMLINK;
	default:
		return NFS_TYPE_OTHER;
	}
}

static void take_attr(const fattr4 *from, struct nfs_attr *attr, struct nfs_handle *handle)
{
	struct attr_reader r = { from->attr_vals.attrlist4_val, from->attr_vals.attrlist4_len };
	uint32_t lo = from->attrmask.bitmap4_len > 0 ? from->attrmask.bitmap4_val[0] : 0;
	uint32_t hi = from->attrmask.bitmap4_len > 1 ? from->attrmask.bitmap4_val[1] : 0;
	uint32_t value;

	if ((lo & ~mask_readdir[0]) != 0 || (hi & ~mask_owner[1]) != 0)
		return; /* something unasked for: what follows cannot be found */
	if (lo & ATTR_TYPE) {
		if (!read_u32(&r, &value))
			return;
		attr->type = type_of(value);
	}
	if ((lo & ATTR_RDATTR_ERROR) && !read_u32(&r, &value))
		return;
	if ((lo & ATTR_FILEHANDLE) && !read_handle(&r, handle))
		return;
	if (hi & ATTR_MODE) {
		if (!read_u32(&r, &value))
			return;
		attr->has_mode = true;
		attr->mode = value & 07777;
	}
	if ((hi & ATTR_OWNER) && (hi & ATTR_OWNER_GROUP))
		take_owner(&r, attr);
}

/* A server leaves out what it does not have: then the space stays 0, "not known". */
static void take_space(const fattr4 *from, struct nfs_space *space)
{
	struct attr_reader r = { from->attr_vals.attrlist4_val, from->attr_vals.attrlist4_len };
	uint32_t lo = from->attrmask.bitmap4_len > 0 ? from->attrmask.bitmap4_val[0] : 0;
	uint32_t hi = from->attrmask.bitmap4_len > 1 ? from->attrmask.bitmap4_val[1] : 0;

	if (lo != 0 || (hi & ~mask_space[1]) != 0)
		return;
	if ((hi & ATTR_SPACE_AVAIL) && !read_u64(&r, &space->available))
		return;
	if (hi & ATTR_SPACE_TOTAL)
		(void)read_u64(&r, &space->total); /* cut short: stays 0 */
}

static void take_fh(struct nfs_handle *to, const nfs_resop4 *res)
{
	const nfs_fh4 *fh = &res->nfs_resop4_u.opgetfh.GETFH4res_u.resok4.object;

	if (fh->nfs_fh4_len > sizeof(to->data))
		return;
	to->len = fh->nfs_fh4_len;
	memcpy(to->data, fh->nfs_fh4_val, to->len);
}

static void take_link(struct nfs_op *op, const nfs_resop4 *res)
{
	const linktext4 *link = &res->nfs_resop4_u.opreadlink.READLINK4res_u.resok4.link;

	if (link->utf8string_len > NFS_LINK_MAX) {
		op->error = -ENAMETOOLONG;
		return;
	}
	memcpy(op->link, link->utf8string_val, link->utf8string_len);
	op->link[link->utf8string_len] = '\0';
}

static void take_entry(struct nfs_op *op, const entry4 *e)
{
	struct nfs_entry entry = { .cookie = e->cookie };
	char name[PATH_COMPONENT_MAX + 1];

	op->cookie = e->cookie;
	/* No Linux file system has a longer name; one that is cut must not be acted upon. */
	if (e->name.utf8string_len > PATH_COMPONENT_MAX)
		return;
	memcpy(name, e->name.utf8string_val, e->name.utf8string_len);
	name[e->name.utf8string_len] = '\0';
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return;
	entry.name = name;
	take_attr(&e->attrs, &entry.attr, &entry.handle);
	op->entry(op, &entry);
}

static void take_readdir(struct nfs_op *op, const nfs_resop4 *res)
{
	const READDIR4resok *ok = &res->nfs_resop4_u.opreaddir.READDIR4res_u.resok4;
	const void *next = ok->reply.entries;

	memcpy(op->verifier, ok->cookieverf, sizeof(op->verifier));
	op->eof = ok->reply.eof;
	while (next != NULL) {
		entry4 e;

		memcpy(&e, next, sizeof(e)); /* unaligned, as the results of take_results() */
		next = e.nextentry;
		take_entry(op, &e);
	}
}

static void take_results(struct nfs_op *op, const COMPOUND4res *res)
{
	u_int i;

	for (i = 0; i < res->resarray.resarray_len; i++) {
		const char *packed = (const char *)res->resarray.resarray_val;
		nfs_resop4 copy, *one = &copy;

		/* libnfs packs what it decodes: arrays may lie unaligned. */
		memcpy(one, packed + i * sizeof(*one), sizeof(*one));
		if (one->resop == OP_GETFH)
			take_fh(&op->handle, one);
		else if (one->resop == OP_GETATTR && op->type == NFS_OP_FSSTAT)
			take_space(&one->nfs_resop4_u.opgetattr.GETATTR4res_u.resok4.obj_attributes,
				   &op->space);
		else if (one->resop == OP_GETATTR)
			take_attr(&one->nfs_resop4_u.opgetattr.GETATTR4res_u.resok4.obj_attributes,
				  &op->attr, &op->handle);
		else if (one->resop == OP_READLINK)
			take_link(op, one);
		else if (one->resop == OP_READDIR)
			take_readdir(op, one);
	}
}

static void replied(struct rpc_context *rpc, int status, void *data, void *private_data)
{
	struct nfs_op *op = private_data;
	const COMPOUND4res *res = data;

	(void)rpc;
	if (status != RPC_STATUS_SUCCESS) {
		nfs_op_finish(op, nfs_rpc_errno(nfs_op_connection(op), status, data));
		return;
	}
	op->error = nfs_status_errno(res->status);
	if (op->error == 0)
		take_results(op, res);
	nfs_op_finish(op, op->error);
}

static void (*const encoders[NFS_OPS])(struct compound *c, const struct nfs_op *op) = {
	[NFS_OP_LOOKUP] = encode_lookup,   [NFS_OP_GETATTR] = encode_getattr,
	[NFS_OP_SETATTR] = encode_setattr, [NFS_OP_MKDIR] = encode_mkdir,
	[NFS_OP_SYMLINK] = encode_symlink, [NFS_OP_READLINK] = encode_readlink,
	[NFS_OP_REMOVE] = encode_remove,   [NFS_OP_RMDIR] = encode_rmdir,
	[NFS_OP_RENAME] = encode_rename,   [NFS_OP_READDIR] = encode_readdir,
	[NFS_OP_FSSTAT] = encode_fsstat,
};

static int send_compound(struct nfs_connection *conn, struct compound *c, struct nfs_op *op)
{
	COMPOUND4args args = { .minorversion = 0 };

	args.argarray.argarray_len = c->n;
	args.argarray.argarray_val = c->ops;
	return rpc_nfs4_compound_async(conn->rpc, replied, &args, op) == 0 ? 0 : -ENOMEM;
}

static int v4_encode(struct nfs_connection *conn, struct nfs_op *op)
{
	struct compound c = { .n = 0 };

	if (encoders[op->type] == NULL)
		return -EOPNOTSUPP;
	encoders[op->type](&c, op);
	return send_compound(conn, &c, op);
}

static int attach_failed(const struct nfs_connection *conn, int r, struct error *err)
{
	const struct nfs_export *e = &conn->client.export;

	if (r == -EPROTONOSUPPORT)
		return error_sys(err, ERROR_FAILED_PRECONDITION, -r,
				 "server '%s' has NFSv4 but not minor version 0, the only one that the controller speaks; enable 4.0 or version 3 on the server",
				 e->server);
	if (r == -ENOENT || r == -ENOTDIR)
		return error_sys(err, ERROR_NOT_FOUND, -r,
				 "server '%s' has no NFSv4 export '%s', or does not show it to this client",
				 e->server, e->share);
	if (r == -EACCES || r == -EPERM)
		return error_sys(err, ERROR_PERMISSION_DENIED, -r,
				 "server '%s' refuses '%s' to this client: allow its address in the export, and with a source port above 1023 the export option 'insecure'; the controller has sec=sys only",
				 e->server, e->share);
	return nfs_error_set(err, &conn->client, r, "looking up the export");
}

/* Walks from the pseudo root to the export in one compound. */
static int v4_attach(struct nfs_connection *conn, const struct net_address *address, struct error *err)
{
	cleanup_strv struct strv parts = { NULL, 0 };
	struct nfs_op op = { .type = NFS_OP_LOOKUP, .client = &conn->client };
	struct compound c = { .n = 0 };
	size_t i;
	int r;

	(void)address; /* version 4 has one port for everything */
	r = strv_split(&parts, conn->client.export.share + 1, '/');
	if (r < 0)
		return error_oom(err);
	if (parts.n > EXPORT_DEPTH_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT, "share: more than %d path components",
				 EXPORT_DEPTH_MAX);
	add(&c, OP_PUTROOTFH);
	for (i = 0; i < parts.n; i++)
		if (parts.items[i][0] != '\0')
			add(&c, OP_LOOKUP)->nfs_argop4_u.oplookup.objname = text(parts.items[i]);
	add(&c, OP_GETFH);
	add_getattr(&c, mask_plain);
	r = send_compound(conn, &c, &op);
	if (r < 0)
		return error_oom(err);
	conn->in_flight++;
	r = conn->client.ops->run(&conn->client,
				  clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS);
	if (r == 0)
		r = op.error;
	if (r == 0 && op.handle.len == 0)
		r = -EREMOTEIO;
	if (r < 0)
		return attach_failed(conn, r, err);
	conn->client.root = op.handle;
	return 0;
}

const struct nfs_protocol nfs_protocol_v4 = {
	.version = 4,
	.attach = v4_attach,
	.encode = v4_encode,
};
