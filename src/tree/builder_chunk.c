/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/builder_node.h"

size_t builder_chunk_size(size_t len)
{
	return sizeof(struct builder_chunk) + len;
}

void builder_chunk_free(struct builder_chunk *chunk)
{
	tree_purse_give(&chunk->node->builder->work->unwritten, builder_chunk_size(chunk->len));
	list_remove(&chunk->link);
	tree_block_drop(chunk->block);
	free(chunk);
}

/* If the verifier changed, the server was restarted and may have lost earlier writes. */
static int check_write_verifier(struct builder_node *node, const struct nfs_op *op)
{
	if (op->stable)
		return 0;
	node->unstable = true;
	if (!node->has_verifier)
		memcpy(node->verifier, op->verifier, sizeof(node->verifier));
	node->has_verifier = true;
	return memcmp(node->verifier, op->verifier, sizeof(node->verifier)) == 0 ? 0 : -EIO;
}

static void write_replied(struct nfs_op *op)
{
	struct builder_chunk *chunk = container_of(op, struct builder_chunk, op);
	struct builder_node *node = chunk->node;
	struct tree_builder *b = node->builder;
	size_t done = chunk->op.offset + op->count - chunk->offset;
	int r = op->error;

	tree_op_returned(b->work, &b->work->writing, op);
	if (r == 0)
		r = check_write_verifier(node, op);
	if (r == 0 && op->count == 0)
		r = -EIO;
	if ((r == 0 && done < chunk->len) || tree_should_retry(b->work, r)) {
		/* A server may take less than it is given; op.offset is where the rest begins. */
		if (r == 0)
			chunk->op.offset += op->count;
		list_add_tail(&node->chunks, &chunk->link);
		builder_node_ready(node);
		return;
	}
	if (r < 0)
		builder_fail(b, r, "writing", node->name);
	builder_chunk_free(chunk);
	node->pending--;
	builder_node_settle(node);
}

static int chunk_set_data(struct builder_chunk *chunk, const struct tree_piece *piece, size_t at)
{
	if (piece->block != NULL) {
		chunk->block = tree_block_share(piece->block);
		chunk->data = chunk->block->data + at;
		return 0;
	}
	chunk->block = tree_block_new(chunk->len);
	if (chunk->block == NULL)
		return -ENOMEM;
	chunk->data = chunk->block->data;
	memcpy(chunk->data, piece->data + at, chunk->len);
	return 0;
}

int builder_chunk_add(struct builder_node *node, const struct tree_piece *piece, size_t at,
		      size_t len)
{
	const uint64_t offset = piece->offset + at;
	struct builder_chunk *chunk = calloc(1, sizeof(*chunk));

	if (chunk != NULL)
		chunk->len = len;
	if (chunk == NULL || chunk_set_data(chunk, piece, at) < 0) {
		tree_purse_give(&node->builder->work->unwritten, builder_chunk_size(len));
		free(chunk);
		return -ENOMEM;
	}
	chunk->node = node;
	chunk->offset = offset;
	chunk->op.type = NFS_OP_WRITE;
	chunk->op.dir = &node->handle;
	chunk->op.offset = offset;
	chunk->op.done = write_replied;
	list_add_tail(&node->chunks, &chunk->link);
	node->pending++;
	return 0;
}

int builder_chunk_start(struct builder_node *node)
{
	struct builder_chunk *chunk = container_of(node->chunks.next, struct builder_chunk, link);
	struct tree_work *work = node->builder->work;
	struct nfs_op *op = &chunk->op;
	size_t done = op->offset - chunk->offset;
	int r;

	list_remove(&chunk->link);
	if (list_is_empty(&node->chunks))
		list_remove(&node->link);
	op->count = (uint32_t)(chunk->len - done);
	op->buffer = chunk->data + done;
	/* Data of a file that fits into one WRITE needs no COMMIT. */
	op->stable = !node->has_holes && node->attr.size == chunk->len;
	r = nfs_client_start(work->to, op);
	if (r < 0)
		list_add_tail(&node->chunks, &chunk->link);
	return r;
}
