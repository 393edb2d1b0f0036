/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/tombstone.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/volume_record.h"

#define TOMBSTONE_KEY_NEW "new" /* in a tombstone that was not a record before */

bool tombstone_is_new(const struct tombstone *t)
{
	return record_get(&t->record, TOMBSTONE_KEY_NEW) != NULL;
}

bool tombstone_had_record(const struct tombstone *t)
{
	return t->record.n > 0 && !tombstone_is_new(t);
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

/*
 * Read a tombstone. If it was a record, its parts have the key t->key. If it is new, they have the
 * key of its directory, which is in its name.
 */
static int read_buried(struct nfs_client *c, struct tombstone *t, const struct nfs_handle *records,
		       const struct nfs_handle *busy, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	char key[RECORD_NAME_MAX + 1];
	int r;

	busy_key(t->name, key);
	r = record_read_buried(c, records, key, busy, t->name, &t->record, &why);
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION && volume_key_can_have_record(t->key) &&
	    strcmp(key, t->key) != 0)
		return record_read_buried(c, records, t->key, busy, t->name, &t->record, err);
	if (why.code != ERROR_OK)
		*err = why;
	return r;
}

static int remove_buried(struct nfs_client *c, const struct tombstone *t,
			 const struct nfs_handle *records, const struct nfs_handle *busy,
			 struct error *err)
{
	char key[RECORD_NAME_MAX + 1];

	busy_key(t->name, key);
	return record_remove_buried(c, records, tombstone_is_new(t) ? key : t->key, busy, t->name,
				    &t->record, err);
}

int tombstone_failed(struct nfs_client *c, int r, const struct tombstone *t, struct error *err)
{
	return nfs_error_set(err, c, r, "processing the tombstone of '%s'", t->dir);
}

/* Whether the volume or snapshot has a record beside the tombstone: 1, 0 or a negative errno. */
static int has_record(struct nfs_client *c, const struct tombstone *t,
		      const struct nfs_handle *records, struct record *ret, struct error *err)
{
	int r;

	if (!volume_key_can_have_record(t->key))
		return 0;
	r = record_read(c, records, t->key, ret, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	/* On a share that folds case it may be another volume's record. */
	return t->kind != BUSY_VOLUME_GONE || owner_check_record(c, t->key, ret, NULL) <= 0;
}

/* Whether a change has brought the record back (rule 8). With another id it is another volume's. */
static bool is_former_record(const struct tombstone *t, const struct record *rec)
{
	const char *id = record_get(rec, VOLUME_KEY_ID);

	return record_was_replaced(rec) &&
	       (id == NULL || str_eq(id, record_get(&t->record, VOLUME_KEY_ID)));
}

/* Whether there is such a record: 1, 0 or a negative errno. */
static int record_came_back(struct nfs_client *c, const struct tombstone *t,
			    const struct nfs_handle *records, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r = has_record(c, t, records, &rec, err);

	return r > 0 ? is_former_record(t, &rec) : r;
}

/*
 * Remove a tombstone after a change has brought its record back (rule 8), and has removed the parts
 * of the tombstone's text.
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
 * Make room for a record that is put back. Of the same volume, a record of another creation is the
 * remains of a call that has met the tombstone, as every creation does, so nobody was answered OK.
 * Return 0 if there is none any more, 1 if what is there stays, or a negative errno.
 */
static int remove_later_record(struct nfs_client *c, const struct tombstone *t,
			       const struct nfs_handle *records, const char *key, struct error *err)
{
	cleanup_record struct record now = { .n = 0 };
	int r = record_read(c, records, key, &now, err);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!str_eq(record_get(&now, VOLUME_KEY_ID), record_get(&t->record, VOLUME_KEY_ID)) ||
	    volume_record_identity(&now) == volume_record_identity(&t->record))
		return 1;
	r = record_remove(c, records, key, &now, err);
	return r == -ENOENT ? 0 : r;
}

/*
 * Put back the record of another volume or snapshot: it was created under this key after the
 * deletion had read the earlier record. Return ABORTED. Not by LINK and REMOVE, which would be
 * exclusive: a kill between them would leave a record that comes back after its deletion.
 */
static int put_record_back(struct nfs_client *c, struct tombstone *t,
			   const struct nfs_handle *records, const struct nfs_handle *busy,
			   struct error *err)
{
	const struct volume v = volume_of(&t->record);
	cleanup_free char *own = t->kind == BUSY_VOLUME_GONE ? volume_recorded_key(&v) : NULL;
	const char *key = own != NULL ? own : t->key;
	int r = remove_later_record(c, t, records, key, err);

