/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mount_options.h"
#include "base/path.h"
#include "base/str.h"
#include "csi/claim.h"
#include "csi/controller.h"
#include "csi/copy_turn.h"
#include "csi/session.h"
#include "csi/validate.h"
#include "csi/volume_message.h"
#include "csi/volume_source.h"
#include "nfs/export.h"
#include "store/directory.h"
#include "store/record.h"
#include "store/volume.h"

/* A request, parsed: the parameters, the export and how to reach it, and the wanted record. */
struct creation {
	struct volume_params params;
	struct nfs_export export;
	char *key; /* the volume's, see store/volume_id.h */
	char *sec; /* security flavor for mounts; NULL: none was named */
	struct record record; /* as requested; volume_create() replaces it with the share's */
	struct volume_capacity capacity; /* as requested */
	int64_t size; /* in bytes; 0: that of the source, or none */
};

/* -------- the request -------- */

static void creation_done(struct creation *creation)
{
	volume_params_done(&creation->params);
	nfs_export_done(&creation->export);
	free(creation->key);
	free(creation->sec);
	record_done(&creation->record);
}
#define cleanup_creation __attribute__((cleanup(creation_done)))

static int check_create(const Csi__V1__CreateVolumeRequest *in, struct error *err)
{
	const struct csi_map parameters = csi_map_of(in, parameters);
	const struct csi_map mutable = csi_map_of(in, mutable_parameters);
	int r;

	r = validate_name(in->name, err);
	if (r < 0)
		return r;
	r = validate_capabilities(in->volume_capabilities, in->n_volume_capabilities, err);
	if (r < 0)
		return r;
	r = validate_map(&parameters, "parameters", err);
	if (r < 0)
		return r;
	return validate_map(&mutable, "mutable_parameters", err);
}

/*
 * Take NFS version, ports and security flavor from the mount options in the provisioner secret, as
 * csi-driver-nfs does, then from the mount flags of the capabilities, which are for this volume.
 * The flavor is for the record: the controller itself speaks sec=sys only.
 */
static int apply_options(const Csi__V1__CreateVolumeRequest *in, struct creation *creation,
			 struct error *err)
{
	cleanup_mount_options struct mount_options o = { .minor = -1 };
	const struct csi_map secrets = csi_map_of(in, secrets);
	const char *secret = csi_map_get(&secrets, SECRET_MOUNT_OPTIONS);
	size_t i;
	int r;

	r = mount_options_check(secret, err);
	if (r < 0)
		return r;
	r = mount_options_read(&o, secret, err);
	if (r < 0)
		return r;
	for (i = 0; i < in->n_volume_capabilities; i++) {
		cleanup_free char *flags = capability_options(in->volume_capabilities[i]);

		if (flags == NULL)
			return error_oom(err);
		r = mount_options_read(&o, flags, err);
		if (r < 0)
			return r;
	}
	nfs_export_set_options(&creation->export, &o);
	creation->sec = steal_ptr(&o.sec);
	return 0;
}

/* Return the key as the StorageClass spells it; if it has none, the argument otherwise. */
static const char *spelling(const struct csi_map *map, const char *key, const char *otherwise)
{
	size_t i;

	for (i = 0; i < map->n; i++)
		if (str_eq_nocase(csi_map_key(map, i), key))
			return csi_map_key(map, i);
	return otherwise;
}

/*
 * Record the volume_context: all parameters as given, as csi-driver-nfs returns them, but with the
 * subDir filled in and with defaults for server and share.
 */
static int put_volume_context(struct creation *creation, const struct csi_map *map, const char *dir)
{
	struct record *rec = &creation->record;
	size_t i;

	for (i = 0; i < map->n; i++)
		if (!csi_map_is_replaced(map, i) &&
		    volume_set_context(rec, csi_map_key(map, i), csi_map_value(map, i)) < 0)
			return -ENOMEM;
	if (volume_set_context(rec, spelling(map, "subDir", "subdir"), dir) < 0)
		return -ENOMEM;
	if (csi_map_get(map, "server") == NULL &&
	    volume_set_context(rec, "server", creation->params.server) < 0)
		return -ENOMEM;
	if (csi_map_get(map, "share") == NULL)
		return volume_set_context(rec, "share", creation->params.share);
	return 0;
}

static const char *creation_directory(const struct creation *creation)
{
	return creation->params.subdir != NULL ? creation->params.subdir : creation->key;
}

/*
 * Choose how the volume claims its directory. A claim costs one more write. A volume needs none if
 * its name is its directory and is new, since nobody else can have that directory. For any other
 * name, a repeated call could not tell without a claim whether an earlier attempt had made the
 * directory or was about to refuse it: it may be an archive, or have the volumes of others in it.
 */
static enum volume_claim claim_of(const struct creation *creation)
{
	const struct volume_params *p = &creation->params;
	const bool takes_any = p->has_existing && p->existing == EXISTING_ADOPT;
	/* A name of external-provisioner has a UUID. */
	const bool is_new = p->subdir != NULL || (str_ends_with_uuid(creation->key) &&
						  !directory_is_archive_name(creation->key));

