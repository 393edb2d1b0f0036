/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "check_util.h"
#include "nfs/breaker.h"

static char server_a[] = "a", server_b[] = "b", share[] = "/";
static const struct nfs_export a = { .server = server_a, .share = share };
static const struct nfs_export a_port = { .server = server_a, .share = share, .port = 1234 };
static const struct nfs_export b = { .server = server_b, .share = share };

static void sleep_ms(long ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	(void)nanosleep(&ts, NULL);
}

static struct nfs_breaker *new_breaker(void)
{
	struct nfs_breaker *x;

	check_int("new", "result", nfs_breaker_new(&x), 0);
	return x;
}

/* Enters, and finds the server alive where that is asked for. */
static void enter_alive(const char *row, struct nfs_breaker *x, const struct nfs_export *e,
			bool want_ask)
{
	struct error err = { .code = ERROR_OK };
	bool ask;

	check_int(row, "result", nfs_breaker_enter(x, e, &ask, &err), 0);
	check_int(row, "ask", ask, want_ask);
	if (ask)
		nfs_breaker_answered(x, e);
}

static void go_down(struct nfs_breaker *x, const struct nfs_export *e)
{
	const struct error why = { .code = ERROR_UNAVAILABLE, .msg = "nobody there" };
	bool ask = false;

	check_int("fail", "result", nfs_breaker_enter(x, e, &ask, NULL), 0);
	check_that("fail", "ask", ask);
	nfs_breaker_failed(x, e, &why);
	nfs_breaker_leave(x, e, true);
}

START_TEST(test_alive)
{
	struct nfs_breaker *x = new_breaker();

	enter_alive("first", x, &a, true);
	enter_alive("second", x, &a, false);
	enter_alive("other server", x, &b, true);
	enter_alive("other port", x, &a_port, true);
	nfs_breaker_leave(x, &a, false);
	nfs_breaker_leave(x, &a, true);
	enter_alive("after silence", x, &a, true);
	nfs_breaker_leave(x, &a, false);
	sleep_ms(NFS_BREAKER_FRESH_MS + 50);
	enter_alive("after a pause", x, &a, true);
	nfs_breaker_leave(x, &a, false);
	nfs_breaker_sweep(x);
	enter_alive("kept", x, &a, false);
	nfs_breaker_free(x);
	nfs_breaker_free(NULL);
}
END_TEST

START_TEST(test_down)
{
	struct nfs_breaker *x = new_breaker();
	struct error err = { .code = ERROR_OK };
	uint64_t start;
	bool ask;

	go_down(x, &a);
	start = clock_now_ns();
	check_int("down", "result", nfs_breaker_enter(x, &a, &ask, &err) < 0, 1);
	check_that("down", "at once", clock_now_ns() - start < 100 * CLOCK_NS_PER_MS);
	check_error("down", &err, ERROR_UNAVAILABLE, "nobody there; it will be tried again in 1 s");
	enter_alive("other server", x, &b, true);
	sleep_ms(NFS_BREAKER_FIRST_MS + 50);
	go_down(x, &a);
	error_clear(&err);
	(void)nfs_breaker_enter(x, &a, &ask, &err);
	check_error("down again", &err, ERROR_UNAVAILABLE, "in 2 s");
	sleep_ms(2 * NFS_BREAKER_FIRST_MS + 50);
	enter_alive("back", x, &a, true);
	enter_alive("back", x, &a, false);
	nfs_breaker_leave(x, &a, true);
	/* It was alive in between: the pause starts small. */
	go_down(x, &a);
	error_clear(&err);
	(void)nfs_breaker_enter(x, &a, &ask, &err);
	check_error("down anew", &err, ERROR_UNAVAILABLE, "in 1 s");
	nfs_breaker_free(x);
}
END_TEST

START_TEST(test_share)
{
	struct nfs_breaker *x = new_breaker();
	struct error err = { .code = ERROR_OK };
	uint64_t start, took;
	bool ask;
	int i;

	for (i = 0; i < NFS_SERVER_SHARE; i++)
		enter_alive("place", x, &a, i == 0);
	sleep_ms(NFS_BREAKER_FRESH_MS + 50);
	start = clock_now_ns();
	check_that("too many", "refused", nfs_breaker_enter(x, &a, &ask, &err) < 0);
	took = clock_now_ns() - start;
	check_that("too many", "soon", took < CLOCK_NS_PER_S);
	check_error("too many", &err, ERROR_UNAVAILABLE, "wait for it already");
	enter_alive("other server", x, &b, true);
	nfs_breaker_leave(x, &a, false);
	enter_alive("a place is free", x, &a, false);
	nfs_breaker_free(x);
}
END_TEST

struct crowd {
	struct nfs_breaker *x;
	atomic_int inside, most, asked, refused;
};

static void *visit(void *data)
{
	struct crowd *c = data;
	bool ask;
	int n, most;

	if (nfs_breaker_enter(c->x, &a, &ask, NULL) < 0) {
		c->refused++;
		return NULL;
	}
	if (ask) {
		c->asked++;
		sleep_ms(100);
		nfs_breaker_answered(c->x, &a);
	}
	n = ++c->inside;
	most = atomic_load(&c->most);
	while (n > most && !atomic_compare_exchange_weak(&c->most, &most, n))
		;
	sleep_ms(20);
	c->inside--;
	nfs_breaker_leave(c->x, &a, false);
	return NULL;
}

/* One asks, the others wait for what it finds, and all have their turn. */
START_TEST(test_crowd)
{
	struct crowd c = { .x = new_breaker() };
	pthread_t threads[4 * NFS_SERVER_SHARE];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(threads); i++)
		check_int("thread", "result", pthread_create(&threads[i], NULL, visit, &c), 0);
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	check_int("crowd", "refused", c.refused, 0);
	check_int("crowd", "asked", c.asked, 1);
	check_that("crowd", "no more than the share at once", c.most <= NFS_SERVER_SHARE);
	check_that("crowd", "several at once", c.most > 1);
	nfs_breaker_free(c.x);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { test_alive, test_down, test_share, test_crowd };

	return check_run("breaker", tests, ARRAY_SIZE(tests));
}
