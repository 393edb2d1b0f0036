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

#include "nfs/client.h"
#include "store/record.h"

/* Leaves the notes of a volume. 0 too where they are there. Errors as nfs_error_set(). */
int users_add(struct nfs_client *c, const char *key, const char *dir, struct error *err);

/* Takes them back. */
int users_remove(struct nfs_client *c, const char *key, const char *dir, struct error *err);

/* Where the path that starts after the first len bytes of dir ends: the next slash, or the end. */
size_t users_next_prefix(const char *dir, size_t len);

/* The folder of the notes about the first len bytes of dir alone. */
#define USERS_EXACT_MAX (RECORD_NAME_MAX + 2)
void users_exact_name(char name[USERS_EXACT_MAX], const char *dir, size_t len);

#endif
