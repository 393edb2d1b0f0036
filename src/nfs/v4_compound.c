/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_compound.h"

#include <string.h>

#include "net/zdr.h"
#include "nfs/v4_results.h"

nfs_argop4 *v4_add(struct v4_compound *c, nfs_opnum4 opnum)
{
	nfs_argop4 *op = &c->ops[c->n++];

	memset(op, 0, sizeof(*op));
	op->argop = opnum;
	return op;
}

union v4_later_args *v4_add_later(struct v4_compound *c, enum v4_later_opnum opnum)
{
	(void)v4_add(c, (nfs_opnum4)opnum);
	memset(&c->later[c->n_later], 0, sizeof(c->later[0]));
	return &c->later[c->n_later++];
}

void v4_add_putfh(struct v4_compound *c, const struct nfs_handle *handle)
{
	PUTFH4args *args = &v4_add(c, OP_PUTFH)->nfs_argop4_u.opputfh;

	args->object.nfs_fh4_len = handle->len;
	args->object.nfs_fh4_val = (char *)(uintptr_t)handle->data; /* only read by the encoder */
}

void v4_add_getattr(struct v4_compound *c, enum v4_attributes what)
{
	v4_add(c, OP_GETATTR)->nfs_argop4_u.opgetattr.attr_request = v4_mask(what);
}

void v4_add_lookup(struct v4_compound *c, const char *name)
{
	v4_add(c, OP_LOOKUP)->nfs_argop4_u.oplookup.objname = v4_text(name);
}

utf8string v4_text(const char *s)
{
	utf8string u = {
		.utf8string_len = (u_int)strlen(s),
		.utf8string_val = (char *)(uintptr_t)s, /* only read by the encoder */
	};

	return u;
}

/* -------- on the wire -------- */

bool_t v4_encode_operations(ZDR *zdr, const struct v4_compound *c)
{
	const union v4_later_args *later = c->later;
	unsigned int i;

	for (i = 0; i < c->n; i++) {
		nfs_argop4 op = c->ops[i];
		const bool_t fits =
			v4_is_later(op.argop)
				? v4_later_encode(zdr, (enum v4_later_opnum)op.argop, later++)
				: (bool_t)zdr_nfs_argop4(zdr, &op);

		if (!fits)
			return FALSE;
	}
	return TRUE;
}

static bool_t encode_message(ZDR *zdr, struct v4_message *m)
{
	uint32_t tag = 0, minor = m->minor;
	uint32_t n = (m->compound != NULL ? m->compound->n : m->n) + (m->sequence != NULL);

	if (!zdr_u_int(zdr, &tag) || !zdr_u_int(zdr, &minor) || !zdr_u_int(zdr, &n))
		return FALSE;
	if (m->sequence != NULL && !v4_later_encode(zdr, V4_OP_SEQUENCE, m->sequence))
		return FALSE;
	if (m->compound != NULL)
		return v4_encode_operations(zdr, m->compound);
	return net_zdr_put_fixed(zdr, m->body, m->body_len);
}

/* Look at the next number without moving on. */
static bool peek_u32(ZDR *zdr, uint32_t *ret)
{
	const int pos = zdr->pos;
	const bool found = zdr_u_int(zdr, ret);

	if (found)
		zdr->pos = pos;
	return found;
}

static bool_t decode_result(ZDR *zdr, nfs_resop4 *ret)
{
	uint32_t opnum;

	if (!peek_u32(zdr, &opnum))
		return FALSE;
	if (!v4_is_later(opnum))
		return v4_take_nfs_resop4(zdr, ret);
	return zdr_u_int(zdr, &opnum) && v4_later_decode(zdr, opnum, ret);
}

/*
 * Check that nothing follows the results of a success: what was decoded would not be what the
 * server meant. That of EXCHANGE_ID is not decoded to its end.
 */
static bool ends_here(const ZDR *zdr, const COMPOUND4res *res)
{
	const u_int n = res->resarray.resarray_len;

	return res->status != NFS4_OK || zdr->pos == zdr->size ||
	       (n > 0 && (uint32_t)res->resarray.resarray_val[n - 1].resop == V4_OP_EXCHANGE_ID);
}

bool_t v4_decode_results(ZDR *zdr, COMPOUND4res *ret)
{
	uint32_t status, n, i;
	nfs_resop4 *results;

	memset(ret, 0, sizeof(*ret));
	if (!zdr_u_int(zdr, &status) ||
	    !net_zdr_take_bytes(zdr, &ret->tag.utf8string_val, &ret->tag.utf8string_len) ||
	    !zdr_u_int(zdr, &n) || n > V4_OPERATIONS_MAX + 1)
		return FALSE;
	ret->status = (nfsstat4)status;
	results = net_zdr_allocate_array(zdr, n, sizeof(*results));
	if (results == NULL)
		return FALSE;
	ret->resarray.resarray_val = results;
	ret->resarray.resarray_len = n;
	for (i = 0; i < n; i++)
		if (!decode_result(zdr, &results[i]))
			return FALSE;
	return ends_here(zdr, ret);
}

const struct net_rpc_procedure v4_procedure =
	NET_RPC_PROCEDURE(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND, encode_message,
			  v4_decode_results, COMPOUND4res);

void v4_take_handle(const nfs_resop4 *getfh, struct nfs_handle *to)
{
	const nfs_fh4 *fh = &getfh->nfs_resop4_u.opgetfh.GETFH4res_u.resok4.object;

	if (fh->nfs_fh4_len > sizeof(to->data))
		return;
	to->len = fh->nfs_fh4_len;
	memcpy(to->data, fh->nfs_fh4_val, to->len);
}
