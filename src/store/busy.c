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
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/holder.h"
#include "store/layout.h"
#include "store/path_key.h"
#include "store/record.h"
#include "store/text.h"

/* -------- names -------- */

void busy_name(char ret[NFS_NAME_MAX + 1], enum busy_kind kind, const char *dir)
{
	char key[RECORD_NAME_MAX + 1], tag[STORE_HOLDER_TAG_MAX];

	path_key(key, dir, strlen(dir));
	store_holder_tag(tag);
	(void)snprintf(ret, NFS_NAME_MAX + 1, "%s~%c~%s", key, (int)kind, tag);
}

void busy_tombstone_name(char ret[NFS_NAME_MAX + 1], enum busy_kind kind, const char *dir,
			 uint64_t identity)
{
	size_t len;

	busy_name(ret, kind, dir);
	len = strlen(ret);
	if (identity != 0)
		(void)snprintf(ret + len, NFS_NAME_MAX + 1 - len, ".%016" PRIx64, identity);
}

/* A name, parsed; tag points into it. */
struct busy_name {
	size_t key_len;
	enum busy_kind kind;
	const char *tag;
};

static bool parse_name(const char *name, struct busy_name *ret)
{
	const char *tag = strrchr(name, '~');

	if (tag == NULL || tag - name < 3 || tag[-2] != '~' || strchr("umds", tag[-1]) == NULL)
		return false;
	*ret = (struct busy_name){
		.key_len = (size_t)(tag - name) - 2,
		.kind = (enum busy_kind)tag[-1],
		.tag = tag + 1,
	};
	return true;
}

void busy_key(const char *name, char ret[RECORD_NAME_MAX + 1])
{
	struct busy_name parsed;

	ret[0] = '\0';
	if (parse_name(name, &parsed) && parsed.key_len <= RECORD_NAME_MAX)
		(void)snprintf(ret, RECORD_NAME_MAX + 1, "%.*s", (int)parsed.key_len, name);
}

bool busy_is_of(const char *name, const char *dir)
{
	char key[RECORD_NAME_MAX + 1];
	struct busy_name parsed;

	path_key(key, dir, strlen(dir));
	return parse_name(name, &parsed) && strlen(key) == parsed.key_len &&
	       memcmp(key, name, parsed.key_len) == 0;
}

bool busy_may_be_of(const char *name, const char *dir)
{
	char key[RECORD_NAME_MAX + 1];
	struct busy_name parsed;

	path_key(key, dir, strlen(dir));
	return parse_name(name, &parsed) &&
	       path_key_compare(name, parsed.key_len, key, strlen(key)) == PATH_IS_SAME;
}

bool busy_is_meant_for(const char *name, uint64_t identity)
{
	struct busy_name parsed;
	const char *hash;
	char own[20];

	if (!parse_name(name, &parsed))
		return false;
	hash = strchr(parsed.tag, '.');
	if (hash != NULL)
		hash = strchr(hash + 1, '.');
	(void)snprintf(own, sizeof(own), "%016" PRIx64, identity);
	return hash == NULL || strcmp(hash + 1, own) == 0;
}

/* The mark follows the tag's number, where versions that do not know it ignore it. */
#define IRREVOCABLE 'x'

/* Return where the tag's number ends in the name of a tombstone. */
static size_t number_end(const char *name)
{
	struct busy_name parsed;
	const char *number;

	if (!parse_name(name, &parsed))
		return strlen(name);
	number = parsed.tag + strcspn(parsed.tag, ".");
	number += strspn(number, ".");
	return (size_t)(number - name) + strspn(number, "0123456789abcdef");
}

bool busy_is_irrevocable(const char *name)
{
	return name[number_end(name)] == IRREVOCABLE;
}

void busy_irrevocable_name(char ret[NFS_NAME_MAX + 1], const char *name)
{
	const size_t end = number_end(name);

	(void)snprintf(ret, NFS_NAME_MAX + 1, "%.*s%c%s", (int)end, name, IRREVOCABLE, name + end);
}

bool busy_directory(const char *name, char ret[RECORD_NAME_MAX + 1])
{
	struct busy_name parsed;

	return parse_name(name, &parsed) && path_of_key(name, parsed.key_len, ret);
}

/* -------- looking at notes -------- */

