/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/builder_node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "nfs/error.h"

void builder_fail(struct tree_builder *b, int r, const char *verb, const char *name)
{
	if (b->error != 0)
		return;
	b->error = r;
	if (r == -EEXIST)
		(void)error_set(&b->err, ERROR_FAILED_PRECONDITION,
				"%s '%s' on %s:%s: the name is taken", verb, name,
				b->work->to->export.server, b->work->to->export.share);
	else
		(void)nfs_error_set(&b->err, b->work->to, r, "%s '%s'", verb, name);
}

int builder_fail_lost(struct builder_node *node)
{
	struct tree_builder *b = node->builder;

	if (b->error != 0)
		return b->error;
	(void)error_set(&b->err, ERROR_UNAVAILABLE,
			"writing '%s' on %s:%s: the server may have lost data that was not on its disk yet, as in a restart; try again",
			node->name, b->work->to->export.server, b->work->to->export.share);
	b->err.sys = EIO;
	b->error = -EIO;
	return b->error;
}

/* -------- nodes -------- */

void builder_folder_queue(struct builder_node *folder)
{
	struct tree_builder *b = folder->builder;

	list_remove(&folder->turn);
	if (!list_is_empty(&folder->creates))
		list_add_tail(folder->creating < BUILDER_CREATES ? &b->turns : &b->crowded,
			      &folder->turn);
}

void builder_node_ready(struct builder_node *node)
{
	struct builder_node *parent = node->parent;

	list_remove(&node->link);
	if (node->state == BUILD_LINK && node->target->handle.len == 0) {
		list_add_tail(&node->target->waiting, &node->link);
		return;
	}
	if ((node->state != BUILD_CREATE && node->state != BUILD_LINK) || parent == NULL) {
		list_add_tail(&node->builder->ready, &node->link);
		return;
	}
	list_add_tail(&parent->creates, &node->link);
	if (list_is_empty(&parent->turn))
		builder_folder_queue(parent);
}

void builder_node_queue(struct builder_node *node)
{
	if (node->parent == NULL || node->parent->handle.len > 0)
		builder_node_ready(node);
	else
		list_add_tail(&node->parent->waiting, &node->link);
}

void builder_node_split(struct builder_node *node)
{
	if (!node->deferred)
		return;
	node->deferred = false;
	builder_node_queue(node);
}

struct builder_node *builder_node_next(struct tree_builder *b, bool crowd)
{
	struct list *folders = &b->turns;
	struct builder_node *folder;

	if (!list_is_empty(&b->ready))
		return container_of(b->ready.next, struct builder_node, link);
	if (crowd && list_is_empty(folders))
		folders = &b->crowded;
	if (list_is_empty(folders))
		return NULL;
	folder = container_of(folders->next, struct builder_node, turn);
	return container_of(folder->creates.next, struct builder_node, link);
}

static struct builder_node **node_bucket(struct tree_builder *b, const struct builder_node *parent,
					 const char *name)
{
	uint64_t hash = str_hash(name, strlen(name)) + (uintptr_t)parent / sizeof(*parent);

	return &b->buckets[hash % BUILDER_BUCKETS];
}

struct builder_node *builder_node_find(struct tree_builder *b, const char *name)
{
	struct builder_node *node = *node_bucket(b, b->current, name);

	while (node != NULL && (node->parent != b->current || strcmp(node->name, name) != 0))
		node = node->next_in_bucket;
	return node;
}

struct builder_node *builder_node_new(struct tree_builder *b, const struct tree_entry *entry)
{
	const char *name = b->current != NULL ? entry->name : b->options->root;
	size_t len = strlen(name);
	struct builder_node *node = calloc(1, sizeof(*node) + len + 1), **bucket;

