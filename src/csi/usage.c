/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/usage.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/str.h"
#include "csi/directory.h"
#include "csi/volume.h"
#include "nfs/calls.h"
#include "nfs/record.h"
#include "nfs/state.h"

#define NOTE_TEXT "v=1" /* what there is to say is in the volume's record */

bool usage_overlaps(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	size_t shorter = n < m ? n : m;

	if (strncmp(a, b, shorter) != 0)
		return false;
	return n == m || (n < m ? b[n] : a[m]) == '/';
}

static int failed(struct nfs_client *c, int r, const char *dir, struct error *err)
{
	return nfs_error_set(err, c, r, "noting who uses '%s'", dir);
}

/* Where the path that starts after the first len bytes of dir ends: the next slash, or the end. */
static size_t next_prefix(const char *dir, size_t len)
{
	if (len > 0)
		len++;
	return len + strcspn(dir + len, "/");
}

static int open_users(struct nfs_client *c, const struct nfs_handle *folder, const char *dir,
		      size_t len, bool make, char name[RECORD_NAME_MAX + 1], struct nfs_handle *ret,
		      struct error *err)
{
	directory_key(name, dir, len);
	return nfs_state_open(c, folder, name, make, ret, err);
}

int usage_note(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	const struct nfs_handle *folder;
	char name[RECORD_NAME_MAX + 1];
	struct nfs_handle users;
	size_t len = 0;
	int r;

	if (strcmp(key, dir) == 0)
		return 0;
	r = nfs_state_folder(c, NFS_FOLDER_USERS, true, &folder, err);
	if (r < 0)
		return r;
	do {
		len = next_prefix(dir, len);
		r = open_users(c, folder, dir, len, true, name, &users, err);
		if (r < 0)
			return r;
		r = nfs_symlink(c, &users, key, NOTE_TEXT);
		if (r == -ENOENT)
			r = -ESTALE; /* its last user has just gone, and it with him */
		if (r < 0 && r != -EEXIST)
			return failed(c, r, dir, err);
	} while (dir[len] != '\0');
	return 0;
}

