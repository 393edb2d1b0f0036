/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Unpacks gzip by zlib, which compares the checksum at the end of the data: libarchive's reader does
 * not. Any number of members, one after the other (RFC 1952, section 2.2).
 */
#ifndef TREE_GUNZIP_H
#define TREE_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>

struct tree_gunzip;

/* What data begins with that this is for. */
bool tree_gunzip_is_for(const char *data, size_t len);

/* Returns 0 or -ENOMEM. The caller frees. */
int tree_gunzip_new(struct tree_gunzip **ret);

/* Accepts NULL. */
void tree_gunzip_free(struct tree_gunzip *g);

/* Hands over more of the file, borrowed until all of it has been used. */
void tree_gunzip_feed(struct tree_gunzip *g, const char *data, size_t len);

/*
 * The next piece of what was packed, valid until the next call; len 0: more has to be fed, or, at the end
 * of the file, there is no more. -EBADMSG where the data or its checksum is wrong.
 */
int tree_gunzip_next(struct tree_gunzip *g, const char **ret, size_t *ret_len);

/* Whether the end of the file may be here: between two members. */
bool tree_gunzip_is_complete(const struct tree_gunzip *g);

#endif
