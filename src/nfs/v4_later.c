/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_later.h"

#include <string.h>

#include "base/str.h"
#include "net/zdr.h"
#include "nfs/op.h"

#define AUTH_NONE_FLAVOR 0
#define XATTR_EITHER 0 /* create or replace */
#define XATTR_NAMES_MAX (NFS_XATTR_PAGE / 8) /* in one reply: a length and a letter each */

/* Where nfs_resop4 holds the results: its union begins with the status of any operation. */
struct later {
	nfsstat4 status;
	const union v4_later_result *result;
};

_Static_assert(sizeof(struct later) <= sizeof(((nfs_resop4 *)0)->nfs_resop4_u),
	       "a status and a pointer fit in place of libnfs's results");

/* -------- primitives, one direction each -------- */

static bool_t put_u32(ZDR *zdr, uint32_t n)
{
	return zdr_u_int(zdr, &n);
}

static bool_t put_u64(ZDR *zdr, uint64_t n)
{
	return zdr_uint64_t(zdr, &n);
}

static bool_t put_bytes(ZDR *zdr, const char *bytes, uint32_t n)
{
	return net_zdr_put_fixed(zdr, bytes, n);
}

/* n all-zero stateids, one for each file of the operation. */
static bool_t put_stateids(ZDR *zdr, unsigned int n)
{
	static const char zeros[2 * V4_STATEID_BYTES];

	return put_bytes(zdr, zeros, n * V4_STATEID_BYTES);
}

static bool_t take_bool(ZDR *zdr, bool *ret)
{
	uint32_t n;

	if (!zdr_u_int(zdr, &n) || n > 1)
		return FALSE;
	*ret = n == 1;
	return TRUE;
}

/* -------- arguments -------- */

static bool_t encode_exchange_id(ZDR *zdr, const union v4_later_args *args)
{
	const char *name = args->exchange_id.name;
	const uint32_t len = (uint32_t)strlen(name);

	return put_bytes(zdr, args->exchange_id.verifier, NFS4_VERIFIER_SIZE) &&
	       put_u32(zdr, len) && put_bytes(zdr, name, len) &&
	       put_u32(zdr, 0) && /* no flags: any role, no pNFS asked for */
	       put_u32(zdr, 0) && /* SP4_NONE */
	       put_u32(zdr, 0); /* no implementation id */
}

static bool_t encode_channel(ZDR *zdr, const struct v4_channel *c)
{
	return put_u32(zdr, 0) && /* no padding of headers */
	       put_u32(zdr, c->request_max) && put_u32(zdr, c->reply_max) &&
	       put_u32(zdr, c->cached_max) && put_u32(zdr, c->operations) &&
	       put_u32(zdr, c->slots) && put_u32(zdr, 0); /* no RDMA */
}

/* Without a back channel, servers grant no delegations. It has limits all the same. */
static bool_t encode_create_session(ZDR *zdr, const union v4_later_args *args)
{
	static const struct v4_channel back = {
		.request_max = 4096, .reply_max = 4096, .operations = 2, .slots = 1
	};

	return put_u64(zdr, args->create_session.clientid) &&
	       put_u32(zdr, args->create_session.sequence) && put_u32(zdr, 0) && /* no flags */
	       encode_channel(zdr, &args->create_session.fore) && encode_channel(zdr, &back) &&
	       put_u32(zdr, 0) && /* callback program */
	       put_u32(zdr, 1) && put_u32(zdr, AUTH_NONE_FLAVOR);
}

static bool_t encode_sequence(ZDR *zdr, const union v4_later_args *args)
{
	return put_bytes(zdr, args->sequence.session, V4_SESSION_ID_BYTES) &&
	       put_u32(zdr, args->sequence.sequence) && put_u32(zdr, args->sequence.slot) &&
	       put_u32(zdr, args->sequence.highest_slot) && put_u32(zdr, args->sequence.cache);
}

/* For requests to the server only, not in RDMA's mode. */
static bool_t encode_bind_conn(ZDR *zdr, const union v4_later_args *args)
{
	return put_bytes(zdr, args->bind_conn, V4_SESSION_ID_BYTES) && put_u32(zdr, 1) &&
	       put_u32(zdr, FALSE);
}

