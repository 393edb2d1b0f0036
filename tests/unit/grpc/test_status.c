/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <string.h>

#include "base/str.h"
#include "grpc/status.h"
#include "check_util.h"

static const struct {
	const char *name;
	const char *message;
	size_t size; /* of the output, terminator included */
	const char *want;
} messages[] = {
	{ "empty", "", 100, "" },
	{ "plain", "no such volume: a/b (1)", 100, "no such volume: a/b (1)" },
	{ "all of printable ASCII's edges", " ~", 100, " ~" },
	{ "percent", "100% %41", 100, "100%25 %2541" },
	{ "control characters", "a\nb\tc\x7f", 100, "a%0Ab%09c%7F" },
	{ "two bytes", "h\xc3\xa4", 100, "h%C3%A4" },
	{ "three bytes", "\xe2\x82\xac", 100, "%E2%82%AC" },
	{ "four bytes", "\xf0\x9f\x98\x80!", 100, "%F0%9F%98%80!" },
	{ "invalid byte",
	  "a\xff"
	  "b",
	  100, "a%EF%BF%BDb" },
	{ "lone continuation", "\x80x", 100, "%EF%BF%BDx" },
	{ "surrogate", "\xed\xa0\x80x", 100, "%EF%BF%BD%EF%BF%BD%EF%BF%BDx" },
	{ "overlong", "\xc0\xafx", 100, "%EF%BF%BD%EF%BF%BDx" },
	{ "two bytes cut at the end", "a\xc3", 100, "a" },
	{ "three bytes cut at the end", "a\xe2\x82", 100, "a" },
	{ "four bytes cut at the end", "a\xf0\x9f\x98", 100, "a" },
	{ "four bytes cut after the first", "a\xf0", 100, "a" },
	{ "invalid at the end, not cut", "a\xff", 100, "a%EF%BF%BD" },
	{ "fits exactly", "abc", 4, "abc" },
	{ "one too long", "abcd", 4, "abc" },
	{ "escape fits exactly", "a%", 5, "a%25" },
	{ "escape does not fit", "a%", 4, "a" },
	{ "no half characters", "a\xc3\xa4", 7, "a" },
	{ "character fits exactly", "a\xc3\xa4", 8, "a%C3%A4" },
	{ "room for nothing", "abc", 1, "" },
};

START_TEST(test_message)
{
	char out[128];
	size_t len;

	memset(out, 'z', sizeof(out));
	len = grpc_status_message(messages[_i].message, out, messages[_i].size);
	ck_assert_msg(strcmp(out, messages[_i].want) == 0 && len == strlen(out),
		      "%s: got '%s' (%zu), want '%s'", messages[_i].name, out, len,
		      messages[_i].want);
}
END_TEST

START_TEST(test_longest_message)
{
	char message[ERROR_MESSAGE_SIZE], out[GRPC_STATUS_MESSAGE_SIZE];

	memset(message, 0xff, sizeof(message)); /* each takes nine bytes encoded */
	message[sizeof(message) - 1] = '\0';
	ck_assert_uint_le(grpc_status_message(message, out, sizeof(out)), GRPC_STATUS_MESSAGE_MAX);
	memset(message, '\n', sizeof(message) - 1);
	ck_assert_uint_eq(grpc_status_message(message, out, sizeof(out)),
			  3 * (sizeof(message) - 1));
}
END_TEST

static const struct {
	enum error_code code;
	const char *text;
	enum log_level level;
} codes[] = {
	{ ERROR_OK, "0", LOG_LEVEL_DEBUG },
	{ ERROR_CANCELLED, "1", LOG_LEVEL_INFO },
	{ ERROR_UNKNOWN, "2", LOG_LEVEL_WARN },
	{ ERROR_INVALID_ARGUMENT, "3", LOG_LEVEL_INFO },
	{ ERROR_DEADLINE_EXCEEDED, "4", LOG_LEVEL_WARN },
	{ ERROR_NOT_FOUND, "5", LOG_LEVEL_INFO },
	{ ERROR_ALREADY_EXISTS, "6", LOG_LEVEL_INFO },
	{ ERROR_RESOURCE_EXHAUSTED, "8", LOG_LEVEL_WARN },
	{ ERROR_UNIMPLEMENTED, "12", LOG_LEVEL_INFO },
	{ ERROR_INTERNAL, "13", LOG_LEVEL_WARN },
	{ ERROR_UNAVAILABLE, "14", LOG_LEVEL_WARN },
	{ ERROR_UNAUTHENTICATED, "16", LOG_LEVEL_WARN },
	{ (enum error_code)17, "2", LOG_LEVEL_WARN },
	{ (enum error_code)4000000000U, "2", LOG_LEVEL_WARN },
};

START_TEST(test_code)
{
	char text[GRPC_STATUS_CODE_SIZE];

	grpc_status_code(codes[_i].code, text);
	ck_assert_str_eq(text, codes[_i].text);
	ck_assert_int_eq(grpc_status_log_level(codes[_i].code), codes[_i].level);
}
END_TEST

CHECK_MAIN("grpc_status", .tests = { test_longest_message },
	   .loops = { { test_message, ARRAY_SIZE(messages) }, { test_code, ARRAY_SIZE(codes) } })
