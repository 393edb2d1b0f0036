/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* ControllerModifyVolume: all the settings that are given change, or none. */

#include "csi/controller.h"
#include "csi/validate.h"
#include "csi/volume_ref.h"
#include "store/volume.h"

/* csi-sanity wants a missing volume reported before missing parameters. */
static int refuse_no_parameters(struct volume_ref *ref, const struct csi_driver *driver,
				struct error *err)
{
	int r = volume_ref_check(ref, driver, err);

	if (r < 0)
		return r;
	return error_set(err, ERROR_INVALID_ARGUMENT,
			 "mutable_parameters: missing, they are required");
}

static int modify_volume(const struct csi_driver *driver,
			 const Csi__V1__ControllerModifyVolumeRequest *in, struct error *err)
{
	cleanup_volume_params struct volume_params changes = { .server = NULL };
	cleanup_volume_ref struct volume_ref ref = { .version = 0 };
	cleanup_key_lock struct key_lock *lock = NULL;
	const struct csi_map mutable = csi_map_of(in, mutable_parameters);
	const struct csi_map secrets = csi_map_of(in, secrets);
	struct volume_settings settings;
	struct session s;
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r < 0)
		return r;
	r = validate_map(&mutable, "mutable_parameters", err);
	if (r < 0)
		return r;
	r = volume_mutable_parse(&changes, &mutable, err);
	if (r < 0)
		return r;
	r = volume_ref_find(&ref, driver, in->volume_id, &secrets, err);
	if (r < 0)
		return r;
	r = volume_ref_lock(&ref, driver, &lock, err);
	if (r < 0)
		return r;
	r = volume_ref_read(&ref, driver, err);
	if (r < 0) {
		volume_ref_check_final(&ref, driver, err);
		return r;
	}
	if (mutable.n == 0)
		return refuse_no_parameters(&ref, driver, err);
	settings = (struct volume_settings){
		.given = changes.given,
		.mode = changes.mode,
		.owner = changes.owner,
		.on_delete = changes.on_delete,
	};
	volume_ref_begin(&s, driver, &ref, err);
	while (volume_ref_next(&ref, &s))
		s.result = volume_modify(s.client, &ref.id, &ref.record, &settings, err);
	volume_ref_check_final(&ref, driver, err);
	/* Report a change that the server refuses as one that this volume does not support. */
	if (s.result < 0 && !ref.is_unreached && err->code == ERROR_PERMISSION_DENIED)
		err->code = ERROR_INVALID_ARGUMENT;
	return s.result;
}

CONTROLLER_METHOD(controller_modify_volume, ControllerModifyVolume)
{
	const Csi__V1__ControllerModifyVolumeResponse out =
		CSI__V1__CONTROLLER_MODIFY_VOLUME_RESPONSE__INIT;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->volume_id);
	r = modify_volume(csi_driver_of(service), in, &req->err);
	closure(r < 0 ? NULL : &out, data);
}
