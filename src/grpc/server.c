/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/server.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "grpc/conn.h"
#include "grpc/session.h"
#include "grpc/state.h"

/* Connections accepted in a row before open ones get their turn. */
#define ACCEPT_BURST 32

/* ---- Lifetime ---- */

void grpc_server_ref(struct grpc_server *s)
{
	s->refs++;
}

void grpc_server_unref(struct grpc_server *s)
{
	assert(s->refs > 0);
	s->refs--;
	if (s->refs > 0)
		return;
	nghttp2_session_callbacks_del(s->callbacks);
	nghttp2_option_del(s->options);
	free(s->services);
	free(s);
}

void grpc_server_handle_opened(struct grpc_server *s)
{
	s->n_handles++;
	grpc_server_ref(s);
}

void grpc_server_handle_closed(struct grpc_server *s)
{
	void (*done)(void *data);

	s->n_handles--;
	if (s->state == GRPC_SERVER_CLOSED && s->n_handles == 0 && s->done != NULL) {
		done = steal_ptr(&s->done);
		done(s->done_data);
	}
	grpc_server_unref(s);
}

static void on_handle_closed(uv_handle_t *handle)
{
	grpc_server_handle_closed(handle->data);
}

/* Sockets must be closed already. */
static void close_server(struct grpc_server *s)
{
	if (s->state == GRPC_SERVER_CLOSED)
		return;
	s->state = GRPC_SERVER_CLOSED;
	uv_close((uv_handle_t *)&s->timer, on_handle_closed);
}

static void close_if_drained(struct grpc_server *s)
{
	if (s->state == GRPC_SERVER_DRAINING && s->n_conns == 0 &&
	    (s->n_working == 0 || s->grace_ns <= clock_now_ns()))
		close_server(s);
}

void grpc_server_work_gone(struct grpc_server *s)
{
	s->n_working--;
	close_if_drained(s);
	grpc_server_unref(s);
}

/* ---- Accepting ---- */

static void on_accept(uv_poll_t *poll, int status, int events);

static void start_accepting(struct grpc_server *s)
{
	int r;

	s->accept_retry_ns = GRPC_NEVER;
	s->accept_paused = false;
	r = uv_poll_start(&s->accept_poll, UV_READABLE, on_accept);
	if (r < 0)
		log_error("Cannot wait for connections", LOG_STR("reason", uv_strerror(r)));
}

/* Until then, connections wait in the listen backlog. */
static void pause_accepting(struct grpc_server *s, uint64_t retry_ns)
{
	(void)uv_poll_stop(&s->accept_poll); /* always succeeds */
	s->accept_paused = true;
	s->accept_retry_ns = retry_ns;
	grpc_server_arm(s, retry_ns);
}

static void stop_accepting(struct grpc_server *s)
{
	if (s->listener.fd < 0)
		return;
	s->accept_retry_ns = GRPC_NEVER;
	uv_close((uv_handle_t *)&s->accept_poll, on_handle_closed);
	grpc_listener_close(&s->listener);
}

void grpc_server_conn_gone(struct grpc_server *s)
{
	s->n_conns--;
	if (s->listener.fd >= 0 && s->accept_paused)
		start_accepting(s);
	close_if_drained(s);
}

/* Clients that wait cannot tell why. */
static void log_pause(struct grpc_server *s, const char *reason)
{
	uint64_t now = clock_now_ns();

	if (s->accept_logged_ns != 0 &&
	    now - s->accept_logged_ns < GRPC_ACCEPT_LOG_MS * CLOCK_NS_PER_MS)
		return;
	s->accept_logged_ns = now;
	log_warn("Clients have to wait for a connection", LOG_STR("reason", reason),
		 LOG_NUM("connections", s->n_conns));
}

/* Return false if no more connections can be accepted now. */
static bool accept_one(struct grpc_server *s)
{
	int fd, r;

	if (s->n_conns >= GRPC_CONNECTIONS_MAX) {
		log_pause(s, "too many connections are open");
		pause_accepting(s, GRPC_NEVER);
		return false;
	}
	fd = accept4(s->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			log_pause(s, strerror(errno));
			pause_accepting(s, clock_now_ns() + GRPC_ACCEPT_RETRY_MS * CLOCK_NS_PER_MS);
		}
		return errno == ECONNABORTED || errno == EINTR;
	}
	r = grpc_conn_new(s, fd);
	if (r < 0)
		log_debug("Cannot serve a connection", LOG_STR("reason", strerror(-r)));
	return true;
}

static void on_accept(uv_poll_t *poll, int status, int events)
{
	struct grpc_server *s = poll->data;
	int i;

	(void)events;
	if (status < 0) {
		log_error("Cannot wait for connections", LOG_STR("reason", uv_strerror(status)));
		return;
	}
	for (i = 0; i < ACCEPT_BURST; i++)
		if (!accept_one(s))
			break;
}