static bool_t encode_destroy_session(ZDR *zdr, const union v4_later_args *args)
{
	return put_bytes(zdr, args->destroy_session, V4_SESSION_ID_BYTES);
}

static bool_t encode_destroy_clientid(ZDR *zdr, const union v4_later_args *args)
{
	return put_u64(zdr, args->destroy_clientid);
}

static bool_t encode_reclaim_complete(ZDR *zdr, const union v4_later_args *args)
{
	(void)args;
	return put_u32(zdr, FALSE); /* not of one file system only */
}

/* The same offset in both files. */
static bool_t encode_copy(ZDR *zdr, const union v4_later_args *args)
{
	return put_stateids(zdr, 2) && put_u64(zdr, args->copy.offset) &&
	       put_u64(zdr, args->copy.offset) && put_u64(zdr, args->copy.length) &&
	       put_u32(zdr, TRUE) && /* consecutive */
	       put_u32(zdr, !args->copy.allow_async) && /* synchronous */
	       put_u32(zdr, 0); /* no other server */
}

static bool_t encode_offload(ZDR *zdr, const union v4_later_args *args)
{
	return put_bytes(zdr, args->offload, V4_STATEID_BYTES);
}

static bool_t encode_seek(ZDR *zdr, const union v4_later_args *args)
{
	return put_stateids(zdr, 1) && put_u64(zdr, args->seek.offset) &&
	       put_u32(zdr, args->seek.hole);
}

/* From the start, up to the end. */
static bool_t encode_clone(ZDR *zdr, const union v4_later_args *args)
{
	(void)args;
	return put_stateids(zdr, 2) && put_u64(zdr, 0) && put_u64(zdr, 0) && put_u64(zdr, 0);
}

static bool_t put_counted(ZDR *zdr, const char *bytes, uint32_t n)
{
	return put_u32(zdr, n) && put_bytes(zdr, bytes, n);
}

static bool_t put_c_string(ZDR *zdr, const char *text)
{
	return put_counted(zdr, text, (uint32_t)strlen(text));
}

static bool_t encode_getxattr(ZDR *zdr, const union v4_later_args *args)
{
	return put_c_string(zdr, args->getxattr);
}

static bool_t encode_setxattr(ZDR *zdr, const union v4_later_args *args)
{
	return put_u32(zdr, XATTR_EITHER) && put_c_string(zdr, args->setxattr.name) &&
	       put_counted(zdr, args->setxattr.value, args->setxattr.len);
}

static bool_t encode_listxattrs(ZDR *zdr, const union v4_later_args *args)
{
	return put_u64(zdr, args->listxattrs.cookie) && put_u32(zdr, args->listxattrs.max);
}

/* -------- results -------- */

/* The last result of its compound, so the rest of it need not be decoded. */
static bool_t decode_exchange_id(ZDR *zdr, union v4_later_result *ret)
{
	uint32_t flags, protection;

	return zdr_uint64_t(zdr, &ret->exchange_id.clientid) &&
	       zdr_u_int(zdr, &ret->exchange_id.sequence) && zdr_u_int(zdr, &flags) &&
	       zdr_u_int(zdr, &protection) && protection == 0;
}

static bool_t decode_channel(ZDR *zdr, struct v4_channel *ret)
{
	uint32_t padding, rdma, unused;

	if (!zdr_u_int(zdr, &padding) || !zdr_u_int(zdr, &ret->request_max) ||
	    !zdr_u_int(zdr, &ret->reply_max) || !zdr_u_int(zdr, &ret->cached_max) ||
	    !zdr_u_int(zdr, &ret->operations) || !zdr_u_int(zdr, &ret->slots) ||
	    !zdr_u_int(zdr, &rdma) || rdma > 1)
		return FALSE;
	return rdma == 0 || zdr_u_int(zdr, &unused);
}