	if (r < 0)
		return r;
	r = r == 0 ? nfs_rename(c, busy, t->name, records, key) : nfs_remove(c, busy, t->name);
	if (r < 0 && r != -ENOENT)
		return tombstone_failed(c, r, t, err);
	t->name[0] = '\0';
	record_done(&t->record);
	return error_set(err, ERROR_ABORTED,
			 "another controller has deleted and re-created '%s' in the meantime; try again",
			 key);
}

/*
 * Read the tombstone, and remove any draft, so that a change that began before the record was
 * renamed does not bring the record back.
 */
static int read_tombstone(struct nfs_client *c, struct tombstone *t,
			  const struct nfs_handle *records, const struct nfs_handle *busy,
			  struct error *err)
{
	uint64_t identity;
	int r;

	record_done(&t->record);
	r = read_buried(c, t, records, busy, err);
	if (r < 0)
		return r;
	identity = volume_record_identity(&t->record);
	if (identity != 0 && !busy_is_meant_for(t->name, identity))
		return put_record_back(c, t, records, busy, err);
	if (!volume_key_can_have_record(t->key))
		return 0;
	return record_forget_draft(c, records, t->key, err);
}

/* Read the record where there is no room for a tombstone. */
static int read_unburied(struct nfs_client *c, struct tombstone *t,
			 const struct nfs_handle *records, struct error *err)
{
	uint64_t identity;
	int r;

	record_done(&t->record);
	r = record_read(c, records, t->key, &t->record, err);
	if (r < 0)
		return r;
	identity = volume_record_identity(&t->record);
	if (t->identity == 0 || identity == 0 || t->identity == identity)
		return 0;
	return tombstone_refuse(t->dir, err);
}

/* Go on without a tombstone on a full share, since deletions make room. */
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

/*
 * XFS moves nothing into a folder of another quota project, and a symbolic link cannot be given
 * one: a record from before the share became a project stays outside. A new one is made inside.
 */
static int bury_anew(struct nfs_client *c, const struct tombstone *t,
		     const struct nfs_handle *records, const struct nfs_handle *busy,
		     struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r = record_read(c, records, t->key, &rec, err);

	if (r == 0)
		r = record_replace(c, records, t->key, &rec, err);
	return r < 0 ? r : record_bury(c, records, t->key, busy, t->name, err);
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
		busy_tombstone_name(t->name, t->kind, t->dir, t->identity);
	r = store_folder(c, STORE_BUSY, true, &busy, err);
	if (r == 0)
		r = record_bury(c, records, t->key, busy, t->name, err);
	if (r == -EXDEV) {
		error_clear(err);
		r = bury_anew(c, t, records, busy, err);
	}
	/* Accept only this: after an error of the read below, the tombstone stays. */
	r = accept_no_room(t, r, err);
	if (r < 0)
		return r;
	if (t->no_room)
		return read_unburied(c, t, records, err);
	r = read_tombstone(c, t, records, busy, &why);
	/* The record was whole when the caller read it, so a change has removed its parts. */
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION && t->record.n == 0)
		return forget_replaced_tombstone(c, t, busy, err);
	if (r < 0)
		*err = why;
	return r;
}

int tombstone_set_new(struct nfs_client *c, struct tombstone *t, struct record *rec,
		      struct error *err)
{
	const struct nfs_handle *records, *busy;
	char key[RECORD_NAME_MAX + 1];
	int r;

	t->is_adopted = false;
	if (record_set(rec, TOMBSTONE_KEY_NEW, "1") < 0)
		return error_oom(err);
	busy_name(t->name, t->kind, t->dir);
	busy_key(t->name, key);
	r = store_folder(c, STORE_BUSY, true, &busy, err);
	if (r == 0)
		r = records_folder(c, t, true, &records, err);
	if (r == 0)
		r = record_create_buried(c, records, key, busy, t->name, rec, err);
	r = accept_no_room(t, r, err);
	if (r < 0)
		return r == -EEXIST ? tombstone_failed(c, r, t, err) : r;
	record_done(&t->record);
	record_move(&t->record, rec);
	return 0;
}

int tombstone_set_unrecorded(struct nfs_client *c, struct tombstone *t, struct record *rec,
			     struct error *err)
{
	cleanup_record struct record now = { .n = 0 };
	const struct nfs_handle *records;
	int r = tombstone_set_new(c, t, rec, err);

	if (r < 0)
		return r;
	r = records_folder(c, t, false, &records, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = has_record(c, t, records, &now, err);
	if (r <= 0)
		return r;
	return error_set(err, ERROR_ABORTED,
			 "'%s' was created or changed in the meantime; try again", t->key);
}

int tombstone_peek(struct nfs_client *c, struct tombstone *t, const char *name, struct error *err)
{
	const struct nfs_handle *records, *busy;
	int r;

	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = records_folder(c, t, false, &records, err);
	if (r < 0)
		return r;
	memcpy(t->name, name, strlen(name) + 1);
	record_done(&t->record);
	return read_buried(c, t, records, busy, err);
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
	t->is_adopted = true;
	r = read_tombstone(c, t, records, busy, &why);
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION && volume_key_can_have_record(t->key) &&
	    record_is_replaced(c, records, t->key, busy, t->name, VOLUME_KEY_ID, &second) > 0)
		return forget_replaced_tombstone(c, t, busy, err);
	if (r < 0 && err != NULL)
		*err = why;
	return r;
}

