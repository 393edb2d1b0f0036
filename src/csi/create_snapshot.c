/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* CreateSnapshot. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "csi/copy_job.h"
#include "csi/params.h"
#include "csi/snapshot.h"
#include "csi/validate.h"
#include "net/address.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/staging.h"
#include "store/users.h"
#include "store/volume.h"
#include "tree/archive.h"

struct archiving {
	const struct csi_driver *driver;
	const Csi__V1__CreateSnapshotRequest *in;
	struct snapshot_params params;
	struct reference source;
	struct nfs_export export; /* where the archive goes */
	struct volume_id id;
	char *id_text;
	struct record record;
	char *file; /* name of the archive */
	struct nfs_client *to; /* meanwhile */
	const char *name; /* of the directory that is being made, meanwhile */
	struct trash trash;
	struct claim *use; /* of the volume */
	struct claim *make; /* of the snapshot */
	struct error missing; /* why there is no such volume, which a finished snapshot does not need */
};

static void archiving_done(struct archiving *x)
{
	snapshot_params_done(&x->params);
	reference_done(&x->source);
	nfs_export_done(&x->export);
	volume_id_done(&x->id);
	free(x->id_text);
	record_done(&x->record);
	free(x->file);
}

/* -------- what is asked for -------- */

/* The volume's key, as part of a file name. */
static char *source_name(const struct volume_id *id)
{
	const char *key = volume_id_key(id);
	char name[RECORD_NAME_MAX + 1];

	directory_key(name, key, strlen(key));
	return strdup(name);
}

static int make_id(struct archiving *x, struct error *err)
{
	const char *server = x->params.server != NULL ? x->params.server : x->source.id.server;
	const char *share = x->params.share != NULL ? x->params.share : x->source.id.share;
	struct volume_id *id = &x->id;
	int r;

	id->server = net_server_without_brackets(server);
	id->share = path_trim(share);
	id->on_delete = source_name(&x->source.id);
	if (id->server == NULL || id->share == NULL || id->on_delete == NULL)
		return error_oom(err);
	r = volume_key(x->in->name, id->server, id->share, &id->subdir, err);
	if (r < 0)
		return r;
	id->uuid = strdup(id->subdir);
	x->id_text = id->uuid != NULL ? volume_id_format(id) : NULL;
	x->file = malloc(strlen(id->on_delete) + 16);
	if (x->id_text == NULL || x->file == NULL)
		return error_oom(err);
	(void)sprintf(x->file, "%s%s", id->on_delete, tree_compression_suffix(x->params.compression));
	return 0;
}

static int make_export(struct archiving *x, const struct csi_map *secrets, struct error *err)
{
	int r;

	r = nfs_export_init(&x->export, x->id.server, x->id.share, err);
	if (r == 0)
		r = nfs_export_apply_options(&x->export, csi_map_get(secrets, SECRET_MOUNT_OPTIONS),
					     err);
	if (r == 0)
		r = nfs_export_apply_options(&x->export, x->params.mount_options, err);
	if (r == 0)
		known_exports_apply(x->driver->known, &x->export);
	return r;
}

static int describe(struct archiving *x, struct error *err)
{
	const struct record *source = &x->source.record;
	struct record *rec = &x->record;
	char number[32];
	int r;

	(void)snprintf(number, sizeof(number), "%" PRId64, volume_size(source));
	r = record_set(rec, SNAPSHOT_KEY_NAME, x->in->name);
	if (r == 0)
		r = record_set(rec, SNAPSHOT_KEY_ID, x->id_text);
	if (r == 0)
		r = record_set(rec, SNAPSHOT_KEY_SOURCE, x->in->source_volume_id);
	if (r == 0)
		r = record_set(rec, SNAPSHOT_KEY_SIZE, number);
	if (r == 0)
		r = record_set(rec, SNAPSHOT_KEY_FILE, x->file);
	/* As whom the volume is worked on: its snapshots, too. */
	if (r == 0 && record_get(source, VOLUME_KEY_UID) != NULL)
		r = record_set(rec, VOLUME_KEY_UID, record_get(source, VOLUME_KEY_UID));
	if (r == 0 && record_get(source, VOLUME_KEY_GID) != NULL)
		r = record_set(rec, VOLUME_KEY_GID, record_get(source, VOLUME_KEY_GID));
	return r < 0 ? error_oom(err) : 0;
}

