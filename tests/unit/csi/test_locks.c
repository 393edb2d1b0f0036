/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "csi/locks.h"
#include "check_util.h"

#define THREADS 4
#define ROUNDS 20000
#define KEYS 3

START_TEST(test_held)
{
	struct key_lock *first = NULL, *second = NULL, *third = NULL;
	struct error err = { .code = ERROR_OK };
	struct key_locks *f;

	check_int("new", "result", key_locks_new(&f), 0);
	check_int("free key", "result", key_lock_take(f, "volume", "a", &first, &err), 0);
	check_int("other key", "result", key_lock_take(f, "volume", "b", &second, &err), 0);
	check_error("free keys", &err, ERROR_OK, NULL);
	check_int("held key", "result", key_lock_take(f, "volume", "a", &third, &err), -EAGAIN);
	check_error("held key", &err, ERROR_ABORTED, "volume");
	check_that("held key", "nothing returned", third == NULL);
	key_lock_drop(first);
	key_lock_drop(NULL);
	check_int("released key", "result", key_lock_take(f, "volume", "a", &third, NULL), 0);
	check_int("empty key", "result", key_lock_take(f, "volume", "", &first, NULL), 0);
	key_lock_drop(first);
	key_lock_drop(second);
	key_lock_drop(third);
	key_locks_free(f);
	key_locks_free(NULL);
}
END_TEST

/* Shared locks exclude only the others, and keys of one kind only keys of that kind. */
START_TEST(test_shared)
{
	struct key_lock *first = NULL, *second = NULL, *third = NULL;
	struct error err = { .code = ERROR_OK };
	struct key_locks *f;

	check_int("new", "result", key_locks_new(&f), 0);
	check_int("shared", "result", key_lock_share(f, "volume", "a", &first, &err), 0);
	check_int("shared again", "result", key_lock_share(f, "volume", "a", &second, &err), 0);
	check_int("exclusive", "result", key_lock_take(f, "volume", "a", &third, &err), -EAGAIN);
	check_error("exclusive", &err, ERROR_ABORTED, "volume");
	key_lock_drop(first);
	check_int("beside one", "result", key_lock_take(f, "volume", "a", &third, NULL), -EAGAIN);
	check_that("beside one", "nothing returned", third == NULL);
	key_lock_drop(second);
	check_int("alone", "result", key_lock_take(f, "volume", "a", &third, NULL), 0);
	check_int("shared, late", "result", key_lock_share(f, "volume", "a", &first, NULL),
		  -EAGAIN);
	check_int("of another kind", "result", key_lock_take(f, "path", "a", &first, NULL), 0);
	key_lock_drop(first);
	key_lock_drop(third);
	key_locks_free(f);
}
END_TEST

/* More keys than buckets: those that share a bucket do not exclude each other. */
START_TEST(test_many)
{
	struct key_lock *locks[1000], *again = NULL;
	struct key_locks *f;
	char key[32];
	size_t i;

	check_int("new", "result", key_locks_new(&f), 0);
	for (i = 0; i < ARRAY_SIZE(locks); i++) {
		(void)snprintf(key, sizeof(key), "pvc-%zu", i);
		check_int(key, "first", key_lock_take(f, "volume", key, &locks[i], NULL), 0);
	}
	for (i = 0; i < ARRAY_SIZE(locks); i++) {
		(void)snprintf(key, sizeof(key), "pvc-%zu", i);
		check_int(key, "second", key_lock_take(f, "volume", key, &again, NULL), -EAGAIN);
		key_lock_drop(locks[i]);
	}
	key_locks_free(f);
}
END_TEST

static struct key_locks *shared;
static atomic_int holders[KEYS];
static atomic_int collisions;
static atomic_int acquired;

static void *compete(void *data)
{
	static const char *const keys[KEYS] = { "a", "b", "c" };
	size_t i;

	(void)data;
	for (i = 0; i < ROUNDS; i++) {
		struct key_lock *lock = NULL;
		size_t k = i % KEYS;

		if (key_lock_take(shared, "volume", keys[k], &lock, NULL) < 0)
			continue;
		if (atomic_fetch_add(&holders[k], 1) != 0)
			atomic_fetch_add(&collisions, 1);
		atomic_fetch_add(&acquired, 1);
		atomic_fetch_sub(&holders[k], 1);
		key_lock_drop(lock);
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[THREADS];
	size_t i;

	check_int("new", "result", key_locks_new(&shared), 0);
	for (i = 0; i < THREADS; i++)
		ck_assert(pthread_create(&threads[i], NULL, compete, NULL) == 0);
	for (i = 0; i < THREADS; i++)
		ck_assert(pthread_join(threads[i], NULL) == 0);
	check_int("threads", "two holders of one key", atomic_load(&collisions), 0);
	check_that("threads", "each key was got", atomic_load(&acquired) >= ROUNDS);
	compete(NULL);
	check_that("afterwards", "nothing is held", atomic_load(&acquired) >= 2 * ROUNDS);
	key_locks_free(shared);
}
END_TEST

CHECK_MAIN("key_locks", .tests = { test_held, test_shared, test_many, test_threads })
