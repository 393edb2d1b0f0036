/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* DeleteSnapshot, on the share. */

#include <errno.h>
#include <string.h>

#include "store/busy.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/snapshot_parts.h"
#include "store/staging.h"
#include "store/tombstone.h"
#include "store/volume_record.h"

/* Whether there is an archive for the tombstone's record by now: 1, 0 or a negative errno. */
static int has_archive_now(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const char *text = snapshot_info_of(&t->record).id;
	struct snapshot_contents contents;
	int r;

	if (text == NULL || volume_id_parse(&id, text) < 0)
		return 0;
	r = snapshot_find_contents(c, &id, &t->record, &contents, err);
	if (r == 0)
		r = tombstone_is_new(t) ? snapshot_is_alone(c, t->dir, id.on_delete, err) : 1;
	return r == -ENOENT ? 0 : r;
}

/*
 * Release what an interrupted deletion has moved to the trash of a snapshot of csi-driver-nfs, with
 * or without a record. For one that csi-nfs has built, tombstone_is_in_place() does that. Return 1
 * if a paused deletion has put the archive back before that, else 0 or a negative errno.
 */
static int release_foreign(struct nfs_client *c, const struct tombstone *t,
			   const struct owner_question *q, bool *ret_trashed, struct error *err)
{
	struct owner owner;
	int r;

	if (t->record.n == 0 || staging_state_of(&t->record).built != NULL)
		return 0;
	r = owner_find(c, t->dir, q, &owner, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = tombstone_release_trash(c, t, t->dir, ret_trashed, err);
	return r < 0 ? r : has_archive_now(c, t, err);
}

/*
 * Whether another replica that set or adopted this tombstone has given up and has put the record
 * back: 1, 0 or a negative errno.
 */
static int has_own_record(struct nfs_client *c, const struct tombstone *t,
			  const struct nfs_handle **ret_records, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	int r;

	if (t->name[0] == '\0' || !tombstone_had_record(t))
		return 0;
	r = store_folder(c, STORE_SNAPSHOTS, false, ret_records, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = record_check_same(c, *ret_records, t->key, &t->record, &why);
	if (r == 0)
		return 1;
	if (r == -ENOENT || why.code == ERROR_ABORTED) /* it is of another creation */
		return 0;
	*err = why;
	return r;
}

/* A snapshot whose record was put back needs its contents again. */
static int snapshot_is_back(struct nfs_client *c, const struct tombstone *t, bool was_empty,
			    struct error *err)
{
	const struct nfs_handle *unused;

	return was_empty ? 0 : has_own_record(c, t, &unused, err);
}

/*
 * As tombstone_finish(). Also remove a record that was put back after its contents had gone: it
 * would tell later calls that somebody had removed them by hand.
 */
static int finish_snapshot(struct nfs_client *c, struct tombstone *t, struct error *err)
{
	const struct nfs_handle *records;
	int came_back, r;

	came_back = tombstone_finish(c, t, err);
	if (came_back < 0)
		return came_back;
	r = has_own_record(c, t, &records, err);
	if (r > 0)
		return record_remove(c, records, t->key, &t->record, err);
	return r < 0 ? r : came_back;
}

/* Remove the directory if it has the contents in it, or was built for the record. */
static int remove_snapshot_directory(struct nfs_client *c, struct tombstone *t, bool has_contents,
				     bool *ret_trashed, struct error *err)
{
	const struct owner_question q = {
		.snapshot = t->dir,
		.scope = OWNER_VOLUMES,
		.count = OWNER_COUNT_FINISHED,
	};
	struct owner owner;
	int r;

	if (busy_is_irrevocable(t->name)) /* rule 9 */
		return tombstone_remove_directory(c, t, snapshot_is_back, ret_trashed, err);
	if (!has_contents) {
		r = tombstone_is_in_place(c, t, ret_trashed, err);
		if (r == 0)
			r = release_foreign(c, t, &q, ret_trashed, err);
		if (r <= 0)
			return r;
	}
	r = owner_find(c, t->dir, &q, &owner, err);
	if (r != 0)
		return r < 0 ? r : owner_refuse(c, t->dir, &owner, t->dir, err);
	return tombstone_remove_directory(c, t, snapshot_is_back, ret_trashed, err);
}

/* Do what is left once the tombstone is set. Return 1 if the record came back. */
static int carry_out_deletion(struct nfs_client *c, struct tombstone *t, bool has_contents,
			      bool *ret_trashed, struct error *err)
{
	char work_key[SNAPSHOT_WORK_KEY_MAX];
	int r;

	/* Remove unfinished work first, so that it cannot be put into place any more. */
	snapshot_work_key(work_key, t->dir);
	r = staging_discard(c, work_key, ret_trashed, err);
	if (r == 0)
		r = remove_snapshot_directory(c, t, has_contents, ret_trashed, err);
	return r < 0 ? r : finish_snapshot(c, t, err);
}

static int adopt_if_of_snapshot(struct nfs_client *c, const char *name, enum busy_kind kind,
				void *data, struct error *err)
{
	struct tombstone *t = data;
	int r;

	if (kind != BUSY_SNAPSHOT_GONE || !busy_is_of(name, t->dir))
		return 0;
	r = tombstone_adopt(c, t, name, err);
	if (r == -ENOENT) {
		t->name[0] = '\0';
		return 0;
	}
	return r < 0 ? r : 1;
}

struct snapshot_burial_search {
	const char *dir;
	struct volume_owner *owner; /* out */
};

/* A tombstone that cannot be read tells no owner: the deletion itself reports it. */
static int take_owner_if_of_snapshot(struct nfs_client *c, const char *name, enum busy_kind kind,
				     void *data, struct error *err)
{
	const struct snapshot_burial_search *search = data;
	cleanup_tombstone struct tombstone t = { .kind = kind,
						 .key = search->dir,
						 .dir = search->dir };
	struct error ignored = { .code = ERROR_OK };

	(void)err;
	if (kind != BUSY_SNAPSHOT_GONE || !busy_is_of(name, search->dir) ||
	    tombstone_peek(c, &t, name, &ignored) < 0)
		return 0;
	*search->owner = snapshot_info_of(&t.record).owner;
	return 1;
}

int snapshot_find_buried_owner(struct nfs_client *c, const char *name, struct volume_owner *ret,
			       struct error *err)
{
	struct snapshot_burial_search search = { .dir = name, .owner = ret };
	int r = busy_each(c, name, take_owner_if_of_snapshot, &search, err);

	if (r != 0)
		return r < 0 ? r : 0;
	return tombstone_find_remains_owner(c, STORE_SNAPSHOTS, name, ret, err);
}

/* Set the tombstone, or adopt one of an interrupted deletion or of another replica. */
static int bury_snapshot(struct nfs_client *c, const struct snapshot *s, struct tombstone *t,
			 struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r;

	if (snapshot_set_id(&rec, &s->id) < 0)
		return error_oom(err);
	if (s->record.n > 0) {
		r = tombstone_forget_replaced(c, t, &s->record, err);
		if (r < 0)
			return r;
		r = tombstone_set(c, t, err);
		if (r != -ENOENT)
			return r;
		t->name[0] = '\0';
	}
	r = busy_each(c, t->dir, adopt_if_of_snapshot, t, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (s->record.n == 0)
		return s->has_contents ? tombstone_set_unrecorded(c, t, &rec, err) : 0;
	return error_set(err, ERROR_ABORTED, "the snapshot is being deleted; try again");
}

/* Remove the draft and grave that a version of csi-nfs without tombstones may have left. */
static int forget_remains(struct nfs_client *c, const char *key, struct error *err)
{
	const struct nfs_handle *folder;
	int r;

	r = store_folder(c, STORE_SNAPSHOTS, false, &folder, err);
	if (r < 0)
		return r;
	r = record_forget_draft(c, folder, key, err);
	if (r < 0)
		return r;
	return record_forget(c, folder, key, NULL, err);
}

int snapshot_delete(struct nfs_client *c, const struct snapshot *s, bool *ret_trashed,
		    struct error *err)
{
	cleanup_tombstone struct tombstone t = {
		.kind = BUSY_SNAPSHOT_GONE,
		.key = s->id.subdir,
		.dir = s->id.subdir,
		.identity = volume_record_identity(&s->record),
	};
	int r;

	r = busy_check_unused(c, t.dir, err);
	if (r < 0)
		return r;
	r = bury_snapshot(c, s, &t, err);
	/* Rule 1: a restore that has not seen the tombstone wrote its note before. */
	if (r == 0)
		r = busy_check_unused(c, t.dir, err);
	if (r == 0)
		r = carry_out_deletion(c, &t, s->has_contents, ret_trashed, err);
	if (r < 0 && r != -ESTALE)
		tombstone_restore(c, &t);
	if (r > 0)
		return error_set(err, ERROR_ABORTED, "the snapshot is being changed; try again");
	if (r < 0 || s->record.n > 0)
		return r;
	r = forget_remains(c, t.key, err);
	return r == -ENOENT ? 0 : r;
}

/* The snapshot that is created. */
struct snapshot_creation {
	const char *name;
	const struct record *rec; /* NULL: there is none yet */
};

static int finish_snapshot_deletion(struct nfs_client *c, const char *name, enum busy_kind kind,
				    void *data, struct error *err)
{
	const struct snapshot_creation *creation = data;
	cleanup_tombstone struct tombstone t = {
		.kind = kind,
		.key = creation->name,
		.dir = creation->name,
	};
	char own[RECORD_NAME_MAX + 1];
	cleanup_volume_id struct volume_id id = { .server = NULL };
	struct snapshot_contents contents;
	bool trashed = false;
	const char *text;
	int r;

	if (kind == BUSY_VOLUME_GONE)
		return tombstone_refuse(creation->name, err);
	if (kind != BUSY_SNAPSHOT_GONE || !busy_may_be_of(name, creation->name))
		return 0;
	/* On a share that folds case it may be of another snapshot. */
	if (busy_directory(name, own))
		t.key = t.dir = own;
	r = tombstone_adopt(c, &t, name, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	text = snapshot_info_of(&t.record).id;
	/* If the id is damaged, only DeleteSnapshot knows what to remove. */
	if (text == NULL || volume_id_parse(&id, text) < 0)
		return record_unusable(c, -EINVAL, NFS_STATE_DIR "/busy", name,
				       "delete that snapshot once more", err);
	if (creation->rec != NULL && strcmp(t.key, creation->name) == 0) {
		r = tombstone_forget_earlier(c, &t, creation->rec, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	/* Rule 1: the deletion may have died before it looked for restores. */
	r = busy_check_unread(c, t.dir, err);
	if (r < 0)
		return r;
	r = snapshot_find_contents(c, &id, &t.record, &contents, err);
	if (r == 0 || r == -ENOENT)
		r = carry_out_deletion(c, &t, r == 0, &trashed, err);
	return r <= 0 ? r : tombstone_refuse(creation->name, err);
}

int snapshot_finish_deletions(struct nfs_client *c, const char *name, const struct record *rec,
			      struct error *err)
{
	struct snapshot_creation creation = { .name = name, .rec = rec };

	return busy_each_in_way(c, name, finish_snapshot_deletion, &creation, err);
}
