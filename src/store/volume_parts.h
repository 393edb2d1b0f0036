/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What the files of store/volume.h share among them: volume.c reads records, volume_create.c and
 * volume_delete.c do the work. A creation that meets a deletion which was cut short finishes that.
 */
#ifndef STORE_VOLUME_PARTS_H
#define STORE_VOLUME_PARTS_H

#include "store/tombstone.h"
#include "store/volume.h"

/* A value of the record, borrowed: what ControllerModifyVolume has made of it, else the first one; or NULL. */
const char *volume_setting(const struct record *rec, const char *key);

enum volume_existing volume_existing_of(const struct record *rec);

/* The directory that the record names, borrowed. FAILED_PRECONDITION where it names none that may be one. */
int volume_dir_of(struct nfs_client *c, const struct record *rec, const char *key, const char **ret,
		  struct error *err);

/* Whether the directory is made elsewhere and renamed into its place: it can be told from any other. */
bool volume_is_built(const struct record *rec);

/* What becomes of the directory: as the record says, or the id, or the default. */
enum volume_on_delete volume_policy_of(const struct record *rec, const struct volume_id *id,
				       enum volume_on_delete default_policy);

/*
 * Whether the path of a volume that is deleted is used by now: 1, 0 or a negative errno. A new volume of the
 * same key makes a directory of its own, when the old one has gone; another one takes what it finds.
 */
int volume_is_used_again(struct nfs_client *c, const struct tombstone *t, bool was_empty,
			 struct error *err);

/*
 * What there is to do once the tombstone is set. Returns 1 where the record came back, or as
 * volume_delete().
 */
int volume_carry_out(struct nfs_client *c, struct tombstone *t, const struct volume_disposal *how,
		     bool *ret_trashed, struct error *err);

#endif
