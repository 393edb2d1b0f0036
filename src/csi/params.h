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
#include "tree/archive.h"

enum volume_on_delete { ON_DELETE_DELETE, ON_DELETE_RETAIN, ON_DELETE_ARCHIVE };

/* What a directory that is there already, of a subDir, means to a new volume. */
enum volume_existing {
	EXISTING_ADOPT, /* it becomes the volume, with what is in it, as csi-driver-nfs does */
	EXISTING_REQUIRE, /* it has to be there: none is made */
	EXISTING_REFUSE, /* it must not be there */
};

/* Who a volume's directory belongs to, and so the identity of the calls about it. */
struct volume_owner {
	bool has_uid, has_gid; /* what is not given is the process's own */
	uint32_t uid, gid;
};

/* What a VolumeAttributesClass may set and change. */
enum volume_mutable {
	MUTABLE_MODE = 1 << 0,
	MUTABLE_OWNER = 1 << 1,
	MUTABLE_ON_DELETE = 1 << 2,
};

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

/* "delete", "retain" or "archive", in any case; "" is delete. Returns 0 or -EINVAL. */
int on_delete_parse(const char *text, enum volume_on_delete *ret);
const char *on_delete_name(enum volume_on_delete value);

/* "adopt", "require" or "refuse", in any case. Returns 0 or -EINVAL. */
int existing_parse(const char *text, enum volume_existing *ret);
const char *existing_name(enum volume_existing value);

void volume_params_done(struct volume_params *p);
#define cleanup_volume_params __attribute__((cleanup(volume_params_done)))

#endif
