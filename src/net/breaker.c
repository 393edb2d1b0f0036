/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/breaker.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"

/* For a place, while nothing is heard of the server, and while it answers. */
#define WAIT_SILENT_MS 200
#define WAIT_ANSWERING_MS 10000

/* For the one that finds out whether a server is alive, which has limits of its own. */
#define WAIT_ASKING_MS 10000

#define FORGET_S 600

struct server {
	struct list link;
	char *name;
	uint16_t port;
	unsigned int busy; /* places in use */
	bool asking; /* one of them finds out whether it is alive */
	uint64_t heard_ns; /* 0: not known to be alive */
	uint64_t used_ns;
	uint64_t next_try_ns; /* 0: not down */
	uint64_t pause_ms; /* until the next try, the last time */
	struct error why; /* it is down */
};

struct net_breaker {
	unsigned int places;
	pthread_mutex_t lock; /* guards what follows; innermost */
	pthread_cond_t changed;
	struct list servers;
};

int net_breaker_new(struct net_breaker **ret, unsigned int places)
{
	struct net_breaker *b = calloc(1, sizeof(*b));
	pthread_condattr_t attr;

	if (b == NULL)
		return -ENOMEM;
	b->places = places;
	list_init(&b->servers);
	pthread_mutex_init(&b->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&b->changed, &attr);
	pthread_condattr_destroy(&attr);
	*ret = b;
	return 0;
}

static void server_free(struct server *s)
{
	list_remove(&s->link);
	free(s->name);
	free(s);
}

void net_breaker_free(struct net_breaker *b)
{
	struct list *pos, *tmp;

	if (b == NULL)
		return;
	list_for_each_safe(pos, tmp, &b->servers)
		server_free(container_of(pos, struct server, link));
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

/* -------- with the lock held -------- */

static struct server *find(struct net_breaker *b, const char *server, uint16_t port)
{
	struct list *pos;

	list_for_each(pos, &b->servers) {
		struct server *s = container_of(pos, struct server, link);

		if (s->port == port && strcmp(s->name, server) == 0)
			return s;
	}
	return NULL;
}

static struct server *find_or_add(struct net_breaker *b, const char *server, uint16_t port)
{
	struct server *s = find(b, server, port);

	if (s != NULL)
		return s;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->name = strdup(server);
	if (s->name == NULL) {
		free(s);
		return NULL;
	}
	s->port = port;
	list_add_tail(&b->servers, &s->link);
	return s;
}

static bool is_fresh(const struct server *s)
{
	return s->heard_ns != 0 &&
	       clock_now_ns() - s->heard_ns < NET_BREAKER_FRESH_MS * CLOCK_NS_PER_MS;
}

static int refuse_down(const struct server *s, struct error *err)
{
	uint64_t now = clock_now_ns();
	unsigned int left = (unsigned int)((s->next_try_ns - now) / CLOCK_NS_PER_S) + 1;

	return error_set(err, ERROR_UNAVAILABLE, "%.400s; it will be tried again in %u s",
			 s->why.msg, left);
}

static bool is_down(const struct server *s)
{
	return s->next_try_ns > clock_now_ns();
}

static void put_down(struct server *s, const struct error *why)
{
	s->pause_ms = s->pause_ms == 0 ? NET_BREAKER_FIRST_MS : s->pause_ms * 2;
	if (s->pause_ms > NET_BREAKER_LAST_MS)
		s->pause_ms = NET_BREAKER_LAST_MS;
	s->next_try_ns = clock_now_ns() + s->pause_ms * CLOCK_NS_PER_MS;
	s->why = *why;
}

static void wait_until(struct net_breaker *b, uint64_t deadline_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_S),
	};

	(void)pthread_cond_timedwait(&b->changed, &b->lock, &until);
}

