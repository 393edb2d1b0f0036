/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Private to the files of store/volume.h. new_volume_deletions.c calls volume_delete.c: a creation
 * finishes an interrupted deletion.
 */
#ifndef STORE_VOLUME_PARTS_H
#define STORE_VOLUME_PARTS_H

#include "store/owner.h"
#include "store/tombstone.h"
#include "store/volume.h"

/* The recorded directory, borrowed. FAILED_PRECONDITION if it is missing or no valid path. */
int volume_recorded_directory(struct nfs_client *c, const struct volume *v, const char *key,
			      const char **ret, struct error *err);

/* -------- volume.c: for expand and modify -------- */

/* Find the volume's directory: its path, borrowed, and its handle. */
int volume_open_directory(struct nfs_client *c, const struct volume_id *id,
			  const struct record *rec, const char **ret_dir, struct nfs_handle *ret,
			  struct error *err);

/*
 * Write a changed record. fresh: there is none on the share yet. Return 1 if the volume may not
 * have one, since another volume has its directory alone; log which.
 */
int volume_write_record(struct nfs_client *c, const struct volume_id *id, struct record *rec,
			bool fresh, struct error *err);

/* -------- volume.c: for create and delete -------- */

/*
 * Remove the notes of use of a volume whose record has gone, but keep those of a new volume of the
 * same key (rule 10).
 */
int volume_remove_notes(struct nfs_client *c, const char *key, const char *dir, struct error *err);

/* -------- volume_policy_notes.c: for delete -------- */

/* Ask for the other owners of the directory of a volume that is being deleted. */
struct owner_question volume_question_of_deletion(const struct tombstone *t,
						  const struct record *rec);

/*
 * Write the policy notes before the record becomes the tombstone, so that other deletions find
 * either of them even if this deletion is interrupted.
 */
int volume_note_policy_before_burial(struct nfs_client *c, const struct tombstone *t,
				     const struct record *rec, const struct volume_id *id,
				     enum volume_on_delete policy, struct error *err);

/*
 * Likewise for a volume whose policy is to retain, once its record is the tombstone: a change may
 * have set that policy since the record was read.
 */
int volume_note_retained_again(struct nfs_client *c, const struct tombstone *t, struct error *err);

/* -------- volume_bury.c: for delete -------- */

/* Set the tombstone, or adopt one of an interrupted deletion or of another replica. */
int volume_bury(struct nfs_client *c, struct tombstone *t, const struct volume_id *id,
		const struct record *rec, enum volume_on_delete policy, struct error *err);

/* -------- volume_delete.c -------- */

/*
 * Whether the path of a deleted volume is in use again: 1, 0 or a negative errno. A new volume of
 * the same key makes its own directory once the old one is gone, so it counts only if the directory
 * was empty and was removed. Any other volume uses the directory that it finds (rule 5 in
 * doc/design.md, "Calls at once").
 */
int volume_is_used_again(struct nfs_client *c, const struct tombstone *t, bool was_empty,
			 struct error *err);

/*
 * Do what is left once the tombstone is set. Return 1 if the record came back, else as
 * volume_delete().
 */
int volume_carry_out(struct nfs_client *c, struct tombstone *t, const struct volume_disposal *how,
		     bool *ret_trashed, struct error *err);

#endif
