/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/snapshot_params.h"

#include <errno.h>
#include <stdlib.h>

#include "base/str.h"
#include "csi/params.h"
#include "net/address.h"

static const char *const snapshot_formats[] = {
	[SNAPSHOT_ARCHIVE] = "archive",
	[SNAPSHOT_TREE] = "tree",
};

void snapshot_params_done(struct snapshot_params *p)
{
	free(p->server);
	free(p->share);
	free(p->mount_options);
	*p = (struct snapshot_params){ .server = NULL };
}

static int take_format(struct snapshot_params *p, const char *value, struct error *err)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(snapshot_formats); i++) {
		if (!str_eq_nocase(value, snapshot_formats[i]))
			continue;
		p->format = (enum snapshot_format)i;
		return 0;
	}
	return error_set(err, ERROR_INVALID_ARGUMENT, "format: must be archive or tree");
}

static int take_other(struct snapshot_params *p, const char *key, const char *value,
		      struct error *err)
{
	if (str_eq_nocase(key, "mountOptions"))
		return param_set_string(&p->mount_options, value, err);
	if (str_eq_nocase(key, "compression")) {
		if (tree_compression_parse(value, &p->compression) < 0)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "compression: must be none, gzip or zstd");
		p->has_compression = true;
		return 0;
	}
	if (str_eq_nocase(key, "format"))
		return take_format(p, value, err);
	if (param_is_of_sidecar(key))
		return 0;
	return error_set(err, ERROR_INVALID_ARGUMENT,
			 "parameters: unknown parameter '%.64s' in the VolumeSnapshotClass", key);
}

static int take_entry(struct snapshot_params *p, const struct csi_map *map, size_t i,
		      struct error *err)
{
	const char *key = csi_map_key(map, i), *value = csi_map_value(map, i);
	int r;

	r = param_check_spelling(map, i, err);
	if (r < 0)
		return r;
	if (str_eq_nocase(key, "server"))
		return param_set_server(&p->server, value, err);
	if (str_eq_nocase(key, "share"))
		return param_set_share(&p->share, value, err);
	return take_other(p, key, value, err);
}

int snapshot_params_parse(struct snapshot_params *ret, const struct csi_map *map,
			  enum tree_compression compression, struct error *err)
{
	size_t i;
	int r;

	*ret = (struct snapshot_params){ .compression = compression };
	for (i = 0; i < map->n; i++) {
		if (csi_map_is_replaced(map, i))
			continue;
		r = take_entry(ret, map, i, err);
		if (r < 0)
			return r;
	}
	if (ret->server != NULL) {
		r = net_server_check(ret->server, err);
		if (r < 0)
			return r;
	}
	if (ret->format == SNAPSHOT_TREE && ret->has_compression)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "compression: only archives have one; leave it out, or set format to archive");
	return 0;
}
