/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/locks.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/path.h"
#include "base/str.h"
#include "store/directory.h"

#define BUCKETS 256

struct key_lock {
	struct list link;
	struct key_locks *owner;
	const char *what;
	bool shared;
	char key[];
};

struct key_locks {
	pthread_mutex_t lock; /* guards the buckets; innermost */
	struct list buckets[BUCKETS];
};

int key_locks_new(struct key_locks **ret)
{
	struct key_locks *f = calloc(1, sizeof(*f));
	size_t i;

	if (f == NULL)
		return -ENOMEM;
	pthread_mutex_init(&f->lock, NULL);
	for (i = 0; i < BUCKETS; i++)
		list_init(&f->buckets[i]);
	*ret = f;
	return 0;
}

void key_locks_free(struct key_locks *f)
{
	if (f == NULL)
		return;
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static bool lock_excludes(const struct key_lock *a, const struct key_lock *b)
{
	return !(a->shared && b->shared) && strcmp(a->what, b->what) == 0 &&
	       strcmp(a->key, b->key) == 0;
}

static bool bucket_excludes(const struct list *bucket, const struct key_lock *lock)
{
	const struct list *pos;

	list_for_each(pos, bucket)
		if (lock_excludes(container_of(pos, struct key_lock, link), lock))
			return true;
	return false;
}

static int take_lock(struct key_locks *f, const char *what, const char *key, bool shared,
		     struct key_lock **ret, struct error *err)
{
	size_t len = strlen(key);
	struct list *bucket = &f->buckets[str_hash(key, len) % BUCKETS];
	struct key_lock *lock = malloc(sizeof(*lock) + len + 1);
	bool held;

	if (lock == NULL)
		return error_oom(err);
	lock->owner = f;
	lock->what = what;
	lock->shared = shared;
	memcpy(lock->key, key, len + 1);
	pthread_mutex_lock(&f->lock);
	held = bucket_excludes(bucket, lock);
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

int key_lock_take(struct key_locks *f, const char *what, const char *key, struct key_lock **ret,
		  struct error *err)
{
	return take_lock(f, what, key, false, ret, err);
}

int key_lock_share(struct key_locks *f, const char *what, const char *key, struct key_lock **ret,
		   struct error *err)
{
	return take_lock(f, what, key, true, ret, err);
}

void key_lock_drop(struct key_lock *lock)
{
	struct key_locks *f;

	if (lock == NULL)
		return;
	f = lock->owner;
	pthread_mutex_lock(&f->lock);
	list_remove(&lock->link);
	pthread_mutex_unlock(&f->lock);
	free(lock);
}

/* -------- directories -------- */

bool dir_locks_overlap(const char *a, const char *b)
{
	return path_compare(a, b) != PATH_IS_APART;
}

struct dir_lock {
	struct list link;
	struct dir_locks *table;
	char *server, *share, *dir;
	bool deleting;
};

struct dir_locks {
	pthread_mutex_t lock; /* guards the list; innermost */
	struct list locks; /* one per running call: few enough to search */
};

int dir_locks_new(struct dir_locks **ret)
{
	struct dir_locks *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->locks);
	*ret = t;
	return 0;
}

void dir_locks_free(struct dir_locks *t)
{
	if (t == NULL)
		return;
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static void dir_lock_free(struct dir_lock *lock)
{
	free(lock->server);
	free(lock->share);
	free(lock->dir);
	free(lock);
}

/* Whether the deletion of a directory may put its archive at, in or around another one. */
static bool may_archive_to(const struct dir_lock *deletion, const char *dir)
{
	const char *archived_from = directory_archived_from(dir);

	return archived_from != NULL && dir_locks_overlap(deletion->dir, archived_from);
}

static bool dir_lock_excludes(const struct dir_lock *a, const struct dir_lock *b)
{
	return (a->deleting || b->deleting) && strcmp(a->server, b->server) == 0 &&
	       strcmp(a->share, b->share) == 0 &&
	       (dir_locks_overlap(a->dir, b->dir) || (a->deleting && may_archive_to(a, b->dir)) ||
		(b->deleting && may_archive_to(b, a->dir)));
}

int dir_lock_take(struct dir_locks *t, const char *server, const char *share, const char *dir,
		  bool deleting, struct dir_lock **ret, struct error *err)
{
	struct dir_lock *lock = calloc(1, sizeof(*lock));
	struct list *pos;
	bool taken = false;

	if (lock == NULL)
		return error_oom(err);
	lock->table = t;
	lock->deleting = deleting;
	lock->server = strdup(server);
	lock->share = strdup(share);
	lock->dir = strdup(dir);
	if (lock->server == NULL || lock->share == NULL || lock->dir == NULL) {
		dir_lock_free(lock);
		return error_oom(err);
	}
	pthread_mutex_lock(&t->lock);
	list_for_each(pos, &t->locks)
		taken = taken || dir_lock_excludes(container_of(pos, struct dir_lock, link), lock);
	if (!taken)
		list_add_tail(&t->locks, &lock->link);
	pthread_mutex_unlock(&t->lock);
	if (taken) {
		dir_lock_free(lock);
		(void)error_set(err, ERROR_ABORTED,
				"another call is working on a volume in directory '%s'; try again",
				dir);
		return -EAGAIN;
	}
	*ret = lock;
	return 0;
}

void dir_lock_drop(struct dir_lock *lock)
{
	if (lock == NULL)
		return;
	pthread_mutex_lock(&lock->table->lock);
	list_remove(&lock->link);
	pthread_mutex_unlock(&lock->table->lock);
	dir_lock_free(lock);
}
