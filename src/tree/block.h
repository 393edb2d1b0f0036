/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Data of a file on its way from a READ to a WRITE, which is freed by the last of those who share it. All
 * on one thread.
 */
#ifndef TREE_BLOCK_H
#define TREE_BLOCK_H

#include <stddef.h>
#include <stdlib.h>

struct tree_block {
	unsigned int shares;
	char data[];
};

/* With one share, the caller's; the data is not set. NULL: no memory. */
static inline struct tree_block *tree_block_new(size_t len)
{
	struct tree_block *block = malloc(sizeof(*block) + len);

	if (block != NULL)
		block->shares = 1;
	return block;
}

static inline struct tree_block *tree_block_share(struct tree_block *block)
{
	block->shares++;
	return block;
}

static inline void tree_block_drop(struct tree_block *block)
{
	if (--block->shares == 0)
		free(block);
}

#endif
