/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/session.h"

#include <errno.h>

#include "base/str.h"
#include "grpc/call.h"
#include "grpc/conn.h"

static struct grpc_call *stream_call(nghttp2_session *session, int32_t stream_id)
{
	return nghttp2_session_get_stream_user_data(session, stream_id);
}

/* Reset a stream without its call. Return 0, for nghttp2 callbacks. */
static int submit_reset(struct grpc_conn *conn, int32_t stream_id, uint32_t code)
{
	if (nghttp2_submit_rst_stream(conn->session, NGHTTP2_FLAG_NONE, stream_id, code) != 0)
		grpc_conn_fail(conn, "cannot reset a stream");
	return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
	struct grpc_conn *conn = data;
	int32_t stream_id = frame->hd.stream_id;
	struct grpc_call *call;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	/* REFUSED_STREAM promises that nothing was done, so gRPC clients retry on their own. */
	if (conn->reply_bytes > GRPC_REPLIES_MAX || grpc_call_new(&call, conn, stream_id) < 0)
		return submit_reset(conn, stream_id, NGHTTP2_REFUSED_STREAM);
	if (nghttp2_session_set_stream_user_data(session, stream_id, call) != 0) {
		grpc_call_detach(call);
		grpc_conn_fail(conn, "cannot attach a call to its stream");
	}
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *data)
{
	struct grpc_call *call = stream_call(session, frame->hd.stream_id);

	(void)flags;
	(void)data;
	/* Ignore request trailers: they are legal, and no unary call uses them. */
	if (call == NULL || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	grpc_call_header(call, (const char *)name, name_len, (const char *)value, value_len);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *bytes,
		   size_t len, void *data)
{
	struct grpc_call *call = stream_call(session, stream_id);

	(void)flags;
	(void)data;
	if (call != NULL)
		grpc_call_data(call, bytes, len);
	return 0;
}

static void on_headers_frame(struct grpc_conn *conn, struct grpc_call *call,
			     const nghttp2_frame *frame)
{
	bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

	if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		grpc_call_headers_end(call, end);
	else if (!end)
		(void)submit_reset(conn, frame->hd.stream_id, NGHTTP2_PROTOCOL_ERROR);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
	struct grpc_conn *conn = data;
	struct grpc_call *call;

	grpc_conn_on_frame(conn, frame->hd.type == NGHTTP2_PING &&
					 (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0);
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	call = stream_call(session, frame->hd.stream_id);
	if (call == NULL)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS)
		on_headers_frame(conn, call, frame);
	if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0)
		grpc_call_end(call);
	return 0;
}

/*
 * When an answer has ended the stream before the request was complete, reset the stream with
 * NO_ERROR, after the answer is sent: the client then stops sending and keeps the status.
 */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
	if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
	    nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
		return submit_reset(data, frame->hd.stream_id, NGHTTP2_NO_ERROR);
	return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *data)
{
	struct grpc_call *call = stream_call(session, stream_id);

	(void)code;
	(void)data;
	if (call != NULL)
		grpc_call_detach(call);
	return 0;
}

int grpc_session_setup(nghttp2_session_callbacks **ret_callbacks, nghttp2_option **ret_options)
{
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *options;

	if (nghttp2_session_callbacks_new(&callbacks) != 0)
		return -ENOMEM;
	if (nghttp2_option_new(&options) != 0) {
		nghttp2_session_callbacks_del(callbacks);
		return -ENOMEM;
	}
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
	/* See headers.h. */
	nghttp2_option_set_no_http_messaging(options, 1);
	/* nghttp2 keeps closed streams only for priorities, which gRPC does not use. */
	nghttp2_option_set_no_closed_streams(options, 1);
	*ret_callbacks = callbacks;
	*ret_options = options;
	return 0;
}

int grpc_session_new(struct grpc_conn *conn)
{
	static const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_STREAMS_MAX },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADER_LIST_MAX },
	};
	struct grpc_server *s = conn->server;

	if (nghttp2_session_server_new2(&conn->session, s->callbacks, conn, s->options) != 0)
		return -ENOMEM;
	if (nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, settings,
				    ARRAY_SIZE(settings)) != 0) {
		nghttp2_session_del(conn->session);
		conn->session = NULL;
		return -ENOMEM;
	}
	return 0;
}
