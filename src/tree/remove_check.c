/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Check that a directory is still part of the tree. A handle follows its directory: if somebody
 * moves a directory out of the trash to rescue its contents, it must not be emptied there. So each
 * open directory and those above it are looked up under their names from time to time. A node
 * remembers when that was done for its whole path, since a tree may be thousands of levels deep.
 */

#include <errno.h>

#include "base/clock.h"
#include "tree/remove_node.h"

#define CHECK_MS 1000
#define SLOW_MS 10000 /* how long a slow lookup counts: it may have waited for one huge file */

static uint64_t slowest_check_ns(const struct remover *rm, uint64_t now)
{
	return now - rm->slowest_at_ns < SLOW_MS * CLOCK_NS_PER_MS ? rm->slowest_check_ns : 0;
}

static void check_took(struct remover *rm, uint64_t begun, uint64_t now)
{
	if (now - begun < slowest_check_ns(rm, now))
		return;
	rm->slowest_check_ns = now - begun;
	rm->slowest_at_ns = now;
}

/* Return a period much longer than the lookups of all directories above take. */
static uint64_t check_period_ns(const struct remover *rm, const struct remove_node *node,
				uint64_t now)
{
	return CHECK_MS * CLOCK_NS_PER_MS * (1 + node->depth / TREE_LEVELS) +
	       slowest_check_ns(rm, now) * 4;
}

static void node_is_lost(struct remover *rm, struct remove_node *node)
{
	node->lost = true;
	rm->epoch++;
}

/* Whether an earlier call has found that neither the node nor one above needs a check by now. */
static bool path_is_checked(const struct remover *rm, const struct remove_node *node, uint64_t now,
			    uint64_t period)
{
	return node->path_epoch == rm->epoch && now - node->path_checked_ns < period;
}

static void check_take_reply(struct remover *rm, struct remove_node *node, const struct nfs_op *op)
{
	if (op->error == 0 && nfs_handle_is_equal(&op->handle, &node->handle))
		return;
	if (op->error == 0 && node->parent == NULL && rm->known != NULL) {
		rm->replaced = true;
		node_is_lost(rm, node);
		return;
	}
	/*
	 * A server may have several handles for one directory: continue with the directory that has
	 * the name now, if it is on our file system.
	 */
	if (op->error == 0 && op->attr.type == NFS_TYPE_DIRECTORY &&
	    nfs_is_inside(&op->attr, &rm->fs)) {
		node->handle = op->handle;
		remove_node_rewind(node);
		return;
	}
	/*
	 * Below the root, a stale handle is no error: RMDIR finds out what is still there. The root
	 * is looked up once more, since a server may say STALE for a name that was just removed.
	 */
	if (op->error == -ESTALE && node->parent == NULL &&
	    ++node->stale_tries < REMOVE_STALE_TRIES_MAX) {
		node->checked_ns = 0;
		rm->epoch++;
		return;
	}
	if (op->error < 0 && op->error != -ENOENT &&
	    (op->error != -ESTALE || node->parent == NULL)) {
		remover_fail(rm, op->error, "looking up", node->name);
		node->failed = true;
	}
	node_is_lost(rm, node);
}

static void check_replied(struct nfs_op *op)
{
	struct remove_call *call = container_of(op, struct remove_call, op);
	struct remove_node *node = call->node;
	struct remover *rm = op->data;

	tree_op_returned(&rm->work, &rm->work.writing, op);
	node->checking = false;
	if (!tree_should_retry(&rm->work, op->error)) {
		node->checked_ns = clock_now_ns();
		check_took(rm, call->started_ns, node->checked_ns);
		check_take_reply(rm, node, op);
	}
	remove_call_free(call);
	while (!list_is_empty(&rm->waiting))
		remove_node_ready(rm, container_of(rm->waiting.next, struct remove_node, queue));
	if (node->over)
		remove_node_finish(rm, node);
	else
		remove_node_settle(rm, node);
}

static int check_start(struct remover *rm, struct remove_node *node)
{
	struct remove_call *call = remove_call_new(rm, node, check_replied);
	int r;

	if (call == NULL)
		return -ENOMEM;
	call->op.type = NFS_OP_LOOKUP;
	call->op.dir = remove_node_dir(rm, node);
	call->op.name = node->name;
	call->op.fileid = node->listed;
	call->started_ns = clock_now_ns();
	r = remove_call_start(rm, call);
	node->checking = r == 0;
	return r;
}

/* Leave the node's entries alone. Operations in flight in it or below it still finish. */
static void node_give_up(struct remover *rm, struct remove_node *node)
{
	list_remove(&node->queue);
	remove_node_drop_names(node);
	remove_node_release(rm, node);
	node->lost = true; /* the one above that was lost has voided the checks already */
	node->state = REMOVE_EMPTY;
	remove_node_settle(rm, node);
}

int remove_node_check(struct remover *rm, struct remove_node *node)
{
	const uint64_t now = clock_now_ns(), period = check_period_ns(rm, node, now);
	const bool has_handle = node->state != REMOVE_LOOKUP && node->state != REMOVE_UNLINK;
	struct remove_node *const lowest = has_handle ? node : node->parent;
	struct remove_node *above;
	uint64_t earliest = now;
	bool wait = false;

	for (above = node; above != NULL && !path_is_checked(rm, above, now, period);
	     above = above->parent) {
		if (above->lost) {
			node_give_up(rm, node);
			return 0;
		}
	}
	for (above = lowest; above != NULL; above = above->parent) {
		if (path_is_checked(rm, above, now, period)) {
			if (above->path_checked_ns < earliest)
				earliest = above->path_checked_ns;
			break;
		}
		if (now - above->checked_ns < period) {
			if (above->checked_ns < earliest)
				earliest = above->checked_ns;
			continue;
		}
		wait = true;
		if (!above->checking && rm->work.writing < nfs_window(rm->work.to)) {
			int r = check_start(rm, above);

			if (r < 0)
				return r;
		}
	}
	if (wait) {
		list_remove(&node->queue);
		list_add_tail(&rm->waiting, &node->queue);
		return 0;
	}
	if (lowest != NULL) {
		lowest->path_checked_ns = earliest;
		lowest->path_epoch = rm->epoch;
	}
	return 1;
}
