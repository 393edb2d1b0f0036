/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "csi/validate.h"
#include "net/address.h"
#include "nfs/export.h"
#include "store/layout.h"

#define MODE_MAX 07777
#define SIDECAR_PREFIX "csi.storage.k8s.io/"

void volume_params_done(struct volume_params *p)
{
	free(p->server);
	free(p->share);
	free(p->subdir);
	free(p->on_delete_text);
	free(p->mount_options);
	*p = (struct volume_params){ .server = NULL };
}

int param_set_string(char **to, const char *value, struct error *err)
{
	free(*to);
	*to = strdup(value);
	return *to != NULL ? 0 : error_oom(err);
}

int param_set_server(char **to, const char *value, struct error *err)
{
	free(*to);
	*to = net_server_without_brackets(value);
	return *to != NULL ? 0 : error_oom(err);
}

int param_set_share(char **to, const char *value, struct error *err)
{
	int r;

	if (value[0] == '\0')
		return error_set(err, ERROR_INVALID_ARGUMENT, "share: must not be empty");
	r = nfs_share_check(value, err);
	return r < 0 ? r : param_set_string(to, value, err);
}

static int take_server(struct volume_params *p, const char *value, struct error *err)
{
	return param_set_server(&p->server, value, err);
}

static int take_share(struct volume_params *p, const char *value, struct error *err)
{
	return param_set_share(&p->share, value, err);
}

/* A node makes no volume ids, and csi-driver-nfs has mounted such paths. */
static int take_mounted_share(struct volume_params *p, const char *value, struct error *err)
{
	int r;

	if (value[0] == '\0')
		return take_share(p, value, err);
	r = nfs_share_check_mounted(value, err);
	return r < 0 ? r : param_set_string(&p->share, value, err);
}

static int take_on_delete(struct volume_params *p, const char *value, struct error *err)
{
	if (value[0] == '\0')
		return 0; /* the default, as in csi-driver-nfs */
	if (on_delete_parse(value, &p->on_delete) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "onDelete: must be delete, retain or archive");
	p->given |= MUTABLE_ON_DELETE;
	return param_set_string(&p->on_delete_text, value, err);
}

static int take_mode(struct volume_params *p, const char *value, struct error *err)
{
	uint64_t mode;

	if (value[0] == '\0')
		return 0;
	if (str_parse_u64(value, 8, MODE_MAX, &mode) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mountPermissions: must be an octal number from 0 to 7777");
	p->mode = (uint32_t)mode;
	p->given |= MUTABLE_MODE;
	return 0;
}

/* UINT32_MAX means "no id" to the kernel. */
static int parse_id(const char *key, const char *value, bool *ret_has, uint32_t *ret,
		    struct error *err)
{
	uint64_t id;

	if (value[0] == '\0')
		return 0;
	if (str_parse_u64(value, 10, UINT32_MAX - 1, &id) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "%s: must be a number from 0 to 4294967294", key);
	*ret = (uint32_t)id;
	*ret_has = true;
	return 0;
}

static int take_uid(struct volume_params *p, const char *value, struct error *err)
{
	return parse_id("uid", value, &p->owner.has_uid, &p->owner.uid, err);
}

static int take_gid(struct volume_params *p, const char *value, struct error *err)
{
	return parse_id("gid", value, &p->owner.has_gid, &p->owner.gid, err);
}

/* Parameters that csi-provisioner adds with --extra-create-metadata. */
static const struct {
	const char *variable;
	const char *key;
} variables[] = {
	{ "pvc.metadata.name", SIDECAR_PREFIX "pvc/name" },
	{ "pvc.metadata.namespace", SIDECAR_PREFIX "pvc/namespace" },
	{ "pv.metadata.name", SIDECAR_PREFIX "pv/name" },
};

/* Return NULL with the error set for an unknown variable, "" where the sidecar gave no value. */
static const char *variable_value(const char *name, size_t len, const struct csi_map *map,
				  struct error *err)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(variables); i++) {
		const char *value;

		if (strlen(variables[i].variable) != len ||
		    strncmp(variables[i].variable, name, len) != 0)
			continue;
		value = csi_map_get(map, variables[i].key);
		return value != NULL ? value : "";
	}
	(void)error_set(err, ERROR_INVALID_ARGUMENT,
			"subDir: unknown variable in ${...}: valid variables are pvc.metadata.name, pvc.metadata.namespace and pv.metadata.name");
	return NULL;
}

