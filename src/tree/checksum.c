/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/checksum.h"

#include <string.h>

#include "base/str.h"

/* Spreads block numbers over 64 bits: 2^64 divided by the golden ratio. */
#define SPREAD UINT64_C(0x9e3779b97f4a7c15)

/* Trailing zeros do not count: a hole may stand for them. */
static size_t length_without_zeros(const char *data, size_t len)
{
	while (len > 0 && data[len - 1] == '\0')
		len--;
	return len;
}

uint64_t tree_checksum(uint64_t offset, const char *data, size_t len)
{
	uint64_t sum = 0;

	while (len > 0) {
		size_t block = len < TREE_CHECKSUM_BLOCK ? len : TREE_CHECKSUM_BLOCK;
		size_t n = length_without_zeros(data, block);

		if (n > 0)
			sum += str_hash(data, n) *
			       ((offset / TREE_CHECKSUM_BLOCK + 1) * SPREAD | 1);
		offset += block;
		data += block;
		len -= block;
	}
	return sum;
}
