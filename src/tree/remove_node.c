/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Nodes and calls: what they own, and how the end of a node leads to the end of those above it. */

#include "tree/remove_node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Limit of consecutive listings without a removal: another purge may take some entries first. */
#define IDLE_PASSES_MAX 10

struct remove_node *remove_node_new(struct remover *rm, struct remove_node *parent,
				    const char *name)
{
	struct remove_node *node = calloc(1, sizeof(*node));

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
	list_add_tail(&rm->all, &node->all);
	list_init(&node->queue);
	list_init(&node->names);
	rm->n_nodes++;
	return node;
}

void remove_node_free(struct remover *rm, struct remove_node *node)
{
	remove_node_drop_names(node);
	list_remove(&node->queue);
	list_remove(&node->all);
	rm->n_nodes--;
	free(node->name);
	free(node);
}

const struct nfs_handle *remove_node_dir(const struct remover *rm, const struct remove_node *node)
{
	return node->parent != NULL ? &node->parent->handle : rm->dir;
}

void remove_node_ready(struct remover *rm, struct remove_node *node)
{
	list_remove(&node->queue);
	list_add_tail(&rm->ready, &node->queue);
}

void remove_node_hold(struct remover *rm, struct remove_node *node, const struct remove_node *dir)
{
	remove_node_ready(rm, node);
	if (dir->chmod_done)
		return;
	list_remove(&node->queue);
	list_add_tail(&rm->held, &node->queue);
	node->held_by = dir;
}

void remove_node_release(struct remover *rm, const struct remove_node *dir)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &rm->held) {
		struct remove_node *node = container_of(pos, struct remove_node, queue);

		if (node->held_by == dir)
			remove_node_ready(rm, node);
	}
}

void remove_node_rewind(struct remove_node *node)
{
	node->cookie = 0;
	node->cookies = (struct nfs_cookies){ .pages = 0 };
	memset(node->verifier, 0, sizeof(node->verifier));
}

int remove_node_add_name(struct remove_node *node, const char *text)
{
	size_t len = strlen(text);
	struct remove_name *name = calloc(1, sizeof(*name) + len + 1);

	if (name == NULL)
		return -ENOMEM;
	memcpy(name->name, text, len + 1);
	list_add_tail(&node->names, &name->link);
	node->outstanding++;
	return 0;
}

void remove_name_free(struct remove_name *name)
{
	list_remove(&name->link);
	free(name);
}

void remove_node_drop_names(struct remove_node *node)
{
	while (!list_is_empty(&node->names)) {
		remove_name_free(container_of(node->names.next, struct remove_name, link));
		node->outstanding--;
	}
}

void remove_node_path(const struct remove_node *node, char *ret, size_t size)
{
	size_t at = size - 1;

	ret[at] = '\0';
	for (; node != NULL; node = node->parent) {
		size_t len = strlen(node->name);

		if (len + 5 > at) { /* with a slash, and room for ".../" */
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

/* Return whether the node is finished. If not, it is queued, or it waits for a reply. */
static bool node_is_settled(struct remover *rm, struct remove_node *node)
{
	if (node->outstanding > 0 || node->active || node->checking ||
	    !list_is_empty(&node->names) || node->state != REMOVE_EMPTY)
		return false;
	if (node->lost || (node->failed && node->eof))
		return true;
	/* All that was listed is gone. RMDIR tells if there is more. */
	if (!node->failed && node->eof && (!node->seen_entry || node->removed > 0)) {
		node->state = REMOVE_RMDIR;
		remove_node_ready(rm, node);
		return false;
	}
	/* After a failure, list what follows the entries that stay; else list from the start. */
	if (!node->failed) {
		node->idle_passes =
			node->seen_entry && node->removed == 0 ? node->idle_passes + 1 : 0;
		if (node->idle_passes >= IDLE_PASSES_MAX) {
			remover_fail(rm, -ENOTEMPTY, "emptying", node->name);
			node->failed = true;
			return true;
		}
		if (node->seen_entry)
			remove_node_rewind(node);
	}
	node->state = REMOVE_READ;
	remove_node_ready(rm, node);
	return false;
}

/* Free a finished node. Returns its parent, which may have waited for it. */
static struct remove_node *node_end(struct remover *rm, struct remove_node *node)
{
	struct remove_node *parent = node->parent;

	if (parent == NULL) {
		rm->finished = true;
		rm->root = NULL;
	} else {
		parent->outstanding--;
		if (node->failed)
			parent->failed = true;
		else
			parent->removed++;
	}
	remove_node_free(rm, node);
	return parent;
}

void remove_node_settle(struct remover *rm, struct remove_node *node)
{
	/* A loop, because a tree may be deeper than the stack. */
	while (node != NULL && node_is_settled(rm, node))
		node = node_end(rm, node);
}

void remove_node_finish(struct remover *rm, struct remove_node *node)
{
	if (node->checking)
		node->over = true;
	else
		remove_node_settle(rm, node_end(rm, node));
}

struct remove_call *remove_call_new(struct remover *rm, struct remove_node *node,
				    void (*done)(struct nfs_op *op))
{
	struct remove_call *call = calloc(1, sizeof(*call));

	if (call == NULL)
		return NULL;
	list_init(&call->names);
	call->node = node;
	call->op.data = rm;
	call->op.done = done;
	return call;
}

void remove_call_free(struct remove_call *call)
{
	while (!list_is_empty(&call->names))
		remove_name_free(container_of(call->names.next, struct remove_name, link));
	free(call->to_name);
	free(call);
}

int remove_call_start(struct remover *rm, struct remove_call *call)
{
	int r = nfs_client_start(rm->work.to, &call->op);

	if (r < 0)
		remove_call_free(call);
	else
		rm->work.writing++;
	return r;
}
