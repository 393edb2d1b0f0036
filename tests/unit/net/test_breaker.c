/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "check_util.h"
#include "meanwhile.h"
#include "net/address.h"
#include "net/breaker.h"

#define PLACES 16

struct server {
	const char *name;
	uint16_t port;
};

static const struct server a = { "a", 0 }, a_port = { "a", 1234 }, b = { "b", 0 };

/*
 * The clock stands still, and goes on by pass_ms() or where a single thread waits until a deadline.
 * So it does not matter how busy the machine is.
 */
static _Atomic uint64_t now_ns = 1000 * CLOCK_NS_PER_S;
static bool many_threads;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	const uint64_t now = now_ns;

	if (id != CLOCK_MONOTONIC)
		return check_real_clock(id, ts);
	ts->tv_sec = (time_t)(now / CLOCK_NS_PER_S);
	ts->tv_nsec = (long)(now % CLOCK_NS_PER_S);
	return 0;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
			   const struct timespec *until)
{
	const uint64_t deadline =
		(uint64_t)until->tv_sec * CLOCK_NS_PER_S + (uint64_t)until->tv_nsec;

	if (many_threads)
		return pthread_cond_wait(cond, lock);
	ck_assert_msg(deadline > now_ns, "waits for a time that has passed");
	now_ns = deadline;
	return ETIMEDOUT;
}

static void pass_ms(uint64_t ms)
{
	now_ns += ms * CLOCK_NS_PER_MS;
}

static void sleep_ms(long ms)
{
	const struct timespec ts = { .tv_nsec = ms * 1000000 };

	(void)nanosleep(&ts, NULL);
}

static struct net_breaker *new_breaker(void)
{
	struct net_breaker *breaker;

	check_int("new", "result", net_breaker_new(&breaker, PLACES, 2 * NET_BREAKER_FIRST_MS), 0);
	return breaker;
}

/* Enter, and report the server alive if asked to find out. */
static void enter_alive(const char *row, struct net_breaker *breaker, const struct server *s,
			bool want_ask)
{
	struct error err = { .code = ERROR_OK };
	bool ask;

	check_int(row, "result", net_breaker_enter(breaker, s->name, s->port, &ask, &err), 0);
	check_int(row, "ask", ask, want_ask);
	if (ask)
		net_breaker_answered(breaker, s->name, s->port);
}

static void fail_with(struct net_breaker *breaker, const struct server *s, int error)
{
	struct error why = { .code = ERROR_UNAVAILABLE, .msg = "nobody there" };
	bool ask = false;

	check_int("fail", "result", net_breaker_enter(breaker, s->name, s->port, &ask, NULL), 0);
	check_that("fail", "ask", ask);
	net_breaker_failed(breaker, s->name, s->port, error, &why);
	net_breaker_leave(breaker, s->name, s->port, true);
}

static void go_down(struct net_breaker *breaker, const struct server *s)
{
	fail_with(breaker, s, -EHOSTDOWN);
}

/* It answers once, as one that was there before it went down. */
static struct net_breaker *new_breaker_that_saw(const struct server *s)
{
	struct net_breaker *breaker = new_breaker();

	enter_alive("seen", breaker, s, true);
	net_breaker_leave(breaker, s->name, s->port, true);
	return breaker;
}

/* Check that a caller is refused at once with the text of the failure, and for how long. */
static void check_refused(const char *row, struct net_breaker *breaker, const struct server *s,
			  unsigned int pause_ms)
{
	struct error err = { .code = ERROR_OK };
	uint64_t start = clock_now_ns();
	bool ask;

	check_that(row, "refused", net_breaker_enter(breaker, s->name, s->port, &ask, &err) < 0);
	check_int(row, "waited", clock_now_ns() - start, 0);
	check_int(row, "code", err.code, ERROR_UNAVAILABLE);
	check_str(row, "text", err.msg, "nobody there");
	check_that(row, "not too early", err.retry_ms > pause_ms / 2);
	check_int(row, "waits for", err.wait_for, net_server_number(s->name, s->port));
	check_that(row, "not too late", err.retry_ms <= pause_ms + 1);
}

