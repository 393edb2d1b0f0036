/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/inflight.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/str.h"

#define BUCKETS 256

struct inflight_lock {
	struct list link;
	struct inflight *owner;
	char key[];
};

struct inflight {
	pthread_mutex_t lock; /* guards the buckets; innermost, held for a look-up only */
	struct list buckets[BUCKETS];
};

int inflight_new(struct inflight **ret)
{
	struct inflight *f = calloc(1, sizeof(*f));
	size_t i;

	if (f == NULL)
		return -ENOMEM;
	pthread_mutex_init(&f->lock, NULL);
	for (i = 0; i < BUCKETS; i++)
		list_init(&f->buckets[i]);
	*ret = f;
	return 0;
}

void inflight_free(struct inflight *f)
{
	if (f == NULL)
		return;
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static bool is_held(const struct list *bucket, const char *key)
{
	const struct list *pos;

	list_for_each(pos, bucket)
		if (strcmp(container_of(pos, struct inflight_lock, link)->key, key) == 0)
			return true;
	return false;
}

int inflight_acquire(struct inflight *f, const char *what, const char *key,
		     struct inflight_lock **ret, struct error *err)
{
	size_t len = strlen(key);
	struct list *bucket = &f->buckets[str_hash(key, len) % BUCKETS];
	struct inflight_lock *lock = malloc(sizeof(*lock) + len + 1);
	bool held;

	if (lock == NULL)
		return error_oom(err);
	lock->owner = f;
	memcpy(lock->key, key, len + 1);
	pthread_mutex_lock(&f->lock);
	held = is_held(bucket, key);
	if (!held)
		list_add_tail(bucket, &lock->link);
	pthread_mutex_unlock(&f->lock);
	if (held) {
		free(lock);
		return error_set(err, ERROR_ABORTED,
				 "another operation on this %s is under way; try again", what);
	}
	*ret = lock;
	return 0;
}

void inflight_release(struct inflight_lock *lock)
{
	struct inflight *f;

	if (lock == NULL)
		return;
	f = lock->owner;
	pthread_mutex_lock(&f->lock);
	list_remove(&lock->link);
	pthread_mutex_unlock(&f->lock);
	free(lock);
}
