/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/breaker.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "net/address.h"

/* Longest wait for a place: a waiting caller blocks a worker that other servers need. */
#define PLACE_SILENT_MS 200
#define PLACE_ALIVE_MS 10000

/* Longest wait for the caller that asks the server; its NULL call has limits of its own. */
#define ASKED_MS 10000

/* When a refused caller should try again while another one asks. */
#define RETRY_ASKED_MS 250

/*
 * Likewise, while all places are taken: after RETRY_FULL_MS at least. Callers come back one after
 * another, as often as places are given to others, since all of their work is done again each time:
 * one in RETRY_FULL_MS, or as many as there are places if the server is fast. None waits for longer
 * than RETRY_FULL_LAST_MS.
 */
#define RETRY_FULL_MS 50
#define RETRY_FULL_LAST_MS 2000
#define TAKINGS_KEPT 16 /* that tell how often places are given; at most as many as there are */

/*
 * Callers that may be inside at a time, for each place of a server: as many as there are workers.
 * Some are kept for servers that nobody is at work on: see limit_of().
 */
#define INSIDE_OF_PLACE 3

/* A server that has answered is remembered for longer: calls for it are held while it is down. */
#define FORGET_S 600
#define FORGET_SEEN_S 86400

enum server_state {
	SERVER_SILENT,
	SERVER_ASKED,
	SERVER_ALIVE,
	SERVER_DOWN,
};

struct server {
	struct list link;
	char *name;
	uint16_t port;
	unsigned int busy; /* places in use */
	unsigned int spare; /* those of them that occupy no worker */
	unsigned int waiting; /* callers that wait for a place */
	uint64_t taken_ns[TAKINGS_KEPT]; /* when the last places were taken; a ring */
	unsigned int n_taken;
	uint64_t turn_ns; /* when the last caller that was refused a place comes back */
	bool asked; /* a caller is finding out whether it is alive */
	uint64_t heard_ns; /* 0: not heard from */
	uint64_t used_ns;
	uint64_t next_try_ns; /* DOWN until then */
	uint64_t pause_ms; /* last time in DOWN; 0: has answered since */
	bool unknown; /* its name has no address */
	bool seen; /* has answered at least once */
	bool proven; /* has done what it was asked since it last hung */
	unsigned int hangs; /* since then */
	struct error why; /* why it is DOWN */
};

struct net_breaker {
	unsigned int places;
	unsigned int last_ms; /* longest time in DOWN */
	pthread_mutex_t lock; /* guards all below, servers included; innermost */
	pthread_cond_t changed;
	struct list servers;
	unsigned int inside; /* workers at places, and callers that wait for one, of all servers */
};

