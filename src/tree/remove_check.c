/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Whether a directory that is being emptied is still part of the tree. The work goes by handle, and a handle
 * follows its directory: whoever moves one out of the trash, to rescue what is in it, must not find it
 * emptied there. So what is open is looked up under its name from time to time, all the way up.
 */

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "tree/remove_node.h"

#define CHECK_MS 1000

/* As long as all above the node can be looked for several times, however deep it is and slow the server. */
static uint64_t period_ns(const struct engine *e, const struct node *node)
{
	return CHECK_MS * CLOCK_NS_PER_MS * (1 + node->depth / TREE_LEVELS) + e->slowest_check_ns * 4;
}

/*
 * A server may have several handles for one directory: what is there under the name now is what is removed,
 * where it is a directory of that file system.
 */
static void check_result(struct engine *e, struct node *node, const struct nfs_op *op)
{
	if (op->error == 0 && nfs_handle_is_equal(&op->handle, &node->handle))
		return;
	if (op->error == 0 && op->attr.type == NFS_TYPE_DIRECTORY &&
	    nfs_fsid_is_equal(&op->attr, &e->fs)) {
		node->handle = op->handle;
		node->cookie = 0;
		memset(node->verifier, 0, sizeof(node->verifier));
		return;
	}
	/* A stale handle says nothing of what the tree lies in; below, RMDIR finds what is still there. */
	if (op->error < 0 && op->error != -ENOENT && (op->error != -ESTALE || node->parent == NULL)) {
		engine_fail(e, op->error, "looking up", node->name);
		node->failed = true;
	}
	node->lost = true;
}

static void check_replied(struct nfs_op *op)
{
	struct call *call = container_of(op, struct call, op);
	struct node *node = call->node;
	struct engine *e = op->data;

	node->checking = false;
	if (!call_is_back(e, op, false)) {
		node->checked_ns = clock_now_ns();
		if (node->checked_ns - call->started_ns > e->slowest_check_ns)
			e->slowest_check_ns = node->checked_ns - call->started_ns;
		check_result(e, node, op);
	}
	call_free(call);
	while (!list_is_empty(&e->waiting))
		node_make_ready(e, container_of(e->waiting.next, struct node, queue));
	if (node->over)
		node_finish(e, node);
	else
		node_settle(e, node);
}

static int start_check(struct engine *e, struct node *node)
{
	struct call *call = call_new(e, node, check_replied);
	int r;

	if (call == NULL)
		return -ENOMEM;
	call->op.type = NFS_OP_LOOKUP;
	call->op.dir = node_parent_handle(e, node);
	call->op.name = node->name;
	call->started_ns = clock_now_ns();
	r = call_start(e, call);
	node->checking = r == 0;
	return r;
}

/* Its names are left alone. What is in flight in it, or below it, comes to its own end. */
static void give_up(struct engine *e, struct node *node)
{
	list_remove(&node->queue);
	node_drop_names(node);
	node_release(e, node);
	node->lost = true;
	node->state = NODE_BUSY;
	node_settle(e, node);
}

/* The node itself, too, once its handle is known. */
static struct node *first_link(struct node *node)
{
	return node->state == NODE_LOOKUP || node->state == NODE_REMOVE ? node->parent : node;
}

int node_check(struct engine *e, struct node *node)
{
	const uint64_t now = clock_now_ns(), period = period_ns(e, node);
	bool wait = false;
	struct node *link;

	for (link = node; link != NULL; link = link->parent) {
		if (link->lost) {
			give_up(e, node);
			return 0;
		}
	}
	for (link = first_link(node); link != NULL; link = link->parent) {
		if (now - link->checked_ns < period)
			continue;
		wait = true;
		if (!link->checking && e->in_flight < nfs_window(e->client)) {
			int r = start_check(e, link);

			if (r < 0)
				return r;
		}
	}
	if (!wait)
		return 1;
	list_remove(&node->queue);
	list_add_tail(&e->waiting, &node->queue);
	return 0;
}
