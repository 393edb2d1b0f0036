/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"
#include "net/zdr.h"
#include "nfs/error.h"
#include "nfs/v4_name.h"

/* A copy, a removal and a listing may share a client: two default windows (128) and a margin. */
#define SLOTS_MAX 160

/* Sizes that we request. A reply may hold a directory page or a READ; the rest is small. */
#define MESSAGE_BYTES (NFS_TRANSFER_MAX + 4096U)
/*
 * The longest reply of a change, OPEN with a handle of 128 bytes and owners of 255, has about 1,020
 * bytes. Linux gives a session 64 KiB of cache, so it grants more slots if each takes less.
 */
#define CACHED_BYTES 1280U
#define CACHED_BYTES_MIN 1024U
#define HEADER_BYTES 512U /* of RPC, COMPOUND and SEQUENCE, with room to spare */

/*
 * With lower limits, fall back to the next older version. A session must have room for a page of a
 * directory, and for CLONE with the operations around it.
 */
#define MESSAGE_BYTES_MIN 16384U
#define OPERATIONS_MIN 8

/* A change with two long names and owners, or a symbolic link, or a small file. */
#define CHANGE_BYTES (16384U + NFS_WHOLE_MAX)

/* Changes whose replies were lost: time for an answer, and pauses after answers with DELAY. */
#define SETTLE_MS 5000
#define SETTLE_PAUSE_FIRST_MS 20
#define SETTLE_PAUSE_LAST_MS 500
#define SETTLE_CONNECTIONS 3 /* one after another; each may break like the first one */
#define BIND_MS 1000 /* for BIND_CONN_TO_SESSION, without which most servers do, too */

#define LEASE_MS 20000 /* of a server that does not say; RFC 8881 has no lower limit */

/*
 * sr_status_flags of a server that has lost or revoked state, RFC 8881 section 18.46. A server may
 * also set STATUS_RESTARTED until it gets RECLAIM_COMPLETE.
 */
#define STATUS_REVOKED (0x8U | 0x10U | 0x20U)
#define STATUS_RESTARTED 0x100U

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
	struct v4_slot slots[SLOTS_MAX];
	struct list waiting; /* requests without a slot */
	struct list lost; /* changes whose replies were lost */
	bool is_made; /* the server has it */
	bool may_open; /* see v4_session_opens() */
	bool caches; /* the server's cache takes the replies of changes */
	bool is_ended; /* the connection is gone */
	bool is_lost; /* the server no longer has the session */
	bool is_stale;
	bool is_settling;
	bool binds; /* see bind_connection() */
	unsigned int settled; /* replies to requests that were lost */
	uint64_t used_ns; /* time of the last reply */
	char name[V4_NAME_MAX]; /* of the client */
};

/* -------- requests -------- */

static void request_free(struct v4_request *r)
{
	list_remove(&r->link);
	free(r->body);
	free(r);
}

static void request_finish(struct v4_request *r, int error, const void *results)
{
	net_rpc_replied *replied = r->replied;
	void *data = r->data;

	request_free(r);
	replied(data, error, results);
}

static void finish_all(struct list *requests, int error)
{
	while (!list_is_empty(requests))
		request_finish(container_of(requests->next, struct v4_request, link), error, NULL);
}

/* Operations that are not idempotent. */
static bool opnum_is_change(uint32_t opnum)
{
	switch (opnum) {
	case OP_CREATE:
	case OP_LINK:
	case OP_OPEN:
	case OP_REMOVE:
	case OP_RENAME:
		return true;
	default:
		return false;
	}
}

static bool has_change(const struct v4_compound *c)
{
	unsigned int i;

	for (i = 0; i < c->n; i++)
		if (opnum_is_change(c->ops[i].argop))
			return true;
	return false;
}

/* All results but the last are those of operations that succeeded. */
static bool has_made_change(const COMPOUND4res *res)
{
	u_int i;

	for (i = 0; i + 1 < res->resarray.resarray_len; i++)
		if (opnum_is_change(res->resarray.resarray_val[i].resop))
			return true;
	return false;
}