/* The sweep waits for the lock while another thread uses the server. */
static struct net_breaker *swept;

static void use_later(void)
{
	pass_ms(1);
	check_refused("meanwhile", swept, &a, NET_BREAKER_FIRST_MS - 1);
}

START_TEST(test_sweep_of_a_server_in_use)
{
	swept = new_breaker_that_saw(&a);
	pass_ms(NET_BREAKER_FRESH_MS);
	go_down(swept, &a);
	meanwhile = use_later;
	net_breaker_sweep(swept);
	check_refused("after it", swept, &a, NET_BREAKER_FIRST_MS - 1);
	net_breaker_free(swept);
}
END_TEST

/* -------- the table in breaker.h -------- */

enum state { SILENT, ASKED, ALIVE, DOWN, STATES };

static const char *const state_names[STATES] = { "SILENT", "ASKED", "ALIVE", "DOWN" };

/* A breaker in this state, and a place that is held in it. */
static struct net_breaker *new_breaker_in(enum state state)
{
	struct net_breaker *breaker = new_breaker_that_saw(&a);
	bool ask = false;

	check_int("held", "result", net_breaker_take(breaker, a.name, a.port, NULL), 0);
	switch (state) {
	case ASKED:
		check_int("asked", "result", net_breaker_enter(breaker, a.name, a.port, &ask, NULL),
			  0);
		check_that("asked", "ask", ask);
		break;
	case ALIVE:
		enter_alive("alive", breaker, &a, true);
		break;
	case DOWN:
		go_down(breaker, &a);
		break;
	default:
		break;
	}
	return breaker;
}

/* What a caller meets. This is the last thing to do with the breaker. */
static enum state state_of(struct net_breaker *breaker)
{
	struct error err = { .code = ERROR_OK };
	bool ask = false;
	int r = net_breaker_enter(breaker, a.name, a.port, &ask, &err);

	if (r == 0)
		return ask ? SILENT : ALIVE;
	return r == -EUSERS ? ASKED : DOWN;
}

enum event { ENTER, TAKE, ANSWERED, FAILED, GAVE_UP, LEAVE, LEAVE_SILENT, TIME };

static void happen(struct net_breaker *breaker, enum event event)
{
	struct error why = { .code = ERROR_UNAVAILABLE, .msg = "nobody there" };
	bool ask;

	switch (event) {
	case ENTER:
		(void)net_breaker_enter(breaker, a.name, a.port, &ask, NULL);
		break;
	case TAKE:
		check_int("take", "result", net_breaker_take(breaker, a.name, a.port, NULL), 0);
		break;
	case ANSWERED:
		net_breaker_answered(breaker, a.name, a.port);
		break;
	case FAILED:
		net_breaker_failed(breaker, a.name, a.port, -EHOSTDOWN, &why);
		break;
	case GAVE_UP:
		net_breaker_gave_up(breaker, a.name, a.port);
		break;
	case LEAVE:
	case LEAVE_SILENT:
		net_breaker_leave(breaker, a.name, a.port, event == LEAVE_SILENT);
		break;
	case TIME:
		pass_ms(NET_BREAKER_FRESH_MS + 50);
		break;
	}
}

static const struct {
	const char *name;
	enum event event;
	enum state after[STATES];
} transitions[] = {
	{ "enter", ENTER, { ASKED, ASKED, ALIVE, DOWN } },
	{ "take", TAKE, { SILENT, ASKED, ALIVE, DOWN } },
	{ "answered", ANSWERED, { ALIVE, ALIVE, ALIVE, ALIVE } },
	{ "failed", FAILED, { DOWN, DOWN, DOWN, DOWN } },
	{ "gave_up", GAVE_UP, { SILENT, SILENT, ALIVE, DOWN } },
	{ "leave", LEAVE, { ALIVE, ALIVE, ALIVE, DOWN } },
	{ "leave, silent", LEAVE_SILENT, { SILENT, ASKED, SILENT, DOWN } },
	{ "time", TIME, { SILENT, ASKED, SILENT, SILENT } },
};