	if (takes_any || (!p->has_existing && !p->has_variables && is_new))
		return CLAIM_NONE;
	return p->subdir == NULL || p->has_variables ? CLAIM_EXCLUSIVE : CLAIM_SHARED;
}

/*
 * Format the id as csi-driver-nfs does. If that is too long, put the key in place of the subDir,
 * which is in the record.
 */
static char *creation_volume_id(const struct creation *creation)
{
	const struct volume_params *p = &creation->params;
	const bool keeps = p->on_delete != ON_DELETE_DELETE;
	const char *on_delete =
		p->on_delete_text != NULL ? p->on_delete_text : on_delete_name(p->on_delete);
	cleanup_free char *share = path_trim(p->share);
	struct volume_id id = {
		.server = p->server,
		.share = share,
		.subdir = p->subdir != NULL ? p->subdir : creation->key,
		.uuid = p->subdir != NULL ? creation->key : (char *)(uintptr_t) "",
		.on_delete = (char *)(uintptr_t)(keeps ? on_delete : ""),
	};
	cleanup_free char *text = share != NULL ? volume_id_format(&id) : NULL;

	if (text == NULL || strlen(text) <= VOLUME_ID_MAX)
		return steal_ptr(&text);
	id.subdir = creation->key;
	id.uuid = (char *)(uintptr_t) "";
	return volume_id_format(&id);
}

static int compare_pairs(const void *a, const void *b)
{
	const struct record_pair *one = a, *other = b;

	return strcmp(one->key, other->key);
}

/*
 * The policy for the record. Without one, the driver's at the time of the deletion counts, as for a
 * volume of csi-driver-nfs: an administrator may change it so that volumes stay. A default that
 * keeps the directory is in the id as well, and counts from now on.
 */
static const char *creation_policy(const struct volume_params *p)
{
	if (!(p->given & MUTABLE_ON_DELETE) && p->on_delete == ON_DELETE_DELETE)
		return NULL;
	return on_delete_name(p->on_delete);
}

/* With subDir filled in, the volume context can be longer than the parameters, which fit. */
static int check_context_size(const struct record *rec, size_t first, struct error *err)
{
	size_t total = 0, i;

	for (i = first; i < rec->n; i++)
		total += strlen(volume_context_key(&rec->pairs[i])) + strlen(rec->pairs[i].value);
	return validate_map_size(total, "parameters, with subDir filled in", err);
}

static int creation_describe(struct creation *creation, const Csi__V1__CreateVolumeRequest *in,
			     const char *source, struct error *err)
{
	const struct csi_map map = csi_map_of(in, parameters);
	const struct volume_params *p = &creation->params;
	cleanup_free char *id = creation_volume_id(creation);
	struct record *rec = &creation->record;
	const struct volume v = {
		.name = in->name,
		.id = id,
		.dir = creation_directory(creation),
		.size = creation->size,
		.mode = p->mode,
		.owner = p->owner,
		.on_delete = creation_policy(p),
		.has_existing = p->has_existing,
		.existing = p->existing,
		.claim = claim_of(creation),
		.source = source,
		.port = creation->export.port,
		.mount_port = creation->export.mount_port,
		.sec = creation->sec,
	};
	size_t first;

	if (id == NULL || volume_describe(rec, &v) < 0)
		return error_oom(err);
	first = rec->n;
	if (put_volume_context(creation, &map, v.dir) < 0)
		return error_oom(err);
	/* Sort: a retry may have the map in another order and must get the same record. */
	qsort(rec->pairs + first, rec->n - first, sizeof(*rec->pairs), compare_pairs);
	return check_context_size(rec, first, err);
}

/*
 * Parse the request, which it borrows. The record is left to creation_read_source().
 * creation_done() is due after a failure, too.
 */
static int creation_init(struct creation *creation, const struct csi_driver *driver,
			 const Csi__V1__CreateVolumeRequest *in, struct error *err)
{
	const struct volume_defaults defaults = csi_driver_defaults(driver);
	const struct csi_map map = csi_map_of(in, parameters);
	const struct csi_map mutable = csi_map_of(in, mutable_parameters);
	cleanup_free char *share = NULL;
	int r;

	*creation = (struct creation){ .capacity = capacity_of(in->capacity_range) };
	r = check_create(in, err);
	if (r < 0)
		return r;
	r = validate_capacity(&creation->capacity, &creation->size, err);
	if (r < 0)
		return r;
	r = volume_params_parse(&creation->params, &map, &defaults, err);
	if (r < 0)
		return r;
	/* The VolumeAttributesClass wins (CSI specification, CreateVolumeRequest). */
	r = volume_mutable_parse(&creation->params, &mutable, err);
	if (r < 0)
		return r;
	r = nfs_export_init(&creation->export, creation->params.server, creation->params.share,
			    err);
	if (r < 0)
		return r;
	r = apply_options(in, creation, err);
	if (r < 0)
		return r;
	share = path_trim(creation->params.share);
	if (share == NULL)
		return error_oom(err);
	return volume_key(in->name, creation->params.server, share, &creation->key, err);
}

