/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/controller.h"
#include "csi/snapshot_ref.h"
#include "csi/validate.h"

static int get_snapshot(const struct csi_driver *driver, const Csi__V1__GetSnapshotRequest *in,
			struct snapshot_ref *ref, struct error *err)
{
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	if (!driver->get_snapshot)
		return error_set(err, ERROR_UNIMPLEMENTED,
				 "GetSnapshot: not switched on (--enable-get-snapshot)");
	r = validate_required(in->snapshot_id, "snapshot_id", err);
	if (r < 0)
		return r;
	r = snapshot_ref_find(ref, driver, in->snapshot_id, &secrets, err);
	if (r == 0)
		return error_set(err, ERROR_NOT_FOUND, "snapshot '%.128s' does not exist",
				 in->snapshot_id);
	return r < 0 ? r : 0;
}

CONTROLLER_METHOD(get_snapshot, GetSnapshot)
{
	Csi__V1__GetSnapshotResponse out = CSI__V1__GET_SNAPSHOT_RESPONSE__INIT;
	cleanup_snapshot_ref struct snapshot_ref ref = { .export = { .server = NULL } };
	struct snapshot_message message;
	struct request *req = data;

	csi_set_subject(req, in->snapshot_id);
	if (get_snapshot(csi_driver_of(service), in, &ref, &req->err) < 0) {
		closure(NULL, data);
		return;
	}
	snapshot_message_init(&message, &ref.snapshot.record);
	out.snapshot = &message.snapshot;
	closure(&out, data);
}
