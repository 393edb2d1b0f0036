/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Inside of nfs/: RPC calls over TCP (RFC 5531), many in flight at a time. libnfs puts arguments
 * into XDR and takes results out of it; the bytes are moved here. libnfs 4.0 would move them by
 * seven system calls for each call (the mark and the text of a record apart, and the clock before
 * either), whereas here all calls that were queued leave by one, and all replies that have arrived
 * come by another.
 *
 * Calls make progress while somebody is inside nfs_rpc_run(), or between nfs_rpc_send() and
 * nfs_rpc_receive(). One thread at a time. Included in this folder only.
 */
#ifndef NFS_RPC_H
#define NFS_RPC_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nfsc/libnfs-zdr.h>

#include "net/probe.h"
#include "nfs/export.h"
#include "nfs/op.h"

/* A record, of a call or of a reply, that is longer than this ends the connection. */
#define NFS_RPC_RECORD_MAX (1024 * 1024)

struct nfs_rpc;

struct nfs_rpc_procedure {
	uint32_t program, version, number;
	zdrproc_t encode; /* arguments */
	zdrproc_t decode; /* results */
	size_t size; /* of the results, decoded: NFS_RPC_RESULTS_MAX at most */
};

#define NFS_RPC_RESULTS_MAX 512
#define NFS_RPC_CHECKED_SIZE(TYPE)                                                                 \
	(sizeof(TYPE) / (sizeof(TYPE) <= NFS_RPC_RESULTS_MAX)) /* does not compile where it is more */

/* One of an rpcgen'd protocol, whose functions libnfs passes around in the same way. */
#define NFS_RPC_PROCEDURE(PROGRAM, VERSION, NUMBER, ENCODE, DECODE, RESULTS)                       \
	{                                                                                          \
		.program = (PROGRAM), .version = (VERSION), .number = (NUMBER),                    \
		.encode = (zdrproc_t)(ENCODE), .decode = (zdrproc_t)(DECODE),                      \
		.size = NFS_RPC_CHECKED_SIZE(RESULTS)                                              \
	}

/*
 * Called once for each call: with its results, borrowed and only where error is 0, or with -EACCES
 * (the server refuses the credential, or the port that we come from), -EOPNOTSUPP (it does not have
 * the procedure), -EREMOTEIO (it answers what cannot be read), or whatever ended the connection. May
 * queue calls.
 */
typedef void nfs_rpc_replied(void *data, int error, const void *results);

/*
 * A fresh connection to port, from a reserved port of ours unless the export tells otherwise, with
 * the export's uid and gid as AUTH_SYS. 0 or a negative errno. The caller frees.
 */
int nfs_rpc_connect(struct nfs_rpc **ret, const struct net_address *address, uint16_t port,
		    const struct nfs_export *e);

/* The same on a connected socket, which is closed with it, also where this fails. 0 or -ENOMEM. */
int nfs_rpc_new(struct nfs_rpc **ret, int fd, uint32_t uid, uint32_t gid);

/* Ends all calls in flight with error, in which no other can be queued, and frees. */
void nfs_rpc_free(struct nfs_rpc *rpc, int error);

/*
 * Queues a call: args are read before it returns. 0, -ENOMEM, -EMSGSIZE (longer than a record may
 * be), or -ECONNABORTED while rpc is being freed; then replied is not called.
 */
int nfs_rpc_call(struct nfs_rpc *rpc, const struct nfs_rpc_procedure *procedure, void *args,
		 nfs_rpc_replied *replied, void *data);

/*
 * Drives rpc until *counter, which the caller's replied changes, is no longer what it was. 0, or
 * -ETIMEDOUT or -ECONNABORTED, after which rpc can only be freed.
 */
int nfs_rpc_run(struct nfs_rpc *rpc, const unsigned int *counter, uint64_t deadline_ns);

/* Sends what is queued, as far as it can, and tells what to wait for. 0 or -ECONNABORTED. */
int nfs_rpc_send(struct nfs_rpc *rpc, struct pollfd *ret);

/* Takes what has arrived, maybe nothing. 0 or -ECONNABORTED, after which rpc can only be freed. */
int nfs_rpc_receive(struct nfs_rpc *rpc);

/* poll(2) until the deadline, and once if it has passed. 0, -ETIMEDOUT or -ECONNABORTED. */
int nfs_rpc_wait(struct pollfd *p, nfds_t n, uint64_t deadline_ns);

/* When the call was queued that is in flight for longest, on the clock; 0: none is. */
uint64_t nfs_rpc_oldest_ns(const struct nfs_rpc *rpc);

/* Whether a record has come in part. */
bool nfs_rpc_is_midway(const struct nfs_rpc *rpc);

/* Whether the peer's system has taken all that was queued. */
bool nfs_rpc_is_taken(const struct nfs_rpc *rpc);

/* Whether nothing at all has arrived that was not yet taken: no bytes, no end, no reset. */
bool nfs_rpc_is_quiet(const struct nfs_rpc *rpc);

#endif
