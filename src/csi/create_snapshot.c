/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "csi/claim.h"
#include "csi/controller.h"
#include "csi/copy_job.h"
#include "csi/copy_turn.h"
#include "csi/snapshot_params.h"
#include "csi/snapshot_ref.h"
#include "csi/validate.h"
#include "csi/volume_ref.h"
#include "csi/volume_source.h"
#include "net/address.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/path_key.h"
#include "store/volume.h"
#include "tree/archive.h"
#include "tree/copy.h"

/* A CreateSnapshot request, parsed. */
struct snapshot_request {
	const struct csi_driver *driver;
	struct copy_turn *turn; /* borrowed */
	const char *name; /* as requested; borrowed */
	struct snapshot_params params;
	struct volume_ref source;
	struct nfs_export export; /* where the snapshot goes */
	struct volume_id id; /* of the snapshot */
	char *id_text;
	char *file; /* name of the archive or tree */
	struct record record;
	struct claim *use; /* of the volume; borrowed */
	struct claim *make; /* of the snapshot; borrowed */
	struct error missing; /* why it cannot be made. Ignored once the snapshot exists */
};

static bool snapshot_request_is_of_tree(const struct snapshot_request *wanted)
{
	return wanted->params.format == SNAPSHOT_TREE;
}

static void snapshot_request_done(struct snapshot_request *wanted)
{
	snapshot_params_done(&wanted->params);
	volume_ref_done(&wanted->source);
	nfs_export_done(&wanted->export);
	volume_id_done(&wanted->id);
	free(wanted->id_text);
	free(wanted->file);
	record_done(&wanted->record);
}
#define cleanup_snapshot_request __attribute__((cleanup(snapshot_request_done)))

/* -------- the request -------- */

/* The volume's key, as part of a file name. */
static char *source_file_name(const struct volume_id *id)
{
	const char *key = volume_id_key(id);
	char name[RECORD_NAME_MAX + 1];

	path_key(name, key, strlen(key));
	return strdup(name);
}

static int make_id(struct snapshot_request *wanted, struct error *err)
{
	const char *server =
		wanted->params.server != NULL ? wanted->params.server : wanted->source.id.server;
	const char *share =
		wanted->params.share != NULL ? wanted->params.share : wanted->source.id.share;
	struct volume_id *id = &wanted->id;
	int r;

	id->server = net_server_without_brackets(server);
	id->share = path_trim(share);
	id->on_delete = source_file_name(&wanted->source.id);
	if (id->server == NULL || id->share == NULL || id->on_delete == NULL)
		return error_oom(err);
	r = volume_key(wanted->name, id->server, id->share, &id->subdir, err);
	if (r < 0)
		return r;
	id->uuid = strdup(id->subdir);
	wanted->id_text = id->uuid != NULL ? volume_id_format(id) : NULL;
	wanted->file = malloc(strlen(id->on_delete) + 16);
	if (wanted->id_text == NULL || wanted->file == NULL)
		return error_oom(err);
	(void)sprintf(wanted->file, "%s%s", id->on_delete,
		      snapshot_request_is_of_tree(wanted)
			      ? SNAPSHOT_TREE_SUFFIX
			      : tree_compression_suffix(wanted->params.compression));
	return 0;
}

static int make_export(struct snapshot_request *wanted, const struct csi_map *secrets,
		       struct error *err)
{
	int r;

	r = nfs_export_init(&wanted->export, wanted->id.server, wanted->id.share, err);
	if (r < 0)
		return r;
	r = nfs_export_apply_options(&wanted->export, csi_map_get(secrets, SECRET_MOUNT_OPTIONS),
				     err);
	if (r < 0)
		return r;
	r = nfs_export_apply_options(&wanted->export, wanted->params.mount_options, err);
	if (r < 0)
		return r;
	known_exports_apply(wanted->driver->known, &wanted->export);
	return 0;
}

static int snapshot_request_init(struct snapshot_request *wanted,
				 const Csi__V1__CreateSnapshotRequest *in, struct error *err)
{
	const struct csi_map parameters = csi_map_of(in, parameters);
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	r = validate_name(in->name, err);
	if (r < 0)
		return r;
	r = validate_required(in->source_volume_id, "source_volume_id", err);
	if (r < 0)
		return r;
	r = validate_map(&parameters, "parameters", err);
	if (r < 0)
		return r;
	r = snapshot_params_parse(&wanted->params, &parameters, wanted->driver->compression, err);
	if (r < 0)
		return r;
	r = volume_ref_find(&wanted->source, wanted->driver, in->source_volume_id, &secrets, err);
	if (r < 0)
		return r;
	/* Without a secret, use the class's options until a call has reached the server. */
	if (!nfs_export_has_options(&wanted->source.export)) {
		r = nfs_export_apply_options(&wanted->source.export, wanted->params.mount_options,
					     err);
		if (r < 0)
			return r;
	}
	r = make_id(wanted, err);
	if (r < 0)
		return r;
	return make_export(wanted, &secrets, err);
}

