/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Directories that take long to make: clones, restored volumes, archives. They are built in
 * .csi-nfs/work/, each attempt under its own name, and renamed into place when they are complete.
 * The record comes first and tells how far it got:
 *
 *   no "built"            being made, or the attempt died: the next one starts over
 *   "built", no "ready"   complete; in place if the directory there has the recorded fileid and
 *                         handle, or over another version of NFS the fileid and mtime. With
 *                         "dirmode", that mode may have to be restored
 *   "ready"               done
 *
 * When two attempts run at once, as after a failover of the controller, the later one moves the
 * work of the earlier one to the trash, so only complete work is renamed into place. Worker
 * threads; blocks.
 */
#ifndef STORE_STAGING_H
#define STORE_STAGING_H

#include <stdbool.h>

#include "nfs/client.h"
#include "store/owner.h"
#include "store/record.h"
#include "store/staging_state.h"

struct staging {
	const struct nfs_handle *records; /* folder of the record */
	const char *key;
	struct record *rec; /* read or created; kept as it is on the share */
	const char *path; /* where the directory belongs */
	const char *work_key; /* prefix of names in .csi-nfs/work/; snapshots have their own */
	const char *refusal; /* why something in its place is in the way */
	bool replaces_empty; /* an empty directory in its place may go, unless others have it */
	const struct owner_question *others; /* who must not have the place; see store/owner.h */

	/*
	 * Make the directory of that name in .csi-nfs/work/, with more clients as needed. Report
	 * errors; the caller removes what is left after one. What this adds to rec is stored with
	 * "built".
	 */
	int (*fill)(struct nfs_client *c, const char *name, void *data, struct error *err);
	/* Add what is known now to the record, before "ready". May be NULL. */
	int (*describe)(struct record *rec, void *data);
	void *data;

	bool trashed; /* out: there is something to purge */
	struct nfs_handle found; /* out: the empty directory in its place; len 0: none */
};

/*
 * Make what the record describes, or finish it. Errors: FAILED_PRECONDITION if something that is
 * not empty is in its place, else as fill() and nfs_error_set().
 */
int staging_make(struct nfs_client *c, struct staging *s, struct error *err);

/*
 * Whether the directory at path is the one built for the record: 1, 0 or a negative errno; ABORTED
 * if that cannot be found out over this version of NFS.
 */
int staging_is_in_place(struct nfs_client *c, const struct record *rec, const char *path,
			struct error *err);

/*
 * Move the remains of earlier attempts to the trash, or remove them where it has no room.
 * *ret_trashed is set if there is something to purge.
 */
int staging_discard(struct nfs_client *c, const char *work_key, bool *ret_trashed,
		    struct error *err);

#endif
