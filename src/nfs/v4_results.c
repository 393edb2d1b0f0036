/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_results.h"

#include <stddef.h>

#include "base/str.h"
#include "net/zdr.h"

/* -------- parts -------- */

static bool_t decode_text(ZDR *zdr, utf8string *ret)
{
	return net_zdr_take_bytes(zdr, &ret->utf8string_val, &ret->utf8string_len);
}

static bool_t decode_bitmap(ZDR *zdr, bitmap4 *ret)
{
	uint32_t n, i;
	uint32_t *words;

	if (!zdr_u_int(zdr, &n))
		return FALSE;
	words = net_zdr_allocate_array(zdr, n, sizeof(*words));
	if (words == NULL)
		return FALSE;
	for (i = 0; i < n; i++)
		if (!zdr_u_int(zdr, &words[i]))
			return FALSE;
	ret->bitmap4_val = words;
	ret->bitmap4_len = n;
	return TRUE;
}

static bool_t decode_attributes(ZDR *zdr, fattr4 *ret)
{
	return decode_bitmap(zdr, &ret->attrmask) &&
	       net_zdr_take_bytes(zdr, &ret->attr_vals.attrlist4_val,
				  &ret->attr_vals.attrlist4_len);
}

static bool_t decode_stateid(ZDR *zdr, stateid4 *ret)
{
	return zdr_u_int(zdr, &ret->seqid) &&
	       net_zdr_take_fixed(zdr, ret->other, sizeof(ret->other));
}

static bool_t decode_change(ZDR *zdr, change_info4 *ret)
{
	return zdr_u_int(zdr, &ret->atomic) && zdr_uint64_t(zdr, &ret->before) &&
	       zdr_uint64_t(zdr, &ret->after);
}

/* -------- OPEN -------- */

static bool_t decode_permissions(ZDR *zdr, nfsace4 *ret)
{
	return zdr_u_int(zdr, &ret->type) && zdr_u_int(zdr, &ret->flag) &&
	       zdr_u_int(zdr, &ret->access_mask) && decode_text(zdr, &ret->who);
}

static bool_t decode_space_limit(ZDR *zdr, nfs_space_limit4 *ret)
{
	nfs_modified_limit4 *blocks = &ret->nfs_space_limit4_u.mod_blocks;
	uint32_t by;

	if (!zdr_u_int(zdr, &by))
		return FALSE;
	ret->limitby = (limit_by4)by;
	switch (ret->limitby) {
	case NFS_LIMIT_SIZE:
		return zdr_uint64_t(zdr, &ret->nfs_space_limit4_u.filesize);
	case NFS_LIMIT_BLOCKS:
		return zdr_u_int(zdr, &blocks->num_blocks) &&
		       zdr_u_int(zdr, &blocks->bytes_per_block);
	default:
		return FALSE;
	}
}

/*
 * Why there is no delegation (RFC 8881 section 18.16.2). Servers send it only on request; accept it
 * anyway.
 */
#define V4_DELEGATE_NONE_EXT 3
#define V4_WHY_CONTENTION 1
#define V4_WHY_RESOURCE 2

static bool_t decode_reason(ZDR *zdr)
{
	uint32_t why, will_tell;

	if (!zdr_u_int(zdr, &why))
		return FALSE;
	return (why != V4_WHY_CONTENTION && why != V4_WHY_RESOURCE) || zdr_u_int(zdr, &will_tell);
}

/* We ask for no delegation, but have to decode one that the server grants anyway. */
static bool_t decode_delegation(ZDR *zdr, open_delegation4 *ret)
{
	open_read_delegation4 *read = &ret->open_delegation4_u.read;
	open_write_delegation4 *write = &ret->open_delegation4_u.write;
	uint32_t type;

	if (!zdr_u_int(zdr, &type))
		return FALSE;
	ret->delegation_type = (open_delegation_type4)type;
	switch (type) {
	case OPEN_DELEGATE_NONE:
		return TRUE;
	case OPEN_DELEGATE_READ:
		return decode_stateid(zdr, &read->stateid) && zdr_u_int(zdr, &read->recall) &&
		       decode_permissions(zdr, &read->permissions);
	case OPEN_DELEGATE_WRITE:
		return decode_stateid(zdr, &write->stateid) && zdr_u_int(zdr, &write->recall) &&
		       decode_space_limit(zdr, &write->space_limit) &&
		       decode_permissions(zdr, &write->permissions);
	case V4_DELEGATE_NONE_EXT:
		return decode_reason(zdr);
	default:
		return FALSE;
	}
}

