/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A counted buffer for file data on its way from a READ to a WRITE. The count is not atomic: all
 * users are on one thread.
 */
#ifndef TREE_BLOCK_H
#define TREE_BLOCK_H

#include <stddef.h>
#include <stdlib.h>

struct tree_block {
	unsigned int shares;
	char data[];
};

/* Allocate a block with uninitialized data and one share, the caller's. NULL: no memory. */
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
