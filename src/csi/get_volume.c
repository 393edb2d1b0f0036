/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * ControllerGetVolume. A server that cannot be reached, or does not have the share for now, is a
 * condition of the volume, not an error: NOT_FOUND would mean that there is no such volume.
 */

#include <errno.h>

#include "csi/controller.h"
#include "csi/validate.h"
#include "csi/volume_message.h"
#include "csi/volume_ref.h"
#include "store/volume.h"

static int look_at_volume(struct nfs_client *c, const struct volume_ref *ref,
			  struct error *condition, struct error *err)
{
	bool has_directory;
	int r;

	error_clear(condition);
	r = volume_look(c, &ref->id, &ref->record, &has_directory, err);
	if (r < 0 || has_directory)
		return r;
	if (ref->record.n == 0)
		return error_set(err, ERROR_NOT_FOUND,
				 "volume directory '%s' on %s:%s does not exist", ref->id.subdir,
				 c->export.server, c->export.share);
	(void)error_set(condition, ERROR_NOT_FOUND,
			"the volume's directory is missing on %s:%s; its record is there",
			c->export.server, c->export.share);
	return 0;
}

static int get_volume(const struct csi_driver *driver, const char *id, struct volume_ref *ref,
		      struct error *condition, struct error *err)
{
	const struct csi_map none = csi_map_of_entries(NULL, 0);
	struct session s;
	int r;

	r = validate_volume_id(id, err);
	if (r < 0)
		return r;
	r = volume_ref_find(ref, driver, id, &none, err);
	if (r < 0)
		return r;
	r = volume_ref_read(ref, driver, err);
	if (r == 0) {
		volume_ref_begin(&s, driver, ref, err);
		while (volume_ref_next(ref, &s))
			s.result = look_at_volume(s.client, ref, condition, err);
		r = s.result;
	}
	/* Unless nobody has looked: that says nothing about the volume. */
	if (r < 0 && r != -EUSERS &&
	    (err->code == ERROR_UNAVAILABLE || volume_ref_is_gone(ref, driver, err))) {
		*condition = *err;
		error_clear(err);
		return 0;
	}
	return r;
}

static int get_volume_reply(const struct volume_ref *ref, const char *id,
			    const struct error *condition,
			    Csi__V1__ControllerGetVolumeResponse_Closure closure, void *data,
			    struct error *err)
{
	Csi__V1__ControllerGetVolumeResponse out = CSI__V1__CONTROLLER_GET_VOLUME_RESPONSE__INIT;
	Csi__V1__ControllerGetVolumeResponse__VolumeStatus status =
		CSI__V1__CONTROLLER_GET_VOLUME_RESPONSE__VOLUME_STATUS__INIT;
	cleanup_volume_message struct volume_message message = { .context = NULL };

	if (volume_message_init(&message, id, &ref->record) < 0)
		return error_oom(err);
	volume_message_set_condition(&message, condition->code != ERROR_OK ? condition->msg : NULL);
	status.volume_condition = &message.condition;
	out.volume = &message.volume;
	out.status = &status;
	closure(&out, data);
	return 0;
}

CONTROLLER_METHOD(controller_get_volume, ControllerGetVolume)
{
	cleanup_volume_ref struct volume_ref ref = { .version = 0 };
	struct error condition = {
		.code = ERROR_OK
	}; /* ERROR_OK: nothing is wrong with the volume */
	struct request *req = data;
	int r;

	csi_set_subject(req, in->volume_id);
	r = get_volume(csi_driver_of(service), in->volume_id, &ref, &condition, &req->err);
	if (r == 0 && volume_ref_set_address(&ref) < 0)
		r = error_oom(&req->err);
	if (r == 0)
		r = get_volume_reply(&ref, in->volume_id, &condition, closure, data, &req->err);
	if (r < 0)
		closure(NULL, data);
}
