/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Files that the server copies itself (RFC 7862). CLONE shares the blocks of the source, takes the
 * same short time for any size, and keeps holes. COPY moves the data on the server. Both need one
 * server with both files, and may be refused for one file or for all.
 */

#include <errno.h>
#include <string.h>

#include "nfs/error.h"
#include "tree/builder_node.h"

/* Per synchronous COPY: Linux copies no more at once, and the call must not time out. */
#define COPY_BYTES (4U * 1024 * 1024)
/* Refusals of CLONE, or of COPY, in a row after which it is not tried for further files. */
#define REFUSALS_MAX 8
/* Per asynchronous COPY. Servers need not report progress: it must end within STALL_MS. */
#define ASYNC_BYTES (1024U * 1024 * 1024)

/* Whether the server or the file system lacks the operation, for all files. */
static bool is_unsupported(int error)
{
	return error == -EOPNOTSUPP || error == -EXDEV;
}

/*
 * The file may still be read and written. CLONE and COPY open the source with the identity of the
 * target, which may not read it, where READ has the identity of the source. Servers may also refuse
 * to do it for a file that is not open, or for one file only (copy on write switched off).
 */
bool builder_offload_is_refused(int error)
{
	return is_unsupported(error) || error == -EINVAL || error == -EACCES || error == -EPERM ||
	       error == -EREMOTEIO;
}

/* Count a refusal: most servers that refuse one file after another refuse them all. */
static void note_refusal(struct tree_builder *b, unsigned int offload, unsigned int *count,
			 int error)
{
	if (is_unsupported(error) || ++*count == REFUSALS_MAX)
		b->work->offload &= ~offload;
}

static void offload_replied(struct nfs_op *op)
{
	struct builder_node *node = container_of(op, struct builder_node, op);

	tree_op_returned(node->builder->work, &node->builder->work->writing, op);
	node->busy = false;
	if (op->type == NFS_OP_COPY && op->error == 0 && op->is_async)
		builder_async_note(node, op);
}

