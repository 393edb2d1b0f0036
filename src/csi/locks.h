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

struct key_locks;
struct key_lock;

/* Return 0 or -ENOMEM. The caller frees. */
int key_locks_new(struct key_locks **ret);
void key_locks_free(struct key_locks *f);

/*
 * Take the lock of a key. what ("volume", "target path") is the kind of key, for the message, too;
 * it must outlive the lock. Return 0, -EAGAIN with ABORTED, or -ENOMEM.
 */
int key_lock_take(struct key_locks *f, const char *what, const char *key, struct key_lock **ret,
		  struct error *err);

/* Likewise, but locks that are shared do not exclude each other. */
int key_lock_share(struct key_locks *f, const char *what, const char *key, struct key_lock **ret,
		   struct error *err);

/* Accepts NULL. */
void key_lock_drop(struct key_lock *lock);

DEFINE_CLEANUP(key_lock, struct key_lock *, key_lock_drop)
#define cleanup_key_lock __attribute__((cleanup(cleanup_ptr_key_lock)))

/* -------- directories on a share -------- */

/*
 * Calls that use overlapping directories don't exclude each other, but a deletion excludes all of
 * them: a volume created during a deletion could not tell whether the directory it found will stay.
 * It also excludes calls that use the place of its archive, which it may replace.
 */
struct dir_locks;
struct dir_lock;

/* Return 0 or -ENOMEM. The caller frees. */
int dir_locks_new(struct dir_locks **ret);
void dir_locks_free(struct dir_locks *t);

/*
 * Lock a directory of a share, given as a path below the share's root. Copies all strings. Return
 * 0, -EAGAIN with ABORTED if another call excludes this one, or -ENOMEM.
 */
int dir_lock_take(struct dir_locks *t, const char *server, const char *share, const char *dir,
		  bool deleting, struct dir_lock **ret, struct error *err);

/* Accepts NULL. */
void dir_lock_drop(struct dir_lock *lock);

/*
 * Whether the paths are equal or one contains the other, or might on a server that folds names.
 */
bool dir_locks_overlap(const char *a, const char *b);

DEFINE_CLEANUP(dir_lock, struct dir_lock *, dir_lock_drop)
#define cleanup_dir_lock __attribute__((cleanup(cleanup_ptr_dir_lock)))

#endif
