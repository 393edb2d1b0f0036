/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>

#include "base/log.h"
#include "csi/controller.h"
#include "csi/validate.h"
#include "csi/volume_ref.h"
#include "store/volume.h"

/* Warn that the directory stays because the volume's policy is not a known one. */
static void warn_of_unknown_policy(const struct volume_ref *ref, const char *volume_id)
{
	const struct volume v = volume_of(&ref->record);
	const char *text = volume_policy_text(&v, &ref->id);
	enum volume_on_delete policy;

	if (on_delete_parse(text, &policy) < 0)
		log_warn("Unknown onDelete; keeping the directory", LOG_STR("volume_id", volume_id),
			 LOG_STR("on_delete", text));
}

static int delete_volume(const struct csi_driver *driver, const Csi__V1__DeleteVolumeRequest *in,
			 struct error *err)
{
	cleanup_volume_ref struct volume_ref ref = { .version = 0 };
	cleanup_key_lock struct key_lock *lock = NULL;
	cleanup_dir_lock struct dir_lock *dir_lock = NULL;
	const struct csi_map secrets = csi_map_of(in, secrets);
	const struct volume_disposal how = {
		.policy = driver->on_delete,
		.replace_archive = driver->replace_archive,
		.purge_now = driver->purge_now,
	};
	struct trash trash = { .is_used = false };
	struct session s;
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r < 0)
		return r;
	r = volume_ref_init(&ref, driver, in->volume_id, &secrets, err);
	if (r == -EINVAL) {
		/* No such volume was ever here, so it is deleted already. */
		log_warn("Volume id is not one of ours, nothing to delete",
			 LOG_STR("volume_id", in->volume_id));
		return 0;
	}
	if (r < 0)
		return r;
	r = volume_ref_lock(&ref, driver, &lock, err);
	if (r < 0)
		return r;
	r = volume_ref_read_for_deletion(&ref, driver, err);
	if (r < 0)
		return r;
	r = dir_lock_take(driver->dir_locks, ref.export.server, ref.export.share,
			  volume_ref_directory(&ref), true, &dir_lock, err);
	if (r < 0)
		return r;
	warn_of_unknown_policy(&ref, in->volume_id);
	volume_ref_begin(&s, driver, &ref, err);
	while (volume_ref_next(&ref, &s)) {
		trash_init(&trash, &ref.export, s.client);
		s.result = volume_delete(s.client, &ref.id, &ref.record, &how, &trash.is_used, err);
	}
	trash_purge(&trash, driver);
	return s.result;
}

CONTROLLER_METHOD(delete_volume, DeleteVolume)
{
	const Csi__V1__DeleteVolumeResponse out = CSI__V1__DELETE_VOLUME_RESPONSE__INIT;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->volume_id);
	r = delete_volume(csi_driver_of(service), in, &req->err);
	closure(r < 0 ? NULL : &out, data);
}
