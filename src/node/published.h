/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Notes that say at which target paths of this node a volume is published, for the access mode
 * SINGLE_NODE_SINGLE_WRITER. mountinfo lists the mounts but not their volume ids, and several
 * volumes may share one directory.
 *
 * There is one file for each target path, in a folder that survives a restart of the driver but not
 * of the node, as mounts do. A note is written before the mount and removed after the unmount. A
 * note without a mount belongs to a call that was cut off, and is ignored. So a call for a volume
 * keeps others out until its mount is there: by a lock, which is shared unless the volume is
 * published exclusively. Any thread; the files are local.
 */
#ifndef NODE_PUBLISHED_H
#define NODE_PUBLISHED_H

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "mount/mounter.h"

struct node_published;
struct node_published_lock;

/* Borrows folder, which is made when it is first needed. Returns 0 or -ENOMEM. */
int node_published_new(struct node_published **ret, const char *folder);
void node_published_free(struct node_published *p);

/*
 * Take the lock of a volume, for publishing it. Like those of csi/locks.h it never blocks. Returns
 * 0, -EAGAIN with ABORTED if another call has it and either of the two is exclusive, or -ENOMEM.
 */
int node_published_lock_take(struct node_published *p, const char *volume, bool exclusive,
			     struct node_published_lock **ret, struct error *err);

/* Accepts NULL. */
void node_published_lock_drop(struct node_published_lock *lock);

DEFINE_CLEANUP(node_published_lock, struct node_published_lock *, node_published_lock_drop)
#define cleanup_node_published_lock __attribute__((cleanup(cleanup_ptr_node_published_lock)))

/*
 * Note that the volume is about to be published at target; exclusive: there and nowhere else. The
 * caller holds the lock of the volume, with the same exclusive, and that of the target path.
 * Errors: FAILED_PRECONDITION if it is mounted at another target and either of the two is
 * exclusive, or if an exclusive one cannot be noted. If the folder cannot be written, a volume that
 * is not exclusive is published without a note, and a warning is logged. Notes of other volumes at
 * target are removed.
 */
int node_published_add(struct node_published *p, struct mounter *m, const char *volume,
		       const char *target, bool exclusive, struct error *err);

/* Remove the note of a target at which nothing is mounted any more. */
void node_published_remove(struct node_published *p, const char *target);

#endif
