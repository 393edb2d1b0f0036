/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The server as its own files see it; nobody outside this room includes it. A server has
 * connections, a connection has calls; a call outlives its stream while a worker holds it, and the
 * server's memory outlives both. Loop thread only.
 */
#ifndef GRPC_STATE_H
#define GRPC_STATE_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/list.h"
#include "grpc/limits.h"
#include "grpc/listener.h"
#include "grpc/server.h"

/* A point in time that never comes. */
#define GRPC_NEVER UINT64_MAX

enum grpc_server_phase {
	GRPC_SERVER_OPEN,
	GRPC_SERVER_DRAINING, /* grpc_server_shutdown() was called */
	GRPC_SERVER_CLOSED, /* only close callbacks and hung handlers are outstanding */
};

struct grpc_server {
	enum grpc_server_phase phase;
	size_t refs; /* the owner, each open libuv handle, each handler in the pool */
	size_t n_handles; /* libuv handles whose close callback has not run */
	size_t n_conns;
	size_t n_working; /* handlers queued or running in the pool */
	size_t received; /* request bytes held over all calls */
	uv_loop_t *loop;
	struct grpc_service *services;
	size_t n_services;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *options;
	struct list conns;
	struct grpc_listener listener;
	uv_poll_t accept_poll; /* open while listener.fd is not negative */
	bool accept_paused; /* no room, or out of descriptors */
	uint64_t accept_retry_ns; /* GRPC_NEVER: not out of descriptors */
	uv_timer_t timer; /* for whatever comes next of all deadlines */
	uint64_t timer_ns; /* when that is; GRPC_NEVER: not running */
	uint64_t grace_ns; /* draining ends then */
	void (*done)(void *data);
	void *done_data;
	uint8_t read_buf[GRPC_READ_SIZE]; /* filled and emptied within one callback */
	uint8_t write_buf[GRPC_WRITE_SIZE]; /* likewise */
};

struct grpc_conn {
	struct list link; /* in the server's conns */
	struct grpc_server *server;
	nghttp2_session *session;
	int fd;
	uv_poll_t poll;
	int events; /* what poll waits for */
	bool greeted; /* the peer's preface and first frame have come */
	bool failed; /* to be closed as soon as nghttp2 is not on the stack */
	bool drained; /* the final GOAWAY is submitted */
	uint64_t preface_ns; /* to be closed then, unless greeted */
	uint64_t drain_ns; /* the final GOAWAY follows then; GRPC_NEVER: not draining */
	struct list calls;
	size_t reply_bytes; /* of replies that nghttp2 has not taken yet */
	uint8_t *out; /* what the socket refused, NULL: nothing */
	size_t out_len;
	size_t out_sent;
};

/* Has the timer fire at when_ns, or before. */
void grpc_server_arm(struct grpc_server *s, uint64_t when_ns);

void grpc_server_ref(struct grpc_server *s);
void grpc_server_unref(struct grpc_server *s);

/* A connection's handle was made, and its close callback has run. */
void grpc_server_handle_opened(struct grpc_server *s);
void grpc_server_handle_closed(struct grpc_server *s);

/* A connection or a handler is gone: there is room for another, or nothing left to wait for. */
void grpc_server_conn_gone(struct grpc_server *s);
void grpc_server_work_gone(struct grpc_server *s);

#endif