	if (node == NULL)
		return NULL;
	if (entry->attr.type == NFS_TYPE_SYMLINK) {
		node->text = strdup(entry->link);
		if (node->text == NULL) {
			free(node);
			return NULL;
		}
	}
	memcpy(node->name, name, len + 1);
	node->builder = b;
	node->parent = b->current;
	node->attr = entry->attr;
	node->no_attr = !entry->attr.is_full;
	node->has_holes = entry->has_holes;
	/* Archives may have entries without attributes; checksums are read back before SETATTR. */
	node->deferred = b->work->to->whole_max > 0 && entry->attr.type == NFS_TYPE_FILE &&
			 entry->hardlink_to == NULL && !node->no_attr && !node->has_holes &&
			 node->parent != NULL && entry->attr.size <= b->work->to->whole_max &&
			 !b->options->verify;
	list_init(&node->link);
	list_init(&node->waiting);
	list_init(&node->creates);
	list_init(&node->turn);
	list_init(&node->chunks);
	list_add_tail(&b->all, &node->all);
	bucket = node_bucket(b, node->parent, node->name);
	node->next_in_bucket = *bucket;
	*bucket = node;
	return node;
}

void builder_node_lose_xattrs(struct builder_node *node, uint64_t n, int error)
{
	tree_xattrs_lose(node->builder->work, n, error);
	node->xattrs_lost += n;
}

void builder_node_drop_xattrs(struct builder_node *node)
{
	if (node->xattrs == NULL)
		return;
	tree_purse_give(&node->builder->work->unwritten, node->xattrs->bytes);
	tree_xattrs_drop(steal_ptr(&node->xattrs));
}

void builder_node_free(struct builder_node *node)
{
	struct builder_node **slot = node_bucket(node->builder, node->parent, node->name);

	while (*slot != node)
		slot = &(*slot)->next_in_bucket;
	*slot = node->next_in_bucket;
	while (!list_is_empty(&node->chunks))
		builder_chunk_free(container_of(node->chunks.next, struct builder_chunk, link));
	/* After a failure children may outlive their parent. */
	while (!list_is_empty(&node->waiting))
		list_remove(node->waiting.next);
	while (!list_is_empty(&node->creates))
		list_remove(node->creates.next);
	list_remove(&node->turn);
	list_remove(&node->link);
	list_remove(&node->all);
	builder_target_release(&node->builder->targets, node->target);
	builder_node_drop_xattrs(node);
	free(node->text);
	free(node->reread);
	free(node);
}

static void nodes_wake(struct list *waiting)
{
	while (!list_is_empty(waiting))
		builder_node_ready(container_of(waiting->next, struct builder_node, link));
}

/*
 * A file is linked to once nothing else happens to it: if LINK and SETATTR of a file overlap,
 * nfs-ganesha 4.3 may report the link count from before the LINK for a minute.
 */
static void node_wake_links(struct builder_node *node)
{
	if (node->target == NULL || node->is_link)
		return;
	node->target->handle = node->handle;
	nodes_wake(&node->target->waiting);
}

void builder_node_finish(struct builder_node *node)
{
	struct tree_builder *b = node->builder;
	struct builder_node *parent = node->parent;

	node_wake_links(node);
	b->n_closing--;
	if (parent == NULL) {
		b->finished = true;
	} else {
		parent->pending--;
		builder_node_settle(parent);
	}
	builder_node_free(node);
}

/* -------- states -------- */

void builder_node_enter_state(struct builder_node *node, enum builder_node_state state)
{
	node->state = state;
	builder_node_ready(node);
}

void builder_node_leave_data_states(struct builder_node *node)
{
	const bool verify = node->builder->options->verify && node->size > 0;

	builder_node_enter_state(node, verify ? BUILD_VERIFY : BUILD_SETATTR);
}

void builder_node_settle(struct builder_node *node)
{
	if (!node->ended || node->busy || node->pending > 0 || node->state != BUILD_FILL)
		return;
	if (node->unstable)
		builder_node_enter_state(node, BUILD_COMMIT);
	else
		builder_node_leave_data_states(node);
}

int builder_node_enter_fill(struct builder_node *node)
{
	struct tree_builder *b = node->builder;

	if (node->parent == NULL) {
		int r = builder_owner_learn(b, &node->made);

		if (r < 0)
			return r;
		b->root = node->found;
	}
	node->handle = node->found;
	node->state = BUILD_FILL;
	nodes_wake(&node->waiting);
	if (!list_is_empty(&node->chunks))
		builder_node_ready(node);
	builder_node_settle(node);
	return 0;
}

void builder_node_linked(struct builder_node *node)
{
	node->state = BUILD_LINKED;
	if (node->ended)
		builder_node_finish(node);
}
