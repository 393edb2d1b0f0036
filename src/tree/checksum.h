/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Checksums of files that are the same in whatever pieces and order the data comes, with holes and with
 * zeros in their place: the sum of those of all blocks that are not zero. Pieces have to begin and end at
 * blocks, but for the end of the file. Against accidents, not against malice. Pure, any thread.
 */
#ifndef TREE_CHECKSUM_H
#define TREE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define TREE_CHECKSUM_BLOCK 4096

/* Of one piece: add up those of all of them. */
uint64_t tree_checksum(uint64_t offset, const char *data, size_t len);

#endif