/* The listener is open. */
static int serve_listener(struct grpc_server *s, struct error *err)
{
	int r = uv_poll_init(s->loop, &s->accept_poll, s->listener.fd);

	if (r < 0) {
		grpc_listener_close(&s->listener);
		return error_sys(err, ERROR_INTERNAL, -r, "wait on the socket");
	}
	s->accept_poll.data = s;
	grpc_server_handle_opened(s);
	start_accepting(s);
	return 0;
}

int grpc_server_listen(struct grpc_server *s, const char *path, struct error *err)
{
	int r;

	assert(s->listener.fd < 0 && s->state == GRPC_SERVER_OPEN);
	r = grpc_listener_open(&s->listener, path, err);
	return r < 0 ? r : serve_listener(s, err);
}

int grpc_server_listen_on(struct grpc_server *s, int fd, struct error *err)
{
	int r;

	assert(s->listener.fd < 0 && s->state == GRPC_SERVER_OPEN);
	r = grpc_listener_adopt(&s->listener, fd, err);
	return r < 0 ? r : serve_listener(s, err);
}

/* ---- Timer ---- */

static void abort_conns(struct grpc_server *s)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &s->conns)
		grpc_conn_abort(container_of(pos, struct grpc_conn, link));
}

static void on_timer(uv_timer_t *timer)
{
	struct grpc_server *s = timer->data;
	uint64_t now = clock_now_ns();
	uint64_t next = GRPC_NEVER;
	struct list *pos, *tmp;

	s->timer_ns = GRPC_NEVER;
	if (s->state == GRPC_SERVER_DRAINING && s->grace_ns <= now) {
		abort_conns(s);
		close_if_drained(s);
		return;
	}
	if (s->accept_retry_ns <= now)
		start_accepting(s);
	list_for_each_safe(pos, tmp, &s->conns) {
		uint64_t when = grpc_conn_check(container_of(pos, struct grpc_conn, link), now);

		if (when < next)
			next = when;
	}
	if (s->accept_retry_ns < next)
		next = s->accept_retry_ns;
	if (s->state == GRPC_SERVER_DRAINING && s->grace_ns < next)
		next = s->grace_ns;
	grpc_server_arm(s, next);
}

void grpc_server_arm(struct grpc_server *s, uint64_t when_ns)
{
	if (s->state == GRPC_SERVER_CLOSED || when_ns >= s->timer_ns)
		return;
	s->timer_ns = when_ns;
	uv_update_time(s->loop); /* the delay counts from the loop's cached time */
	(void)uv_timer_start(&s->timer, on_timer, (uint64_t)clock_left_ms(when_ns), 0);
}

/* ---- Start and shutdown ---- */

static int copy_services(struct grpc_server *s, const struct grpc_server_config *config)
{
	if (config->n_services == 0)
		return 0;
	s->services = calloc(config->n_services, sizeof(*s->services));
	if (s->services == NULL)
		return -ENOMEM;
	memcpy(s->services, config->services, config->n_services * sizeof(*s->services));
	s->n_services = config->n_services;
	return 0;
}

int grpc_server_new(struct grpc_server **ret, uv_loop_t *loop,
		    const struct grpc_server_config *config, struct error *err)
{
	struct grpc_server *s = calloc(1, sizeof(*s));
	int r;

	if (s == NULL)
		return error_oom(err);
	s->refs = 1;
	s->loop = loop;
	s->listener.fd = -EBADF;
	s->accept_retry_ns = GRPC_NEVER;
	s->timer_ns = GRPC_NEVER;
	list_init(&s->conns);
	r = copy_services(s, config);
	if (r == 0)
		r = grpc_session_setup(&s->callbacks, &s->options);
	if (r == 0)
		r = uv_timer_init(loop, &s->timer);
	if (r < 0) {
		grpc_server_unref(s);
		return error_sys(err, ERROR_RESOURCE_EXHAUSTED, -r, "make the gRPC server");
	}
	s->timer.data = s;
	grpc_server_handle_opened(s);
	*ret = s;
	return 0;
}

void grpc_server_shutdown(struct grpc_server *s, unsigned int grace_ms, void (*done)(void *data),
			  void *data)
{
	uint64_t grace_ns = clock_now_ns() + grace_ms * CLOCK_NS_PER_MS;
	struct list *pos, *tmp;

	if (s->state == GRPC_SERVER_CLOSED)
		return;
	if (s->state == GRPC_SERVER_DRAINING) {
		if (grace_ns < s->grace_ns)
			s->grace_ns = grace_ns;
		grpc_server_arm(s, s->grace_ns);
		return;
	}
	s->done = done;
	s->done_data = data;
	s->grace_ns = grace_ns;
	stop_accepting(s);
	list_for_each_safe(pos, tmp, &s->conns)
		grpc_conn_drain(container_of(pos, struct grpc_conn, link));
	s->state = GRPC_SERVER_DRAINING;
	grpc_server_arm(s, grace_ns);
	close_if_drained(s);
}

void grpc_server_free(struct grpc_server *s)
{
	if (s == NULL)
		return;
	s->done = NULL;
	stop_accepting(s);
	abort_conns(s);
	close_server(s);
	grpc_server_unref(s);
}
