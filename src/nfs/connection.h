/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Inside of nfs/: the real client, RPC calls on one connection, and what each protocol version (v3.c,
 * v4.c) adds to them. Included in this folder only.
 */
#ifndef NFS_CONNECTION_H
#define NFS_CONNECTION_H

#include "net/ping.h"
#include "net/rpc.h"
#include "nfs/client.h"

struct v4_opener;

_Static_assert(NFS_TRANSFER_MAX <= NET_RPC_DATA_MAX, "a WRITE fits into a buffer of net/rpc.c");

struct nfs_connection {
	struct nfs_client client; /* first: the two are the same pointer */
	struct net_rpc *rpc; /* NULL once broken */
	const struct nfs_protocol *protocol;
	struct net_address address;
	uint64_t deadline_ns; /* of attach() */
	unsigned int in_flight;
	unsigned int slow; /* of them, those that may take the server's disk long */
	unsigned int unbounded; /* of these, those of which nobody knows how much the disk has to do */
	unsigned int finished; /* operations ever; wraps */
	bool asking; /* a NULL call is in flight */
	bool answered; /* the last one was */
	uint64_t looked_ns; /* at the age of what is in flight */
	bool no_readdirplus; /* version 3: the server has READDIR only */
	uint32_t page_max; /* version 3: bytes that the server may have room for in a reply to them */
	struct v4_opener *opener; /* version 4, once a file was created */
};

struct nfs_protocol {
	unsigned int version;
	const struct net_rpc_procedure *null;

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

/*
 * Drives one connection, or two of one thread, until an operation of theirs has finished. 0 then, and also
 * without one where the deadline has passed while a server is busy: it is called again. Else -ETIMEDOUT or
 * -ECONNABORTED, and what failed is broken.
 */
#define NFS_DRIVEN_MAX 2
int nfs_connection_drive(struct nfs_connection *const conns[], size_t n, uint64_t deadline_ns);

/*
 * Connect to port, with the export's identity, from a reserved port unless the export says
 * otherwise. Returns 0 or a negative errno. The caller frees.
 */
int nfs_connect_rpc(struct net_rpc **ret, const struct net_address *address, uint16_t port,
		    const struct nfs_export *e);

/* Ends all that is in flight with failure. */
void nfs_connection_break(struct nfs_connection *conn, int failure);

/* A stretch of waiting, or what is left of the time for attach(). */
uint64_t nfs_connection_deadline(const struct nfs_connection *conn);

/* Whether more may be sent. */
static inline bool nfs_connection_is_up(const struct nfs_connection *conn)
{
	return conn->rpc != NULL;
}

/* The errno of an nfsstat3 or nfsstat4: they share their numbers. 0 for success. */
int nfs_status_errno(unsigned int status);

/* What a READ brought. -EREMOTEIO where that is more than op asked for. */
int nfs_op_take_data(struct nfs_op *op, const char *data, uint32_t len, bool eof);

/* How many bytes a READ asks for: no more than the server gives. */
uint32_t nfs_read_count(const struct nfs_op *op);

/* Ends op with its result, on behalf of a protocol's reply function. */
void nfs_op_finish(struct nfs_op *op, int error);

static inline struct nfs_connection *nfs_op_connection(const struct nfs_op *op)
{
	return (struct nfs_connection *)op->client;
}

#endif