/* The record as requested, without what an earlier round of the session added to it. */
static int snapshot_request_describe(struct snapshot_request *wanted, const char *source_id,
				     struct error *err)
{
	const struct snapshot_info info = {
		.name = wanted->name,
		.id = wanted->id_text,
		.source = source_id,
		.size = volume_of(&wanted->source.record).size,
		.file = wanted->file,
	};

	record_done(&wanted->record);
	return snapshot_describe(&wanted->record, &info, &wanted->source.record) < 0
		       ? error_oom(err)
		       : 0;
}

/* -------- the contents -------- */

static int pack_tree(struct snapshot_request *wanted, struct copy_job *job,
		     const struct nfs_handle *work, const char *name, struct error *err)
{
	struct tree_archive_sum sum = { 0 };
	int r = tree_pack(&job->work, &job->tree, &job->attr, work, name, wanted->file,
			  wanted->params.compression, &sum, err);

	if (r == 0 && snapshot_set_archive(&wanted->record, wanted->file, &sum) < 0)
		return error_oom(err);
	return r;
}

static int clone_tree(struct snapshot_request *wanted, struct copy_job *job,
		      const struct nfs_handle *work, const char *name, struct error *err)
{
	int r = tree_copy_to_folder(&job->work, &job->tree, &job->attr, work, name, wanted->file,
				    wanted->driver->verify_clones, err);

	if (r == 0 && snapshot_set_tree(&wanted->record, wanted->file) < 0)
		return error_oom(err);
	return r;
}

static int snapshot_request_copy(struct snapshot_request *wanted, struct nfs_client *from,
				 struct nfs_client *to, const char *name, struct error *err)
{
	struct claim *const claims[] = { wanted->use, wanted->make };
	const struct nfs_handle *work;
	const enum copy_kind kind = snapshot_request_is_of_tree(wanted) ? COPY_CLONE : COPY_ARCHIVE;
	struct copy_job job;
	int r;

	nfs_pool_spare(wanted->driver->pool, from); /* the call has "to" as well */
	copy_job_open(&job, wanted->driver, wanted->name, from, to, claims);
	r = copy_job_find_volume(&job, kind, &wanted->source, err);
	if (r == 0) {
		do {
			r = copy_job_begin(&job, name, &work, err);
			if (r == 0)
				r = snapshot_request_is_of_tree(wanted)
					    ? clone_tree(wanted, &job, work, name, err)
					    : pack_tree(wanted, &job, work, name, err);
		} while (copy_job_is_to_be_retried(&job, r, err));
	}
	return copy_job_close(&job, r, err);
}

static int snapshot_request_fill(struct nfs_client *c, const char *name, void *data,
				 struct error *err)
{
	struct snapshot_request *wanted = data;
	struct session s;
	int r = copy_turn_take(wanted->turn, err);

	if (r < 0)
		return r;
	volume_ref_begin(&s, wanted->driver, &wanted->source, err);
	while (volume_ref_next(&wanted->source, &s))
		s.result = snapshot_request_copy(wanted, s.client, c, name, err);
	session_check_share(&s);
	return s.result;
}

/* The job reads the archive, so its first client is the one of the snapshot's share. */
static int check_on_share(struct snapshot_request *wanted, struct nfs_client *share,
			  struct nfs_client *volume, struct error *err)
{
	struct claim *const claims[] = { wanted->make, wanted->use };
	const struct record none = { .n = 0 };
	struct snapshot_contents archive;
	struct copy_job job;
	int r;

	nfs_pool_spare(wanted->driver->pool, volume); /* the call has "share" as well */
	copy_job_open(&job, wanted->driver, wanted->name, share, volume, claims);
	r = copy_job_lease_for_archive(&job, COPY_CHECK, wanted->id.subdir, err);
	/* The job's clients may speak another version of NFS, with other handles: look again. */
	if (r == 0)
		r = snapshot_find_contents(job.work.from, &wanted->id, &none, &archive, err);
	if (r == 0)
		r = tree_archive_check(&job.work, &archive.handle, archive.attr.size, err);
	else if (r == -ENOENT)
		r = error_set(err, ERROR_ABORTED, "the snapshot is being changed; try again");
	return copy_job_close(&job, r, err);
}

static int snapshot_request_check(struct nfs_client *c, void *data, struct error *err)
{
	struct snapshot_request *wanted = data;
	struct session s;
	int r = copy_turn_take(wanted->turn, err);

	if (r < 0)
		return r;
	volume_ref_begin(&s, wanted->driver, &wanted->source, err);
	while (volume_ref_next(&wanted->source, &s))
		s.result = check_on_share(wanted, c, s.client, err);
	session_check_share(&s);
	return s.result;
}