static bool_t decode_open(ZDR *zdr, nfs_resop4 *ret)
{
	OPEN4resok *ok = &ret->nfs_resop4_u.opopen.OPEN4res_u.resok4;

	return decode_stateid(zdr, &ok->stateid) && decode_change(zdr, &ok->cinfo) &&
	       zdr_u_int(zdr, &ok->rflags) && decode_bitmap(zdr, &ok->attrset) &&
	       decode_delegation(zdr, &ok->delegation);
}

static bool_t decode_open_confirm(ZDR *zdr, nfs_resop4 *ret)
{
	OPEN_CONFIRM4res *res = &ret->nfs_resop4_u.opopen_confirm;

	return decode_stateid(zdr, &res->OPEN_CONFIRM4res_u.resok4.open_stateid);
}

static bool_t decode_close(ZDR *zdr, nfs_resop4 *ret)
{
	return decode_stateid(zdr, &ret->nfs_resop4_u.opclose.CLOSE4res_u.open_stateid);
}

/* -------- the others -------- */

static bool_t decode_getfh(ZDR *zdr, nfs_resop4 *ret)
{
	nfs_fh4 *handle = &ret->nfs_resop4_u.opgetfh.GETFH4res_u.resok4.object;

	return net_zdr_take_bytes(zdr, &handle->nfs_fh4_val, &handle->nfs_fh4_len);
}

static bool_t decode_getattr(ZDR *zdr, nfs_resop4 *ret)
{
	return decode_attributes(zdr,
				 &ret->nfs_resop4_u.opgetattr.GETATTR4res_u.resok4.obj_attributes);
}

static bool_t decode_readlink(ZDR *zdr, nfs_resop4 *ret)
{
	return decode_text(zdr, &ret->nfs_resop4_u.opreadlink.READLINK4res_u.resok4.link);
}

static bool_t decode_readdir(ZDR *zdr, nfs_resop4 *ret)
{
	READDIR4resok *ok = &ret->nfs_resop4_u.opreaddir.READDIR4res_u.resok4;
	entry4 **link = &ok->reply.entries;
	uint32_t n = 0;
	void *next;

	if (!net_zdr_take_fixed(zdr, ok->cookieverf, sizeof(ok->cookieverf)))
		return FALSE;
	for (;;) {
		if (!net_zdr_take_next(zdr, &next, sizeof(**link), &n))
			return FALSE;
		*link = next;
		if (next == NULL)
			return zdr_u_int(zdr, &ok->reply.eof);
		if (!zdr_uint64_t(zdr, &(*link)->cookie) || !decode_text(zdr, &(*link)->name) ||
		    !decode_attributes(zdr, &(*link)->attrs))
			return FALSE;
		link = &(*link)->nextentry;
	}
}

static bool_t decode_read(ZDR *zdr, nfs_resop4 *ret)
{
	READ4resok *ok = &ret->nfs_resop4_u.opread.READ4res_u.resok4;

	return zdr_u_int(zdr, &ok->eof) &&
	       net_zdr_take_bytes(zdr, &ok->data.data_val, &ok->data.data_len);
}

static bool_t decode_write(ZDR *zdr, nfs_resop4 *ret)
{
	WRITE4resok *ok = &ret->nfs_resop4_u.opwrite.WRITE4res_u.resok4;
	uint32_t committed;

	if (!zdr_u_int(zdr, &ok->count) || !zdr_u_int(zdr, &committed))
		return FALSE;
	ok->committed = (stable_how4)committed;
	return net_zdr_take_fixed(zdr, ok->writeverf, sizeof(ok->writeverf));
}

static bool_t decode_commit(ZDR *zdr, nfs_resop4 *ret)
{
	COMMIT4resok *ok = &ret->nfs_resop4_u.opcommit.COMMIT4res_u.resok4;

	return net_zdr_take_fixed(zdr, ok->writeverf, sizeof(ok->writeverf));
}