START_TEST(test_transitions)
{
	enum state state;

	for (state = SILENT; state < STATES; state++) {
		struct net_breaker *breaker = new_breaker_in(state);

		happen(breaker, transitions[_i].event);
		check_str(transitions[_i].name, state_names[state], state_names[state_of(breaker)],
			  state_names[transitions[_i].after[state]]);
		net_breaker_free(breaker);
	}
}
END_TEST

/* -------- what callers see -------- */

START_TEST(test_alive)
{
	struct net_breaker *breaker = new_breaker();

	enter_alive("first", breaker, &a, true);
	enter_alive("second", breaker, &a, false);
	enter_alive("other server", breaker, &b, true);
	enter_alive("other port", breaker, &a_port, true);
	net_breaker_leave(breaker, a.name, a.port, false);
	net_breaker_leave(breaker, a.name, a.port, true);
	enter_alive("after silence", breaker, &a, true);
	net_breaker_leave(breaker, a.name, a.port, false);
	pass_ms(NET_BREAKER_FRESH_MS + 50);
	enter_alive("after a pause", breaker, &a, true);
	net_breaker_leave(breaker, a.name, a.port, false);
	net_breaker_sweep(breaker);
	enter_alive("kept", breaker, &a, false);
	net_breaker_free(breaker);
	net_breaker_free(NULL);
}
END_TEST

START_TEST(test_down)
{
	struct net_breaker *breaker = new_breaker_that_saw(&a);
	bool ask;

	go_down(breaker, &a);
	check_refused("down", breaker, &a, NET_BREAKER_FIRST_MS);
	enter_alive("other server", breaker, &b, true);
	check_int("anyway", "result", net_breaker_take(breaker, a.name, a.port, NULL), 0);
	net_breaker_leave(breaker, a.name, a.port, true);
	pass_ms(NET_BREAKER_FIRST_MS + 50);
	check_int("gives up", "result", net_breaker_enter(breaker, a.name, a.port, &ask, NULL), 0);
	net_breaker_gave_up(breaker, a.name, a.port);
	net_breaker_leave(breaker, a.name, a.port, true);
	go_down(breaker, &a);
	check_refused("down again", breaker, &a, 2 * NET_BREAKER_FIRST_MS);
	pass_ms(2 * NET_BREAKER_FIRST_MS + 50);
	go_down(breaker, &a);
	check_refused("no longer than the limit", breaker, &a, 2 * NET_BREAKER_FIRST_MS);
	pass_ms(2 * NET_BREAKER_FIRST_MS + 50);
	enter_alive("back", breaker, &a, true);
	enter_alive("back", breaker, &a, false);
	net_breaker_leave(breaker, a.name, a.port, true);
	/* It was alive in between: the pause starts small. */
	go_down(breaker, &a);
	check_refused("down anew", breaker, &a, NET_BREAKER_FIRST_MS);
	net_breaker_free(breaker);
}
END_TEST

/* While one caller asks a server that was down, the others neither wait nor say anything new. */
START_TEST(test_asked_again)
{
	struct net_breaker *breaker = new_breaker_that_saw(&a);
	bool ask;

	go_down(breaker, &a);
	pass_ms(NET_BREAKER_FIRST_MS + 50);
	check_int("asks", "result", net_breaker_enter(breaker, a.name, a.port, &ask, NULL), 0);
	check_that("asks", "ask", ask);
	check_refused("meanwhile", breaker, &a, NET_BREAKER_FIRST_MS / 3);
	net_breaker_answered(breaker, a.name, a.port);
	enter_alive("answered", breaker, &a, false);
	net_breaker_leave(breaker, a.name, a.port, false);
	net_breaker_leave(breaker, a.name, a.port, false);
	net_breaker_free(breaker);
}
END_TEST

