/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/call.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "grpc/conn.h"
#include "grpc/status.h"
#include "grpc/timeout.h"

#define HTTP_OK 200
#define HTTP_STATUS_SIZE 12
#define DEADLINE_SLACK_NS (10 * CLOCK_NS_PER_MS)

/* ---- Logging ---- */

/* Leave out the subject while a worker has the call: its handler may be writing it. */
static void log_call(const struct grpc_call *call, const char *text, enum log_level level,
		     enum error_code code, const char *message)
{
	const char *subject = call->working ? "" : call->invocation.request.subject;
	uint64_t duration_us = (clock_now_ns() - call->started_ns) / 1000;
	const unsigned int retry_ms = call->working ? 0 : call->invocation.request.err.retry_ms;
	struct log_field fields[6];
	size_t n = 0;

	if (!log_is_enabled(level))
		return;
	fields[n++] = LOG_STR("method", call->headers.path);
	if (subject[0] != '\0')
		fields[n++] = LOG_STR("subject", subject);
	fields[n++] = LOG_STR("code", error_code_name(code));
	fields[n++] = LOG_NUM("duration_us", duration_us);
	if (message[0] != '\0')
		fields[n++] = LOG_STR("message", message);
	if (retry_ms > 0)
		fields[n++] = LOG_NUM("retry_ms", retry_ms);
	log_write(level, text, fields, n);
}

static void log_answer(const struct grpc_call *call, enum error_code code, const char *message)
{
	log_call(call, code == ERROR_OK ? "Call succeeded" : "Call failed",
		 grpc_status_log_level(code), code, message);
}

/* ---- Memory ---- */

static void call_count_received(struct grpc_call *call, size_t now)
{
	call->server->received -= call->received;
	call->server->received += now;
	call->received = now;
}

/* Needs call->conn. */
static void call_drop_reply(struct grpc_call *call)
{
	if (call->invocation.reply == NULL)
		return;
	call->conn->reply_bytes -= call->invocation.reply_len;
	free(steal_ptr(&call->invocation.reply));
}

static void call_free(struct grpc_call *call)
{
	call_count_received(call, 0);
	grpc_frame_done(&call->frame);
	free(call->data);
	free(call->invocation.reply);
	free(call);
}

/* ---- Answering ---- */

static nghttp2_nv header_field(const char *name, const char *value)
{
	return (nghttp2_nv){
		.name = (uint8_t *)(uintptr_t)name, /* nghttp2 copies name and value */
		.value = (uint8_t *)(uintptr_t)value,
		.namelen = strlen(name),
		.valuelen = strlen(value),
		.flags = NGHTTP2_NV_FLAG_NONE,
	};
}

static void reset_stream(struct grpc_call *call, uint32_t code)
{
	call->state = GRPC_CALL_ANSWERED;
	if (nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->stream_id,
				      code) != 0)
		grpc_conn_fail(call->conn, "cannot reset a stream");
}

/* Send a gRPC "Trailers-Only" response: one header block, which ends the stream. */
static void answer_error(struct grpc_call *call, int http_status, const struct error *err)
{
	char http[HTTP_STATUS_SIZE], code[GRPC_STATUS_CODE_SIZE];
	char message[GRPC_STATUS_MESSAGE_SIZE];
	const char *text = err->msg[0] != '\0' ? err->msg : error_code_name(err->code);
	nghttp2_nv nv[5];
	size_t n = 0;

	assert(call->state < GRPC_CALL_ANSWERED);
	call->retry_ns = GRPC_NEVER;
	(void)snprintf(http, sizeof(http), "%d", http_status);
	grpc_status_code(err->code, code);
	(void)grpc_status_message(text, message, sizeof(message));
	nv[n++] = header_field(":status", http);
	nv[n++] = header_field("content-type", "application/grpc");
	nv[n++] = header_field("grpc-status", code);
	nv[n++] = header_field("grpc-message", message);
	if (call->headers.encoded)
		nv[n++] = header_field("grpc-accept-encoding", "identity");
	grpc_frame_done(&call->frame);
	if (!call->working)
		call_count_received(call, 0);
	call->state = GRPC_CALL_ANSWERED;
	log_answer(call, err->code, text);
	if (nghttp2_submit_response(call->conn->session, call->stream_id, nv, n, NULL) != 0)
		grpc_conn_fail(call->conn, "cannot submit a status");
}

