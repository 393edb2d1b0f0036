/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Private to volume_create.c: a volume that is being created, from its record to its directory.
 * Comments refer to the numbered rules in doc/design.md, "Calls at once". Worker threads; blocks.
 */
#ifndef STORE_NEW_VOLUME_H
#define STORE_NEW_VOLUME_H

#include "store/volume.h"

struct new_volume {
	struct nfs_client *c;
	const struct nfs_handle *folder; /* of the record */
	const char *key;
	const char *dir; /* borrowed from the record */
	struct record *rec;
	const struct volume_filler *filler; /* NULL: begins empty */
	bool created; /* the record, by this call */
	bool is_foreign; /* volume_is_foreign() for the record on the share */
	bool begun; /* the volume was not finished when this call began */
	bool exclusive; /* the directory must be this volume's alone; not decided yet */
	bool made; /* the directory, by this call */
	bool noted; /* before this call, others left notes about exactly this directory */
	struct nfs_handle found; /* the empty directory that contents built elsewhere replace */
};

/* -------- new_volume_make.c -------- */

/*
 * Make or find the directory, fill it, and set its mode and owner. The record and the notes of use
 * are on the share. FAILED_PRECONDITION for a directory that the volume may not have.
 */
int new_volume_make(struct new_volume *nv, struct error *err);

/* -------- new_volume_deletions.c: deletions by replicas that are at work, or dead -------- */

/*
 * Finish the deletions whose tombstones overlap with the directory. ABORTED for a deletion that
 * only its own call can finish.
 */
int new_volume_finish_deletions(const struct new_volume *nv, struct error *err);

/*
 * Check that the record and the directory are still there, after the directory was made (rule 2).
 * ABORTED if another replica has deleted the volume in the meantime.
 */
int new_volume_check(const struct new_volume *nv, struct error *err);

#endif
