/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/inventory.h"
#include "csi/volume_source.h"

#include <errno.h>

#include "base/list.h"
#include "base/str.h"
#include "csi/creation.h"
#include "csi/session.h"
#include "nfs/calls.h"
#include "store/volume.h"
#include "store/volume_change.h"

/* -------- GetCapacity -------- */

static int space_work(struct nfs_client *c, void *data, struct error *err)
{
	int r = nfs_fsstat(c, &c->root, data);

	return r < 0 ? nfs_error_set(err, c, r, "asking for the free space") : 0;
}

/* A driver that knows no share, and is not given one, has no capacity: that is no error. */
static bool has_location(const struct csi_driver *driver, const struct csi_map *parameters)
{
	return (driver->server != NULL || csi_map_get(parameters, "server") != NULL) &&
	       (driver->share != NULL || csi_map_get(parameters, "share") != NULL);
}

static int find_space(const struct csi_driver *driver, const Csi__V1__GetCapacityRequest *in,
		      struct nfs_space *space, struct error *err)
{
	const struct csi_map map = csi_map_of(in, parameters);
	cleanup_nfs_export struct nfs_export e = { .server = NULL };
	cleanup_volume_params struct volume_params params = { .server = NULL };
	const struct volume_defaults defaults = csi_defaults_of(driver);
	int r;

	if (!has_location(driver, &map))
		return 0;
	/* A subDir cannot be filled in, for no volume is asked about. */
	r = volume_location_parse(&params, &map, &defaults, err);
	if (r == 0)
		r = nfs_export_init(&e, params.server, params.share, err);
	if (r < 0)
		return r;
	known_exports_apply(driver->known, &e);
	return csi_with_client(driver, &e, space_work, space, err);
}

void controller_get_capacity(Csi__V1__Controller_Service *service,
			     const Csi__V1__GetCapacityRequest *in,
			     Csi__V1__GetCapacityResponse_Closure closure, void *data)
{
	Csi__V1__GetCapacityResponse out = CSI__V1__GET_CAPACITY_RESPONSE__INIT;
	struct nfs_space space = { 0, 0 };
	struct request *req = data;

	if (find_space(csi_controller_driver(service), in, &space, &req->err) < 0) {
		closure(NULL, data);
		return;
	}
	out.available_capacity = space.available > INT64_MAX ? INT64_MAX : (int64_t)space.available;
	closure(&out, data);
}

/* -------- ControllerGetVolume -------- */

struct inspection {
	struct reference ref;
	struct error condition; /* what is wrong with the volume; ERROR_OK: nothing */
};

static int inspect_work(struct nfs_client *c, struct reference *ref, void *data, struct error *err)
{
	struct inspection *x = data;
	bool has_directory;
	int r;

	r = volume_look(c, &ref->id, &ref->record, &has_directory, err);
	if (r < 0 || has_directory)
		return r;
	if (ref->record.n == 0)
		return error_set(err, ERROR_NOT_FOUND,
				 "volume directory '%s' on %s:%s does not exist", ref->id.subdir,
				 c->export.server, c->export.share);
	error_clear(&x->condition);
	(void)error_set(&x->condition, ERROR_NOT_FOUND,
			"the volume's directory is missing on %s:%s; its record is there",
			c->export.server, c->export.share);
	return 0;
}

static int inspect(const struct csi_driver *driver, const char *id, struct inspection *x,
		   struct error *err)
{
	const struct csi_map none = csi_map_of_entries(NULL, 0);
	int r;

	r = validate_volume_id(id, err);
	if (r < 0)
		return r;
	r = reference_find(&x->ref, driver, id, &none, err);
	if (r < 0)
		return r;
	r = reference_read(&x->ref, driver, err);
	if (r == 0)
		r = csi_with_volume(driver, &x->ref, inspect_work, x, err);
	if (r < 0 && err->code == ERROR_UNAVAILABLE) {
		x->condition = *err;
		error_clear(err);
		return 0;
	}
	return r;
}

