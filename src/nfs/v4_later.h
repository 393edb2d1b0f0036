/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Operations of NFSv4.1 (RFC 8881) and 4.2 (RFC 7862, RFC 8276) that libnfs's XDR does not have:
 * only those that csi-nfs uses, with only the arguments that it uses. Lengths and counts from the
 * server are checked. Internal to version 4.
 */
#ifndef NFS_V4_LATER_H
#define NFS_V4_LATER_H

#include <stdbool.h>
#include <stdint.h>

#include <nfsc/libnfs-zdr.h>
/* After libnfs-zdr.h, whose types it uses. */
#include <nfsc/libnfs-raw-nfs4.h>

#include "nfs/op.h"

#define V4_SESSION_ID_BYTES 16
#define V4_STATEID_BYTES NFS_COPY_ID_BYTES

/* RFC 8881 section 18, RFC 7862 section 15, RFC 8276 section 8.4. */
enum v4_later_opnum {
	V4_OP_BIND_CONN_TO_SESSION = 41,
	V4_OP_EXCHANGE_ID = 42,
	V4_OP_CREATE_SESSION = 43,
	V4_OP_DESTROY_SESSION = 44,
	V4_OP_SEQUENCE = 53,
	V4_OP_DESTROY_CLIENTID = 57,
	V4_OP_RECLAIM_COMPLETE = 58,
	V4_OP_COPY = 60,
	V4_OP_OFFLOAD_CANCEL = 66,
	V4_OP_OFFLOAD_STATUS = 67,
	V4_OP_SEEK = 69,
	V4_OP_CLONE = 71,
	V4_OP_GETXATTR = 72,
	V4_OP_SETXATTR = 73,
	V4_OP_LISTXATTRS = 74,
};

/* RFC 8881 section 15.1, RFC 7862 section 11.1. */
enum v4_later_status {
	V4_ERR_BADSESSION = 10052,
	V4_ERR_COMPLETE_ALREADY = 10054,
	V4_ERR_REQ_TOO_BIG = 10065,
	V4_ERR_REP_TOO_BIG_TO_CACHE = 10067,
	V4_ERR_RETRY_UNCACHED_REP = 10068,
	V4_ERR_TOO_MANY_OPS = 10070,
	V4_ERR_OFFLOAD_NO_REQS = 10094,
};

/* Limits of a session, each side's wishes and what came of them (RFC 8881, section 18.36). */
struct v4_channel {
	uint32_t request_max, reply_max, cached_max; /* bytes */
	uint32_t operations, slots;
};

/* Arguments. Operations on two files take the first from SAVEFH; all use the all-zero stateid. */
union v4_later_args {
	struct {
		char verifier[NFS4_VERIFIER_SIZE];
		const char *name; /* of the client, borrowed */
	} exchange_id;
	struct {
		uint64_t clientid;
		uint32_t sequence;
		struct v4_channel fore;
	} create_session;
	struct {
		char session[V4_SESSION_ID_BYTES];
		uint32_t sequence, slot, highest_slot;
		bool cache; /* the server is to remember its reply */
	} sequence;
	char bind_conn[V4_SESSION_ID_BYTES], destroy_session[V4_SESSION_ID_BYTES];
	uint64_t destroy_clientid;
	struct {
		uint64_t offset, length;
		bool allow_async; /* the server may reply before it has copied */
	} copy;
	char offload[V4_STATEID_BYTES]; /* OFFLOAD_CANCEL, OFFLOAD_STATUS: the copy */
	struct {
		uint64_t offset;
		bool hole;
	} seek;
	const char *getxattr; /* the name, borrowed */
	struct {
		const char *name, *value; /* borrowed */
		uint32_t len; /* of the value */
	} setxattr;
	struct {
		uint64_t cookie;
		uint32_t max; /* bytes of the names */
	} listxattrs;
};

/* Bytes in a reply: valid as long as it is, and not terminated. */
struct v4_bytes {
	char *data;
	uint32_t len;
};

/* Results of an operation that succeeded, and of a COPY that failed with OFFLOAD_NO_REQS. */
union v4_later_result {
	struct {
		uint64_t clientid;
		uint32_t sequence;
	} exchange_id;
	struct {
		char session[V4_SESSION_ID_BYTES];
		struct v4_channel fore;
	} create_session;
	struct {
		char session[V4_SESSION_ID_BYTES];
		uint32_t sequence, slot, highest_slot, target_slot, flags;
	} sequence;
	struct {
		bool is_async; /* the server has replied before it has copied */
		char id[V4_STATEID_BYTES]; /* then, of the copy */
		uint64_t length;
		uint32_t stable; /* stable_how4 */
		char verifier[NFS4_VERIFIER_SIZE];
	} copy;
	struct {
		bool consecutive, synchronous; /* how the server would copy */
	} copy_refused;
	struct {
		uint64_t length; /* copied so far */
		bool ended;
		uint32_t status; /* then, nfsstat4 of the copy */
	} offload_status;
	struct {
		bool eof;
		uint64_t offset;
	} seek;
	struct v4_bytes getxattr;
	struct {
		uint64_t cookie;
		struct v4_bytes *names;
		uint32_t n;
		bool eof;
	} listxattrs;
};

/* Encode an operation with its number. */
bool_t v4_later_encode(ZDR *zdr, enum v4_later_opnum opnum, const union v4_later_args *args);

/* Whether the number is one of these operations. */
bool v4_is_later(uint32_t opnum);

/*
 * Decode the result of such an operation, behind its number. The status lies where libnfs's results
 * have theirs; what follows it is not libnfs's, see v4_later_result().
 */
bool_t v4_later_decode(ZDR *zdr, uint32_t opnum, nfs_resop4 *ret);

/*
 * The result of an operation that succeeded, or of a COPY that failed with OFFLOAD_NO_REQS. Lives
 * as long as the reply.
 */
const union v4_later_result *v4_later_result(const nfs_resop4 *one);

#endif
