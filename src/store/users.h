/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Which volumes use which directory. A subDir may name the directory of another volume, one in it
 * or one around it; then what one volume deletes would be another's data. Each volume whose
 * directory is not simply its own key leaves notes in .csi-nfs/users/: one for its directory and
 * each one above it, and one for its directory alone. So a few lookups tell who else is there,
 * however many volumes the share has:
 *
 *   users/<path, with %2F for a slash>/<key of the volume>     it is there, or in it
 *   users/<path, with %2F for a slash>%/<key of the volume>    it is there
 *
 * A note that leads to no record counts for nothing. store/owner.h reads the notes. Worker threads;
 * functions that take a client block.
 */
#ifndef STORE_USERS_H
#define STORE_USERS_H

#include "nfs/client.h"
#include "store/record.h"

/* Write the notes of a volume. Return 0 also where they are there. Errors as nfs_error_set(). */
int users_add(struct nfs_client *c, const char *key, const char *dir, struct error *err);

/* Remove them. Likewise. */
int users_remove(struct nfs_client *c, const char *key, const char *dir, struct error *err);

/*
 * Return the length of the next longer prefix of dir that is a path: up to the next slash, or the
 * end.
 */
size_t users_next_prefix(const char *dir, size_t len);

/* Format the name of the folder with the notes about the first len bytes of dir alone. */
#define USERS_EXACT_MAX (RECORD_NAME_MAX + 2)
void users_exact_name(char name[USERS_EXACT_MAX], const char *dir, size_t len);

#endif