int usage_forget(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	const struct nfs_handle *folder;
	char name[RECORD_NAME_MAX + 1];
	struct nfs_handle users;
	size_t len = 0;
	int r;

	if (strcmp(key, dir) == 0)
		return 0;
	r = nfs_state_folder(c, NFS_FOLDER_USERS, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	do {
		len = next_prefix(dir, len);
		r = open_users(c, folder, dir, len, false, name, &users, err);
		if (r == -ENOENT)
			continue;
		if (r < 0)
			return r;
		r = nfs_remove(c, &users, key);
		if (r < 0 && r != -ENOENT)
			return failed(c, r, dir, err);
		(void)nfs_rmdir(c, folder, name); /* the last user takes it along; others keep it */
	} while (dir[len] != '\0');
	return 0;
}

/* Whether there is a record under the key whose directory overlaps with dir. */
static int is_user(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *folder;
	const char *theirs;
	int r;

	r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, false, &folder, err);
	if (r == 0)
		r = record_read(c, folder, key, &rec, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	theirs = record_get(&rec, VOLUME_KEY_DIR);
	return theirs != NULL && usage_overlaps(theirs, dir);
}

/* The keys in a folder of notes, without one's own. */
struct notes {
	const char *own;
	char **keys;
	size_t n;
};

static int take_note(void *data, const struct nfs_entry *entry)
{
	struct notes *notes = data;
	char **keys;

	if (strcmp(entry->name, notes->own) == 0)
		return 0;
	keys = reallocarray(notes->keys, notes->n + 1, sizeof(*keys));
	if (keys == NULL)
		return -ENOMEM;
	notes->keys = keys;
	keys[notes->n] = strdup(entry->name);
	if (keys[notes->n] == NULL)
		return -ENOMEM;
	notes->n++;
	return 0;
}

static int check_notes(struct nfs_client *c, const struct nfs_handle *users, const char *key,
		       const char *dir, struct error *err)
{
	struct notes notes = { .own = key };
	size_t i;
	int r;

	r = nfs_readdir(c, users, take_note, &notes);
	if (r < 0)
		r = failed(c, r, dir, err);
	for (i = 0; i < notes.n && r == 0; i++)
		r = is_user(c, notes.keys[i], dir, err);
	for (i = 0; i < notes.n; i++)
		free(notes.keys[i]);
	free(notes.keys);
	return r;
}

/* The volume that has no note, since its directory is its key. */
static int check_plain(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	char plain[RECORD_NAME_MAX + 1];
	size_t len = next_prefix(dir, 0);

	if (len > RECORD_NAME_MAX)
		return 0;
	memcpy(plain, dir, len);
	plain[len] = '\0';
	return strcmp(plain, key) == 0 ? 0 : is_user(c, plain, dir, err);
}

int usage_by_others(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	const struct nfs_handle *folder;
	char name[RECORD_NAME_MAX + 1];
	struct nfs_handle users;
	size_t len = 0;
	int r;

	r = check_plain(c, key, dir, err);
	if (r != 0)
		return r;
	r = nfs_state_folder(c, NFS_FOLDER_USERS, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	do {
		len = next_prefix(dir, len);
		r = open_users(c, folder, dir, len, false, name, &users, err);
		if (r == 0)
			r = check_notes(c, &users, key, dir, err);
		if (r != 0 && r != -ENOENT)
			return r;
	} while (dir[len] != '\0');
	return 0;
}

/* -------- in this process -------- */

struct usage_lock {
	struct list link;
	struct usage_table *table;
	struct nfs_export export;
	char *dir;
	bool deleting;
};

struct usage_table {
	pthread_mutex_t lock; /* guards what follows; innermost */
	struct list locks; /* one for each call at work: few */
};

int usage_table_new(struct usage_table **ret)
{
	struct usage_table *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->locks);
	*ret = t;
	return 0;
}

void usage_table_free(struct usage_table *t)
{
	if (t == NULL)
		return;
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static void lock_free(struct usage_lock *lock)
{
	nfs_export_done(&lock->export);
	free(lock->dir);
	free(lock);
}

static bool excludes(const struct usage_lock *a, const struct usage_lock *b)
{
	return (a->deleting || b->deleting) && strcmp(a->export.server, b->export.server) == 0 &&
	       strcmp(a->export.share, b->export.share) == 0 && usage_overlaps(a->dir, b->dir);
}

int usage_acquire(struct usage_table *t, const struct nfs_export *e, const char *dir, bool deleting,
		  struct usage_lock **ret, struct error *err)
{
	struct usage_lock *lock = calloc(1, sizeof(*lock));
	struct list *pos;
	bool taken = false;

	if (lock == NULL)
		return error_oom(err);
	lock->table = t;
	lock->deleting = deleting;
	lock->dir = strdup(dir);
	if (lock->dir == NULL || nfs_export_copy(&lock->export, e) < 0) {
		lock_free(lock);
		return error_oom(err);
	}
	pthread_mutex_lock(&t->lock);
	list_for_each(pos, &t->locks)
		taken = taken || excludes(container_of(pos, struct usage_lock, link), lock);
	if (!taken)
		list_add_tail(&t->locks, &lock->link);
	pthread_mutex_unlock(&t->lock);
	if (taken) {
		lock_free(lock);
		(void)error_set(err, ERROR_ABORTED,
				"another call is at work on a volume in directory '%s'; try again",
				dir);
		return -EAGAIN;
	}
	*ret = lock;
	return 0;
}

void usage_release(struct usage_lock *lock)
{
	if (lock == NULL)
		return;
	pthread_mutex_lock(&lock->table->lock);
	list_remove(&lock->link);
	pthread_mutex_unlock(&lock->table->lock);
	lock_free(lock);
}