/* A server that has never answered is probably the wrong one: its callers are told at once. */
START_TEST(test_never_seen)
{
	struct net_breaker *breaker = new_breaker();
	struct error why = { .code = ERROR_UNAVAILABLE, .msg = "nobody there" };
	struct error err = { .code = ERROR_OK };
	bool ask;

	check_int("first", "result", net_breaker_enter(breaker, a.name, a.port, &ask, NULL), 0);
	net_breaker_failed(breaker, a.name, a.port, -EHOSTDOWN, &why);
	check_int("first", "retry", why.retry_ms, 0);
	net_breaker_leave(breaker, a.name, a.port, true);
	check_that("second", "refused", net_breaker_enter(breaker, a.name, a.port, &ask, &err) < 0);
	check_str("second", "text", err.msg, "nobody there");
	check_int("second", "retry", err.retry_ms, 0);
	net_breaker_free(breaker);
}
END_TEST

/* Return when a caller may come again after the server, unused so long, was swept and went down. */
static unsigned int retry_ms_after(uint64_t unused_s)
{
	struct error why = { .code = ERROR_UNAVAILABLE, .msg = "nobody there" };
	struct net_breaker *breaker = new_breaker_that_saw(&a);
	bool ask;

	pass_ms(unused_s * 1000);
	net_breaker_sweep(breaker);
	check_int("swept", "result", net_breaker_enter(breaker, a.name, a.port, &ask, NULL), 0);
	net_breaker_failed(breaker, a.name, a.port, -EHOSTDOWN, &why);
	net_breaker_leave(breaker, a.name, a.port, true);
	net_breaker_free(breaker);
	return why.retry_ms;
}

/* Calls for a server that has answered are held though it was not used for hours. */
START_TEST(test_seen_hours_ago)
{
	check_that("hours", "it may be back soon", retry_ms_after(UINT64_C(23) * 3600) > 0);
	check_int("days", "forgotten", retry_ms_after(UINT64_C(25) * 3600), 0);
}
END_TEST

/* Nobody corrects a name within seconds: the pauses go on growing, and no call is held for it. */
START_TEST(test_unknown_name)
{
	struct net_breaker *breaker = new_breaker_that_saw(&a);
	struct error err = { .code = ERROR_OK };
	unsigned int pause_ms;
	bool ask;

	for (pause_ms = NET_BREAKER_FIRST_MS; pause_ms <= 4 * NET_BREAKER_FIRST_MS; pause_ms *= 2) {
		fail_with(breaker, &a, -NET_ENAME);
		pass_ms(pause_ms - 200);
		error_clear(&err);
		check_that("unknown", "refused",
			   net_breaker_enter(breaker, a.name, a.port, &ask, &err) < 0);
		check_str("unknown", "text", err.msg, "nobody there");
		check_int("unknown", "retry", err.retry_ms, 0);
		pass_ms(250);
	}
	enter_alive("known", breaker, &a, true);
	net_breaker_leave(breaker, a.name, a.port, true);
	go_down(breaker, &a);
	check_refused("down", breaker, &a, NET_BREAKER_FIRST_MS);
	net_breaker_free(breaker);
}
END_TEST

START_TEST(test_share)
{
	struct net_breaker *breaker = new_breaker();
	struct error err = { .code = ERROR_OK };
	uint64_t start, took;
	bool ask;
	int i;

	for (i = 0; i < PLACES; i++)
		enter_alive("place", breaker, &a, i == 0);
	pass_ms(NET_BREAKER_FRESH_MS + 50);
	start = clock_now_ns();
	check_int("too many", "result", net_breaker_enter(breaker, a.name, a.port, &ask, &err),
		  -EUSERS);
	took = clock_now_ns() - start;
	check_that("too many", "soon", took < CLOCK_NS_PER_S);
	check_error("too many", &err, ERROR_UNAVAILABLE, "wait for it already");
	check_that("too many", "retry", err.retry_ms > 0);
	enter_alive("other server", breaker, &b, true);
	net_breaker_leave(breaker, a.name, a.port, false);
	enter_alive("a place is free", breaker, &a, false);
	net_breaker_free(breaker);
}
END_TEST