static bool_t decode_create(ZDR *zdr, nfs_resop4 *ret)
{
	CREATE4resok *ok = &ret->nfs_resop4_u.opcreate.CREATE4res_u.resok4;

	return decode_change(zdr, &ok->cinfo) && decode_bitmap(zdr, &ok->attrset);
}

static bool_t decode_remove(ZDR *zdr, nfs_resop4 *ret)
{
	return decode_change(zdr, &ret->nfs_resop4_u.opremove.REMOVE4res_u.resok4.cinfo);
}

static bool_t decode_rename(ZDR *zdr, nfs_resop4 *ret)
{
	RENAME4resok *ok = &ret->nfs_resop4_u.oprename.RENAME4res_u.resok4;

	return decode_change(zdr, &ok->source_cinfo) && decode_change(zdr, &ok->target_cinfo);
}

static bool_t decode_link(ZDR *zdr, nfs_resop4 *ret)
{
	return decode_change(zdr, &ret->nfs_resop4_u.oplink.LINK4res_u.resok4.cinfo);
}

static bool_t decode_setclientid(ZDR *zdr, nfs_resop4 *ret)
{
	SETCLIENTID4resok *ok = &ret->nfs_resop4_u.opsetclientid.SETCLIENTID4res_u.resok4;

	return zdr_uint64_t(zdr, &ok->clientid) &&
	       net_zdr_take_fixed(zdr, ok->setclientid_confirm, sizeof(ok->setclientid_confirm));
}

/* The current holder of the client's name (NFS4ERR_CLID_INUSE). */
static bool_t decode_user(ZDR *zdr, nfs_resop4 *ret)
{
	clientaddr4 *user = &ret->nfs_resop4_u.opsetclientid.SETCLIENTID4res_u.client_using;

	return net_zdr_take_string(zdr, &user->r_netid) && net_zdr_take_string(zdr, &user->r_addr);
}

/* -------- all -------- */

static const struct {
	nfs_opnum4 opnum;
	bool_t (*decode)(ZDR *zdr, nfs_resop4 *ret); /* what follows NFS4_OK; NULL: nothing */
} operations[] = {
	{ OP_CLOSE, decode_close },
	{ OP_COMMIT, decode_commit },
	{ OP_CREATE, decode_create },
	{ OP_GETATTR, decode_getattr },
	{ OP_GETFH, decode_getfh },
	{ OP_ILLEGAL, NULL },
	{ OP_LINK, decode_link },
	{ OP_LOOKUP, NULL },
	{ OP_OPEN, decode_open },
	{ OP_OPEN_CONFIRM, decode_open_confirm },
	{ OP_PUTFH, NULL },
	{ OP_PUTROOTFH, NULL },
	{ OP_READ, decode_read },
	{ OP_READDIR, decode_readdir },
	{ OP_READLINK, decode_readlink },
	{ OP_REMOVE, decode_remove },
	{ OP_RENAME, decode_rename },
	{ OP_SAVEFH, NULL },
	{ OP_SETATTR, NULL },
	{ OP_SETCLIENTID, decode_setclientid },
	{ OP_SETCLIENTID_CONFIRM, NULL },
	{ OP_VERIFY, NULL },
	{ OP_WRITE, decode_write },
};

static bool_t decode_rest(ZDR *zdr, size_t i, nfsstat4 status, nfs_resop4 *ret)
{
	if (ret->resop == OP_SETATTR)
		return decode_bitmap(zdr, &ret->nfs_resop4_u.opsetattr.attrsset);
	if (ret->resop == OP_SETCLIENTID && status == NFS4ERR_CLID_INUSE)
		return decode_user(zdr, ret);
	if (status != NFS4_OK || operations[i].decode == NULL)
		return TRUE;
	return operations[i].decode(zdr, ret);
}

bool_t v4_take_nfs_resop4(ZDR *zdr, nfs_resop4 *ret)
{
	uint32_t opnum, status;
	size_t i;

	if (!zdr_u_int(zdr, &opnum) || !zdr_u_int(zdr, &status))
		return FALSE;
	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		if (opnum != (uint32_t)operations[i].opnum)
			continue;
		ret->resop = (nfs_opnum4)opnum;
		/* The results of all operations begin with their status. */
		ret->nfs_resop4_u.opillegal.status = (nfsstat4)status;
		return decode_rest(zdr, i, (nfsstat4)status, ret);
	}
	return FALSE;
}
