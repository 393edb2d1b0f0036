/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/tombstone.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/staging.h"
#include "store/volume_record.h"

#define TOMBSTONE_KEY_NEW "new" /* in a tombstone that was not a record before */

bool tombstone_is_new(const struct tombstone *t)
{
	return record_get(&t->record, TOMBSTONE_KEY_NEW) != NULL;
}

void tombstone_done(struct tombstone *t)
{
	record_done(&t->record);
}

static int records_folder(struct nfs_client *c, const struct tombstone *t, bool create,
			  const struct nfs_handle **ret, struct error *err)
{
	return store_folder(c, t->kind == BUSY_SNAPSHOT_GONE ? STORE_SNAPSHOTS : STORE_VOLUMES,
			    create, ret, err);
}

static int tombstone_failed(struct nfs_client *c, int r, const struct tombstone *t,
			    struct error *err)
{
	return nfs_error_set(err, c, r, "noting that '%s' is deleted", t->dir);
}

/*
 * Whether the record has come back: 1, 0 or a negative errno. A record that is there is either a
 * new one, whose creation sees the tombstone, or the old one, renamed into place by a change just
 * before its draft was removed. Only the latter was ever replaced.
 */
static int record_came_back(struct nfs_client *c, struct tombstone *t,
			    const struct nfs_handle *records, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r;

	if (!volume_key_can_have_record(t->key))
		return 0;
	r = record_read(c, records, t->key, &rec, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0 || !record_was_replaced(&rec))
		return r;
	/* On a share that folds case it may be another volume's record. */
	return t->kind != BUSY_VOLUME_GONE || owner_check_record(c, t->key, &rec, NULL) <= 0;
}

/*
 * Remove a tombstone that a change has made useless: it brought the record back, and removed the
 * parts of the one that was buried.
 */
static int forget_replaced_tombstone(struct nfs_client *c, struct tombstone *t,
				     const struct nfs_handle *busy, struct error *err)
{
	int r = nfs_remove(c, busy, t->name);

	if (r < 0 && r != -ENOENT)
		return tombstone_failed(c, r, t, err);
	t->name[0] = '\0';
	return error_set(err, ERROR_ABORTED,
			 "another controller is changing the record of '%s'; try again", t->dir);
}

/*
 * Put back the record of another volume or snapshot, which got the name after the deletion had read
 * the record of an earlier one. Return ABORTED.
 */
static int put_record_back(struct nfs_client *c, struct tombstone *t,
			   const struct nfs_handle *records, const struct nfs_handle *busy,
			   struct error *err)
{
	const struct volume v = volume_of(&t->record);
	cleanup_free char *own = t->kind == BUSY_VOLUME_GONE ? volume_recorded_key(&v) : NULL;
	const char *key = own != NULL ? own : t->key;
	struct nfs_handle unused;
	int r;

	r = nfs_lookup(c, records, key, &unused, NULL);
	if (r == -ENOENT)
		r = nfs_rename(c, busy, t->name, records, key);
	else if (r == 0) /* the volume has a record again */
		r = nfs_remove(c, busy, t->name);
	if (r < 0 && r != -ENOENT)
		return tombstone_failed(c, r, t, err);
	t->name[0] = '\0';
	record_done(&t->record);
	return error_set(err, ERROR_ABORTED,
			 "another controller has deleted '%s' and made it anew meanwhile; try again",
			 key);
}

static bool is_meant_for(const struct tombstone *t, const char *id)
{
	return id == NULL || busy_is_meant_for(t->name, id);
}

/*
 * Read the tombstone, and remove any draft: a change that began before the record was renamed must
 * not bring it back.
 */
static int read_tombstone(struct nfs_client *c, struct tombstone *t,
			  const struct nfs_handle *records, const struct nfs_handle *busy,
			  struct error *err)
{
	int r;

	record_done(&t->record);
	r = record_read_buried(c, records, t->key, busy, t->name, &t->record, err);
	if (r == 0 && !is_meant_for(t, record_get(&t->record, VOLUME_KEY_ID)))
		return put_record_back(c, t, records, busy, err);
	if (r < 0 || !volume_key_can_have_record(t->key))
		return r;
	return record_forget_draft(c, records, t->key, err);
}