/* A server that answers NULL calls and hangs on all others is not let off by a NULL call. */
START_TEST(test_hung)
{
	struct net_breaker *breaker = new_breaker();
	uint64_t pause_ms = NET_BREAKER_FIRST_MS;
	unsigned int hangs = 7, i;
	bool ask;

	enter_alive("first", breaker, &a, true);
	check_that("first", "proven", !net_breaker_is_proven(breaker, a.name, a.port, &hangs));
	check_int("first", "hangs", hangs, 0);
	net_breaker_proved(breaker, a.name, a.port);
	check_that("proved", "proven", net_breaker_is_proven(breaker, a.name, a.port, &hangs));
	for (i = 1; i <= 12; i++) {
		struct error why = { .code = ERROR_UNAVAILABLE, .msg = "hung" };
		struct error err = { .code = ERROR_OK };

		net_breaker_failed(breaker, a.name, a.port, -ETIMEDOUT, &why);
		net_breaker_failed(breaker, a.name, a.port, -ETIMEDOUT, &why); /* another call */
		check_that("hung", "proven",
			   !net_breaker_is_proven(breaker, a.name, a.port, &hangs));
		check_int("hung", "hangs", hangs, i);
		net_breaker_leave(breaker, a.name, a.port, true);
		pass_ms(pause_ms - 1);
		check_that("pause", "refused",
			   net_breaker_enter(breaker, a.name, a.port, &ask, &err) < 0);
		check_error("pause", &err, ERROR_UNAVAILABLE, "hung");
		pass_ms(1);
		check_int("after it", "result",
			  net_breaker_enter(breaker, a.name, a.port, &ask, NULL), 0);
		check_that("after it", "ask", ask);
		check_that("others", "refused",
			   net_breaker_enter(breaker, a.name, a.port, &ask, NULL) < 0);
		pause_ms = pause_ms * 2 < NET_BREAKER_HUNG_LAST_MS ? pause_ms * 2
								   : NET_BREAKER_HUNG_LAST_MS;
	}
	net_breaker_proved(breaker, a.name, a.port);
	check_that("at last", "proven", net_breaker_is_proven(breaker, a.name, a.port, &hangs));
	check_int("at last", "hangs", hangs, 0);
	enter_alive("at last", breaker, &a, false);
	net_breaker_leave(breaker, a.name, a.port, false);
	net_breaker_leave(breaker, a.name, a.port, false);
	net_breaker_free(breaker);
}
END_TEST

struct queue {
	struct net_breaker *breaker;
	atomic_int entered, refused;
};

static void *wait_for_place(void *data)
{
	struct queue *q = data;
	bool ask;
	int r = net_breaker_enter(q->breaker, a.name, a.port, &ask, NULL);

	if (r < 0)
		check_int("waiter", "result", r, -EUSERS);
	(*(r < 0 ? &q->refused : &q->entered))++;
	return NULL;
}

/* Take all places of a, and have n threads wait for one. */
static void start_waiters(struct queue *q, pthread_t *waiters, size_t n)
{
	size_t i;

	many_threads = true;
	for (i = 0; i < PLACES; i++)
		enter_alive("place", q->breaker, &a, i == 0);
	for (i = 0; i < n; i++)
		check_int("thread", "result", pthread_create(&waiters[i], NULL, wait_for_place, q),
			  0);
}

#define BURST_MS 40

