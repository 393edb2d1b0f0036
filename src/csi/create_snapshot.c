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
struct archiving {
	const struct csi_driver *driver;
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

static bool archiving_is_of_tree(const struct archiving *a)
{
	return a->params.format == SNAPSHOT_TREE;
}

static void archiving_done(struct archiving *a)
{
	snapshot_params_done(&a->params);
	volume_ref_done(&a->source);
	nfs_export_done(&a->export);
	volume_id_done(&a->id);
	free(a->id_text);
	free(a->file);
	record_done(&a->record);
}
#define cleanup_archiving __attribute__((cleanup(archiving_done)))

/* -------- the request -------- */

/* The volume's key, as part of a file name. */
static char *source_file_name(const struct volume_id *id)
{
	const char *key = volume_id_key(id);
	char name[RECORD_NAME_MAX + 1];

	path_key(name, key, strlen(key));
	return strdup(name);
}

static int make_id(struct archiving *a, struct error *err)
{
	const char *server = a->params.server != NULL ? a->params.server : a->source.id.server;
	const char *share = a->params.share != NULL ? a->params.share : a->source.id.share;
	struct volume_id *id = &a->id;
	int r;

	id->server = net_server_without_brackets(server);
	id->share = path_trim(share);
	id->on_delete = source_file_name(&a->source.id);
	if (id->server == NULL || id->share == NULL || id->on_delete == NULL)
		return error_oom(err);
	r = volume_key(a->name, id->server, id->share, &id->subdir, err);
	if (r < 0)
		return r;
	id->uuid = strdup(id->subdir);
	a->id_text = id->uuid != NULL ? volume_id_format(id) : NULL;
	a->file = malloc(strlen(id->on_delete) + 16);
	if (a->id_text == NULL || a->file == NULL)
		return error_oom(err);
	(void)sprintf(a->file, "%s%s", id->on_delete,
		      archiving_is_of_tree(a) ? SNAPSHOT_TREE_SUFFIX
					      : tree_compression_suffix(a->params.compression));
	return 0;
}

static int make_export(struct archiving *a, const struct csi_map *secrets, struct error *err)
{
	int r;

	r = nfs_export_init(&a->export, a->id.server, a->id.share, err);
	if (r == 0)
		r = nfs_export_apply_options(&a->export, csi_map_get(secrets, SECRET_MOUNT_OPTIONS),
					     err);
	if (r == 0)
		r = nfs_export_apply_options(&a->export, a->params.mount_options, err);
	if (r == 0)
		known_exports_apply(a->driver->known, &a->export);
	return r;
}

static int archiving_init(struct archiving *a, const Csi__V1__CreateSnapshotRequest *in,
			  struct error *err)
{
	const struct csi_map parameters = csi_map_of(in, parameters);
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	r = validate_name(in->name, err);
	if (r == 0)
		r = validate_required(in->source_volume_id, "source_volume_id", err);
	if (r == 0)
		r = validate_map(&parameters, "parameters", err);
	if (r == 0)
		r = snapshot_params_parse(&a->params, &parameters, a->driver->compression, err);
	if (r == 0)
		r = volume_ref_find(&a->source, a->driver, in->source_volume_id, &secrets, err);
	/* For a class without a secret, until a call has reached the volume's server. */
	if (r == 0 && !nfs_export_has_options(&a->source.export))
		r = nfs_export_apply_options(&a->source.export, a->params.mount_options, err);
	if (r == 0)
		r = make_id(a, err);
	return r < 0 ? r : make_export(a, &secrets, err);
}

/* The record as requested, without what an earlier round of the session added to it. */
static int describe(struct archiving *a, const char *source_id, struct error *err)
{
	const struct snapshot_info info = {
		.name = a->name,
		.id = a->id_text,
		.source = source_id,
		.size = volume_of(&a->source.record).size,
		.file = a->file,
	};

	record_done(&a->record);
	return snapshot_describe(&a->record, &info, &a->source.record) < 0 ? error_oom(err) : 0;
}

/* -------- the contents -------- */

static int pack_tree(struct archiving *a, struct copy_job *job, const struct nfs_handle *work,
		     const char *name, struct error *err)
{
	struct tree_archive_sum sum = { 0 };
	int r = tree_pack(&job->work, &job->tree, &job->attr, work, name, a->file,
			  a->params.compression, &sum, err);

	if (r == 0 && snapshot_set_archive(&a->record, a->file, &sum) < 0)
		return error_oom(err);
	return r;
}

static int clone_tree(struct archiving *a, struct copy_job *job, const struct nfs_handle *work,
		      const char *name, struct error *err)
{
	int r = tree_copy_to_folder(&job->work, &job->tree, &job->attr, work, name, a->file,
				    a->driver->verify_clones, err);

	if (r == 0 && snapshot_set_tree(&a->record, a->file) < 0)
		return error_oom(err);
	return r;
}

static int copy_volume(struct archiving *a, struct nfs_client *from, struct nfs_client *to,
		       const char *name, struct error *err)
{
	struct claim *const claims[] = { a->use, a->make };
	const struct nfs_handle *work;
	const enum copy_kind kind = archiving_is_of_tree(a) ? COPY_CLONE : COPY_ARCHIVE;
	struct copy_job job;
	int r;

	r = copy_job_open(&job, a->driver, a->name, from, to, claims, err);
	if (r == 0)
		r = copy_job_find_volume(&job, kind, &a->source, err);
	if (r == 0) {
		do {
			r = copy_job_begin(&job, name, &work, err);
			if (r == 0)
				r = archiving_is_of_tree(a) ? clone_tree(a, &job, work, name, err)
							    : pack_tree(a, &job, work, name, err);
		} while (copy_job_is_to_be_retried(&job, r, err));
	}
	return copy_job_close(&job, r, err);
}

static int archiving_fill(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	struct archiving *a = data;
	struct session s;

	volume_ref_begin(&s, a->driver, &a->source, err);
	while (volume_ref_next(&a->source, &s))
		s.result = copy_volume(a, s.client, c, name, err);
	return s.result;
}

/* The job's first client is the snapshot's here, so that it reads from there. */
static int check_on_share(struct archiving *a, struct nfs_client *share, struct nfs_client *volume,
			  struct error *err)
{
	struct claim *const claims[] = { a->make, a->use };
	const struct record none = { .n = 0 };
	struct snapshot_contents archive;
	struct copy_job job;
	int r;

