/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * File checksums that depend neither on the order and size of the pieces nor on whether a range of
 * zeros is a hole: the sum of the CRC-32 of all nonzero blocks, each times a factor of its place.
 * Pieces must begin and end at block boundaries, except at the end of the file. Of wrong data, one
 * case in 4 billion is missed. Detects accidents, not malice. Any thread.
 */
#ifndef TREE_CHECKSUM_H
#define TREE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define TREE_CHECKSUM_BLOCK 4096

/* Return the checksum of one piece; add up those of all pieces. */
uint64_t tree_checksum(uint64_t offset, const char *data, size_t len);

#endif