/* Keep the operations of a compound that may have to be sent later, or again. */
static int request_keep_body(struct v4_request *r, const struct v4_compound *c)
{
	const size_t rooms[] = { CHANGE_BYTES, MESSAGE_BYTES };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rooms); i++) {
		cleanup_free char *body = malloc(rooms[i] + NET_ZDR_ENCODE_SPARE);
		bool_t fits;
		ZDR zdr;

		if (body == NULL)
			return -ENOMEM;
		zdrmem_create(&zdr, body, (uint32_t)rooms[i], ZDR_ENCODE);
		fits = v4_encode_operations(&zdr, c);
		r->body_len = zdr_getpos(&zdr);
		zdr_destroy(&zdr);
		if (!fits)
			continue;
		r->body = malloc(r->body_len);
		if (r->body == NULL)
			return -ENOMEM;
		memcpy(r->body, body, r->body_len);
		return 0;
	}
	return -EMSGSIZE;
}

/* -------- slots -------- */

/* Return the lowest free slot, or -1. */
static int find_free_slot(const struct v4_session *s)
{
	uint32_t i;

	for (i = 0; i < s->n_slots; i++)
		if (!s->slots[i].busy)
			return (int)i;
	return -1;
}

static uint32_t highest_slot(const struct v4_session *s)
{
	uint32_t i, highest = 0;

	for (i = 0; i < SLOTS_MAX; i++)
		if (s->slots[i].busy)
			highest = i;
	return highest;
}

static void request_replied(void *data, int error, const void *results);

/* Send in r->slot, which is busy. c: NULL for a request with a body. */
static int request_send(struct v4_request *r, const struct v4_compound *c, struct net_rpc *rpc)
{
	struct v4_session *s = r->session;
	union v4_later_args sequence = {
		.sequence = {
			.sequence = s->slots[r->slot].sequence,
			.slot = r->slot,
			.highest_slot = highest_slot(s),
			.cache = r->is_cached,
		},
	};
	struct v4_message message = {
		.minor = s->minor,
		.sequence = &sequence,
		.compound = r->body == NULL ? c : NULL,
		.body = r->body,
		.body_len = r->body_len,
		.n = r->n,
	};

	memcpy(sequence.sequence.session, s->id, sizeof(s->id));
	return net_rpc_call(rpc, &v4_procedure, &message, request_replied, r);
}

static int request_start(struct v4_request *r, const struct v4_compound *c, uint32_t slot)
{
	struct v4_session *s = r->session;
	int error;

	r->slot = slot;
	r->is_cached = r->is_change && s->caches;
	s->slots[slot].busy = true;
	error = request_send(r, c, s->conn->rpc);
	if (error < 0)
		s->slots[slot].busy = false;
	return error;
}

static void send_waiting_requests(struct v4_session *s)
{
	while (!list_is_empty(&s->waiting) && s->conn->rpc != NULL) {
		struct v4_request *r = container_of(s->waiting.next, struct v4_request, link);
		const int slot = find_free_slot(s);
		int error;

		if (slot < 0)
			return;
		list_remove(&r->link);
		error = request_start(r, NULL, (uint32_t)slot);
		if (error < 0)
			request_finish(r, error, NULL);
	}
}

/* -------- replies -------- */

/* The server's wish for the number of slots. It may ask for fewer, and for more again. */
static void follow_target(struct v4_session *s, uint32_t target)
{
	const uint32_t max = s->fore.slots < SLOTS_MAX ? s->fore.slots : SLOTS_MAX;

	s->n_slots = target < max ? target + 1 : max;
	s->conn->client.slots = s->n_slots;
}

/*
 * Take the result of SEQUENCE. Returns 0 if the server has begun with the other operations, else
 * why it has not: nothing was done.
 */
