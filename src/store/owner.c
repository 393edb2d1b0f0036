/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/owner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/staging.h"
#include "store/users.h"
#include "store/volume.h"
#include "store/volume_id.h"

#define NOTES_FIRST 64 /* notes that are looked at before the rest is read */

/* -------- records -------- */

bool owner_is_open(const struct record *rec)
{
	return (record_get(rec, VOLUME_KEY_SOURCE) != NULL ||
		record_get(rec, VOLUME_KEY_CLAIM) != NULL) &&
	       !staging_is_ready(rec);
}

bool owner_is_exclusive(const char *key, const struct record *rec)
{
	const char *claim = record_get(rec, VOLUME_KEY_CLAIM);

	if (claim != NULL)
		return strcmp(claim, VOLUME_CLAIM_EXCLUSIVE) == 0;
	return str_eq(record_get(rec, VOLUME_KEY_DIR), key) &&
	       !str_eq(record_get(rec, VOLUME_KEY_EXISTING), existing_name(EXISTING_ADOPT));
}

bool owner_has_decided(const char *key, const struct record *rec)
{
	return record_get(rec, VOLUME_KEY_CLAIM) != NULL && owner_is_exclusive(key, rec) &&
	       staging_is_ready(rec);
}

/* NULL: the record does not tell, as one that somebody wrote by hand. */
static char *key_of(const struct record *rec)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const char *text = record_get(rec, VOLUME_KEY_ID);

	if (text == NULL || volume_id_parse(&id, text) < 0)
		return NULL;
	return strdup(volume_id_key(&id));
}

/* Whether a server that folds names could take the one for the other. */
static bool may_be_same(const char *a, size_t n, const char *b, size_t m)
{
	size_t i;

	for (i = 0; i < n; i++)
		if ((unsigned char)a[i] >= 0x80)
			return true;
	for (i = 0; i < m; i++)
		if ((unsigned char)b[i] >= 0x80)
			return true;
	return n == m && strncasecmp(a, b, n) == 0;
}

int owner_check_record(struct nfs_client *c, const char *key, const struct record *rec,
		       struct error *err)
{
	cleanup_free char *own = key_of(rec);

	if (own == NULL || strcmp(own, key) == 0)
		return 0;
	if (may_be_same(own, strlen(own), key, strlen(key)))
		return 1;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "record '%s' in %s/volumes on %s:%s is that of volume '%s': somebody has copied it; look at it with ls -l",
			 key, NFS_STATE_DIR, c->export.server, c->export.share, own);
}

/* Where theirs is, seen from path. 0: elsewhere. */
static unsigned int relation(const char *theirs, const char *path)
{
	for (;;) {
		size_t n = strcspn(theirs, "/"), m = strcspn(path, "/");

		if (!may_be_same(theirs, n, path, m))
			return 0;
		theirs += n;
		path += m;
		if (*theirs == '\0')
			return *path == '\0' ? OWNER_AT : OWNER_AROUND;
		if (*path == '\0')
			return OWNER_IN;
		theirs++;
		path++;
	}
}

struct search {
	struct nfs_client *c;
	const char *path;
	const struct owner_question *q;
	struct owner *owner; /* out */
};

static int found(struct search *s, enum owner_kind kind, const char *key)
{
	size_t len = strnlen(key, RECORD_NAME_MAX);

	s->owner->kind = kind;
	memcpy(s->owner->key, key, len);
	s->owner->key[len] = '\0';
	return 1;
}

/* Whether the claim in that record counts for who asks. */
static bool counts(const struct search *s, const char *key, const struct record *rec)
{
	if (s->q->finished && owner_is_open(rec))
		return false;
	return !(s->q->exclusive && owner_is_exclusive(key, rec));
}