static void answer_code(struct grpc_call *call, enum error_code code, const char *text)
{
	struct error err = { .code = ERROR_OK };

	(void)error_set(&err, code, "%s", text);
	answer_error(call, HTTP_OK, &err);
}

/* Give nghttp2 up to len bytes of the reply; after the last one submit the trailers. */
static ssize_t read_reply(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t len,
			  uint32_t *data_flags, nghttp2_data_source *source, void *data)
{
	struct grpc_call *call = source->ptr;
	size_t left = call->invocation.reply_len - call->reply_sent;
	nghttp2_nv nv = header_field("grpc-status", "0");

	(void)data;
	if (len > left)
		len = left;
	memcpy(buf, call->invocation.reply + call->reply_sent, len);
	call->reply_sent += len;
	if (len < left)
		return (ssize_t)len;
	*data_flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
	if (nghttp2_submit_trailer(session, stream_id, &nv, 1) != 0)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	call_drop_reply(call);
	return (ssize_t)len;
}

static void answer_reply(struct grpc_call *call)
{
	const nghttp2_nv nv[] = {
		header_field(":status", "200"),
		header_field("content-type", "application/grpc"),
	};
	nghttp2_data_provider provider = {
		.source.ptr = call,
		.read_callback = read_reply,
	};

	assert(call->state < GRPC_CALL_ANSWERED);
	call->state = GRPC_CALL_ANSWERED;
	call->conn->reply_bytes += call->invocation.reply_len;
	log_answer(call, ERROR_OK, "");
	if (nghttp2_submit_response(call->conn->session, call->stream_id, nv, ARRAY_SIZE(nv),
				    &provider) != 0)
		grpc_conn_fail(call->conn, "cannot submit a reply");
}

static void answer_result(struct grpc_call *call)
{
	if (call->invocation.reply != NULL)
		answer_reply(call);
	else
		answer_error(call, HTTP_OK, &call->invocation.request.err);
}

/* ---- Running the handler ---- */

/* Worker, may block. */
static void run_in_worker(uv_work_t *req)
{
	struct grpc_call *call = req->data;
	struct request *request = &call->invocation.request;
	uint8_t *data;

	if (atomic_load(&request->cancelled) || request_is_past_deadline(request)) {
		call->skipped = true;
		return;
	}
	data = malloc(call->data_len > 0 ? call->data_len : 1);
	if (data == NULL)
		data = steal_ptr(&call->data); /* the call cannot be held, then */
	else if (call->data_len > 0) /* an empty message may have no data */
		memcpy(data, call->data, call->data_len);
	grpc_dispatch_run(&call->method, data, call->data_len, &call->invocation);
}

static bool is_held(const struct grpc_call *call)
{
	return call->held && call->retry_ns != GRPC_NEVER;
}

static uint64_t hold_end(const struct grpc_call *call)
{
	const uint64_t deadline = call->invocation.request.deadline_ns;
	const uint64_t margin = GRPC_HOLD_MARGIN_MS * CLOCK_NS_PER_MS;
	uint64_t end;

	if (deadline == 0)
		return call->started_ns + GRPC_HOLD_ALONE_MS * CLOCK_NS_PER_MS;
	end = call->started_ns + GRPC_HOLD_MS * CLOCK_NS_PER_MS;
	return end + margin < deadline ? end : deadline - margin;
}

/*
 * Go over the other calls of the method that are held or run again, but for those that wait for a
 * place. last: the one before; NULL: return the first. Return NULL at the end.
 */
