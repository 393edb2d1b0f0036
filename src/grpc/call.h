/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A call: receive the request, run the handler, send one answer. Its stream holds a call until the
 * stream closes, and a worker holds it from start_worker() to on_worker_done(); the call is freed
 * when neither does. Loop thread only, without locks: while working is set the worker uses method,
 * data and invocation, and shares only invocation.request.cancelled, an atomic, with the loop.
 *
 * States only move down this table, so a call is answered at most once.
 *
 *   state     event                                      next      sent to the client
 *   --------  -----------------------------------------  --------  --------------------------
 *   HEADERS   headers complete, request accepted         BODY
 *             headers complete, request refused          ANSWERED  status
 *             headers complete, not legal in HTTP/2      ANSWERED  RST_STREAM PROTOCOL_ERROR
 *             time is up                                 HEADERS   nothing: connection fails
 *   BODY      request complete, a worker will run it     RUNNING
 *             request complete, method is quick          ANSWERED  reply or status
 *             bad data, a limit, time is up, shutdown    ANSWERED  status
 *   RUNNING   handler returned                           ANSWERED  reply or status
 *             handler failed, the call is held           RUNNING   nothing: it runs again later
 *             deadline passed, shutdown                  ANSWERED  status; the handler runs on
 *   ANSWERED  handler returned                           ANSWERED  nothing: result is dropped
 *             time is up, answer is not read             ANSWERED  RST_STREAM CANCEL
 *             stream closed                              CLOSED
 *   others    stream closed                              CLOSED    nothing: request is cancelled
 *   CLOSED    handler returned, or no worker holds it    freed
 *
 * An event that is not listed for a state is ignored. Time is up at expires_ns.
 *
 * A call starts in the next turn of the event loop, so that a cancellation in the same read
 * (GRPC_READ_SIZE) still prevents it.
 *
 * A call is held if its handler failed with an error that says when another try is worth it
 * (retry_ms), and there is time until then. It waits without a worker and runs again from its
 * start, as if the client had repeated it. The client does not notice, so the pauses between its
 * own retries do not grow meanwhile. A call waits for one of three things (enum error_wait): a
 * server that is down, its turn to copy, or a place at a server. At most hold_max calls of a method
 * are held, because a client makes a limited number of calls at a time and needs some for others.
 * Those that wait for a place do not count, and are always held: it is soon over. Above the limit,
 * one is answered of those that wait for the same server as most of them do (wait_for), the new one
 * included; so neither a dead server nor a slow one costs calls for others their places. It is the
 * one that has waited longest for its server if that is down, and otherwise the one that has waited
 * least for its turn.
 *
 * A call that is not held any longer is answered with its last error. When the server begins to
 * drain, all are.
 */
#ifndef GRPC_CALL_H
#define GRPC_CALL_H

#include "grpc/dispatch.h"
#include "grpc/frame.h"
#include "grpc/headers.h"
#include "grpc/state.h"

enum grpc_call_state {
	GRPC_CALL_HEADERS,
	GRPC_CALL_BODY,
	GRPC_CALL_RUNNING,
	GRPC_CALL_ANSWERED,
	GRPC_CALL_CLOSED,
};

struct grpc_call {
	struct list link; /* in the connection's calls */
	struct grpc_server *server;
	struct grpc_conn *conn; /* NULL in CLOSED */
	int32_t stream_id;
	enum grpc_call_state state;
	bool working; /* queued for a worker, or running in one */
	bool skipped; /* set by the worker: cancelled or late, so the handler did not run */
	bool held; /* has been held at least once; held_err is its last error */
	struct error held_err;
	uint64_t again_ns; /* when the handler began its last run after a hold */
	uint64_t retry_ns; /* when the handler runs, or runs again; GRPC_NEVER: it need not */
	uint64_t started_ns;
	uint64_t expires_ns; /* deadline, or time limit for the request; GRPC_NEVER: none */
	struct grpc_headers headers;
	struct grpc_frame frame;
	struct grpc_method method;
	struct grpc_invocation invocation;
	uint8_t *data; /* request message for the handler, kept while the call may be held */
	size_t data_len;
	size_t received; /* this call's share of the server's received */
	size_t reply_sent; /* reply bytes that nghttp2 has taken */
	uv_work_t work;
};

/* Make a call for a new stream. Return 0 or -ENOMEM. Release with grpc_call_detach(). */
int grpc_call_new(struct grpc_call **ret, struct grpc_conn *conn, int32_t stream_id);

/* Take in the request as it arrives. May submit an answer to the session, but does not send it. */
void grpc_call_header(struct grpc_call *call, const char *name, size_t name_len, const char *value,
		      size_t value_len);
void grpc_call_headers_end(struct grpc_call *call, bool end_stream);
void grpc_call_data(struct grpc_call *call, const uint8_t *data, size_t len);
void grpc_call_end(struct grpc_call *call);

/*
 * Handle the end of the stream, however it came. Tell a running handler that it is cancelled; do
 * not start a queued one. The caller must not use the call afterwards.
 */
void grpc_call_detach(struct grpc_call *call);

/* If the call is held, answer with the error for which it is. Does not free or send. */
void grpc_call_let_go(struct grpc_call *call);

/* Answer UNAVAILABLE unless already answered: the server is closing. Does not free the call. */
void grpc_call_abort(struct grpc_call *call);

/* Answer if time is up. Return when to check again, or GRPC_NEVER. Does not free the call. */
uint64_t grpc_call_check(struct grpc_call *call, uint64_t now_ns);

#endif