static int archiving_init(struct archiving *x, struct error *err)
{
	const Csi__V1__CreateSnapshotRequest *in = x->in;
	const struct csi_map parameters = csi_map_of(in, parameters);
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	r = validate_name(in->name, err);
	if (r == 0)
		r = validate_required(in->source_volume_id, "source_volume_id", err);
	if (r == 0)
		r = validate_map(&parameters, "parameters", err);
	if (r == 0)
		r = snapshot_params_parse(&x->params, &parameters, x->driver->compression, err);
	if (r == 0)
		r = reference_find(&x->source, x->driver, in->source_volume_id, &secrets, err);
	/* For classes without a secret, while it is not known how the volume's server is reached. */
	if (r == 0 && !nfs_export_has_options(&x->source.export))
		r = nfs_export_apply_options(&x->source.export, x->params.mount_options, err);
	if (r == 0)
		r = make_id(x, err);
	return r < 0 ? r : make_export(x, &secrets, err);
}

/* -------- the archive -------- */

static int pack(struct archiving *x, struct transfer *t, const struct nfs_handle *tree,
		const struct nfs_attr *attr, struct error *err)
{
	const struct nfs_handle *work;
	int r;

	do {
		transfer_set_tree(t, tree, attr);
		r = transfer_begin(t, x->name, &work, err);
		if (r == 0)
			r = tree_pack(&t->work, tree, attr, work, x->name, x->file,
				      x->params.compression, err);
	} while (transfer_is_to_be_retried(t, r, err));
	return r;
}

static int pack_volume(struct nfs_client *c, struct reference *ref, void *data, struct error *err)
{
	struct archiving *x = data;
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct transfer t;
	const char *dir;
	int r;

	r = volume_directory(c, &ref->id, &ref->record, &dir, err);
	if (r == 0)
		r = transfer_open(&t, x->driver, x->in->name, c, x->to, err);
	else
		return r;
	if (r == 0)
		r = directory_locate(t.work.from, dir, &place, err);
	if (r == 0)
		r = nfs_lookup(t.work.from, &place.parent, place.base, &handle, &attr);
	if (r == 0)
		r = nfs_stat(t.work.from, &handle, &attr);
	if (r < 0)
		r = nfs_error_set(err, c, r, "volume directory '%s'", dir);
	if (r == 0) {
		transfer_set_claims(&t, x->use, x->make);
		r = pack(x, &t, &handle, &attr, err);
	}
	if (r == 0)
		r = transfer_check_source(&t, dir, &handle, err);
	if (r == 0)
		r = transfer_renew_claims(&t, err);
	transfer_close(&t, r);
	return r;
}

static int fill(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	struct archiving *x = data;

	x->to = c;
	x->name = name;
	return csi_with_volume(x->driver, &x->source, pack_volume, x, err);
}

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

static int check_same(struct archiving *x, struct nfs_client *c, const struct nfs_handle *folder,
		      struct error *err)
{
	struct record have = { .n = 0 };
	const char *source;
	int r;

	r = record_read(c, folder, x->id.subdir, &have, err);
	if (r == -ENOENT)
		return error_set(err, ERROR_ABORTED, "the snapshot is being deleted; try again");
	if (r < 0)
		return r;
	source = record_get(&have, SNAPSHOT_KEY_SOURCE);
	if (source == NULL || strcmp(source, x->in->source_volume_id) != 0 ||
	    !str_eq(record_get(&have, SNAPSHOT_KEY_NAME), x->in->name)) {
		record_done(&have);
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "a snapshot named '%s' of another volume exists", x->in->name);
	}
	record_done(&x->record);
	x->record = have;
	return 0;
}

