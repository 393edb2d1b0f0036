/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Nodes and calls: what they own, and how the end of one leads to the end of those above it. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tree/remove_node.h"

/* Readings of a directory that lead to no removal. Another purge of the same tree may be faster for a few. */
#define IDLE_PASSES_MAX 10

#define PATIENCE_MAX 100 /* waits while the server asks to try later, and answers nothing else */

struct node *node_new(struct engine *e, struct node *parent, const char *name)
{
	struct node *node = calloc(1, sizeof(*node));

	if (node == NULL)
		return NULL;
	node->name = strdup(name);
	if (node->name == NULL) {
		free(node);
		return NULL;
	}
	node->parent = parent;
	node->depth = parent != NULL ? parent->depth + 1 : 0;
	node->checked_ns = clock_now_ns();
	list_add_tail(&e->all, &node->all);
	list_init(&node->queue);
	list_init(&node->names);
	e->n_nodes++;
	return node;
}

void node_free(struct engine *e, struct node *node)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &node->names)
		free(container_of(pos, struct name, link));
	list_remove(&node->queue);
	list_remove(&node->all);
	e->n_nodes--;
	free(node->name);
	free(node);
}

const struct nfs_handle *node_parent_handle(const struct engine *e, const struct node *node)
{
	return node->parent != NULL ? &node->parent->handle : e->dir;
}

void node_make_ready(struct engine *e, struct node *node)
{
	list_remove(&node->queue);
	list_add_tail(&e->ready, &node->queue);
}

void node_hold(struct engine *e, struct node *node, const struct node *dir)
{
	node_make_ready(e, node);
	if (dir->chmod_done)
		return;
	list_remove(&node->queue);
	list_add_tail(&e->held, &node->queue);
	node->held_by = dir;
}

void node_release(struct engine *e, const struct node *dir)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &e->held) {
		struct node *node = container_of(pos, struct node, queue);

		if (node->held_by == dir)
			node_make_ready(e, node);
	}
}

int node_add_name(struct node *node, const char *text)
{
	size_t len = strlen(text);
	struct name *name = calloc(1, sizeof(*name) + len + 1);

	if (name == NULL)
		return -ENOMEM;
	memcpy(name->name, text, len + 1);
	list_add_tail(&node->names, &name->link);
	return 0;
}

void node_drop_name(struct name *name)
{
	list_remove(&name->link);
	free(name);
}

void node_drop_names(struct node *node)
{
	while (!list_is_empty(&node->names)) {
		node_drop_name(container_of(node->names.next, struct name, link));
		node->outstanding--;
	}
}

bool node_is_room(const struct engine *e)
{
	return e->n_nodes < TREE_NODES_MAX;
}

void node_path(const struct node *node, char *ret, size_t size)
{
	size_t at = size - 1;

	ret[at] = '\0';
	for (; node != NULL; node = node->parent) {
		size_t len = strlen(node->name);

		if (len + 5 > at) { /* with a slash, and room for what stands for the rest */
			at -= 4;
			memcpy(ret + at, ".../", 4);
			break;
		}
		if (ret[at] != '\0')
			ret[--at] = '/';
		at -= len;
		memcpy(ret + at, node->name, len);
	}
	memmove(ret, ret + at, size - at);
}

void engine_fail(struct engine *e, int r, const char *verb, const char *name)
{
	e->stats->failed++;
	if (e->error != 0)
		return;
	e->error = r;
	(void)nfs_error_set(e->err, e->client, r, "%s '%s'", verb, name);
}

static void start_over(struct node *node)
{
	node->cookie = 0;
	memset(node->verifier, 0, sizeof(node->verifier));
}

/* Whether the node is finished; else it is ready for what comes next, or something is awaited. */
static bool is_settled(struct engine *e, struct node *node)
{
	if (node->outstanding > 0 || node->active || node->checking ||
	    !list_is_empty(&node->names) || node->state != NODE_BUSY)
		return false;
	if (node->lost || (node->failed && node->eof))
		return true;
	if (!node->failed) {
		/* All that there was is gone. If it is not so, RMDIR tells. */
		if (node->eof && (!node->seen_entry || node->removed > 0)) {
			node->state = NODE_RMDIR;
			node_make_ready(e, node);
			return false;
		}
		node->idle_passes =
			node->seen_entry && node->removed == 0 ? node->idle_passes + 1 : 0;
		if (node->idle_passes >= IDLE_PASSES_MAX) {
			engine_fail(e, -ENOTEMPTY, "emptying", node->name);
			node->failed = true;
			return true;
		}
		/* What was there is gone: from the start again. After a failure go on behind it. */
		if (node->seen_entry)
			start_over(node);
	}
	node->state = NODE_READ;
	node_make_ready(e, node);
	return false;
}

/* Returns the node above it, which may have waited for that. */
static struct node *end(struct engine *e, struct node *node)
{
	struct node *parent = node->parent;

	if (parent == NULL) {
		e->finished = true;
		e->root = NULL;
	} else {
		parent->outstanding--;
		if (node->failed)
			parent->failed = true;
		else
			parent->removed++;
	}
	node_free(e, node);
	return parent;
}

void node_settle(struct engine *e, struct node *node)
{
	/* A loop: a tree may be deeper than the stack. */
	while (node != NULL && is_settled(e, node))
		node = end(e, node);
}

void node_finish(struct engine *e, struct node *node)
{
	if (node->checking)
		node->over = true;
	else
		node_settle(e, end(e, node));
}

struct call *call_new(struct engine *e, struct node *node, void (*done)(struct nfs_op *op))
{
	struct call *call = calloc(1, sizeof(*call));

	if (call == NULL)
		return NULL;
	list_init(&call->names);
	call->node = node;
	call->op.data = e;
	call->op.done = done;
	return call;
}

void call_free(struct call *call)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &call->names)
		free(container_of(pos, struct name, link));
	free(call->to_name);
	free(call);
}

int call_start(struct engine *e, struct call *call)
{
	int r = nfs_client_start(e->client, &call->op);

	if (r < 0)
		call_free(call);
	else
		e->in_flight++;
	return r;
}

bool call_is_back(struct engine *e, const struct nfs_op *op, bool did_something)
{
	e->in_flight--;
	if (op->error != -EAGAIN || did_something)
		e->moved = true;
	if (op->error != -EAGAIN || e->patience >= PATIENCE_MAX)
		return false;
	e->wait = true;
	return true;
}
