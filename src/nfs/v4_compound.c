/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_compound.h"

#include <errno.h>
#include <string.h>

nfs_argop4 *v4_add(struct v4_compound *c, nfs_opnum4 opnum)
{
	nfs_argop4 *op = &c->ops[c->n++];

	memset(op, 0, sizeof(*op));
	op->argop = opnum;
	return op;
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

const struct net_rpc_procedure v4_procedure =
	NET_RPC_PROCEDURE(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND, zdr_COMPOUND4args,
			  zdr_COMPOUND4res, COMPOUND4res);

int v4_send(struct nfs_connection *conn, struct v4_compound *c, net_rpc_replied *replied,
	    void *data)
{
	COMPOUND4args args = { .minorversion = 0 };

	args.argarray.argarray_len = c->n;
	args.argarray.argarray_val = c->ops;
	return net_rpc_call(conn->rpc, &v4_procedure, &args, replied, data);
}

void v4_take_handle(const nfs_resop4 *getfh, struct nfs_handle *to)
{
	const nfs_fh4 *fh = &getfh->nfs_resop4_u.opgetfh.GETFH4res_u.resok4.object;

	if (fh->nfs_fh4_len > sizeof(to->data))
		return;
	to->len = fh->nfs_fh4_len;
	memcpy(to->data, fh->nfs_fh4_val, to->len);
}
