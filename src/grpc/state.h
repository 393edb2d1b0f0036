/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The server and its connections, for this room's files only. A server owns connections, and a
 * connection owns calls. A call outlives its stream while a worker holds it; the server's memory
 * outlives both. Loop thread only, so there are no locks here.
 */
#ifndef GRPC_STATE_H
#define GRPC_STATE_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/list.h"
#include "grpc/dispatch.h"
#include "grpc/limits.h"
#include "grpc/listener.h"

/* A point in time that never comes. */
#define GRPC_NEVER UINT64_MAX

/*
 * States of a server:
 *
 *   state     event                                                 next
 *   --------  ----------------------------------------------------  --------
 *   OPEN      grpc_server_shutdown()                                DRAINING
 *   DRAINING  no connection left, and no handler or the grace over  CLOSED
 *   any       grpc_server_free()                                    CLOSED
 *
 * A server accepts connections in OPEN only. In CLOSED it calls done after libuv's last close
 * callback; its memory is freed with the last reference, which a handler that hangs may hold.
 */
enum grpc_server_state {
	GRPC_SERVER_OPEN,
	GRPC_SERVER_DRAINING,
	GRPC_SERVER_CLOSED,
};

struct grpc_server {
	enum grpc_server_state state;
	size_t refs; /* one each for the owner, open libuv handles and handlers in the pool */
	size_t n_handles; /* libuv handles whose close callback has not run yet */
	size_t n_conns;
	size_t n_working; /* handlers queued or running in the pool */
	size_t received; /* request bytes held by all calls */
	uv_loop_t *loop;
	struct grpc_service *services;
	size_t n_services;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *options;
	struct list conns;
	struct grpc_listener listener;
	uv_poll_t accept_poll; /* open while listener.fd is not negative */
	bool accept_paused; /* too many connections, or out of descriptors */
	uint64_t accept_logged_ns; /* last line about clients that wait; 0: none yet */
	uint64_t accept_retry_ns; /* when to accept again; GRPC_NEVER: not out of descriptors */
	uv_timer_t timer; /* for the earliest of all deadlines */
	uint64_t timer_ns; /* when it fires; GRPC_NEVER: not running */
	uint64_t grace_ns; /* end of DRAINING */
	void (*done)(void *data);
	void *done_data;
	uint8_t read_buf[GRPC_READ_SIZE]; /* filled and emptied within one callback */
	uint8_t write_buf[GRPC_WRITE_SIZE]; /* likewise */
};

/*
 * States of a connection:
 *
 *   state     event                                                next
 *   --------  ---------------------------------------------------  --------
 *   PREFACE   first frame received, after the HTTP/2 preface       OPEN
 *             due_ns (GRPC_PREFACE_TIMEOUT_MS)                     FAILED
 *   PREFACE,  shutdown: send the shutdown notice and a PING        DRAINING
 *    OPEN
 *   DRAINING  PING answered, or due_ns (GRPC_DRAIN_MS): send the   DRAINED
 *             final GOAWAY
 *   any       socket error, end of file, out of memory             FAILED
 *   FAILED    next grpc_conn_flush()                               closed
 *   any       nghttp2 neither reads nor writes any more            closed
 *
 * FAILED exists because a session cannot be deleted while nghttp2 is on the stack.
 */
enum grpc_conn_state {
	GRPC_CONN_PREFACE,
	GRPC_CONN_OPEN,
	GRPC_CONN_DRAINING,
	GRPC_CONN_DRAINED,
	GRPC_CONN_FAILED,
};

struct grpc_conn {
	struct list link; /* in the server's conns */
	struct grpc_server *server;
	nghttp2_session *session;
	int fd;
	uv_poll_t poll;
	int events; /* events that poll waits for */
	enum grpc_conn_state state;
	uint64_t due_ns; /* time limit of PREFACE and DRAINING; else GRPC_NEVER */
	struct list calls;
	size_t reply_bytes; /* size of the replies that nghttp2 has not taken completely */
	uint8_t *out; /* bytes that the socket did not take yet; NULL: none */
	size_t out_len;
	size_t out_sent;
};

/* Make the timer fire at when_ns or earlier. */
void grpc_server_arm(struct grpc_server *s, uint64_t when_ns);

/* Hold the server, and give the hold up; the last grpc_server_unref() frees it. Loop thread. */
void grpc_server_ref(struct grpc_server *s);
void grpc_server_unref(struct grpc_server *s);

/* Count a libuv handle that was initialized, and one whose close callback has run. */
void grpc_server_handle_opened(struct grpc_server *s);
void grpc_server_handle_closed(struct grpc_server *s);

/* Uncount a closed connection or an ended handler; accept again, or finish draining. */
void grpc_server_conn_gone(struct grpc_server *s);
void grpc_server_work_gone(struct grpc_server *s);

#endif