/* One that csi-driver-nfs has made becomes ours; something else of that name is in the way. */
static int adopt(struct archiving *x, struct nfs_client *c, const struct nfs_handle *folder,
		 struct error *err)
{
	const struct owner_question q = { .snapshot = x->id.subdir, .scope = OWNER_VOLUMES };
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct owner owner;
	int r;

	r = snapshot_find_archive(c, &x->id, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = owner_find(c, x->id.subdir, &q, &owner, err);
	if (r != 0)
		return r < 0 ? r : owner_refuse(c, x->id.subdir, &owner, x->in->name, err);
	r = snapshot_is_alone(c, x->id.subdir, x->id.on_delete, err);
	if (r <= 0)
		return r < 0 ? r
			     : error_set(err, ERROR_FAILED_PRECONDITION,
					 "'%s' on %s:%s exists, and holds more than a snapshot: move it away",
					 x->id.subdir, c->export.server, c->export.share);
	if (put_time(&x->record, attr.mtime) < 0 || record_set(&x->record, STAGING_KEY_READY, "1") < 0)
		return error_oom(err);
	return record_replace(c, folder, x->id.subdir, &x->record, err);
}

/* Of a snapshot that is not made nothing stays behind; else a CO has to come back for it. */
static void undo(struct nfs_client *c, const struct staging *b, bool *ret_trashed, struct error *err)
{
	struct error second = { .code = ERROR_OK };

	if (!error_is_final(err->code))
		return;
	/* An attempt before this one may have left work. */
	if (staging_is_in_place(c, b->rec, b->path, &second) != 0 ||
	    staging_discard(c, b->work_key, ret_trashed, &second) < 0 ||
	    record_forget_draft(c, b->records, b->key, NULL, &second) < 0 ||
	    record_remove(c, b->records, b->key, b->rec, &second) < 0)
		err->code = ERROR_ABORTED;
}

static int check_still_there(struct archiving *x, struct nfs_client *c,
			     const struct nfs_handle *folder, struct error *err)
{
	int r = record_is_there(c, folder, x->id.subdir, err);

	if (r != 0)
		return r < 0 ? r : 0;
	(void)error_set(err, ERROR_ABORTED,
			"another controller has deleted the snapshot while it was made; try again");
	return -EAGAIN;
}

/* What an attempt has begun while there was such a volume, comes to nothing. */
static int answer_without_source(struct archiving *x, struct nfs_client *c, const struct staging *b,
				 struct error *err)
{
	struct error unused = { .code = ERROR_OK };
	int r = check_same(x, c, b->records, &unused);

	if (r == 0 && staging_is_ready(&x->record))
		return 0;
	*err = unused.code == ERROR_ALREADY_EXISTS ? unused : x->missing;
	if (r == 0)
		undo(c, b, &x->trash.is_used, err);
	return -ENOENT;
}

static int create_work(struct nfs_client *c, void *data, struct error *err)
{
	struct archiving *x = data;
	char work_key[SNAPSHOT_WORK_KEY_MAX];
	const struct owner_question others = { .snapshot = x->id.subdir, .scope = OWNER_VOLUMES };
	struct staging b = { .key = x->id.subdir,
			     .path = x->id.subdir,
			     .work_key = work_key,
			     .others = &others,
			     .refusal = "is no snapshot",
			     .rec = &x->record,
			     .fill = fill,
			     .describe = put_now,
			     .data = x };
	bool created, is_ours;
	int r;

	snapshot_work_key(work_key, x->id.subdir);
	csi_trash_of(&x->trash, &x->export, c);
	r = store_folder(c, STORE_SNAPSHOTS, true, &b.records, err);
	if (r < 0)
		return r;
	if (x->missing.code != ERROR_OK)
		return answer_without_source(x, c, &b, err);
	r = record_create(c, b.records, b.key, &x->record, err);
	is_ours = created = r == 0;
	if (r == 0) {
		r = snapshot_finish_deletions(c, x->id.subdir, err);
		if (r == 0)
			r = adopt(x, c, b.records, err);
	} else if (r == -EEXIST) {
		r = check_same(x, c, b.records, err);
		is_ours = r == 0;
		if (r == 0)
			r = snapshot_finish_deletions(c, x->id.subdir, err);
	}
	if (r == 0)
		r = staging_make(c, &b, err);
	if (r == 0)
		r = check_still_there(x, c, b.records, err);
	x->trash.is_used = x->trash.is_used || b.trashed;
	/* One that is finished keeps its record. */
	if (r < 0 && is_ours && (created || !staging_is_ready(&x->record)))
		undo(c, &b, &x->trash.is_used, err);
	return r;
}

/* For the other replicas: what is archived, and what is made of it. */
static int claim_work(struct archiving *x, const struct volume_owner *owner, const char *dir,
		      struct claim **ret_use, struct claim **ret_make, struct error *err)
{
	int r;