/* Append a slice ("OFFSET" or "OFFSET:LENGTH" in bytes, as in the shell) of value. */
static int put_slice(struct buf *b, const char *value, const char *slice, struct error *err)
{
	cleanup_strv struct strv numbers = { NULL, 0 };
	uint64_t offset = 0, length = PATH_LENGTH_MAX;
	size_t have = strlen(value);

	if (strv_split(&numbers, slice, ':') < 0)
		return error_oom(err);
	if (numbers.n > 2 || str_parse_u64(numbers.items[0], 10, PATH_LENGTH_MAX, &offset) < 0 ||
	    (numbers.n == 2 && str_parse_u64(numbers.items[1], 10, PATH_LENGTH_MAX, &length) < 0))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "subDir: after ':' in ${...}, OFFSET, OFFSET:LENGTH or -DEFAULT is expected");
	if (offset > have)
		offset = have;
	if (length > have - offset)
		length = have - offset;
	if (!str_is_utf8(value + offset, (size_t)length))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "subDir: an offset or length in ${...} cuts a character");
	return buf_append(b, value + offset, (size_t)length) < 0 ? error_oom(err) : 0;
}

/* Append the text between "${" and "}": a variable, optionally with a slice or a default. */
static int put_variable(struct buf *b, const char *text, size_t len, const struct csi_map *map,
			struct error *err)
{
	const char *colon = memchr(text, ':', len);
	size_t name_len = colon != NULL ? (size_t)(colon - text) : len;
	cleanup_free char *suffix = strndup(text + name_len, len - name_len);
	const char *value = variable_value(text, name_len, map, err);

	if (suffix == NULL)
		return error_oom(err);
	if (value == NULL)
		return -EINVAL;
	if (str_has_prefix(suffix, ":-")) {
		const char *chosen = value[0] != '\0' ? value : suffix + 2;

		if (strstr(suffix, "${") != NULL)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "subDir: the default in ${...:-DEFAULT} is plain text, not another ${...}");
		return buf_puts(b, chosen) < 0 ? error_oom(err) : 0;
	}
	if (value[0] == '\0')
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "subDir: ${%.*s} has no value: run the provisioner with --extra-create-metadata, or give a default with ':-'",
				 (int)name_len, text);
	if (suffix[0] != '\0')
		return put_slice(b, value, suffix + 1, err);
	return buf_puts(b, value) < 0 ? error_oom(err) : 0;
}

/*
 * The same for a node. csi-driver-nfs leaves a variable that it does not know, or has no value for,
 * as a part of the directory's name.
 */
static int put_known_variable(struct buf *b, const char *text, size_t len,
			      const struct csi_map *map, struct error *err)
{
	const char *value = variable_value(text, len, map, NULL);
	int r;

	if (str_is_empty(value))
		r = buf_printf(b, "${%.*s}", (int)len, text);
	else
		r = buf_puts(b, value);
	return r < 0 ? error_oom(err) : 0;
}

static int fill_template(const char *template, const struct csi_map *map, bool for_node,
			 struct buf *b, struct error *err)
{
	const char *p = template;

	for (;;) {
		const char *start = strstr(p, "${");
		const char *end = start != NULL ? strchr(start, '}') : NULL;
		int r;

		if (end == NULL && for_node)
			start = NULL;
		if (buf_append(b, p, start != NULL ? (size_t)(start - p) : strlen(p)) < 0)
			return error_oom(err);
		if (start == NULL)
			return 0;
		if (end == NULL)
			return error_set(err, ERROR_INVALID_ARGUMENT, "subDir: ${ without }");
		r = (for_node ? put_known_variable
			      : put_variable)(b, start + 2, (size_t)(end - start - 2), map, err);
		if (r < 0)
			return r;
		p = end + 1;
	}
}

static int check_subdir(const char *subdir, bool for_node, struct error *err)
{
	int r = (for_node ? path_check_mounted : path_check_relative)(subdir, "subDir", err);

	if (r < 0)
		return r;
	if (path_has_component(subdir, NFS_STATE_DIR))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "subDir: %s is where csi-nfs keeps its records", NFS_STATE_DIR);
	return 0;
}

