/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/volume_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "csi/copy_job.h"
#include "csi/validate.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/volume.h"
#include "tree/archive.h"
#include "tree/copy.h"

/* -------- the request -------- */

static int set_text(struct volume_source *source, const char *kind, const char *id,
		    struct error *err)
{
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, "%s%s", kind, id) < 0)
		return error_oom(err);
	source->text = buf_steal(&b);
	return source->text != NULL ? 0 : error_oom(err);
}

/*
 * The mount options of the request are meant for the new volume's server. Use them for the source's
 * server only if no earlier call has reached that.
 */
static int apply_options_to_source(struct nfs_export *e, const struct csi_map *secrets,
				   struct error *err)
{
	if (nfs_export_has_options(e))
		return 0;
	return nfs_export_apply_options(e, csi_map_get(secrets, SECRET_MOUNT_OPTIONS), err);
}

static int init_volume(struct volume_source *source, const char *id, const struct csi_map *secrets,
		       struct error *err)
{
	const struct csi_map none = csi_map_of_entries(NULL, 0);
	struct volume_ref *ref = &source->volume;
	int r;

	source->kind = VOLUME_SOURCE_IS_VOLUME;
	source->id = id;
	r = validate_required(id, "volume_content_source.volume.volume_id", err);
	if (r < 0)
		return r;
	r = set_text(source, VOLUME_SOURCE_VOLUME, id, err);
	if (r < 0)
		return r;
	r = volume_ref_find(ref, source->driver, id, &none, err);
	return r < 0 ? r : apply_options_to_source(&ref->export, secrets, err);
}

static int read_volume(struct volume_source *source, struct error *err)
{
	const struct csi_driver *driver = source->driver;
	struct volume_ref *ref = &source->volume;
	struct volume_owner owner;
	const char *dir;
	int r;

	r = volume_ref_read(ref, driver, err);
	if (r < 0)
		return r;
	dir = volume_ref_directory(ref);
	owner = volume_of(&ref->record).owner;
	r = dir_lock_take(driver->dir_locks, ref->export.server, ref->export.share, dir, false,
			  &source->dir_lock, err);
	if (r < 0)
		return r;
	r = claim_take(&source->use, driver, &ref->export, &owner, BUSY_USE, dir, err);
	if (r < 0)
		return r;
	r = volume_ref_read_again(ref, driver, err);
	if (r < 0)
		return r;
	source->size = volume_of(&ref->record).size;
	return volume_ref_check(ref, driver, err);
}

static int init_snapshot(struct volume_source *source, const char *id,
			 const struct csi_map *secrets, struct error *err)
{
	const struct csi_map none = csi_map_of_entries(NULL, 0);
	struct snapshot_ref *ref = &source->snapshot;
	int r;

	source->kind = VOLUME_SOURCE_IS_SNAPSHOT;
	source->id = id;
	r = validate_required(id, "volume_content_source.snapshot.snapshot_id", err);
	if (r < 0)
		return r;
	r = set_text(source, VOLUME_SOURCE_SNAPSHOT, id, err);
	if (r < 0)
		return r;
	r = snapshot_ref_init(ref, source->driver, id, &none, err);
	if (r == -EINVAL)
		return error_set(err, ERROR_NOT_FOUND, "snapshot '%.128s' does not exist", id);
	return r < 0 ? r : apply_options_to_source(&ref->export, secrets, err);
}

static int read_snapshot(struct volume_source *source, struct error *err)
{
	const struct csi_driver *driver = source->driver;
	struct snapshot_ref *ref = &source->snapshot;
	int r;

	r = dir_lock_take(driver->dir_locks, ref->export.server, ref->export.share,
			  ref->snapshot.id.subdir, false, &source->dir_lock, err);
	if (r < 0)
		return r;
	r = snapshot_ref_read(ref, driver, err);
	if (r < 0)
		return r;
	if (snapshot_is_ready(&ref->snapshot)) {
		/* A deletion may have come before the note, so read the snapshot again. */
		r = claim_take(&source->use, driver, &ref->export, &ref->snapshot.owner, BUSY_USE,
			       ref->snapshot.id.subdir, err);
		if (r < 0)
			return r;
		r = snapshot_ref_read(ref, driver, err);
		if (r < 0)
			return r;
	}
	source->size = snapshot_info_of(&ref->snapshot.record).size;
	if (!snapshot_is_ready(&ref->snapshot))
		return error_set(err, ERROR_NOT_FOUND, "snapshot '%.128s' does not exist",
				 source->id);
	return snapshot_is_recorded_tree(&ref->snapshot.record) ? 0 : tree_archive_prepare(err);
}

