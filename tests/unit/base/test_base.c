/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "check_util.h"

START_TEST(test_error_codes)
{
	static const struct {
		const char *name;
		enum error_code code;
		int number;
		int sys;
	} rows[] = {
		{ "OK", ERROR_OK, 0, EINVAL },
		{ "CANCELLED", ERROR_CANCELLED, 1, ECANCELED },
		{ "UNKNOWN", ERROR_UNKNOWN, 2, EIO },
		{ "INVALID_ARGUMENT", ERROR_INVALID_ARGUMENT, 3, EINVAL },
		{ "DEADLINE_EXCEEDED", ERROR_DEADLINE_EXCEEDED, 4, ETIMEDOUT },
		{ "NOT_FOUND", ERROR_NOT_FOUND, 5, ENOENT },
		{ "ALREADY_EXISTS", ERROR_ALREADY_EXISTS, 6, EEXIST },
		{ "PERMISSION_DENIED", ERROR_PERMISSION_DENIED, 7, EACCES },
		{ "RESOURCE_EXHAUSTED", ERROR_RESOURCE_EXHAUSTED, 8, ENOSPC },
		{ "FAILED_PRECONDITION", ERROR_FAILED_PRECONDITION, 9, 0 },
		{ "ABORTED", ERROR_ABORTED, 10, EAGAIN },
		{ "OUT_OF_RANGE", ERROR_OUT_OF_RANGE, 11, ERANGE },
		{ "UNIMPLEMENTED", ERROR_UNIMPLEMENTED, 12, ENOSYS },
		{ "INTERNAL", ERROR_INTERNAL, 13, EIO },
		{ "UNAVAILABLE", ERROR_UNAVAILABLE, 14, EHOSTUNREACH },
		{ "DATA_LOSS", ERROR_DATA_LOSS, 15, EIO },
		{ "UNAUTHENTICATED", ERROR_UNAUTHENTICATED, 16, EPERM },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };
		int r = error_set(&err, rows[i].code, "text");

		check_int(rows[i].name, "number", rows[i].code, rows[i].number);
		check_str(rows[i].name, "name", error_code_name(rows[i].code), rows[i].name);
		check_that(rows[i].name, "error_set() returns a negative errno", r < 0);
		if (rows[i].sys != 0)
			check_int(rows[i].name, "errno", r, -rows[i].sys);
	}
	check_str("outside", "name", error_code_name((enum error_code)17), "UNKNOWN");
	check_str("negative", "name", error_code_name((enum error_code) - 1), "UNKNOWN");
}
END_TEST

START_TEST(test_error_first_wins)
{
	struct error err = { .code = ERROR_OK };

	check_int("NULL", "result", error_set(NULL, ERROR_NOT_FOUND, "x"), -ENOENT);
	error_prefix(NULL, "x");
	error_clear(NULL);
	error_prefix(&err, "nothing");
	check_str("prefix without error", "message", err.msg, "");
	(void)error_set(&err, ERROR_NOT_FOUND, "no %s", "pvc-1");
	check_int("second", "result", error_set(&err, ERROR_INTERNAL, "later"), -EIO);
	check_error("second", &err, ERROR_NOT_FOUND, "no pvc-1");
	check_int("second system error", "result", error_sys(&err, ERROR_INTERNAL, EIO, "later"),
		  -EIO);
	check_str("second system error", "message", err.msg, "no pvc-1");
	error_prefix(&err, "on %s", "server");
	check_str("prefix", "message", err.msg, "on server: no pvc-1");
	error_clear(&err);
	check_int("cleared", "code", err.code, ERROR_OK);
	check_int("system error", "result", error_sys(&err, ERROR_INTERNAL, ENOENT, "open"),
		  -ENOENT);
	check_int("system error", "sys", err.sys, ENOENT);
	check_error("system error", &err, ERROR_INTERNAL, "open: No such file");
	error_clear(&err);
	check_int("memory", "result", error_oom(&err), -ENOMEM);
	check_error("memory", &err, ERROR_RESOURCE_EXHAUSTED, "memory");
}
END_TEST

START_TEST(test_error_long)
{
	cleanup_free char *text = check_repeat("x", 3 * ERROR_MESSAGE_SIZE);
	struct error err = { .code = ERROR_OK };

	(void)error_sys(&err, ERROR_INTERNAL, EIO, "%s", text);
	check_int("system error", "length", strlen(err.msg), ERROR_MESSAGE_SIZE - 1);
	error_prefix(&err, "front");
	check_int("prefix", "length", strlen(err.msg), ERROR_MESSAGE_SIZE - 1);
	check_that("prefix", "it is in front", str_has_prefix(err.msg, "front: xxx"));
	error_prefix(&err, "%s", text);
	check_int("long prefix", "length", strlen(err.msg), ERROR_MESSAGE_SIZE - 1);
}
END_TEST

