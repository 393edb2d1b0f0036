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

/* Upper bound for one nghttp2 chunk, which is a frame: 16 KiB, header and padding. */
#define CHUNK_MAX (GRPC_WRITE_SIZE / 2)

/* ---- Closing ---- */

static void on_poll_closed(uv_handle_t *handle)
{
	struct grpc_conn *conn = handle->data;
	struct grpc_server *s = conn->server;

	free(conn);
	grpc_server_handle_closed(s);
}

/* Close at once and cancel the calls. Not from an nghttp2 callback. */
static void conn_close(struct grpc_conn *conn)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &conn->calls)
		grpc_call_detach(container_of(pos, struct grpc_call, link));
	nghttp2_session_del(conn->session);
	conn->session = NULL;
	free(steal_ptr(&conn->out));
	list_remove(&conn->link);
	uv_close((uv_handle_t *)&conn->poll, on_poll_closed);
	(void)close(steal_fd(&conn->fd));
	grpc_server_conn_gone(conn->server);
}

void grpc_conn_fail(struct grpc_conn *conn, const char *why)
{
	if (conn->state != GRPC_CONN_FAILED)
		log_debug("Connection failed", LOG_STR("reason", why));
	conn->state = GRPC_CONN_FAILED;
}

/* ---- Sending ---- */

/* Return whether the socket has taken everything. */
static bool send_leftover(struct grpc_conn *conn)
{
	ssize_t n;

	while (conn->out != NULL) {
		n = send(conn->fd, conn->out + conn->out_sent, conn->out_len - conn->out_sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR)
				grpc_conn_fail(conn, strerror(errno));
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
		grpc_conn_fail(conn, "out of memory");
		return;
	}
	memcpy(conn->out, data, len);
	conn->out_len = len;
	conn->out_sent = 0;
}

/* Collect bytes from nghttp2 while another chunk is sure to fit. Return their number. */
static size_t gather_output(struct grpc_conn *conn, uint8_t *buf)
{
	const uint8_t *chunk;
	size_t len = 0;
	ssize_t n;

	while (len <= GRPC_WRITE_SIZE - CHUNK_MAX) {
		n = nghttp2_session_mem_send(conn->session, &chunk);
		if (n == 0)
			break;
		if (n < 0 || (size_t)n > CHUNK_MAX) {
			grpc_conn_fail(conn, n < 0 ? nghttp2_strerror((int)n) : "oversized frame");
			break;
		}
		memcpy(buf + len, chunk, (size_t)n);
		len += (size_t)n;
	}
	return len;
}

static void send_output(struct grpc_conn *conn)
{
	uint8_t *buf = conn->server->write_buf;
	size_t len;
	ssize_t n;

	while (conn->state != GRPC_CONN_FAILED && send_leftover(conn)) {
		len = gather_output(conn, buf);
		if (len == 0)
			return;
		n = send(conn->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			grpc_conn_fail(conn, strerror(errno));
			return;
		}
		if (n < 0)
			n = 0;
		if ((size_t)n < len)
			keep_leftover(conn, buf + n, len - (size_t)n);
	}
}

static void on_socket_event(uv_poll_t *poll, int status, int events);

/* Read nothing from a client while it does not take our output. */
static void poll_socket(struct grpc_conn *conn)
{
	int events = conn->out != NULL ? UV_WRITABLE : UV_READABLE;

	if (events == conn->events)
		return;
	if (uv_poll_start(&conn->poll, events, on_socket_event) < 0)
		grpc_conn_fail(conn, "cannot poll the socket");
	conn->events = events;
}

void grpc_conn_abort(struct grpc_conn *conn)
{
	struct list *pos;

	list_for_each(pos, &conn->calls)
		grpc_call_abort(container_of(pos, struct grpc_call, link));
	send_output(conn); /* may free calls, but not the connection */
	conn_close(conn);
}

