/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* CreateSnapshot, on the share. */

#include <errno.h>
#include <time.h>

#include "base/str.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/snapshot_parts.h"
#include "store/staging.h"

static int describe_time(struct record *rec, void *data)
{
	struct timespec now;

	(void)data;
	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	return snapshot_set_time(rec, (struct nfs_time){ now.tv_sec, (uint32_t)now.tv_nsec });
}

/* Read the record on the share into s->rec, if it is of the same snapshot. */
static int adopt_snapshot_record(struct nfs_client *c, const struct staging *s, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	struct snapshot_info have, want;
	int r;

	r = record_read(c, s->records, s->key, &rec, err);
	if (r == -ENOENT)
		return error_set(err, ERROR_ABORTED, "the snapshot is being deleted; try again");
	if (r == 0)
		r = snapshot_check_found_record(c, s->key, &rec, err);
	if (r < 0)
		return r;
	have = snapshot_info_of(&rec);
	want = snapshot_info_of(s->rec);
	r = snapshot_has_source_of(&have, &want);
	if (r < 0)
		return error_oom(err);
	if (r == 0 || !str_eq(have.name, want.name))
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "a snapshot named '%s' of another volume exists", want.name);
	record_done(s->rec);
	record_move(s->rec, &rec);
	return 0;
}

/* -------- snapshots of csi-driver-nfs -------- */

static bool is_same_file(const struct snapshot_contents *a, const struct snapshot_contents *b)
{
	return str_eq(a->name, b->name) && nfs_handle_is_equal(&a->handle, &b->handle) &&
	       a->attr.size == b->attr.size && nfs_time_is_equal(&a->attr.mtime, &b->attr.mtime);
}

/*
 * Find an archive without a record that may be the snapshot. Return 1 if there is one, else 0: a
 * tree needs a record, and the caller refuses its directory. Refuse any other directory with such
 * an archive.
 */
static int find_foreign(struct nfs_client *c, const struct volume_id *id, const struct staging *s,
			struct snapshot_contents *ret, struct error *err)
{
	const struct record none = { .n = 0 };
	const struct owner_question q = { .snapshot = id->subdir, .scope = OWNER_VOLUMES };
	struct owner owner;
	int r;

	r = snapshot_find_contents(c, id, &none, ret, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = owner_find(c, id->subdir, &q, &owner, err);
	if (r < 0)
		return r;
	if (r > 0)
		return owner_refuse(c, id->subdir, &owner, snapshot_info_of(s->rec).name, err);
	r = snapshot_is_alone(c, id->subdir, id->on_delete, err);
	if (r != 0)
		return r == -ENOENT ? 0 : r;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "'%s' on %s:%s exists, and holds more than a snapshot: move it away",
			 id->subdir, c->export.server, c->export.share);
}

/*
 * Read the archive to its end. csi-driver-nfs writes archives in place, so an archive looks
 * finished even if csi-driver-nfs was stopped in the middle; and once a CO is told that the
 * snapshot is ready, it does not ask again. Refuse an incomplete archive, but leave it alone:
 * somebody may need it.
 */
static int check_foreign(struct nfs_client *c, const struct volume_id *id,
			 const struct snapshot_filler *filler,
			 const struct snapshot_contents *archive, struct error *err)
{
	const struct record none = { .n = 0 };
	struct error why = { .code = ERROR_OK };
	struct snapshot_contents now;
	int r;

	r = filler->check(c, filler->data, &why);
	if (r < 0 && why.code != ERROR_DATA_LOSS) {
		*err = why;
		return r;
	}
	r = snapshot_find_contents(c, id, &none, &now, err);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r < 0 || !is_same_file(archive, &now))
		return error_set(err, ERROR_ABORTED,
				 "'%s/%s' on %s:%s has changed while it was read: if csi-driver-nfs still runs, stop it; then try again",
				 id->subdir, archive->name, c->export.server, c->export.share);
	if (why.code == ERROR_OK)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "'%s/%s' on %s:%s has no record and is not a whole archive: %s; csi-driver-nfs may have begun it: make sure that it is stopped, and move the directory away",
			 id->subdir, archive->name, c->export.server, c->export.share, why.msg);
}

/*
 * Look for an archive without a record before there is one: reading it may take long, and what is
 * refused needs no record. Return 1 for a whole archive in *ret, 0 for none.
 */
static int look_for_foreign(struct nfs_client *c, const struct volume_id *id,
			    const struct staging *s, const struct snapshot_filler *filler,
			    struct snapshot_contents *ret, struct error *err)
{
	const struct record none = { .n = 0 };
	int r = snapshot_find_contents(c, id, &none, ret, err);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = snapshot_finish_deletions(c, id->subdir, NULL, err);
	if (r == 0)
		r = find_foreign(c, id, s, ret, err);
	if (r <= 0)
		return r;
	r = check_foreign(c, id, filler, ret, err);
	return r < 0 ? r : 1;
}

