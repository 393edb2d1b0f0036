/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/checksum.h"

#include <zlib.h>

/* Spreads block numbers over 64 bits: 2^64 divided by the golden ratio. */
#define SPREAD UINT64_C(0x9e3779b97f4a7c15)

uint64_t tree_checksum(uint64_t offset, const char *data, size_t len)
{
	uint64_t sum = 0;

	while (len > 0) {
		size_t block = len < TREE_CHECKSUM_BLOCK ? len : TREE_CHECKSUM_BLOCK;
		size_t n = block;

		/* Trailing zeros do not count: a hole may stand for them. */
		while (n > 0 && data[n - 1] == '\0')
			n--;
		if (n > 0)
			sum += crc32_z(0, (const Bytef *)data, n) *
			       ((offset / TREE_CHECKSUM_BLOCK + 1) * SPREAD | 1);
		offset += block;
		data += block;
		len -= block;
	}
	return sum;
}