/* The record under a key, which a note or a directory's name has led to. plain: it has to be that. */
static int check_volume(struct search *s, const char *key, unsigned int scope, bool plain,
			struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_free char *own = NULL;
	const struct nfs_handle *folder;
	const char *theirs;
	int r;

	r = store_folder(s->c, STORE_VOLUMES, false, &folder, err);
	if (r == 0)
		r = record_read(s->c, folder, key, &rec, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	own = key_of(&rec);
	if (s->q->volume != NULL && strcmp(own != NULL ? own : key, s->q->volume) == 0)
		return 0;
	theirs = record_get(&rec, VOLUME_KEY_DIR);
	if (theirs == NULL || !(relation(theirs, s->path) & scope & s->q->scope))
		return 0;
	if (plain && strchr(theirs, '/') != NULL)
		return 0;
	if (plain && strcmp(theirs, own != NULL ? own : key) != 0)
		return 0; /* it has notes */
	if (own != NULL)
		key = own;
	return counts(s, key, &rec) ? found(s, OWNER_IS_VOLUME, key) : 0;
}

/* -------- notes -------- */

static bool is_note_of_others(const char *name, const void *own)
{
	return own == NULL || strcmp(name, own) != 0;
}

/* Up to max notes: -ECANCELED where there are more, and none of those counts. */
static int check_some(struct search *s, const struct nfs_handle *users, unsigned int scope,
		      size_t max, struct error *err)
{
	cleanup_strv struct strv keys = { NULL, 0 };
	size_t i;
	int r, found = 0;

	r = store_list(s->c, users, is_note_of_others, s->q->volume, max, &keys);
	if (r < 0 && r != -ECANCELED)
		return nfs_error_set(err, s->c, r, "looking who uses '%s'", s->path);
	for (i = 0; i < keys.n && found == 0; i++)
		found = check_volume(s, keys.items[i], scope, false, err);
	return found != 0 ? found : r;
}

static int check_notes(struct search *s, const char *name, unsigned int scope, struct error *err)
{
	const struct nfs_handle *folder;
	struct nfs_handle users;
	int r;

	r = store_folder(s->c, STORE_USERS, false, &folder, err);
	if (r == 0)
		r = store_open(s->c, folder, name, false, &users, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	/* The first one nearly always counts, and there may be as many as volumes. */
	r = check_some(s, &users, scope, NOTES_FIRST, err);
	return r == -ECANCELED ? check_some(s, &users, scope, SIZE_MAX, err) : r;
}

/* The volumes in the directory, and those of it. */
static int check_within(struct search *s, struct error *err)
{
	char name[RECORD_NAME_MAX + 1];

	directory_key(name, s->path, strlen(s->path));
	return check_notes(s, name, OWNER_AT | OWNER_IN, err);
}

/* The volumes of each directory above it, or, where that alone is asked for, of its own. */
static int check_exactly(struct search *s, struct error *err)
{
	const size_t all = strlen(s->path);
	size_t len = 0;
	int r = 0;

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

/* The volume that has no note, since its directory is its key. */
static int check_plain(struct search *s, struct error *err)
{
	char plain[RECORD_NAME_MAX + 1];
	size_t len = users_next_prefix(s->path, 0);

	if (len > RECORD_NAME_MAX || !(s->q->scope & (OWNER_AT | OWNER_AROUND)))
		return 0;
	memcpy(plain, s->path, len);
	plain[len] = '\0';
	if (s->q->has_record && strcmp(plain, s->q->volume) == 0)
		return 0;
	return check_volume(s, plain, OWNER_AT | OWNER_AROUND, true, err);
}

static int check_snapshot(struct search *s, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const size_t len = strcspn(s->path, "/");
	const struct nfs_handle *folder;
	char key[RECORD_NAME_MAX + 1];
	int r;

	if (!(s->q->scope & OWNER_SNAPSHOTS) || len >= sizeof(key))
		return 0;
	memcpy(key, s->path, len);
	key[len] = '\0';
	if (s->q->snapshot != NULL && strcmp(key, s->q->snapshot) == 0)
		return 0;
	r = store_folder(s->c, STORE_SNAPSHOTS, false, &folder, err);
	if (r == 0)
		r = record_read(s->c, folder, key, &rec, err);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : found(s, OWNER_IS_SNAPSHOT, key);
}

static int stop(void *data, const struct nfs_entry *entry)
{
	(void)data;
	(void)entry;
	return -ECANCELED;
}

/* Archives have no record, csi-driver-nfs's neither: it is their name that tells them. */
static int check_archive(struct search *s, struct error *err)
{
	const size_t len = strlen(DIRECTORY_ARCHIVE_PREFIX);
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (!(s->q->scope & OWNER_ARCHIVE) || strncasecmp(s->path, DIRECTORY_ARCHIVE_PREFIX, len) != 0)
		return 0;
	r = directory_find(s->c, s->path, &place, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_readdir(s->c, &handle, stop, NULL);
	if (r < 0 && r != -ECANCELED)
		return nfs_error_set(err, s->c, r, "looking into '%s'", s->path);
	return r < 0 ? found(s, OWNER_IS_ARCHIVE, "") : 0;
}

int owner_find(struct nfs_client *c, const char *path, const struct owner_question *q,
	       struct owner *ret, struct error *err)
{
	struct search s = { .c = c, .path = path, .q = q, .owner = ret };
	int r = 0;

	*ret = (struct owner){ .kind = OWNER_IS_NOBODY };
	if (q->scope & OWNER_IN)
		r = check_within(&s, err);
	if (r == 0 && (q->scope & (OWNER_AT | OWNER_AROUND)))
		r = check_exactly(&s, err);
	if (r == 0)
		r = check_plain(&s, err);
	if (r == 0)
		r = check_snapshot(&s, err);
	return r == 0 ? check_archive(&s, err) : r;
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
				 "directory '%s' on %s:%s, for '%s', has the name of an archive, and is not empty: move it away, or write out existingDirectory=adopt",
				 path, c->export.server, c->export.share, wanted_by);
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "directory '%s' on %s:%s, for '%s', overlaps with that of %s '%s', and is not shared with it",
			 path, c->export.server, c->export.share, wanted_by, kinds[owner->kind],
			 owner->key);
}