static bool_t decode_bind_conn(ZDR *zdr, union v4_later_result *ret)
{
	char session[V4_SESSION_ID_BYTES];
	uint32_t direction, rdma;

	(void)ret;
	return net_zdr_take_fixed(zdr, session, sizeof(session)) && zdr_u_int(zdr, &direction) &&
	       zdr_u_int(zdr, &rdma);
}

static bool_t decode_create_session(ZDR *zdr, union v4_later_result *ret)
{
	struct v4_channel back;
	uint32_t sequence, flags;

	return net_zdr_take_fixed(zdr, ret->create_session.session, V4_SESSION_ID_BYTES) &&
	       zdr_u_int(zdr, &sequence) && zdr_u_int(zdr, &flags) &&
	       decode_channel(zdr, &ret->create_session.fore) && decode_channel(zdr, &back);
}

static bool_t decode_sequence(ZDR *zdr, union v4_later_result *ret)
{
	return net_zdr_take_fixed(zdr, ret->sequence.session, V4_SESSION_ID_BYTES) &&
	       zdr_u_int(zdr, &ret->sequence.sequence) && zdr_u_int(zdr, &ret->sequence.slot) &&
	       zdr_u_int(zdr, &ret->sequence.highest_slot) &&
	       zdr_u_int(zdr, &ret->sequence.target_slot) && zdr_u_int(zdr, &ret->sequence.flags);
}

static bool_t decode_copy(ZDR *zdr, union v4_later_result *ret)
{
	bool consecutive, synchronous;
	uint32_t callbacks;

	if (!zdr_u_int(zdr, &callbacks) || callbacks > 1 ||
	    (callbacks == 1 && !net_zdr_take_fixed(zdr, ret->copy.id, sizeof(ret->copy.id))))
		return FALSE;
	ret->copy.is_async = callbacks == 1;
	return zdr_uint64_t(zdr, &ret->copy.length) && zdr_u_int(zdr, &ret->copy.stable) &&
	       net_zdr_take_fixed(zdr, ret->copy.verifier, NFS4_VERIFIER_SIZE) &&
	       take_bool(zdr, &consecutive) && take_bool(zdr, &synchronous);
}

/*
 * Results after OFFLOAD_NO_REQS. Some servers may leave them out: assume that they copy
 * asynchronously.
 */
static bool_t decode_refused_copy(ZDR *zdr, union v4_later_result *ret)
{
	ret->copy_refused.consecutive = true;
	ret->copy_refused.synchronous = false;
	return zdr->pos == zdr->size || (take_bool(zdr, &ret->copy_refused.consecutive) &&
					 take_bool(zdr, &ret->copy_refused.synchronous));
}

static bool_t decode_offload_status(ZDR *zdr, union v4_later_result *ret)
{
	uint32_t n;

	if (!zdr_uint64_t(zdr, &ret->offload_status.length) || !zdr_u_int(zdr, &n) || n > 1)
		return FALSE;
	ret->offload_status.ended = n == 1;
	ret->offload_status.status = NFS4_OK;
	return n == 0 || zdr_u_int(zdr, &ret->offload_status.status);
}

static bool_t decode_seek(ZDR *zdr, union v4_later_result *ret)
{
	return take_bool(zdr, &ret->seek.eof) && zdr_uint64_t(zdr, &ret->seek.offset);
}

static bool_t take_bytes(ZDR *zdr, struct v4_bytes *ret)
{
	return net_zdr_take_bytes(zdr, &ret->data, &ret->len);
}

static bool_t decode_getxattr(ZDR *zdr, union v4_later_result *ret)
{
	return take_bytes(zdr, &ret->getxattr);
}

/* change_info4: the change attribute before and after. */
static bool_t decode_setxattr(ZDR *zdr, union v4_later_result *ret)
{
	uint64_t before, after;
	bool atomic;

	(void)ret;
	return take_bool(zdr, &atomic) && zdr_uint64_t(zdr, &before) && zdr_uint64_t(zdr, &after);
}