/* Places that were taken together are given together: the time since then does not count alone. */
static void refuse_between_bursts(struct net_breaker *breaker)
{
	struct error err[2] = { { .code = ERROR_OK }, { .code = ERROR_OK } };
	bool ask;
	int i;

	pass_ms(BURST_MS);
	for (i = 0; i < 2; i++)
		check_int("burst", "result",
			  net_breaker_enter(breaker, a.name, a.port, &ask, &err[i]), -EUSERS);
	check_that("burst", "the next turn comes soon", err[1].retry_ms - err[0].retry_ms <= 4);
}

/* More callers come back later, one after another, and so no more often. */
static void refuse_many(struct net_breaker *breaker)
{
	unsigned int last = 0, within_50 = 0, i;
	struct error err;
	bool ask;

	for (i = 0; i < 100 * PLACES; i++) {
		error_clear(&err);
		check_int("many", "result", net_breaker_enter(breaker, a.name, a.port, &ask, &err),
			  -EUSERS);
		check_that("many", "crowd", err.wait == ERROR_WAIT_PLACE);
		check_int("many", "check", net_breaker_check(breaker, a.name, a.port, NULL),
			  -EUSERS);
		check_that("many", "in turn", err.retry_ms >= last && err.retry_ms <= 2000);
		within_50 += err.retry_ms < 100;
		last = err.retry_ms;
	}
	check_that("many", "as many as there are places", within_50 <= PLACES + 1);
	check_int("many", "last", (int)last, 2000);
	/* The server still counts as alive, or those that wait would be refused. */
	pass_ms(NET_BREAKER_FRESH_MS - BURST_MS - 1);
	error_clear(&err);
	check_int("later", "result", net_breaker_enter(breaker, a.name, a.port, &ask, &err),
		  -EUSERS);
	check_that("later", "soon", err.retry_ms <= 100);
	last = err.retry_ms;
	error_clear(&err);
	check_int("slow", "result", net_breaker_enter(breaker, a.name, a.port, &ask, &err),
		  -EUSERS);
	check_int("slow", "retry", (int)err.retry_ms, (int)last + 50);
}

/* As many callers as there are places may wait for a server that answers. */
START_TEST(test_full)
{
	struct queue q = { .breaker = new_breaker() };
	struct error err = { .code = ERROR_OK };
	pthread_t waiters[PLACES + 1];
	bool ask;
	size_t i;

	start_waiters(&q, waiters, ARRAY_SIZE(waiters));
	while (q.refused == 0)
		sleep_ms(1);
	/* The others wait. */
	check_int("one more", "result", net_breaker_enter(q.breaker, a.name, a.port, &ask, &err),
		  -EUSERS);
	check_error("one more", &err, ERROR_UNAVAILABLE, "wait for it already");
	check_that("one more", "retry", err.retry_ms > 0);
	check_int("unmount", "result", net_breaker_take(q.breaker, a.name, a.port, NULL), -EUSERS);
	refuse_between_bursts(q.breaker);
	refuse_many(q.breaker);
	enter_alive("other server", q.breaker, &b, true);
	for (i = 0; i < PLACES; i++)
		net_breaker_leave(q.breaker, a.name, a.port, false);
	for (i = 0; i < ARRAY_SIZE(waiters); i++)
		pthread_join(waiters[i], NULL);
	many_threads = false;
	check_int("full", "entered", q.entered, PLACES);
	check_int("full", "refused", q.refused, 1);
	net_breaker_free(q.breaker);
}
END_TEST

/* Wait for what other threads do, however slow the machine is. */
static void await(const atomic_int *what, int least)
{
	int ms;

	for (ms = 0; ms < 20000 && *what < least; ms++)
		sleep_ms(1);
}

#define SLOW_SERVERS 20

