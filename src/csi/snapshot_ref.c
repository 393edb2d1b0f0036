/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/snapshot_ref.h"

#include <errno.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "store/staging.h"
#include "store/volume.h"

int snapshot_ref_init(struct snapshot_ref *ref, const struct csi_driver *driver, const char *id,
		      const struct csi_map *secrets, struct error *err)
{
	int r;

	*ref = (struct snapshot_ref){ .export = { .server = NULL } };
	r = snapshot_init(&ref->snapshot, id, err);
	if (r < 0)
		return r;
	r = nfs_export_init(&ref->export, ref->snapshot.id.server, ref->snapshot.id.share, err);
	if (r < 0)
		return r;
	r = nfs_export_apply_options(&ref->export, csi_map_get(secrets, SECRET_MOUNT_OPTIONS), err);
	if (r == -EINVAL)
		return -EBADMSG; /* the secret is wrong, not the id */
	if (r < 0)
		return r;
	known_exports_apply(driver->known, &ref->export);
	return 0;
}

int snapshot_ref_read(struct snapshot_ref *ref, const struct csi_driver *driver, struct error *err)
{
	struct session s;

	session_begin_reader(&s, driver, &ref->export, err);
	while (session_next(&s))
		s.result = snapshot_read(s.client, &ref->snapshot, err);
	return s.result;
}

bool snapshot_record_is_complete(const struct record *rec)
{
	return record_get(rec, SNAPSHOT_KEY_ID) != NULL &&
	       record_get(rec, SNAPSHOT_KEY_SOURCE) != NULL && staging_is_ready(rec);
}

/*
 * A snapshot that csi-driver-nfs made: its id tells the key of the volume, and its archive the
 * time.
 */
static int describe_foreign(struct snapshot *s, const char *id, struct error *err)
{
	cleanup_buf struct buf source = { 0 }, time = { 0 };

	if (buf_printf(&source, "%s#%s#%s##", s->id.server, s->id.share, s->id.on_delete) < 0 ||
	    buf_printf(&time, "%lld%09u", (long long)s->time.sec, s->time.nsec) < 0 ||
	    record_set(&s->record, SNAPSHOT_KEY_ID, id) < 0 ||
	    record_set(&s->record, SNAPSHOT_KEY_SOURCE, source.data) < 0 ||
	    record_set(&s->record, SNAPSHOT_KEY_TIME, time.data) < 0 ||
	    record_set(&s->record, STAGING_KEY_READY, "1") < 0)
		return error_oom(err);
	return 0;
}

int snapshot_ref_find(struct snapshot_ref *ref, const struct csi_driver *driver, const char *id,
		      const struct csi_map *secrets, struct error *err)
{
	struct snapshot *s = &ref->snapshot;
	int r;

	r = snapshot_ref_init(ref, driver, id, secrets, err);
	if (r < 0)
		return r == -EINVAL ? 0 : r;
	r = snapshot_ref_read(ref, driver, err);
	if (r < 0)
		return r;
	if (!snapshot_is_ready(s))
		return 0;
	if (s->record.n == 0) {
		r = describe_foreign(s, id, err);
		if (r < 0)
			return r;
	}
	return snapshot_record_is_complete(&s->record);
}

void snapshot_ref_done(struct snapshot_ref *ref)
{
	snapshot_done(&ref->snapshot);
	nfs_export_done(&ref->export);
}

void snapshot_message_init(struct snapshot_message *m, const struct record *rec)
{
	const char *time = record_get(rec, SNAPSHOT_KEY_TIME);
	uint64_t ns = 0;

	google__protobuf__timestamp__init(&m->time);
	csi__v1__snapshot__init(&m->snapshot);
	if (time != NULL)
		(void)str_parse_u64(time, 10, INT64_MAX, &ns); /* a damaged record says 1970 */
	m->time.seconds = (int64_t)(ns / CLOCK_NS_PER_S);
	m->time.nanos = (int32_t)(ns % CLOCK_NS_PER_S);
	m->snapshot.creation_time = &m->time;
	m->snapshot.snapshot_id = (char *)(uintptr_t)record_get(rec, SNAPSHOT_KEY_ID);
	m->snapshot.source_volume_id = (char *)(uintptr_t)record_get(rec, SNAPSHOT_KEY_SOURCE);
	m->snapshot.size_bytes = volume_size(rec); /* the key is the same */
	m->snapshot.ready_to_use = staging_is_ready(rec);
}
