/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Inside of nfs/: the real client, one libnfs RPC context on our own socket, and what each protocol
 * version (v3.c, v4.c) adds to it. Included in this folder only.
 */
#ifndef NFS_CONNECTION_H
#define NFS_CONNECTION_H

#include <nfsc/libnfs-zdr.h>
#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>

#include "nfs/client.h"
#include "net/probe.h"

struct v4_opener;

struct nfs_connection {
	struct nfs_client client; /* first: the two are the same pointer */
	struct rpc_context *rpc; /* NULL once broken */
	const struct nfs_protocol *protocol;
	struct net_address address;
	unsigned int in_flight;
	unsigned int finished; /* operations ever; wraps */
	int failure; /* what operations cut off by a broken transport end with */
	bool lost; /* libnfs is ending what is in flight: it must not be given more */
	struct v4_opener *opener; /* version 4, once a file was created */
};

struct nfs_protocol {
	unsigned int version;

	/* Gets the handle of the export's root. Reports errors itself, nothing with version 0 tried. */
	int (*attach)(struct nfs_connection *conn, const struct net_address *address,
		      struct error *err);

	/* Encodes op and queues it with nfs_op_replied() to follow. 0 or a negative errno. */
	int (*encode)(struct nfs_connection *conn, struct nfs_op *op);

	/* Once there is no context any more: ends the operations that it did not know. May be NULL. */
	void (*broken)(struct nfs_connection *conn);
};

extern const struct nfs_protocol nfs_protocol_v3;
extern const struct nfs_protocol nfs_protocol_v4;

/* A context on a fresh connection to port. The caller destroys it. */
int nfs_rpc_connect(struct rpc_context **ret, const struct net_address *address, uint16_t port,
		    const struct nfs_export *e);

/*
 * Drives rpc until *counter is no longer what it was. -ETIMEDOUT or -ECONNABORTED, after which rpc
 * can only be destroyed.
 */
int nfs_rpc_run(struct rpc_context *rpc, const unsigned int *counter, uint64_t deadline_ns);

/* The errno of an RPC that did not bring a reply of its program: status is an RPC_STATUS_*. */
int nfs_rpc_errno(struct nfs_connection *conn, int status, const void *data);

/* Whether more may be sent. */
static inline bool nfs_connection_is_up(const struct nfs_connection *conn)
{
	return conn->rpc != NULL && !conn->lost;
}

/* The errno of an nfsstat3 or nfsstat4: they share their numbers. 0 for success. */
int nfs_status_errno(unsigned int status);

/* Ends op with its result, on behalf of a protocol's reply function. */
void nfs_op_finish(struct nfs_op *op, int error);

static inline struct nfs_connection *nfs_op_connection(const struct nfs_op *op)
{
	return (struct nfs_connection *)op->client;
}

#endif
