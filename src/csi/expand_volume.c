/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* ControllerExpandVolume. Only the recorded size grows: there is nothing to do on the nodes. */

#include "csi/controller.h"
#include "csi/validate.h"
#include "csi/volume_ref.h"
#include "store/volume.h"

static int check_request(const Csi__V1__ControllerExpandVolumeRequest *in,
			 struct volume_capacity *ret, struct error *err)
{
	int64_t size;
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r < 0)
		return r;
	if (in->capacity_range == NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "capacity_range is required, but missing");
	*ret = capacity_of(in->capacity_range);
	r = validate_capacity(ret, &size, err);
	if (r < 0)
		return r;
	if (size == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "capacity_range: required_bytes or limit_bytes is required");
	return in->volume_capability != NULL ? validate_capability(in->volume_capability, err) : 0;
}

static int expand_volume(const struct csi_driver *driver,
			 const Csi__V1__ControllerExpandVolumeRequest *in, int64_t *ret_size,
			 struct error *err)
{
	cleanup_volume_ref struct volume_ref ref = { .version = 0 };
	cleanup_key_lock struct key_lock *lock = NULL;
	const struct csi_map secrets = csi_map_of(in, secrets);
	struct volume_capacity capacity;
	struct session s;
	int r;

	r = check_request(in, &capacity, err);
	if (r < 0)
		return r;
	r = volume_ref_find(&ref, driver, in->volume_id, &secrets, err);
	if (r < 0)
		return r;
	r = volume_ref_lock(&ref, driver, &lock, err);
	if (r < 0)
		return r;
	r = volume_ref_read(&ref, driver, err);
	if (r == 0) {
		volume_ref_begin(&s, driver, &ref, err);
		while (volume_ref_next(&ref, &s))
			s.result = volume_expand(s.client, &ref.id, &ref.record, &capacity,
						 ret_size, err);
		r = s.result;
	}
	volume_ref_check_final(&ref, driver, err);
	return r;
}

CONTROLLER_METHOD(controller_expand_volume, ControllerExpandVolume)
{
	Csi__V1__ControllerExpandVolumeResponse out =
		CSI__V1__CONTROLLER_EXPAND_VOLUME_RESPONSE__INIT;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->volume_id);
	r = expand_volume(csi_driver_of(service), in, &out.capacity_bytes, &req->err);
	out.node_expansion_required = 0;
	closure(r < 0 ? NULL : &out, data);
}
