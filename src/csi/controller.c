/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "csi/creation.h"
#include "csi/inventory.h"
#include "csi/list_volumes.h"
#include "csi/services.h"
#include "csi/session.h"
#include "csi/snapshot.h"
#include "csi/unimplemented.h"
#include "csi/validate.h"
#include "csi/volume_source.h"
#include "store/users.h"
#include "store/volume.h"

struct provision {
	const struct csi_driver *driver;
	struct creation x;
	struct content source;
	struct trash trash;
};

static int create_work(struct nfs_client *c, void *data, struct error *err)
{
	struct provision *p = data;
	const struct volume_filler filler = {
		.fill = p->source.kind != CONTENT_NONE ? content_fill : NULL,
		.data = &p->source,
		.ret_trashed = &p->trash.is_used,
		.replace_archive = p->driver->replace_archive,
	};

	csi_trash_of(&p->trash, &p->x.export, c);
	return volume_create(c, p->x.key, &p->x.record, p->x.range, &filler, err);
}

static void reply_created(const struct creation *x, char *id,
			  Csi__V1__CreateVolumeResponse_Closure closure, void *data)
{
	Csi__V1__CreateVolumeResponse out = CSI__V1__CREATE_VOLUME_RESPONSE__INIT;
	Csi__V1__Volume__VolumeContextEntry entries[CSI_CONTEXT_MAX];
	Csi__V1__Volume__VolumeContextEntry *list[CSI_CONTEXT_MAX];
	Csi__V1__Volume volume = CSI__V1__VOLUME__INIT;
	struct content_message source;
	uint64_t size = 0;

	/* 0, which means "not known", where the record does not tell. */
	(void)str_parse_u64(record_get(&x->record, VOLUME_KEY_SIZE), 10, INT64_MAX, &size);
	volume.volume_id = id;
	volume.capacity_bytes = (int64_t)size;
	volume.volume_context = list;
	volume.n_volume_context = csi_context_of(&x->record, entries, list);
	volume.content_source = content_message_of(&source, &x->record);
	out.volume = &volume;
	closure(&out, data);
}

static int create(const struct csi_driver *driver, const Csi__V1__CreateVolumeRequest *in,
		  struct provision *p, struct error *err)
{
	cleanup_inflight_lock struct inflight_lock *lock = NULL;
	cleanup_usage_lock struct usage_lock *usage = NULL;
	cleanup_claim struct claim *make = NULL;
	struct creation *x = &p->x;
	int r;

	r = content_init(&p->source, driver, in, err);
	if (r == 0)
		r = creation_init(x, driver, in, &p->source, err);
	if (r < 0)
		return r;
	r = csi_lock_volume(driver, &x->export, x->key, &lock, err);
	if (r < 0)
		return r;
	r = usage_acquire(driver->usage, &x->export, creation_directory(x), false, &usage, err);
	if (r < 0)
		return r;
	/* What takes long, other replicas have to know of. */
	if (p->source.kind != CONTENT_NONE && p->source.missing.code == ERROR_OK)
		r = claim_take(&make, driver, &x->export, &x->params.owner, BUSY_MAKE,
			       creation_directory(x), err);
	if (r < 0)
		return r;
	p->source.make = make;
	r = csi_with_owner(driver, &x->export, &x->params.owner, create_work, p, err);
	if (r < 0)
		csi_check_final(driver, &x->export, &x->params.owner, STORE_VOLUMES, x->key, err);
	csi_purge(driver, &p->trash);
	return r;
}

static void controller_create_volume(Csi__V1__Controller_Service *service,
				     const Csi__V1__CreateVolumeRequest *in,
				     Csi__V1__CreateVolumeResponse_Closure closure, void *data)
{
	struct provision p = { .driver = csi_controller_driver(service), .x = { .key = NULL } };
	struct request *req = data;
	cleanup_free char *id = NULL;
	int r;

	csi_set_subject(req, in->name);
	r = create(csi_controller_driver(service), in, &p, &req->err);
	if (r == 0) {
		id = creation_volume_id(&p.x);
		if (id == NULL)
			r = error_oom(&req->err);
	}
	if (r < 0)
		closure(NULL, data);
	else
		reply_created(&p.x, id, closure, data);
	creation_done(&p.x);
	content_done(&p.source);
}

struct deletion {
	struct reference ref;
	struct volume_disposal how;
	struct trash trash;
};

