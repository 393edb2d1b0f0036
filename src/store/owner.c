/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/owner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/path_key.h"
#include "store/users.h"
#include "store/volume_record.h"

#define NOTES_FIRST 64 /* notes that are checked before the rest is read */

/*
 * Return where their directory lies relative to path: a bit of OWNER_VOLUMES, or 0 for elsewhere.
 */
static unsigned int relation_to(const char *theirs, const char *path)
{
	static const unsigned int bits[] = {
		[PATH_IS_APART] = 0,
		[PATH_IS_SAME] = OWNER_AT,
		[PATH_IS_IN] = OWNER_IN,
		[PATH_IS_AROUND] = OWNER_AROUND,
	};

	return bits[path_compare(theirs, path)];
}

int owner_check_record(struct nfs_client *c, const char *key, const struct record *rec,
		       struct error *err)
{
	const struct volume v = volume_of(rec);
	cleanup_free char *own = volume_recorded_key(&v);

	if (own == NULL || strcmp(own, key) == 0)
		return 0;
	if (path_may_be_same_name(own, strlen(own), key, strlen(key)))
		return 1;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "record '%s' in %s/volumes on %s:%s is that of volume '%s': somebody has copied it; look at it with ls -l",
			 key, NFS_STATE_DIR, c->export.server, c->export.share, own);
}

/* -------- one record -------- */

struct owner_search {
	struct nfs_client *c;
	const char *path;
	const struct owner_question *q;
	struct owner *owner; /* out */
	bool missing; /* a note led to no record */
};

static int owner_is(struct owner_search *s, enum owner_kind kind, const char *key)
{
	size_t len = strnlen(key, RECORD_NAME_MAX);

	s->owner->kind = kind;
	memcpy(s->owner->key, key, len);
	s->owner->key[len] = '\0';
	return 1;
}

/* Whether a volume with a record counts as an owner. */
static bool volume_counts(const struct owner_question *q, const struct volume *v, const char *key)
{
	switch (q->count) {
	case OWNER_COUNT_ALL:
	case OWNER_COUNT_NOTED:
		return true;
	case OWNER_COUNT_FINISHED:
		return !volume_is_unfinished(v);
	case OWNER_COUNT_ALONE:
		return volume_was_alone(v, key) ||
		       (volume_is_unfinished(v) && volume_is_exclusive(v, key));
	case OWNER_COUNT_SHARING:
		return !volume_is_unfinished(v) && !volume_is_exclusive(v, key);
	case OWNER_COUNT_DIFFERING:
		return !volume_wants_same_settings(v, q->settings_of);
	}
	return true;
}

/*
 * Check the record under a key that comes from a note or, with plain, from the name of the
 * directory. With plain, count only a volume whose directory is its key: all others have notes.
 */
static int check_volume_record(struct owner_search *s, const char *key, unsigned int scope,
			       bool plain, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_free char *own = NULL;
	enum volume_on_delete policy;
	struct volume v;
	int r;

	r = record_read_at(s->c, STORE_VOLUMES, key, &rec, err);
	s->missing = s->missing || (r == -ENOENT && !plain);
	if (r == -ENOENT && s->q->count == OWNER_COUNT_NOTED && !plain)
		return owner_is(s, OWNER_IS_VOLUME, key);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	v = volume_of(&rec);
	own = volume_recorded_key(&v);
	if (own != NULL)
		key = own;
	if (s->q->volume != NULL && strcmp(key, s->q->volume) == 0)
		return 0;
	if (v.dir == NULL)
		return owner_is(s, OWNER_IS_VOLUME, key); /* damaged: it may be the owner */
	if (!(relation_to(v.dir, s->path) & scope & s->q->scope))
		return 0;
	if (plain && (strchr(v.dir, '/') != NULL || strcmp(v.dir, key) != 0))
		return 0;
	if (!volume_counts(s->q, &v, key))
		return 0;
	/* Ours has none if the default was to delete. */
	if (v.on_delete == NULL)
		s->owner->may_retain = volume_is_foreign(&rec);
	else
		s->owner->may_retain =
			on_delete_parse(v.on_delete, &policy) < 0 || policy == ON_DELETE_RETAIN;
	return owner_is(s, OWNER_IS_VOLUME, key);
}

/* -------- notes of use -------- */

