/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The source of a new volume's contents: another volume, or a snapshot, on the same server or
 * another. Worker threads; blocks, for as long as copying takes.
 */
#ifndef CSI_VOLUME_SOURCE_H
#define CSI_VOLUME_SOURCE_H

#include "csi/claim.h"
#include "csi/copy_turn.h"
#include "csi/snapshot_ref.h"
#include "csi/volume_ref.h"

enum volume_source_kind { VOLUME_SOURCE_NONE, VOLUME_SOURCE_IS_VOLUME, VOLUME_SOURCE_IS_SNAPSHOT };

struct volume_source {
	const struct csi_driver *driver;
	struct copy_turn *turn; /* of the call; borrowed */
	enum volume_source_kind kind;
	const char *what; /* name of the new volume, for the log; borrowed */
	const char *id; /* of the source; borrowed */
	struct volume_ref volume;
	struct snapshot_ref snapshot;
	struct dir_lock *dir_lock; /* keeps other calls from deleting the source */
	struct claim *use; /* keeps other replicas from deleting it */
	struct claim *make; /* of the new volume; borrowed */
	int64_t size; /* of the source, in bytes; 0: not known */
	char *tree; /* path of a snapshot's tree, while it is copied; else NULL */
	char *text; /* kind and id of the source, for the new volume's record */
	struct error missing; /* why it cannot be read. Ignored once the volume exists */
};

/*
 * Whether an error about the source counts only until the copy exists. The request itself is
 * valid, so a finished copy is still the answer.
 */
static inline bool volume_source_is_refused(const struct error *err)
{
	return error_is_final(err->code) && err->code != ERROR_INVALID_ARGUMENT;
}

/*
 * Parse what the request says about the source, if it names one. turn is borrowed. Errors:
 * INVALID_ARGUMENT. volume_source_done() is due in either case.
 */
int volume_source_init(struct volume_source *source, const struct csi_driver *driver,
		       struct copy_turn *turn, const Csi__V1__CreateVolumeRequest *in,
		       struct error *err);

/* The export on which the source is; NULL if there is no source, or none of such an id. */
const struct nfs_export *volume_source_export(const struct volume_source *source);

/*
 * Find the source, if there is one, and its size. Blocks. Errors: ABORTED if the source is being
 * deleted. volume_source_fill() reports a source that is missing, unfinished or refused, so that
 * this counts only until the volume exists.
 */
int volume_source_read(struct volume_source *source, struct error *err);

/*
 * The fill() of store/staging.h, for a struct volume_source. Blocks for as long as copying takes.
 */
int volume_source_fill(struct nfs_client *c, const char *name, void *data, struct error *err);

void volume_source_done(struct volume_source *source);
#define cleanup_volume_source __attribute__((cleanup(volume_source_done)))

#endif