/* Adopt a snapshot of csi-driver-nfs. checked: an archive that was found whole, or NULL. */
static int adopt_foreign_snapshot(struct nfs_client *c, const struct volume_id *id,
				  const struct staging *s, const struct snapshot_filler *filler,
				  const struct snapshot_contents *checked, struct error *err)
{
	struct snapshot_contents found;
	int r = find_foreign(c, id, s, &found, err);

	if (r <= 0)
		return r;
	if (checked == NULL || !is_same_file(checked, &found)) {
		r = check_foreign(c, id, filler, &found, err);
		if (r < 0)
			return r;
	}
	if (record_set(s->rec, SNAPSHOT_KEY_FILE, found.name) < 0 ||
	    snapshot_set_time(s->rec, found.attr.mtime) < 0 || staging_set_ready(s->rec) < 0)
		return error_oom(err);
	return record_replace(c, s->records, s->key, s->rec, err);
}

/* -------- the snapshot -------- */

/* Remove the remains of a snapshot that was not made. If that fails, let the CO retry. */
static void undo_snapshot(struct nfs_client *c, const struct staging *s, bool *ret_trashed,
			  struct error *err)
{
	struct error second = { .code = ERROR_OK };
	int r;

	if (!error_is_final(err->code))
		return;
	/*
	 * Another replica may have finished the snapshot, or have removed the record. That may come
	 * back: see remove_unfinished() in store/text.c. The next attempt removes it then.
	 */
	r = record_check_same(c, s->records, s->key, s->rec, &second);
	if (r < 0 || staging_is_in_place(c, s->rec, s->path, &second) != 0 ||
	    staging_discard(c, s->work_key, ret_trashed, &second) < 0 ||
	    record_forget_draft(c, s->records, s->key, &second) < 0 ||
	    record_remove(c, s->records, s->key, s->rec, &second) < 0)
		err->code = ERROR_ABORTED;
}

static int check_record_remains(struct nfs_client *c, const struct staging *s, struct error *err)
{
	int r = record_is_there(c, s->records, s->key, err);

	if (r != 0)
		return r < 0 ? r : 0;
	return error_set(err, ERROR_ABORTED,
			 "another controller has deleted the snapshot while it was made; try again");
}

/* Check that no other replica has deleted or replaced the snapshot since its record was read. */
static int check_same_record(struct nfs_client *c, const struct staging *s, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r = record_read(c, s->records, s->key, &rec, err);

	if (r == 0 && staging_state_of(&rec).ready &&
	    snapshot_info_of(&rec).time_ns == snapshot_info_of(s->rec).time_ns)
		return 0;
	if (r < 0 && r != -ENOENT)
		return r;
	return error_set(err, ERROR_ABORTED,
			 "another controller is working on the snapshot; try again");
}

/*
 * A finished snapshot has its archive or tree. One that was removed by hand is not made again: the
 * volume has changed since.
 */
static int snapshot_check_finished(struct nfs_client *c, const struct volume_id *id,
				   const struct staging *s, struct error *err)
{
	struct snapshot_contents contents;
	int r;

	r = snapshot_find_contents(c, id, s->rec, &contents, err);
	if (r != -ENOENT)
		return r;
	r = directory_may_come_back(c, id->subdir, err);
	if (r > 0)
		return error_set(err, ERROR_ABORTED,
				 "another controller is working on the snapshot; try again");
	if (r == 0)
		r = snapshot_find_contents(c, id, s->rec, &contents, err);
	if (r != -ENOENT)
		return r;
	r = check_same_record(c, s, err);
	if (r < 0)
		return r;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "the %s of snapshot '%s' has been removed from '%s' on %s:%s: put it back, or delete the snapshot",
			 snapshot_is_recorded_tree(s->rec) ? "tree" : "archive",
			 snapshot_info_of(s->rec).name, id->subdir, c->export.server,
			 c->export.share);
}

/*
 * The archive went while it was adopted: another replica has deleted the snapshot. Take the record
 * back, which would tell later calls that somebody had removed the archive of a finished one.
 */
static int undo_adoption(struct nfs_client *c, const struct staging *s, int r, struct error *err)
{
	struct error second = { .code = ERROR_OK };

	if (err->code != ERROR_FAILED_PRECONDITION)
		return r;
	(void)record_remove(c, s->records, s->key, s->rec, &second);
	error_clear(err);
	return error_set(err, ERROR_ABORTED, "the snapshot is being changed; try again");
}