static int take_sequence(struct v4_request *r, const COMPOUND4res *res)
{
	struct v4_session *s = r->session;
	struct v4_slot *slot = &s->slots[r->slot];
	const union v4_later_result *result = NULL;
	const nfs_resop4 *one = res->resarray.resarray_val;

	if (res->resarray.resarray_len == 0 || (uint32_t)one->resop != V4_OP_SEQUENCE) {
		s->is_lost = true;
		return res->status == NFS4_OK ? -EREMOTEIO : nfs_status_errno(res->status);
	}
	result = v4_later_result(one);
	switch ((uint32_t)one->nfs_resop4_u.opillegal.status) {
	case NFS4_OK:
		break;
	case V4_ERR_REQ_TOO_BIG:
	case V4_ERR_TOO_MANY_OPS:
		return -EMSGSIZE;
	case V4_ERR_REP_TOO_BIG_TO_CACHE: /* try again without */
		s->caches = false;
		return -EAGAIN;
	case NFS4ERR_DELAY:
		return -EAGAIN; /* the number is not used up */
	default:
		/* BADSESSION, DEADSESSION, BADSLOT ...: what we know of the session is wrong. */
		s->is_lost = true;
		return -ECONNABORTED;
	}
	if (memcmp(result->sequence.session, s->id, sizeof(s->id)) != 0 ||
	    result->sequence.slot != r->slot || result->sequence.sequence != slot->sequence) {
		s->is_lost = true;
		return -EREMOTEIO;
	}
	slot->sequence++;
	follow_target(s, result->sequence.target_slot);
	if ((result->sequence.flags & STATUS_REVOKED) != 0 ||
	    (s->may_open && (result->sequence.flags & STATUS_RESTARTED) != 0))
		s->is_stale = true;
	return 0;
}

/*
 * Check whether a change that was sent again has to be sent once more: the server is still working
 * on the first request, or has changed nothing. error: from take_sequence(). If SEQUENCE itself was
 * delayed, keep the slot's sequence number: it belongs to the first request (RFC 8881, section
 * 2.10.6.1).
 */
static bool is_delayed(const struct v4_session *s, int error, const COMPOUND4res *res)
{
	if (!s->is_settling || s->is_lost)
		return false;
	return res->status == NFS4ERR_DELAY &&
	       (error == -EAGAIN || (error == 0 && !has_made_change(res)));
}

static void request_replied(void *data, int error, const void *results)
{
	struct v4_request *r = data;
	struct v4_session *s = r->session;
	const COMPOUND4res *res = results; /* NULL after an error */

	if (error == -ECONNABORTED && r->is_change && !s->is_lost) {
		list_add_tail(&s->lost, &r->link); /* see v4_session_broken() */
		return;
	}
	s->settled++;
	s->used_ns = clock_now_ns();
	if (error == 0) {
		error = take_sequence(r, res);
		if (is_delayed(s, error, res)) {
			list_add_tail(&s->lost, &r->link);
			return;
		}
		/* The server has not kept the reply: the caller looks what the change did. */
		if (error == 0 && (uint32_t)res->status == V4_ERR_RETRY_UNCACHED_REP)
			error = -ECONNABORTED;
		/* The cache holds less than the server said; the caller tries again without it. */
		if (error == 0 && (uint32_t)res->status == V4_ERR_REP_TOO_BIG_TO_CACHE)
			s->caches = false;
	} else if (error != -ECONNABORTED && error != -ETIMEDOUT) {
		s->is_lost = true; /* whether the number of the slot is used up is not known */
		/* This refusal says nothing of what the first request has done. */
		if (s->is_settling)
			error = -ECONNABORTED;
	}
	s->slots[r->slot].busy = false;
	/* The loop that receives replies breaks the connection: it must not go while it is read. */
	s->conn->doomed = s->conn->doomed || s->is_lost;
	request_finish(r, error, error < 0 ? NULL : results);
	if (!s->is_settling)
		send_waiting_requests(s);
}

/* -------- setting up -------- */

/* Return the result of the only operation in *ret, which may be NULL for one without results. */
static int take_only(const COMPOUND4res *res, uint32_t opnum, const union v4_later_result **ret)
{
	const nfs_resop4 *one = res->resarray.resarray_val;

	if (res->status != NFS4_OK)
		return nfs_status_errno(res->status);
	if (res->resarray.resarray_len != 1 || (uint32_t)one->resop != opnum ||
	    one->nfs_resop4_u.opillegal.status != NFS4_OK)
		return -EBADMSG;
	*ret = v4_later_result(one);
	return 0;
}

static int take_exchange_id(void *data, const void *results)
{
	const union v4_later_result *result = NULL;
	union v4_later_args *next = data;
	int r = take_only(results, V4_OP_EXCHANGE_ID, &result);

	if (r < 0)
		return r;
	next->create_session.clientid = result->exchange_id.clientid;
	next->create_session.sequence = result->exchange_id.sequence;
	return 0;
}

static int take_create_session(void *data, const void *results)
{
	struct v4_session *s = data;
	const union v4_later_result *result = NULL;
	int r = take_only(results, V4_OP_CREATE_SESSION, &result);

	if (r == -ENOSPC)
		return -EAGAIN; /* no room for one more session at present */
	if (r < 0)
		return r;
	memcpy(s->id, result->create_session.session, sizeof(s->id));
	s->fore = result->create_session.fore;
	s->is_made = true;
	return 0;
}