static struct grpc_call *next_held(const struct grpc_call *call, const struct grpc_call *last)
{
	const struct list *conns = &call->server->conns;
	const struct list *conn_pos = last != NULL ? &last->conn->link : conns->next;
	const struct list *pos = last != NULL ? last->link.next : NULL;

	for (; conn_pos != conns; conn_pos = conn_pos->next, pos = NULL) {
		const struct grpc_conn *conn = container_of(conn_pos, const struct grpc_conn, link);

		for (pos = pos != NULL ? pos : conn->calls.next; pos != &conn->calls;
		     pos = pos->next) {
			struct grpc_call *other = container_of(pos, struct grpc_call, link);

			if (other != call && other->held && other->state == GRPC_CALL_RUNNING &&
			    other->held_err.wait != ERROR_WAIT_PLACE &&
			    other->method.descriptor == call->method.descriptor)
				return other;
		}
	}
	return NULL;
}

void grpc_call_let_go(struct grpc_call *call)
{
	if (is_held(call))
		answer_result(call);
}

/* Those that are held for one thing: their number, and which of them leaves first, if any may. */
struct crowd {
	unsigned int n;
	struct grpc_call *leaves;
};

static bool waits_for_server(const struct grpc_call *call)
{
	return call->held_err.wait == ERROR_WAIT_SERVER;
}

/* The one that has waited longest for a server that is down; else the least for its turn. */
static bool leaves_before(const struct grpc_call *a, const struct grpc_call *b)
{
	if (waits_for_server(a) != waits_for_server(b))
		return waits_for_server(a);
	return waits_for_server(a) ? a->started_ns < b->started_ns : a->started_ns > b->started_ns;
}

static struct crowd crowd_of(const struct grpc_call *call, unsigned int wait_for)
{
	struct crowd crowd = { .n = 0 };
	struct grpc_call *other;

	for (other = next_held(call, NULL); other != NULL; other = next_held(call, other)) {
		if (other->held_err.wait_for != wait_for)
			continue;
		crowd.n++;
		if (is_held(other) && (crowd.leaves == NULL || leaves_before(other, crowd.leaves)))
			crowd.leaves = other;
	}
	return crowd;
}

/* Whether a crowd is larger, or as large and has one that leaves earlier. */
static bool gives_before(const struct crowd *a, const struct crowd *b)
{
	if (a->leaves == NULL || a->n != b->n)
		return a->leaves != NULL && a->n > b->n;
	return waits_for_server(a->leaves) &&
	       (b->leaves == NULL || leaves_before(a->leaves, b->leaves));
}

/*
 * Which call leaves for one more, which is not counted yet: one of the largest crowd, so that no
 * server costs calls for others their place. NULL: this very call. Its own crowd gives up one that
 * waits for a server; who waits for a turn has waited longer for it.
 */
static struct grpc_call *call_that_leaves(const struct grpc_call *call)
{
	struct crowd largest = crowd_of(call, call->invocation.request.err.wait_for);
	struct grpc_call *other;

	largest.n++;
	if (largest.leaves != NULL && !waits_for_server(largest.leaves))
		largest.leaves = NULL;
	for (other = next_held(call, NULL); other != NULL; other = next_held(call, other)) {
		const struct crowd crowd = crowd_of(call, other->held_err.wait_for);

		if (other->held_err.wait_for != call->invocation.request.err.wait_for &&
		    gives_before(&crowd, &largest))
			largest = crowd;
	}
	return largest.leaves;
}

/* Whether one more call may be held. Set *ret_leaves to the one that leaves for it, or NULL. */
static bool has_room(const struct grpc_call *call, struct grpc_call **ret_leaves)
{
	const struct grpc_call *other;
	unsigned int n = 0;

	*ret_leaves = NULL;
	if (call->invocation.request.err.wait == ERROR_WAIT_PLACE)
		return true;
	for (other = next_held(call, NULL); other != NULL; other = next_held(call, other))
		n++;
	if (n < call->method.hold_max)
		return true;
	*ret_leaves = call_that_leaves(call);
	return *ret_leaves != NULL;
}