/* Read the record where there is no room for a tombstone. */
static int read_unburied(struct nfs_client *c, struct tombstone *t,
			 const struct nfs_handle *records, struct error *err)
{
	const char *id;
	int r;

	record_done(&t->record);
	r = record_read(c, records, t->key, &t->record, err);
	if (r < 0)
		return r;
	id = record_get(&t->record, VOLUME_KEY_ID);
	if (t->id == NULL || id == NULL || strcmp(t->id, id) == 0)
		return 0;
	return tombstone_refuse(t->dir, err);
}

/* Go on without a tombstone on a full share, where deleting has to work. */
static int accept_no_room(struct tombstone *t, int r, struct error *err)
{
	if (r != -ENOSPC && r != -EDQUOT)
		return r;
	error_clear(err);
	t->name[0] = '\0';
	t->no_room = true;
	return 0;
}

int tombstone_refuse(const char *dir, struct error *err)
{
	return error_set(err, ERROR_ABORTED, "directory '%s' is being deleted; try again", dir);
}

int tombstone_set(struct nfs_client *c, struct tombstone *t, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	const struct nfs_handle *records, *busy;
	int r;

	r = records_folder(c, t, false, &records, err);
	if (r < 0)
		return r;
	if (t->name[0] == '\0')
		busy_tombstone_name(t->name, t->kind, t->dir, t->id);
	r = store_folder(c, STORE_BUSY, true, &busy, err);
	if (r == 0)
		r = record_bury(c, records, t->key, busy, t->name, err);
	/* Not for errors of the read below: once the tombstone is set, it stays. */
	r = accept_no_room(t, r, err);
	if (r < 0)
		return r;
	if (t->no_room)
		return read_unburied(c, t, records, err);
	r = read_tombstone(c, t, records, busy, &why);
	/* The caller has just read the record: it was whole. */
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION && t->record.n == 0)
		return forget_replaced_tombstone(c, t, busy, err);
	if (r < 0)
		*err = why;
	return r;
}

int tombstone_set_new(struct nfs_client *c, struct tombstone *t, struct record *rec,
		      struct error *err)
{
	const struct nfs_handle *busy;
	int r;

	if (record_set(rec, TOMBSTONE_KEY_NEW, "1") < 0)
		return error_oom(err);
	busy_name(t->name, t->kind, t->dir);
	r = store_folder(c, STORE_BUSY, true, &busy, err);
	if (r == 0)
		r = record_create(c, busy, t->name, rec, err);
	r = accept_no_room(t, r, err);
	if (r < 0)
		return r == -EEXIST ? tombstone_failed(c, r, t, err) : r;
	record_done(&t->record);
	record_move(&t->record, rec);
	return 0;
}

int tombstone_adopt(struct nfs_client *c, struct tombstone *t, const char *name, struct error *err)
{
	struct error why = { .code = ERROR_OK }, second = { .code = ERROR_OK };
	const struct nfs_handle *records, *busy;
	int r;

	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = records_folder(c, t, true, &records, err);
	if (r < 0)
		return r;
	memcpy(t->name, name, strlen(name) + 1);
	r = read_tombstone(c, t, records, busy, &why);
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION &&
	    record_is_replaced(c, records, t->key, busy, t->name, &second) > 0)
		return forget_replaced_tombstone(c, t, busy, err);
	if (r < 0 && err != NULL)
		*err = why;
	return r;
}

static int forget_if_replaced(struct nfs_client *c, const char *name, enum busy_kind kind,
			      void *data, struct error *err)
{
	const struct tombstone *t = data;
	const struct nfs_handle *records, *busy;
	int r;

	if (kind != t->kind || !busy_is_of(name, t->dir))
		return 0;
	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = records_folder(c, t, false, &records, err);
	if (r == 0)
		r = record_is_replaced(c, records, t->key, busy, name, err);
	if (r > 0)
		r = nfs_remove(c, busy, name);
	return r < 0 && r != -ENOENT ? tombstone_failed(c, r, t, err) : 0;
}

