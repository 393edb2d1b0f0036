/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/checksum.h"

#include <string.h>

#include "base/str.h"

#define ODD                                                                                        \
	UINT64_C(0x9e3779b97f4a7c15) /* spreads block numbers over 64 bits: 2^64 by the golden ratio */

/* What is missing at the end of a block counts as zeros, so that a hole there makes no difference. */
static size_t without_zeros(const char *data, size_t len)
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
		size_t n = without_zeros(data, block);

		if (n > 0)
			sum += str_hash(data, n) * ((offset / TREE_CHECKSUM_BLOCK + 1) * ODD | 1);
		offset += block;
		data += block;
		len -= block;
	}
	return sum;
}
