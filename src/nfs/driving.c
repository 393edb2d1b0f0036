/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * How long a connection waits for its server. A stretch without any answer ends it, unless the
 * server is at work on something that takes its disk long and still answers a NULL call: such a stretch
 * is followed by another one, until a call is older than NFS_OPERATION_MAX_MS or
 * NFS_DATA_MAX_MS.
 */

#include <errno.h>

#include "base/clock.h"
#include "nfs/connection.h"

/* Before the end of a stretch: when the NULL call is sent, which has so long to be answered. */
#define ASK_MS 5000

/* Between two looks at how old the calls in flight are. */
#define AGE_MS 1000

static unsigned int finished_of(struct nfs_connection *const conns[], size_t n)
{
	unsigned int finished = 0;
	size_t i;

	for (i = 0; i < n; i++)
		finished += conns[i]->finished;
	return finished;
}

/* One of two is enough: what is copied is often read from the disk that it is written to. */
static bool is_slow(struct nfs_connection *const conns[], size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (conns[i]->slow > 0)
			return true;
	return false;
}

/* -------- whether the server is alive -------- */

static void null_replied(void *data, int error, const void *results)
{
	struct nfs_connection *conn = data;

	(void)results;
	conn->asking = false;
	/* That it does not like the call is an answer, too. */
	conn->answered = error != -ECONNABORTED && error != -ETIMEDOUT;
}

/* Without memory it is asked on another connection, later. */
static void ask(struct nfs_connection *conn)
{
	conn->answered = false;
	if (!conn->asking)
		conn->asking =
			net_rpc_call(conn->rpc, conn->protocol->null, NULL, null_replied, conn) == 0;
}

/*
 * A server may answer the calls of a connection one after the other; then it is asked on another one, if its
 * system still takes what is sent on this one. After half a reply no other one can come.
 */
static bool is_alive(struct nfs_connection *conn)
{
	if (net_rpc_is_midway(conn->rpc))
		return false;
	if (conn->answered)
		return true;
	return net_rpc_is_taken(conn->rpc) && nfs_client_ping(&conn->client, NULL) == 0;
}

static int end_stretch(struct nfs_connection *const conns[], size_t n)
{
	const bool slow = is_slow(conns, n);
	size_t i;
	int r = 0;

	for (i = 0; i < n; i++) {
		if (slow && is_alive(conns[i]))
			continue;
		nfs_connection_break(conns[i], -ETIMEDOUT);
		r = -ETIMEDOUT;
	}
	return r;
}

/* A call that is passed over while others are answered does not wait for ever. */
static int check_age(struct nfs_connection *conn)
{
	const uint64_t max_ms = conn->unbounded > 0 ? NFS_OPERATION_MAX_MS : NFS_DATA_MAX_MS;
	uint64_t now = clock_now_ns(), oldest;

	if (now - conn->looked_ns < AGE_MS * CLOCK_NS_PER_MS)
		return 0;
	conn->looked_ns = now;
	oldest = net_rpc_oldest_ns(conn->rpc);
	if (oldest == 0 || now - oldest < max_ms * CLOCK_NS_PER_MS)
		return 0;
	nfs_connection_break(conn, -ETIMEDOUT);
	return -ETIMEDOUT;
}

/* -------- driving -------- */

/* Sends, waits once, and receives. What failed is broken, but for -ETIMEDOUT. */
static int step(struct nfs_connection *const conns[], size_t n, uint64_t deadline_ns)
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
		if (r < 0) {
			nfs_connection_break(conns[i], r);
			return r;
		}
	}
	return 0;
}

int nfs_connection_drive(struct nfs_connection *const conns[], size_t n, uint64_t deadline_ns)
{
	const unsigned int before = finished_of(conns, n);
	const uint64_t ask_ns = deadline_ns - ASK_MS * CLOCK_NS_PER_MS;
	bool asked = false;
	size_t i;
	int r = 0;

	for (i = 0; i < n && r == 0; i++) {
		conns[i]->answered = false;
		r = check_age(conns[i]);
	}
	while (r == 0) {
		r = step(conns, n, asked || !is_slow(conns, n) ? deadline_ns : ask_ns);
		if ((r < 0 && r != -ETIMEDOUT) || finished_of(conns, n) != before)
			return r == -ETIMEDOUT ? 0 : r;
		r = 0;
		/* Who only sends a byte now and then does not answer, either. */
		if (clock_now_ns() >= deadline_ns)
			return end_stretch(conns, n);
		for (i = 0; !asked && clock_now_ns() >= ask_ns && i < n; i++)
			ask(conns[i]);
		asked = asked || clock_now_ns() >= ask_ns;
	}
	return r;
}