int tombstone_forget_replaced(struct nfs_client *c, struct tombstone *t, const struct record *rec,
			      struct error *err)
{
	if (record_get(rec, RECORD_KEY_OLD) == NULL)
		return 0;
	return busy_each(c, t->dir, forget_if_replaced, t, err);
}

/* -------- the directory -------- */

/* Whether the tombstone is still there: 1, 0 or a negative errno. */
static int tombstone_is_set(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	const struct nfs_handle *busy;
	struct nfs_handle unused;
	int r;

	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = nfs_lookup(c, busy, t->name, &unused, NULL);
	if (r == 0)
		return 1;
	return r == -ENOENT ? 0 : tombstone_failed(c, r, t, err);
}

/* Report that another replica has finished the deletion: the CO has to ask again. */
static int deletion_was_finished(const struct tombstone *t, struct error *err)
{
	return error_set(err, ERROR_ABORTED,
			 "another controller has finished the deletion of '%s' meanwhile; try again",
			 t->dir);
}

int tombstone_check(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	int r;

	if (t->name[0] == '\0')
		return 0;
	r = tombstone_is_set(c, t, err);
	if (r == 0)
		return deletion_was_finished(t, err);
	return r < 0 ? r : 0;
}

/*
 * Look up the directory, then check the tombstone, so that a directory which takes its place later
 * has another handle. -ENOENT, unreported, where there is no directory.
 */
static int find_doomed_directory(struct nfs_client *c, const struct tombstone *t,
				 struct directory_place *place, struct directory_known *ret,
				 struct error *err)
{
	int r = directory_look_up(c, t->dir, place, &ret->handle, &ret->attr, err);

	if (r < 0)
		return r;
	if (t->name[0] == '\0' && !t->no_room)
		return deletion_was_finished(t, err);
	return tombstone_check(c, t, err);
}

int tombstone_is_in_place(struct nfs_client *c, const struct tombstone *t, bool *ret_trashed,
			  struct error *err)
{
	int r = staging_is_in_place(c, &t->record, t->dir, err);

	if (r != 0 || staging_state_of(&t->record).built == NULL)
		return r;
	r = directory_trash_release_all(c, t->dir, ret_trashed, err);
	return r < 0 ? r : staging_is_in_place(c, &t->record, t->dir, err);
}

/*
 * Likewise. If it is missing, first keep a paused deletion of an earlier volume from putting it
 * back.
 */
static int find_moving_directory(struct nfs_client *c, const struct tombstone *t,
				 struct directory_place *place, struct directory_known *ret,
				 bool *ret_trashed, struct error *err)
{
	int r = find_doomed_directory(c, t, place, ret, err);

	if (r != -ENOENT || tombstone_is_new(t))
		return r;
	r = directory_trash_release_all(c, t->dir, ret_trashed, err);
	return r < 0 ? r : find_doomed_directory(c, t, place, ret, err);
}

/* Make an empty directory again, after it was removed. */
static int make_empty_again(struct nfs_client *c, const struct directory_place *place,
			    const struct nfs_attr *attr)
{
	const struct nfs_change change = {
		.has_mode = attr->has_mode,
		.has_uid = attr->has_owner,
		.has_gid = attr->has_owner,
		.mode = attr->mode,
		.uid = attr->uid,
		.gid = attr->gid,
	};
	struct nfs_handle handle;
	struct nfs_attr unused;
	int r;

	r = nfs_mkdir(c, &place->parent, place->base, attr->has_mode ? attr->mode : 0755, &handle,
		      &unused);
	if (r == 0)
		r = nfs_setattr(c, &handle, &change);
	return r == -EEXIST ? 0 : r;
}

/*
 * Make the directory again for its user. If the user has been deleted meanwhile, and found no
 * directory, remove it: nobody else does.
 */
static int put_empty_directory_back(struct nfs_client *c, const struct tombstone *t,
				    const struct directory_place *place,
				    const struct nfs_attr *attr, tombstone_users_fn users,
				    struct error *err)
{
	int r = make_empty_again(c, place, attr);