/* Hold the call if its handler's error allows. It may be answered and freed when this returns. */
static bool call_hold(struct grpc_call *call)
{
	const struct error *err = &call->invocation.request.err;
	uint64_t retry_ns = clock_now_ns() + err->retry_ms * CLOCK_NS_PER_MS;
	struct grpc_call *leaves;
	struct grpc_conn *conn;

	if (call->invocation.reply != NULL || err->retry_ms == 0 ||
	    (call->data == NULL && call->data_len > 0) || /* given away */
	    call->server->state != GRPC_SERVER_OPEN || retry_ns >= hold_end(call) ||
	    !has_room(call, &leaves))
		return false;
	log_call(call, "Call waits until it is worth another try",
		 call->held || err->wait == ERROR_WAIT_PLACE ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
		 err->code, err->msg);
	call->held = true;
	call->held_err = *err;
	call->retry_ns = retry_ns;
	grpc_server_arm(call->server, retry_ns);
	if (leaves != NULL) {
		conn = leaves->conn;
		grpc_call_let_go(leaves);
		grpc_conn_flush(conn);
	}
	return true;
}

static void on_worker_done(uv_work_t *req, int status)
{
	struct grpc_call *call = req->data;
	const struct error *err = &call->invocation.request.err;
	struct grpc_server *s = call->server;
	struct grpc_conn *conn = call->conn;

	call->working = false;
	if (call->state == GRPC_CALL_RUNNING && status == 0 && !call->skipped && call_hold(call)) {
		grpc_server_work_gone(s);
		return;
	}
	call_count_received(call, 0);
	free(steal_ptr(&call->data));
	if (call->state == GRPC_CALL_RUNNING) {
		if (status < 0 || call->skipped)
			answer_code(call, ERROR_DEADLINE_EXCEEDED,
				    "deadline exceeded before a worker was free");
		else
			answer_result(call);
		grpc_conn_flush(conn);
		grpc_server_work_gone(s);
		return;
	}
	/* The client no longer gets the result, but operators may need it. */
	if (status == 0 && !call->skipped)
		log_call(call, "Call finished after its client had gone", LOG_LEVEL_INFO, err->code,
			 err->msg);
	if (call->state == GRPC_CALL_CLOSED)
		call_free(call);
	else
		free(steal_ptr(&call->invocation.reply));
	grpc_server_work_gone(s);
}

static void start_worker(struct grpc_call *call)
{
	if (call->server->n_working >= GRPC_WORKING_MAX) {
		answer_code(call, ERROR_UNAVAILABLE, "too many calls are in progress");
		return;
	}
	call->work.data = call;
	if (uv_queue_work(call->server->loop, &call->work, run_in_worker, on_worker_done) < 0) {
		answer_code(call, ERROR_UNAVAILABLE, "cannot queue the call for a worker");
		return;
	}
	call->state = GRPC_CALL_RUNNING;
	call->working = true;
	call->server->n_working++;
	grpc_server_ref(call->server);
}

static void run_handler(struct grpc_call *call)
{
	call->expires_ns = GRPC_NEVER;
	if (call->headers.has_timeout)
		call->expires_ns = call->invocation.request.deadline_ns;
	if (request_is_past_deadline(&call->invocation.request)) {
		answer_code(call, ERROR_DEADLINE_EXCEEDED, "deadline exceeded");
		return;
	}
	call->data = grpc_frame_steal(&call->frame, &call->data_len);
	if (!call->method.quick) {
		call->state = GRPC_CALL_RUNNING;
		call->retry_ns = clock_now_ns();
		grpc_server_arm(call->server, call->retry_ns);
		return;
	}
	grpc_dispatch_run(&call->method, steal_ptr(&call->data), call->data_len, &call->invocation);
	call_count_received(call, 0);
	answer_result(call);
}

