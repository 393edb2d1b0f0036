/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Calls from a client on the other end of a socket, with the handler that the test chooses. */

#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/request.h"
#include "csi.pb-c.h"
#include "grpc/conn.h"
#include "grpc/server.h"
#include "grpc/state.h"
#include "check_util.h"

/* -------- the clock -------- */

static _Atomic uint64_t now_ns = 1000 * CLOCK_NS_PER_S; /* goes on by pass_ms() only */

int clock_gettime(clockid_t id, struct timespec *ts)
{
	const uint64_t now = now_ns;

	/* libuv reads the coarse one, too. */
	if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE)
		return check_real_clock(id, ts);
	ts->tv_sec = (time_t)(now / CLOCK_NS_PER_S);
	ts->tv_nsec = (long)(now % CLOCK_NS_PER_S);
	return 0;
}

#if defined(__TIMESIZE) && __TIMESIZE == 32
struct small_timespec {
	long tv_sec, tv_nsec;
};

int small_clock_gettime(clockid_t id, struct small_timespec *ts) __asm__("clock_gettime");

/* The function above is __clock_gettime64(); a libuv with times of 32 bits calls this one. */
int small_clock_gettime(clockid_t id, struct small_timespec *ts)
{
	struct timespec now;

	if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE)
		return (int)syscall(SYS_clock_gettime, id, ts);
	(void)clock_gettime(id, &now);
	ts->tv_sec = (long)now.tv_sec;
	ts->tv_nsec = now.tv_nsec;
	return 0;
}
#endif

static void pass_ms(uint64_t ms)
{
	now_ns += ms * CLOCK_NS_PER_MS;
}

/* -------- the service -------- */

#define RETRY_MS 200

static atomic_uint runs; /* of the handler */
static unsigned int failures; /* runs that fail */
static enum error_wait waits_for[8]; /* what each of these has an error for */
static unsigned int servers[8]; /* and for which server */
static unsigned int blocked_run; /* which ends once unblocked is set; 0: none */
static atomic_bool unblocked;
static atomic_bool waited_for_turn; /* what the last run was told */

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
	unsigned int run;

	(void)s;
	(void)in;
	atomic_store(&waited_for_turn, req->waited_for_turn);
	run = atomic_fetch_add(&runs, 1) + 1;
	while (run == blocked_run && !atomic_load(&unblocked))
		(void)usleep(100);
	if (run > failures) {
		closure(&out, data);
		return;
	}
	ck_assert(run <= ARRAY_SIZE(waits_for));
	req->err.wait = waits_for[run - 1];
	req->err.wait_for = servers[run - 1];
	(void)error_set(&req->err,
			req->err.wait == ERROR_WAIT_TURN ? ERROR_ABORTED : ERROR_UNAVAILABLE,
			"wait");
	req->err.retry_ms = RETRY_MS;
	closure(NULL, data);
}

static unsigned int hold_max;

static unsigned int tell_hold_max(const char *method)
{
	(void)method;
	return hold_max;
}

/* -------- the client -------- */

#define CALLS_MAX 4

/* A server, and a client of it. */
struct bench {
	uv_loop_t loop;
	Csi__V1__Identity_Service identity;
	struct grpc_service service;
	struct grpc_server *server;
	nghttp2_session *session;
	int fd;
	const char *message; /* of the requests, len bytes */
	size_t len;
	int status[CALLS_MAX]; /* grpc-status of each call; -1: not yet */
	size_t n_calls;
};

/* The message and its prefix. */
static ssize_t read_message(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t len,
			    uint32_t *flags, nghttp2_data_source *source, void *data)
{
	const struct bench *b = data;

	(void)session;
	(void)stream_id;
	(void)source;
	ck_assert(len >= 5 + b->len);
	memset(buf, 0, 4);
	buf[4] = (uint8_t)b->len;
	memcpy(buf + 5, b->message, b->len);
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)(5 + b->len);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
		     void *data)
{
	int *status = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)name_len;
	(void)value_len;
	(void)flags;
	(void)data;
	if (strcmp((const char *)name, "grpc-status") == 0)
		*status = atoi((const char *)value);
	return 0;
}

static nghttp2_nv field(const char *name, const char *value)
{
	return (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
			     strlen(value), NGHTTP2_NV_FLAG_NONE };
}