/* Make the snapshot after its record. checked: as for adopt_foreign_snapshot(). */
static int make_snapshot(struct nfs_client *c, const struct volume_id *id, struct staging *s,
			 const struct snapshot_filler *filler,
			 const struct snapshot_contents *checked, struct error *err)
{
	const struct staging_state before = staging_state_of(s->rec);
	const bool is_empty = before.built == NULL && !before.ready;
	int r;

	r = snapshot_finish_deletions(c, id->subdir, s->rec, err);
	if (r == 0 && is_empty)
		r = adopt_foreign_snapshot(c, id, s, filler, checked, err);
	if (r == 0 && staging_state_of(s->rec).ready) {
		r = snapshot_check_finished(c, id, s, err);
		return r < 0 && is_empty ? undo_adoption(c, s, r, err) : r;
	}
	if (r == 0)
		r = staging_make(c, s, err);
	return r < 0 ? r : check_record_remains(c, s, err);
}

/* The contents were in place a moment ago, and the volume that they came from is gone. */
static int refuse_to_fill(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	(void)c;
	(void)name;
	(void)data;
	return error_set(err, ERROR_ABORTED, "the snapshot is being changed; try again");
}

/*
 * Answer a call whose volume is gone: find a finished snapshot of it, finish one that a killed
 * attempt has put in place, or undo a half-made one.
 */
static int answer_without_source(struct nfs_client *c, const struct volume_id *id,
				 struct staging *s, const struct snapshot_filler *filler,
				 struct error *err)
{
	struct error why = { .code = ERROR_OK };
	int in_place, r = adopt_snapshot_record(c, s, &why);

	if (r < 0 && why.code == ERROR_ABORTED) { /* there is no record */
		*err = *filler->missing;
		return -ENOENT;
	}
	if (r < 0) {
		*err = why;
		return r;
	}
	if (staging_state_of(s->rec).ready)
		return snapshot_check_finished(c, id, s, err);
	in_place = staging_is_in_place(c, s->rec, s->path, err);
	if (in_place != 0) {
		s->fill = refuse_to_fill;
		r = in_place > 0 ? make_snapshot(c, id, s, filler, NULL, err) : in_place;
		*filler->ret_trashed = *filler->ret_trashed || s->trashed;
		if (r < 0)
			undo_snapshot(c, s, filler->ret_trashed, err);
		return r;
	}
	*err = *filler->missing;
	undo_snapshot(c, s, filler->ret_trashed, err);
	return -ENOENT;
}

int snapshot_create(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		    const struct snapshot_filler *filler, struct error *err)
{
	const struct owner_question others = { .snapshot = id->subdir, .scope = OWNER_VOLUMES };
	char work_key[SNAPSHOT_WORK_KEY_MAX];
	struct staging s = {
		.key = id->subdir,
		.path = id->subdir,
		.work_key = work_key,
		.others = &others,
		.refusal = "is not a snapshot",
		.rec = rec,
		.fill = filler->fill,
		.describe = describe_time,
		.data = filler->data,
	};
	struct snapshot_contents checked;
	bool created, is_checked = false;
	int r;

	if (record_set_nonce(rec) < 0)
		return error_oom(err);
	snapshot_work_key(work_key, id->subdir);
	r = store_folder(c, STORE_SNAPSHOTS, true, &s.records, err);
	if (r < 0)
		return r;
	if (filler->missing->code != ERROR_OK)
		return answer_without_source(c, id, &s, filler, err);
	r = *filler->had_record ? 1 : record_is_there(c, s.records, s.key, err);
	if (r == 0) {
		r = look_for_foreign(c, id, &s, filler, &checked, err);
		is_checked = r > 0;
	}
	if (r < 0)
		return r;
	/* As in volume_create(). */
	r = *filler->had_record ? -EEXIST : record_create(c, s.records, s.key, rec, err);
	created = r == 0;
	if (r == 0 || r == -EEXIST)
		*filler->had_record = true;
	if (r == -EEXIST)
		r = adopt_snapshot_record(c, &s, err);
	if (r < 0)
		return r;
	r = make_snapshot(c, id, &s, filler, is_checked ? &checked : NULL, err);
	*filler->ret_trashed = *filler->ret_trashed || s.trashed;
	if (r < 0 && error_is_final(err->code))
		*filler->had_record = false; /* the undo may take it back */
	/* A finished snapshot keeps its record. */
	if (r < 0 && (created || !staging_state_of(rec).ready))
		undo_snapshot(c, &s, filler->ret_trashed, err);
	return r;
}
