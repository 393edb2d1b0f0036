/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/validate.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mount_options.h"
#include "base/str.h"

int validate_required(const char *value, const char *field, struct error *err)
{
	if (value[0] == '\0')
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s is required, but missing", field);
	return 0;
}

/* Control characters except tab, line feed and carriage return; and U+0080 to U+009F. */
static bool is_banned_character(const unsigned char *p)
{
	if (p[0] < 0x20)
		return p[0] != '\t' && p[0] != '\n' && p[0] != '\r';
	if (p[0] == 0x7f)
		return true;
	return p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f;
}

int validate_name(const char *name, struct error *err)
{
	size_t len = strlen(name);
	const char *p;
	int r;

	r = validate_required(name, "name", err);
	if (r < 0)
		return r;
	if (len > CSI_STRING_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "name: has %zu bytes, the limit is %d", len, CSI_STRING_MAX);
	for (p = name; *p != '\0'; p++)
		if (is_banned_character((const unsigned char *)p))
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "name: contains a control character");
	return 0;
}

/* Any length and form is valid: an id that csi-nfs cannot have made is unknown, not invalid. */
int validate_volume_id(const char *id, struct error *err)
{
	return validate_required(id, "volume_id", err);
}

static bool has_dot_dot(const char *path)
{
	for (;;) {
		size_t n = strcspn(path, "/");

		if (n == 2 && path[0] == '.' && path[1] == '.')
			return true;
		if (path[n] == '\0')
			return false;
		path += n + 1;
	}
}

/* Whether the path has only empty and "." components. */
static bool path_is_root(const char *path)
{
	for (;;) {
		size_t n = strcspn(path, "/");

		if (n > 1 || (n == 1 && path[0] != '.'))
			return false;
		if (path[n] == '\0')
			return true;
		path += n + 1;
	}
}

int validate_path(const char *path, const char *field, struct error *err)
{
	int r = validate_required(path, field, err);

	if (r < 0)
		return r;
	if (path[0] != '/')
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: must be an absolute path",
				 field);
	if (strlen(path) > CSI_PATH_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: has %zu bytes, the limit is %d",
				 field, strlen(path), CSI_PATH_MAX);
	if (path_is_root(path))
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: must not be the root directory",
				 field);
	if (has_dot_dot(path))
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: must not contain '..'", field);
	return 0;
}

int validate_map_size(size_t size, const char *field, struct error *err)
{
	if (size > CSI_MAP_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: has %zu bytes, the limit is %d",
				 field, size, CSI_MAP_MAX);
	return 0;
}

int validate_map(const struct csi_map *map, const char *field, struct error *err)
{
	size_t total = 0, i;

	for (i = 0; i < map->n; i++)
		total += strlen(csi_map_key(map, i)) + strlen(csi_map_value(map, i));
	return validate_map_size(total, field, err);
}

static bool mode_is_known(Csi__V1__VolumeCapability__AccessMode__Mode mode)
{
	return mode >= CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_WRITER &&
	       mode <= CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_MULTI_WRITER;
}

static int validate_flags(const Csi__V1__VolumeCapability__MountVolume *mount, struct error *err)
{
	size_t total = 0, i;

	for (i = 0; i < mount->n_mount_flags; i++) {
		total += strlen(mount->mount_flags[i]);
		if (str_has_control(mount->mount_flags[i]))
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "mount_flags: hold a control character");
	}
	if (total > CSI_FLAGS_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mount_flags: have %zu bytes, the limit is %d", total,
				 CSI_FLAGS_MAX);
	return 0;
}

int validate_capability(const Csi__V1__VolumeCapability *cap, struct error *err)
{
	if (cap->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "volume_capability: block volumes are not supported, NFS has files only");
	if (cap->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "volume_capability: access_type is required");
	if (cap->access_mode == NULL ||
	    cap->access_mode->mode == CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__UNKNOWN)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "volume_capability: access_mode is required");
	if (!mode_is_known(cap->access_mode->mode))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "volume_capability: access_mode %d is not known",
				 (int)cap->access_mode->mode);
	return validate_flags(cap->mount, err);
}

bool fs_type_is_nfs(const char *type)
{
	return type[0] == '\0' || strcmp(type, "nfs") == 0 || strcmp(type, "nfs4") == 0;
}

int validate_capabilities(Csi__V1__VolumeCapability *const *caps, size_t n, struct error *err)
{
	size_t i;
	int r;

	if (n == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "volume_capabilities: missing, at least one is required");
	for (i = 0; i < n; i++) {
		cleanup_free char *options = NULL;

		r = validate_capability(caps[i], err);
		if (r < 0)
			return r;
		if (!fs_type_is_nfs(caps[i]->mount->fs_type))
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "volume_capability: fs_type must be nfs, nfs4 or omitted");
		options = capability_options(caps[i]);
		r = options != NULL ? mount_options_check(options, err) : error_oom(err);
		if (r < 0)
			return r;
	}
	return 0;
}

bool access_mode_is_exclusive(const Csi__V1__VolumeCapability *cap)
{
	return cap->access_mode->mode ==
	       CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_SINGLE_WRITER;
}

char *capability_options(const Csi__V1__VolumeCapability *cap)
{
	const Csi__V1__VolumeCapability__MountVolume *mount = cap->mount;
	cleanup_buf struct buf b = { 0 };
	size_t i;

	for (i = 0; i < mount->n_mount_flags; i++)
		if (mount_options_append(&b, mount->mount_flags[i]) < 0)
			return NULL;
	return buf_steal(&b);
}

struct volume_capacity capacity_of(const Csi__V1__CapacityRange *range)
{
	struct volume_capacity capacity = { .required = 0 };

	if (range != NULL) {
		capacity.required = range->required_bytes;
		capacity.limit = range->limit_bytes;
	}
	return capacity;
}

int validate_capacity(const struct volume_capacity *capacity, int64_t *ret_size, struct error *err)
{
	if (capacity->required < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "capacity_range: required_bytes must not be negative");
	if (capacity->limit < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "capacity_range: limit_bytes must not be negative");
	if (capacity->limit > 0 && capacity->limit < capacity->required)
		return error_set(err, ERROR_OUT_OF_RANGE,
				 "capacity_range: limit_bytes is below required_bytes");
	*ret_size = capacity->required > 0 ? capacity->required : capacity->limit;
	return 0;
}