/* Waiting for a place keeps a worker from other servers: not long, when nothing is heard. */
static int take_place(struct net_breaker *b, struct server *s, bool anyway, struct error *err)
{
	uint64_t start = clock_now_ns();

	while (s->busy >= b->places) {
		uint64_t limit_ms = is_fresh(s) ? WAIT_ANSWERING_MS : WAIT_SILENT_MS;
		uint64_t deadline = start + limit_ms * CLOCK_NS_PER_MS;
		uint64_t step = clock_now_ns() + WAIT_SILENT_MS * CLOCK_NS_PER_MS;

		if (is_down(s) && !anyway)
			return refuse_down(s, err);
		if (clock_now_ns() >= deadline)
			return error_set(err, ERROR_UNAVAILABLE,
					 "server '%s': %u calls wait for it already; try again",
					 s->name, b->places);
		wait_until(b, step < deadline ? step : deadline);
	}
	s->busy++;
	return 0;
}

/* With a place: 0 where the server is alive, or the caller has been chosen to find out. */
static int settle(struct net_breaker *b, struct server *s, bool *ret_ask, struct error *err)
{
	const uint64_t deadline = clock_now_ns() + WAIT_ASKING_MS * CLOCK_NS_PER_MS;

	*ret_ask = false;
	for (;;) {
		if (is_down(s))
			return refuse_down(s, err);
		if (is_fresh(s))
			return 0;
		if (!s->asking)
			break;
		if (clock_now_ns() >= deadline)
			return error_set(err, ERROR_UNAVAILABLE,
					 "server '%s': it is not known yet whether it answers; try again",
					 s->name);
		wait_until(b, deadline);
	}
	s->asking = true;
	*ret_ask = true;
	return 0;
}

static int enter(struct net_breaker *b, struct server *s, bool *ret_ask, struct error *err)
{
	int r;

	s->used_ns = clock_now_ns();
	if (is_down(s))
		return refuse_down(s, err);
	r = take_place(b, s, false, err);
	if (r < 0)
		return r;
	r = settle(b, s, ret_ask, err);
	if (r < 0) {
		s->busy--;
		pthread_cond_broadcast(&b->changed);
	}
	return r;
}

/* -------- from outside -------- */

int net_breaker_enter(struct net_breaker *b, const char *server, uint16_t port, bool *ret_ask,
		      struct error *err)
{
	struct server *s;
	int r;

	pthread_mutex_lock(&b->lock);
	s = find_or_add(b, server, port);
	r = s != NULL ? enter(b, s, ret_ask, err) : error_oom(err);
	pthread_mutex_unlock(&b->lock);
	return r;
}

int net_breaker_take(struct net_breaker *b, const char *server, uint16_t port, struct error *err)
{
	struct server *s;
	int r;

	pthread_mutex_lock(&b->lock);
	s = find_or_add(b, server, port);
	if (s != NULL) {
		s->used_ns = clock_now_ns();
		r = take_place(b, s, true, err);
	} else {
		r = error_oom(err);
	}
	pthread_mutex_unlock(&b->lock);
	return r;
}

void net_breaker_gave_up(struct net_breaker *b, const char *server, uint16_t port)
{
	pthread_mutex_lock(&b->lock);
	find(b, server, port)->asking = false;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_answered(struct net_breaker *b, const char *server, uint16_t port)
{
	struct server *s;

	pthread_mutex_lock(&b->lock);
	s = find(b, server, port);
	s->heard_ns = clock_now_ns();
	s->asking = false;
	s->next_try_ns = 0;
	s->pause_ms = 0;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_failed(struct net_breaker *b, const char *server, uint16_t port,
			const struct error *why)
{
	struct server *s;

	pthread_mutex_lock(&b->lock);
	s = find(b, server, port);
	s->asking = false;
	s->heard_ns = 0;
	/* Calls that were at work when it went down count as one failure. */
	if (!is_down(s))
		put_down(s, why);
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_leave(struct net_breaker *b, const char *server, uint16_t port, bool silent)
{
	struct server *s;

	pthread_mutex_lock(&b->lock);
	s = find(b, server, port);
	s->busy--;
	s->heard_ns = silent ? 0 : clock_now_ns();
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_sweep(struct net_breaker *b)
{
	uint64_t now = clock_now_ns();
	struct list *pos, *tmp;

	pthread_mutex_lock(&b->lock);
	list_for_each_safe(pos, tmp, &b->servers) {
		struct server *s = container_of(pos, struct server, link);

		if (s->busy == 0 && now - s->used_ns > FORGET_S * CLOCK_NS_PER_S)
			server_free(s);
	}
	pthread_mutex_unlock(&b->lock);
}