static void reply_volume(const struct inspection *x, const char *id,
			 Csi__V1__ControllerGetVolumeResponse_Closure closure, void *data)
{
	Csi__V1__ControllerGetVolumeResponse out = CSI__V1__CONTROLLER_GET_VOLUME_RESPONSE__INIT;
	Csi__V1__ControllerGetVolumeResponse__VolumeStatus status =
		CSI__V1__CONTROLLER_GET_VOLUME_RESPONSE__VOLUME_STATUS__INIT;
	Csi__V1__VolumeCondition condition = CSI__V1__VOLUME_CONDITION__INIT;
	Csi__V1__Volume__VolumeContextEntry entries[CSI_CONTEXT_MAX];
	Csi__V1__Volume__VolumeContextEntry *list[CSI_CONTEXT_MAX];
	Csi__V1__Volume volume = CSI__V1__VOLUME__INIT;
	struct content_message source;

	volume.volume_id = (char *)(uintptr_t)id; /* only read while it is packed */
	volume.capacity_bytes = volume_size(&x->ref.record);
	volume.volume_context = list;
	volume.n_volume_context = csi_context_of(&x->ref.record, entries, list);
	volume.content_source = content_message_of(&source, &x->ref.record);
	condition.abnormal = x->condition.code != ERROR_OK;
	condition.message =
		(char *)(uintptr_t)(condition.abnormal ? x->condition.msg : "the volume is there");
	status.volume_condition = &condition;
	out.volume = &volume;
	out.status = &status;
	closure(&out, data);
}

void controller_controller_get_volume(Csi__V1__Controller_Service *service,
				      const Csi__V1__ControllerGetVolumeRequest *in,
				      Csi__V1__ControllerGetVolumeResponse_Closure closure,
				      void *data)
{
	struct inspection x = { .condition = { .code = ERROR_OK } };
	struct request *req = data;

	csi_set_subject(req, in->volume_id);
	if (inspect(csi_controller_driver(service), in->volume_id, &x, &req->err) < 0)
		closure(NULL, data);
	else
		reply_volume(&x, in->volume_id, closure, data);
	reference_done(&x.ref);
}

/* -------- ControllerExpandVolume -------- */

struct expansion {
	struct reference ref;
	const Csi__V1__CapacityRange *range;
	int64_t size; /* in the end */
};

static int expand_work(struct nfs_client *c, struct reference *ref, void *data, struct error *err)
{
	struct expansion *x = data;

	return volume_expand(c, &ref->id, &ref->record, x->range, &x->size, err);
}

static int check_expand(const Csi__V1__ControllerExpandVolumeRequest *in, struct error *err)
{
	int64_t size = 0;
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r == 0 && in->capacity_range == NULL)
		r = error_set(err, ERROR_INVALID_ARGUMENT, "capacity_range: missing, it is required");
	if (r == 0)
		r = validate_capacity(in->capacity_range, &size, err);
	if (r == 0 && size == 0)
		r = error_set(err, ERROR_INVALID_ARGUMENT,
			      "capacity_range: required_bytes or limit_bytes is required");
	if (r == 0 && in->volume_capability != NULL)
		r = validate_capability(in->volume_capability, err);
	return r;
}

static int expand(const struct csi_driver *driver, const Csi__V1__ControllerExpandVolumeRequest *in,
		  struct expansion *x, struct error *err)
{
	cleanup_inflight_lock struct inflight_lock *lock = NULL;
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	r = check_expand(in, err);
	if (r < 0)
		return r;
	r = reference_find(&x->ref, driver, in->volume_id, &secrets, err);
	if (r < 0)
		return r;
	r = csi_lock_volume(driver, &x->ref.export, volume_id_key(&x->ref.id), &lock, err);
	if (r == 0)
		r = reference_read(&x->ref, driver, err);
	if (r < 0)
		return r;
	x->range = in->capacity_range;
	return csi_with_volume(driver, &x->ref, expand_work, x, err);
}