/* data: the key of a directory, or NULL for the notes of all. */
static bool note_overlaps(const char *name, const void *data)
{
	struct busy_name parsed;
	const char *key = data;

	return parse_name(name, &parsed) &&
	       (key == NULL ||
		path_key_compare(name, parsed.key_len, key, strlen(key)) != PATH_IS_APART);
}

/* kind: only notes of that one; 0: all. */
static int each_of_kind(struct nfs_client *c, const char *dir, int kind, busy_fn found, void *data,
			struct error *err)
{
	cleanup_strv struct strv names = { NULL, 0 };
	const struct nfs_handle *folder;
	char key[RECORD_NAME_MAX + 1];
	struct busy_name parsed;
	size_t i;
	int r;

	if (dir != NULL)
		path_key(key, dir, strlen(dir));
	r = store_folder(c, STORE_BUSY, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = store_list(c, folder, note_overlaps, dir != NULL ? key : NULL, SIZE_MAX, &names);
	if (r < 0)
		return nfs_error_set(err, c, r, "listing " NFS_STATE_DIR "/busy");
	for (i = 0; i < names.n && r == 0; i++)
		if (parse_name(names.items[i], &parsed) && (kind == 0 || (int)parsed.kind == kind))
			r = found(c, names.items[i], parsed.kind, data, err);
	return r;
}

int busy_each(struct nfs_client *c, const char *dir, busy_fn found, void *data, struct error *err)
{
	return each_of_kind(c, dir, 0, found, data, err);
}

int busy_each_in_way(struct nfs_client *c, const char *dir, busy_fn found, void *data,
		     struct error *err)
{
	const char *archived_from = directory_archived_from(dir);
	int r = busy_each(c, dir, found, data, err);

	if (r != 0 || archived_from == NULL)
		return r;
	return each_of_kind(c, archived_from, BUSY_VOLUME_GONE, found, data, err);
}

/* -------- notes of this process -------- */

static struct list own_notes = { &own_notes, &own_notes };
static pthread_mutex_t own_notes_lock = PTHREAD_MUTEX_INITIALIZER; /* guards own_notes; innermost */

/* Whether a running call of this process has the note. Renewals add a suffix to its tag. */
static bool tag_is_active(const char *tag)
{
	struct list *pos;
	bool found = false;

	pthread_mutex_lock(&own_notes_lock);
	list_for_each(pos, &own_notes) {
		const struct busy_note *note = container_of(pos, struct busy_note, link);
		const char *own = strrchr(note->first, '~') + 1;
		const size_t len = strlen(own);

		found = found ||
			(strncmp(tag, own, len) == 0 && (tag[len] == '\0' || tag[len] == '.'));
	}
	pthread_mutex_unlock(&own_notes_lock);
	return found;
}

bool busy_is_abandoned(struct nfs_client *c, const char *name)
{
	struct busy_name parsed;

	if (!parse_name(name, &parsed))
		return false;
	if (store_holder_is_own(parsed.tag))
		return !tag_is_active(parsed.tag);
	return store_holder_is_dead(c->export.server, c->export.share, name);
}

/*
 * Remove an abandoned note. -EAGAIN with ABORTED for any other one. The folder is sticky, so we may
 * be unable to remove a note of another identity: ignore an abandoned one.
 */
static int remove_or_refuse(struct nfs_client *c, const char *name, const char *dir,
			    struct error *err)
{
	const struct nfs_handle *folder;
	struct busy_name parsed;
	int r;

	if (!parse_name(name, &parsed))
		return 0;
	r = store_folder(c, STORE_BUSY, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (busy_is_abandoned(c, name)) {
		r = nfs_remove(c, folder, name);
		if (r == -EACCES || r == -EPERM)
			return 0;
		if (r == 0) {
			log_warn("Removed the note of a dead controller", LOG_STR("note", name),
				 LOG_STR("server", c->export.server),
				 LOG_STR("share", c->export.share));
			return 0;
		}
		/* -ENOENT: its holder was not dead after all, and has renewed it. */
		if (r != -ENOENT)
			return nfs_error_set(err, c, r, "removing a note about '%s'", dir);
	}
	log_debug("Another controller's note is in the way", LOG_STR("note", name));
	return error_set(err, ERROR_ABORTED,
			 "another controller is working on directory '%s' on %s:%s; try again", dir,
			 c->export.server, c->export.share);
}

struct notes {
	const char *dir;
	const struct busy_note *own; /* NULL: none */
	bool skips_makers;
	int refused; /* by the note of a controller that may be alive: 0 or a negative errno */
};

/* Continue after a refusal: looking at a note is what starts its timeout. */
static int remove_or_remember(struct nfs_client *c, const char *name, struct notes *notes,
			      struct error *err)
{
	int r = remove_or_refuse(c, name, notes->dir, err);

