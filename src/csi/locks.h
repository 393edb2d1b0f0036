/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Locks between the calls of this process. All are try-locks: a call that finds one taken is
 * answered ABORTED at once and the CO repeats it (CSI specification, "Concurrency"). Calls of other
 * replicas are kept out by notes on the share, see store/busy.h. Any thread; nothing blocks.
 */
#ifndef CSI_LOCKS_H
#define CSI_LOCKS_H

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/error.h"

/* -------- keys: a volume, a snapshot, a target path -------- */

struct inflight;
struct inflight_lock;

/* Return 0 or -ENOMEM. The caller frees. */
int inflight_new(struct inflight **ret);
void inflight_free(struct inflight *f);

/*
 * Take the lock of a key. what ("volume", "target path") names the kind of key in the message.
 * Return 0, -EAGAIN with ABORTED, or -ENOMEM.
 */
int inflight_acquire(struct inflight *f, const char *what, const char *key,
		     struct inflight_lock **ret, struct error *err);

/* Accepts NULL. */
void inflight_release(struct inflight_lock *lock);

DEFINE_CLEANUP(inflight_lock, struct inflight_lock *, inflight_release)
#define cleanup_inflight_lock __attribute__((cleanup(cleanup_ptr_inflight_lock)))

/* -------- directories on a share -------- */

/*
 * Calls that use overlapping directories don't exclude each other, but a deletion excludes all of
 * them: a volume that is created meanwhile could not tell whether the directory it found will stay.
 */
struct usage_table;
struct usage_lock;

/* Return 0 or -ENOMEM. The caller frees. */
int usage_table_new(struct usage_table **ret);
void usage_table_free(struct usage_table *t);

/*
 * Lock a directory of a share, given as a path below the share's root. Copies all strings. Return
 * 0, -EAGAIN with ABORTED where another call excludes this one, or -ENOMEM.
 */
int usage_acquire(struct usage_table *t, const char *server, const char *share, const char *dir,
		  bool deleting, struct usage_lock **ret, struct error *err);

/* Accepts NULL. */
void usage_release(struct usage_lock *lock);

/*
 * Whether the paths are equal or one contains the other. ASCII case is ignored: some servers fold
 * it.
 */
bool usage_overlaps(const char *a, const char *b);

DEFINE_CLEANUP(usage_lock, struct usage_lock *, usage_release)
#define cleanup_usage_lock __attribute__((cleanup(cleanup_ptr_usage_lock)))

#endif
