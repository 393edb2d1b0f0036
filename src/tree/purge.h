/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The purger: a thread that empties .csi-nfs/trash/ on shares. A deleted volume is only a rename
 * for DeleteVolume; what is in it goes here, whether it was put there by this process or by one that
 * was killed. Failures are tried again, ever more slowly.
 */
#ifndef TREE_PURGE_H
#define TREE_PURGE_H

#include "nfs/pool.h"

struct purger;

/* Of one attempt to empty the trash of a share. */
struct purger_report {
	const struct nfs_export *export;
	const char *name; /* what is being removed from the trash; NULL: the attempt is over */
	uint64_t files, directories; /* that are gone so far */
	uint64_t ms; /* since it began, never 0 */
	const struct error *err; /* why it failed; NULL: it did not */
};

/*
 * Called on the purger's thread: every TREE_REPORT_S seconds while an attempt lasts, and after each one that
 * did or failed to do something.
 */
typedef void (*purger_report_fn)(const struct purger_report *report);

/* Starts no thread yet: the first purger_add() does. The pool is borrowed. 0 or -ENOMEM. */
int purger_new(struct purger **ret, struct nfs_pool *pool, purger_report_fn report);

/* Asks for a share's trash to be emptied. Any thread, does not block. 0 or -ENOMEM, -EAGAIN. */
int purger_add(struct purger *p, const struct nfs_export *e);

/*
 * Tells of a share that is in use: its trash is emptied once, of what a process before this one may
 * have left there. Otherwise as purger_add().
 */
int purger_note(struct purger *p, const struct nfs_export *e);

/* Stops between two operations, waits for that (at most NFS_CALL_TIMEOUT_MS) and frees. */
void purger_free(struct purger *p);

#endif
