/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What ControllerExpandVolume and ControllerModifyVolume do on a share. A volume that has no record, as
 * those that csi-driver-nfs made, gets one. Worker threads; block.
 */
#ifndef STORE_VOLUME_CHANGE_H
#define STORE_VOLUME_CHANGE_H

#include "store/volume.h"

/*
 * Notes a larger size in the volume's record. *ret_size is what it has then: what is required, or what
 * it had if that is more. rec is what volume_read() found, and becomes what is on the share. Errors:
 * NOT_FOUND, OUT_OF_RANGE (the limit is below what it has, or a quota on the server is), otherwise
 * as nfs_error_set().
 */
int volume_expand(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_capacity *capacity, int64_t *ret_size, struct error *err);

/*
 * Sets what changes->given says, on the directory and in the record: all of it or nothing. rec as
 * above. Errors: NOT_FOUND, otherwise as nfs_error_set().
 */
int volume_modify(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_settings *changes, struct error *err);

#endif