	if (x->missing.code != ERROR_OK)
		return 0;
	r = claim_take(ret_use, x->driver, &x->source.export, owner, BUSY_USE,
		       dir != NULL ? dir : x->source.id.subdir, err);
	if (r == 0)
		r = claim_take(ret_make, x->driver, &x->export, owner, BUSY_MAKE, x->id.subdir, err);
	x->use = *ret_use;
	x->make = *ret_make;
	return r;
}

static int create(struct archiving *x, struct error *err)
{
	cleanup_inflight_lock struct inflight_lock *lock = NULL;
	cleanup_usage_lock struct usage_lock *source = NULL;
	cleanup_usage_lock struct usage_lock *place = NULL;
	cleanup_claim struct claim *use = NULL;
	cleanup_claim struct claim *make = NULL;
	struct volume_owner owner;
	const char *dir;
	int r;

	r = archiving_init(x, err);
	if (r == 0)
		r = csi_lock(x->driver, "snapshot", &x->export, x->id.subdir, &lock, err);
	if (r == 0)
		r = reference_read(&x->source, x->driver, err);
	if (r == 0)
		r = csi_with_volume(x->driver, &x->source, csi_find_volume_work, NULL, err);
	if (r < 0 && err->code == ERROR_NOT_FOUND && x->export.server != NULL) {
		x->missing = *err;
		error_clear(err);
		r = 0;
	}
	if (r < 0)
		return r;
	dir = record_get(&x->source.record, VOLUME_KEY_DIR);
	r = usage_acquire(x->driver->usage, &x->source.export,
			  dir != NULL ? dir : x->source.id.subdir, false, &source, err);
	if (r == 0)
		r = usage_acquire(x->driver->usage, &x->export, x->id.subdir, false, &place, err);
	if (r == 0)
		r = describe(x, err);
	if (r < 0)
		return r;
	owner = volume_owner_of(&x->source.record);
	r = claim_work(x, &owner, dir, &use, &make, err);
	if (r < 0)
		return r;
	r = csi_with_owner(x->driver, &x->export, &owner, create_work, x, err);
	if (r < 0)
		csi_check_final(x->driver, &x->export, &owner, STORE_SNAPSHOTS, x->id.subdir, err);
	csi_purge(x->driver, &x->trash);
	return r;
}

void controller_create_snapshot(Csi__V1__Controller_Service *service,
				const Csi__V1__CreateSnapshotRequest *in,
				Csi__V1__CreateSnapshotResponse_Closure closure, void *data)
{
	struct archiving x = { .driver = csi_controller_driver(service), .in = in };
	Csi__V1__CreateSnapshotResponse out = CSI__V1__CREATE_SNAPSHOT_RESPONSE__INIT;
	struct snapshot_message message;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->name);
	r = create(&x, &req->err);
	if (r == 0) {
		snapshot_message_of_record(&message, &x.record);
		out.snapshot = &message.snapshot;
	}
	closure(r < 0 ? NULL : &out, data);
	archiving_done(&x);
}