static int delete_work(struct nfs_client *c, struct reference *ref, void *data, struct error *err)
{
	struct deletion *x = data;

	csi_trash_of(&x->trash, &ref->export, c);
	return volume_delete(c, &ref->id, &ref->record, &x->how, &x->trash.is_used, err);
}

static int delete_found(const struct csi_driver *driver, struct deletion *x, struct error *err)
{
	cleanup_usage_lock struct usage_lock *usage = NULL;
	struct reference *ref = &x->ref;
	const char *dir = record_get(&ref->record, VOLUME_KEY_DIR);
	int r;

	r = usage_acquire(driver->usage, &ref->export, dir != NULL ? dir : ref->id.subdir, true,
			  &usage, err);
	if (r < 0)
		return r;
	r = csi_with_volume(driver, ref, delete_work, x, err);
	csi_purge(driver, &x->trash);
	return r;
}

static int delete_volume(const struct csi_driver *driver, const Csi__V1__DeleteVolumeRequest *in,
			 struct deletion *x, struct error *err)
{
	cleanup_inflight_lock struct inflight_lock *lock = NULL;
	const struct csi_map secrets = csi_map_of(in, secrets);
	struct reference *ref = &x->ref;
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r < 0)
		return r;
	r = reference_init(ref, driver, in->volume_id, &secrets, err);
	if (r == -EINVAL) {
		/* Not a volume that ever was here: there is nothing to delete. */
		log_warn("Volume id is not one of ours, nothing to delete",
			 LOG_STR("volume_id", in->volume_id));
		return 0;
	}
	if (r < 0)
		return r;
	x->how.policy = driver->on_delete;
	x->how.replace_archive = driver->replace_archive;
	x->how.purge_now = driver->purge_now;
	r = csi_lock_volume(driver, &ref->export, volume_id_key(&ref->id), &lock, err);
	if (r == 0)
		r = reference_read(ref, driver, err);
	return r < 0 ? r : delete_found(driver, x, err);
}

static void controller_delete_volume(Csi__V1__Controller_Service *service,
				     const Csi__V1__DeleteVolumeRequest *in,
				     Csi__V1__DeleteVolumeResponse_Closure closure, void *data)
{
	const Csi__V1__DeleteVolumeResponse out = CSI__V1__DELETE_VOLUME_RESPONSE__INIT;
	struct deletion x = { .trash = { .is_used = false } };
	struct request *req = data;
	int r;

	csi_set_subject(req, in->volume_id);
	r = delete_volume(csi_controller_driver(service), in, &x, &req->err);
	reference_done(&x.ref);
	closure(r < 0 ? NULL : &out, data);
}

static int find_volume(const struct csi_driver *driver,
		       const Csi__V1__ValidateVolumeCapabilitiesRequest *in, struct reference *ref,
		       struct error *err)
{
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r < 0)
		return r;
	if (in->n_volume_capabilities == 0)
		return validate_capabilities(NULL, 0, err);
	r = reference_find(ref, driver, in->volume_id, &secrets, err);
	if (r == 0)
		r = reference_read(ref, driver, err);
	return r < 0 ? r : csi_with_volume(driver, ref, csi_find_volume_work, NULL, err);
}

/* Keys that say where a volume is: given with other values, they mean another volume. */
static bool context_matches(const struct record *rec, const struct csi_map *context)
{
	static const char *const keys[] = { "server", "share", "subDir" };
	size_t i, k;

	for (i = 0; i < rec->n; i++) {
		const char *key = rec->pairs[i].key;
		const char *given;

		if (!str_has_prefix(key, VOLUME_CONTEXT_PREFIX))
			continue;
		key += strlen(VOLUME_CONTEXT_PREFIX);
		for (k = 0; k < ARRAY_SIZE(keys); k++) {
			given = str_eq_nocase(key, keys[k]) ? csi_map_get(context, key) : NULL;
			if (given != NULL && strcmp(given, rec->pairs[i].value) != 0)
				return false;
		}
	}
	return true;
}