int builder_offload_run(struct builder_node *node, int *ret, struct error *err)
{
	struct tree_builder *b = node->builder;
	struct tree_work *work = b->work;
	int r;

	node->op.done = offload_replied;
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

int builder_offload_fail(struct builder_node *node, int r, struct error *err)
{
	builder_fail(node->builder, r, "copying", node->name);
	return builder_error(node->builder, err);
}

static int clone_file(struct tree_builder *b, struct builder_node *node,
		      const struct tree_entry *entry, const struct nfs_handle *from,
		      struct error *err)
{
	int result = 0, r;

	/* The reader asks for segments only after CLONE was refused. */
	if ((b->work->offload & NFS_OFFLOAD_CLONE) == 0 || entry->is_mapped)
		return 0;
	node->op = (struct nfs_op){
		.type = NFS_OP_CLONE,
		.dir = from,
		.to_dir = &node->handle,
	};
	r = builder_offload_run(node, &result, err);
	if (r < 0)
		return r;
	if (builder_offload_is_refused(result)) {
		note_refusal(b, NFS_OFFLOAD_CLONE, &b->clones_refused, result);
		return 0;
	}
	if (result < 0)
		return result == -ESTALE ? result : builder_offload_fail(node, result, err);
	r = builder_chunk_check_verifier(node, &node->op);
	if (r < 0)
		return builder_offload_fail(node, r, err);
	if (!node->op.attr.is_full || node->op.attr.size != node->attr.size)
		return -ERESTART;
	b->clones_refused = 0;
	b->work->progress.bytes += node->attr.size;
	return 1;
}

/*
 * Handle a failed COPY. Returns 0 if the file has to be read and written, else as builder_copy().
 */
static int copy_failed(struct tree_builder *b, struct builder_node *node, int result,
		       struct error *err)
{
	/* RFC 7862, section 15.2.3: beyond the end of the file. */
	if (result == -EINVAL && node->written > 0)
		return -ERESTART;
	if (!builder_offload_is_refused(result))
		return result == -ESTALE ? result : builder_offload_fail(node, result, err);
	if (node->written > 0) {
		b->work->offload &= ~NFS_OFFLOAD_COPY;
		return -ERESTART;
	}
	note_refusal(b, NFS_OFFLOAD_COPY, &b->copies_refused, result);
	return 0;
}

/* Servers that answer a synchronous COPY before it is done may leave out the verifier. */
static bool tells_verifier(const struct nfs_op *op)
{
	static const char none[sizeof(op->verifier)];

	return memcmp(op->verifier, none, sizeof(none)) != 0;
}

/*
 * Have the server copy the start of a range, at most COPY_BYTES or ASYNC_BYTES. Returns 1 and how
 * much was copied, 0 if nothing was, or as builder_copy().
 */
static int copy_part(struct tree_builder *b, struct builder_node *node,
		     const struct nfs_handle *from, const struct tree_segment *range,
		     uint64_t *ret_len, struct error *err)
{
	const bool async = b->work->copies_async;
	const uint64_t max = async ? ASYNC_BYTES : COPY_BYTES;
	const uint64_t len = range->len < max ? range->len : max;
	int result = 0, r;

	node->op = (struct nfs_op){
		.type = NFS_OP_COPY,
		.dir = from,
		.to_dir = &node->handle,
		.offset = range->offset,
		.length = len,
		.allow_async = async,
	};
	r = builder_offload_run(node, &result, err);
	if (r < 0)
		return r;
	b->work->copies_async = async || node->op.is_async;
	/* The server copies only asynchronously: ask again and allow it. */
	if (result == -EOPNOTSUPP && !async && node->op.is_async)
		return copy_part(b, node, from, range, ret_len, err);
	if (result < 0)
		return copy_failed(b, node, result, err);
	/* Without a verifier, a restart would go unnoticed: make the file again. */
	if (node->op.is_async && !async && !tells_verifier(&node->op))
		return -ERESTART;
	r = builder_chunk_check_verifier(node, &node->op);
	if (r < 0)
		return builder_offload_fail(node, r, err);
	if (node->op.is_async) {
		r = builder_async_wait(node, len, ret_len, err);
		if (r < 0 && (r == -ERESTART || err->code != ERROR_OK))
			return r;
		if (r < 0)
			return copy_failed(b, node, r, err);
	} else {
		if (node->op.length > len)
			return builder_offload_fail(node, -EREMOTEIO, err);
		*ret_len = node->op.length;
		b->work->progress.bytes += *ret_len;
	}
	if (*ret_len == 0)
		return -ERESTART;
	node->written += *ret_len;
	b->copies_refused = 0;
	return 1;
}

/* Copy the ranges part by part; at bytes of the first one are copied already. */
static int copy_parts(struct tree_builder *b, struct builder_node *node,
		      const struct nfs_handle *from, const struct tree_segment *ranges, size_t n,
		      uint64_t at, struct error *err)
{
	uint64_t len = 0;
	size_t i;
	int r;

	for (i = 0; i < n; i++) {
		for (; at < ranges[i].len; at += len) {
			const struct tree_segment rest = { .offset = ranges[i].offset + at,
							   .len = ranges[i].len - at };

			r = copy_part(b, node, from, &rest, &len, err);
			if (r <= 0)
				return r;
		}
		at = 0;
	}
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
		int r = wait_for_pieces(b, node, BUILDER_COPIES_MAX, err);

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
	r = copy_part(b, node, from, &ranges[0], &at, err);
	if (r <= 0)
		return r;
	if (b->work->copies_async)
		return copy_parts(b, node, from, ranges, n, at, err);
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
	const uint64_t bytes = b->work->progress.bytes;
	int r = 0;

	/* Checksums are taken of the data. */
	if (b->options->verify)
		return 0;
	builder_node_split(node);
	node->source = *from;
	while (r == 0 && node->handle.len == 0)
		r = builder_wait(b, err);
	if (r == 0)
		r = clone_file(b, node, entry, &node->source, err);
	if (r == 0)
		r = copy_file(b, node, entry, &node->source, err);
	if (r <= 0) {
		builder_async_cancel(node);
		b->work->progress.bytes = bytes;
		return r;
	}
	node->size = entry->attr.size;
	node->has_holes = true; /* a hole at the end is not copied */
	return 1;
}
