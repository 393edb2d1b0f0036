/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What the files of store/snapshot.h share. A creation that meets a deletion which was cut short
 * finishes that deletion.
 */
#ifndef STORE_SNAPSHOT_PARTS_H
#define STORE_SNAPSHOT_PARTS_H

#include "store/snapshot.h"

/* Names in .csi-nfs/work/ begin with this: no volume's key has a '~'. */
#define SNAPSHOT_WORK_PREFIX "snapshot~"
#define SNAPSHOT_WORK_KEY_MAX (sizeof(SNAPSHOT_WORK_PREFIX) + RECORD_NAME_MAX)
void snapshot_work_key(char ret[SNAPSHOT_WORK_KEY_MAX], const char *name);

/*
 * Whether a directory holds nothing but archives of source, as csi-driver-nfs leaves it: a directory
 * without a record is known as a snapshot by that alone. Return 1, 0 or a negative errno.
 */
int snapshot_is_alone(struct nfs_client *c, const char *name, const char *source, struct error *err);

/*
 * Finish the deletions of a snapshot of that name that other replicas have begun, so that a new one can
 * be made. ABORTED where something else of that name is being deleted.
 */
int snapshot_finish_deletions(struct nfs_client *c, const char *name, struct error *err);

#endif
