/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/volume_source.h"

#include <errno.h>
#include <stdio.h>
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

/* -------- finding the source -------- */

static int set_text(struct content *x, const char *kind, const char *id, struct error *err)
{
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, "%s%s", kind, id) < 0)
		return error_oom(err);
	x->text = buf_steal(&b);
	return x->text != NULL ? 0 : error_oom(err);
}

/*
 * The mount options of the call are those of the new volume's server. How the source's was reached before
 * is known better; they speak for it where it was not.
 */
static int reach_as_asked(struct nfs_export *e, const struct csi_map *secrets, struct error *err)
{
	if (nfs_export_has_options(e))
		return 0;
	return nfs_export_apply_options(e, csi_map_get(secrets, SECRET_MOUNT_OPTIONS), err);
}

static int init_volume(struct content *x, const char *id, const struct csi_map *secrets,
		       struct error *err)
{
	const struct csi_map none = csi_map_of_entries(NULL, 0);
	struct reference *ref = &x->volume;
	struct volume_owner owner;
	const char *dir;
	int r;

	x->kind = CONTENT_VOLUME;
	r = validate_required(id, "volume_content_source.volume.volume_id", err);
	if (r == 0)
		r = set_text(x, VOLUME_SOURCE_VOLUME, id, err);
	if (r == 0)
		r = reference_find(ref, x->driver, id, &none, err);
	if (r == 0)
		r = reach_as_asked(&ref->export, secrets, err);
	if (r == 0)
		r = reference_read(ref, x->driver, err);
	if (r < 0)
		return r;
	x->size = volume_size(&ref->record);
	dir = record_get(&ref->record, VOLUME_KEY_DIR);
	if (dir == NULL)
		dir = ref->id.subdir;
	owner = volume_owner_of(&ref->record);
	r = usage_acquire(x->driver->usage, &ref->export, dir, false, &x->usage, err);
	if (r == 0)
		r = claim_take(&x->use, x->driver, &ref->export, &owner, BUSY_USE, dir, err);
	return r < 0 ? r : csi_with_volume(x->driver, ref, csi_find_volume_work, NULL, err);
}

static int init_snapshot(struct content *x, const char *id, const struct csi_map *secrets,
			 struct error *err)
{
	const struct csi_map none = csi_map_of_entries(NULL, 0);
	struct snapshot *s = &x->snapshot;
	struct volume_owner owner;
	int r;

	x->kind = CONTENT_SNAPSHOT;
	r = validate_required(id, "volume_content_source.snapshot.snapshot_id", err);
	if (r == 0)
		r = set_text(x, VOLUME_SOURCE_SNAPSHOT, id, err);
	if (r < 0)
		return r;
	r = snapshot_init(s, x->driver, id, &none, err);
	if (r == -EINVAL)
		return error_set(err, ERROR_NOT_FOUND, "snapshot '%.128s' does not exist", id);
	if (r == 0)
		r = reach_as_asked(&s->export, secrets, err);
	if (r == 0)
		r = usage_acquire(x->driver->usage, &s->export, s->id.subdir, false, &x->usage, err);
	if (r == 0)
		r = snapshot_read(s, x->driver, err);
	if (r < 0)
		return r;
	if (snapshot_is_ready(s)) {
		/* In this order: before the note it may go. */
		owner = volume_owner_of(&s->record);
		r = claim_take(&x->use, x->driver, &s->export, &owner, BUSY_USE, s->id.subdir, err);
		if (r == 0)
			r = snapshot_read(s, x->driver, err);
		if (r < 0)
			return r;
	}
	x->size = snapshot_size(s);
	if (!snapshot_is_ready(s))
		return error_set(err, ERROR_NOT_FOUND, "snapshot '%.128s' does not exist", id);
	return 0;
}

static int find(struct content *x, const Csi__V1__CreateVolumeRequest *in, struct error *err)
{
	const Csi__V1__VolumeContentSource *source = in->volume_content_source;
	const struct csi_map secrets = csi_map_of(in, secrets);

	switch (source->type_case) {
	case CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_VOLUME:
		return init_volume(x, source->volume->volume_id, &secrets, err);
	case CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT:
		return init_snapshot(x, source->snapshot->snapshot_id, &secrets, err);
	default:
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "volume_content_source: must be a volume or a snapshot");
	}
}

int content_init(struct content *x, const struct csi_driver *driver,
		 const Csi__V1__CreateVolumeRequest *in, struct error *err)
{
	int r;

	*x = (struct content){ .driver = driver, .what = in->name };
	if (in->volume_content_source == NULL)
		return 0;
	r = find(x, in, err);
	if (r < 0 && err->code == ERROR_NOT_FOUND && x->text != NULL) {
		x->missing = *err;
		error_clear(err);
		return 0;
	}
	return r;
}