/* ---- The request ---- */

int grpc_call_new(struct grpc_call **ret, struct grpc_conn *conn, int32_t stream_id)
{
	struct grpc_call *call = calloc(1, sizeof(*call));

	if (call == NULL)
		return -ENOMEM;
	call->server = conn->server;
	call->conn = conn;
	call->stream_id = stream_id;
	call->retry_ns = GRPC_NEVER;
	call->started_ns = clock_now_ns();
	call->expires_ns = call->started_ns + GRPC_BODY_TIMEOUT_MS * CLOCK_NS_PER_MS;
	list_add_tail(&conn->calls, &call->link);
	grpc_server_arm(call->server, call->expires_ns);
	*ret = call;
	return 0;
}

void grpc_call_header(struct grpc_call *call, const char *name, size_t name_len, const char *value,
		      size_t value_len)
{
	if (call->state == GRPC_CALL_HEADERS)
		grpc_headers_add(&call->headers, name, name_len, value, value_len);
}

static void call_set_deadline(struct grpc_call *call)
{
	struct request *request = &call->invocation.request;

	if (!call->headers.has_timeout)
		return;
	request->deadline_ns = grpc_timeout_deadline(call->started_ns, call->headers.timeout_ns);
	if (request->deadline_ns < call->expires_ns)
		call->expires_ns = request->deadline_ns;
	grpc_server_arm(call->server, call->expires_ns);
}

void grpc_call_headers_end(struct grpc_call *call, bool end_stream)
{
	struct error err = { .code = ERROR_OK };
	int http_status = HTTP_OK;
	int r;

	if (call->state != GRPC_CALL_HEADERS)
		return;
	r = grpc_headers_check(&call->headers, &http_status, &err);
	if (r == -EPROTO) {
		log_debug("Malformed request", LOG_STR("method", call->headers.path));
		reset_stream(call, NGHTTP2_PROTOCOL_ERROR);
		return;
	}
	if (r == 0)
		r = grpc_dispatch_find(call->server->services, call->server->n_services,
				       call->headers.path, &call->method, &err);
	if (r < 0) {
		answer_error(call, http_status, &err);
		return;
	}
	call->frame.encoded = call->headers.encoded;
	call->state = GRPC_CALL_BODY;
	call_set_deadline(call);
	/* With END_STREAM, grpc_call_end() comes next and answers this. */
	if (!end_stream && request_is_past_deadline(&call->invocation.request))
		answer_code(call, ERROR_DEADLINE_EXCEEDED, "deadline exceeded");
}

void grpc_call_data(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct error err = { .code = ERROR_OK };

	if (call->state != GRPC_CALL_BODY)
		return;
	if (call->server->received + len > GRPC_RECEIVED_MAX) {
		answer_code(call, ERROR_RESOURCE_EXHAUSTED, "too many requests are being received");
		return;
	}
	if (grpc_frame_feed(&call->frame, data, len, &err) < 0) {
		answer_error(call, HTTP_OK, &err);
		return;
	}
	call_count_received(call, call->frame.cap);
}

void grpc_call_end(struct grpc_call *call)
{
	struct error err = { .code = ERROR_OK };

	if (call->state != GRPC_CALL_BODY)
		return;
	if (grpc_frame_end(&call->frame, &err) < 0) {
		answer_error(call, HTTP_OK, &err);
		return;
	}
	run_handler(call);
}

/* ---- Ending ---- */

/*
 * At the deadline a client resets the stream while our own timer fires; log the same code whichever
 * comes first. Log cancelled calls at info only if they had begun, so that a flood of resets does
 * not fill the log.
 */
static void log_cancelled(const struct grpc_call *call)
{
	uint64_t deadline_ns = call->invocation.request.deadline_ns;

	if (deadline_ns != 0 && deadline_ns <= clock_now_ns() + DEADLINE_SLACK_NS)
		log_answer(call, ERROR_DEADLINE_EXCEEDED, "client gave up at its deadline");
	else
		log_call(call, "Call cancelled by its client",
			 call->working || call->held ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG,
			 ERROR_CANCELLED, "");
}

