/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * COPY that the server goes on with after its reply (RFC 7862, section 15.2). There is no back
 * channel on which it could tell the end, so OFFLOAD_STATUS asks for it, with a growing pause.
 *
 * A server that does not tell the end (older Linux servers) copies nothing more in this work. What
 * came of the copy is not known then: it is cancelled, and the file is dropped and made again, by
 * READ and WRITE. A copy that goes on in spite of that reaches no file of the tree.
 */

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "tree/builder_node.h"

#define POLL_MIN_MS 5
#define POLL_MAX_MS 1000
#define POLL_PART 8 /* of the time so far: what the last pause may add to it */
#define STALL_MS 60000 /* a copy that moves nothing for so long will not end */

void builder_later_note(struct builder_node *node, const struct nfs_op *op)
{
	assert(node->n_copies < BUILDER_COPIES_MAX);
	memcpy(node->copies[node->n_copies++], op->copy_id, sizeof(op->copy_id));
}

void builder_later_cancel(struct builder_node *node)
{
	struct nfs_op op = { .type = NFS_OP_COPY_CANCEL, .dir = &node->handle };

	while (node->n_copies > 0) {
		memcpy(op.copy_id, node->copies[--node->n_copies], sizeof(op.copy_id));
		/* Whatever the result: nobody uses the file. */
		(void)nfs_client_call(node->builder->work->to, &op);
	}
}

/* Whether the server has not answered, or not so that anybody could tell what it means. */
static bool is_unanswered(int error)
{
	return error == -ECONNABORTED || error == -ETIMEDOUT || error == -EBADMSG ||
	       error == -ENOMEM;
}

/* Have the file made again, without COPY. */
static int give_up(struct tree_builder *b, struct builder_node *node, const char *why)
{
	log_info("The server copies asynchronously and does not tell the end: files are read and written",
		 LOG_STR("file", node->name), LOG_STR("reason", why));
	builder_later_cancel(node);
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

int builder_later_wait(struct builder_node *node, uint64_t len, uint64_t *ret_len,
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
			return give_up(b, node, "more is copied than was asked for");
		if (op->length > copied) {
			b->work->progress.bytes += op->length - copied;
			copied = op->length;
			moved_ns = clock_now_ns();
		}
		if (op->ended)
			break;
		if (clock_now_ns() - moved_ns >= STALL_MS * CLOCK_NS_PER_MS)
			return give_up(b, node, "it has not moved on");
	}
	node->n_copies = 0;
	*ret_len = op->length;
	return op->copy_error;
}