/* For operations whose status is all that matters. */
static int take_status(void *data, const void *results)
{
	(void)data;
	return nfs_status_errno(((const COMPOUND4res *)results)->status);
}

static int ask(struct v4_session *s, struct net_rpc *rpc, struct v4_compound *c,
	       int (*take)(void *data, const void *results), void *data, uint64_t deadline_ns)
{
	struct v4_message message = { .minor = s->minor, .compound = c };

	return net_rpc_ask(rpc, &v4_procedure, &message, take, data, deadline_ns);
}

/* Like ask(), for a server that may ask to retry later. */
static int ask_patiently(struct v4_session *s, struct v4_compound *c,
			 int (*take)(void *data, const void *results), void *data)
{
	struct nfs_patience patience = nfs_patience_until(nfs_connection_deadline(s->conn));
	int r;

	do
		r = ask(s, s->conn->rpc, c, take, data, nfs_connection_deadline(s->conn));
	while (r == -EAGAIN && nfs_patience_wait(&patience));
	return r;
}

static int exchange_id(struct v4_session *s, union v4_later_args *ret)
{
	struct v4_compound c = { .n = 0 };
	union v4_later_args *args = v4_add_later(&c, V4_OP_EXCHANGE_ID);
	const uint64_t now = clock_now_ns();

	memcpy(args->exchange_id.verifier, &now, sizeof(args->exchange_id.verifier));
	args->exchange_id.name = s->name;
	return ask_patiently(s, &c, take_exchange_id, ret);
}

static int create_session(struct v4_session *s, const union v4_later_args *client)
{
	struct v4_compound c = { .n = 0 };
	union v4_later_args *args = v4_add_later(&c, V4_OP_CREATE_SESSION);
	int r;

	*args = *client;
	args->create_session.fore = (struct v4_channel){
		.request_max = MESSAGE_BYTES,
		.reply_max = MESSAGE_BYTES,
		.cached_max = CACHED_BYTES,
		.operations = V4_OPERATIONS_MAX + 1,
		.slots = SLOTS_MAX,
	};
	s->clientid = client->create_session.clientid;
	r = ask_patiently(s, &c, take_create_session, s);
	/* TOOSMALL and PERM are about the session, not a file: try the next version. */
	return r == -ERANGE || r == -EPERM ? -EREMOTEIO : r;
}

static int check_limits(const struct v4_session *s, struct error *err)
{
	const struct {
		const char *what;
		uint32_t have, need;
	} limits[] = {
		{ "requests at a time", s->fore.slots, 1 },
		{ "operations in a request", s->fore.operations, OPERATIONS_MIN },
		{ "bytes in a request", s->fore.request_max, MESSAGE_BYTES_MIN },
		{ "bytes in a reply", s->fore.reply_max, MESSAGE_BYTES_MIN },
	};
	const struct nfs_client *client = &s->conn->client;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(limits); i++) {
		if (limits[i].have >= limits[i].need)
			continue;
		(void)error_set(err, ERROR_FAILED_PRECONDITION,
				"server '%s' allows %u %s over NFSv%s, and %u are needed: raise its limit, or change vers= in the mount options",
				client->export.server, limits[i].have, limits[i].what,
				nfs_version_text(client), limits[i].need);
		return -EPROTONOSUPPORT;
	}
	return 0;
}

static void apply_limits(struct v4_session *s)
{
	struct nfs_client *client = &s->conn->client;
	const struct v4_channel *fore = &s->fore;
	uint32_t i;

	follow_target(s, UINT32_MAX);
	s->caches = fore->cached_max >= CACHED_BYTES_MIN;
	for (i = 0; i < SLOTS_MAX; i++)
		s->slots[i].sequence = 1;
	client->operations = fore->operations - 1;
	client->session = (struct nfs_session){
		.slots = fore->slots,
		.operations = fore->operations,
		.request_max = fore->request_max,
		.reply_max = fore->reply_max,
	};
}

static int set_up(struct v4_session *s, struct error *err)
{
	union v4_later_args client = { .create_session = { .clientid = 0 } };
	int r;

	r = exchange_id(s, &client);
	if (r == 0)
		r = create_session(s, &client);
	if (r == 0)
		r = check_limits(s, err);
	if (r == 0)
		apply_limits(s);
	return r;
}