/* Enter each server in turn until it refuses. Return how many got in. */
static unsigned int fill(struct net_breaker *breaker, const struct server *servers, size_t n)
{
	unsigned int entered[SLOW_SERVERS] = { 0 }, total = 0, last, i;

	do {
		last = total;
		for (i = 0; i < n; i++) {
			struct error err = { .code = ERROR_OK };
			bool ask;

			if (entered[i] == PLACES)
				continue;
			if (net_breaker_enter(breaker, servers[i].name, servers[i].port, &ask,
					      &err) < 0) {
				check_error("full", &err, ERROR_UNAVAILABLE, "wait for it already");
				check_that("full", "crowd", err.wait == ERROR_WAIT_PLACE);
				continue;
			}
			if (ask)
				net_breaker_answered(breaker, servers[i].name, servers[i].port);
			entered[i]++;
			total++;
		}
	} while (total > last);
	for (i = 0; i < n; i++)
		check_that("each", "has some", entered[i] > 0);
	return total;
}

/* However many servers are slow, they leave a worker to one more, and nobody waits meanwhile. */
START_TEST(test_many_slow_servers)
{
	static const struct server last = { "last", 0 };
	struct server servers[SLOW_SERVERS];
	const uint64_t begun = clock_now_ns();
	uint16_t i;
	size_t n;

	for (i = 0; i < SLOW_SERVERS; i++)
		servers[i] = (struct server){ "slow", (uint16_t)(1000 + i) };
	for (n = 2; n <= SLOW_SERVERS; n++) {
		struct net_breaker *breaker = new_breaker();
		const unsigned int entered = fill(breaker, servers, n);

		check_that("slow servers", "have most", entered > PLACES);
		check_that("slow servers", "leave some", entered < 3 * PLACES);
		enter_alive("last", breaker, &last, true);
		net_breaker_free(breaker);
	}
	check_int("nobody", "waited", clock_now_ns() - begun, 0);
}
END_TEST

#define COPIES 3 /* on one server at a time */
#define PLACES_OF_COPY 4
#define LEFT_BY_TWO 11 /* that have all their places */

/* Make the calls of copies enter, each of which takes one worker and more places. */
static void enter_copies(struct net_breaker *breaker, const struct server *s)
{
	unsigned int i;

	for (i = 0; i < COPIES * PLACES_OF_COPY; i++) {
		enter_alive("copy", breaker, s, i == 0);
		if (i % PLACES_OF_COPY != 0)
			net_breaker_spare(breaker, s->name, s->port, true);
	}
}

static void leave_copies(struct net_breaker *breaker, const struct server *s)
{
	unsigned int i;

	for (i = 0; i < COPIES * PLACES_OF_COPY; i++) {
		if (i % PLACES_OF_COPY != 0)
			net_breaker_spare(breaker, s->name, s->port, false);
		net_breaker_leave(breaker, s->name, s->port, false);
	}
}

/* Places that occupy no worker keep nobody from their server, nor from others. */
START_TEST(test_spare)
{
	struct server servers[SLOW_SERVERS];
	struct net_breaker *breaker;
	uint16_t i;
	size_t n;

	for (i = 0; i < SLOW_SERVERS; i++)
		servers[i] = (struct server){ "slow", (uint16_t)(1000 + i) };
	for (n = 2; n <= 6; n++) {
		breaker = new_breaker();
		enter_copies(breaker, &a);
		check_that("slow servers", "have most", fill(breaker, servers, n) > PLACES);
		enter_alive("beside copies", breaker, &a, false);
		net_breaker_free(breaker);
	}
	breaker = new_breaker();
	enter_copies(breaker, &a);
	enter_copies(breaker, &b);
	check_int("one server", "places", fill(breaker, servers, 1), PLACES);
	leave_copies(breaker, &a);
	leave_copies(breaker, &b);
	check_int("a second", "places", fill(breaker, &servers[1], 1), PLACES);
	check_int("a third", "places", fill(breaker, &servers[2], 1), LEFT_BY_TWO);
	net_breaker_free(breaker);
}
END_TEST