/* Default to the size of the source, and refuse a smaller one. */
static void check_source_size(struct volume_source *source, int64_t *size)
{
	if (*size == 0)
		*size = source->size;
	/* Not an error yet: a finished volume may be smaller than its source has become. */
	if (*size < source->size)
		(void)error_set(&source->missing, ERROR_OUT_OF_RANGE,
				"capacity_range: the source is larger, %" PRId64 " bytes",
				source->size);
}

/* Look for the source, if there is one, and fill in the record. */
static int creation_read_source(struct creation *creation, const Csi__V1__CreateVolumeRequest *in,
				struct volume_source *source, struct error *err)
{
	int r = volume_source_read(source, err);

	if (r < 0)
		return r;
	check_source_size(source, &creation->size);
	return creation_describe(creation, in, source->text, err);
}

/* -------- the call -------- */

static int create_volume(const struct csi_driver *driver, struct creation *creation,
			 struct volume_source *source, struct error *err)
{
	cleanup_key_lock struct key_lock *lock = NULL;
	cleanup_dir_lock struct dir_lock *dir_lock = NULL;
	cleanup_claim struct claim *make = NULL;
	struct trash trash = { .is_used = false };
	bool had_record = false;
	const struct volume_filler filler = {
		.fill = source->kind != VOLUME_SOURCE_NONE ? volume_source_fill : NULL,
		.data = source,
		.ret_trashed = &trash.is_used,
		.had_record = &had_record,
		.replace_archive = driver->replace_archive,
		.defaults = (MUTABLE_MODE | MUTABLE_ON_DELETE) & ~creation->params.given,
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
	/*
	 * Tell other replicas about work that takes long. Without the source, too: a killed attempt
	 * may have left a note, and after a final answer nobody comes back to remove it.
	 */
	if (source->kind != VOLUME_SOURCE_NONE) {
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

/*
 * The record of a share that was moved or copied names the former one, which may still be there:
 * nodes would mount the other volume, and DeleteVolume would delete it. The source is the one that
 * was asked for, perhaps by another address.
 */
static int creation_set_address(struct creation *creation, const Csi__V1__CreateVolumeRequest *in,
				const char *source)
{
	const struct csi_map map = csi_map_of(in, parameters);
	const char *server = csi_map_get(&map, "server");
	const char *share = csi_map_get(&map, "share");

	if (source != NULL && volume_set_source(&creation->record, source) < 0)
		return -ENOMEM;
	return volume_set_address(&creation->record,
				  server != NULL ? server : creation->params.server,
				  share != NULL ? share : creation->params.share);
}

static int create_volume_reply(const struct creation *creation,
			       Csi__V1__CreateVolumeResponse_Closure closure, void *data,
			       struct error *err)
{
	cleanup_volume_message struct volume_message message = { .context = NULL };
	Csi__V1__CreateVolumeResponse out = CSI__V1__CREATE_VOLUME_RESPONSE__INIT;
	const char *recorded = volume_of(&creation->record).id;
	cleanup_free char *computed = recorded == NULL ? creation_volume_id(creation) : NULL;
	/* The default policy, which is in the id, may have changed since. */
	const char *id = recorded != NULL ? recorded : computed;

	if (id == NULL || volume_message_init(&message, id, &creation->record) < 0)
		return error_oom(err);
	out.volume = &message.volume;
	closure(&out, data);
	return 0;
}

CONTROLLER_METHOD(create_volume, CreateVolume)
{
	const struct csi_driver *driver = csi_driver_of(service);
	cleanup_volume_source struct volume_source source = { .text = NULL };
	cleanup_creation struct creation creation = { .key = NULL };
	cleanup_copy_turn struct copy_turn turn = { .is_taken = false }; /* borrows from both */
	struct request *req = data;
	int r;

	csi_set_subject(req, in->name);
	if (volume_source_init(&source, driver, &turn, in, &req->err) < 0 ||
	    creation_init(&creation, driver, in, &req->err) < 0 ||
	    copy_turn_begin(&turn, driver, volume_source_export(&source), &creation.export, req,
			    &req->err) < 0 ||
	    creation_read_source(&creation, in, &source, &req->err) < 0) {
		closure(NULL, data);
		return;
	}
	r = create_volume(driver, &creation, &source, &req->err);
	if (r < 0)
		session_check_final(driver, &creation.export, &creation.params.owner, STORE_VOLUMES,
				    creation.key, &req->err);
	else if (creation_set_address(&creation, in, source.text) < 0)
		r = error_oom(&req->err);
	if (r < 0 || create_volume_reply(&creation, closure, data, &req->err) < 0)
		closure(NULL, data);
}
