/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Operations in flight on a connection: starting, driving and ending them, and how long they wait
 * for the server. A stretch of time without any answer breaks a connection, unless a slow operation
 * is in flight and the server still answers a NULL call: then another stretch follows, until a call
 * is older than NFS_OPERATION_MAX_MS or NFS_DATA_MAX_MS. Only time in which somebody drives the
 * connection counts.
 */

#include "nfs/connection.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/str.h"

#define RETRY_FIRST_MS 50
#define RETRY_LAST_MS 1000

/* The NULL call is sent this long before the end of a stretch. */
#define ASK_MS 5000

/* Time between two checks of the age of the calls in flight. */
#define AGE_CHECK_MS 1000

/* -------- the start and the end of an operation -------- */

static int connection_start(struct nfs_client *c, struct nfs_op *op)
{
	struct nfs_connection *conn = (struct nfs_connection *)c;
	int r;

	if (conn->rpc == NULL)
		return -ECONNABORTED;
	r = conn->protocol->start(conn, op);
	if (r < 0)
		return r;
	conn->in_flight++;
	conn->slow += nfs_op_is_slow(op);
	conn->unbounded += nfs_op_is_unbounded(op);
	return 0;
}

int nfs_op_refuse(struct nfs_op *op)
{
	if (nfs_op_is_change(op))
		nfs_op_connection(op)->doomed = true;
	return -EBADMSG;
}

void nfs_op_finish(struct nfs_op *op, int error)
{
	struct nfs_connection *conn = nfs_op_connection(op);

	conn->in_flight--;
	conn->slow -= nfs_op_is_slow(op);
	conn->unbounded -= nfs_op_is_unbounded(op);
	conn->finished++;
	op->error = error;
	op->finished = true;
	if (error == -EAGAIN)
		conn->client.in_grace = op->in_grace;
	if (op->done != NULL)
		op->done(op);
}

/*
 * Operations in flight end through their ordinary callbacks, so a late reply can never write to a
 * caller's stack.
 */
void nfs_connection_break(struct nfs_connection *conn, int failure)
{
	if (conn->rpc == NULL)
		return;
	conn->client.broken = true;
	conn->client.silent = failure == -ETIMEDOUT;
	net_rpc_free(steal_ptr(&conn->rpc), failure);
	if (conn->protocol->broken != NULL)
		conn->protocol->broken(conn, failure);
}

static unsigned int count_finished(struct nfs_connection *const conns[], size_t n)
{
	unsigned int finished = 0;
	size_t i;

	for (i = 0; i < n; i++)
		finished += conns[i]->finished;
	return finished;
}

static unsigned int count_full(struct nfs_connection *const conns[], size_t n)
{
	unsigned int full = 0;
	size_t i;

	for (i = 0; i < n; i++)
		full += nfs_connection_is_full(conns[i]);
	return full;
}

/* If one connection is slow, treat all as slow: copies often read from the disk they write to. */
static bool any_is_slow(struct nfs_connection *const conns[], size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (conns[i]->slow > 0)
			return true;
	return false;
}

/* -------- whether the server is alive -------- */

static void connection_null_replied(void *data, int error, const void *results)
{
	struct nfs_connection *conn = data;

	(void)results;
	conn->asking = false;
	/* An RPC error is an answer too. */
	conn->answered = error != -ECONNABORTED && error != -ETIMEDOUT;
}

/* Once in a stretch. If this fails, is_alive() asks on another connection. */
static void send_null(struct nfs_connection *conn)
{
	if (conn->asked)
		return;
	conn->asked = true;
	conn->answered = false;
	if (!conn->asking)
		conn->asking = net_rpc_call(conn->rpc, conn->protocol->null, NULL,
					    connection_null_replied, conn) == 0;
}

static bool any_is_unasked(struct nfs_connection *const conns[], size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!conns[i]->asked)
			return true;
	return false;
}

/*
 * A server may answer the calls of a connection in order, and the NULL call last. So ask again on a
 * new connection, provided that the server's system still acknowledges data on this one. If the
 * server stopped in the middle of a reply, it cannot send another one on this connection.
 */
static bool is_alive(struct nfs_connection *conn)
{
	if (net_rpc_is_midway(conn->rpc))
		return false;
	if (conn->answered)
		return true;
	return net_rpc_is_taken(conn->rpc) && nfs_client_ping(&conn->client, NULL) == 0;
}

/* Returns 1 if another stretch follows. */
static int end_stretch(struct nfs_connection *const conns[], size_t n)
{
	const bool slow = any_is_slow(conns, n);
	size_t i;
	int r = 1;

	for (i = 0; i < n; i++) {
		if (slow && is_alive(conns[i]))
			continue;
		nfs_connection_break(conns[i], -ETIMEDOUT);
		r = -ETIMEDOUT;
	}
	return r;
}