	r = copy_job_open(&job, a->driver, a->name, share, volume, claims, err);
	if (r == 0)
		r = copy_job_lease_for_archive(&job, COPY_CHECK, err);
	/* Handles may be others over the version of NFS that the job's clients have. */
	if (r == 0)
		r = snapshot_find_contents(job.work.from, &a->id, &none, &archive, err);
	if (r == 0)
		r = tree_archive_check(&job.work, &archive.handle, archive.attr.size, err);
	else if (r == -ENOENT)
		r = error_set(err, ERROR_ABORTED, "the snapshot is being changed; try again");
	return copy_job_close(&job, r, err);
}

static int archiving_check(struct nfs_client *c, void *data, struct error *err)
{
	struct archiving *a = data;
	struct session s;

	volume_ref_begin(&s, a->driver, &a->source, err);
	while (volume_ref_next(&a->source, &s))
		s.result = check_on_share(a, c, s.client, err);
	return s.result;
}

/* -------- the call -------- */

/*
 * Find the source and what reads it. If it is missing or refused, keep the error in a->missing and
 * return 0.
 */
static int find_source(struct archiving *a, struct error *err)
{
	int r = volume_ref_read(&a->source, a->driver, err);

	if (r == 0)
		r = volume_ref_check(&a->source, a->driver, err);
	if (r == 0 && !archiving_is_of_tree(a))
		r = tree_archive_prepare(err);
	if (r < 0 && volume_source_is_refused(err)) {
		a->missing = *err;
		error_clear(err);
		return 0;
	}
	return r;
}

static int create_snapshot(struct archiving *a, const Csi__V1__CreateSnapshotRequest *in,
			   struct error *err)
{
	cleanup_key_lock struct key_lock *lock = NULL;
	cleanup_dir_lock struct dir_lock *source = NULL;
	cleanup_dir_lock struct dir_lock *place = NULL;
	cleanup_claim struct claim *use = NULL;
	cleanup_claim struct claim *make = NULL;
	struct trash trash = { .is_used = false };
	const struct snapshot_filler filler = {
		.fill = archiving_fill,
		.check = archiving_check,
		.data = a,
		.missing = &a->missing,
		.ret_trashed = &trash.is_used,
	};
	struct volume_owner owner;
	const char *dir = NULL;
	struct session s;
	int r;

	r = csi_driver_lock(a->driver, "snapshot", &a->export, a->id.subdir, &lock, err);
	if (r == 0)
		r = find_source(a, err);
	if (r < 0)
		return r;
	dir = volume_ref_directory(&a->source);
	r = dir_lock_take(a->driver->dir_locks, a->source.export.server, a->source.export.share,
			  dir, false, &source, err);
	if (r == 0)
		r = dir_lock_take(a->driver->dir_locks, a->export.server, a->export.share,
				  a->id.subdir, false, &place, err);
	if (r < 0)
		return r;
	owner = volume_of(&a->source.record).owner;
	/* Tell other replicas which directory is archived and which one is made. */
	if (a->missing.code == ERROR_OK) {
		r = claim_take(&use, a->driver, &a->source.export, &owner, BUSY_USE, dir, err);
		if (r == 0)
			r = claim_take(&make, a->driver, &a->export, &owner, BUSY_MAKE,
				       a->id.subdir, err);
		if (r < 0)
			return r;
	}
	a->use = use;
	a->make = make;
	session_begin_as(&s, a->driver, &a->export, &owner, err);
	while (session_next(&s)) {
		trash_init(&trash, &a->export, s.client);
		s.result = describe(a, in->source_volume_id, err);
		if (s.result == 0)
			s.result = snapshot_create(s.client, &a->id, &a->record, &filler, err);
	}
	trash_purge(&trash, a->driver);
	return s.result;
}

CONTROLLER_METHOD(create_snapshot, CreateSnapshot)
{
	cleanup_archiving struct archiving a = { .driver = csi_driver_of(service),
						 .name = in->name };
	Csi__V1__CreateSnapshotResponse out = CSI__V1__CREATE_SNAPSHOT_RESPONSE__INIT;
	struct snapshot_message message;
	struct volume_owner owner;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->name);
	r = archiving_init(&a, in, &req->err);
	if (r == 0) {
		r = create_snapshot(&a, in, &req->err);
		owner = volume_of(&a.source.record).owner;
		if (r < 0)
			session_check_final(a.driver, &a.export, &owner, STORE_SNAPSHOTS,
					    a.id.subdir, &req->err);
	}
	if (r < 0) {
		closure(NULL, data);
		return;
	}
	snapshot_message_init(&message, &a.record);
	out.snapshot = &message.snapshot;
	closure(&out, data);
}
