/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>

#include "csi/controller.h"
#include "csi/snapshot_ref.h"
#include "csi/validate.h"
#include "store/volume.h"

static int delete_snapshot(const struct csi_driver *driver,
			   const Csi__V1__DeleteSnapshotRequest *in, struct error *err)
{
	cleanup_snapshot_ref struct snapshot_ref ref = { .export = { .server = NULL } };
	cleanup_key_lock struct key_lock *lock = NULL;
	cleanup_dir_lock struct dir_lock *dir_lock = NULL;
	const struct csi_map secrets = csi_map_of(in, secrets);
	struct trash trash = { .is_used = false };
	const char *name;
	struct session s;
	int r;

	r = validate_required(in->snapshot_id, "snapshot_id", err);
	if (r < 0)
		return r;
	r = snapshot_ref_init(&ref, driver, in->snapshot_id, &secrets, err);
	if (r < 0)
		return r == -EINVAL ? 0 : r; /* no such snapshot was ever here */
	name = ref.snapshot.id.subdir;
	r = csi_driver_lock(driver, "snapshot", &ref.export, name, &lock, err);
	if (r < 0)
		return r;
	r = dir_lock_take(driver->dir_locks, ref.export.server, ref.export.share, name, true,
			  &dir_lock, err);
	if (r < 0)
		return r;
	r = snapshot_ref_read(&ref, driver, err);
	if (r < 0 || ref.snapshot.is_other)
		return r;
	session_begin_as(&s, driver, &ref.export, &ref.snapshot.owner, err);
	while (session_next(&s)) {
		trash_init(&trash, &ref.export, s.client);
		s.result = snapshot_delete(s.client, &ref.snapshot, &trash.is_used, err);
	}
	trash_purge(&trash, driver);
	return s.result;
}

CONTROLLER_METHOD(delete_snapshot, DeleteSnapshot)
{
	const Csi__V1__DeleteSnapshotResponse out = CSI__V1__DELETE_SNAPSHOT_RESPONSE__INIT;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->snapshot_id);
	r = delete_snapshot(csi_driver_of(service), in, &req->err);
	closure(r < 0 ? NULL : &out, data);
}