static void bench_init(struct bench *b, const char *message, size_t len)
{
	const Csi__V1__Identity_Service identity = CSI__V1__IDENTITY__INIT(test_);
	const struct grpc_server_config config = { .services = &b->service, .n_services = 1 };
	nghttp2_session_callbacks *callbacks;
	int fds[2];

	atomic_store(&runs, 0);
	atomic_store(&unblocked, false);
	*b = (struct bench){ .identity = identity, .message = message, .len = len };
	b->service.service = &b->identity.base;
	b->service.hold_max = tell_hold_max;
	ck_assert(uv_loop_init(&b->loop) == 0);
	ck_assert(grpc_server_new(&b->server, &b->loop, &config, NULL) == 0);
	ck_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	ck_assert(grpc_conn_new(b->server, fds[0]) == 0);
	b->fd = fds[1];
	ck_assert(nghttp2_session_callbacks_new(&callbacks) == 0);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	ck_assert(nghttp2_session_client_new(&b->session, callbacks, b) == 0);
	nghttp2_session_callbacks_del(callbacks);
	ck_assert(nghttp2_submit_settings(b->session, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
}

static void bench_done(struct bench *b)
{
	nghttp2_session_del(b->session);
	(void)close(b->fd);
	grpc_server_free(b->server);
	ck_assert(uv_run(&b->loop, UV_RUN_DEFAULT) == 0);
	ck_assert(uv_loop_close(&b->loop) == 0);
}

/* Send what there is to send, take what has come, and let the server do the same. */
static void bench_turn(struct bench *b)
{
	uint8_t buf[4096];
	const uint8_t *out;
	ssize_t n;

	while ((n = nghttp2_session_mem_send(b->session, &out)) > 0)
		ck_assert(send(b->fd, out, (size_t)n, MSG_NOSIGNAL) == n);
	n = recv(b->fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (n > 0)
		ck_assert(nghttp2_session_mem_recv(b->session, buf, (size_t)n) == n);
	(void)uv_run(&b->loop, UV_RUN_NOWAIT);
	(void)usleep(100);
}

/* timeout: "5S" for five seconds, or NULL */
static void bench_call(struct bench *b, const char *timeout)
{
	const nghttp2_nv fields[] = {
		field(":method", "POST"),
		field(":scheme", "http"),
		field(":path", "/csi.v1.Identity/Probe"),
		field("content-type", "application/grpc"),
		field("te", "trailers"),
		field("grpc-timeout", timeout != NULL ? timeout : ""),
	};
	const nghttp2_data_provider provider = { .read_callback = read_message };
	const size_t n = timeout != NULL ? ARRAY_SIZE(fields) : ARRAY_SIZE(fields) - 1;
	int *status = &b->status[b->n_calls++];

	*status = -1;
	ck_assert(nghttp2_submit_request(b->session, NULL, fields, n, &provider, status) > 0);
}

/*
 * Wait until the handler has run n times in all and the server knows what came of it, but for the
 * run that is blocked. Time stands still.
 */
static void bench_runs(struct bench *b, unsigned int n)
{
	const bool blocks = n >= blocked_run && blocked_run > 0 && !atomic_load(&unblocked);
	unsigned int i;

	while (atomic_load(&runs) < n || b->server->n_working > blocks)
		bench_turn(b);
	for (i = 0; i < 5; i++) /* the answers come, and timers fire that are due */
		bench_turn(b);
	check_int("runs", "number", atomic_load(&runs), n);
}

/* The runs that fail, up to this many, and what each waits for. */
static void fail_runs(unsigned int n, enum error_wait wait)
{
	size_t i;

	failures = n;
	blocked_run = 0;
	for (i = 0; i < ARRAY_SIZE(waits_for); i++) {
		waits_for[i] = wait;
		servers[i] = 0;
	}
}

static void check_status(const char *row, const struct bench *b, const int expected[])
{
	size_t i;

	for (i = 0; i < b->n_calls; i++)
		check_int(row, "status", b->status[i], expected[i]);
}

/* -------- tests -------- */

/* A call is held whatever it waits for, also if its request has no bytes. */
START_TEST(test_held)
{
	static const struct {
		const char *name;
		enum error_wait wait;
		unsigned int hold_max;
	} rows[] = {
		{ "server", ERROR_WAIT_SERVER, 1 },
		{ "turn", ERROR_WAIT_TURN, 1 },
		{ "place", ERROR_WAIT_PLACE, 1 },
		{ "place, others not held", ERROR_WAIT_PLACE, 0 },
	};
	static const struct {
		const char *message;
		size_t len;
	} requests[] = { { "", 0 }, { "\x78\x01", 2 } }; /* an unknown field */
	struct bench b;
	size_t i, k;
	unsigned int n;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (k = 0; k < ARRAY_SIZE(requests); k++) {
			fail_runs(3, rows[i].wait);
			hold_max = rows[i].hold_max;
			bench_init(&b, requests[k].message, requests[k].len);
			bench_call(&b, NULL);
			for (n = 1; n <= 3; n++) {
				bench_runs(&b, n);
				check_int(rows[i].name, "status", b.status[0], -1);
				pass_ms(RETRY_MS);
			}
			bench_runs(&b, 4);
			check_int(rows[i].name, "status", b.status[0], ERROR_OK);
			check_int(rows[i].name, "told that it waited for a turn",
				  atomic_load(&waited_for_turn), rows[i].wait == ERROR_WAIT_TURN);
			bench_done(&b);
		}
	}
}
END_TEST

/* A call that got its turn, but no place, takes its turn first again. */
START_TEST(test_turn_and_place)
{
	static const struct {
		enum error_wait wait; /* of the second run */
		bool told; /* in the third */
	} rows[] = {
		{ ERROR_WAIT_PLACE, true },
		{ ERROR_WAIT_SERVER, false },
	};
	struct bench b;
	unsigned int n;
	size_t i;

	hold_max = 1;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		fail_runs(2, ERROR_WAIT_TURN);
		waits_for[1] = rows[i].wait;
		bench_init(&b, "", 0);
		bench_call(&b, NULL);
		for (n = 1; n <= 3; n++) {
			bench_runs(&b, n);
			pass_ms(RETRY_MS);
		}
		check_int("third run", "status", b.status[0], ERROR_OK);
		check_int("third run", "told that it waited for a turn",
			  atomic_load(&waited_for_turn), rows[i].told);
		bench_done(&b);
	}
}
END_TEST

/* More calls than may be held: which of them is answered, if any. */
START_TEST(test_limit)
{
	static const enum error_wait server = ERROR_WAIT_SERVER, turn = ERROR_WAIT_TURN,
				     place = ERROR_WAIT_PLACE;
	static const struct {
		const char *name;
		unsigned int hold_max;
		enum error_wait waits_for[3];
		int status[3];
	} rows[] = {
		{ "none", 0, { server, turn, place }, { ERROR_UNAVAILABLE, ERROR_ABORTED, -1 } },
		{ "server", 2, { server, server, server }, { ERROR_UNAVAILABLE, -1, -1 } },
		{ "turn", 2, { turn, turn, turn }, { -1, -1, ERROR_ABORTED } },
		{ "place", 2, { place, place, place }, { -1, -1, -1 } },
		{ "turn, server", 2, { turn, server, server }, { -1, ERROR_UNAVAILABLE, -1 } },
		{ "turns, server", 2, { turn, turn, server }, { -1, -1, ERROR_UNAVAILABLE } },
		{ "servers, turn", 2, { server, server, turn }, { ERROR_UNAVAILABLE, -1, -1 } },
		{ "turn, server, turn", 2, { turn, server, turn }, { -1, ERROR_UNAVAILABLE, -1 } },
		{ "place does not count", 2, { place, turn, server }, { -1, -1, -1 } },
	};
	struct bench b;
	unsigned int n_held, k;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		fail_runs(UINT_MAX, ERROR_WAIT_PLACE);
		hold_max = rows[i].hold_max;
		bench_init(&b, "", 0);
		for (k = 0; k < 3; k++) {
			waits_for[k] = rows[i].waits_for[k];
			bench_call(&b, NULL);
			bench_runs(&b, k + 1);
			pass_ms(1);
		}
		check_status(rows[i].name, &b, rows[i].status);
		/* Those that are held run again, and stay. */
		for (k = 0, n_held = 0; k < 3; k++)
			if (rows[i].status[k] < 0)
				waits_for[3 + n_held++] = rows[i].waits_for[k];
		pass_ms(RETRY_MS);
		bench_runs(&b, 3 + n_held);
		check_status(rows[i].name, &b, rows[i].status);
		bench_done(&b);
	}
}
END_TEST

