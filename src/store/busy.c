/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/busy.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "csi/session.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/holder.h"
#include "store/layout.h"
#include "store/record.h"
#include "store/users.h"

/* -------- names -------- */

void busy_name(char ret[NFS_NAME_MAX + 1], enum busy_kind kind, const char *dir)
{
	char key[RECORD_NAME_MAX + 1], tag[STORE_HOLDER_TAG_MAX];

	directory_key(key, dir, strlen(dir));
	store_holder_tag(tag);
	(void)snprintf(ret, NFS_NAME_MAX + 1, "%s~%c~%s", key, (int)kind, tag);
}

/* A name taken apart; the parts point into it. */
struct parts {
	size_t key_len;
	enum busy_kind kind;
	const char *tag;
};

static bool take_apart(const char *name, struct parts *ret)
{
	const char *tag = strrchr(name, '~');

	if (tag == NULL || tag - name < 3 || tag[-2] != '~' || strchr("umds", tag[-1]) == NULL)
		return false;
	*ret = (struct parts){
		.key_len = (size_t)(tag - name) - 2,
		.kind = (enum busy_kind)tag[-1],
		.tag = tag + 1,
	};
	return true;
}

bool busy_is_of(const char *name, const char *dir)
{
	char key[RECORD_NAME_MAX + 1];
	struct parts parts;

	directory_key(key, dir, strlen(dir));
	return take_apart(name, &parts) && strlen(key) == parts.key_len &&
	       memcmp(key, name, parts.key_len) == 0;
}

#define CUT_KNOWN (RECORD_NAME_MAX - 17) /* what a name that is cut has of its path */

/*
 * Whether the directory in the first len bytes of a name overlaps with that of key: in names a slash is
 * %2F. Of one that was cut only its beginning is known: then it may.
 */
static bool overlaps(const char *name, size_t len, const char *key)
{
	const size_t n = strlen(key), shorter = len < n ? len : n;
	const size_t known = shorter < CUT_KNOWN ? shorter : CUT_KNOWN;

	if (memcmp(name, key, known) != 0)
		return false;
	if (len >= RECORD_NAME_MAX || n >= RECORD_NAME_MAX ? shorter >= CUT_KNOWN : len == n)
		return true;
	if (memcmp(name, key, shorter) != 0)
		return false;
	if (len == n)
		return true;
	return strncmp((len < n ? key : name) + shorter, "%2F", 3) == 0;
}

/* -------- looking -------- */

struct notes {
	const char *key;
	struct strv names;
};

static int take_name(void *data, const struct nfs_entry *entry)
{
	struct notes *notes = data;
	struct parts parts;
	char **items;

	if (!take_apart(entry->name, &parts) ||
	    (notes->key != NULL && !overlaps(entry->name, parts.key_len, notes->key)))
		return 0;
	items = reallocarray(notes->names.items, notes->names.n + 1, sizeof(*items));
	if (items == NULL)
		return -ENOMEM;
	notes->names.items = items;
	items[notes->names.n] = strdup(entry->name);
	return items[notes->names.n++] != NULL ? 0 : -ENOMEM;
}

