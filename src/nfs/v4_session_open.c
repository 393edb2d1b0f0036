/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A session's beginning and end on the server: EXCHANGE_ID and CREATE_SESSION with the limits that
 * the server grants, BIND_CONN_TO_SESSION, and DESTROY_SESSION and DESTROY_CLIENTID.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "nfs/error.h"
#include "nfs/v4_session_parts.h"

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

#define BIND_MS 1000 /* for BIND_CONN_TO_SESSION, without which most servers do, too */

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
		.request_max = V4_MESSAGE_BYTES,
		.reply_max = V4_MESSAGE_BYTES,
		.cached_max = CACHED_BYTES,
		.operations = V4_OPERATIONS_MAX + 1,
		.slots = V4_SLOTS_MAX,
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

	v4_session_follow_target(s, UINT32_MAX);
	s->caches = fore->cached_max >= CACHED_BYTES_MIN;
	for (i = 0; i < V4_SLOTS_MAX; i++)
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

int v4_session_bind(struct v4_session *s, struct net_rpc *rpc)
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

void v4_session_leave_over(struct v4_session *s, struct net_rpc *rpc, uint64_t deadline_ns)
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
			v4_session_leave_over(s, conn->rpc, nfs_connection_deadline(conn));
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
		s->fore.request_max < V4_MESSAGE_BYTES ? s->fore.request_max : V4_MESSAGE_BYTES;

	return max - HEADER_BYTES;
}

void v4_session_leave(struct v4_session *s)
{
	if (!s->is_lost && !s->is_ended)
		v4_session_leave_over(s, s->conn->rpc,
				      clock_now_ns() + V4_SESSION_LEAVE_MS * CLOCK_NS_PER_MS);
}
