/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/snapshot_ref.h"

#include <errno.h>

#include "base/clock.h"
#include "store/volume.h"

int snapshot_ref_init(struct snapshot_ref *ref, const struct csi_driver *driver, const char *id,
		      const struct csi_map *secrets, struct error *err)
{
	int r;

	*ref = (struct snapshot_ref){ .export = { .server = NULL } };
	r = snapshot_init(&ref->snapshot, id, err);
	if (r < 0)
		return r;
	return csi_driver_export(driver, &ref->export, ref->snapshot.id.server,
				 ref->snapshot.id.share, secrets, err);
}

int snapshot_ref_read(struct snapshot_ref *ref, const struct csi_driver *driver, struct error *err)
{
	struct session s;

	session_begin_reader(&s, driver, &ref->export, err);
	while (session_next(&s))
		s.result = snapshot_read_record(s.client, &ref->snapshot, err);
	session_check_share(&s);
	if (s.result < 0 || ref->snapshot.is_other)
		return s.result;
	/* Only the owner may enter the snapshot's directory; without a record, it is not known. */
	if (ref->snapshot.owner.has_uid || ref->snapshot.owner.has_gid)
		session_begin_as(&s, driver, &ref->export, &ref->snapshot.owner, err);
	else
		session_begin_reader(&s, driver, &ref->export, err);
	while (session_next(&s))
		s.result = snapshot_read_contents(s.client, &ref->snapshot, err);
	session_check_share(&s);
	return s.result;
}

int snapshot_ref_find(struct snapshot_ref *ref, const struct csi_driver *driver, const char *id,
		      const struct csi_map *secrets, struct error *err)
{
	struct snapshot *s = &ref->snapshot;
	struct snapshot_info info;
	int r;

	r = snapshot_ref_init(ref, driver, id, secrets, err);
	if (r < 0)
		return r == -EINVAL ? 0 : r;
	r = snapshot_ref_read(ref, driver, err);
	if (r < 0)
		return r;
	if (!snapshot_is_ready(s))
		return 0;
	r = s->record.n == 0 ? snapshot_describe_foreign(s, id)
			     : snapshot_set_address(&s->record, &s->id);
	if (r < 0)
		return error_oom(err);
	info = snapshot_info_of(&s->record);
	return snapshot_info_is_complete(&info);
}

void snapshot_ref_done(struct snapshot_ref *ref)
{
	snapshot_done(&ref->snapshot);
	nfs_export_done(&ref->export);
}

void snapshot_message_init(struct snapshot_message *m, const struct record *rec)
{
	const struct snapshot_info info = snapshot_info_of(rec);

	google__protobuf__timestamp__init(&m->time);
	csi__v1__snapshot__init(&m->snapshot);
	m->time.seconds = (int64_t)(info.time_ns / CLOCK_NS_PER_S); /* 1970 for a damaged record */
	m->time.nanos = (int32_t)(info.time_ns % CLOCK_NS_PER_S);
	m->snapshot.creation_time = &m->time;
	m->snapshot.snapshot_id = (char *)(uintptr_t)info.id;
	m->snapshot.source_volume_id = (char *)(uintptr_t)info.source;
	m->snapshot.size_bytes = info.size;
	m->snapshot.ready_to_use = info.ready;
}
