/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/creation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "store/volume.h"

void creation_done(struct creation *x)
{
	volume_params_done(&x->params);
	nfs_export_done(&x->export);
	free(x->key);
	free(x->sec);
	record_done(&x->record);
}

/* NFS has no file system type to choose; what says "NFS" anyway is harmless. */
static int check_fs_types(const Csi__V1__CreateVolumeRequest *in, struct error *err)
{
	size_t i;

	for (i = 0; i < in->n_volume_capabilities; i++) {
		const char *type = in->volume_capabilities[i]->mount->fs_type;

		if (!fs_type_is_nfs(type))
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "volume_capability: fs_type must be nfs, nfs4 or not given");
	}
	return 0;
}

static int check_create(const Csi__V1__CreateVolumeRequest *in, struct error *err)
{
	const struct csi_map parameters = csi_map_of(in, parameters);
	const struct csi_map mutable = csi_map_of(in, mutable_parameters);
	int r;

	r = validate_name(in->name, err);
	if (r == 0)
		r = validate_capabilities(in->volume_capabilities, in->n_volume_capabilities, err);
	if (r == 0)
		r = validate_map(&parameters, "parameters", err);
	if (r == 0)
		r = validate_map(&mutable, "mutable_parameters", err);
	if (r < 0)
		return r;
	r = check_fs_types(in, err);
	if (r < 0)
		return r;
	return 0;
}

/* The security flavour of the mounts: the record tells it, the controller itself has sec=sys only. */
static int take_sec(struct creation *x, const char *options, struct error *err)
{
	cleanup_strv struct strv v = { NULL, 0 };
	size_t i;

	if (str_is_empty(options))
		return 0;
	if (strv_split(&v, options, ',') < 0)
		return error_oom(err);
	for (i = 0; i < v.n; i++) {
		if (!str_has_prefix(v.items[i], "sec="))
			continue;
		free(x->sec);
		x->sec = strdup(v.items[i] + strlen("sec="));
		if (x->sec == NULL)
			return error_oom(err);
	}
	return 0;
}

/*
 * Which version and ports to use: of the provisioner secret, as csi-driver-nfs has it, then of the
 * mount flags of the capabilities, which speak for this volume.
 */
static int apply_options(const Csi__V1__CreateVolumeRequest *in, struct creation *x, struct error *err)
{
	struct nfs_export *e = &x->export;
	const struct csi_map secrets = csi_map_of(in, secrets);
	size_t i;
	int r;

	r = nfs_export_apply_options(e, csi_map_get(&secrets, SECRET_MOUNT_OPTIONS), err);
	if (r == 0)
		r = take_sec(x, csi_map_get(&secrets, SECRET_MOUNT_OPTIONS), err);
	for (i = 0; i < in->n_volume_capabilities && r == 0; i++) {
		cleanup_free char *options = capability_options(in->volume_capabilities[i]);

		if (options == NULL)
			return error_oom(err);
		r = nfs_export_apply_options(e, options, err);
		if (r == 0)
			r = take_sec(x, options, err);
	}
	return r;
}

static int put_context(struct record *rec, const char *key, const char *value)
{
	char prefixed[CSI_MAP_MAX + sizeof(VOLUME_CONTEXT_PREFIX)];

	(void)snprintf(prefixed, sizeof(prefixed), "%s%s", VOLUME_CONTEXT_PREFIX, key);
	return record_set(rec, prefixed, value);
}

/* The spelling that the StorageClass has for a key, or the one given. */
static const char *spelling(const struct csi_map *map, const char *key, const char *otherwise)
{
	size_t i;

	for (i = 0; i < map->n; i++)
		if (str_eq_nocase(csi_map_key(map, i), key))
			return csi_map_key(map, i);
	return otherwise;
}

/*
 * The volume_context: all parameters as they were given, with the subDir filled in, as
 * csi-driver-nfs returns them, and the defaults where the StorageClass leaves them out.
 */
static int put_contexts(struct creation *x, const struct csi_map *map, const char *dir)
{
	size_t i;
	int r = 0;

	for (i = 0; i < map->n && r == 0; i++)
		if (!csi_map_is_replaced(map, i))
			r = put_context(&x->record, csi_map_key(map, i), csi_map_value(map, i));
	if (r == 0)
		r = put_context(&x->record, spelling(map, "subDir", "subdir"), dir);
	if (r == 0 && csi_map_get(map, "server") == NULL)
		r = put_context(&x->record, "server", x->params.server);
	if (r == 0 && csi_map_get(map, "share") == NULL)
		r = put_context(&x->record, "share", x->params.share);
	return r;
}

const char *creation_directory(const struct creation *x)
{
	return x->params.subdir != NULL ? x->params.subdir : x->key;
}

static int put_number(struct record *rec, const char *key, uint32_t value)
{
	char number[16];

	(void)snprintf(number, sizeof(number), "%" PRIu32, value);
	return record_set(rec, key, number);
}

/* The owner, and how the server was spoken to; the version is put there by volume_create(). */
static int put_way(struct creation *x)
{
	const struct volume_owner *owner = &x->params.owner;
	struct record *rec = &x->record;
	int r = 0;

	if (owner->has_uid)
		r = put_number(rec, VOLUME_KEY_UID, owner->uid);
	if (r == 0 && owner->has_gid)
		r = put_number(rec, VOLUME_KEY_GID, owner->gid);
	if (r == 0 && x->export.port != 0)
		r = put_number(rec, VOLUME_KEY_PORT, x->export.port);
	if (r == 0 && x->export.mount_port != 0)
		r = put_number(rec, VOLUME_KEY_MOUNT_PORT, x->export.mount_port);
	if (r == 0 && x->sec != NULL)
		r = record_set(rec, VOLUME_KEY_SEC, x->sec);
	return r;
}