static int take_subdir(struct volume_params *p, const char *value, struct error *err)
{
	return value[0] == '\0' ? 0 : param_set_string(&p->subdir, value, err);
}

/* Replace the template, which may use any entry of the map, by what it stands for. */
static int fill_subdir(struct volume_params *p, const struct csi_map *map, bool for_node,
		       struct error *err)
{
	cleanup_buf struct buf b = { 0 };
	cleanup_free char *filled = NULL, *trimmed = NULL;
	int r;

	r = fill_template(p->subdir, map, for_node, &b, err);
	if (r < 0)
		return r;
	filled = buf_steal(&b);
	trimmed = filled != NULL ? path_trim(filled) : NULL;
	if (trimmed == NULL)
		return error_oom(err);
	/* csi-driver-nfs mounts the root of the share for "/". */
	if (for_node && trimmed[0] == '\0') {
		free(steal_ptr(&p->subdir));
		return 0;
	}
	r = check_subdir(trimmed, for_node, err);
	if (r < 0)
		return r;
	p->has_variables = strstr(p->subdir, "${") != NULL;
	free(p->subdir);
	p->subdir = steal_ptr(&trimmed);
	return 0;
}

static int take_existing(struct volume_params *p, const char *value, struct error *err)
{
	if (existing_parse(value, &p->existing) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "existingDirectory: must be adopt, require or refuse");
	p->has_existing = true;
	return 0;
}

static int take_mount_options(struct volume_params *p, const char *value, struct error *err)
{
	return param_set_string(&p->mount_options, value, err);
}

static int take_fstype(struct volume_params *p, const char *value, struct error *err)
{
	(void)p;
	if (fs_type_is_nfs(value))
		return 0;
	return error_set(err, ERROR_INVALID_ARGUMENT, "fsType: must be nfs, nfs4 or omitted");
}

enum param_flags {
	PARAM_CREATE = 1 << 0, /* allowed in a StorageClass */
	PARAM_ATTRIBUTE = 1 << 1, /* read from volume attributes */
	PARAM_LOCATION = 1 << 2, /* names the share */
	PARAM_MUTABLE = 1 << 3, /* allowed in a VolumeAttributesClass */
};

static const struct {
	const char *key;
	unsigned int flags;
	int (*take)(struct volume_params *p, const char *value, struct error *err);
} params[] = {
	{ "server", PARAM_CREATE | PARAM_ATTRIBUTE | PARAM_LOCATION, take_server },
	{ "share", PARAM_CREATE | PARAM_LOCATION, take_share },
	{ "share", PARAM_ATTRIBUTE, take_mounted_share },
	{ "subDir", PARAM_CREATE | PARAM_ATTRIBUTE, take_subdir },
	{ "mountPermissions", PARAM_CREATE | PARAM_ATTRIBUTE | PARAM_MUTABLE, take_mode },
	{ "uid", PARAM_CREATE | PARAM_MUTABLE, take_uid },
	{ "gid", PARAM_CREATE | PARAM_MUTABLE, take_gid },
	{ "onDelete", PARAM_CREATE | PARAM_MUTABLE, take_on_delete },
	{ "existingDirectory", PARAM_CREATE, take_existing },
	{ "mountOptions", PARAM_ATTRIBUTE, take_mount_options },
	{ "fstype", PARAM_CREATE, take_fstype },
};

bool param_is_of_sidecar(const char *key)
{
	static const char *const prefixes[] = {
		SIDECAR_PREFIX,         "storage.kubernetes.io/",
		"csiProvisionerSecret", "csiControllerPublishSecret",
		"csiNodeStageSecret",   "csiNodePublishSecret",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (str_has_prefix(key, prefixes[i]))
			return true;
	return false;
}

int param_check_spelling(const struct csi_map *map, size_t i, struct error *err)
{
	size_t j;

	for (j = i + 1; j < map->n; j++)
		if (str_eq_nocase(csi_map_key(map, i), csi_map_key(map, j)))
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "'%.64s' is given twice (keys are case-insensitive)",
					 csi_map_key(map, i));
	return 0;
}