int net_breaker_new(struct net_breaker **ret, unsigned int places, unsigned int last_ms)
{
	struct net_breaker *b = calloc(1, sizeof(*b));
	pthread_condattr_t attr;

	if (b == NULL)
		return -ENOMEM;
	b->places = places;
	b->last_ms = last_ms;
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

static struct server *find_server(struct net_breaker *b, const char *name, uint16_t port)
{
	struct list *pos;

	list_for_each(pos, &b->servers) {
		struct server *s = container_of(pos, struct server, link);

		if (s->port == port && strcmp(s->name, name) == 0)
			return s;
	}
	return NULL;
}

static struct server *find_or_add_server(struct net_breaker *b, const char *name, uint16_t port)
{
	struct server *s = find_server(b, name, port);

	if (s == NULL) {
		s = calloc(1, sizeof(*s));
		if (s == NULL)
			return NULL;
		s->name = strdup(name);
		if (s->name == NULL) {
			free(s);
			return NULL;
		}
		s->port = port;
		list_add_tail(&b->servers, &s->link);
	}
	s->used_ns = clock_now_ns();
	return s;
}

static enum server_state server_state(const struct server *s)
{
	uint64_t now = clock_now_ns();

	if (s->next_try_ns > now)
		return SERVER_DOWN;
	if (s->heard_ns != 0 && now - s->heard_ns < NET_BREAKER_FRESH_MS * CLOCK_NS_PER_MS)
		return SERVER_ALIVE;
	return s->asked ? SERVER_ASKED : SERVER_SILENT;
}

/* Refuse with a text. The caller need not give up, because the server may answer in a moment. */
__attribute__((format(printf, 4, 5))) static int refuse(const struct server *s, struct error *err,
							unsigned int retry_ms, const char *fmt, ...)
{
	char text[ERROR_MESSAGE_SIZE];
	va_list ap;
	int r;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* truncates */
	va_end(ap);
	r = error_set(err, ERROR_UNAVAILABLE, "%s", text);
	if (err != NULL && err->code == ERROR_UNAVAILABLE) {
		err->retry_ms = retry_ms;
		err->wait_for = net_server_number(s->name, s->port);
	}
	return r;
}

/*
 * A server that has answered before will be back. A server that has never answered is probably a
 * wrong address, and a wrong name is not corrected within seconds: callers want to know at once.
 */
static unsigned int retry_ms_of(const struct server *s)
{
	if (s->unknown || !s->seen)
		return 0;
	return s->next_try_ns > clock_now_ns() ? (unsigned int)clock_left_ms(s->next_try_ns) + 1
					       : RETRY_ASKED_MS;
}

static int refuse_down(const struct server *s, struct error *err)
{
	return refuse(s, err, retry_ms_of(s), "%s", s->why.msg);
}

/* The caller has waited long enough, and has not learned whether the server answers. */
static int refuse_unknown(const struct server *s, unsigned int retry_ms, const char *why,
			  struct error *err)
{
	(void)refuse(s, err, retry_ms, "server '%s': %s; try again", s->name, why);
	return -EUSERS;
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
	if (value < least)
		return least;
	return value < most ? value : most;
}

static unsigned int takings_kept(const struct net_breaker *b)
{
	return b->places < TAKINGS_KEPT ? b->places : TAKINGS_KEPT;
}

/* The next taking replaces it. */
static uint64_t *oldest_taking(const struct net_breaker *b, struct server *s)
{
	return &s->taken_ns[s->n_taken % takings_kept(b)];
}

/*
 * Return the mean time between two takings of late. Calls that begin together end together, so the
 * time since the last one does not tell how often places are given.
 */
static uint64_t between_takings_ns(const struct net_breaker *b, struct server *s, uint64_t now)
{
	return (now - *oldest_taking(b, s)) / takings_kept(b);
}

/* Give a caller that is refused a place its turn. Returns the time until then. */
static unsigned int next_turn_ms(const struct net_breaker *b, struct server *s)
{
	const uint64_t now = clock_now_ns(), soon = RETRY_FULL_MS * CLOCK_NS_PER_MS;

	s->turn_ns += clamp(between_takings_ns(b, s, now), soon / b->places, soon);
	s->turn_ns = clamp(s->turn_ns, now + soon, now + RETRY_FULL_LAST_MS * CLOCK_NS_PER_MS);
	return (unsigned int)((s->turn_ns - now) / CLOCK_NS_PER_MS);
}

static int refuse_full(const struct net_breaker *b, struct server *s, struct error *err)
{
	int r = refuse_unknown(s, next_turn_ms(b, s), "too many calls wait for it already", err);

	if (err != NULL && err->code == ERROR_UNAVAILABLE)
		err->wait = ERROR_WAIT_PLACE;
	return r;
}

/* Check whether the server was down and has not answered since, so that one caller is enough. */
static bool is_doubtful(const struct server *s, enum server_state state)
{
	return state == SERVER_DOWN || (state == SERVER_ASKED && s->pause_ms > 0);
}

static unsigned int left_of(const struct net_breaker *b)
{
	const unsigned int all = INSIDE_OF_PLACE * b->places;

	return b->inside < all ? all - b->inside : 0;
}

/*
 * How many callers may be at work on a server or wait for a place there. One server gets two thirds
 * of all; of several, each gets twice what is left for the others. So something is left for one
 * more server, however many of them are slow: with n of them, that is 1 / (1 + 2n) of all.
 */
static unsigned int limit_of(const struct net_breaker *b)
{
	return left_of(b) > 0 ? 2 * left_of(b) : 1;
}

static unsigned int inside_of(const struct server *s)
{
	return s->busy - s->spare + s->waiting;
}

static void wait_for_change(struct net_breaker *b, uint64_t deadline_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_S),
	};

	(void)pthread_cond_timedwait(&b->changed, &b->lock, &until);
}