int tombstone_find_remains_owner(struct nfs_client *c, enum store_place folder, const char *key,
				 struct volume_owner *ret, struct error *err)
{
	const struct nfs_handle *records;
	struct nfs_attr attr;
	int r;

	if (!volume_key_can_have_record(key))
		return 0;
	r = store_folder(c, folder, false, &records, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = record_find_remains(c, records, key, &attr, err);
	if (r > 0 && attr.has_owner)
		*ret = (struct volume_owner){
			.has_uid = true, .uid = attr.uid, .has_gid = true, .gid = attr.gid
		};
	return r < 0 ? r : 0;
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
		r = record_is_replaced(c, records, t->key, busy, name, VOLUME_KEY_ID, err);
	if (r > 0)
		r = nfs_remove(c, busy, name);
	return r < 0 && r != -ENOENT ? tombstone_failed(c, r, t, err) : 0;
}

int tombstone_forget_replaced(struct nfs_client *c, struct tombstone *t, const struct record *rec,
			      struct error *err)
{
	if (!record_was_replaced(rec))
		return 0;
	return busy_each(c, t->dir, forget_if_replaced, t, err);
}

int tombstone_forget_earlier(struct nfs_client *c, struct tombstone *t, const struct record *rec,
			     struct error *err)
{
	const uint64_t identity = volume_record_identity(&t->record);
	const struct nfs_handle *records, *busy;
	int r;

	if (!staging_state_of(rec).ready || identity == 0 ||
	    identity == volume_record_identity(rec))
		return 0;
	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = records_folder(c, t, false, &records, err);
	/* The tombstone may be newer than rec, which others may have deleted since it was read. */
	if (r == 0)
		r = record_check_same(c, records, t->key, rec, err);
	if (r == -ENOENT)
		return tombstone_refuse(t->dir, err);
	if (r == 0)
		r = remove_buried(c, t, records, busy, err);
	if (r < 0)
		return r;
	log_warn("Removed what was left of the deletion of an earlier volume or snapshot: the present one was finished without it, so a backup must have brought it back",
		 LOG_STR("name", t->key), LOG_STR("server", c->export.server),
		 LOG_STR("share", c->export.share));
	return 1;
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
	/* Rule 8: the repeated deletion finds the record. */
	if (r > 0)
		(void)nfs_remove(c, busy, t->name);
	if (r != 0)
		return r;
	return remove_buried(c, t, records, busy, err);
}

static bool may_be_in_trash(struct nfs_client *c, const struct tombstone *t)
{
	struct error ignored = { .code = ERROR_OK };

	return t->is_moved || (t->is_adopted && directory_is_gone(c, t->dir, &ignored) != 0);
}

/*
 * Put the record back where there is none. The RENAME would replace any other one: of a volume that
 * was created since, or on a share that folds case, of another name.
 */
static void put_own_record_back(struct nfs_client *c, const struct tombstone *t,
				const struct nfs_handle *records, const struct nfs_handle *busy)
{
	cleanup_record struct record now = { .n = 0 };
	struct error ignored = { .code = ERROR_OK };
	int r = record_read(c, records, t->key, &now, &ignored);

	if (r == -ENOENT)
		(void)nfs_rename(c, busy, t->name, records, t->key);
	else if (r == 0 && is_former_record(t, &now))
		(void)nfs_remove(c, busy, t->name); /* rule 8: what came back is newer */
}

void tombstone_restore(struct nfs_client *c, struct tombstone *t)
{
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *records, *busy;

	if (t->name[0] == '\0' || t->record.n == 0 || c->broken || busy_is_irrevocable(t->name))
		return;
	/* Rule 9, on a share without room for the mark: the data is no longer whole. */
	if (t->is_emptied)
		return;
	/* A replica that adopted the tombstone has moved the contents. The next attempt goes on. */
	if (t->kind == BUSY_SNAPSHOT_GONE && directory_is_gone(c, t->dir, &ignored) > 0)
		return;
	if (store_folder(c, STORE_BUSY, false, &busy, &ignored) < 0 ||
	    records_folder(c, t, true, &records, &ignored) < 0)
		return;
	if (!tombstone_is_new(t))
		put_own_record_back(c, t, records, busy);
	else if (!may_be_in_trash(c, t))
		(void)remove_buried(c, t, records, busy, &ignored);
}