/* Of three lengths, one is cut between characters and two are cut within one. */
START_TEST(test_error_is_utf8)
{
	cleanup_free char *text = check_repeat("\xe6\xbc\xa2", ERROR_MESSAGE_SIZE);
	struct error err = { .code = ERROR_OK };
	size_t i;

	(void)error_set(&err, ERROR_NOT_FOUND, "no '%s'", "caf\xe9/\xc3\xa4");
	check_str("other bytes", "message", err.msg, "no 'caf?/\xc3\xa4'");
	for (i = 0; i < 3; i++) {
		error_clear(&err);
		(void)error_set(&err, ERROR_NOT_FOUND, "%s%s", &"xx"[i], text);
		check_that("cut", "UTF-8", str_is_utf8(err.msg, strlen(err.msg)));
		check_that("cut", "at the end", strlen(err.msg) > ERROR_MESSAGE_SIZE - 4);
		error_prefix(&err, "%s", &"xx"[i]);
		check_that("prefix", "UTF-8", str_is_utf8(err.msg, strlen(err.msg)));
		error_prefix(&err, "%s%s", &"xx"[i], text);
		check_that("long prefix", "UTF-8", str_is_utf8(err.msg, strlen(err.msg)));
		error_clear(&err);
		(void)error_sys(&err, ERROR_INTERNAL, EIO, "%s%s", &"xx"[i], text);
		check_that("system error", "UTF-8", str_is_utf8(err.msg, strlen(err.msg)));
	}
}
END_TEST

START_TEST(test_buf_limits)
{
	volatile size_t huge = SIZE_MAX - 1; /* the compiler is not to see it */
	struct buf b = { .max = 10 };
	char *text;

	check_int("fits", "result", buf_puts(&b, "01234"), 0);
	check_int("fits exactly", "result", buf_printf(&b, "%d", 56789), 0);
	check_int("one more", "result", buf_append(&b, "x", 1), -EMSGSIZE);
	check_int("one more, formatted", "result", buf_printf(&b, "x"), -EMSGSIZE);
	check_int("nothing more", "result", buf_append(&b, NULL, 0), 0);
	check_str("full", "text", b.data, "0123456789");
	text = buf_steal(&b);
	check_str("stolen", "text", text, "0123456789");
	check_that("stolen", "the buffer is empty", b.data == NULL && b.len == 0);
	check_int("stolen", "limit", b.max, 10);
	free(text);
	text = buf_steal(&b);
	check_str("stolen empty", "text", text, "");
	free(text);
	check_int("huge", "result", buf_append(&b, "x", huge), -ENOMEM);
	buf_done(&b);
	buf_done(&b);
}
END_TEST

START_TEST(test_buf_growth)
{
	struct buf b = { 0 };
	size_t i;

	for (i = 0; i < 10000; i++)
		check_int("growth", "result", buf_append(&b, &"0123456789"[i % 10], 1), 0);
	check_int("growth", "length", b.len, 10000);
	check_int("growth", "terminator", b.data[10000], 0);
	for (i = 0; i < 10000; i++)
		check_int("growth", "byte", b.data[i], "0123456789"[i % 10]);
	buf_done(&b);
	check_int("bytes", "result", buf_append(&b, "a\0b", 3), 0);
	check_int("bytes", "same", memcmp(b.data, "a\0b", 4), 0);
	buf_done(&b);
}
END_TEST