	if (r < 0)
		return tombstone_failed(c, r, t, err);
	r = users(c, t, true, err);
	if (r == 0)
		(void)nfs_rmdir(c, &place->parent, place->base);
	return r;
}

/*
 * Put a directory back that was moved when its tombstone was already gone, if a later call has
 * begun to use it. Return 1 then, 0 where it is nobody's.
 */
static int move_directory_back(struct nfs_client *c, const struct tombstone *t,
			       const struct directory_place *place,
			       const struct nfs_handle *moved_to, const char *name,
			       tombstone_users_fn users, struct error *err)
{
	struct nfs_handle handle;
	int r;

	r = users != NULL ? users(c, t, false, err) : 0;
	if (r <= 0)
		return r;
	/* A user who has made a new directory did not find this one. */
	r = nfs_lookup(c, &place->parent, place->base, &handle, NULL);
	if (r == 0)
		return 0;
	if (r == -ENOENT)
		r = nfs_rename(c, moved_to, name, &place->parent, place->base);
	/* The user's deletion has released it for purging, or the user has made another one. */
	if (r == -ENOENT || r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	return r < 0 ? tombstone_failed(c, r, t, err) : 1;
}

/* Likewise for a directory that was removed: trashed is its name in the trash; "": it was empty. */
static int put_directory_back(struct nfs_client *c, const struct tombstone *t,
			      const struct directory_place *place, const struct nfs_attr *attr,
			      const char *trashed, tombstone_users_fn users, struct error *err)
{
	const struct nfs_handle *trash;
	int r;

	if (trashed[0] != '\0') {
		r = store_folder(c, STORE_TRASH, true, &trash, err);
		if (r < 0)
			return tombstone_failed(c, r, t, err);
		return move_directory_back(c, t, place, trash, trashed, users, err);
	}
	r = users != NULL ? users(c, t, true, err) : 0;
	return r <= 0 ? r : put_empty_directory_back(c, t, place, attr, users, err);
}

/*
 * Remove the note of a directory that the driver had made above an earlier volume. The directory of
 * a volume without subDir has none, since nobody else has a directory of that name.
 */
static int forget_notes(struct nfs_client *c, const struct tombstone *t,
			const struct directory_known *known, struct error *err)
{
	if (strcmp(t->key, t->dir) == 0)
		return 0;
	return directory_note_forget(c, t->dir, &known->handle, &known->attr, err);
}

/* Remove the notes of a directory that is gone, in case an earlier attempt did not. */
static int sweep_notes(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	int r = strcmp(t->key, t->dir) == 0 ? 0 : directory_note_sweep(c, t->dir, err);

	return r < 0 ? r : 0;
}

static int directory_was_new(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	log_warn("A directory that was made anew during its deletion has been put back",
		 LOG_STR("directory", t->dir), LOG_STR("server", c->export.server),
		 LOG_STR("share", c->export.share));
	return deletion_was_finished(t, err);
}

int tombstone_remove_directory(struct nfs_client *c, const struct tombstone *t,
			       tombstone_users_fn users, bool *ret_trashed, struct error *err)
{
	char key[RECORD_NAME_MAX + 1], trashed[NFS_NAME_MAX + 1];
	struct directory_place place;
	struct directory_known known;
	bool was_finished;
	int r;

	r = find_moving_directory(c, t, &place, &known, ret_trashed, err);
	if (r < 0)
		return r == -ENOENT ? sweep_notes(c, t, err) : r;
	directory_trash_key(key, t->dir);
	r = directory_remove_known(c, &place, &known, key, trashed, err);
	if (r == DIRECTORY_CANNOT_MOVE) {
		r = tombstone_check(c, t, err);
		if (r == 0)
			r = directory_remove_in_place(c, &place, err);
	}
	if (r != 0)
		return r > 0 ? directory_was_new(c, t, err) : r;
	r = t->no_room ? 1 : tombstone_is_set(c, t, err);
	was_finished = r == 0;
	if (was_finished) {
		r = put_directory_back(c, t, &place, &known.attr, trashed, users, err);
		if (r > 0)
			return directory_was_new(c, t, err);
	}
	if (r < 0) /* the entry stays unchecked: a repeated call decides about it */
		return r;
	if (trashed[0] != '\0') {
		r = directory_trash_release(c, key, trashed, err);
		if (r < 0)
			return r;
		*ret_trashed = true;
	}
	if (was_finished)
		return deletion_was_finished(t, err);
	return forget_notes(c, t, &known, err);
}

int tombstone_purge_directory(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	char key[RECORD_NAME_MAX + 1];

	directory_trash_key(key, t->dir);
	return directory_purge(c, key, err);
}

/* Likewise for a directory that was archived. */
static int take_out_of_archive(struct nfs_client *c, const struct tombstone *t,
			       const struct directory_place *place,
			       const struct directory_known *known, const char *archive,
			       tombstone_users_fn users, struct error *err)
{
	struct directory_place from;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = directory_look_up(c, archive, &from, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!nfs_handle_is_equal(&handle, &known->handle))
		return 0;
	r = move_directory_back(c, t, place, &from.parent, from.base, users, err);
	if (r <= 0)
		return r;
	r = directory_remove_parents(c, archive, err);
	return r < 0 ? r : 1;
}

int tombstone_archive_directory(struct nfs_client *c, const struct tombstone *t, bool replace,
				tombstone_users_fn users, bool *ret_trashed, struct error *err)
{
	cleanup_free char *archive = NULL;
	struct directory_place place;
	struct directory_known known;
	int r;

	r = find_doomed_directory(c, t, &place, &known, err);
	if (r < 0)
		return r == -ENOENT ? sweep_notes(c, t, err) : r;
	r = directory_archive(c, t->dir, t->key, &known, replace, &archive, ret_trashed, err);
	if (r != 0)
		return r > 0 ? directory_was_new(c, t, err) : r;
	r = t->no_room ? 1 : tombstone_is_set(c, t, err);
	if (r < 0)
		return r;
	if (r > 0)
		return forget_notes(c, t, &known, err);
	if (archive != NULL)
		r = take_out_of_archive(c, t, &place, &known, archive, users, err);
	if (r != 0)
		return r > 0 ? directory_was_new(c, t, err) : r;
	return deletion_was_finished(t, err);
}

/* -------- the end -------- */

/* Remove the record where there was no room for a tombstone. */
static int remove_unburied_record(struct nfs_client *c, const struct tombstone *t,
				  struct error *err)
{
	const struct nfs_handle *records;
	int r;

	if (!volume_key_can_have_record(t->key))
		return 0;
	r = records_folder(c, t, false, &records, err);
	if (r == 0)
		r = record_forget_draft(c, records, t->key, err);
	if (r == 0)
		r = record_remove(c, records, t->key, &t->record, err);
	return r == -ENOENT ? 0 : r;
}

int tombstone_finish(struct nfs_client *c, struct tombstone *t, struct error *err)
{
	const struct nfs_handle *records, *busy;
	int r;

	if (t->no_room)
		return remove_unburied_record(c, t, err);
	if (t->name[0] == '\0')
		return 0;
	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = records_folder(c, t, true, &records, err);
	if (r == 0)
		r = record_came_back(c, t, records, err);
	/* The record says what is left to do. A tombstone beside it would refuse each creation. */
	if (r > 0)
		(void)nfs_remove(c, busy, t->name);
	if (r != 0)
		return r;
	return record_remove_buried(c, records, t->key, busy, t->name, &t->record, err);
}

void tombstone_restore(struct nfs_client *c, struct tombstone *t)
{
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *records, *busy;

	if (t->name[0] == '\0' || t->record.n == 0 || c->broken)
		return;
	if (store_folder(c, STORE_BUSY, false, &busy, &ignored) < 0 ||
	    records_folder(c, t, true, &records, &ignored) < 0)
		return;
	/* The record that a change brought back is newer. */
	if (tombstone_is_new(t) || record_came_back(c, t, records, &ignored) > 0)
		(void)nfs_remove(c, busy, t->name);
	else
		(void)nfs_rename(c, busy, t->name, records, t->key);
}