/* Likewise of several servers: one of the server that has most, whatever its calls wait for. */
START_TEST(test_limit_of_servers)
{
	static const enum error_wait server = ERROR_WAIT_SERVER, turn = ERROR_WAIT_TURN;
	static const struct {
		const char *name;
		enum error_wait waits_for[4];
		unsigned int servers[4];
		int status[4];
	} rows[] = {
		{ "a slow one",
		  { turn, turn, turn, turn },
		  { 1, 1, 1, 2 },
		  { -1, -1, ERROR_ABORTED, -1 } },
		{ "a slow one, and a dead one",
		  { turn, turn, turn, server },
		  { 1, 1, 1, 2 },
		  { -1, -1, ERROR_ABORTED, -1 } },
		{ "a dead one",
		  { server, server, server, turn },
		  { 1, 1, 1, 2 },
		  { ERROR_UNAVAILABLE, -1, -1, -1 } },
		{ "two dead ones",
		  { server, server, server, server },
		  { 2, 1, 1, 1 },
		  { -1, ERROR_UNAVAILABLE, -1, -1 } },
		{ "its own, slow",
		  { server, turn, turn, turn },
		  { 2, 1, 1, 1 },
		  { -1, -1, -1, ERROR_ABORTED } },
		{ "each its own, dead",
		  { server, server, server, server },
		  { 1, 2, 3, 4 },
		  { ERROR_UNAVAILABLE, -1, -1, -1 } },
		{ "each its own, slow",
		  { turn, turn, turn, turn },
		  { 1, 2, 3, 4 },
		  { -1, -1, -1, ERROR_ABORTED } },
		{ "as many of each",
		  { server, server, server, server },
		  { 1, 1, 2, 2 },
		  { ERROR_UNAVAILABLE, -1, -1, -1 } },
	};
	struct bench b;
	unsigned int k;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		fail_runs(UINT_MAX, ERROR_WAIT_PLACE);
		hold_max = 3;
		bench_init(&b, "", 0);
		for (k = 0; k < 4; k++) {
			waits_for[k] = rows[i].waits_for[k];
			servers[k] = rows[i].servers[k];
			bench_call(&b, NULL);
			bench_runs(&b, k + 1);
			pass_ms(1);
		}
		check_status(rows[i].name, &b, rows[i].status);
		bench_done(&b);
	}
}
END_TEST

