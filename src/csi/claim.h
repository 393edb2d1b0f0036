/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A claim is a note on the share that this call uses or makes a directory. It lasts as long as the
 * call; see store/busy.h. Worker threads; blocks.
 */
#ifndef CSI_CLAIM_H
#define CSI_CLAIM_H

#include "base/cleanup.h"
#include "csi/driver.h"
#include "store/busy.h"

struct claim;

/*
 * Write a note for a directory of the export, with the identity of owner unless that is NULL.
 * Return 0 with *ret NULL if the share accepts no note: nothing can be deleted from such a share
 * either. Errors: ABORTED if another replica is deleting or making the directory, else as
 * nfs_error_set().
 */
int claim_take(struct claim **ret, const struct csi_driver *driver, const struct nfs_export *e,
	       const struct volume_owner *owner, enum busy_kind kind, const char *dir,
	       struct error *err);

/*
 * Renew the note, over c if that is a client with the identity that wrote it, else over a client
 * that is leased for it. c: of the note's export. Errors as busy_note_renew() and session_next().
 * Accepts NULL.
 */
int claim_renew(struct claim *claim, struct nfs_client *c, struct error *err);

/* Remove the note and free. Accepts NULL. */
void claim_drop(struct claim *claim);

DEFINE_CLEANUP(claim, struct claim *, claim_drop)
#define cleanup_claim __attribute__((cleanup(cleanup_ptr_claim)))

#endif