/* -------- the call -------- */

/*
 * Find the source and what reads it. If it is missing or refused, keep the error in wanted->missing
 * and return 0.
 */
static int find_source(struct snapshot_request *wanted, struct error *err)
{
	int r = volume_ref_read(&wanted->source, wanted->driver, err);

	if (r == 0)
		r = volume_ref_check(&wanted->source, wanted->driver, err);
	if (r == 0 && !snapshot_request_is_of_tree(wanted))
		r = tree_archive_prepare(err);
	if (r < 0)
		volume_ref_check_final(&wanted->source, wanted->driver, err);
	if (r < 0 && volume_source_is_refused(err)) {
		wanted->missing = *err;
		error_clear(err);
		return 0;
	}
	return r;
}

static int create_snapshot(struct snapshot_request *wanted,
			   const Csi__V1__CreateSnapshotRequest *in, struct error *err)
{
	cleanup_key_lock struct key_lock *lock = NULL;
	cleanup_dir_lock struct dir_lock *source = NULL;
	cleanup_dir_lock struct dir_lock *place = NULL;
	cleanup_claim struct claim *use = NULL;
	cleanup_claim struct claim *make = NULL;
	struct trash trash = { .is_used = false };
	bool had_record = false;
	const struct snapshot_filler filler = {
		.fill = snapshot_request_fill,
		.check = snapshot_request_check,
		.data = wanted,
		.missing = &wanted->missing,
		.ret_trashed = &trash.is_used,
		.had_record = &had_record,
	};
	struct volume_owner owner;
	const char *dir = NULL;
	struct session s;
	int r;

	r = csi_driver_lock(wanted->driver, "snapshot", &wanted->export, wanted->id.subdir, &lock,
			    err);
	if (r < 0)
		return r;
	r = find_source(wanted, err);
	if (r < 0)
		return r;
	dir = volume_ref_directory(&wanted->source);
	r = dir_lock_take(wanted->driver->dir_locks, wanted->source.export.server,
			  wanted->source.export.share, dir, false, &source, err);
	if (r < 0)
		return r;
	r = dir_lock_take(wanted->driver->dir_locks, wanted->export.server, wanted->export.share,
			  wanted->id.subdir, false, &place, err);
	if (r < 0)
		return r;
	owner = volume_of(&wanted->source.record).owner;
	/* Tell other replicas which directory is archived and which one is made. */
	if (wanted->missing.code == ERROR_OK) {
		r = claim_take(&use, wanted->driver, &wanted->source.export, &owner, BUSY_USE, dir,
			       err);
		if (r < 0)
			return r;
		r = volume_ref_read_again(&wanted->source, wanted->driver, err);
		if (r < 0)
			return r;
	}
	/* Without the volume, too: see create_volume(). */
	r = claim_take(&make, wanted->driver, &wanted->export, &owner, BUSY_MAKE, wanted->id.subdir,
		       err);
	if (r < 0)
		return r;
	wanted->use = use;
	wanted->make = make;
	session_begin_as(&s, wanted->driver, &wanted->export, &owner, err);
	while (session_next(&s)) {
		trash_init(&trash, &wanted->export, s.client);
		s.result = snapshot_request_describe(wanted, in->source_volume_id, err);
		if (s.result == 0)
			s.result = snapshot_create(s.client, &wanted->id, &wanted->record, &filler,
						   err);
	}
	trash_purge(&trash, wanted->driver);
	return s.result;
}

CONTROLLER_METHOD(create_snapshot, CreateSnapshot)
{
	cleanup_snapshot_request struct snapshot_request wanted = { .name = in->name };
	cleanup_copy_turn struct copy_turn turn = { .is_taken = false }; /* borrows from it */
	Csi__V1__CreateSnapshotResponse out = CSI__V1__CREATE_SNAPSHOT_RESPONSE__INIT;
	struct snapshot_message message;
	struct volume_owner owner;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->name);
	wanted.driver = csi_driver_of(service);
	wanted.turn = &turn;
	if (snapshot_request_init(&wanted, in, &req->err) < 0 ||
	    copy_turn_begin(&turn, wanted.driver, &wanted.source.export, &wanted.export, req,
			    &req->err) < 0) {
		closure(NULL, data);
		return;
	}
	r = create_snapshot(&wanted, in, &req->err);
	if (r == 0 && snapshot_set_address(&wanted.record, &wanted.id) < 0) {
		(void)error_oom(&req->err);
		closure(NULL, data);
		return;
	}
	if (r < 0) {
		owner = volume_of(&wanted.source.record).owner;
		session_check_final(wanted.driver, &wanted.export, &owner, STORE_SNAPSHOTS,
				    wanted.id.subdir, &req->err);
		closure(NULL, data);
		return;
	}
	snapshot_message_init(&message, &wanted.record);
	out.snapshot = &message.snapshot;
	closure(&out, data);
}