static int wait_for_place(struct net_breaker *b, struct server *s, bool even_if_down,
			  struct error *err)
{
	uint64_t start = clock_now_ns();

	while (s->busy >= b->places) {
		enum server_state state = server_state(s);
		uint64_t limit_ms = state == SERVER_ALIVE ? PLACE_ALIVE_MS : PLACE_SILENT_MS;
		uint64_t deadline = start + limit_ms * CLOCK_NS_PER_MS;
		uint64_t step = clock_now_ns() + PLACE_SILENT_MS * CLOCK_NS_PER_MS;

		if (is_doubtful(s, state) && !even_if_down)
			return refuse_down(s, err);
		if (left_of(b) == 0 || clock_now_ns() >= deadline)
			return refuse_full(b, s, err);
		/* Look at the state again now and then: ALIVE ends without a signal. */
		wait_for_change(b, step < deadline ? step : deadline);
	}
	return 0;
}

/* Refuse a caller that should not even wait. Returns 0 if it may. */
static int server_refuse(struct net_breaker *b, struct server *s, bool even_if_down,
			 struct error *err)
{
	if (is_doubtful(s, server_state(s)) && !even_if_down)
		return refuse_down(s, err);
	/* Each caller keeps a worker from other servers. */
	if (inside_of(s) >= limit_of(b))
		return refuse_full(b, s, err);
	return 0;
}

static int server_take_place(struct net_breaker *b, struct server *s, bool even_if_down,
			     struct error *err)
{
	int r;

	r = server_refuse(b, s, even_if_down, err);
	if (r < 0)
		return r;
	b->inside++;
	s->waiting++;
	r = wait_for_place(b, s, even_if_down, err);
	s->waiting--;
	if (r < 0) {
		b->inside--;
		return r;
	}
	s->busy++;
	*oldest_taking(b, s) = clock_now_ns();
	s->n_taken++;
	return 0;
}

static void server_give_place_back(struct net_breaker *b, struct server *s)
{
	s->busy--;
	b->inside--;
	pthread_cond_broadcast(&b->changed);
}

/* Return 0 if the server is ALIVE, or if this caller has to ask it. */
static int wait_until_known(struct net_breaker *b, struct server *s, bool *ret_ask,
			    struct error *err)
{
	const uint64_t deadline = clock_now_ns() + ASKED_MS * CLOCK_NS_PER_MS;

	for (;;) {
		enum server_state state = server_state(s);

		if (is_doubtful(s, state))
			return refuse_down(s, err);
		switch (state) {
		case SERVER_DOWN: /* is doubtful */
		case SERVER_ALIVE:
			*ret_ask = false;
			return 0;
		case SERVER_SILENT:
			s->asked = true;
			*ret_ask = true;
			return 0;
		case SERVER_ASKED:
			break;
		}
		if (clock_now_ns() >= deadline)
			return refuse_unknown(s, RETRY_ASKED_MS,
					      "it is not known yet whether it answers", err);
		wait_for_change(b, deadline);
	}
}

static int server_admit(struct net_breaker *b, struct server *s, bool *ret_ask, struct error *err)
{
	int r;

	r = server_take_place(b, s, false, err);
	if (r < 0)
		return r;
	r = wait_until_known(b, s, ret_ask, err);
	if (r < 0)
		server_give_place_back(b, s);
	return r;
}

/* -------- public -------- */

int net_breaker_enter(struct net_breaker *b, const char *server, uint16_t port, bool *ret_ask,
		      struct error *err)
{
	struct server *s;
	int r;

	*ret_ask = false;
	pthread_mutex_lock(&b->lock);
	s = find_or_add_server(b, server, port);
	r = s != NULL ? server_admit(b, s, ret_ask, err) : error_oom(err);
	pthread_mutex_unlock(&b->lock);
	return r;
}

int net_breaker_check(struct net_breaker *b, const char *server, uint16_t port, struct error *err)
{
	struct server *s;
	int r = 0;

	pthread_mutex_lock(&b->lock);
	s = find_server(b, server, port);
	if (s != NULL)
		r = server_refuse(b, s, false, err);
	pthread_mutex_unlock(&b->lock);
	return r;
}

