/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "grpc/call.h"
#include "grpc/session.h"

/* The most that nghttp2 hands over at once: a frame of 16 KiB with header and padding. */
#define CHUNK_MAX (GRPC_WRITE_SIZE / 2)

/* ---- Closing ---- */

static void on_closed(uv_handle_t *handle)
{
	struct grpc_conn *conn = handle->data;
	struct grpc_server *s = conn->server;

	free(conn);
	grpc_server_handle_closed(s);
}

void grpc_conn_close(struct grpc_conn *conn)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &conn->calls)
		grpc_call_detach(container_of(pos, struct grpc_call, link));
	nghttp2_session_del(conn->session);
	conn->session = NULL;
	free(steal_ptr(&conn->out));
	list_remove(&conn->link);
	uv_close((uv_handle_t *)&conn->poll, on_closed);
	(void)close(steal_fd(&conn->fd));
	grpc_server_conn_gone(conn->server);
}

/* Clients come and go; how they went is for debugging only. */
static void fail(struct grpc_conn *conn, const char *why)
{
	if (!conn->failed)
		log_debug("Connection failed", LOG_STR("reason", why));
	conn->failed = true;
}

/* ---- Sending ---- */

/* Returns true once nothing is left over. */
static bool send_leftover(struct grpc_conn *conn)
{
	ssize_t n;

	while (conn->out != NULL) {
		n = send(conn->fd, conn->out + conn->out_sent, conn->out_len - conn->out_sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR)
				fail(conn, strerror(errno));
			return false;
		}
		conn->out_sent += (size_t)n;
		if (conn->out_sent == conn->out_len)
			free(steal_ptr(&conn->out));
	}
	return true;
}

static void keep_leftover(struct grpc_conn *conn, const uint8_t *data, size_t len)
{
	conn->out = malloc(len);
	if (conn->out == NULL) {
		fail(conn, "out of memory");
		return;
	}
	memcpy(conn->out, data, len);
	conn->out_len = len;
	conn->out_sent = 0;
}

/* Asks nghttp2 for bytes until there is no room for another chunk. */
static size_t gather(struct grpc_conn *conn, uint8_t *buf)
{
	const uint8_t *chunk;
	size_t len = 0;
	ssize_t n;

	while (len <= GRPC_WRITE_SIZE - CHUNK_MAX) {
		n = nghttp2_session_mem_send(conn->session, &chunk);
		if (n == 0)
			break;
		if (n < 0 || (size_t)n > CHUNK_MAX) {
			fail(conn, n < 0 ? nghttp2_strerror((int)n) : "oversized frame");
			break;
		}
		memcpy(buf + len, chunk, (size_t)n);
		len += (size_t)n;
	}
	return len;
}

static void send_all(struct grpc_conn *conn)
{
	uint8_t *buf = conn->server->write_buf;
	size_t len;
	ssize_t n;

	while (!conn->failed && send_leftover(conn)) {
		len = gather(conn, buf);
		if (len == 0)
			return;
		n = send(conn->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			fail(conn, strerror(errno));
			return;
		}
		if (n < 0)
			n = 0;
		if ((size_t)n < len)
			keep_leftover(conn, buf + n, len - (size_t)n);
	}
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* While the client does not take what it was sent, nothing more is read from it. */
static void wait_for_more(struct grpc_conn *conn)
{
	int events = conn->out != NULL ? UV_WRITABLE : UV_READABLE;

	if (events == conn->events)
		return;
	if (uv_poll_start(&conn->poll, events, on_poll) < 0)
		fail(conn, "poll");
	conn->events = events;
}

void grpc_conn_abort(struct grpc_conn *conn)
{
	struct list *pos;

	list_for_each(pos, &conn->calls)
		grpc_call_abort(container_of(pos, struct grpc_call, link));
	send_all(conn); /* may free calls, but not the connection */
	grpc_conn_close(conn);
}

void grpc_conn_flush(struct grpc_conn *conn)
{
	if (!conn->failed)
		send_all(conn);
	if (!conn->failed)
		wait_for_more(conn);
	if (conn->failed || (conn->out == NULL && nghttp2_session_want_read(conn->session) == 0 &&
			     nghttp2_session_want_write(conn->session) == 0))
		grpc_conn_close(conn);
}

/* ---- Receiving ---- */

static void receive(struct grpc_conn *conn)
{
	uint8_t *buf = conn->server->read_buf;
	ssize_t n, used;

	n = recv(conn->fd, buf, GRPC_READ_SIZE, MSG_DONTWAIT);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			fail(conn, strerror(errno));
		return;
	}
	if (n == 0) {
		conn->failed = true; /* how every connection ends: not worth a line */
		return;
	}
	used = nghttp2_session_mem_recv(conn->session, buf, (size_t)n);
	if (used < 0)
		fail(conn, nghttp2_strerror((int)used));
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct grpc_conn *conn = poll->data;

	if (status < 0)
		fail(conn, "connection reset"); /* libuv turns POLLERR into EBADF */
	else if ((events & UV_READABLE) != 0)
		receive(conn);
	grpc_conn_flush(conn);
}

