/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What a new volume begins with: the contents of another volume, or of a snapshot, on the same
 * server or another. Worker threads; blocks, for as long as copying takes.
 */
#ifndef CSI_VOLUME_SOURCE_H
#define CSI_VOLUME_SOURCE_H

#include "csi/claim.h"
#include "csi/snapshot_ref.h"
#include "csi/volume_ref.h"

enum volume_source_kind { VOLUME_SOURCE_NONE, VOLUME_SOURCE_IS_VOLUME, VOLUME_SOURCE_IS_SNAPSHOT };

struct volume_source {
	const struct csi_driver *driver;
	enum volume_source_kind kind;
	const char *what; /* name of the new volume, for the log; borrowed */
	struct volume_ref volume;
	struct snapshot_ref snapshot;
	struct dir_lock *dir_lock; /* keeps other calls from deleting the source */
	struct claim *use; /* keeps other replicas from deleting it */
	struct claim *make; /* of the new volume; borrowed */
	int64_t size; /* of the source, in bytes; 0: not known */
	char *text; /* for the new volume's record */
	struct error missing; /* why it cannot be read. Ignored once the volume exists */
};

/*
 * Whether the error of reading a source counts only where the copy is not there yet. The request
 * itself is not wrong, so a finished copy is still the answer.
 */
static inline bool volume_source_is_refused(const struct error *err)
{
	return error_is_final(err->code) && err->code != ERROR_INVALID_ARGUMENT;
}

/*
 * Find the source that the request names, if it names one. Errors: INVALID_ARGUMENT, or ABORTED
 * where the source is being deleted. A source that is missing, unfinished or refused is reported by
 * volume_source_fill(), so that it counts only where the volume is not there yet.
 * volume_source_done() is due in either case.
 */
int volume_source_init(struct volume_source *source, const struct csi_driver *driver,
		       const Csi__V1__CreateVolumeRequest *in, struct error *err);

/*
 * The fill() of store/staging.h, for a struct volume_source. Blocks for as long as copying takes.
 */
int volume_source_fill(struct nfs_client *c, const char *name, void *data, struct error *err);

void volume_source_done(struct volume_source *source);

#endif