int net_breaker_take(struct net_breaker *b, const char *server, uint16_t port, struct error *err)
{
	struct server *s;
	int r;

	pthread_mutex_lock(&b->lock);
	s = find_or_add_server(b, server, port);
	r = s != NULL ? server_take_place(b, s, true, err) : error_oom(err);
	pthread_mutex_unlock(&b->lock);
	return r;
}

void net_breaker_gave_up(struct net_breaker *b, const char *server, uint16_t port)
{
	pthread_mutex_lock(&b->lock);
	find_server(b, server, port)->asked = false;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_answered(struct net_breaker *b, const char *server, uint16_t port)
{
	struct server *s;

	pthread_mutex_lock(&b->lock);
	s = find_server(b, server, port);
	s->heard_ns = clock_now_ns();
	s->asked = false;
	s->next_try_ns = 0;
	s->pause_ms = 0;
	s->unknown = false;
	s->seen = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_proved(struct net_breaker *b, const char *server, uint16_t port)
{
	struct server *s;

	pthread_mutex_lock(&b->lock);
	s = find_server(b, server, port);
	s->proven = true;
	s->hangs = 0;
	pthread_mutex_unlock(&b->lock);
	net_breaker_answered(b, server, port);
}

bool net_breaker_is_proven(struct net_breaker *b, const char *server, uint16_t port,
			   unsigned int *ret_hangs)
{
	const struct server *s;
	bool proven;

	pthread_mutex_lock(&b->lock);
	s = find_server(b, server, port);
	proven = s->proven;
	*ret_hangs = s->hangs;
	pthread_mutex_unlock(&b->lock);
	return proven;
}

/* The longest time in DOWN after that error. */
static uint64_t last_pause_ms(const struct net_breaker *b, int error)
{
	switch (error) {
	case -NET_ENAME:
		return NET_BREAKER_NAME_LAST_MS;
	case -ETIMEDOUT:
		return NET_BREAKER_HUNG_LAST_MS;
	default:
		return b->last_ms;
	}
}

void net_breaker_failed(struct net_breaker *b, const char *server, uint16_t port, int error,
			struct error *why)
{
	const uint64_t last_ms = last_pause_ms(b, error);
	struct server *s;

	pthread_mutex_lock(&b->lock);
	s = find_server(b, server, port);
	s->asked = false;
	s->heard_ns = 0;
	s->proven = s->proven && error != -ETIMEDOUT;
	/* Calls that were under way when it went down count as one failure. */
	if (server_state(s) != SERVER_DOWN) {
		s->pause_ms = s->pause_ms == 0 ? NET_BREAKER_FIRST_MS : s->pause_ms * 2;
		if (s->pause_ms > last_ms)
			s->pause_ms = last_ms;
		s->next_try_ns = clock_now_ns() + s->pause_ms * CLOCK_NS_PER_MS;
		s->hangs += error == -ETIMEDOUT;
		s->unknown = error == -NET_ENAME;
		s->why = *why;
	}
	why->retry_ms = retry_ms_of(s);
	why->wait_for = net_server_number(server, port);
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_leave(struct net_breaker *b, const char *server, uint16_t port, bool silent)
{
	struct server *s;

	pthread_mutex_lock(&b->lock);
	s = find_server(b, server, port);
	s->heard_ns = silent ? 0 : clock_now_ns();
	server_give_place_back(b, s);
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_spare(struct net_breaker *b, const char *server, uint16_t port, bool spare)
{
	struct server *s;

	pthread_mutex_lock(&b->lock);
	s = find_server(b, server, port);
	if (spare) {
		s->spare++;
		b->inside--;
	} else {
		s->spare--;
		b->inside++;
	}
	pthread_mutex_unlock(&b->lock);
}

void net_breaker_sweep(struct net_breaker *b)
{
	struct list *pos, *tmp;
	uint64_t now;

	pthread_mutex_lock(&b->lock);
	now = clock_now_ns(); /* not before used_ns of any */
	list_for_each_safe(pos, tmp, &b->servers) {
		struct server *s = container_of(pos, struct server, link);
		const uint64_t forget_s = s->seen ? FORGET_SEEN_S : FORGET_S;

		if (s->busy == 0 && s->waiting == 0 && now - s->used_ns > forget_s * CLOCK_NS_PER_S)
			server_free(s);
	}
	pthread_mutex_unlock(&b->lock);
}
