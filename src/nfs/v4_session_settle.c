/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The end of the connection. Changes whose replies were lost are sent again on a new one, to which
 * the server gives its first answers; everything else fails.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "nfs/v4_session_parts.h"

/* Changes whose replies were lost: time for an answer, and pauses after answers with DELAY. */
#define SETTLE_MS 5000
#define SETTLE_PAUSE_FIRST_MS 20
#define SETTLE_PAUSE_LAST_MS 500
#define SETTLE_CONNECTIONS 3 /* one after another; each may break like the first one */

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
			r = v4_request_send(request, NULL, rpc);
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
	if (s->binds && v4_session_bind(s, rpc) < 0) {
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
		v4_session_leave_over(s, rpc,
				      clock_now_ns() + V4_SESSION_LEAVE_MS * CLOCK_NS_PER_MS);
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
	v4_request_finish_all(&s->lost, failure);
	v4_request_finish_all(&s->waiting, failure);
	conn->session = NULL;
	free(s);
}
