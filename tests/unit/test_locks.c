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
	struct inflight_lock *first = NULL, *second = NULL, *third = NULL;
	struct error err = { .code = ERROR_OK };
	struct inflight *f;

	check_int("new", "result", inflight_new(&f), 0);
	check_int("free key", "result", inflight_acquire(f, "volume", "a", &first, &err), 0);
	check_int("other key", "result", inflight_acquire(f, "volume", "b", &second, &err), 0);
	check_error("free keys", &err, ERROR_OK, NULL);
	check_int("held key", "result", inflight_acquire(f, "volume", "a", &third, &err), -EAGAIN);
	check_error("held key", &err, ERROR_ABORTED, "volume");
	check_that("held key", "nothing returned", third == NULL);
	inflight_release(first);
	inflight_release(NULL);
	check_int("released key", "result", inflight_acquire(f, "volume", "a", &third, NULL), 0);
	check_int("empty key", "result", inflight_acquire(f, "volume", "", &first, NULL), 0);
	inflight_release(first);
	inflight_release(second);
	inflight_release(third);
	inflight_free(f);
	inflight_free(NULL);
}
END_TEST

/* More keys than buckets: those that share a bucket do not exclude each other. */
START_TEST(test_many)
{
	struct inflight_lock *locks[1000], *again = NULL;
	struct inflight *f;
	char key[32];
	size_t i;

	check_int("new", "result", inflight_new(&f), 0);
	for (i = 0; i < ARRAY_SIZE(locks); i++) {
		(void)snprintf(key, sizeof(key), "pvc-%zu", i);
		check_int(key, "first", inflight_acquire(f, "volume", key, &locks[i], NULL), 0);
	}
	for (i = 0; i < ARRAY_SIZE(locks); i++) {
		(void)snprintf(key, sizeof(key), "pvc-%zu", i);
		check_int(key, "second", inflight_acquire(f, "volume", key, &again, NULL), -EAGAIN);
		inflight_release(locks[i]);
	}
	inflight_free(f);
}
END_TEST

static struct inflight *shared;
static atomic_int holders[KEYS];
static atomic_int collisions;
static atomic_int acquired;

static void *compete(void *data)
{
	static const char *const keys[KEYS] = { "a", "b", "c" };
	size_t i;

	(void)data;
	for (i = 0; i < ROUNDS; i++) {
		struct inflight_lock *lock = NULL;
		size_t k = i % KEYS;

		if (inflight_acquire(shared, "volume", keys[k], &lock, NULL) < 0)
			continue;
		if (atomic_fetch_add(&holders[k], 1) != 0)
			atomic_fetch_add(&collisions, 1);
		atomic_fetch_add(&acquired, 1);
		atomic_fetch_sub(&holders[k], 1);
		inflight_release(lock);
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[THREADS];
	size_t i;

	check_int("new", "result", inflight_new(&shared), 0);
	for (i = 0; i < THREADS; i++)
		ck_assert(pthread_create(&threads[i], NULL, compete, NULL) == 0);
	for (i = 0; i < THREADS; i++)
		ck_assert(pthread_join(threads[i], NULL) == 0);
	check_int("threads", "two holders of one key", atomic_load(&collisions), 0);
	check_that("threads", "each key was got", atomic_load(&acquired) >= ROUNDS);
	compete(NULL);
	check_that("afterwards", "nothing is held", atomic_load(&acquired) >= 2 * ROUNDS);
	inflight_free(shared);
}
END_TEST

CHECK_MAIN("inflight", test_held, test_many, test_threads)