/*
 * What the volume's directory may be. A claim costs one more write when it is decided, which volumes
 * named by default do without.
 */
static int put_claim(struct creation *x)
{
	const struct volume_params *p = &x->params;
	const bool takes_any = p->has_existing && p->existing == EXISTING_ADOPT;
	const bool exclusive = !takes_any && (p->subdir == NULL || p->has_variables);
	struct record *rec = &x->record;
	int r = 0;

	if (p->has_existing)
		r = record_set(rec, VOLUME_KEY_EXISTING, existing_name(p->existing));
	if (r < 0 || takes_any || (!p->has_existing && !p->has_variables))
		return r;
	return record_set(rec, VOLUME_KEY_CLAIM,
			  exclusive ? VOLUME_CLAIM_EXCLUSIVE : VOLUME_CLAIM_SHARED);
}

static int compare_pairs(const void *a, const void *b)
{
	const struct record_pair *one = a, *other = b;

	return strcmp(one->key, other->key);
}

static int describe(struct creation *x, const Csi__V1__CreateVolumeRequest *in, int64_t size,
		    struct error *err)
{
	const struct csi_map map = csi_map_of(in, parameters);
	const char *dir = creation_directory(x);
	cleanup_free char *id = creation_volume_id(x);
	struct record *rec = &x->record;
	char number[32], mode[8];
	size_t first;
	int r;

	(void)snprintf(number, sizeof(number), "%" PRId64, size);
	(void)snprintf(mode, sizeof(mode), "%04o", x->params.mode);
	r = id != NULL ? record_set(rec, VOLUME_KEY_NAME, in->name) : -ENOMEM;
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_ID, id);
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_DIR, dir);
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_SIZE, number);
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_MODE, mode);
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_ON_DELETE, on_delete_name(x->params.on_delete));
	if (r == 0)
		r = put_claim(x);
	if (r == 0)
		r = put_way(x);
	first = rec->n;
	if (r == 0)
		r = put_contexts(x, &map, dir);
	/* A retry has the map in any order, and its record is to be the same. */
	if (r == 0)
		qsort(rec->pairs + first, rec->n - first, sizeof(*rec->pairs), compare_pairs);
	return r < 0 ? error_oom(err) : 0;
}

/* What is copied has to fit; and where no size is asked for, it is the source's. */
static void check_source_size(struct volume_source *source, int64_t *size)
{
	if (*size == 0)
		*size = source->size;
	/* A volume that is finished may be smaller than its source is now. */
	if (*size < source->size)
		(void)error_set(&source->missing, ERROR_OUT_OF_RANGE,
				"capacity_range: the source has %" PRId64 " bytes, which is more",
				source->size);
}

int creation_init(struct creation *x, const struct csi_driver *driver,
		  const Csi__V1__CreateVolumeRequest *in, struct volume_source *source, struct error *err)
{
	const struct volume_defaults defaults = csi_driver_defaults(driver);
	const struct csi_map map = csi_map_of(in, parameters);
	const struct csi_map mutable = csi_map_of(in, mutable_parameters);
	cleanup_free char *share = NULL;
	int64_t size;
	int r;

	*x = (struct creation){ .capacity = capacity_of(in->capacity_range) };
	r = check_create(in, err);
	if (r == 0)
		r = validate_capacity(&x->capacity, &size, err);
	if (r == 0)
		check_source_size(source, &size);
	if (r == 0)
		r = volume_params_parse(&x->params, &map, &defaults, err);
	/* Those of the VolumeAttributesClass win (CSI specification, CreateVolumeRequest). */
	if (r == 0)
		r = volume_mutable_parse(&x->params, &mutable, err);
	if (r == 0)
		r = nfs_export_init(&x->export, x->params.server, x->params.share, err);
	if (r == 0)
		r = apply_options(in, x, err);
	if (r < 0)
		return r;
	share = path_trim(x->params.share);
	if (share == NULL)
		return error_oom(err);
	r = volume_key(in->name, x->params.server, share, &x->key, err);
	if (r < 0)
		return r;
	if (source->text != NULL && record_set(&x->record, VOLUME_KEY_SOURCE, source->text) < 0)
		return error_oom(err);
	return describe(x, in, size, err);
}

/*
 * The id in full, as csi-driver-nfs makes it; where that is too long for an id, with the key in place
 * of the subDir, which the record then tells.
 */
char *creation_volume_id(const struct creation *x)
{
	const struct volume_params *p = &x->params;
	const bool keeps = p->on_delete != ON_DELETE_DELETE;
	const char *on_delete =
		p->on_delete_text != NULL ? p->on_delete_text : on_delete_name(p->on_delete);
	cleanup_free char *share = path_trim(p->share);
	struct volume_id id = {
		.server = p->server,
		.share = share,
		.subdir = p->subdir != NULL ? p->subdir : x->key,
		.uuid = p->subdir != NULL ? x->key : (char *)(uintptr_t) "",
		.on_delete = (char *)(uintptr_t)(keeps ? on_delete : ""),
	};
	cleanup_free char *text = share != NULL ? volume_id_format(&id) : NULL;

	if (text == NULL || strlen(text) <= VOLUME_ID_MAX)
		return steal_ptr(&text);
	id.subdir = x->key;
	id.uuid = (char *)(uintptr_t) "";
	return volume_id_format(&id);
}
