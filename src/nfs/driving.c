/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Driving connections, and how long they wait for their server. A stretch of time without any
 * answer breaks a connection, unless a slow operation is in flight and the server still answers a
 * NULL call: then another stretch follows, until a call is older than NFS_OPERATION_MAX_MS or
 * NFS_DATA_MAX_MS.
 */

#include <errno.h>

#include "base/clock.h"
#include "nfs/connection.h"

/* The NULL call is sent this long before the end of a stretch. */
#define ASK_MS 5000

/* Time between two checks of the age of the calls in flight. */
#define AGE_CHECK_MS 1000

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

/* One slow connection counts for all: copies often read from the disk that they write to. */
static bool any_is_slow(struct nfs_connection *const conns[], size_t n)
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
	/* An RPC error is an answer too. */
	conn->answered = error != -ECONNABORTED && error != -ETIMEDOUT;
}

/* If this fails, is_alive() asks on another connection. */
static void send_null(struct nfs_connection *conn)
{
	conn->answered = false;
	if (!conn->asking)
		conn->asking = net_rpc_call(conn->rpc, conn->protocol->null, NULL, null_replied,
					    conn) == 0;
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

static int end_stretch(struct nfs_connection *const conns[], size_t n)
{
	const bool slow = any_is_slow(conns, n);
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

/* Break the connection if one call has waited for too long while others were answered. */
static int check_age(struct nfs_connection *conn)
{
	const uint64_t max_ms = conn->unbounded > 0 ? NFS_OPERATION_MAX_MS : NFS_DATA_MAX_MS;
	uint64_t now = clock_now_ns(), oldest;

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

int nfs_connection_drive(struct nfs_connection *const conns[], size_t n, uint64_t deadline_ns,
			 uint64_t wake_ns)
{
	const unsigned int before = count_finished(conns, n);
	const unsigned int full = count_full(conns, n);
	const uint64_t ask_ns = deadline_ns - ASK_MS * CLOCK_NS_PER_MS;
	bool asked = false;
	size_t i;
	int r;

	for (i = 0; i < n; i++) {
		conns[i]->answered = false;
		r = check_age(conns[i]);
		if (r < 0)
			return r;
	}
	for (;;) {
		const uint64_t end_ns = asked || !any_is_slow(conns, n) ? deadline_ns : ask_ns;

		r = drive_once(conns, n, end_ns < wake_ns ? end_ns : wake_ns);
		if (r < 0 && r != -ETIMEDOUT)
			return r;
		if (count_finished(conns, n) != before || count_full(conns, n) < full)
			return 0;
		/* Bytes that trickle in are no answer. */
		if (clock_now_ns() >= deadline_ns)
			return end_stretch(conns, n);
		if (clock_now_ns() >= wake_ns)
			return 0;
		for (i = 0; !asked && clock_now_ns() >= ask_ns && i < n; i++)
			send_null(conns[i]);
		asked = asked || clock_now_ns() >= ask_ns;
	}
}
