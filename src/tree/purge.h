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

/* Called after each attempt that did or failed to do something, on the purger's thread; err is NULL on success. */
typedef void (*purger_report_fn)(const struct nfs_export *e, uint64_t files, uint64_t directories,
				 const struct error *err);

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