void grpc_call_detach(struct grpc_call *call)
{
	if (call->state != GRPC_CALL_ANSWERED) {
		atomic_store(&call->invocation.request.cancelled, true);
		log_cancelled(call);
	}
	if (!call->working)
		call_drop_reply(call);
	list_remove(&call->link);
	call->conn = NULL;
	call->state = GRPC_CALL_CLOSED;
	if (!call->working) {
		call_free(call);
		return;
	}
	/* Take it out of the queue; fails if the handler runs, which then ends by itself. */
	(void)uv_cancel((uv_req_t *)&call->work);
}

void grpc_call_abort(struct grpc_call *call)
{
	if (call->state != GRPC_CALL_BODY && call->state != GRPC_CALL_RUNNING)
		return;
	atomic_store(&call->invocation.request.cancelled, true);
	answer_code(call, ERROR_UNAVAILABLE,
		    "the server is shutting down; the operation may still be running");
}

/* Run the handler: for the first time, or once more after the call was held. */
static void run_now(struct grpc_call *call, uint64_t now_ns)
{
	struct request *request = &call->invocation.request;
	uint64_t margin_ns = GRPC_HOLD_MARGIN_MS * CLOCK_NS_PER_MS;

	call->retry_ns = GRPC_NEVER;
	if (call->held) {
		/* A call that got its turn, but no place at a server, needs both again. */
		if (call->held_err.wait != ERROR_WAIT_PLACE)
			request->waited_for_turn = call->held_err.wait == ERROR_WAIT_TURN;
		/* A call that waited for its turn may get it now, and copy until its deadline. */
		if (request->waited_for_turn)
			margin_ns = 0;
		if (request->deadline_ns != 0)
			call->expires_ns = request->deadline_ns - margin_ns;
		call->again_ns = now_ns;
		error_clear(&request->err);
	}
	start_worker(call);
}

uint64_t grpc_call_check(struct grpc_call *call, uint64_t now_ns)
{
	if (call->retry_ns <= now_ns && !request_is_past_deadline(&call->invocation.request)) {
		run_now(call, now_ns);
		return call->expires_ns;
	}
	if (call->expires_ns > now_ns)
		return call->retry_ns < call->expires_ns ? call->retry_ns : call->expires_ns;
	/*
	 * The deadline is near, and the handler runs again. If it is still asking the server,
	 * answer with the error for which the call was held: it tells more than the client's own
	 * DEADLINE_EXCEEDED.
	 */
	if (call->state == GRPC_CALL_RUNNING && call->invocation.request.deadline_ns > now_ns) {
		call->expires_ns = call->invocation.request.deadline_ns;
		if (now_ns - call->again_ns < GRPC_HOLD_ASKING_MS * CLOCK_NS_PER_MS)
			answer_error(call, HTTP_OK, &call->held_err);
		return call->expires_ns;
	}
	call->expires_ns = GRPC_NEVER;
	switch (call->state) {
	case GRPC_CALL_HEADERS:
		/* HTTP/2 allows no other frame within a header block: nothing can be answered. */
		grpc_conn_fail(call->conn, "request headers did not arrive in time");
		break;
	case GRPC_CALL_BODY:
		answer_code(call, ERROR_DEADLINE_EXCEEDED, "request did not arrive in time");
		break;
	case GRPC_CALL_RUNNING:
		answer_code(call, ERROR_DEADLINE_EXCEEDED,
			    "deadline exceeded; the operation may still be running");
		if (call->working)
			(void)uv_cancel((uv_req_t *)&call->work);
		break;
	case GRPC_CALL_ANSWERED:
		/* The client does not read the reply. */
		reset_stream(call, NGHTTP2_CANCEL);
		break;
	case GRPC_CALL_CLOSED:
		break;
	}
	return GRPC_NEVER;
}
