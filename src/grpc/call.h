/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One call: the bytes of a request come in, the handler runs, one answer goes out. A call belongs
 * to its stream, and to the worker that runs its handler; it is freed when it has lost both. It
 * reaches its stream through conn only, which is NULL once the stream is gone. Loop thread only,
 * except that a worker uses method and invocation while working is set.
 */
#ifndef GRPC_CALL_H
#define GRPC_CALL_H

#include "grpc/dispatch.h"
#include "grpc/frame.h"
#include "grpc/headers.h"
#include "grpc/state.h"

enum grpc_call_phase {
	GRPC_CALL_HEADERS,
	GRPC_CALL_BODY,
	GRPC_CALL_RUNNING,
	GRPC_CALL_ANSWERED, /* whatever still arrives is ignored */
};

struct grpc_call {
	struct list link; /* in the connection's calls */
	struct grpc_server *server;
	struct grpc_conn *conn; /* NULL: the stream is gone */
	int32_t stream_id;
	enum grpc_call_phase phase;
	bool working; /* a worker has it, or will */
	bool skipped; /* the worker found nobody waiting */
	uint64_t started_ns;
	uint64_t expires_ns; /* the deadline, or when the body has to be there; or GRPC_NEVER */
	struct grpc_headers headers;
	struct grpc_frame frame;
	struct grpc_method method;
	struct grpc_invocation invocation;
	uint8_t *data; /* the request on its way to the worker */
	size_t data_len;
	size_t received; /* our part of the server's received */
	size_t reply_sent; /* how much of the reply nghttp2 has taken */
	uv_work_t work;
};

/* Makes a call for a new stream. Returns 0 or -ENOMEM. Ends with grpc_call_detach(). */
int grpc_call_new(struct grpc_call **ret, struct grpc_conn *conn, int32_t stream_id);

/* The request, as it arrives. Each may submit the answer to the session, and starts no sending. */
void grpc_call_header(struct grpc_call *call, const char *name, size_t name_len, const char *value,
		      size_t value_len);
void grpc_call_headers_end(struct grpc_call *call, bool end_stream);
void grpc_call_data(struct grpc_call *call, const uint8_t *data, size_t len);
void grpc_call_end(struct grpc_call *call);

/*
 * The stream is gone, by whatever way. A handler that runs is told that it is cancelled, one that
 * waits is not started. The call must not be used afterwards.
 */
void grpc_call_detach(struct grpc_call *call);

/* The server goes: answers UNAVAILABLE where nothing was answered yet. Does not free the call. */
void grpc_call_abort(struct grpc_call *call);

/* Answers where time is up. Returns when to call next, or GRPC_NEVER. Does not free the call. */
uint64_t grpc_call_check(struct grpc_call *call, uint64_t now_ns);

#endif