static int init_any(struct volume_source *source, const Csi__V1__CreateVolumeRequest *in,
		    struct error *err)
{
	const Csi__V1__VolumeContentSource *from = in->volume_content_source;
	const struct csi_map secrets = csi_map_of(in, secrets);

	switch (from->type_case) {
	case CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_VOLUME:
		return init_volume(source, from->volume->volume_id, &secrets, err);
	case CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT:
		return init_snapshot(source, from->snapshot->snapshot_id, &secrets, err);
	default:
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "volume_content_source: must be a volume or a snapshot");
	}
}

/* The request is valid, so an error that is final counts only until the volume exists. */
static int keep_refusal(struct volume_source *source, int r, struct error *err)
{
	if (r == 0 || !volume_source_is_refused(err) || source->text == NULL)
		return r;
	source->missing = *err;
	error_clear(err);
	return 0;
}

int volume_source_init(struct volume_source *source, const struct csi_driver *driver,
		       struct copy_turn *turn, const Csi__V1__CreateVolumeRequest *in,
		       struct error *err)
{
	*source = (struct volume_source){ .driver = driver, .turn = turn, .what = in->name };
	if (in->volume_content_source == NULL)
		return 0;
	return keep_refusal(source, init_any(source, in, err), err);
}

const struct nfs_export *volume_source_export(const struct volume_source *source)
{
	if (source->kind == VOLUME_SOURCE_NONE || source->missing.code != ERROR_OK)
		return NULL;
	return source->kind == VOLUME_SOURCE_IS_VOLUME ? &source->volume.export
						       : &source->snapshot.export;
}

int volume_source_read(struct volume_source *source, struct error *err)
{
	int r;

	if (volume_source_export(source) == NULL)
		return 0;
	r = source->kind == VOLUME_SOURCE_IS_VOLUME ? read_volume(source, err)
						    : read_snapshot(source, err);
	if (r < 0 && source->kind == VOLUME_SOURCE_IS_VOLUME)
		volume_ref_check_final(&source->volume, source->driver, err);
	return keep_refusal(source, r, err);
}

void volume_source_done(struct volume_source *source)
{
	claim_drop(source->use);
	dir_lock_drop(source->dir_lock);
	volume_ref_done(&source->volume);
	snapshot_ref_done(&source->snapshot);
	free(source->tree);
	free(source->text);
}

/* -------- copying -------- */

/* Copy the tree that the job has found. */
static int copy_tree(struct copy_job *job, struct volume_source *source, const char *name,
		     struct error *err)
{
	const struct nfs_handle *work;
	int r;

	do {
		r = copy_job_begin(job, name, &work, err);
		if (r == 0)
			r = tree_copy(&job->work, &job->tree, &job->attr, work, name,
				      source->driver->verify_clones, err);
	} while (copy_job_is_to_be_retried(job, r, err));
	return r;
}

static int clone_volume(struct copy_job *job, struct volume_source *source, const char *name,
			struct error *err)
{
	int r = copy_job_find_volume(job, COPY_CLONE, &source->volume, err);

	return r < 0 ? r : copy_tree(job, source, name, err);
}

/* Say which file is damaged and what to do about it. */
static void explain_damage(const struct nfs_client *c, const struct volume_id *id,
			   const struct snapshot_contents *archive, bool has_sum, struct error *err)
{
	static const char on_purpose[] =
		", or, if it was replaced on purpose, remove its record from " NFS_STATE_DIR
		"/snapshots";
	const struct error why = *err;

	error_clear(err);
	(void)error_set(err, why.code, "'%s/%s' on %s:%s: %s; put a good copy there%s", id->subdir,
			archive->name, c->export.server, c->export.share, why.msg,
			has_sum ? on_purpose : "");
}

static int restore_tree(struct copy_job *job, struct volume_source *source, const char *tree,
			const char *name, struct error *err)
{
	cleanup_buf struct buf path = { 0 };
	int r;

	if (buf_printf(&path, "%s/%s", source->snapshot.snapshot.id.subdir, tree) < 0)
		return error_oom(err);
	free(source->tree); /* of an earlier round */
	source->tree = buf_steal(&path);
	if (source->tree == NULL)
		return error_oom(err);
	r = copy_job_find_tree(job, COPY_CLONE, source->tree, err);
	return r < 0 ? r : copy_tree(job, source, name, err);
}

static int find_contents(struct nfs_client *c, const struct volume_source *source,
			 struct snapshot_contents *ret, struct error *err)
{
	const struct snapshot *snapshot = &source->snapshot.snapshot;
	int r = snapshot_find_contents(c, &snapshot->id, &snapshot->record, ret, err);

