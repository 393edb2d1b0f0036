/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * File data that the server copies itself (RFC 7862). CLONE shares the blocks of the source, takes
 * no time for any size, and keeps holes. COPY moves the data on the server. Both need an export
 * that reaches both files, so the first file of a tree shows whether they work there.
 */

#include <errno.h>
#include <string.h>

#include "tree/builder_node.h"

#define COPY_BYTES                                                                                 \
	(4U * 1024 * 1024) /* of one COPY: Linux does no more, and it must not time out */
#define COPIES_MAX 4 /* in flight: each occupies a thread of the server until it is done */

/* The server, or the file system, does not have the operation. */
static bool is_refusal(int error)
{
	return error == -EOPNOTSUPP || error == -EXDEV || error == -EINVAL;
}

static void offload_replied(struct nfs_op *op)
{
	struct builder_node *node = container_of(op, struct builder_node, op);

	tree_op_returned(node->builder->work, &node->builder->work->writing, op);
	node->busy = false;
}

/* Run node->op alone. Returns its error in *ret, or a negative errno with err set. */
static int run_op(struct tree_builder *b, struct builder_node *node, int *ret, struct error *err)
{
	struct tree_work *work = b->work;
	int r;

	do {
		r = nfs_client_start(work->to, &node->op);
		if (r < 0)
			return nfs_error_set(err, work->to, r, "copying '%s'", node->name);
		node->busy = true;
		work->writing++;
		while (node->busy) {
			r = builder_wait(b, err);
			if (r < 0)
				return r;
		}
	} while (tree_should_retry(work, node->op.error));
	*ret = node->op.error;
	return 0;
}

static int fail_copy(struct tree_builder *b, const struct builder_node *node, int r,
		     struct error *err)
{
	builder_fail(b, r, "copying", node->name);
	return builder_error(b, err);
}

static int clone_file(struct tree_builder *b, struct builder_node *node,
		      const struct nfs_handle *from, struct error *err)
{
	int result = 0, r;

	if ((b->work->offload & NFS_OFFLOAD_CLONE) == 0)
		return 0;
	node->op = (struct nfs_op){
		.type = NFS_OP_CLONE,
		.dir = from,
		.to_dir = &node->handle,
		.done = offload_replied,
	};
	r = run_op(b, node, &result, err);
	if (r < 0)
		return r;
	if (is_refusal(result)) {
		b->work->offload &= ~NFS_OFFLOAD_CLONE;
		return 0;
	}
	if (result < 0)
		return result == -ESTALE ? result : fail_copy(b, node, result, err);
	r = builder_chunk_check_verifier(node, &node->op);
	if (r < 0)
		return fail_copy(b, node, r, err);
	if (!node->op.attr.is_full || node->op.attr.size != node->attr.size)
		return -ERESTART;
	b->work->progress.bytes += node->attr.size;
	return 1;
}

/* Copy the range at offset: the first one, which shows whether COPY works. */
static int copy_first(struct tree_builder *b, struct builder_node *node,
		      const struct nfs_handle *from, const struct tree_segment *range,
		      uint64_t *ret_len, struct error *err)
{
	int result = 0, r;

	node->op = (struct nfs_op){
		.type = NFS_OP_COPY,
		.dir = from,
		.to_dir = &node->handle,
		.offset = range->offset,
		.length = range->len < COPY_BYTES ? range->len : COPY_BYTES,
		.done = offload_replied,
	};
	r = run_op(b, node, &result, err);
	if (r < 0)
		return r;
	if (is_refusal(result)) {
		b->work->offload &= ~NFS_OFFLOAD_COPY;
		return 0;
	}
	if (result < 0)
		return result == -ESTALE ? result : fail_copy(b, node, result, err);
	if (node->op.length == 0)
		return -ERESTART;
	if (node->op.length > range->len)
		return fail_copy(b, node, -EREMOTEIO, err);
	r = builder_chunk_check_verifier(node, &node->op);
	if (r < 0)
		return fail_copy(b, node, r, err);
	node->written += node->op.length;
	b->work->progress.bytes += node->op.length;
	*ret_len = node->op.length;
	return 1;
}

/* Wait until fewer than max pieces are pending. */
static int wait_for_pieces(struct tree_builder *b, struct builder_node *node, size_t max,
			   struct error *err)
{
	int r = 0;

	while (r == 0 && node->pending > 0 && node->pending >= max)
		r = builder_wait(b, err);
	return r;
}

static int copy_range(struct tree_builder *b, struct builder_node *node,
		      const struct nfs_handle *from, const struct tree_segment *range, uint64_t at,
		      struct error *err)
{
	while (at < range->len && node->lost == 0) {
		const uint64_t left = range->len - at;
		const size_t len = left < COPY_BYTES ? (size_t)left : COPY_BYTES;
		int r = wait_for_pieces(b, node, COPIES_MAX, err);

		if (r < 0)
			return r;
		if (builder_chunk_add_copy(node, from, range->offset + at, len) < 0)
			return error_oom(err);
		at += len;
	}
	return 0;
}

static int copy_file(struct tree_builder *b, struct builder_node *node,
		     const struct tree_entry *entry, const struct nfs_handle *from,
		     struct error *err)
{
	const struct tree_segment whole = { .len = entry->attr.size };
	const struct tree_segment *ranges = entry->is_mapped ? entry->segments : &whole;
	const size_t n = entry->is_mapped ? entry->n_segments : 1;
	uint64_t at = 0;
	size_t i;
	int r;

	/* COPY may write the zeros of holes, so it is used only where they are known. */
	if ((b->work->offload & NFS_OFFLOAD_COPY) == 0 || n == 0 ||
	    (entry->has_holes && !entry->is_mapped))
		return 0;
	r = copy_first(b, node, from, &ranges[0], &at, err);
	if (r <= 0)
		return r;
	for (i = 0; i < n; i++) {
		r = copy_range(b, node, from, &ranges[i], at, err);
		if (r < 0)
			return r;
		at = 0;
	}
	r = wait_for_pieces(b, node, 1, err);
	if (r < 0)
		return r;
	return node->lost < 0 ? node->lost : 1;
}

int builder_copy(struct tree_sink *sink, const struct tree_entry *entry,
		 const struct nfs_handle *from, struct error *err)
{
	struct tree_builder *b = container_of(sink, struct tree_builder, sink);
	struct builder_node *node = b->current;
	int r = 0;

	/* Checksums are taken of the data. */
	if (b->options->verify)
		return 0;
	builder_node_split(node);
	while (r == 0 && node->handle.len == 0)
		r = builder_wait(b, err);
	if (r == 0)
		r = clone_file(b, node, from, err);
	if (r == 0)
		r = copy_file(b, node, entry, from, err);
	if (r <= 0)
		return r;
	node->size = entry->attr.size;
	node->has_holes = true; /* a hole at the end is not copied */
	return 1;
}
