/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "check_util.h"

#include <malloc.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TIMEOUT_S 500 /* for a test that hangs, not for a slow machine */
#define MMAP_BYTES (16 * 1024 * 1024)
#define TRIM_BYTES (64 * 1024 * 1024)

int check_real_clock(clockid_t id, struct timespec *ret)
{
#ifdef SYS_clock_gettime64
	return (int)syscall(SYS_clock_gettime64, id, ret); /* on 32 bits, with the larger time_t */
#else
	return (int)syscall(SYS_clock_gettime, id, ret);
#endif
}

static TCase *new_case(Suite *s, const char *name, const struct check_suite *suite)
{
	TCase *tcase = tcase_create(name);

	tcase_set_timeout(tcase, TIMEOUT_S);
	tcase_add_checked_fixture(tcase, suite->setup, suite->teardown);
	suite_add_tcase(s, tcase);
	return tcase;
}

bool check_is_long(void)
{
	return !str_is_empty(getenv("LAB_LONG"));
}

static void add_loop(TCase *tcase, const struct check_loop *loop, int build)
{
	int i;

	/* Rows come in pairs: neither build gets all first ones. */
	for (i = 0; i < loop->n; i++)
		if (!loop->is_shared || check_is_long() || (i + i / 2) % 2 == build)
			tcase_add_loop_test(tcase, loop->test, i, i + 1);
}

/*
 * As init_heap() in main.c. The limits are higher, since a fake server keeps whole files: these
 * tests would spend a third of their time in page faults.
 */
static void keep_freed_memory(void)
{
#ifdef HAVE_MALLOPT
	(void)mallopt(M_ARENA_MAX, 1);
	(void)mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
	(void)mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
#endif
}

int check_run(const struct check_suite *suite)
{
	Suite *s = suite_create(suite->name);
	TCase *tcase = new_case(s, suite->name, suite);
	SRunner *runner;
	size_t i;
	int failed;

	for (i = 0; i < ARRAY_SIZE(suite->tests) && suite->tests[i] != NULL; i++)
		tcase_add_test(tcase, suite->tests[i]);
	for (i = 0; i < ARRAY_SIZE(suite->loops) && suite->loops[i].test != NULL; i++)
		add_loop(tcase, &suite->loops[i], suite->build);
	if (suite->native[0] != NULL) {
		tcase = new_case(s, "native", suite);
		tcase_set_tags(tcase, "native");
	}
	for (i = 0; i < ARRAY_SIZE(suite->native) && suite->native[i] != NULL; i++)
		tcase_add_test(tcase, suite->native[i]);
	keep_freed_memory();
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

void check_make_folder(char ret[CHECK_FOLDER])
{
	static const char name[] = "/csi-nfs-test-XXXXXX";
	const char *tmp = getenv("TMPDIR");

	if (str_is_empty(tmp) || strlen(tmp) + sizeof(name) > CHECK_FOLDER)
		tmp = "/tmp";
	(void)stpcpy(stpcpy(ret, tmp), name);
	ck_assert_msg(mkdtemp(ret) != NULL, "no folder can be made in '%s'", tmp);
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

#define HASH_DIGITS 16

/* Cut the hash out of "<key>~<hash>.<number>". */
static void shorten_part(char *line)
{
	char *hash = strchr(line, '~');

	if (hash == NULL || strspn(hash + 1, "0123456789abcdef") != HASH_DIGITS ||
	    hash[1 + HASH_DIGITS] != '.')
		return;
	memmove(hash + 1, hash + 1 + HASH_DIGITS, strlen(hash + 1 + HASH_DIGITS) + 1);
}

void check_shorten_notes(char *list)
{
	static const char folder[] = ".csi-nfs/parents/", records[] = ".csi-nfs/volumes/";
	char *copy = strdup(list), *line, *state = NULL, **lines;
	size_t n = 0, i;

	ck_assert(copy != NULL);
	lines = calloc(strlen(list) + 1, sizeof(*lines));
	ck_assert(lines != NULL);
	for (line = strtok_r(copy, "\n", &state); line != NULL;
	     line = strtok_r(NULL, "\n", &state)) {
		if (strncmp(line, folder, sizeof(folder) - 1) == 0)
			line[strcspn(line, "~")] = '\0';
		else if (strncmp(line, records, sizeof(records) - 1) == 0)
			shorten_part(line);
		lines[n++] = line;
	}
	qsort(lines, n, sizeof(*lines), compare_lines);
	*list = '\0';
	for (i = 0; i < n; i++)
		list = stpcpy(stpcpy(list, lines[i]), "\n");
	free(lines);
	free(copy);
}