/* The last worker is not one that waits. */
START_TEST(test_waiters_leave)
{
	static const struct server others[] = {
		{ "slow", 1 }, { "slow", 2 }, { "slow", 3 }, { "slow", 4 }
	};
	struct queue q = { .breaker = new_breaker() };
	pthread_t waiters[PLACES];
	size_t i;

	start_waiters(&q, waiters, ARRAY_SIZE(waiters));
	while (net_breaker_check(q.breaker, a.name, a.port, NULL) == 0) /* until all wait */
		sleep_ms(1);
	check_int("others", "leave", PLACES - fill(q.breaker, others, ARRAY_SIZE(others)), 1);
	enter_alive("last", q.breaker, &b, true);
	net_breaker_answered(q.breaker, b.name, b.port); /* wakes them */
	await(&q.refused, 1);
	check_that("waiters", "leave", q.refused >= 1);
	for (i = 0; i < PLACES; i++)
		net_breaker_leave(q.breaker, a.name, a.port, false);
	for (i = 0; i < ARRAY_SIZE(waiters); i++)
		pthread_join(waiters[i], NULL);
	many_threads = false;
	net_breaker_free(q.breaker);
}
END_TEST

struct crowd {
	struct net_breaker *breaker;
	atomic_int inside, most, asking, refused;
};

static void *visit(void *data)
{
	struct crowd *c = data;
	bool ask;
	int n, most;

	for (;;) {
		int r = net_breaker_enter(c->breaker, a.name, a.port, &ask, NULL);

		if (r == 0)
			break;
		check_int("visitor", "result", r, -EUSERS);
		c->refused++;
		sleep_ms(10);
	}
	if (ask) {
		check_int("visitor", "others that ask", c->asking++, 0);
		await(&c->refused, 1);
		c->asking--;
		net_breaker_answered(c->breaker, a.name, a.port);
	}
	n = ++c->inside;
	most = atomic_load(&c->most);
	while (n > most && !atomic_compare_exchange_weak(&c->most, &most, n))
		;
	await(&c->most, 2);
	c->inside--;
	net_breaker_leave(c->breaker, a.name, a.port, false);
	return NULL;
}

/* The caller that asks does not come back for a while. */
START_TEST(test_no_verdict)
{
	struct net_breaker *breaker = new_breaker();
	struct error err = { .code = ERROR_OK };
	bool ask = false;

	check_int("asker", "result", net_breaker_enter(breaker, a.name, a.port, &ask, &err), 0);
	check_that("asker", "ask", ask);
	check_int("waiter", "result", net_breaker_enter(breaker, a.name, a.port, &ask, &err),
		  -EUSERS);
	check_error("waiter", &err, ERROR_UNAVAILABLE, "not known yet");
	net_breaker_gave_up(breaker, a.name, a.port);
	net_breaker_leave(breaker, a.name, a.port, true);
	error_clear(&err);
	enter_alive("after it", breaker, &a, true);
	net_breaker_leave(breaker, a.name, a.port, false);
	net_breaker_free(breaker);
}
END_TEST

/* One caller asks, some wait for the result or for a place, and all have their turn. */
START_TEST(test_crowd)
{
	struct crowd c = { .breaker = new_breaker() };
	pthread_t threads[4 * PLACES];
	size_t i;

	many_threads = true;
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		check_int("thread", "result", pthread_create(&threads[i], NULL, visit, &c), 0);
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	many_threads = false; /* for the next test, if they share a process */
	check_that("crowd", "some had to come again", c.refused > 0);
	check_that("crowd", "no more than the share at once", c.most <= PLACES);
	check_that("crowd", "several at once", c.most > 1);
	net_breaker_free(c.breaker);
}
END_TEST

CHECK_MAIN("breaker", .loops = { { test_transitions, ARRAY_SIZE(transitions) } },
	   .tests = {
		   test_sweep_of_a_server_in_use,
		   test_alive,
		   test_down,
		   test_asked_again,
		   test_never_seen,
		   test_seen_hours_ago,
		   test_unknown_name,
		   test_share,
		   test_full,
		   test_many_slow_servers,
		   test_spare,
		   test_waiters_leave,
		   test_hung,
		   test_crowd,
		   test_no_verdict,
	   })