static bool is_note_of_others(const char *name, const void *own)
{
	return own == NULL || strcmp(name, own) != 0;
}

/* Return what is below as many components as path has: theirs is in path, but spelled anyhow. */
static const char *rest_below(const char *theirs, const char *path)
{
	for (; theirs != NULL && path != NULL; path = strchr(path + 1, '/'))
		theirs = strchr(theirs + 1, '/');
	return theirs != NULL ? theirs + 1 : "";
}

/* Whether a directory in path is gone, or in the directory that was moved from there. */
static int inner_is_gone(struct owner_search *s, const char *dir, struct error *err)
{
	struct nfs_handle at, next;
	const char *rest;
	size_t n;

	if (s->q->moved == NULL)
		return directory_is_gone(s->c, dir, err);
	at = *s->q->moved;
	for (rest = rest_below(dir, s->path); rest[0] != '\0'; rest += n + (rest[n] == '/')) {
		char name[PATH_COMPONENT_MAX + 1];
		int r;

		n = strcspn(rest, "/");
		(void)snprintf(name, sizeof(name), "%.*s", (int)n, rest);
		r = nfs_lookup(s->c, &at, name, &next, NULL);
		if (r < 0)
			return r == -ENOENT || r == -ENOTDIR
				       ? 1
				       : nfs_error_set(err, s->c, r, "looking up '%s'", dir);
		at = next;
	}
	return 0;
}

/*
 * Take in the policy note of a deleted volume that left its directory to others. A directory
 * below path counts only while it exists: if an administrator removes one, its note stays.
 */
static int add_policy(struct owner_search *s, const struct nfs_handle *users, const char *name,
		      struct error *err)
{
	enum volume_on_delete policy = ON_DELETE_DELETE;
	cleanup_free char *dir = NULL;
	unsigned int relation;
	int r;

	(void)users_name_is_policy(name, &policy);
	r = users_read_policy(s->c, users, name, &dir, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	relation = dir != NULL ? relation_to(dir, s->path) : OWNER_AT;
	s->owner->was_shared = s->owner->was_shared || relation != 0;
	if (relation == OWNER_AROUND)
		s->owner->policy_around = on_delete_stricter(s->owner->policy_around, policy);
	if (relation != OWNER_AT && relation != OWNER_IN)
		return 0;
	s->owner->has_notes = true;
	if (relation == OWNER_AT)
		s->owner->is_noted = true;
	if (policy == ON_DELETE_DELETE)
		return 0;
	r = relation == OWNER_IN ? inner_is_gone(s, dir, err) : 0;
	if (r == 0)
		s->owner->policy = on_delete_stricter(s->owner->policy, policy);
	return r < 0 ? r : 0;
}

/* Check up to max notes. Return -ECANCELED if none of them counts and there are more. */
static int check_notes_up_to(struct owner_search *s, const struct nfs_handle *users,
			     unsigned int scope, size_t max, struct error *err)
{
	cleanup_strv struct strv keys = { NULL, 0 };
	int r, found = 0;
	size_t i;

	r = store_list(s->c, users, is_note_of_others, s->q->volume, max, &keys);
	if (r < 0 && r != -ECANCELED)
		return nfs_error_set(err, s->c, r, "listing the users of '%s'", s->path);
	for (i = 0; i < keys.n && found == 0; i++)
		if (!users_name_is_policy(keys.items[i], NULL))
			found = check_volume_record(s, keys.items[i], scope, false, err);
	if (found != 0 || r < 0 || !s->q->policies)
		return found != 0 ? found : r;
	/*
	 * A record was missing, so a deletion may have left its note after the listing: list again.
	 */
	if (s->missing) {
		strv_done(&keys);
		keys = (struct strv){ NULL, 0 };
		r = store_list(s->c, users, is_note_of_others, s->q->volume, SIZE_MAX, &keys);
		if (r < 0)
			return nfs_error_set(err, s->c, r, "listing the users of '%s'", s->path);
	}
	for (i = 0; i < keys.n && r == 0; i++)
		if (users_name_is_policy(keys.items[i], NULL))
			r = add_policy(s, users, keys.items[i], err);
	return r;
}

static int check_notes(struct owner_search *s, const char *name, unsigned int scope,
		       struct error *err)
{
	const struct nfs_handle *folder;
	struct nfs_handle users;
	int r;