/* A call that runs again keeps its place among those that are held. */
START_TEST(test_comes_back)
{
	static const enum error_wait waits[] = { ERROR_WAIT_SERVER, ERROR_WAIT_TURN };
	struct bench b;
	size_t i;

	hold_max = 1;
	for (i = 0; i < ARRAY_SIZE(waits); i++) {
		fail_runs(UINT_MAX, waits[i]);
		blocked_run = 2;
		bench_init(&b, "", 0);
		bench_call(&b, NULL);
		bench_runs(&b, 1);
		pass_ms(RETRY_MS);
		bench_runs(&b, 2);
		bench_call(&b, NULL);
		bench_runs(&b, 3);
		check_that("another", "is answered", b.status[1] > 0);
		atomic_store(&unblocked, true);
		bench_runs(&b, 3);
		check_int("comes back", "status", b.status[0], -1);
		bench_done(&b);
	}
}
END_TEST

/*
 * A call that runs again just before its deadline: one that may still ask its server is answered
 * with the error for which it was held. One that may have its turn to copy has its time to the end.
 */
START_TEST(test_near_deadline)
{
	static const struct {
		enum error_wait wait;
		int near, status;
	} rows[] = {
		{ ERROR_WAIT_SERVER, ERROR_UNAVAILABLE, ERROR_UNAVAILABLE },
		{ ERROR_WAIT_PLACE, ERROR_UNAVAILABLE, ERROR_UNAVAILABLE },
		{ ERROR_WAIT_TURN, -1, ERROR_OK },
	};
	struct bench b;
	size_t i;

	hold_max = 1;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		fail_runs(1, rows[i].wait);
		blocked_run = 2;
		bench_init(&b, "", 0);
		bench_call(&b, "5S");
		bench_runs(&b, 1);
		pass_ms(RETRY_MS);
		bench_runs(&b, 2);
		pass_ms(4500 - RETRY_MS);
		bench_runs(&b, 2);
		check_int("near the deadline", "status", b.status[0], rows[i].near);
		atomic_store(&unblocked, true);
		bench_runs(&b, 2);
		check_int("at the end", "status", b.status[0], rows[i].status);
		bench_done(&b);
	}
}
END_TEST

/* A server that shuts down does not wait for calls that only wait. */
START_TEST(test_drain)
{
	struct bench b;

	fail_runs(UINT_MAX, ERROR_WAIT_TURN);
	hold_max = 1;
	bench_init(&b, "", 0);
	bench_call(&b, NULL);
	bench_runs(&b, 1);
	check_int("held", "status", b.status[0], -1);
	grpc_server_shutdown(b.server, 60000, NULL, NULL);
	bench_runs(&b, 1);
	check_int("drained", "status", b.status[0], ERROR_ABORTED);
	bench_done(&b);
}
END_TEST

static void setup(void)
{
	log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
}

CHECK_MAIN("call", .setup = setup,
	   .tests = { test_held, test_turn_and_place, test_limit, test_limit_of_servers,
		      test_comes_back, test_near_deadline, test_drain })
