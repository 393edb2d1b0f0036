/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Private to the files of store/snapshot.h. snapshot_create.c needs snapshot_delete.c: a creation
 * finishes an interrupted deletion.
 */
#ifndef STORE_SNAPSHOT_PARTS_H
#define STORE_SNAPSHOT_PARTS_H

#include "store/snapshot.h"

/* Prefix of names in .csi-nfs/work/: no volume's key has a '~'. */
#define SNAPSHOT_WORK_PREFIX "snapshot~"
#define SNAPSHOT_WORK_KEY_MAX (sizeof(SNAPSHOT_WORK_PREFIX) + RECORD_NAME_MAX)
void snapshot_work_key(char ret[SNAPSHOT_WORK_KEY_MAX], const char *name);

/* Setters of the record. Return 0 or -ENOMEM. */
int snapshot_set_time(struct record *rec, struct nfs_time time);
int snapshot_set_id(struct record *rec, const struct volume_id *id);

/*
 * Whether both are of the same volume. The share may have moved, with the volume and the snapshot:
 * then have has another server or share in both ids. Return 1, 0 or -ENOMEM.
 */
int snapshot_has_source_of(const struct snapshot_info *have, const struct snapshot_info *want);

/*
 * Whether the directory holds only archives of source, as csi-driver-nfs leaves it: without a
 * record, that alone makes a directory a snapshot. Return 1, 0, or a negative errno: -ENOENT,
 * unreported, for a directory that is gone.
 */
int snapshot_is_alone(struct nfs_client *c, const char *name, const char *source,
		      struct error *err);

/*
 * Find the owner of a snapshot of that name whose deletion was interrupted. *ret is left alone if
 * there is no tombstone. Return 0 or a negative errno.
 */
int snapshot_find_buried_owner(struct nfs_client *c, const char *name, struct volume_owner *ret,
			       struct error *err);

/*
 * Finish the deletions of a snapshot of that name that other replicas have begun, so that a new one
 * can be made. rec is its record, or NULL. ABORTED if something else of that name is being deleted.
 */
int snapshot_finish_deletions(struct nfs_client *c, const char *name, const struct record *rec,
			      struct error *err);

#endif
