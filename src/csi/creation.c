/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/creation.h"

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
			r = volume_set_context(&x->record, csi_map_key(map, i),
					       csi_map_value(map, i));
	if (r == 0)
		r = volume_set_context(&x->record, spelling(map, "subDir", "subdir"), dir);
	if (r == 0 && csi_map_get(map, "server") == NULL)
		r = volume_set_context(&x->record, "server", x->params.server);
	if (r == 0 && csi_map_get(map, "share") == NULL)
		r = volume_set_context(&x->record, "share", x->params.share);
	return r;
}

const char *creation_directory(const struct creation *x)
{
	return x->params.subdir != NULL ? x->params.subdir : x->key;
}

/*
 * What the volume's directory may be. A claim costs one more write when it is decided, which volumes
 * named by default do without.
 */
static enum volume_claim claim_of(const struct volume_params *p)
{
	const bool takes_any = p->has_existing && p->existing == EXISTING_ADOPT;

	if (takes_any || (!p->has_existing && !p->has_variables))
		return CLAIM_NONE;
	return p->subdir == NULL || p->has_variables ? CLAIM_EXCLUSIVE : CLAIM_SHARED;
}

static int compare_pairs(const void *a, const void *b)
{
	const struct record_pair *one = a, *other = b;

	return strcmp(one->key, other->key);
}

static int describe(struct creation *x, const Csi__V1__CreateVolumeRequest *in, const char *source,
		    int64_t size, struct error *err)
{
	const struct csi_map map = csi_map_of(in, parameters);
	const struct volume_params *p = &x->params;
	cleanup_free char *id = creation_volume_id(x);
	struct record *rec = &x->record;
	const struct volume v = {
		.name = in->name,
		.id = id,
		.dir = creation_directory(x),
		.size = size,
		.mode = p->mode,
		.owner = p->owner,
		.on_delete = on_delete_name(p->on_delete),
		.has_existing = p->has_existing,
		.existing = p->existing,
		.claim = claim_of(p),
		.source = source,
		.port = x->export.port,
		.mount_port = x->export.mount_port,
		.sec = x->sec,
	};
	size_t first;

	if (id == NULL || volume_describe(rec, &v) < 0)
		return error_oom(err);
	first = rec->n;
	if (put_contexts(x, &map, v.dir) < 0)
		return error_oom(err);
	/* A retry has the map in any order, and its record is to be the same. */
	qsort(rec->pairs + first, rec->n - first, sizeof(*rec->pairs), compare_pairs);
	return 0;
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
	return describe(x, in, source->text, size, err);
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
