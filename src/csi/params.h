/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * StorageClass parameters and volume attributes, named as in csi-driver-nfs. Keys are compared
 * without regard to case; an unknown key in a StorageClass is an error. Pure functions, any thread.
 */
#ifndef CSI_PARAMS_H
#define CSI_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "csi/map.h"
#include "store/settings.h"

/* Key of the secret that holds mount options, as in csi-driver-nfs. */
#define SECRET_MOUNT_OPTIONS "mountOptions"

struct volume_params {
	char *server; /* without brackets, or the default; NULL: there is neither */
	char *share; /* as given, or the default; NULL: there is neither */
	char *subdir; /* variables filled in, outer slashes trimmed; NULL: not given */
	char *on_delete_text; /* as given, for the volume id; NULL: not given */
	enum volume_on_delete on_delete;
	uint32_t mode; /* mountPermissions; 0: leave */
	struct volume_owner owner; /* uid and gid */
	unsigned int given; /* enum volume_mutable: the settings that the map has a value for */
	bool has_variables; /* subDir differs between volumes of the class */
	bool has_existing; /* existingDirectory was given */
	enum volume_existing existing; /* existingDirectory */
	char *mount_options; /* the volume attribute; NULL: none */
};

/* Values for what a StorageClass leaves out. */
struct volume_defaults {
	const char *server, *share; /* NULL: none */
	uint32_t mode;
	enum volume_on_delete on_delete;
};

/*
 * Parse the parameters of CreateVolume. Return 0, -EINVAL with INVALID_ARGUMENT that names the
 * parameter, or -ENOMEM. The caller calls volume_params_done().
 */
int volume_params_parse(struct volume_params *ret, const struct csi_map *map,
			const struct volume_defaults *defaults, struct error *err);

/*
 * Parse mutable_parameters into ret, overriding what is there. Errors as volume_params_parse(); the
 * caller still owns ret after one.
 */
int volume_mutable_parse(struct volume_params *ret, const struct csi_map *map, struct error *err);

/* As volume_params_parse(), but ignore all parameters except server and share. */
int volume_location_parse(struct volume_params *ret, const struct csi_map *map,
			  const struct volume_defaults *defaults, struct error *err);

/* Check that a server and a path on it can be an export. Errors as volume_params_parse(). */
int volume_location_check(const char *server, const char *share, struct error *err);

/* Parse volume attributes (volume_context). Unknown keys are ignored: COs add their own. */
int volume_attributes_parse(struct volume_params *ret, const struct csi_map *map,
			    const struct volume_defaults *defaults, struct error *err);

/*
 * For csi/snapshot_params.c, too. param_set_...() replace *to by a copy of the value, after checking
 * it. Return 0, -EINVAL with INVALID_ARGUMENT, or -ENOMEM.
 */
int param_set_string(char **to, const char *value, struct error *err);
int param_set_server(char **to, const char *value, struct error *err);
int param_set_share(char **to, const char *value, struct error *err);

/* Keys that sidecars add or pass on: prefixed keys, and the older names of secrets. */
bool param_is_of_sidecar(const char *key);

/* Refuse entry i if another one spells its key differently: it is unclear which of them counts. */
int param_check_spelling(const struct csi_map *map, size_t i, struct error *err);

void volume_params_done(struct volume_params *p);
#define cleanup_volume_params __attribute__((cleanup(volume_params_done)))

#endif
