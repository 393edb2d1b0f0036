/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Decompresses gzip with zlib, which verifies the checksum at the end of the data; libarchive's
 * reader does not. Handles any number of members in a row (RFC 1952, section 2.2), and zeros behind
 * the last one, with which tapes and disks fill a block.
 */
#ifndef TREE_GUNZIP_H
#define TREE_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>

struct tree_gunzip;

/* Return whether data begins like gzip. */
bool tree_gunzip_matches(const char *data, size_t len);

/* Returns 0 or -ENOMEM. The caller frees. */
int tree_gunzip_new(struct tree_gunzip **ret);

/* Accepts NULL. */
void tree_gunzip_free(struct tree_gunzip *g);

/* Add input, borrowed until tree_gunzip_next() returns length 0. Call it again only then. */
void tree_gunzip_feed(struct tree_gunzip *g, const char *data, size_t len);

/*
 * Return the next piece of output, valid until the next call. Length 0: the input is used up.
 * Returns 0, -ENOMEM, or -EBADMSG if the data or its checksum is wrong.
 */
int tree_gunzip_next(struct tree_gunzip *g, const char **ret, size_t *ret_len);

/* Return whether the input so far ends between two members, where the file may end. */
bool tree_gunzip_is_complete(const struct tree_gunzip *g);

#endif