START_TEST(test_str_numbers)
{
	static const struct {
		const char *name;
		const char *text;
		unsigned int base;
		uint64_t max;
		int result;
		uint64_t value;
	} rows[] = {
		{ "zero", "0", 10, 10, 0, 0 },
		{ "leading zeros", "0007", 10, 7, 0, 7 },
		{ "at the limit", "10", 10, 10, 0, 10 },
		{ "above the limit", "11", 10, 10, -ERANGE, 0 },
		{ "a digit above the limit", "7", 10, 5, -ERANGE, 0 },
		{ "largest", "18446744073709551615", 10, UINT64_MAX, 0, UINT64_MAX },
		{ "above largest", "18446744073709551616", 10, UINT64_MAX, -ERANGE, 0 },
		{ "far above", "99999999999999999999999", 10, UINT64_MAX, -ERANGE, 0 },
		{ "octal", "7777", 8, 07777, 0, 07777 },
		{ "octal above", "10000", 8, 07777, -ERANGE, 0 },
		{ "no octal digit", "0778", 8, 07777, -EINVAL, 0 },
		{ "hexadecimal", "fF", 16, 255, 0, 255 },
		{ "largest hexadecimal", "ffffffffffffffff", 16, UINT64_MAX, 0, UINT64_MAX },
		{ "prefix", "0x10", 16, 255, -EINVAL, 0 },
		{ "empty", "", 10, 10, -EINVAL, 0 },
		{ "none", NULL, 10, 10, -EINVAL, 0 },
		{ "plus", "+1", 10, 10, -EINVAL, 0 },
		{ "minus", "-1", 10, UINT64_MAX, -EINVAL, 0 },
		{ "leading space", " 1", 10, 10, -EINVAL, 0 },
		{ "trailing space", "1 ", 10, 10, -EINVAL, 0 },
		{ "line feed", "1\n", 10, 10, -EINVAL, 0 },
		{ "fraction", "1.0", 10, 10, -EINVAL, 0 },
		{ "limit of nothing", "0", 10, 0, 0, 0 },
		{ "above nothing", "1", 10, 0, -ERANGE, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t value = 4711;
		int r = str_parse_u64(rows[i].text, rows[i].base, rows[i].max, &value);

		check_int(rows[i].name, "result", r, rows[i].result);
		ck_assert_msg(value == (r == 0 ? rows[i].value : 4711), "%s: value is %llu",
			      rows[i].name, (unsigned long long)value);
	}
}
END_TEST

START_TEST(test_str_utf8)
{
	static const struct {
		const char *name;
		const char *text;
		size_t len;
		bool valid;
	} rows[] = {
		{ "empty", "", 0, true },
		{ "ASCII", "abc", 3, true },
		{ "NUL", "a\0b", 3, true },
		{ "first of two bytes", "\xc2\x80", 2, true },
		{ "last of two bytes", "\xdf\xbf", 2, true },
		{ "first of three bytes", "\xe0\xa0\x80", 3, true },
		{ "before the surrogates", "\xed\x9f\xbf", 3, true },
		{ "after the surrogates", "\xee\x80\x80", 3, true },
		{ "last of three bytes", "\xef\xbf\xbf", 3, true },
		{ "first of four bytes", "\xf0\x90\x80\x80", 4, true },
		{ "last of all", "\xf4\x8f\xbf\xbf", 4, true },
		{ "text around", "a\xc3\xa4z", 4, true },
		{ "lone continuation", "\x80", 1, false },
		{ "overlong slash, two bytes", "\xc0\xaf", 2, false },
		{ "overlong of two bytes", "\xc1\xbf", 2, false },
		{ "overlong of three bytes", "\xe0\x9f\xbf", 3, false },
		{ "overlong of four bytes", "\xf0\x8f\xbf\xbf", 4, false },
		{ "first surrogate", "\xed\xa0\x80", 3, false },
		{ "last surrogate", "\xed\xbf\xbf", 3, false },
		{ "above U+10FFFF", "\xf4\x90\x80\x80", 4, false },
		{ "byte F5", "\xf5\x80\x80\x80", 4, false },
		{ "byte FF", "\xff", 1, false },
		{ "cut after one of two", "\xc3", 1, false },
		{ "cut after two of three", "a\xe2\x82", 3, false },
		{ "cut after three of four", "\xf0\x9f\x98", 3, false },
		{ "second byte is ASCII", "\xc3(", 2, false },
		{ "third byte is ASCII", "\xe2\x82(", 3, false },
		{ "fourth byte is a lead", "\xf0\x9f\x98\xc3", 4, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		/* An unterminated copy, so that a sanitizer finds reads past its end. */
		cleanup_free char *copy = malloc(rows[i].len > 0 ? rows[i].len : 1);

		ck_assert(copy != NULL);
		memcpy(copy, rows[i].text, rows[i].len);
		check_int(rows[i].name, "validity", str_is_utf8(copy, rows[i].len), rows[i].valid);
	}
}
END_TEST

START_TEST(test_str_make_utf8)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{ "", "" },
		{ "a\xc3\xa4z", "a\xc3\xa4z" },
		{ "\x80z", "?z" },
		{ "a\xff", "a?" },
		{ "\xc3z\xe2\x82z", "?z??z" },
		{ "\xed\xa0\x80z", "???z" },
		{ "a\xc3", "a" },
		{ "a\xe2\x82", "a" },
		{ "a\xe0\xa0", "a" },
		{ "\xf0\x9f\x98", "" },
		{ "\xf4\x90", "??" }, /* of no character */
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *copy = strdup(rows[i].text);

		ck_assert(copy != NULL);
		str_make_utf8(copy);
		check_str(rows[i].text, "text", copy, rows[i].want);
	}
}
END_TEST

#define UUID "0f8fad5b-d9cb-469f-A165-70867728950e"