/* Break the connection if one call has waited for too long while others were answered. */
static int check_age(struct nfs_connection *conn)
{
	const uint64_t max_ms = conn->unbounded > 0 ? NFS_OPERATION_MAX_MS : NFS_DATA_MAX_MS;
	uint64_t now = clock_now_ns(), oldest;

	/* Replies that came while nobody drove the connection have to be received first. */
	if (now - conn->driven_ns > AGE_CHECK_MS * CLOCK_NS_PER_MS)
		conn->age_checked_ns = now;
	if (now - conn->age_checked_ns < AGE_CHECK_MS * CLOCK_NS_PER_MS)
		return 0;
	conn->age_checked_ns = now;
	oldest = net_rpc_oldest_ns(conn->rpc);
	if (oldest == 0 || now - oldest < max_ms * CLOCK_NS_PER_MS)
		return 0;
	nfs_connection_break(conn, -ETIMEDOUT);
	return -ETIMEDOUT;
}

/* -------- driving -------- */

/* Send, wait once, and receive. Breaks the connection that fails, but not on -ETIMEDOUT. */
static int drive_once(struct nfs_connection *const conns[], size_t n, uint64_t deadline_ns)
{
	struct pollfd p[NFS_DRIVEN_MAX];
	size_t i;
	int r;

	for (i = 0; i < n; i++) {
		r = net_rpc_send(conns[i]->rpc, &p[i]);
		if (r < 0) {
			nfs_connection_break(conns[i], r);
			return r;
		}
	}
	r = net_rpc_wait(p, n, deadline_ns);
	if (r == -ETIMEDOUT)
		return r;
	for (i = 0; i < n; i++) {
		if (r == 0 && p[i].revents == 0)
			continue;
		if (r == 0)
			r = net_rpc_receive(conns[i]->rpc);
		if (r == 0 && conns[i]->doomed)
			r = -ECONNABORTED;
		if (r < 0) {
			nfs_connection_break(conns[i], r);
			return r;
		}
	}
	return 0;
}

/* Returns 1 if a new stretch begins, and 0 at wake_ns. */
static int drive_until_finished(struct nfs_connection *const conns[], size_t n,
				uint64_t deadline_ns, uint64_t wake_ns)
{
	const unsigned int before = count_finished(conns, n);
	const unsigned int full = count_full(conns, n);
	const uint64_t ask_ns = deadline_ns - ASK_MS * CLOCK_NS_PER_MS;
	size_t i;
	int r;

	for (i = 0; i < n; i++) {
		r = check_age(conns[i]);
		if (r < 0)
			return r;
	}
	for (;;) {
		const bool asks = any_is_slow(conns, n) && any_is_unasked(conns, n);
		const uint64_t end_ns = asks ? ask_ns : deadline_ns;

		r = drive_once(conns, n, end_ns < wake_ns ? end_ns : wake_ns);
		if (r < 0 && r != -ETIMEDOUT)
			return r;
		if (count_finished(conns, n) != before || count_full(conns, n) < full)
			return 1;
		/* Bytes that trickle in are no answer. */
		if (clock_now_ns() >= deadline_ns)
			return end_stretch(conns, n);
		if (clock_now_ns() >= wake_ns)
			return 0;
		for (i = 0; clock_now_ns() >= ask_ns && i < n; i++)
			send_null(conns[i]);
	}
}

int nfs_connection_drive(struct nfs_connection *const conns[], size_t n, uint64_t deadline_ns,
			 uint64_t wake_ns)
{
	const uint64_t begun_ns = clock_now_ns();
	int r = drive_until_finished(conns, n, deadline_ns, wake_ns);
	size_t i;

	for (i = 0; i < n; i++) {
		conns[i]->driven_ns = clock_now_ns();
		conns[i]->waited_ns += conns[i]->driven_ns - begun_ns;
		if (r != 0) {
			conns[i]->waited_ns = 0;
			conns[i]->asked = conns[i]->answered = false;
		}
	}
	return r < 0 ? r : 0;
}

/* -------- clients -------- */

static int connection_run(struct nfs_client *c, uint64_t deadline_ns)
{
	struct nfs_connection *conn = (struct nfs_connection *)c;

	if (conn->rpc == NULL)
		return -ECONNABORTED;
	return nfs_connection_drive(&conn, 1, deadline_ns, UINT64_MAX);
}

static void connection_free(struct nfs_client *c)
{
	struct nfs_connection *conn = (struct nfs_connection *)c;

	if (conn->rpc != NULL && conn->in_flight == 0 && conn->protocol->leave != NULL)
		conn->protocol->leave(conn);
	nfs_connection_break(conn, -ECONNABORTED);
	nfs_export_done(&c->export);
	free(conn);
}