static int take_parameter(struct volume_params *p, const struct csi_map *map, size_t i,
			  unsigned int flags, struct error *err)
{
	const char *key = csi_map_key(map, i);
	size_t k;
	int r;

	for (k = 0; k < ARRAY_SIZE(params); k++) {
		if (!(params[k].flags & flags) || !str_eq_nocase(key, params[k].key))
			continue;
		r = param_check_spelling(map, i, err);
		if (r < 0)
			return r;
		return params[k].take(p, csi_map_value(map, i), err);
	}
	if (param_is_of_sidecar(key))
		return 0;
	if (flags == PARAM_CREATE)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "parameters: unknown parameter '%.64s' in the StorageClass", key);
	if (flags == PARAM_MUTABLE)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mutable_parameters: unknown parameter '%.64s' in the VolumeAttributesClass; valid parameters are mountPermissions, uid, gid and onDelete",
				 key);
	return 0;
}

static int take_entries(struct volume_params *p, const struct csi_map *map, unsigned int flags,
			struct error *err)
{
	size_t i;
	int r;

	for (i = 0; i < map->n; i++) {
		if (csi_map_is_replaced(map, i))
			continue;
		r = take_parameter(p, map, i, flags, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int volume_location_check(const char *server, const char *share, struct error *err)
{
	int r = net_server_check(server, err);

	return r < 0 ? r : nfs_share_check(share, err);
}

static int check_location(const struct volume_params *p, const char *where, struct error *err)
{
	if (p->server == NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "server: missing in the %s, and csi-nfs has no default (--server)",
				 where);
	if (p->share == NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "share: missing in the %s, and csi-nfs has no default (--share)",
				 where);
	return net_server_check(p->server, err);
}

static int parse(struct volume_params *ret, const struct csi_map *map, unsigned int flags,
		 const struct volume_defaults *defaults, const char *where, struct error *err)
{
	cleanup_volume_params struct volume_params p = { .mode = defaults->mode,
							 .on_delete = defaults->on_delete };
	int r;

	if (defaults->server != NULL) {
		r = take_server(&p, defaults->server, err);
		if (r < 0)
			return r;
	}
	if (defaults->share != NULL) {
		r = take_share(&p, defaults->share, err);
		if (r < 0)
			return r;
	}
	r = take_entries(&p, map, flags, err);
	if (r < 0)
		return r;
	if (p.subdir != NULL) {
		r = fill_subdir(&p, map, flags == PARAM_ATTRIBUTE, err);
		if (r < 0)
			return r;
	}
	r = check_location(&p, where, err);
	if (r < 0)
		return r;
	*ret = p;
	p = (struct volume_params){ .server = NULL };
	return 0;
}

int volume_params_parse(struct volume_params *ret, const struct csi_map *map,
			const struct volume_defaults *defaults, struct error *err)
{
	return parse(ret, map, PARAM_CREATE, defaults, "StorageClass", err);
}

/*
 * Count only what belongs to the volume. csi-provisioner adds its identity, and kubelet what the
 * CSIDriver asks for: the tokens of a service account alone can be larger than the limit.
 */
static int check_attributes_size(const struct csi_map *map, struct error *err)
{
	size_t total = 0, i;

	for (i = 0; i < map->n; i++)
		if (!param_is_of_sidecar(csi_map_key(map, i)))
			total += strlen(csi_map_key(map, i)) + strlen(csi_map_value(map, i));
	return validate_map_size(total, "volume_context", err);
}

int volume_attributes_parse(struct volume_params *ret, const struct csi_map *map,
			    const struct volume_defaults *defaults, struct error *err)
{
	int r = check_attributes_size(map, err);

	return r < 0 ? r : parse(ret, map, PARAM_ATTRIBUTE, defaults, "volume attributes", err);
}

int volume_location_parse(struct volume_params *ret, const struct csi_map *map,
			  const struct volume_defaults *defaults, struct error *err)
{
	return parse(ret, map, PARAM_LOCATION, defaults, "parameters", err);
}

int volume_mutable_parse(struct volume_params *ret, const struct csi_map *map, struct error *err)
{
	return take_entries(ret, map, PARAM_MUTABLE, err);
}
