/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What the controller's calls work with: its settings, its locks and the rooms below. Made by main.c,
 * read-only afterwards, outlives every call.
 */
#ifndef CSI_DRIVER_H
#define CSI_DRIVER_H

#include <stdint.h>

#include "csi/exports.h"
#include "csi/inflight.h"
#include "csi/params.h"
#include "nfs/pool.h"
#include "store/purge.h"
#include "store/users.h"

struct csi_driver {
	const char *server; /* default where a StorageClass gives none; NULL: none */
	const char *share;
	uint32_t mount_permissions; /* default; 0: leave what the server gives */
	enum volume_on_delete on_delete; /* default */
	bool purge_now; /* what is deleted, within the call */
	bool replace_archive; /* by a new one of the same name */
	struct inflight *inflight;
	struct usage_table *usage;
	struct nfs_pool *pool;
	struct purger *purger;
	struct known_exports *known;
	enum tree_compression compression; /* default, of snapshots */
	bool get_snapshot; /* advertise GetSnapshot */
	bool verify_clones; /* read them again, and compare checksums */
	atomic_uint *transfers; /* copies and archives that are being made */
	const atomic_bool *stopping; /* long work is to end */
};

#endif