/*
 * Add a connection to the session: RFC 8881 section 2.10.3.1. The first SEQUENCE would do, but
 * nfs-ganesha does not look at the connection of one that it answers from its cache, and then
 * refuses DESTROY_SESSION. Returns -ECONNABORTED if the connection is of no use now.
 */
static int bind_connection(struct v4_session *s, struct net_rpc *rpc)
{
	struct v4_compound c = { .n = 0 };
	int r;

	memcpy(v4_add_later(&c, V4_OP_BIND_CONN_TO_SESSION)->bind_conn, s->id, sizeof(s->id));
	r = ask(s, rpc, &c, take_status, NULL, clock_now_ns() + BIND_MS * CLOCK_NS_PER_MS);
	if (r != -ETIMEDOUT && r != -ECONNABORTED)
		return 0; /* whatever the server says to it, SEQUENCE decides */
	s->binds = false;
	return -ECONNABORTED;
}

/* Tell the server that nothing more follows. A session that it no longer has is no obstacle. */
static void leave(struct v4_session *s, struct net_rpc *rpc, uint64_t deadline_ns)
{
	struct v4_compound session = { .n = 0 }, client = { .n = 0 };
	int r = 0;

	memcpy(v4_add_later(&session, V4_OP_DESTROY_SESSION)->destroy_session, s->id,
	       sizeof(s->id));
	if (s->is_made)
		r = ask(s, rpc, &session, take_status, NULL, deadline_ns);
	v4_add_later(&client, V4_OP_DESTROY_CLIENTID)->destroy_clientid = s->clientid;
	if (s->clientid != 0 && r != -ETIMEDOUT && r != -ECONNABORTED)
		(void)ask(s, rpc, &client, take_status, NULL, deadline_ns);
}

int v4_session_open(struct nfs_connection *conn, unsigned int minor, struct error *err)
{
	struct v4_session *s = calloc(1, sizeof(*s));
	int r;

	if (s == NULL)
		return -ENOMEM;
	s->conn = conn;
	s->minor = minor;
	s->used_ns = clock_now_ns();
	list_init(&s->waiting);
	list_init(&s->lost);
	v4_name_client(s->name);
	r = set_up(s, err);
	if (r < 0) {
		/* The next version may use the connection, unless a reply is still to come. */
		if (r == -ETIMEDOUT || r == -ECONNABORTED)
			nfs_connection_break(conn, r);
		else
			leave(s, conn->rpc, nfs_connection_deadline(conn));
		conn->client.slots = conn->client.operations = 0;
		conn->client.session = (struct nfs_session){ .slots = 0 };
		free(s);
		/* A server that looks at the operations first: OP_ILLEGAL or NOTSUPP. */
		return r == -EOPNOTSUPP ? -EPROTONOSUPPORT : r;
	}
	conn->session = s;
	return 0;
}

uint64_t v4_session_opens(struct v4_session *s)
{
	s->may_open = true;
	return s->clientid;
}

static void cap(uint32_t *max, uint32_t room)
{
	if (*max == 0 || *max > room - HEADER_BYTES)
		*max = room - HEADER_BYTES;
}

void v4_session_cap(const struct v4_session *s)
{
	struct nfs_client *client = &s->conn->client;

	cap(&client->read_max, s->fore.reply_max);
	cap(&client->write_max, s->fore.request_max);
}

uint32_t v4_session_room(const struct v4_session *s)
{
	const uint32_t max =
		s->fore.request_max < MESSAGE_BYTES ? s->fore.request_max : MESSAGE_BYTES;

	return max - HEADER_BYTES;
}

bool v4_session_is_fresh(const struct v4_session *s)
{
	const uint32_t lease_s = s->conn->client.lease_s;
	const uint64_t lease_ms = lease_s != 0 ? lease_s * UINT64_C(1000) : LEASE_MS;

	return !s->is_stale && !s->is_lost &&
	       clock_now_ns() - s->used_ns < lease_ms / 2 * CLOCK_NS_PER_MS;
}

/* -------- sending -------- */

