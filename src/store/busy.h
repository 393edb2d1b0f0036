/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What calls are at work on, for the other replicas of the controller: symbolic links in .csi-nfs/busy/,
 * one for each call, never more than there are calls.
 *
 *   busy/<directory, with %2F for a slash>~<kind>~<holder>.<number>[.<renewals>]
 *
 * Notes of use and of making are for calls that last: their holder renews them, by a RENAME to the next
 * name, and one that is renewed no more for as long as store_holder_is_dead() says is removed by whoever
 * it is in the way of. The holder, if it was only paused, learns that from its next RENAME, which fails:
 * it renews its notes once more before it puts its work into place.
 *
 * Tombstones (store/tombstone.h) are of deletions, and stand for as long as it takes: another replica does
 * not wait for them to end, it finishes the deletion. Worker threads; blocks.
 */
#ifndef STORE_BUSY_H
#define STORE_BUSY_H

#include "csi/driver.h"
#include "csi/params.h"
#include "nfs/client.h"

enum busy_kind {
	BUSY_USE = 'u', /* is being copied, or archived, or restored from */
	BUSY_MAKE = 'm', /* is being made, by one attempt at a time */
	BUSY_VOLUME_GONE = 'd', /* tombstone of a volume */
	BUSY_SNAPSHOT_GONE = 's', /* tombstone of a snapshot */
};

/* A name for a new note of that directory. */
void busy_name(char ret[NFS_NAME_MAX + 1], enum busy_kind kind, const char *dir);

/*
 * What is noted about directories that overlap with dir, or about all where that is NULL, given to
 * found() one after the other; what is not 0 ends it and is returned.
 */
typedef int (*busy_fn)(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
		       struct error *err);
int busy_each(struct nfs_client *c, const char *dir, busy_fn found, void *data, struct error *err);

/* Whether a note is of exactly that directory. */
bool busy_is_of(const char *name, const char *dir);

/* Whether nobody who is alive holds a note that is not of this process any more. */
bool busy_is_left(struct nfs_client *c, const char *name);

/* Whether no other replica uses, or makes, an overlapping directory: 0, or ABORTED, which names it. */
int busy_check_unused(struct nfs_client *c, const char *dir, struct error *err);

/* Whether no overlapping directory is being deleted: 0, or ABORTED. */
int busy_check_kept(struct nfs_client *c, const char *dir, struct error *err);

/* -------- of calls that last -------- */

struct claim;

/*
 * Notes that a directory on the export is used, or made; with the identity of owner, where that is given.
 * 0 too, with *ret NULL, on a share that cannot be written: there nothing can be deleted either. Errors:
 * ABORTED where another replica is deleting it, or making it; else as nfs_error_set().
 */
int claim_take(struct claim **ret, const struct csi_driver *driver, const struct nfs_export *e,
	       const struct volume_owner *owner, enum busy_kind kind, const char *dir,
	       struct error *err);

/*
 * Renews the note, with a client of its export. ABORTED where another replica has removed it. Accepts NULL.
 */
int claim_renew(struct claim *claim, struct nfs_client *c, struct error *err);

/* Removes the note and frees. Accepts NULL. */
void claim_drop(struct claim *claim);

DEFINE_CLEANUP(claim, struct claim *, claim_drop)
#define cleanup_claim __attribute__((cleanup(cleanup_ptr_claim)))

#endif
