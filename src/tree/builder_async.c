/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Asynchronous COPY (RFC 7862, section 15.2): the server replies and keeps copying. It cannot
 * report completion without a back channel, so poll with OFFLOAD_STATUS, pausing longer each time.
 *
 * Older Linux servers never report completion. The outcome of the copy is unknown then: cancel it,
 * remove the file, make it again by READ and WRITE, and use no COPY for the rest of the work. A
 * copy that continues all the same writes to no file of the tree.
 */

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "tree/builder_node.h"

#define POLL_MIN_MS 5
#define POLL_MAX_MS 1000
#define POLL_PART 8 /* a pause is at most this part of the time so far */
#define STALL_MS 60000 /* give up on a copy that makes no progress for so long */

void builder_async_note(struct builder_node *node, const struct nfs_op *op)
{
	assert(node->n_copies < BUILDER_COPIES_MAX);
	memcpy(node->copies[node->n_copies++], op->copy_id, sizeof(op->copy_id));
}

void builder_async_cancel(struct builder_node *node)
{
	struct nfs_op op = { .type = NFS_OP_COPY_CANCEL, .dir = &node->handle };

	while (node->n_copies > 0) {
		memcpy(op.copy_id, node->copies[--node->n_copies], sizeof(op.copy_id));
		/* Whatever the result: nobody uses the file. */
		(void)nfs_client_call(node->builder->work->to, &op);
	}
}

/* Whether there was no reply, or none that could be decoded. */
static bool is_unanswered(int error)
{
	return error == -ECONNABORTED || error == -ETIMEDOUT || error == -EBADMSG ||
	       error == -ENOMEM;
}

/* Cancel the copy, and stop using COPY. Return -ERESTART, so that the file is made again. */
static int give_up(struct tree_builder *b, struct builder_node *node, const char *why)
{
	log_info("The server copies asynchronously and never reports completion: reading and writing files instead",
		 LOG_STR("file", node->name), LOG_STR("reason", why));
	builder_async_cancel(node);
	b->work->offload &= ~NFS_OFFLOAD_COPY;
	return -ERESTART;
}

static int pause_until(struct tree_builder *b, uint64_t wake_ns, struct error *err)
{
	int r = 0;

	b->work->wake_ns = wake_ns;
	while (r == 0 && clock_now_ns() < wake_ns)
		r = builder_wait(b, err);
	b->work->wake_ns = 0;
	return r;
}

static uint64_t next_pause_ns(uint64_t begun_ns)
{
	const uint64_t ms = (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS / POLL_PART;

	return (ms < POLL_MIN_MS   ? POLL_MIN_MS
		: ms > POLL_MAX_MS ? POLL_MAX_MS
				   : ms) *
	       CLOCK_NS_PER_MS;
}

/* Ask for the node's only copy; the answer is in node->op. Returns as builder_offload_run(). */
static int ask_status(struct builder_node *node, int *ret, struct error *err)
{
	node->op = (struct nfs_op){ .type = NFS_OP_COPY_STATUS, .dir = &node->handle };
	memcpy(node->op.copy_id, node->copies[0], sizeof(node->op.copy_id));
	return builder_offload_run(node, ret, err);
}

int builder_async_wait(struct builder_node *node, uint64_t len, uint64_t *ret_len,
		       struct error *err)
{
	struct tree_builder *b = node->builder;
	const struct nfs_op *op = &node->op;
	const uint64_t begun_ns = clock_now_ns();
	uint64_t copied = 0, moved_ns = begun_ns;
	int result = 0, r;

	for (;;) {
		r = pause_until(b, clock_now_ns() + next_pause_ns(begun_ns), err);
		if (r == 0)
			r = ask_status(node, &result, err);
		if (r < 0)
			return r;
		if (is_unanswered(result))
			return builder_offload_fail(node, result, err);
		if (result < 0)
			return give_up(b, node, strerror(-result));
		if (op->length > len)
			return give_up(b, node, "it copied more than requested");
		if (op->length > copied) {
			b->work->progress.bytes += op->length - copied;
			copied = op->length;
			moved_ns = clock_now_ns();
		}
		if (op->ended)
			break;
		if (clock_now_ns() - moved_ns >= STALL_MS * CLOCK_NS_PER_MS)
			return give_up(b, node, "it makes no progress");
	}
	node->n_copies = 0;
	*ret_len = op->length;
	return op->copy_error;
}
