/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/claim.h"
#include "csi/controller.h"
#include "csi/creation.h"
#include "csi/session.h"
#include "csi/volume_message.h"
#include "csi/volume_source.h"
#include "store/volume.h"

static int create_volume(const struct csi_driver *driver, struct creation *creation,
			 struct volume_source *source, struct error *err)
{
	cleanup_key_lock struct key_lock *lock = NULL;
	cleanup_dir_lock struct dir_lock *dir_lock = NULL;
	cleanup_claim struct claim *make = NULL;
	struct trash trash = { .is_used = false };
	const struct volume_filler filler = {
		.fill = source->kind != VOLUME_SOURCE_NONE ? volume_source_fill : NULL,
		.data = source,
		.ret_trashed = &trash.is_used,
		.replace_archive = driver->replace_archive,
	};
	struct session s;
	int r;

	r = csi_driver_lock(driver, "volume", &creation->export, creation->key, &lock, err);
	if (r < 0)
		return r;
	r = dir_lock_take(driver->dir_locks, creation->export.server, creation->export.share,
			  creation_directory(creation), false, &dir_lock, err);
	if (r < 0)
		return r;
	/* Tell other replicas about work that takes long. */
	if (source->kind != VOLUME_SOURCE_NONE && source->missing.code == ERROR_OK) {
		r = claim_take(&make, driver, &creation->export, &creation->params.owner, BUSY_MAKE,
			       creation_directory(creation), err);
		if (r < 0)
			return r;
	}
	source->make = make;
	session_begin_as(&s, driver, &creation->export, &creation->params.owner, err);
	while (session_next(&s)) {
		trash_init(&trash, &creation->export, s.client);
		s.result = volume_create(s.client, creation->key, &creation->record,
					 &creation->capacity, &filler, err);
	}
	trash_purge(&trash, driver);
	return s.result;
}

static int reply(const struct creation *creation, Csi__V1__CreateVolumeResponse_Closure closure,
		 void *data, struct error *err)
{
	cleanup_volume_message struct volume_message message = { .context = NULL };
	Csi__V1__CreateVolumeResponse out = CSI__V1__CREATE_VOLUME_RESPONSE__INIT;
	cleanup_free char *id = creation_volume_id(creation);

	if (id == NULL || volume_message_init(&message, id, &creation->record) < 0)
		return error_oom(err);
	out.volume = &message.volume;
	closure(&out, data);
	return 0;
}

CONTROLLER_METHOD(create_volume, CreateVolume)
{
	const struct csi_driver *driver = csi_driver_of(service);
	struct creation creation = { .key = NULL };
	struct volume_source source;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->name);
	r = volume_source_init(&source, driver, in, &req->err);
	if (r == 0)
		r = creation_init(&creation, driver, in, &source, &req->err);
	if (r == 0) {
		r = create_volume(driver, &creation, &source, &req->err);
		if (r < 0)
			session_check_final(driver, &creation.export, &creation.params.owner,
					    STORE_VOLUMES, creation.key, &req->err);
	}
	if (r == 0)
		r = reply(&creation, closure, data, &req->err);
	if (r < 0)
		closure(NULL, data);
	creation_done(&creation);
	volume_source_done(&source);
}
