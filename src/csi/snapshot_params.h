/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The parameters of a VolumeSnapshotClass. Keys are compared without regard to case; an unknown key
 * is an error. Pure functions, any thread.
 */
#ifndef CSI_SNAPSHOT_PARAMS_H
#define CSI_SNAPSHOT_PARAMS_H

#include <stdbool.h>

#include "base/error.h"
#include "csi/map.h"
#include "tree/archive.h"

enum snapshot_format { SNAPSHOT_ARCHIVE, SNAPSHOT_TREE };

/* Parameters of a VolumeSnapshotClass. */
struct snapshot_params {
	char *server, *share; /* for the snapshot; NULL: those of the volume */
	char *mount_options; /* NULL: none */
	enum tree_compression compression; /* of an archive */
	bool has_compression; /* the class names it */
	enum snapshot_format format;
};

/*
 * Parse the parameters of CreateSnapshot; compression is the default. Return 0, -EINVAL with
 * INVALID_ARGUMENT that names the parameter, or -ENOMEM. The caller calls snapshot_params_done() in
 * any case.
 */
int snapshot_params_parse(struct snapshot_params *ret, const struct csi_map *map,
			  enum tree_compression compression, struct error *err);
void snapshot_params_done(struct snapshot_params *p);

#endif
