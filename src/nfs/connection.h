/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Internal to nfs/: the real client, RPC calls on one connection, and the interface of the protocol
 * versions (v3.c, v4.c). One thread at a time.
 */
#ifndef NFS_CONNECTION_H
#define NFS_CONNECTION_H

#include "net/ping.h"
#include "net/rpc.h"
#include "nfs/client.h"

struct v4_opener;
struct v4_session;

_Static_assert(NFS_TRANSFER_MAX <= NET_RPC_DATA_MAX, "a WRITE fits into a buffer of net/rpc.c");

struct nfs_connection {
	struct nfs_client client; /* first: pointers to both are interchangeable */
	struct net_rpc *rpc; /* NULL once broken */
	const struct nfs_protocol *protocol;
	struct net_address address;
	uint64_t deadline_ns; /* for attach() */
	unsigned int in_flight; /* operations */
	unsigned int slow; /* of these, operations that the server's disk may delay */
	unsigned int unbounded; /* of the slow operations, those with no bound on disk work */
	unsigned int finished; /* operations ever; wraps */
	bool asking; /* a NULL call is in flight */
	bool asked; /* a NULL call was sent in this stretch */
	bool answered; /* the last NULL call was answered */
	uint64_t driven_ns; /* end of the last nfs_connection_drive() */
	uint64_t waited_ns; /* how long this stretch has been driven */
	uint64_t age_checked_ns; /* time of the last check_age() */
	bool no_readdirplus; /* version 3: the server has only READDIR */
	uint32_t page_max; /* version 3: bytes in a READDIR or READDIRPLUS reply; 0: not known */
	bool doomed; /* breaks once the replies that have arrived are taken */
	bool aborted; /* nobody waits for what came of the operations in flight */
	struct v4_opener *opener; /* version 4, once a file was created */
	struct v4_session *session; /* version 4.1 and later; NULL: 4.0 or 3 */
};

/* The operations of the real client, with a struct nfs_connection. The tests' fakes have others. */
extern const struct nfs_client_ops nfs_connection_ops;

struct nfs_protocol {
	unsigned int version;
	const struct net_rpc_procedure *null;

	/* Get the handle of the export's root. Sets err. */
	int (*attach)(struct nfs_connection *conn, const struct net_address *address,
		      struct error *err);

	/* Queue the call of op; nfs_op_finish() follows. Returns 0 or a negative errno. */
	int (*start)(struct nfs_connection *conn, struct nfs_op *op);

	/* Check that an idle connection may still be used. NULL: it may. */
	bool (*is_fresh)(const struct nfs_connection *conn);

	/* Tell the server that this idle connection will not be used again. May be NULL. */
	void (*leave)(struct nfs_connection *conn);

	/* The connection is gone: end the operations that had no call yet. May be NULL. */
	void (*broken)(struct nfs_connection *conn, int failure);
};

extern const struct nfs_protocol nfs_protocol_v3;
extern const struct nfs_protocol nfs_protocol_v4;

#define NFS_DRIVEN_MAX 2

/*
 * Drive up to NFS_DRIVEN_MAX connections of one thread until one of their operations has finished,
 * or until a full connection is no longer full, or until wake_ns. Returns 0 then, and also at the
 * deadline if the server is busy but alive; call in a loop. Otherwise returns -ETIMEDOUT or
 * -ECONNABORTED, and the connection that failed is broken.
 */
int nfs_connection_drive(struct nfs_connection *const conns[], size_t n, uint64_t deadline_ns,
			 uint64_t wake_ns);

/*
 * Connect to port, with the export's identity, from a reserved port unless the export says
 * otherwise. Returns 0 or a negative errno. The caller frees.
 */
int nfs_connect_rpc(struct net_rpc **ret, const struct net_address *address, uint16_t port,
		    const struct nfs_export *e);

/* Pauses between the attempts of a call whose server asks to retry later. */
struct nfs_patience {
	uint64_t end_ns; /* no attempt starts after this */
	unsigned int wait_ms; /* the next pause */
};

struct nfs_patience nfs_patience_until(uint64_t end_ns);

/* Sleep until the next attempt. Returns false, at once, if it would be too late. */
bool nfs_patience_wait(struct nfs_patience *p);

/* Close the connection and end all operations in flight with failure. */
void nfs_connection_break(struct nfs_connection *conn, int failure);

/* Deadline of one step of attach(): NFS_CALL_TIMEOUT_MS, or the rest of the time for all steps. */
uint64_t nfs_connection_deadline(const struct nfs_connection *conn);

/* The connection of a client; NULL for a fake, which answers at once. */
static inline struct nfs_connection *nfs_connection_of(struct nfs_client *c)
{
	return c->ops == &nfs_connection_ops ? (struct nfs_connection *)c : NULL;
}

/* Check whether more may be sent. */
static inline bool nfs_connection_is_up(const struct nfs_connection *conn)
{
	return conn->rpc != NULL;
}

/* See nfs_client_is_full(). */
static inline bool nfs_connection_is_full(const struct nfs_connection *conn)
{
	return conn->rpc != NULL && net_rpc_unsent(conn->rpc) >= NFS_UNSENT_MAX;
}

/*
 * End an operation whose reply cannot be right. What a change did is not known then, as if its
 * reply had been lost: the connection breaks, so that the caller looks on a new one.
 */
int nfs_op_refuse(struct nfs_op *op);

/* End op with its result. For the protocols' reply callbacks. */
void nfs_op_finish(struct nfs_op *op, int error);

static inline struct nfs_connection *nfs_op_connection(const struct nfs_op *op)
{
	return (struct nfs_connection *)op->client;
}

#endif