	if (r != -EAGAIN || err == NULL || err->code != ERROR_ABORTED)
		return r;
	notes->refused = r;
	return 0;
}

static int look_at_user(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
			struct error *err)
{
	struct notes *notes = data;

	if (kind != BUSY_USE && (kind != BUSY_MAKE || notes->skips_makers))
		return 0;
	return remove_or_remember(c, name, notes, err);
}

static int check_users(struct nfs_client *c, struct notes *notes, struct error *err)
{
	int r = busy_each(c, notes->dir, look_at_user, notes, err);

	return r < 0 ? r : notes->refused;
}

int busy_check_unused(struct nfs_client *c, const char *dir, struct error *err)
{
	struct notes notes = { .dir = dir };

	return check_users(c, &notes, err);
}

int busy_check_unread(struct nfs_client *c, const char *dir, struct error *err)
{
	struct notes notes = { .dir = dir, .skips_makers = true };

	return check_users(c, &notes, err);
}

static int refuse_tombstone(struct nfs_client *c, const char *name, enum busy_kind kind,
			    const char *dir, struct error *err)
{
	struct busy_name parsed;

	/* Without the tag, which would make each message another one. */
	if (parse_name(name, &parsed) && busy_is_abandoned(c, name))
		return error_set(err, ERROR_ABORTED,
				 "a deletion in directory '%s' on %s:%s takes long or was interrupted: repeat it; if there is none, as after a backup was restored, move '%.*s~%c~...' out of %s/busy",
				 dir, c->export.server, c->export.share, (int)parsed.key_len, name,
				 (int)kind, NFS_STATE_DIR);
	return error_set(err, ERROR_ABORTED,
			 "another controller is deleting directory '%s' on %s:%s; try again", dir,
			 c->export.server, c->export.share);
}

static int refuse_tombstones(struct nfs_client *c, const char *name, enum busy_kind kind,
			     void *data, struct error *err)
{
	const char *dir = data;

	if (kind != BUSY_VOLUME_GONE && kind != BUSY_SNAPSHOT_GONE)
		return 0;
	return refuse_tombstone(c, name, kind, dir, err);
}

int busy_check_not_deleted(struct nfs_client *c, const char *dir, struct error *err)
{
	return busy_each(c, dir, refuse_tombstones, (void *)(uintptr_t)dir, err);
}

static int refuse_recorded(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
			   struct error *err)
{
	const char *dir = data;