const struct nfs_client_ops nfs_connection_ops = {
	.start = connection_start,
	.run = connection_run,
	.free = connection_free,
};

static bool is_waiting(struct nfs_client *c)
{
	const struct nfs_connection *conn = nfs_connection_of(c);

	return conn != NULL && conn->rpc != NULL && conn->in_flight > 0;
}

/* The rest of the stretch: a wake does not begin another one. */
static uint64_t stretch_left_ns(const struct nfs_connection *conn)
{
	const uint64_t max_ns = NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
	const uint64_t left_ns = conn->waited_ns < max_ns ? max_ns - conn->waited_ns : 0;
	const uint64_t check_ns = AGE_CHECK_MS * CLOCK_NS_PER_MS;

	/* Replies that came while nobody drove the connection have to be received first. */
	if (clock_now_ns() - conn->driven_ns > check_ns && left_ns < check_ns)
		return check_ns;
	return left_ns;
}

int nfs_client_run_pair(struct nfs_client *a, struct nfs_client *b, uint64_t wake_ns)
{
	struct nfs_connection *conns[NFS_DRIVEN_MAX];
	uint64_t left_ns = 0;
	size_t n = 0, i;

	if (is_waiting(a))
		conns[n++] = (struct nfs_connection *)a;
	if (b != NULL && b != a && is_waiting(b))
		conns[n++] = (struct nfs_connection *)b;
	if (n == 0)
		return nfs_client_run(a);
	/* An answer on one of them begins a stretch of both. */
	for (i = 0; i < n; i++)
		if (stretch_left_ns(conns[i]) > left_ns)
			left_ns = stretch_left_ns(conns[i]);
	return nfs_connection_drive(conns, n, clock_now_ns() + left_ns, wake_ns);
}

void nfs_client_abort(struct nfs_client *c)
{
	struct nfs_connection *conn = nfs_connection_of(c);

	if (conn == NULL)
		return;
	conn->aborted = true;
	nfs_connection_break(conn, -ECONNABORTED);
}

bool nfs_client_is_full(struct nfs_client *c)
{
	const struct nfs_connection *conn = nfs_connection_of(c);

	return conn != NULL && nfs_connection_is_full(conn);
}

bool nfs_client_is_usable(struct nfs_client *c)
{
	const struct nfs_connection *conn = nfs_connection_of(c);

	if (c->broken || conn == NULL)
		return !c->broken;
	/* With nothing in flight, anything that arrived is a reset or the end. */
	return net_rpc_is_quiet(conn->rpc) &&
	       (conn->protocol->is_fresh == NULL || conn->protocol->is_fresh(conn));
}

void nfs_client_free(struct nfs_client *c)
{
	if (c != NULL)
		c->ops->free(c);
}

int nfs_client_start(struct nfs_client *c, struct nfs_op *op)
{
	op->client = c;
	op->finished = false;
	op->error = 0;
	op->in_grace = false;
	return c->ops->start(c, op);
}

int nfs_client_run(struct nfs_client *c)
{
	return c->ops->run(c, clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS);
}

/* Like every call, an attempt may take NFS_CALL_TIMEOUT_MS, or a change's reply would be lost. */
static int make_attempt(struct nfs_client *c, struct nfs_op *op)
{
	uint64_t deadline_ns = clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
	int r = nfs_client_start(c, op);

	if (r < 0)
		return r;
	while (!op->finished) {
		r = c->ops->run(c, deadline_ns);
		if (r < 0 && !op->finished)
			return r;
		/* No error past the deadline: the server is alive and at work. */
		if (clock_now_ns() >= deadline_ns)
			deadline_ns = clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
	}
	return op->error;
}

struct nfs_patience nfs_patience_until(uint64_t end_ns)
{
	return (struct nfs_patience){ .end_ns = end_ns, .wait_ms = RETRY_FIRST_MS };
}

bool nfs_patience_wait(struct nfs_patience *p)
{
	if (clock_left_ms(p->end_ns) <= (int)p->wait_ms)
		return false;
	clock_sleep_ms(p->wait_ms);
	if (p->wait_ms < RETRY_LAST_MS / 2)
		p->wait_ms *= 2;
	return true;
}

int nfs_client_call(struct nfs_client *c, struct nfs_op *op)
{
	const uint64_t begun = clock_now_ns();
	struct nfs_patience patience =
		nfs_patience_until(begun + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS);
	int r;

	do {
		r = make_attempt(c, op);
		if (r == -EAGAIN && op->in_grace)
			patience.end_ns = begun + NFS_GRACE_TIMEOUT_MS * CLOCK_NS_PER_MS;
	} while (r == -EAGAIN && nfs_patience_wait(&patience));
	return r;
}
