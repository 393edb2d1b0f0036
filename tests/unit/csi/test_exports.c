/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <time.h>

#include "base/clock.h"
#include "csi/exports.h"
#include "check_util.h"

/* The clock stands still, and goes on by pass_s(). */
#define START_NS (1000 * CLOCK_NS_PER_S)
static uint64_t now_ns = START_NS;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (id != CLOCK_MONOTONIC)
		return check_real_clock(id, ts);
	ts->tv_sec = (time_t)(now_ns / CLOCK_NS_PER_S);
	ts->tv_nsec = (long)(now_ns % CLOCK_NS_PER_S);
	return 0;
}

static void pass_s(uint64_t s)
{
	now_ns += s * CLOCK_NS_PER_S;
}

#define DAY 86400
#define HALF_HOUR 1800

static void check_listed(const char *row, struct known_exports *known, size_t expected)
{
	struct nfs_export *list;
	size_t n;

	ck_assert(known_exports_list(known, &list, &n) == 0);
	check_int(row, "exports", n, expected);
	known_exports_list_free(list, n);
}

/* A list that fails every half hour. */
static void fail_for_s(struct known_exports *known, const struct nfs_export *e, uint64_t s)
{
	uint64_t passed;

	known_exports_fail(known, e);
	for (passed = 0; passed < s; passed += HALF_HOUR) {
		pass_s(s - passed < HALF_HOUR ? s - passed : HALF_HOUR);
		known_exports_fail(known, e);
	}
}

/* An export that lists did not reach for a day is not listed, until a call works on it again. */
START_TEST(test_gone)
{
	char server[] = "s", gone[] = "/gone", there[] = "/there";
	const struct nfs_export a = { .server = server, .share = gone, .port = 12049 };
	const struct nfs_export b = { .server = server, .share = there };
	struct nfs_export e = { .server = server, .share = gone };
	struct known_exports *known;

	ck_assert(known_exports_new(&known) == 0);
	known_exports_fail(known, &a); /* nobody knows it */
	known_exports_reach(known, &a);
	known_exports_remember(known, &a);
	known_exports_reach(known, &b);
	known_exports_remember(known, &b);
	pass_s(2 * DAY); /* without a list */
	known_exports_fail(known, &a);
	check_listed("first failure", known, 2);
	pass_s(DAY + 1);
	known_exports_fail(known, &a);
	check_listed("two outages", known, 2);
	fail_for_s(known, &a, DAY);
	check_listed("for a day", known, 2);
	known_exports_reach(known, &a);
	pass_s(1);
	fail_for_s(known, &a, DAY);
	check_listed("reached meanwhile", known, 2);
	pass_s(1);
	known_exports_fail(known, &a);
	check_listed("for more than a day", known, 1);
	check_that("gone", "is known to have been there", known_exports_have(known, &a));
	known_exports_apply(known, &e);
	check_int("gone", "port of calls without options", e.port, 12049);
	known_exports_reach(known, &a);
	check_listed("reached", known, 1);
	known_exports_remember(known, &a);
	check_listed("used", known, 2);
	known_exports_free(known);
	now_ns = START_NS; /* Check cannot take more than 35 minutes */
}
END_TEST

CHECK_MAIN("exports", .tests = { test_gone })
