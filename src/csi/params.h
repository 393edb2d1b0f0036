/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * StorageClass parameters and volume attributes, as csi-driver-nfs names them: keys are compared
 * without regard to case, and an unknown one is an error in a StorageClass. Pure functions, any
 * thread.
 */
#ifndef CSI_PARAMS_H
#define CSI_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "csi/map.h"
#include "store/settings.h"
#include "tree/archive.h"

struct volume_params {
	char *server; /* without brackets; the default where none is given; NULL: neither */
	char *share; /* likewise, as given */
	char *subdir; /* templates filled in, slashes around it trimmed; NULL: none given */
	char *on_delete_text; /* as given, for the volume id; NULL: none given */
	enum volume_on_delete on_delete;
	uint32_t mode; /* mountPermissions; 0: leave */
	struct volume_owner owner; /* uid and gid */
	unsigned int given; /* of enum volume_mutable: what the map had a value for */
	bool has_variables; /* subDir is not the same for all volumes of the class */
	bool has_existing; /* existingDirectory was given */
	enum volume_existing existing; /* existingDirectory */
	char *mount_options; /* the volume attribute; NULL: none */
};

/* Where the defaults come from. */
struct volume_defaults {
	const char *server, *share; /* NULL: none */
	uint32_t mode;
	enum volume_on_delete on_delete;
};

/*
 * Reads the parameters of CreateVolume. Returns 0, or -EINVAL with INVALID_ARGUMENT that names the
 * parameter, or -ENOMEM. The caller calls volume_params_done().
 */
int volume_params_parse(struct volume_params *ret, const struct csi_map *map,
			const struct volume_defaults *defaults, struct error *err);

/*
 * Reads mutable_parameters into ret, over what is there already. Errors as volume_params_parse(); ret
 * stays the caller's to free.
 */
int volume_mutable_parse(struct volume_params *ret, const struct csi_map *map, struct error *err);

/* As volume_params_parse(), for server and share alone: every other parameter is passed over. */
int volume_location_parse(struct volume_params *ret, const struct csi_map *map,
			  const struct volume_defaults *defaults, struct error *err);

/* Whether a server and a path on it can be an export. Errors as volume_params_parse(). */
int volume_location_check(const char *server, const char *share, struct error *err);

/* Reads a volume's attributes (volume_context): unknown keys are left alone, COs add their own. */
int volume_attributes_parse(struct volume_params *ret, const struct csi_map *map,
			    const struct volume_defaults *defaults, struct error *err);

/* Of a VolumeSnapshotClass. */
struct snapshot_params {
	char *server, *share; /* where the archive goes; NULL: where the volume is */
	char *mount_options; /* NULL: none */
	enum tree_compression compression;
};

/* As volume_params_parse(), for CreateSnapshot. The caller calls snapshot_params_done(). */
int snapshot_params_parse(struct snapshot_params *ret, const struct csi_map *map,
			  enum tree_compression compression, struct error *err);
void snapshot_params_done(struct snapshot_params *p);

/* "", "nfs" and "nfs4": there is nothing to choose. */
bool fs_type_is_nfs(const char *type);

void volume_params_done(struct volume_params *p);
#define cleanup_volume_params __attribute__((cleanup(volume_params_done)))

#endif