	/* One that never was a record has no identity in its name. */
	if (kind != BUSY_VOLUME_GONE || busy_is_meant_for(name, 0))
		return 0;
	return refuse_tombstone(c, name, kind, dir, err);
}

int busy_check_recorded_not_deleted(struct nfs_client *c, const char *dir, struct error *err)
{
	return busy_each(c, dir, refuse_recorded, (void *)(uintptr_t)dir, err);
}

/* -------- notes of long calls -------- */

int busy_note_init(struct busy_note *note, enum busy_kind kind, const char *dir)
{
	*note = (struct busy_note){ .kind = kind, .dir = strdup(dir) };
	if (note->dir == NULL)
		return -ENOMEM;
	busy_name(note->name, kind, dir);
	memcpy(note->first, note->name, sizeof(note->first));
	pthread_mutex_lock(&own_notes_lock);
	list_add_tail(&own_notes, &note->link);
	pthread_mutex_unlock(&own_notes_lock);
	return 0;
}

void busy_note_done(struct busy_note *note)
{
	if (note->dir == NULL)
		return;
	pthread_mutex_lock(&own_notes_lock);
	list_remove(&note->link);
	pthread_mutex_unlock(&own_notes_lock);
	free(note->dir);
	note->dir = NULL;
}

/*
 * Remove a note of use that this controller left when it was killed: else it would stay as long as
 * the directory. Nothing depends on it, so errors are ignored.
 */
static void remove_former_use(struct nfs_client *c, const char *name)
{
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *folder;
	struct busy_name parsed;

	if (parse_name(name, &parsed) && store_holder_is_own(parsed.tag) &&
	    !tag_is_active(parsed.tag) &&
	    store_folder(c, STORE_BUSY, false, &folder, &ignored) == 0)
		(void)nfs_remove(c, folder, name);
}

static int look_at_other_note(struct nfs_client *c, const char *name, enum busy_kind kind,
			      void *data, struct error *err)
{
	struct notes *notes = data;
	const struct busy_note *own = notes->own;

	if (kind == BUSY_USE && own->kind == BUSY_USE)
		remove_former_use(c, name);
	if (kind == BUSY_MAKE && own->kind == BUSY_MAKE && strcmp(name, own->name) != 0 &&
	    busy_may_be_of(name, own->dir))
		return remove_or_remember(c, name, notes, err);
	/* A creation finishes deletions itself; a use must not begin beside one. */
	return own->kind == BUSY_USE ? refuse_tombstones(c, name, kind, own->dir, err) : 0;
}

int busy_note_write(struct nfs_client *c, struct busy_note *note, struct error *err)
{
	struct notes notes = { .dir = note->dir, .own = note };
	const struct nfs_handle *folder;
	int r;

	r = store_folder(c, STORE_BUSY, true, &folder, err);
	if (r < 0)
		return r;
	r = store_text_create(c, folder, note->name, "v=1"); /* the name says it all */
	if (r == -ENOENT)
		r = -ESTALE;
	if (r < 0 && r != -EEXIST) /* EEXIST: the reply to an earlier attempt was lost */
		return nfs_error_set(err, c, r, "writing an in-use note");
	/* Read after writing, so that of two replicas at least one sees the other's note. */
	r = busy_each(c, note->dir, look_at_other_note, &notes, err);
	if (r == 0)
		r = notes.refused;
	if (r < 0 && r != -ESTALE)
		(void)nfs_remove(c, folder, note->name);
	return r;
}

static int note_was_lost(struct busy_note *note, struct error *err)
{
	note->lost = true;
	return error_set(err, ERROR_ABORTED,
			 "another controller presumed this one dead, and may have deleted directory '%s'; try again",
			 note->dir);
}

static void note_next_name(struct busy_note *note)
{
	(void)snprintf(note->tried, sizeof(note->tried), "%.*s.%x", NFS_NAME_MAX - 9, note->first,
		       ++note->renewals);
}

static void note_has_new_name(struct busy_note *note)
{
	memcpy(note->name, note->tried, sizeof(note->name));
	note->tried[0] = '\0';
}

/*
 * A RENAME without a reply may still be carried out at any time. So it is repeated with the same
 * names: then there are only two names to look for, however many replies are lost.
 */
int busy_note_renew(struct nfs_client *c, struct busy_note *note, struct error *err)
{
	const struct nfs_handle *folder;
	bool is_repeated;
	int r;

	if (note->lost)
		return note_was_lost(note, err);
	r = store_folder(c, STORE_BUSY, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? note_was_lost(note, err) : r;
	is_repeated = note->tried[0] != '\0';
	if (!is_repeated)
		note_next_name(note);
	r = nfs_rename(c, folder, note->name, folder, note->tried);
	if (r == -ENOENT && is_repeated) {
		note_has_new_name(note);
		note_next_name(note);
		r = nfs_rename(c, folder, note->name, folder, note->tried);
	}
	if (r == -ENOENT)
		return note_was_lost(note, err);
	if (r < 0)
		return nfs_error_set(err, c, r, "renewing an in-use note");
	note_has_new_name(note);
	return 0;
}

int busy_note_erase(struct nfs_client *c, struct busy_note *note, struct error *err)
{
	const struct nfs_handle *folder;
	int r;

	r = store_folder(c, STORE_BUSY, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_remove(c, folder, note->name);
	if (r == -ENOENT && note->tried[0] != '\0')
		r = nfs_remove(c, folder, note->tried);
	if (r < 0 && r != -ENOENT)
		return nfs_error_set(err, c, r, "removing note '%s'", note->name);
	return 0;
}