int v4_session_send(struct v4_session *s, struct v4_compound *c, net_rpc_replied *replied,
		    void *data)
{
	/* A callback may start operations in a slot that is free again: the others came first. */
	const int slot = list_is_empty(&s->waiting) ? find_free_slot(s) : -1;
	struct v4_request *r;
	int error = 0;

	if (s->is_ended || s->is_lost)
		return -ECONNABORTED;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	list_init(&r->link);
	r->session = s;
	r->n = c->n;
	r->is_change = has_change(c);
	r->replied = replied;
	r->data = data;
	if (r->is_change || slot < 0)
		error = request_keep_body(r, c);
	if (error == 0 && slot < 0)
		list_add_tail(&s->waiting, &r->link);
	else if (error == 0)
		error = request_start(r, c, (uint32_t)slot);
	if (error < 0)
		request_free(r);
	return error;
}

/* -------- the end -------- */

void v4_session_leave(struct v4_session *s)
{
	if (!s->is_lost && !s->is_ended)
		leave(s, s->conn->rpc, clock_now_ns() + V4_SESSION_LEAVE_MS * CLOCK_NS_PER_MS);
}

/* Send the changes again whose replies were lost, and wait for the answers, to a limit for all. */
static int ask_for_lost(struct v4_session *s, struct net_rpc *rpc, uint64_t deadline)
{
	uint64_t limit = clock_now_ns() + SETTLE_MS * CLOCK_NS_PER_MS;
	struct list lost;
	int r = 0;

	/* The answers may put requests back into the list. */
	list_init(&lost);
	while (!list_is_empty(&s->lost)) {
		struct list *link = s->lost.next;

		list_remove(link);
		list_add_tail(&lost, link);
	}
	while (!list_is_empty(&lost)) {
		struct v4_request *request = container_of(lost.next, struct v4_request, link);

		list_remove(&request->link);
		if (r == 0)
			r = request_send(request, NULL, rpc);
		if (r < 0)
			list_add_tail(&s->lost, &request->link);
	}
	if (limit > deadline)
		limit = deadline;
	while (r == 0 && net_rpc_oldest_ns(rpc) != 0 && !s->is_lost)
		r = net_rpc_run(rpc, &s->settled, limit);
	return r;
}

/* Send the lost changes over a new connection. Return -ECONNABORTED if it breaks, too. */
static int settle_over_another(struct v4_session *s, uint64_t deadline)
{
	const struct nfs_export *e = &s->conn->client.export;
	unsigned int pause_ms = SETTLE_PAUSE_FIRST_MS;
	struct net_rpc *rpc = NULL;
	int r;

	r = nfs_connect_rpc(&rpc, &s->conn->address, e->port != 0 ? e->port : NET_NFS_PORT, e);
	if (r < 0)
		return -EHOSTDOWN;
	if (s->binds && bind_connection(s, rpc) < 0) {
		net_rpc_free(rpc, -ECONNABORTED);
		return -ECONNABORTED;
	}
	for (;;) {
		r = ask_for_lost(s, rpc, deadline);
		if (r < 0 || s->is_lost || list_is_empty(&s->lost) ||
		    clock_left_ms(deadline) <= (int)pause_ms)
			break;
		clock_sleep_ms(pause_ms);
		if (pause_ms < SETTLE_PAUSE_LAST_MS)
			pause_ms *= 2;
	}
	if (r == 0 && !s->is_lost && list_is_empty(&s->lost))
		leave(s, rpc, clock_now_ns() + V4_SESSION_LEAVE_MS * CLOCK_NS_PER_MS);
	net_rpc_free(rpc, -ECONNABORTED);
	return r;
}

/* Find out what came of the changes whose replies were lost. */
static void settle(struct v4_session *s)
{
	const uint64_t deadline = clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
	unsigned int i;

	s->is_settling = s->binds = true;
	for (i = 0; i < SETTLE_CONNECTIONS && clock_now_ns() < deadline; i++)
		if (list_is_empty(&s->lost) || settle_over_another(s, deadline) != -ECONNABORTED)
			break;
}

void v4_session_broken(struct nfs_connection *conn, int failure)
{
	struct v4_session *s = conn->session;

	if (s == NULL)
		return;
	s->is_ended = true;
	if (failure == -ECONNABORTED && !conn->aborted && !s->is_lost && !list_is_empty(&s->lost))
		settle(s);
	finish_all(&s->lost, failure);
	finish_all(&s->waiting, failure);
	conn->session = NULL;
	free(s);
}