int busy_each(struct nfs_client *c, const char *dir, busy_fn found, void *data, struct error *err)
{
	char key[RECORD_NAME_MAX + 1];
	struct notes notes = { .key = dir != NULL ? key : NULL };
	const struct nfs_handle *folder;
	struct parts parts;
	size_t i;
	int r;

	if (dir != NULL)
		directory_key(key, dir, strlen(dir));
	r = store_folder(c, STORE_BUSY, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_readdir(c, folder, take_name, &notes);
	if (r < 0)
		r = nfs_error_set(err, c, r, "reading what other controllers do");
	for (i = 0; i < notes.names.n && r == 0; i++)
		if (take_apart(notes.names.items[i], &parts))
			r = found(c, notes.names.items[i], parts.kind, data, err);
	strv_done(&notes.names);
	return r;
}

/* -------- of this process -------- */

struct claim {
	struct list link; /* of those that are at work */
	const struct csi_driver *driver;
	struct nfs_export export;
	struct volume_owner owner;
	enum busy_kind kind;
	char *dir;
	char first[NFS_NAME_MAX + 1];
	char name[NFS_NAME_MAX + 1]; /* now */
	unsigned int renewals;
	bool lost;
};

static struct list claims = { &claims, &claims };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list; innermost */

/* Whether a claim of this process has that tag, which the renewals follow. */
static bool is_at_work(const char *tag)
{
	struct list *pos;
	bool found = false;

	pthread_mutex_lock(&lock);
	list_for_each(pos, &claims) {
		const struct claim *claim = container_of(pos, struct claim, link);
		const char *own = strrchr(claim->first, '~') + 1;
		const size_t len = strlen(own);

		found = found ||
			(strncmp(tag, own, len) == 0 && (tag[len] == '\0' || tag[len] == '.'));
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* Nobody at work holds it any more: of the process before this one, or of a replica that is dead. */
static bool is_left(struct nfs_client *c, const char *name, const struct parts *parts)
{
	if (store_holder_is_own(parts->tag))
		return !is_at_work(parts->tag);
	return store_holder_is_dead(c->export.server, c->export.share, name);
}

bool busy_is_left(struct nfs_client *c, const char *name)
{
	struct parts parts;

	return take_apart(name, &parts) && is_left(c, name, &parts);
}

/* Removes a note that nobody holds; -EAGAIN with ABORTED where somebody does. */
static int give_way(struct nfs_client *c, const char *name, const char *dir, struct error *err)
{
	const struct nfs_handle *folder;
	struct parts parts;
	int r;

	if (!take_apart(name, &parts))
		return 0;
	r = store_folder(c, STORE_BUSY, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (is_left(c, name, &parts)) {
		r = nfs_remove(c, folder, name);
		if (r == 0) {
			log_warn("A note of a controller that is gone is removed",
				 LOG_STR("note", name), LOG_STR("server", c->export.server),
				 LOG_STR("share", c->export.share));
			return 0;
		}
	}
	(void)error_set(err, ERROR_ABORTED,
			"another controller (%.*s) is at work on directory '%s' on %s:%s; try again",
			STORE_HOLDER_LEN, parts.tag, dir, c->export.server, c->export.share);
	return -EAGAIN;
}

static int refuse_users(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
			struct error *err)
{
	if (kind != BUSY_USE && kind != BUSY_MAKE)
		return 0;
	return give_way(c, name, data, err);
}

int busy_check_unused(struct nfs_client *c, const char *dir, struct error *err)
{
	return busy_each(c, dir, refuse_users, (void *)(uintptr_t)dir, err);
}

static int is_deleted(struct nfs_client *c, const char *dir, struct error *err)
{
	(void)error_set(err, ERROR_ABORTED,
			"another controller is deleting directory '%s' on %s:%s; try again", dir,
			c->export.server, c->export.share);
	return -EAGAIN;
}

static int refuse_tombstones(struct nfs_client *c, const char *name, enum busy_kind kind,
			     void *data, struct error *err)
{
	(void)name;
	return kind == BUSY_VOLUME_GONE || kind == BUSY_SNAPSHOT_GONE ? is_deleted(c, data, err) : 0;
}

int busy_check_kept(struct nfs_client *c, const char *dir, struct error *err)
{
	return busy_each(c, dir, refuse_tombstones, (void *)(uintptr_t)dir, err);
}

/* -------- claims -------- */

static int refuse_others(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
			 struct error *err)
{
	struct claim *claim = data;

	if (kind == BUSY_MAKE && claim->kind == BUSY_MAKE && strcmp(name, claim->name) != 0 &&
	    busy_is_of(name, claim->dir))
		return give_way(c, name, claim->dir, err);
	/* What is made finishes the deletion of what was there. */
	return claim->kind == BUSY_USE ? refuse_tombstones(c, name, kind, claim->dir, err) : 0;
}

/* The note comes first, then the look: of two replicas at once, one at least sees the other's. */
static int write_work(struct nfs_client *c, void *data, struct error *err)
{
	const struct nfs_handle *folder;
	struct claim *claim = data;
	int r;

	r = store_folder(c, STORE_BUSY, true, &folder, err);
	if (r < 0)
		return r;
	r = nfs_symlink(c, folder, claim->name, "v=1"); /* the name says all */
	if (r == -ENOENT)
		r = -ESTALE;
	if (r < 0 && r != -EEXIST) /* of an attempt whose answer was lost */
		return nfs_error_set(err, c, r, "noting what is used");
	r = busy_each(c, claim->dir, refuse_others, claim, err);
	if (r < 0 && r != -ESTALE)
		(void)nfs_remove(c, folder, claim->name);
	return r;
}

static int remove_work(struct nfs_client *c, void *data, struct error *err)
{
	const struct nfs_handle *folder;
	struct claim *claim = data;
	int r;

	r = store_folder(c, STORE_BUSY, false, &folder, err);
	if (r == 0)
		r = nfs_remove(c, folder, claim->name);
	return r == -ENOENT ? 0 : r;
}

static int with_client(struct claim *claim, csi_work_fn work, struct error *err)
{
	return csi_with_owner(claim->driver, &claim->export, &claim->owner, work, claim, err);
}

static void claim_free(struct claim *claim)
{
	nfs_export_done(&claim->export);
	free(claim->dir);
	free(claim);
}

static void leave(struct claim *claim)
{
	pthread_mutex_lock(&lock);
	list_remove(&claim->link);
	pthread_mutex_unlock(&lock);
}

/* A share that takes no note: nothing on it can be deleted by this way either, or nothing at all be made. */
static bool is_unwritable(enum error_code code)
{
	return code == ERROR_PERMISSION_DENIED || code == ERROR_FAILED_PRECONDITION ||
	       code == ERROR_RESOURCE_EXHAUSTED;
}

int claim_take(struct claim **ret, const struct csi_driver *driver, const struct nfs_export *e,
	       const struct volume_owner *owner, enum busy_kind kind, const char *dir,
	       struct error *err)
{
	struct error why = { .code = ERROR_OK };
	struct claim *claim = calloc(1, sizeof(*claim));
	int r;

	*ret = NULL;
	if (claim == NULL)
		return error_oom(err);
	claim->driver = driver;
	claim->kind = kind;
	if (owner != NULL)
		claim->owner = *owner;
	claim->dir = strdup(dir);
	if (claim->dir == NULL || nfs_export_copy(&claim->export, e) < 0) {
		claim_free(claim);
		return error_oom(err);
	}
	busy_name(claim->name, kind, dir);
	memcpy(claim->first, claim->name, sizeof(claim->first));
	pthread_mutex_lock(&lock);
	list_add_tail(&claims, &claim->link);
	pthread_mutex_unlock(&lock);
	r = with_client(claim, write_work, &why);
	if (r == 0) {
		*ret = claim;
		return 0;
	}
	leave(claim);
	claim_free(claim);
	if (is_unwritable(why.code))
		return 0;
	if (err != NULL)
		*err = why;
	return r;
}

static int lost(struct claim *claim, struct error *err)
{
	claim->lost = true;
	(void)error_set(err, ERROR_ABORTED,
			"another controller took this one for dead, and may have deleted directory '%s'; try again",
			claim->dir);
	return -EAGAIN;
}

int claim_renew(struct claim *claim, struct nfs_client *c, struct error *err)
{
	const struct nfs_handle *folder;
	char next[NFS_NAME_MAX + 1];
	int r;

	if (claim == NULL)
		return 0;
	if (claim->lost)
		return lost(claim, err);
	(void)snprintf(next, sizeof(next), "%.*s.%x", NFS_NAME_MAX - 9, claim->first,
		       ++claim->renewals);
	r = store_folder(c, STORE_BUSY, false, &folder, err);
	if (r == 0)
		r = nfs_rename(c, folder, claim->name, folder, next);
	if (r == -ENOENT)
		return lost(claim, err);
	if (r < 0)
		return nfs_error_set(err, c, r, "renewing a note of what is used");
	memcpy(claim->name, next, sizeof(claim->name));
	return 0;
}

void claim_drop(struct claim *claim)
{
	struct error ignored = { .code = ERROR_OK };

	if (claim == NULL)
		return;
	/* One that stays is taken for that of a dead replica, when it is in somebody's way. */
	(void)with_client(claim, remove_work, &ignored);
	leave(claim);
	claim_free(claim);
}
