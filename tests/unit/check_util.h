/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What the unit tests share: assertions that name the row of the table they are about and print
 * both values, and main()'s part of a Check program. CK_FORK is Check's own affair.
 */
#ifndef CHECK_UTIL_H
#define CHECK_UTIL_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"

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

/* NULL equals NULL only. */
#define check_str(row, what, got, want)                                                            \
	do {                                                                                       \
		const char *got_value = (got), *want_value = (want);                               \
		ck_assert_msg(str_eq(got_value, want_value), "%s: %s is '%s', should be '%s'",     \
			      (row), (what), check_text(got_value), check_text(want_value));       \
	} while (0)

#define check_that(row, what, condition)                                                           \
	ck_assert_msg((condition), "%s: %s does not hold", (row), (what))

/* The code, and that the message, which is never empty, has the word; word NULL: any. */
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

/* n times c, in memory that the caller frees. */
static inline char *check_repeat(const char *s, size_t n)
{
	size_t len = strlen(s), i;
	char *text = malloc(n * len + 1);

	ck_assert(text != NULL);
	for (i = 0; i < n; i++)
		memcpy(text + i * len, s, len);
	text[n * len] = '\0';
	return text;
}

/* Runs the tests of a case, which it takes, as one suite. Returns the exit status. */
static inline int check_run_case(const char *name, TCase *tcase)
{
	Suite *suite = suite_create(name);
	SRunner *runner;
	int failed;

	tcase_set_timeout(tcase, 500); /* for what hangs, on a machine with other work, too */
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The same for n tests that have neither fixtures nor rows of their own. */
static inline int check_run(const char *name, const TTest *const *tests, size_t n)
{
	TCase *tcase = tcase_create(name);
	size_t i;

	for (i = 0; i < n; i++)
		tcase_add_test(tcase, tests[i]);
	return check_run_case(name, tcase);
}

/* main() of a program that has such tests only: CHECK_MAIN("name", test_one, test_two) */
#define CHECK_MAIN(name, ...)                                                                      \
	int main(void)                                                                             \
	{                                                                                          \
		const TTest *const tests[] = { __VA_ARGS__ };                                      \
                                                                                                   \
		return check_run((name), tests, ARRAY_SIZE(tests));                                \
	}

#endif
