/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* ListSnapshots. A request with a snapshot's id also finds a snapshot that has no record. */

#include <stdlib.h>
#include <string.h>

#include "csi/controller.h"
#include "csi/listing.h"
#include "csi/snapshot_ref.h"

#define ENTRY_BYTES 64 /* numbers, times and framing of one entry */

/* data: the id of the volume whose snapshots are listed; NULL: of all volumes. */
static bool snapshot_accepts(const struct record *rec, const void *data)
{
	const struct snapshot_info info = snapshot_info_of(rec);
	const char *source = data;

	return snapshot_info_is_complete(&info) &&
	       (source == NULL || strcmp(info.source, source) == 0);
}

static size_t snapshot_bytes(const struct record *rec)
{
	const struct snapshot_info info = snapshot_info_of(rec);

	return ENTRY_BYTES + strlen(info.id) + strlen(info.source);
}

static const struct listing_ops snapshots = {
	.folder = STORE_SNAPSHOTS,
	.check = snapshot_check_found_record,
	.accepts = snapshot_accepts,
	.bytes = snapshot_bytes,
};

static int list_one(struct listing *l, const struct csi_driver *driver,
		    const Csi__V1__ListSnapshotsRequest *in, const char *source, struct error *err)
{
	cleanup_snapshot_ref struct snapshot_ref ref = { .export = { .server = NULL } };
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	l->ops = &snapshots;
	r = snapshot_ref_find(&ref, driver, in->snapshot_id, &secrets, err);
	if (r <= 0)
		return r;
	if (!snapshot_accepts(&ref.snapshot.record, source))
		return 0;
	r = listing_add(l, ref.snapshot.id.subdir, &ref.snapshot.record);
	return r < 0 ? error_oom(err) : 0;
}

struct snapshot_reply {
	Csi__V1__ListSnapshotsResponse__Entry entry;
	struct snapshot_message message;
};

static int list_snapshots_reply(const struct listing *l,
				Csi__V1__ListSnapshotsResponse_Closure closure, void *data,
				struct error *err)
{
	Csi__V1__ListSnapshotsResponse out = CSI__V1__LIST_SNAPSHOTS_RESPONSE__INIT;
	cleanup_free Csi__V1__ListSnapshotsResponse__Entry **list = calloc(l->n + 1, sizeof(*list));
	cleanup_free struct snapshot_reply *replies = calloc(l->n + 1, sizeof(*replies));
	size_t i;

	if (list == NULL || replies == NULL)
		return error_oom(err);
	for (i = 0; i < l->n; i++) {
		snapshot_message_init(&replies[i].message, &l->entries[i].record);
		csi__v1__list_snapshots_response__entry__init(&replies[i].entry);
		replies[i].entry.snapshot = &replies[i].message.snapshot;
		list[i] = &replies[i].entry;
	}
	if (l->next_token != NULL)
		out.next_token = l->next_token;
	out.entries = list;
	out.n_entries = l->n;
	closure(&out, data);
	return 0;
}

CONTROLLER_METHOD(list_snapshots, ListSnapshots)
{
	const char *source = in->source_volume_id[0] != '\0' ? in->source_volume_id : NULL;
	const struct csi_driver *driver = csi_driver_of(service);
	cleanup_listing struct listing l = { .n = 0 };
	struct request *req = data;
	int r;

	if (in->snapshot_id[0] != '\0')
		r = list_one(&l, driver, in, source, &req->err);
	else
		r = listing_read(&l, driver, &snapshots, source, in->max_entries,
				 in->starting_token, req);
	if (r < 0 || list_snapshots_reply(&l, closure, data, &req->err) < 0)
		closure(NULL, data);
}
