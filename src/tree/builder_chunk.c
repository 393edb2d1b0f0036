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

static bool is_copy(const struct builder_chunk *chunk)
{
	return chunk->block == NULL;
}

void builder_chunk_free(struct builder_chunk *chunk)
{
	list_remove(&chunk->link);
	if (!is_copy(chunk)) {
		tree_purse_give(&chunk->node->builder->work->unwritten,
				builder_chunk_size(chunk->len));
		tree_block_drop(chunk->block);
	}
	free(chunk);
}

/* If the verifier changed, the server was restarted and may have lost earlier writes. */
int builder_chunk_check_verifier(struct builder_node *node, const struct nfs_op *op)
{
	if (op->stable)
		return 0;
	node->unstable = true;
	if (!node->has_verifier)
		memcpy(node->verifier, op->verifier, sizeof(node->verifier));
	node->has_verifier = true;
	if (memcmp(node->verifier, op->verifier, sizeof(node->verifier)) != 0)
		return builder_fail_lost(node);
	return 0;
}

/*
 * Count what this reply has written or copied. Return 0 and the bytes of the chunk that are left;
 * -EIO or -EREMOTEIO if the reply cannot be right.
 */
static int chunk_advance(struct builder_chunk *chunk, const struct nfs_op *op, size_t *ret_left)
{
	const uint64_t n = is_copy(chunk) ? op->length : op->count;
	const size_t left = chunk->len - (size_t)(chunk->op.offset - chunk->offset);
	int r = builder_chunk_check_verifier(chunk->node, op);

	if (r < 0)
		return r;
	if (n == 0)
		return -EIO;
	if (n > left)
		return -EREMOTEIO;
	chunk->node->written += n;
	if (is_copy(chunk))
		chunk->node->builder->work->progress.bytes += n;
	chunk->op.offset += n; /* where the rest begins, if the server took less */
	*ret_left = left - (size_t)n;
	return 0;
}

static void chunk_requeue(struct builder_chunk *chunk)
{
	list_add_tail(&chunk->node->chunks, &chunk->link);
	builder_node_ready(chunk->node);
}

/* Return why the file has to be copied again: the errno for node->lost, or 0. */
static int copy_loss(struct builder_node *node, const struct nfs_op *op)
{
	/* The server copies asynchronously: allow that for the next files. */
	if (op->is_async) {
		node->builder->work->copies_async = true;
		return -ERESTART;
	}
	/* RFC 7862, section 15.2.3: INVAL beyond the end of the file. Linux copies nothing then. */
	if (op->error == -EINVAL || (op->error == 0 && op->length == 0))
		return -ERESTART;
	if (builder_offload_is_refused(op->error)) {
		node->builder->work->offload &= ~NFS_OFFLOAD_COPY;
		return -ERESTART;
	}
	return op->error == -ESTALE ? -ESTALE : 0;
}

static void chunk_replied(struct nfs_op *op)
{
	struct builder_chunk *chunk = container_of(op, struct builder_chunk, op);
	struct builder_node *node = chunk->node;
	struct tree_builder *b = node->builder;
	size_t left = 0;
	int r = op->error;

	tree_op_returned(b->work, &b->work->writing, op);
	if (tree_should_retry(b->work, r)) {
		chunk_requeue(chunk);
		return;
	}
	if (is_copy(chunk) && r == 0 && op->is_async)
		builder_async_note(node, op);
	if (is_copy(chunk) && node->lost == 0)
		node->lost = copy_loss(node, op);
	if (r == 0 && node->lost == 0)
		r = chunk_advance(chunk, op, &left);
	if (r == 0 && left > 0 && node->lost == 0) {
		chunk_requeue(chunk);
		return;
	}
	if (r < 0 && node->lost == 0)
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
	chunk->op.done = chunk_replied;
	list_add_tail(&node->chunks, &chunk->link);
	node->pending++;
	return 0;
}

int builder_chunk_add_copy(struct builder_node *node, const struct nfs_handle *from,
			   uint64_t offset, size_t len)
{
	struct builder_chunk *chunk = calloc(1, sizeof(*chunk));

	if (chunk == NULL)
		return -ENOMEM;
	chunk->node = node;
	chunk->offset = offset;
	chunk->len = len;
	chunk->op.type = NFS_OP_COPY;
	chunk->op.dir = from;
	chunk->op.to_dir = &node->handle;
	chunk->op.offset = offset;
	chunk->op.done = chunk_replied;
	list_add_tail(&node->chunks, &chunk->link);
	node->pending++;
	builder_node_ready(node);
	return 0;
}

int builder_chunk_start(struct builder_node *node)
{
	struct builder_chunk *chunk = container_of(node->chunks.next, struct builder_chunk, link);
	struct tree_work *work = node->builder->work;
	struct nfs_op *op = &chunk->op;
	size_t done = (size_t)(op->offset - chunk->offset);
	int r;

	list_remove(&chunk->link);
	if (list_is_empty(&node->chunks))
		list_remove(&node->link);
	if (is_copy(chunk)) {
		op->length = chunk->len - done;
	} else {
		op->count = (uint32_t)(chunk->len - done);
		op->buffer = chunk->data + done;
		/* Data of a file that fits into one WRITE needs no COMMIT. */
		op->stable = !node->has_holes && node->attr.size == chunk->len;
	}
	r = nfs_client_start(work->to, op);
	if (r < 0)
		list_add_tail(&node->chunks, &chunk->link);
	return r;
}
