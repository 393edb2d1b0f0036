/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Shared by the unit tests: assertions that name the row of the table under test and print both
 * values, and main(). Check reads CK_FORK, CK_RUN_CASE and CK_EXCLUDE_TAGS from the environment.
 */
#ifndef CHECK_UTIL_H
#define CHECK_UTIL_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/str.h"

/* A row of a table leaves out the fields that are zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define check_int(row, what, got, want)                                                            \
	do {                                                                                       \
		const long long got_value = (long long)(got), want_value = (long long)(want);      \
		ck_assert_msg(got_value == want_value, "%s: %s is %lld, should be %lld", (row),    \
			      (what), got_value, want_value);                                      \
	} while (0)

static inline const char *check_text(const char *s)
{
	return s != NULL ? s : "(none)";
}

/* For hot loops: ck_assert() writes to its parent even if the condition holds. */
#define check_fast(condition)                                                                      \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("%s does not hold", #condition);                              \
	} while (0)

/* NULL equals NULL only. */
#define check_str(row, what, got, want)                                                            \
	do {                                                                                       \
		const char *got_value = (got), *want_value = (want);                               \
		ck_assert_msg(str_eq(got_value, want_value), "%s: %s is '%s', should be '%s'",     \
			      (row), (what), check_text(got_value), check_text(want_value));       \
	} while (0)

#define check_that(row, what, condition)                                                           \
	ck_assert_msg((condition), "%s: %s does not hold", (row), (what))

/* Check the code, and that the message is not empty and contains word, unless that is NULL. */
static inline void check_error(const char *row, const struct error *err, enum error_code code,
			       const char *word)
{
	ck_assert_msg(err->code == code, "%s: code is %s (%s), should be %s", row,
		      error_code_name(err->code), err->msg, error_code_name(code));
	if (code == ERROR_OK)
		return;
	ck_assert_msg(err->msg[0] != '\0', "%s: the message is empty", row);
	ck_assert_msg(word == NULL || strstr(err->msg, word) != NULL,
		      "%s: message '%s' does not name '%s'", row, err->msg, check_text(word));
}

/* Return s repeated n times. The caller frees. */
static inline char *check_repeat(const char *s, size_t n)
{
	size_t len = strlen(s), i;
	char *text = malloc(n * len + 1);

	check_fast(text != NULL);
	for (i = 0; i < n; i++)
		memcpy(text + i * len, s, len);
	text[n * len] = '\0';
	return text;
}

#define CHECK_FOLDER 80 /* length of a path at most: a socket's file in it can still be bound */

/* Make a folder for a test in TMPDIR, or in /tmp if that is not set or too long. */
void check_make_folder(char ret[CHECK_FOLDER]);

/*
 * Shorten names in a list of paths, one a line: notes in .csi-nfs/parents/ by what tells one
 * directory from another, parts of records by what tells one text from another.
 */
void check_shorten_notes(char *list);

/* clock_gettime(), for tests that replace it. */
int check_real_clock(clockid_t id, struct timespec *ret);

/* Return whether every loop runs in full, for "make check-long": LAB_LONG is set. */
bool check_is_long(void);

/*
 * A test that runs once for each _i from 0 to n - 1. Of one that is shared, each build of the file
 * runs about half, and all in a long run.
 */
struct check_loop {
	const TTest *test;
	int n;
	bool is_shared;
};

/* 1 in the second build of a file that is built twice. */
#ifndef CHECK_BUILD
#define CHECK_BUILD 0
#endif

/* The tests of a program, each run in a process of its own between setup and teardown. */
struct check_suite {
	const char *name;
	int build; /* CHECK_BUILD */
	void (*setup)(void), (*teardown)(void); /* either may be NULL */
	const TTest *tests[52]; /* up to the first NULL */
	struct check_loop loops[16]; /* up to the first without a test */
	const TTest *native[8]; /* not under qemu-user, where CK_EXCLUDE_TAGS is "native" */
};

/* Run the suite. Returns the exit status. */
int check_run(const struct check_suite *suite);

/*
 * Define main() of a unit test. The arguments after the name are designated initializers of struct
 * check_suite:
 *
 *   CHECK_MAIN("buf", .tests = { test_limits, test_growth },
 *		.loops = { { test_rows, ARRAY_SIZE(rows) } })
 */
#define CHECK_MAIN(suite_name, ...)                                                                \
	int main(void)                                                                             \
	{                                                                                          \
		const struct check_suite suite = { .name = (suite_name),                           \
						   .build = CHECK_BUILD,                           \
						   __VA_ARGS__ };                                  \
                                                                                                   \
		return check_run(&suite);                                                          \
	}

#endif