static bool_t decode_listxattrs(ZDR *zdr, union v4_later_result *ret)
{
	uint32_t n, i;

	if (!zdr_uint64_t(zdr, &ret->listxattrs.cookie) || !zdr_u_int(zdr, &n) ||
	    n > XATTR_NAMES_MAX)
		return FALSE;
	ret->listxattrs.n = n;
	ret->listxattrs.names = net_zdr_allocate(zdr, (n + 1) * sizeof(struct v4_bytes));
	if (ret->listxattrs.names == NULL)
		return FALSE;
	for (i = 0; i < n; i++)
		if (!take_bytes(zdr, &ret->listxattrs.names[i]))
			return FALSE;
	return take_bool(zdr, &ret->listxattrs.eof);
}

/* -------- all -------- */

typedef bool_t later_decoder(ZDR *zdr, union v4_later_result *ret);

static const struct {
	uint32_t opnum;
	bool_t (*encode)(ZDR *zdr, const union v4_later_args *args);
	later_decoder *decode; /* NULL: only a status */
} operations[] = {
	{ V4_OP_BIND_CONN_TO_SESSION, encode_bind_conn, decode_bind_conn },
	{ V4_OP_EXCHANGE_ID, encode_exchange_id, decode_exchange_id },
	{ V4_OP_CREATE_SESSION, encode_create_session, decode_create_session },
	{ V4_OP_DESTROY_SESSION, encode_destroy_session, NULL },
	{ V4_OP_SEQUENCE, encode_sequence, decode_sequence },
	{ V4_OP_DESTROY_CLIENTID, encode_destroy_clientid, NULL },
	{ V4_OP_RECLAIM_COMPLETE, encode_reclaim_complete, NULL },
	{ V4_OP_COPY, encode_copy, decode_copy },
	{ V4_OP_OFFLOAD_CANCEL, encode_offload, NULL },
	{ V4_OP_OFFLOAD_STATUS, encode_offload, decode_offload_status },
	{ V4_OP_SEEK, encode_seek, decode_seek },
	{ V4_OP_CLONE, encode_clone, NULL },
	{ V4_OP_GETXATTR, encode_getxattr, decode_getxattr },
	{ V4_OP_SETXATTR, encode_setxattr, decode_setxattr },
	{ V4_OP_LISTXATTRS, encode_listxattrs, decode_listxattrs },
};

/* Return the index of the operation, or -1. */
static int find_operation(uint32_t opnum)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(operations); i++)
		if (operations[i].opnum == opnum)
			return (int)i;
	return -1;
}

bool v4_is_later(uint32_t opnum)
{
	return find_operation(opnum) >= 0;
}

bool_t v4_later_encode(ZDR *zdr, enum v4_later_opnum opnum, const union v4_later_args *args)
{
	const int i = find_operation(opnum);

	return i >= 0 && put_u32(zdr, opnum) && operations[i].encode(zdr, args);
}

/* Return the decoder of the results that follow this status; NULL: there are none. */
static later_decoder *find_decoder(int i, uint32_t status)
{
	if (status == V4_ERR_OFFLOAD_NO_REQS && operations[i].opnum == V4_OP_COPY)
		return decode_refused_copy;
	return status == NFS4_OK ? operations[i].decode : NULL;
}

bool_t v4_later_decode(ZDR *zdr, uint32_t opnum, nfs_resop4 *ret)
{
	const int i = find_operation(opnum);
	struct later later = { .result = NULL };
	later_decoder *decode;
	union v4_later_result *result;
	uint32_t status;

	if (i < 0 || !zdr_u_int(zdr, &status))
		return FALSE;
	later.status = (nfsstat4)status;
	decode = find_decoder(i, status);
	if (decode != NULL) {
		result = net_zdr_allocate(zdr, sizeof(*result));
		if (result == NULL || !decode(zdr, result))
			return FALSE;
		later.result = result;
	}
	ret->resop = (nfs_opnum4)opnum;
	memcpy(&ret->nfs_resop4_u, &later, sizeof(later));
	return TRUE;
}

const union v4_later_result *v4_later_result(const nfs_resop4 *one)
{
	struct later later;

	memcpy(&later, &one->nfs_resop4_u, sizeof(later));
	return later.result;
}
