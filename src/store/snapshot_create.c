/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* CreateSnapshot, on the share. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/snapshot_parts.h"
#include "store/staging.h"

static int put_time(struct record *rec, struct nfs_time time)
{
	char number[32];

	(void)snprintf(number, sizeof(number), "%" PRIu64,
		       (uint64_t)time.sec * CLOCK_NS_PER_S + time.nsec);
	return record_set(rec, SNAPSHOT_KEY_TIME, number);
}

static int put_now(struct record *rec, void *data)
{
	struct timespec now;

	(void)data;
	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	return put_time(rec, (struct nfs_time){ now.tv_sec, (uint32_t)now.tv_nsec });
}

/* Read the record that is there; *rec becomes it, where it is that of the same snapshot. */
static int adopt_record(struct nfs_client *c, const struct staging *b, struct error *err)
{
	struct record *rec = b->rec, have = { .n = 0 };
	const char *source;
	int r;

	r = record_read(c, b->records, b->key, &have, err);
	if (r == -ENOENT)
		return error_set(err, ERROR_ABORTED, "the snapshot is being deleted; try again");
	if (r < 0)
		return r;
	source = record_get(&have, SNAPSHOT_KEY_SOURCE);
	if (source == NULL || !str_eq(source, record_get(rec, SNAPSHOT_KEY_SOURCE)) ||
	    !str_eq(record_get(&have, SNAPSHOT_KEY_NAME), record_get(rec, SNAPSHOT_KEY_NAME))) {
		record_done(&have);
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "a snapshot named '%s' of another volume exists",
				 record_get(rec, SNAPSHOT_KEY_NAME));
	}
	record_done(rec);
	*rec = have;
	return 0;
}

/* A snapshot that csi-driver-nfs made becomes ours. Anything else of that name is in the way. */
static int adopt_foreign(struct nfs_client *c, const struct volume_id *id, const struct staging *b,
			 struct error *err)
{
	const struct owner_question q = { .snapshot = id->subdir, .scope = OWNER_VOLUMES };
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct owner owner;
	int r;

	r = snapshot_find_archive(c, id, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = owner_find(c, id->subdir, &q, &owner, err);
	if (r < 0)
		return r;
	if (r > 0)
		return owner_refuse(c, id->subdir, &owner, record_get(b->rec, SNAPSHOT_KEY_NAME),
				    err);
	r = snapshot_is_alone(c, id->subdir, id->on_delete, err);
	if (r < 0)
		return r;
	if (r == 0)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "'%s' on %s:%s exists, and holds more than a snapshot: move it away",
				 id->subdir, c->export.server, c->export.share);
	if (put_time(b->rec, attr.mtime) < 0 || record_set(b->rec, STAGING_KEY_READY, "1") < 0)
		return error_oom(err);
	return record_replace(c, b->records, b->key, b->rec, err);
}

/* Leave nothing behind of a snapshot that is not made; where that fails, the CO has to come back. */
static void undo(struct nfs_client *c, const struct staging *b, bool *ret_trashed, struct error *err)
{
	struct error second = { .code = ERROR_OK };

	if (!error_is_final(err->code))
		return;
	if (staging_is_in_place(c, b->rec, b->path, &second) != 0 ||
	    staging_discard(c, b->work_key, ret_trashed, &second) < 0 ||
	    record_forget_draft(c, b->records, b->key, NULL, &second) < 0 ||
	    record_remove(c, b->records, b->key, b->rec, &second) < 0)
		err->code = ERROR_ABORTED;
}

static int check_record_remains(struct nfs_client *c, const struct staging *b, struct error *err)
{
	int r = record_is_there(c, b->records, b->key, err);

	if (r != 0)
		return r < 0 ? r : 0;
	(void)error_set(err, ERROR_ABORTED,
			"another controller has deleted the snapshot while it was made; try again");
	return -EAGAIN;
}

/* The volume is gone. A finished snapshot of it is an answer; a half-made one is taken back. */
static int answer_without_source(struct nfs_client *c, const struct staging *b,
				 const struct snapshot_filler *filler, struct error *err)
{
	struct error unused = { .code = ERROR_OK };
	int r = adopt_record(c, b, &unused);

	if (r == 0 && staging_is_ready(b->rec))
		return 0;
	*err = unused.code == ERROR_ALREADY_EXISTS ? unused : *filler->missing;
	if (r == 0)
		undo(c, b, filler->ret_trashed, err);
	return -ENOENT;
}

int snapshot_create(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		    const struct snapshot_filler *filler, struct error *err)
{
	const struct owner_question others = { .snapshot = id->subdir, .scope = OWNER_VOLUMES };
	char work_key[SNAPSHOT_WORK_KEY_MAX];
	struct staging b = {
		.key = id->subdir,
		.path = id->subdir,
		.work_key = work_key,
		.others = &others,
		.refusal = "is no snapshot",
		.rec = rec,
		.fill = filler->fill,
		.describe = put_now,
		.data = filler->data,
	};
	bool created, is_ours;
	int r;

	snapshot_work_key(work_key, id->subdir);
	r = store_folder(c, STORE_SNAPSHOTS, true, &b.records, err);
	if (r < 0)
		return r;
	if (filler->missing->code != ERROR_OK)
		return answer_without_source(c, &b, filler, err);
	r = record_create(c, b.records, b.key, rec, err);
	created = r == 0;
	if (r == -EEXIST)
		r = adopt_record(c, &b, err);
	is_ours = r == 0;
	if (r == 0)
		r = snapshot_finish_deletions(c, id->subdir, err);
	if (r == 0 && created)
		r = adopt_foreign(c, id, &b, err);
	if (r == 0)
		r = staging_make(c, &b, err);
	if (r == 0)
		r = check_record_remains(c, &b, err);
	*filler->ret_trashed = *filler->ret_trashed || b.trashed;
	/* A finished snapshot keeps its record. */
	if (r < 0 && is_ours && (created || !staging_is_ready(rec)))
		undo(c, &b, filler->ret_trashed, err);
	return r;
}