void grpc_conn_flush(struct grpc_conn *conn)
{
	send_output(conn);
	if (conn->state != GRPC_CONN_FAILED)
		poll_socket(conn);
	if (conn->state == GRPC_CONN_FAILED ||
	    (conn->out == NULL && nghttp2_session_want_read(conn->session) == 0 &&
	     nghttp2_session_want_write(conn->session) == 0))
		conn_close(conn);
}

/* ---- Receiving ---- */

static void receive_input(struct grpc_conn *conn)
{
	uint8_t *buf = conn->server->read_buf;
	ssize_t n, used;

	n = recv(conn->fd, buf, GRPC_READ_SIZE, MSG_DONTWAIT);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			grpc_conn_fail(conn, strerror(errno));
		return;
	}
	if (n == 0) {
		conn->state = GRPC_CONN_FAILED; /* the usual end: not logged */
		return;
	}
	used = nghttp2_session_mem_recv(conn->session, buf, (size_t)n);
	if (used < 0)
		grpc_conn_fail(conn, nghttp2_strerror((int)used));
}

static void on_socket_event(uv_poll_t *poll, int status, int events)
{
	struct grpc_conn *conn = poll->data;

	if (status < 0)
		grpc_conn_fail(conn, "connection reset"); /* libuv turns POLLERR into EBADF */
	else if ((events & UV_READABLE) != 0)
		receive_input(conn);
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
	conn->due_ns = clock_now_ns() + GRPC_PREFACE_TIMEOUT_MS * CLOCK_NS_PER_MS;
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
	grpc_server_arm(s, conn->due_ns);
	(void)steal_fd(&owned);
	/* Send SETTINGS at once: grpc-go waits for it before it sends a request. */
	grpc_conn_flush(steal_ptr(&conn));
	return 0;
}

/* ---- Draining and deadlines ---- */

static void submit_final_goaway(struct grpc_conn *conn)
{
	conn->state = GRPC_CONN_DRAINED;
	conn->due_ns = GRPC_NEVER;
	if (nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
				  nghttp2_session_get_last_proc_stream_id(conn->session),
				  NGHTTP2_NO_ERROR, NULL, 0) != 0)
		grpc_conn_fail(conn, "cannot submit GOAWAY");
}

/*
 * The notice tells the client to open no more streams; those it has opened arrive within a round
 * trip. After that the final GOAWAY can name the last stream. RFC 9113, section 6.8.
 */
void grpc_conn_drain(struct grpc_conn *conn)
{
	struct list *pos;

	conn->state = GRPC_CONN_DRAINING;
	list_for_each(pos, &conn->calls)
		grpc_call_let_go(container_of(pos, struct grpc_call, link));
	conn->due_ns = clock_now_ns() + GRPC_DRAIN_MS * CLOCK_NS_PER_MS;
	grpc_server_arm(conn->server, conn->due_ns);
	if (nghttp2_submit_shutdown_notice(conn->session) != 0 ||
	    nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL) != 0)
		grpc_conn_fail(conn, "cannot submit GOAWAY");
	grpc_conn_flush(conn);
}

void grpc_conn_on_frame(struct grpc_conn *conn, bool pong)
{
	if (conn->state == GRPC_CONN_PREFACE) {
		conn->state = GRPC_CONN_OPEN;
		conn->due_ns = GRPC_NEVER;
	}
	if (conn->state == GRPC_CONN_DRAINING && pong)
		submit_final_goaway(conn);
}

uint64_t grpc_conn_check(struct grpc_conn *conn, uint64_t now_ns)
{
	uint64_t next = GRPC_NEVER;
	struct list *pos, *tmp;

	if (conn->due_ns <= now_ns) {
		if (conn->state == GRPC_CONN_DRAINING)
			submit_final_goaway(conn);
		else
			grpc_conn_fail(conn, "no HTTP/2 preface");
	}
	list_for_each_safe(pos, tmp, &conn->calls) {
		uint64_t when = grpc_call_check(container_of(pos, struct grpc_call, link), now_ns);

		if (when < next)
			next = when;
	}
	if (conn->due_ns < next)
		next = conn->due_ns;
	grpc_conn_flush(conn);
	return next;
}
