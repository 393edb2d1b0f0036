/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What CreateVolume and DeleteVolume do on a share, step by step and by handle. Each step may be
 * the last one before a crash: the record is written before the directory is made and removed after
 * it is gone, so a retry always finds what is left to do. Worker threads; blocks.
 */
#ifndef CSI_VOLUME_H
#define CSI_VOLUME_H

#include <stdint.h>

#include "csi/params.h"
#include "csi/validate.h"
#include "csi/volume_id.h"
#include "nfs/client.h"
#include "nfs/record.h"

/* Key of the secret that holds mount options, as csi-driver-nfs has it. */
#define SECRET_MOUNT_OPTIONS "mountOptions"

/* Keys of a volume's record. What starts with the prefix is an entry of its volume_context. */
#define VOLUME_KEY_NAME "name"
#define VOLUME_KEY_ID "id"
#define VOLUME_KEY_DIR "dir"
#define VOLUME_KEY_SIZE "size"
#define VOLUME_KEY_MODE "mode"
#define VOLUME_KEY_ON_DELETE "ondelete"
#define VOLUME_KEY_EXISTING "existing"
#define VOLUME_CONTEXT_PREFIX "p."

/*
 * Makes the volume that rec describes, or finishes one that was begun, or finds that it is there
 * already; then rec becomes the record on the share. Errors: ALREADY_EXISTS (same name, other
 * parameters, or a size that range does not take), otherwise as nfs_error_set(); nothing is left
 * behind after a final code.
 */
int volume_create(struct nfs_client *c, const char *key, struct record *rec,
		  const Csi__V1__CapacityRange *range, struct error *err);

/*
 * Deletes, archives or lets go of the volume, as its record says, or its id, or the default. 0 too
 * where it is gone already. *ret_trashed tells whether there is something to purge now.
 */
int volume_delete(struct nfs_client *c, const struct volume_id *id,
		  enum volume_on_delete default_policy, bool *ret_trashed, struct error *err);

/*
 * Finds a volume: its record, which stays empty for volumes that have none, and whether its
 * directory is there. -ENOENT with NOT_FOUND where there is neither.
 */
int volume_find(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		struct error *err);

/*
 * As volume_find(), but tells of a record without directory, and of neither, by *ret_has_directory
 * and an empty record.
 */
int volume_look(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		bool *ret_has_directory, struct error *err);

/* The size in a volume's record, in bytes; 0 where it tells none. */
int64_t volume_size(const struct record *rec);

/*
 * Notes a larger size in the volume's record. *ret_size is what it has then: what is required, or what
 * it had if that is more. Errors: NOT_FOUND, OUT_OF_RANGE (the limit is below what it has, or a quota
 * on the server is), otherwise as nfs_error_set().
 */
int volume_expand(struct nfs_client *c, const struct volume_id *id,
		  const Csi__V1__CapacityRange *range, struct record *ret, int64_t *ret_size,
		  struct error *err);

#endif
