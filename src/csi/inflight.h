/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Try-locks on volumes and target paths: a second call for something that is being worked on is
 * answered ABORTED at once (CSI specification, "Concurrency"), it does not wait. Any thread.
 */
#ifndef CSI_INFLIGHT_H
#define CSI_INFLIGHT_H

#include "base/cleanup.h"
#include "base/error.h"

struct inflight;
struct inflight_lock;

int inflight_new(struct inflight **ret);
void inflight_free(struct inflight *f);

/*
 * Takes the lock on a key, of which what ("volume", "target path") is said in the message. Returns 0,
 * -EAGAIN with ABORTED, or -ENOMEM.
 */
int inflight_acquire(struct inflight *f, const char *what, const char *key,
		     struct inflight_lock **ret, struct error *err);

/* Accepts NULL. */
void inflight_release(struct inflight_lock *lock);

DEFINE_CLEANUP(inflight_lock, struct inflight_lock *, inflight_release)
#define cleanup_inflight_lock __attribute__((cleanup(cleanup_ptr_inflight_lock)))

#endif