void controller_controller_expand_volume(Csi__V1__Controller_Service *service,
					 const Csi__V1__ControllerExpandVolumeRequest *in,
					 Csi__V1__ControllerExpandVolumeResponse_Closure closure,
					 void *data)
{
	Csi__V1__ControllerExpandVolumeResponse out =
		CSI__V1__CONTROLLER_EXPAND_VOLUME_RESPONSE__INIT;
	struct expansion x = { .size = 0 };
	struct request *req = data;
	int r;

	csi_set_subject(req, in->volume_id);
	r = expand(csi_controller_driver(service), in, &x, &req->err);
	reference_done(&x.ref);
	if (r < 0) {
		closure(NULL, data);
		return;
	}
	out.capacity_bytes = x.size;
	out.node_expansion_required = 0;
	closure(&out, data);
}

/* -------- ControllerModifyVolume -------- */

struct modification {
	struct reference ref;
	struct volume_params changes;
};

static int modify_work(struct nfs_client *c, struct reference *ref, void *data, struct error *err)
{
	const struct modification *x = data;

	return volume_modify(c, &ref->id, &ref->record, &x->changes, err);
}

static int no_parameters(struct error *err)
{
	return error_set(err, ERROR_INVALID_ARGUMENT,
			 "mutable_parameters: missing, they are required");
}

/* Whether there is such a volume is told before that nothing is asked of it: CSI sanity does both. */
static int find_work(struct nfs_client *c, struct reference *ref, void *data, struct error *err)
{
	int r;

	(void)data;
	r = volume_find(c, &ref->id, &ref->record, err);
	return r < 0 ? r : no_parameters(err);
}

/* To the CO, a change that the server refuses is one that this volume cannot have. */
static int explain(int r, struct error *err)
{
	if (r < 0 && err->code == ERROR_PERMISSION_DENIED)
		err->code = ERROR_INVALID_ARGUMENT;
	return r;
}

static int modify(const struct csi_driver *driver, const Csi__V1__ControllerModifyVolumeRequest *in,
		  struct modification *x, struct error *err)
{
	cleanup_inflight_lock struct inflight_lock *lock = NULL;
	const struct csi_map mutable = csi_map_of(in, mutable_parameters);
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r == 0)
		r = validate_map(&mutable, "mutable_parameters", err);
	if (r == 0)
		r = volume_mutable_parse(&x->changes, &mutable, err);
	if (r == 0)
		r = reference_find(&x->ref, driver, in->volume_id, &secrets, err);
	if (r < 0)
		return r;
	r = csi_lock_volume(driver, &x->ref.export, volume_id_key(&x->ref.id), &lock, err);
	if (r == 0)
		r = reference_read(&x->ref, driver, err);
	if (r < 0)
		return r;
	if (mutable.n == 0)
		return csi_with_volume(driver, &x->ref, find_work, NULL, err);
	return explain(csi_with_volume(driver, &x->ref, modify_work, x, err), err);
}

void controller_controller_modify_volume(Csi__V1__Controller_Service *service,
					 const Csi__V1__ControllerModifyVolumeRequest *in,
					 Csi__V1__ControllerModifyVolumeResponse_Closure closure,
					 void *data)
{
	const Csi__V1__ControllerModifyVolumeResponse out =
		CSI__V1__CONTROLLER_MODIFY_VOLUME_RESPONSE__INIT;
	struct modification x = { .changes = { .server = NULL } };
	struct request *req = data;
	int r;

	csi_set_subject(req, in->volume_id);
	r = modify(csi_controller_driver(service), in, &x, &req->err);
	reference_done(&x.ref);
	volume_params_done(&x.changes);
	closure(r < 0 ? NULL : &out, data);
}
