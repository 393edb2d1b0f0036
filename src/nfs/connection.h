/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Inside of nfs/: the real client, RPC calls on one connection, and what each protocol version (v3.c,
 * v4.c) adds to them. Included in this folder only.
 */
#ifndef NFS_CONNECTION_H
#define NFS_CONNECTION_H

#include "net/probe.h"
#include "nfs/client.h"
#include "nfs/rpc.h"

struct v4_opener;

struct nfs_connection {
	struct nfs_client client; /* first: the two are the same pointer */
	struct nfs_rpc *rpc; /* NULL once broken */
	const struct nfs_protocol *protocol;
	struct net_address address;
	unsigned int in_flight;
	unsigned int finished; /* operations ever; wraps */
	struct v4_opener *opener; /* version 4, once a file was created */
};

struct nfs_protocol {
	unsigned int version;

	/* Gets the handle of the export's root. Reports errors itself, nothing with version 0 tried. */
	int (*attach)(struct nfs_connection *conn, const struct net_address *address,
		      struct error *err);

	/* Queues the call of op, with nfs_op_finish() to follow. 0 or a negative errno. */
	int (*start)(struct nfs_connection *conn, struct nfs_op *op);

	/* Once there is no connection any more: ends the operations that had no call. May be NULL. */
	void (*broken)(struct nfs_connection *conn, int failure);
};

extern const struct nfs_protocol nfs_protocol_v3;
extern const struct nfs_protocol nfs_protocol_v4;

/* Whether more may be sent. */
static inline bool nfs_connection_is_up(const struct nfs_connection *conn)
{
	return conn->rpc != NULL;
}

/* The errno of an nfsstat3 or nfsstat4: they share their numbers. 0 for success. */
int nfs_status_errno(unsigned int status);

/* What a READ brought. -EREMOTEIO where that is more than op asked for. */
int nfs_op_take_data(struct nfs_op *op, const char *data, uint32_t len, bool eof);

/* Ends op with its result, on behalf of a protocol's reply function. */
void nfs_op_finish(struct nfs_op *op, int error);

static inline struct nfs_connection *nfs_op_connection(const struct nfs_op *op)
{
	return (struct nfs_connection *)op->client;
}

#endif