static void reply_validated(const Csi__V1__ValidateVolumeCapabilitiesRequest *in,
			    const struct record *rec,
			    Csi__V1__ValidateVolumeCapabilitiesResponse_Closure closure, void *data)
{
	Csi__V1__ValidateVolumeCapabilitiesResponse out =
		CSI__V1__VALIDATE_VOLUME_CAPABILITIES_RESPONSE__INIT;
	Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed confirmed =
		CSI__V1__VALIDATE_VOLUME_CAPABILITIES_RESPONSE__CONFIRMED__INIT;
	const struct csi_map context = csi_map_of(in, volume_context);
	struct error why = { .code = ERROR_OK };

	/* Not supported is an answer, not an error. */
	(void)validate_capabilities(in->volume_capabilities, in->n_volume_capabilities, &why);
	if (why.code == ERROR_OK && !context_matches(rec, &context))
		(void)error_set(&why, ERROR_INVALID_ARGUMENT,
				"volume_context: is not that of the volume");
	if (why.code != ERROR_OK) {
		out.message = why.msg;
		closure(&out, data);
		return;
	}
	confirmed.volume_capabilities = in->volume_capabilities;
	confirmed.n_volume_capabilities = in->n_volume_capabilities;
	out.confirmed = &confirmed;
	closure(&out, data);
}

static void controller_validate_volume_capabilities(
	Csi__V1__Controller_Service *service, const Csi__V1__ValidateVolumeCapabilitiesRequest *in,
	Csi__V1__ValidateVolumeCapabilitiesResponse_Closure closure, void *data)
{
	struct reference ref = { .version = 0 };
	struct request *req = data;
	int r;

	csi_set_subject(req, in->volume_id);
	r = find_volume(csi_controller_driver(service), in, &ref, &req->err);
	if (r < 0)
		closure(NULL, data);
	else
		reply_validated(in, &ref.record, closure, data);
	reference_done(&ref);
}

#define CAPABILITY(name) CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__##name

static const Csi__V1__ControllerServiceCapability__RPC__Type capabilities[] = {
	CAPABILITY(CREATE_DELETE_VOLUME),
	CAPABILITY(LIST_VOLUMES),
	CAPABILITY(GET_CAPACITY),
	CAPABILITY(EXPAND_VOLUME),
	CAPABILITY(GET_VOLUME),
	CAPABILITY(VOLUME_CONDITION),
	CAPABILITY(SINGLE_NODE_MULTI_WRITER),
	CAPABILITY(MODIFY_VOLUME),
	CAPABILITY(CLONE_VOLUME),
	CAPABILITY(CREATE_DELETE_SNAPSHOT),
	CAPABILITY(LIST_SNAPSHOTS),
	CAPABILITY(GET_SNAPSHOT), /* the last: only where it is asked for */
};

static void controller_controller_get_capabilities(
	Csi__V1__Controller_Service *service, const Csi__V1__ControllerGetCapabilitiesRequest *in,
	Csi__V1__ControllerGetCapabilitiesResponse_Closure closure, void *data)
{
	Csi__V1__ControllerServiceCapability__RPC rpcs[ARRAY_SIZE(capabilities)];
	Csi__V1__ControllerServiceCapability entries[ARRAY_SIZE(capabilities)];
	Csi__V1__ControllerServiceCapability *list[ARRAY_SIZE(capabilities)];
	Csi__V1__ControllerGetCapabilitiesResponse out =
		CSI__V1__CONTROLLER_GET_CAPABILITIES_RESPONSE__INIT;
	size_t n = ARRAY_SIZE(capabilities), i;

	(void)in;
	if (!csi_controller_driver(service)->get_snapshot)
		n--;
	for (i = 0; i < n; i++) {
		csi__v1__controller_service_capability__rpc__init(&rpcs[i]);
		csi__v1__controller_service_capability__init(&entries[i]);
		rpcs[i].type = capabilities[i];
		entries[i].type_case = CSI__V1__CONTROLLER_SERVICE_CAPABILITY__TYPE_RPC;
		entries[i].rpc = &rpcs[i];
		list[i] = &entries[i];
	}
	out.capabilities = list;
	out.n_capabilities = n;
	closure(&out, data);
}

#define NO_ATTACH "NFS volumes are not attached to nodes"

UNIMPLEMENTED(Controller, controller, controller_publish_volume, ControllerPublishVolume, NO_ATTACH)
UNIMPLEMENTED(Controller, controller, controller_unpublish_volume, ControllerUnpublishVolume,
	      NO_ATTACH)

void csi_controller_init(struct csi_controller *s, const struct csi_driver *driver)
{
	const Csi__V1__Controller_Service methods = CSI__V1__CONTROLLER__INIT(controller_);

	s->service = methods;
	s->driver = driver;
}