START_TEST(test_str_compare)
{
	check_that("NULL and NULL", "equal", str_eq(NULL, NULL));
	check_that("NULL and empty", "different", !str_eq(NULL, "") && !str_eq("", NULL));
	check_that("same", "equal", str_eq("a", "a"));
	check_that("case", "different", !str_eq("a", "A"));
	check_that("case", "equal without case", str_eq_nocase("SubDir", "sUBdIR"));
	check_that("prefix", "starts", str_has_prefix("abc", "ab") && str_has_prefix("abc", ""));
	check_that("longer prefix", "does not start", !str_has_prefix("ab", "abc"));
	check_that("UUID", "ends", str_ends_with_uuid("pvc-" UUID) && str_ends_with_uuid(UUID));
	check_that("no UUID", "does not end",
		   !str_ends_with_uuid("") && !str_ends_with_uuid(UUID "0") &&
			   !str_ends_with_uuid(&UUID[1]) &&
			   !str_ends_with_uuid("0f8fad5bxd9cb-469f-a165-70867728950e") &&
			   !str_ends_with_uuid("0f8fad5b-d9cb-469f-a165-70867728950g"));
	check_that("empty", "is empty", str_is_empty(NULL) && str_is_empty(""));
	check_that("space", "is not empty", !str_is_empty(" "));
	check_that("plain", "no control", !str_has_control("a b~\xc3\xa4"));
	check_that("tab", "control", str_has_control("a\tb"));
	check_that("unit separator", "control", str_has_control("\x1f"));
	check_that("delete", "control", str_has_control("a\x7f"));
}
END_TEST

START_TEST(test_str_split)
{
	static const struct {
		const char *name;
		const char *text;
		const char *joined; /* with '|' */
		size_t n;
	} rows[] = {
		{ "empty", "", "", 1 },
		{ "one", "a", "a", 1 },
		{ "two", "a#b", "a|b", 2 },
		{ "empty pieces", "#a##", "|a||", 4 },
		{ "only a separator", "#", "|", 2 },
	};
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_buf struct buf b = { 0 };
		struct strv v;

		check_int(rows[i].name, "result", strv_split(&v, rows[i].text, '#'), 0);
		check_int(rows[i].name, "pieces", v.n, rows[i].n);
		for (k = 0; k < v.n; k++)
			check_int(rows[i].name, "append",
				  buf_printf(&b, "%s%s", k > 0 ? "|" : "", v.items[k]), 0);
		check_str(rows[i].name, "pieces", b.data, rows[i].joined);
		strv_done(&v);
		check_int(rows[i].name, "pieces afterwards", v.n, 0);
	}
}
END_TEST

/* From the published FNV-1a test suite. Names of records on shares depend on the hash. */
START_TEST(test_str_hash)
{
	ck_assert_msg(str_hash("", 0) == UINT64_C(0xcbf29ce484222325), "empty");
	ck_assert_msg(str_hash("a", 1) == UINT64_C(0xaf63dc4c8601ec8c), "a");
	ck_assert_msg(str_hash("foobar", 6) == UINT64_C(0x85944171f73967e8), "foobar");
}
END_TEST

START_TEST(test_path_check)
{
	static const struct {
		const char *name;
		const char *path;
		bool valid;
	} rows[] = {
		{ "name", "pvc-1", true },
		{ "nested", "a/b/c", true },
		{ "hidden", ".a/..b/c..", true },
		{ "three dots", "...", true },
		{ "space", "a b", true },
		{ "UTF-8", "\xc3\xa4/\xe2\x82\xac", true },
		{ "backslash", "a\\b", true },
		{ "empty", "", false },
		{ "slash", "/", false },
		{ "absolute", "/a", false },
		{ "trailing slash", "a/", false },
		{ "empty component", "a//b", false },
		{ "dot", ".", false },
		{ "dot inside", "a/./b", false },
		{ "dot dot", "..", false },
		{ "dot dot first", "../a", false },
		{ "dot dot last", "a/..", false },
		{ "dot dot inside", "a/../b", false },
		{ "separator of ids", "a#b", false },
		{ "line feed", "a\nb", false },
		{ "delete", "a\x7f", false },
	};
	cleanup_free char *name255 = check_repeat("x", 255), *name256 = check_repeat("x", 256);
	cleanup_free char *path4095 = check_repeat("a/", 2047),
			  *path4097 = check_repeat("a/", 2048);
	struct error err = { .code = ERROR_OK };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error why = { .code = ERROR_OK };
		int r = path_check_relative(rows[i].path, "subDir", &why);

		check_int(rows[i].name, "result", r, rows[i].valid ? 0 : -EINVAL);
		check_error(rows[i].name, &why, rows[i].valid ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    "subDir");
	}
	check_int("255 bytes", "result", path_check_relative(name255, "x", NULL), 0);
	check_int("256 bytes", "result", path_check_relative(name256, "share", &err), -EINVAL);
	check_error("256 bytes", &err, ERROR_INVALID_ARGUMENT, "share");
	path4095[4093] = 'b';
	path4097[4095] = 'b';
	check_int("4094 bytes", "result", path_check_relative(path4095, "x", NULL), 0);
	check_int("4096 bytes", "result", path_check_relative(path4097, "x", NULL), -EINVAL);
}
END_TEST