void content_done(struct content *x)
{
	claim_drop(x->use);
	usage_release(x->usage);
	reference_done(&x->volume);
	snapshot_done(&x->snapshot);
	free(x->text);
}

/* -------- copying -------- */

static int copy_volume(struct transfer *t, struct reference *ref, struct content *x, struct error *err)
{
	const struct nfs_handle *work;
	struct nfs_client *from = t->work.from;
	struct directory_place place;
	struct nfs_handle handle, made;
	struct nfs_attr attr;
	const char *dir;
	int r;

	r = volume_directory(from, &ref->id, &ref->record, &dir, err);
	if (r < 0)
		return r;
	r = directory_locate(from, dir, &place, err);
	if (r == 0)
		r = nfs_lookup(from, &place.parent, place.base, &handle, &attr);
	if (r == 0)
		r = nfs_stat(from, &handle, &attr);
	if (r < 0)
		return nfs_error_set(err, from, r, "volume directory '%s'", dir);
	do {
		transfer_set_tree(t, &handle, &attr);
		r = transfer_begin(t, x->name, &work, err);
		if (r == 0)
			r = tree_copy(&t->work, &handle, &attr, work, x->name,
				      x->driver->verify_clones, &made, err);
	} while (transfer_is_to_be_retried(t, r, err));
	return r < 0 ? r : transfer_check_source(t, dir, &handle, err);
}

static int restore(struct transfer *t, struct content *x, struct error *err)
{
	const struct nfs_handle *work;
	struct nfs_handle handle, made;
	struct nfs_attr attr;
	int r;

	r = snapshot_find_archive(t->work.from, &x->snapshot.id, &handle, &attr, err);
	if (r == -ENOENT)
		return error_set(err, ERROR_NOT_FOUND, "the archive of snapshot '%s' is gone",
				 x->snapshot.id.subdir);
	if (r == 0)
		r = transfer_begin(t, x->name, &work, err);
	if (r < 0)
		return r;
	return tree_unpack(&t->work, &handle, attr.size, work, x->name, &made, err);
}

static int transfer(struct content *x, struct nfs_client *from, struct error *err)
{
	struct transfer t;
	int r;

	r = transfer_open(&t, x->driver, x->what, from, x->to, err);
	transfer_set_claims(&t, x->use, x->make);
	if (r == 0)
		r = x->kind == CONTENT_VOLUME ? copy_volume(&t, &x->volume, x, err)
					      : restore(&t, x, err);
	if (r == 0)
		r = transfer_renew_claims(&t, err);
	transfer_close(&t, r);
	return r;
}

static int from_volume(struct nfs_client *c, struct reference *ref, void *data, struct error *err)
{
	(void)ref;
	return transfer(data, c, err);
}

static int from_snapshot(struct nfs_client *c, void *data, struct error *err)
{
	return transfer(data, c, err);
}

int content_fill(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	struct content *x = data;

	if (x->missing.code != ERROR_OK)
		return error_set(err, x->missing.code, "%s", x->missing.msg);
	x->to = c;
	x->name = name;
	if (x->kind == CONTENT_VOLUME)
		return csi_with_volume(x->driver, &x->volume, from_volume, x, err);
	return csi_with_reader(x->driver, &x->snapshot.export, from_snapshot, x, err);
}

/* -------- in replies -------- */

Csi__V1__VolumeContentSource *content_message_of(struct content_message *m, const struct record *rec)
{
	const char *text = record_get(rec, VOLUME_KEY_SOURCE);

	if (text == NULL)
		return NULL;
	csi__v1__volume_content_source__init(&m->source);
	if (str_has_prefix(text, VOLUME_SOURCE_VOLUME)) {
		csi__v1__volume_content_source__volume_source__init(&m->volume);
		m->volume.volume_id = (char *)(uintptr_t)(text + strlen(VOLUME_SOURCE_VOLUME));
		m->source.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_VOLUME;
		m->source.volume = &m->volume;
		return &m->source;
	}
	if (!str_has_prefix(text, VOLUME_SOURCE_SNAPSHOT))
		return NULL;
	csi__v1__volume_content_source__snapshot_source__init(&m->snapshot);
	m->snapshot.snapshot_id = (char *)(uintptr_t)(text + strlen(VOLUME_SOURCE_SNAPSHOT));
	m->source.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT;
	m->source.snapshot = &m->snapshot;
	return &m->source;
}