	if (r == -ENOENT)
		return error_set(err, ERROR_NOT_FOUND, "the contents of snapshot '%s' are gone",
				 snapshot->id.subdir);
	return r;
}

static int restore_archive(struct copy_job *job, struct volume_source *source, const char *name,
			   struct error *err)
{
	const struct snapshot *snapshot = &source->snapshot.snapshot;
	const struct snapshot_info info = snapshot_info_of(&snapshot->record);
	struct snapshot_contents archive;
	const struct tree_archive_sum *sum;
	const struct nfs_handle *work;
	int r;

	r = copy_job_lease_for_archive(job, COPY_RESTORE, snapshot->id.subdir, err);
	if (r < 0)
		return r;
	/* The job's clients may speak another version of NFS, with other handles: look again. */
	r = find_contents(job->work.from, source, &archive, err);
	if (r < 0)
		return r;
	if (archive.is_tree)
		return error_set(err, ERROR_ABORTED,
				 "the contents of snapshot '%s' were replaced; try again",
				 snapshot->id.subdir);
	r = copy_job_begin(job, name, &work, err);
	if (r < 0)
		return r;
	sum = snapshot_recorded_sum(&info, &archive);
	r = tree_unpack(&job->work, &archive.handle, archive.attr.size, sum, work, name, err);
	if (r < 0 && err->code == ERROR_DATA_LOSS)
		explain_damage(job->work.from, &snapshot->id, &archive, sum != NULL, err);
	return r;
}

/*
 * Go by what is on the share, not by the record: an administrator may have put an archive in the
 * place of a tree.
 */
static int restore_snapshot(struct copy_job *job, struct volume_source *source, const char *name,
			    struct error *err)
{
	struct snapshot_contents contents;
	int r = find_contents(job->idle[0], source, &contents, err);

	if (r < 0)
		return r;
	return contents.is_tree ? restore_tree(job, source, contents.name, name, err)
				: restore_archive(job, source, name, err);
}

static int run_copy_job(struct volume_source *source, struct nfs_client *from,
			struct nfs_client *to, const char *name, struct error *err)
{
	struct claim *const claims[] = { source->use, source->make };
	struct copy_job job;
	int r;

	nfs_pool_spare(source->driver->pool, from); /* the call has "to" as well */
	copy_job_open(&job, source->driver, source->what, from, to, claims);
	r = source->kind == VOLUME_SOURCE_IS_VOLUME ? clone_volume(&job, source, name, err)
						    : restore_snapshot(&job, source, name, err);
	return copy_job_close(&job, r, err);
}

static int fill_from_volume(struct volume_source *source, struct nfs_client *c, const char *name,
			    struct error *err)
{
	struct session s;

	volume_ref_begin(&s, source->driver, &source->volume, err);
	while (volume_ref_next(&source->volume, &s))
		s.result = run_copy_job(source, s.client, c, name, err);
	session_check_share(&s);
	return s.result;
}

static int fill_from_snapshot(struct volume_source *source, struct nfs_client *c, const char *name,
			      struct error *err)
{
	struct snapshot_ref *ref = &source->snapshot;
	struct session s;

	session_begin_as(&s, source->driver, &ref->export, &ref->snapshot.owner, err);
	while (session_next(&s))
		s.result = run_copy_job(source, s.client, c, name, err);
	session_check_share(&s);
	return s.result;
}

/*
 * If the source is on the new volume's share, and the new volume's options allow a newer minor
 * version, read the source over that. The source's options are those of the last call, which may
 * have asked for a version without extended attributes: the copy would lose them silently.
 */
static void raise_minor(struct nfs_export *e, const struct nfs_export *target)
{
	if (strcmp(e->server, target->server) != 0 || strcmp(e->share, target->share) != 0 ||
	    e->version != 4 || target->version != 4 || !e->has_minor)
		return;
	if (target->has_minor && target->minor <= e->minor)
		return;
	e->has_minor = target->has_minor;
	e->minor = target->minor;
}

int volume_source_fill(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	struct volume_source *source = data;
	int r;

	if (source->missing.code != ERROR_OK)
		return error_set(err, source->missing.code, "%s", source->missing.msg);
	raise_minor(source->kind == VOLUME_SOURCE_IS_VOLUME ? &source->volume.export
							    : &source->snapshot.export,
		    &c->export);
	r = copy_turn_take(source->turn, err);
	if (r < 0)
		return r;
	return source->kind == VOLUME_SOURCE_IS_VOLUME ? fill_from_volume(source, c, name, err)
						       : fill_from_snapshot(source, c, name, err);
}