	r = store_folder(s->c, STORE_USERS, false, &folder, err);
	if (r == 0)
		r = store_open(s->c, folder, name, false, &users, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	/* There may be as many notes as volumes, but nearly always the first one counts. */
	r = check_notes_up_to(s, &users, scope, NOTES_FIRST, err);
	return r == -ECANCELED ? check_notes_up_to(s, &users, scope, SIZE_MAX, err) : r;
}

/* -------- the kinds of owners -------- */

/* Check the volumes with the directory, or in it. */
static int check_volumes_within(struct owner_search *s, struct error *err)
{
	char name[RECORD_NAME_MAX + 1];

	if (!(s->q->scope & OWNER_IN))
		return 0;
	path_key(name, s->path, strlen(s->path));
	return check_notes(s, name, OWNER_AT | OWNER_IN, err);
}

/*
 * Check the volumes with a directory above it. With OWNER_AT but not OWNER_IN, which covers them,
 * also check those with the directory itself.
 */
static int check_volumes_around(struct owner_search *s, struct error *err)
{
	const size_t all = strlen(s->path);
	size_t len = 0;
	int r = 0;

	if (!(s->q->scope & (OWNER_AT | OWNER_AROUND)))
		return 0;
	do {
		char name[USERS_EXACT_MAX];

		len = users_next_prefix(s->path, len);
		if (len == all && (s->q->scope & (OWNER_AT | OWNER_IN)) != OWNER_AT)
			return 0;
		if (len < all && !(s->q->scope & OWNER_AROUND))
			continue;
		users_exact_name(name, s->path, len);
		r = check_notes(s, name, OWNER_AT | OWNER_AROUND, err);
	} while (r == 0 && len < all);
	return r;
}

/* Check the volume that has no notes because its directory is its key. */
static int check_plain_volume(struct owner_search *s, struct error *err)
{
	char plain[RECORD_NAME_MAX + 1];
	size_t len = users_next_prefix(s->path, 0);

	if (len > RECORD_NAME_MAX || !(s->q->scope & (OWNER_AT | OWNER_AROUND)))
		return 0;
	memcpy(plain, s->path, len);
	plain[len] = '\0';
	if (s->q->has_record && strcmp(plain, s->q->volume) == 0)
		return 0;
	return check_volume_record(s, plain, OWNER_AT | OWNER_AROUND, true, err);
}

/* Whether the asking volume has its note of use: 1, 0 or a negative errno. */
static int has_own_note(struct owner_search *s, struct error *err)
{
	const struct nfs_handle *folder;
	char name[USERS_EXACT_MAX];
	struct nfs_handle users, unused;
	int r;

	users_exact_name(name, s->path, strlen(s->path));
	r = store_folder(s->c, STORE_USERS, false, &folder, err);
	if (r == 0)
		r = store_open(s->c, folder, name, false, &users, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_lookup(s->c, &users, s->q->volume, &unused, NULL);
	if (r == 0)
		return 1;
	return r == -ENOENT
		       ? 0
		       : nfs_error_set(err, s->c, r, "looking for the notes of '%s'", s->q->volume);
}

/* Names with '~' are parts of records, or records that are being written or removed. */
static bool is_record_name(const char *name, const void *own)
{
	return strchr(name, '~') == NULL && strcmp(name, own) != 0;
}

/*
 * If the asking volume's own note is missing, so may be those of others: somebody has removed
 * .csi-nfs/users, or restored the records without it. Read all records then.
 */
static int check_without_notes(struct owner_search *s, struct error *err)
{
	cleanup_strv struct strv keys = { NULL, 0 };
	const struct nfs_handle *folder;
	size_t i;
	int r;

	if (!s->q->expects_notes)
		return 0;
	r = has_own_note(s, err);
	if (r != 0)
		return r < 0 ? r : 0;
	/* An interrupted deletion has removed them, after the directory. */
	if (directory_is_gone(s->c, s->path, NULL) > 0)
		return 0;
	log_info("Reading the records of all volumes to find other users of a directory: the notes of its volume are missing",
		 LOG_STR("volume", s->q->volume), LOG_STR("directory", s->path));
	r = store_folder(s->c, STORE_VOLUMES, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = store_list(s->c, folder, is_record_name, s->q->volume, SIZE_MAX, &keys);
	if (r < 0)
		return nfs_error_set(err, s->c, r, "listing the records");
	for (i = 0, r = 0; i < keys.n && r == 0; i++)
		r = check_volume_record(s, keys.items[i], OWNER_VOLUMES, false, err);
	/* A deletion may have left a note of its policy and taken its record away meanwhile. */
	if (r == 0)
		r = check_volumes_within(s, err);
	return r != 0 ? r : check_volumes_around(s, err);
}

static int refuse_snapshot_deletion(struct nfs_client *c, const char *name, enum busy_kind kind,
				    void *data, struct error *err)
{
	const char *key = data;

	if (kind != BUSY_SNAPSHOT_GONE || !busy_may_be_of(name, key))
		return 0;
	return error_set(err, ERROR_ABORTED,
			 "another controller is deleting snapshot '%s' on %s:%s; try again", key,
			 c->export.server, c->export.share);
}

/* A deletion renames the record to a tombstone. Read the record first: one of them is found. */
static int check_snapshot(struct owner_search *s, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *folder;
	const size_t len = strcspn(s->path, "/");
	char key[RECORD_NAME_MAX + 1];
	int r;

	if (!(s->q->scope & OWNER_SNAPSHOTS) || len >= sizeof(key))
		return 0;
	memcpy(key, s->path, len);
	key[len] = '\0';
	if (s->q->snapshot != NULL && strcmp(key, s->q->snapshot) == 0)
		return 0;
	r = store_folder(s->c, STORE_SNAPSHOTS, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = record_read(s->c, folder, key, &rec, err);
	if (r == -ENOENT)
		return busy_each(s->c, key, refuse_snapshot_deletion, key, err);
	return r < 0 ? r : owner_is(s, OWNER_IS_SNAPSHOT, key);
}

/* Archives have no record, neither ours nor csi-driver-nfs's: only the name identifies them. */
static int check_archive(struct owner_search *s, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (!(s->q->scope & OWNER_ARCHIVE) || !directory_is_archive_name(s->path))
		return 0;
	r = directory_find(s->c, s->path, &place, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_has_entry(s->c, &handle);
	if (r == 0)
		return 0;
	if (r < 0)
		return nfs_error_set(err, s->c, r, "listing '%s'", s->path);
	return owner_is(s, OWNER_IS_ARCHIVE, "");
}

int owner_find(struct nfs_client *c, const char *path, const struct owner_question *q,
	       struct owner *ret, struct error *err)
{
	/* Volumes without notes come first: a deletion leaves notes before the record goes. */
	static int (*const checks[])(struct owner_search * s, struct error * err) = {
		check_plain_volume,  check_volumes_within, check_volumes_around,
		check_without_notes, check_snapshot,       check_archive,
	};
	struct owner_search s = { .c = c, .path = path, .q = q, .owner = ret };
	size_t i;
	int r = 0;

	*ret = (struct owner){ .kind = OWNER_IS_NOBODY };
	for (i = 0; i < ARRAY_SIZE(checks) && r == 0; i++)
		r = checks[i](&s, err);
	return r;
}

int owner_find_late(struct nfs_client *c, const char *path, const struct owner_question *q,
		    struct owner *ret, struct error *err)
{
	struct owner_question late = *q;
	int r;

	late.count = OWNER_COUNT_NOTED;
	r = owner_find(c, path, &late, ret, err);
	if (r != 0)
		return r;
	r = busy_check_recorded_not_deleted(c, path, err);
	/* A deletion that has failed since the first look has put its record back. */
	return r < 0 ? r : owner_find(c, path, &late, ret, err);
}

int owner_refuse(struct nfs_client *c, const char *path, const struct owner *owner,
		 const char *wanted_by, struct error *err)
{
	static const char *const kinds[] = {
		[OWNER_IS_VOLUME] = "volume",
		[OWNER_IS_SNAPSHOT] = "snapshot",
	};

	if (owner->kind == OWNER_IS_ARCHIVE)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "directory '%s' on %s:%s, for '%s', has an archive's name and is not empty: rename it, or set existingDirectory=adopt explicitly",
				 path, c->export.server, c->export.share, wanted_by);
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "directory '%s' on %s:%s, for '%s', overlaps the directory of %s '%s'",
			 path, c->export.server, c->export.share, wanted_by, kinds[owner->kind],
			 owner->key);
}
