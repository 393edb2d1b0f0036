/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* base/library.c: zlib, which this program links anyway, under names that are missing at first. */

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

#include "base/library.h"
#include "check_util.h"
#include "tree/archive.h"

static int find_nothing(struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION, "it is missing");
}

static int crash(struct error *err)
{
	(void)err;
	(void)raise(SIGKILL);
	return 0;
}

START_TEST(test_try)
{
	struct error err = { .code = ERROR_OK };

	check_int("there", "result", library_try(tree_archive_prepare, &err), 0);
	check_error("there", &err, ERROR_OK, NULL);
	ck_assert_int_lt(library_try(find_nothing, &err), 0);
	check_error("missing", &err, ERROR_FAILED_PRECONDITION, "it is missing");
	error_clear(&err);
	ck_assert_int_lt(library_try(crash, &err), 0);
	check_error("crash", &err, ERROR_INTERNAL, "signal 9");
}
END_TEST

#ifdef WITH_DLOPEN

#define THREADS 8

#define FUNCTIONS(each) each(crc32) each(zlibVersion)

static struct {
	FUNCTIONS(LIBRARY_POINTER)
} functions;

static const char *const names[] = { FUNCTIONS(LIBRARY_NAME) };
static const char *const wrong_names[] = { "crc32", "crc33" };
static const struct library_functions right = { names, &functions, ARRAY_SIZE(names) };
static const struct library_functions wrong = { wrong_names, &functions, ARRAY_SIZE(wrong_names) };

static char folder[CHECK_FOLDER];
static char path[CHECK_FOLDER + 16];

static void setup(void)
{
	check_make_folder(folder);
	(void)snprintf(path, sizeof(path), "%s/libother.so.1", folder);
}

static void teardown(void)
{
	(void)unlink(path);
	(void)rmdir(folder);
}

static void install(void)
{
	Dl_info info;

	ck_assert(dladdr(dlsym(RTLD_DEFAULT, "crc32"), &info) != 0);
	ck_assert_int_eq(symlink(info.dli_fname, path), 0);
}

static const struct library_functions *const all[] = { &right, NULL };
static const struct library_functions *const unknown[] = { &right, &wrong, NULL };

static struct library make_library(void)
{
	return (struct library){
		.soname = path,
		.who_needs = "checksums need",
		.advice = "install it",
		.functions = all,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
}

START_TEST(test_installed_later)
{
	struct library library = make_library();
	struct error err = { .code = ERROR_OK };

	check_int("missing", "result", library_load(&library, &err), -EBUSY);
	check_error("missing", &err, ERROR_FAILED_PRECONDITION, "checksums need ");
	check_error("missing", &err, ERROR_FAILED_PRECONDITION, "No such file");
	check_error("missing", &err, ERROR_FAILED_PRECONDITION, "): install it");
	install();
	error_clear(&err);
	check_int("installed", "result", library_load(&library, &err), 0);
	check_that("installed", "same function", functions.crc32 == crc32);
	check_str("installed", "version", functions.zlibVersion(), zlibVersion());
	ck_assert_int_eq(unlink(path), 0);
	check_int("loaded", "result", library_load(&library, &err), 0);
}
END_TEST

START_TEST(test_function_is_missing)
{
	struct library library = make_library();
	struct error err = { .code = ERROR_OK };

	install();
	library.functions = unknown;
	ck_assert_int_lt(library_load(&library, &err), 0);
	check_error("unknown", &err, ERROR_FAILED_PRECONDITION, "crc33");
	library.functions = all;
	check_int("known", "result", library_load(&library, NULL), 0);
}
END_TEST

static void *load_and_call(void *data)
{
	if (library_load(data, NULL) < 0)
		return NULL;
	return (void *)(uintptr_t)functions.zlibVersion();
}

START_TEST(test_threads)
{
	struct library library = make_library();
	pthread_t threads[THREADS];
	void *version;
	size_t i;

	install();
	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, load_and_call, &library), 0);
	for (i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &version), 0);
		check_str("thread", "version", version, zlibVersion());
	}
}
END_TEST

/* Neither before it is needed nor by a try. */
START_TEST(test_not_mapped)
{
	check_int("try", "result", library_try(tree_archive_prepare, NULL), 0);
	ck_assert(dlopen(LIBARCHIVE_SONAME, RTLD_NOW | RTLD_NOLOAD) == NULL);
	check_int("load", "result", tree_archive_prepare(NULL), 0);
	ck_assert(dlopen(LIBARCHIVE_SONAME, RTLD_NOW | RTLD_NOLOAD) != NULL);
}
END_TEST

CHECK_MAIN("library", .setup = setup, .teardown = teardown,
	   .tests = { test_try, test_installed_later, test_function_is_missing, test_threads,
		      test_not_mapped })

#else

CHECK_MAIN("library", .tests = { test_try })

#endif
