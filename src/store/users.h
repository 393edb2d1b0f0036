/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Which volumes share a directory. A subDir may name the directory of another volume, one in it or
 * one around it; then what one volume deletes would be another's data. Each volume whose directory is
 * not simply its own key leaves a note under .csi-nfs/users/ for its directory and each one above it,
 * and one more for its directory alone, so that a few lookups tell who else is there, however many
 * volumes the share has:
 *
 *   users/<path, with %2F for a slash>/<key of the volume>     it is there, or in it
 *   users/<path, with %2F for a slash>%/<key of the volume>    it is there
 *
 * A note that leads to no record counts for nothing. store/owner.h reads them. Worker threads; what
 * takes a client blocks.
 */
#ifndef STORE_USERS_H
#define STORE_USERS_H

#include "base/cleanup.h"
#include "nfs/client.h"
#include "store/record.h"

/* Whether the paths are the same, or one leads to something in the other, in any case. */
bool usage_overlaps(const char *a, const char *b);

/* Leaves the notes of a volume. 0 too where they are there. Errors as nfs_error_set(). */
int users_add(struct nfs_client *c, const char *key, const char *dir, struct error *err);

/* Takes them back. */
int users_remove(struct nfs_client *c, const char *key, const char *dir, struct error *err);

/* Where the path that starts after the first len bytes of dir ends: the next slash, or the end. */
size_t users_next_prefix(const char *dir, size_t len);

/* The folder of the notes about the first len bytes of dir alone. */
#define USERS_EXACT_MAX (RECORD_NAME_MAX + 2)
void users_exact_name(char name[USERS_EXACT_MAX], const char *dir, size_t len);

/* -------- in this process -------- */

/*
 * Directories that calls are at work on. One that is being deleted excludes every other call on an
 * overlapping one, as a new volume there could not tell whether its directory stays.
 */
struct usage_table;
struct usage_lock;

/* Returns 0 or -ENOMEM. The caller frees. */
int usage_table_new(struct usage_table **ret);
void usage_table_free(struct usage_table *t);

/* -EAGAIN with ABORTED where another call is at work there; or -ENOMEM. */
int usage_acquire(struct usage_table *t, const struct nfs_export *e, const char *dir, bool deleting,
		  struct usage_lock **ret, struct error *err);

/* Accepts NULL. */
void usage_release(struct usage_lock *lock);

DEFINE_CLEANUP(usage_lock, struct usage_lock *, usage_release)
#define cleanup_usage_lock __attribute__((cleanup(cleanup_ptr_usage_lock)))

#endif