/* ---- Opening ---- */

int grpc_conn_new(struct grpc_server *s, int fd)
{
	cleanup_close int owned = fd;
	cleanup_free struct grpc_conn *conn = calloc(1, sizeof(*conn));
	int r;

	if (conn == NULL)
		return -ENOMEM;
	conn->server = s;
	conn->fd = fd;
	conn->drain_ns = GRPC_NEVER;
	conn->preface_ns = clock_now_ns() + GRPC_PREFACE_TIMEOUT_MS * CLOCK_NS_PER_MS;
	list_init(&conn->calls);
	r = grpc_session_new(conn);
	if (r < 0)
		return r;
	r = uv_poll_init(s->loop, &conn->poll, fd);
	if (r < 0) {
		nghttp2_session_del(conn->session);
		return r;
	}
	conn->poll.data = conn;
	list_add_tail(&s->conns, &conn->link);
	s->n_conns++;
	grpc_server_handle_opened(s);
	grpc_server_arm(s, conn->preface_ns);
	(void)steal_fd(&owned);
	/* grpc-go is not ready before the first frame it reads is our SETTINGS. */
	grpc_conn_flush(steal_ptr(&conn));
	return 0;
}

/* ---- Time ---- */

static void final_goaway(struct grpc_conn *conn)
{
	if (conn->drained)
		return;
	conn->drained = true;
	conn->drain_ns = GRPC_NEVER;
	if (nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
				  nghttp2_session_get_last_proc_stream_id(conn->session),
				  NGHTTP2_NO_ERROR, NULL, 0) != 0)
		fail(conn, "GOAWAY");
}

/*
 * The notice lets requests that are on their way arrive; after a round trip there are none, and
 * the final GOAWAY can name the last stream. RFC 9113, section 6.8.
 */
void grpc_conn_drain(struct grpc_conn *conn)
{
	if (nghttp2_submit_shutdown_notice(conn->session) != 0 ||
	    nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL) != 0)
		fail(conn, "GOAWAY");
	conn->drain_ns = clock_now_ns() + GRPC_DRAIN_MS * CLOCK_NS_PER_MS;
	grpc_server_arm(conn->server, conn->drain_ns);
	grpc_conn_flush(conn);
}

void grpc_conn_on_pong(struct grpc_conn *conn)
{
	if (conn->drain_ns != GRPC_NEVER)
		final_goaway(conn);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t grpc_conn_check(struct grpc_conn *conn, uint64_t now_ns)
{
	uint64_t next = GRPC_NEVER;
	struct list *pos, *tmp;

	if (!conn->greeted && conn->preface_ns <= now_ns)
		fail(conn, "no HTTP/2 preface");
	if (conn->drain_ns <= now_ns)
		final_goaway(conn);
	list_for_each_safe(pos, tmp, &conn->calls) {
		struct grpc_call *call = container_of(pos, struct grpc_call, link);

		next = earlier(next, grpc_call_check(call, now_ns));
	}
	if (!conn->greeted)
		next = earlier(next, conn->preface_ns);
	next = earlier(next, conn->drain_ns);
	grpc_conn_flush(conn);
	return next;
}
