/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Calls from a client on the other end of a socket, with the handler that the test chooses. */

#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/log.h"
#include "base/request.h"
#include "csi.pb-c.h"
#include "grpc/conn.h"
#include "grpc/server.h"
#include "check_util.h"

/* -------- the service -------- */

static atomic_uint runs; /* of the handler */
static unsigned int crowds; /* runs that fail because too many calls wait */

static void test_get_plugin_info(Csi__V1__Identity_Service *s,
				 const Csi__V1__GetPluginInfoRequest *in,
				 Csi__V1__GetPluginInfoResponse_Closure closure, void *data)
{
	(void)s;
	(void)in;
	closure(NULL, data);
}

static void test_get_plugin_capabilities(Csi__V1__Identity_Service *s,
					 const Csi__V1__GetPluginCapabilitiesRequest *in,
					 Csi__V1__GetPluginCapabilitiesResponse_Closure closure,
					 void *data)
{
	(void)s;
	(void)in;
	closure(NULL, data);
}

static void test_probe(Csi__V1__Identity_Service *s, const Csi__V1__ProbeRequest *in,
		       Csi__V1__ProbeResponse_Closure closure, void *data)
{
	const Csi__V1__ProbeResponse out = CSI__V1__PROBE_RESPONSE__INIT;
	struct request *req = data;

	(void)s;
	(void)in;
	if (atomic_fetch_add(&runs, 1) >= crowds) {
		closure(&out, data);
		return;
	}
	(void)error_set(&req->err, ERROR_UNAVAILABLE, "too many calls");
	req->err.is_crowd = true;
	req->err.retry_ms = 1;
	closure(NULL, data);
}

/* -------- the client -------- */

struct client {
	nghttp2_session *session;
	int fd;
	const char *message; /* of the request, len bytes */
	size_t len, sent;
	int status; /* grpc-status; -1: not yet */
};

/* The message and its prefix. */
static ssize_t read_message(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t len,
			    uint32_t *flags, nghttp2_data_source *source, void *data)
{
	struct client *c = data;

	(void)session;
	(void)stream_id;
	(void)source;
	ck_assert(len >= 5 + c->len);
	memset(buf, 0, 4);
	buf[4] = (uint8_t)c->len;
	memcpy(buf + 5, c->message, c->len);
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)(5 + c->len);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *data)
{
	struct client *c = data;

	(void)session;
	(void)frame;
	(void)name_len;
	(void)value_len;
	(void)flags;
	if (strcmp((const char *)name, "grpc-status") == 0)
		c->status = atoi((const char *)value);
	return 0;
}

static nghttp2_nv field(const char *name, const char *value)
{
	return (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
			     strlen(value), NGHTTP2_NV_FLAG_NONE };
}

static void client_begin(struct client *c, const char *path)
{
	const nghttp2_nv fields[] = {
		field(":method", "POST"), field(":scheme", "http"),
		field(":path", path),     field("content-type", "application/grpc"),
		field("te", "trailers"),
	};
	const nghttp2_data_provider provider = { .read_callback = read_message };
	nghttp2_session_callbacks *callbacks;

	ck_assert(nghttp2_session_callbacks_new(&callbacks) == 0);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	ck_assert(nghttp2_session_client_new(&c->session, callbacks, c) == 0);
	nghttp2_session_callbacks_del(callbacks);
	ck_assert(nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
	ck_assert(nghttp2_submit_request(c->session, NULL, fields, ARRAY_SIZE(fields), &provider,
					 NULL) > 0);
}

/* Send what there is to send, and take what has come. */
static void client_turn(struct client *c)
{
	uint8_t buf[4096];
	const uint8_t *out;
	ssize_t n;

	while ((n = nghttp2_session_mem_send(c->session, &out)) > 0)
		ck_assert(send(c->fd, out, (size_t)n, MSG_NOSIGNAL) == n);
	n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (n > 0)
		ck_assert(nghttp2_session_mem_recv(c->session, buf, (size_t)n) == n);
}

/* -------- tests -------- */

/* A call that only waits for its turn at a server is held, also if its request has no bytes. */
START_TEST(test_crowd)
{
	static const struct {
		const char *name;
		const char *message;
		size_t len;
	} rows[] = {
		{ "no bytes", "", 0 }, { "bytes", "\x78\x01", 2 }, /* an unknown field */
	};
	Csi__V1__Identity_Service identity = CSI__V1__IDENTITY__INIT(test_);
	const struct grpc_service service = { .service = &identity.base };
	const struct grpc_server_config config = { .services = &service, .n_services = 1 };
	size_t i;

	crowds = 3;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct client c = {
			.message = rows[i].message,
			.len = rows[i].len,
			.status = -1,
		};
		struct grpc_server *server;
		uv_loop_t loop;
		int fds[2];

		atomic_store(&runs, 0);
		ck_assert(uv_loop_init(&loop) == 0);
		ck_assert(grpc_server_new(&server, &loop, &config, NULL) == 0);
		ck_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
		ck_assert(grpc_conn_new(server, fds[0]) == 0);
		c.fd = fds[1];
		client_begin(&c, "/csi.v1.Identity/Probe");
		while (c.status < 0) {
			client_turn(&c);
			(void)uv_run(&loop, UV_RUN_NOWAIT);
			(void)usleep(100);
		}
		check_int(rows[i].name, "status", c.status, ERROR_OK);
		check_int(rows[i].name, "runs", atomic_load(&runs), crowds + 1);
		nghttp2_session_del(c.session);
		(void)close(c.fd);
		grpc_server_free(server);
		ck_assert(uv_run(&loop, UV_RUN_DEFAULT) == 0);
		ck_assert(uv_loop_close(&loop) == 0);
	}
}
END_TEST

static void setup(void)
{
	log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
}

CHECK_MAIN("call", .setup = setup, .tests = { test_crowd })
