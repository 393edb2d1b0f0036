/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "grpc/timeout.h"
#include "check_util.h"

#define UNTOUCHED 12345

static const struct {
	const char *name;
	const char *text;
	int r;
	uint64_t ns;
} rows[] = {
	{ "hours", "2H", 0, 7200 * CLOCK_NS_PER_S },
	{ "minutes", "3M", 0, 180 * CLOCK_NS_PER_S },
	{ "seconds", "5S", 0, 5 * CLOCK_NS_PER_S },
	{ "milliseconds", "9999m", 0, 9999 * CLOCK_NS_PER_MS },
	{ "microseconds", "99999999u", 0, UINT64_C(99999999000) },
	{ "nanoseconds", "1n", 0, 1 },
	{ "zero", "0n", 0, 0 },
	{ "leading zeros", "00000001S", 0, CLOCK_NS_PER_S },
	{ "largest that fits", "5124095H", 0, UINT64_C(5124095) * 3600 * CLOCK_NS_PER_S },
	{ "smallest that does not", "5124096H", 0, UINT64_MAX },
	{ "largest of all", "99999999H", 0, UINT64_MAX },
	{ "empty", "", -EINVAL, UNTOUCHED },
	{ "no unit", "10", -EINVAL, UNTOUCHED },
	{ "no digits", "S", -EINVAL, UNTOUCHED },
	{ "nine digits", "123456789S", -EINVAL, UNTOUCHED },
	{ "sign", "-1S", -EINVAL, UNTOUCHED },
	{ "plus", "+1S", -EINVAL, UNTOUCHED },
	{ "space", " 1S", -EINVAL, UNTOUCHED },
	{ "fraction", "1.5S", -EINVAL, UNTOUCHED },
	{ "wrong unit", "1s", -EINVAL, UNTOUCHED },
	{ "two units", "1SS", -EINVAL, UNTOUCHED },
	{ "hexadecimal", "0x1S", -EINVAL, UNTOUCHED },
};

START_TEST(test_parse)
{
	uint64_t ns = UNTOUCHED;
	int r = grpc_timeout_parse(rows[_i].text, strlen(rows[_i].text), &ns);

	ck_assert_msg(r == rows[_i].r && ns == rows[_i].ns,
		      "%s: got %d, %" PRIu64 ", want %d, %" PRIu64, rows[_i].name, r, ns,
		      rows[_i].r, rows[_i].ns);
}
END_TEST

START_TEST(test_length_counts)
{
	uint64_t ns = 0;

	ck_assert_int_eq(grpc_timeout_parse("5Sxyz", 2, &ns), 0);
	ck_assert_uint_eq(ns, 5 * CLOCK_NS_PER_S);
	ck_assert_int_eq(grpc_timeout_parse("5\0S", 3, &ns), -EINVAL);
}
END_TEST

START_TEST(test_deadline)
{
	ck_assert_uint_eq(grpc_timeout_deadline(100, 23), 123);
	ck_assert_uint_eq(grpc_timeout_deadline(100, UINT64_MAX), UINT64_MAX);
	ck_assert_uint_eq(grpc_timeout_deadline(0, 0), 1); /* 0 would mean: none */
}
END_TEST

CHECK_MAIN("grpc_timeout", .tests = { test_length_counts, test_deadline },
	   .loops = { { test_parse, ARRAY_SIZE(rows) } })
