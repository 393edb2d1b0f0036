/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Internals of nfs/v4_session.h: requests and their slots are in v4_session.c, the beginning and
 * the end of a session on the server in v4_session_open.c. v4_session_settle.c finds out what came
 * of changes when the connection is gone.
 */
#ifndef NFS_V4_SESSION_PARTS_H
#define NFS_V4_SESSION_PARTS_H

#include "base/list.h"
#include "nfs/v4_name.h"
#include "nfs/v4_session.h"

/* A copy, a removal and a listing may share a client: two default windows (128) and a margin. */
#define V4_SLOTS_MAX 160

/* Sizes that we request. A reply may hold a directory page or a READ; the rest is small. */
#define V4_MESSAGE_BYTES (NFS_TRANSFER_MAX + 4096U)

struct v4_slot {
	uint32_t sequence; /* of the next request */
	bool busy;
};

/* A compound that waits for a slot, or for its reply. */
struct v4_request {
	struct list link; /* in v4_session.waiting or lost, else unlinked */
	struct v4_session *session;
	uint32_t slot;
	uint32_t n; /* operations in body */
	bool is_change;
	bool is_cached; /* the server shall keep the reply; the same each time it is sent */
	char *body; /* its operations, encoded; NULL: sent, and not to be repeated */
	uint32_t body_len;
	net_rpc_replied *replied;
	void *data;
};

struct v4_session {
	struct nfs_connection *conn;
	unsigned int minor;
	char id[V4_SESSION_ID_BYTES];
	uint64_t clientid;
	struct v4_channel fore;
	uint32_t n_slots; /* that the server wants used at present */
	struct v4_slot slots[V4_SLOTS_MAX];
	struct list waiting; /* requests without a slot */
	struct list lost; /* changes whose replies were lost */
	bool is_made; /* the server has it */
	bool may_open; /* see v4_session_opens() */
	bool caches; /* the server's cache takes the replies of changes */
	bool is_ended; /* the connection is gone */
	bool is_lost; /* the server no longer has the session */
	bool is_stale;
	bool is_settling;
	bool binds; /* see v4_session_bind() */
	unsigned int settled; /* replies to requests that were lost */
	uint64_t used_ns; /* time of the last reply */
	char name[V4_NAME_MAX]; /* of the client */
};

/* -------- v4_session.c -------- */

/* Fail the requests of a list, and free them. */
void v4_request_finish_all(struct list *requests, int error);

/* Send in r->slot, which is busy. c: NULL for a request with a body. */
int v4_request_send(struct v4_request *r, const struct v4_compound *c, struct net_rpc *rpc);

/* The server's wish for the number of slots. It may ask for fewer, and for more again. */
void v4_session_follow_target(struct v4_session *s, uint32_t target);

/* -------- v4_session_open.c -------- */

/*
 * Add a connection to the session: RFC 8881 section 2.10.3.1. The first SEQUENCE would do, but
 * nfs-ganesha does not look at the connection of one that it answers from its cache, and then
 * refuses DESTROY_SESSION. Returns -ECONNABORTED if the connection is of no use now.
 */
int v4_session_bind(struct v4_session *s, struct net_rpc *rpc);

/* Tell the server that nothing more follows. A session that it no longer has is no obstacle. */
void v4_session_leave_over(struct v4_session *s, struct net_rpc *rpc, uint64_t deadline_ns);

#endif