START_TEST(test_path_clean)
{
	static const struct {
		const char *text;
		const char *clean;
	} rows[] = {
		{ "/", "/" },           { "//", "/" },          { "/.", "/" },
		{ "/a", "/a" },         { "/a/", "/a" },        { "/a/.", "/a" },
		{ "/a/./", "/a" },      { "//a//b", "/a/b" },   { "/./a/./b", "/a/b" },
		{ "/.a/b.", "/.a/b." }, { "/a/..b", "/a/..b" }, { "/a b\n/", "/a b\n" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *got = path_clean(rows[i].text);

		check_str(rows[i].text, "clean", got, rows[i].clean);
	}
}
END_TEST

START_TEST(test_path_parts)
{
	static const struct {
		const char *text;
		const char *trimmed;
	} trims[] = {
		{ "", "" },           { "/", "" },       { "///", "" },
		{ "a", "a" },         { "/a", "a" },     { "a/", "a" },
		{ "//a/b//", "a/b" }, { "a//b", "a/b" }, { "/./a/./b/.", "a/b" },
	};
	static const struct {
		const char *name;
		const char *first, *second;
		const char *joined;
	} joins[] = {
		{ "nothing", "", "", "/" },
		{ "root", "/", "", "/" },
		{ "share", "/export/k8s/", "", "/export/k8s" },
		{ "both", "export", "a/b", "/export/a/b" },
		{ "slashes", "//export//", "/a/", "/export/a" },
		{ "sub of root", "/", "a", "/a" },
		{ "twice", "/a//b", "c/./d", "/a/b/c/d" },
	};
	static const struct {
		const char *path, *other;
		enum path_relation is;
	} relations[] = {
		{ "a", "a", PATH_IS_SAME },
		{ "a", "b", PATH_IS_APART },
		{ "a/b", "a", PATH_IS_IN },
		{ "a", "a/b", PATH_IS_AROUND },
		{ "a/b", "a/bc", PATH_IS_APART },
		{ "ab", "a", PATH_IS_APART },
		{ "A/b", "a/B", PATH_IS_SAME },
		{ "A", "a/b", PATH_IS_AROUND },
		{ "\xc3\xa9", "e\xcc\x81", PATH_IS_SAME },
		{ "\xc3\xa9/a", "\xc3\xa9/b", PATH_IS_APART },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(trims); i++) {
		cleanup_free char *got = path_trim(trims[i].text);

		check_str(trims[i].text, "trimmed", got, trims[i].trimmed);
	}
	for (i = 0; i < ARRAY_SIZE(joins); i++) {
		cleanup_free char *got = path_join_root(joins[i].first, joins[i].second, NULL);

		check_str(joins[i].name, "joined", got, joins[i].joined);
	}
	for (i = 0; i < ARRAY_SIZE(relations); i++)
		check_int(relations[i].path, relations[i].other,
			  path_compare(relations[i].path, relations[i].other), relations[i].is);
	check_that("whole", "has it", path_has_component(".csi-nfs", ".csi-nfs"));
	check_that("below", "has it", path_has_component(".csi-nfs/a", ".csi-nfs"));
	check_that("later", "has it", path_has_component("a/.csi-nfs", ".csi-nfs"));
	check_that("between", "has it", path_has_component("a/.csi-nfs/b", ".csi-nfs"));
	check_that("longer", "has it not", !path_has_component(".csi-nfs2/a", ".csi-nfs"));
	check_that("shorter", "has it not", !path_has_component(".csi", ".csi-nfs"));
	check_that("end of one", "has it not", !path_has_component("a/b.csi-nfs", ".csi-nfs"));
}
END_TEST

static int reading_end; /* of the pipe that is standard error, in captured() */

/* Return the standard error output of write_log(data), for the caller to free. */
static char *captured(void (*write_log)(const void *data), const void *data)
{
	int saved = dup(STDERR_FILENO), fds[2];
	struct buf b = { 0 };
	char chunk[512];
	ssize_t n;

	ck_assert(saved >= 0 && pipe(fds) == 0);
	(void)fflush(stderr);
	ck_assert(dup2(fds[1], STDERR_FILENO) >= 0);
	close(fds[1]);
	reading_end = fds[0];
	write_log(data);
	ck_assert(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	for (n = read(fds[0], chunk, sizeof(chunk)); n > 0; n = read(fds[0], chunk, sizeof(chunk)))
		ck_assert(buf_append(&b, chunk, (size_t)n) == 0);
	close(fds[0]);
	return buf_steal(&b);
}

static void log_value(const void *data)
{
	const char *value = data;

	errno = ENOTTY;
	log_info("Something \"happened\"", LOG_STR("key", value), LOG_NUM("n", -5));
	ck_assert_msg(errno == ENOTTY, "log_info() changed errno to %d", errno);
}

static void log_levels(const void *data)
{
	(void)data;
	log_error("E");
	log_warn("W");
	log_info("I");
	log_debug("D");
}

/* Check "2026-11-21T05:20:04.123Z" and return the rest. */
static const char *skip_time(const char *row, const char *s)
{
	static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ";
	size_t i;

	for (i = 0; shape[i] != '\0'; i++)
		ck_assert_msg(shape[i] == 'd' ? s[i] >= '0' && s[i] <= '9' : s[i] == shape[i],
			      "%s: time is '%.24s'", row, s);
	return s + i;
}

static const struct {
	const char *name;
	const char *value;
	const char *written; /* within the quotes */
} log_rows[] = {
	{ "plain", "pvc-1", "pvc-1" },
	{ "empty", "", "" },
	{ "none", NULL, "" },
	{ "quotes and backslash", "a\"b\\c", "a\\\"b\\\\c" },
	{ "line feed", "a\nlevel=error", "a\\u000alevel=error" },
	{ "escape and delete", "\x1b[31m\x7f", "\\u001b[31m\\u007f" },
	{ "UTF-8", "\xc3\xa4", "\xc3\xa4" },
	{ "not UTF-8", "a\xff\xc3z", "a??z" },
	{ "percent", "100%s%n", "100%s%n" },
};

START_TEST(test_log_text)
{
	size_t i;

	log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
	for (i = 0; i < ARRAY_SIZE(log_rows); i++) {
		cleanup_free char *line = captured(log_value, log_rows[i].value);
		cleanup_buf struct buf want = { 0 };

		ck_assert(
			buf_printf(&want,
				   " level=info msg=\"Something \\\"happened\\\"\" key=\"%s\" n=-5\n",
				   log_rows[i].written) == 0);
		check_that(log_rows[i].name, "starts with the time", str_has_prefix(line, "time="));
		check_str(log_rows[i].name, "line", skip_time(log_rows[i].name, line + 5),
			  want.data);
	}
}
END_TEST

START_TEST(test_log_json)
{
	size_t i;

	log_init(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
	for (i = 0; i < ARRAY_SIZE(log_rows); i++) {
		cleanup_free char *line = captured(log_value, log_rows[i].value);
		cleanup_buf struct buf want = { 0 };

		ck_assert(
			buf_printf(&want,
				   "\",\"level\":\"info\",\"msg\":\"Something \\\"happened\\\"\",\"key\":\"%s\",\"n\":-5}\n",
				   log_rows[i].written) == 0);
		check_that(log_rows[i].name, "starts with the time",
			   str_has_prefix(line, "{\"time\":\""));
		check_str(log_rows[i].name, "line", skip_time(log_rows[i].name, line + 9),
			  want.data);
	}
}
END_TEST

static const struct {
	const char *name;
	const char *part; /* repeated in the value */
	const char *written;
	size_t ahead; /* letters in front of the parts */
} long_rows[] = {
	{ "letters", "a", "a", 0 },
	{ "quotes", "\"", "\\\"", 0 },
	{ "quotes, one byte on", "\"", "\\\"", 1 },
	{ "characters of two bytes", "\xc3\xa4", "\xc3\xa4", 0 },
	{ "characters of two bytes, one byte on", "\xc3\xa4", "\xc3\xa4", 1 },
	{ "escapes", "\x01", "\\u0001", 0 },
};

/* A line that is too long is cut in the value, which is closed, and has no further field. */
static void check_cut(const char *row, const char *line, const char *end, size_t i)
{
	const size_t len = strlen(line), end_len = strlen(end);
	const size_t part_len = strlen(long_rows[i].written);
	const char *p = strstr(line, "key");

	check_that(row, "not too long", len <= LOG_LINE_MAX);
	check_that(row, "as long as may be", len + part_len > LOG_LINE_MAX - 3);
	check_str(row, "end", line + len - end_len, end);
	p += strcspn(p, ":=") + 2 + long_rows[i].ahead;
	while (str_has_prefix(p, long_rows[i].written))
		p += part_len;
	check_str(row, "behind the parts", p, end);
}

START_TEST(test_log_cut_string)
{
	char *parts = check_repeat(long_rows[_i].part, LOG_LINE_MAX);
	char *ahead = check_repeat("x", long_rows[_i].ahead);
	cleanup_buf struct buf value = { 0 };
	char *line;

	ck_assert(buf_printf(&value, "%s%s", ahead, parts) == 0);
	log_init(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
	line = captured(log_value, value.data);
	check_cut(long_rows[_i].name, line, "\"}\n", (size_t)_i);
	free(line);
	log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
	line = captured(log_value, value.data);
	check_cut(long_rows[_i].name, line, "\"\n", (size_t)_i);
	free(line);
	free(ahead);
	free(parts);
}
END_TEST

static void log_nearly_full(const void *data)
{
	log_info("M", LOG_STR("key", data), LOG_STR("next", "12345"), LOG_NUM("n", 1234567));
}

/* Wherever the line is cut, what is in it is whole: between fields, in a key, in a number. */
START_TEST(test_log_ends)
{
	size_t len;

	log_init(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
	for (len = LOG_LINE_MAX - 150; len < LOG_LINE_MAX; len++) {
		char *value = check_repeat("v", len);
		char *line = captured(log_nearly_full, value);
		const char *p = strstr(line, "vvv");
		size_t n = strspn(p, "v");

		check_that("end", "not too long", strlen(line) <= LOG_LINE_MAX);
		p += n;
		check_that("end", "is whole",
			   strcmp(p, "\"}\n") == 0 ||
				   (n == len &&
				    (str_eq(p, "\",\"next\":\"12345\",\"n\":1234567}\n") ||
				     str_eq(p, "\",\"next\":\"12345\"}\n") ||
				     str_eq(p, "\",\"next\":\"1234\"}\n") ||
				     str_eq(p, "\",\"next\":\"123\"}\n") ||
				     str_eq(p, "\",\"next\":\"12\"}\n") ||
				     str_eq(p, "\",\"next\":\"1\"}\n") ||
				     str_eq(p, "\",\"next\":\"\"}\n"))));
		free(line);
		free(value);
	}
}
END_TEST

static size_t count(const char *s, const char *word)
{
	size_t n = 0;

	for (s = strstr(s, word); s != NULL; s = strstr(s + 1, word))
		n++;
	return n;
}

START_TEST(test_log_level)
{
	static const struct {
		const char *name;
		enum log_level level;
		size_t lines;
	} rows[] = {
		{ "error", LOG_LEVEL_ERROR, 1 },
		{ "warn", LOG_LEVEL_WARN, 2 },
		{ "info", LOG_LEVEL_INFO, 3 },
		{ "debug", LOG_LEVEL_DEBUG, 4 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *text = NULL;
		enum log_level level;

		check_int(rows[i].name, "result", log_level_parse(rows[i].name, &level), 0);
		check_int(rows[i].name, "level", level, rows[i].level);
		log_init(level, LOG_FORMAT_TEXT);
		text = captured(log_levels, NULL);
		check_int(rows[i].name, "lines", count(text, "\n"), rows[i].lines);
	}
}
END_TEST

START_TEST(test_log_names)
{
	static const char *const bad[] = { "", "Info", "warning", "info ", "0" };
	enum log_level level = LOG_LEVEL_WARN;
	enum log_format format;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		check_int(bad[i], "level", log_level_parse(bad[i], &level), -EINVAL);
		check_int(bad[i], "format", log_format_parse(bad[i], &format), -EINVAL);
	}
	check_int("untouched", "level", level, LOG_LEVEL_WARN);
	check_int("json", "result", log_format_parse("json", &format), 0);
	check_int("json", "format", format, LOG_FORMAT_JSON);
	check_int("text", "result", log_format_parse("text", &format), 0);
	check_int("text", "format", format, LOG_FORMAT_TEXT);
}
END_TEST

static void log_long(const void *data)
{
	log_info("First", LOG_STR("key", (const char *)data));
	log_info("Second");
}

/* A truncated line still ends with a newline. */
START_TEST(test_log_cut)
{
	static const enum log_format formats[] = { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };
	static const size_t lengths[] = { 8000, 8100, 8130, 8192, 20000 };
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(formats); i++) {
		for (k = 0; k < ARRAY_SIZE(lengths); k++) {
			cleanup_free char *value = check_repeat("x", lengths[k]);
			cleanup_free char *text = NULL;
			char row[64];

			(void)snprintf(row, sizeof(row), "%zu bytes in format %zu", lengths[k], i);
			log_init(LOG_LEVEL_INFO, formats[i]);
			text = captured(log_long, value);
			check_int(row, "lines", count(text, "\n"), 2);
		}
	}
}
END_TEST

/* The end of a pipe that is full, and that nobody reads until a number of lines was written. */
static void log_to_full_pipe(const void *data)
{
	const int size = fcntl(STDERR_FILENO, F_SETPIPE_SZ, 8192);
	const int flags = fcntl(reading_end, F_GETFL);
	const uint64_t begun = clock_now_ns();
	cleanup_free char *value = check_repeat("x", 7000);
	char bytes[4096];
	unsigned int i;

	(void)data;
	ck_assert_int_eq(size, 8192);
	for (i = 0; i < 100; i++)
		log_info("A line", LOG_NUM("number", i), LOG_STR("long", i % 2 == 0 ? "" : value));
	check_that("lines", "do not wait for a reader",
		   clock_now_ns() - begun < 8 * CLOCK_NS_PER_S);
	ck_assert(fcntl(reading_end, F_SETFL, flags | O_NONBLOCK) == 0);
	while (read(reading_end, bytes, sizeof(bytes)) > 0)
		;
	ck_assert(fcntl(reading_end, F_SETFL, flags) == 0);
	log_info("The last line");
}

START_TEST(test_log_that_nobody_reads)
{
	cleanup_free char *text = NULL;

	log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
	text = captured(log_to_full_pipe, NULL);
	check_int("then", "lines", count(text, "\n"), 3); /* the first ends one that was cut */
	check_that("then", "says how many", strstr(text, "were lost") != NULL);
	check_that("then", "says how many", strstr(text, " lines=99\n") != NULL);
	check_that("then", "the last line", strstr(text, "msg=\"The last line\"") != NULL);
}
END_TEST

START_TEST(test_list)
{
	struct list head, items[3], *pos, *tmp;
	size_t n = 0, i;

	list_init(&head);
	check_that("new", "is empty", list_is_empty(&head));
	for (i = 0; i < 3; i++)
		list_add_tail(&head, &items[i]);
	list_for_each(pos, &head)
		check_that("order", "kept", pos == &items[n++]);
	check_int("all", "items", n, 3);
	list_for_each_safe(pos, tmp, &head)
		list_remove(pos);
	check_that("removed", "is empty", list_is_empty(&head));
	list_remove(&items[0]);
	check_that("removed twice", "is empty", list_is_empty(&items[0]));
}
END_TEST

START_TEST(test_clock)
{
	uint64_t now = clock_now_ns();

	check_int("past", "left", clock_left_ms(now - 1), 0);
	check_int("none", "left", clock_left_ms(0), 0);
	check_int("far", "left", clock_left_ms(UINT64_MAX), INT32_MAX);
	check_that("a minute", "rounded up",
		   clock_left_ms(clock_now_ns() + 60 * CLOCK_NS_PER_S) > 59000);
	check_that("time", "does not go back", clock_now_ns() >= now);
}
END_TEST

/* Sizes, counts of blocks and times of 64 bits, on 32-bit systems too. */
START_TEST(test_large)
{
	const int64_t size = INT64_C(20) << 40, later = INT64_C(4102444800); /* in 2100 */
	const struct timespec times[2] = { { .tv_sec = (time_t)later }, { .tv_sec = -1 } };
	int fd = memfd_create("large", MFD_CLOEXEC);
	struct statvfs space;
	struct stat st;

	ck_assert_int_ge(fd, 0);
	check_int("20 TiB", "ftruncate", ftruncate(fd, (off_t)size), 0);
	check_int("2100", "futimens", futimens(fd, times), 0);
	check_int("20 TiB", "fstat", fstat(fd, &st), 0);
	check_int("20 TiB", "size", st.st_size, size);
	check_int("2100", "atime", st.st_atim.tv_sec, later);
	check_int("1969", "mtime", st.st_mtim.tv_sec, -1);
	check_int("statvfs", "result", fstatvfs(fd, &space), 0);
	space.f_blocks = (fsblkcnt_t)size / 512;
	check_int("20 TiB", "blocks", space.f_blocks, size / 512);
	close(fd);
}
END_TEST

/* Of the tests themselves: TMPDIR says where they write, unless it is too long. */
START_TEST(test_make_folder)
{
	cleanup_free char *long_name = check_repeat("/long", 20);
	char outer[CHECK_FOLDER], inner[CHECK_FOLDER];

	check_make_folder(outer);
	ck_assert_int_eq(setenv("TMPDIR", outer, 1), 0);
	check_make_folder(inner);
	check_int("short", "made in TMPDIR", strncmp(inner, outer, strlen(outer)), 0);
	ck_assert_int_eq(rmdir(inner), 0);
	ck_assert_int_eq(rmdir(outer), 0);
	if (access("/tmp", W_OK) < 0)
		return;
	ck_assert_int_eq(setenv("TMPDIR", long_name, 1), 0);
	check_make_folder(inner);
	check_int("long", "made in /tmp", strncmp(inner, "/tmp/", 5), 0);
	ck_assert_int_eq(rmdir(inner), 0);
}
END_TEST

CHECK_MAIN("base",
	   .tests = {
		   test_error_codes, test_error_first_wins, test_error_long, test_buf_limits,
		   test_buf_growth,  test_str_numbers,      test_str_utf8,   test_str_compare,
		   test_str_split,   test_str_hash,         test_path_check, test_path_clean,
		   test_path_parts,  test_log_text,         test_log_json,   test_log_level,
		   test_log_names,   test_log_cut,          test_list,       test_clock,
		   test_large,	     test_log_ends,	     test_make_folder, test_error_is_utf8,
		   test_str_make_utf8, test_log_that_nobody_reads,
	   },
	   .loops = { { test_log_cut_string, ARRAY_SIZE(long_rows) } })
