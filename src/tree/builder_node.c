/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/builder_node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "tree/checksum.h"

#define COMMIT_BYTES                                                                               \
	(64U * 1024 * 1024) /* that are committed at a time: a slow disk has to get on */
#define VERIFY_BYTES 32768 /* that are read again at a time, of each file that is verified */
#define SET_ID_BITS (BUILDER_SET_UID | BUILDER_SET_GID)
#define DIRECTORY_MODE 0700 /* while it is being filled */

void builder_fail(struct tree_builder *b, int r, const char *verb, const char *name)
{
	if (b->error != 0)
		return;
	b->error = r;
	if (r == -EEXIST)
		(void)error_set(&b->err, ERROR_FAILED_PRECONDITION,
				"%s '%s' on %s:%s: there is something of that name already", verb,
				name, b->work->to->export.server, b->work->to->export.share);
	else
		(void)nfs_error_set(&b->err, b->work->to, r, "%s '%s'", verb, name);
}

static void fail_differs(const struct builder_node *node, const char *why)
{
	struct tree_builder *b = node->builder;

	if (b->error == 0)
		b->error =
			error_set(&b->err, ERROR_DATA_LOSS, "writing '%s' on %s:%s: %s", node->name,
				  b->work->to->export.server, b->work->to->export.share, why);
}

void builder_node_ready(struct builder_node *node)
{
	struct builder_node *parent = node->parent;

	list_remove(&node->link);
	if (node->state == NODE_LINK && node->target->handle.len == 0) {
		list_add_tail(&node->target->waiting, &node->link);
		return;
	}
	if ((node->state != NODE_MAKE && node->state != NODE_LINK) || parent == NULL) {
		list_add_tail(&node->builder->ready, &node->link);
		return;
	}
	list_add_tail(&parent->makes, &node->link);
	if (list_is_empty(&parent->turn))
		list_add_tail(&node->builder->turns, &parent->turn);
}

struct builder_node *builder_node_next(struct tree_builder *b)
{
	struct builder_node *folder;
	struct list *first;

	if (!list_is_empty(&b->ready))
		return container_of(b->ready.next, struct builder_node, link);
	if (list_is_empty(&b->turns))
		return NULL;
	folder = container_of(b->turns.next, struct builder_node, turn);
	first = folder->makes.next;
	list_remove(&folder->turn);
	if (first->next != &folder->makes)
		list_add_tail(&b->turns, &folder->turn);
	return container_of(first, struct builder_node, link);
}

/* -------- nodes -------- */

static struct builder_node **bucket(struct tree_builder *b, const struct builder_node *parent,
				    const char *name)
{
	uint64_t hash = str_hash(name, strlen(name)) + (uintptr_t)parent / sizeof(*parent);

	return &b->buckets[hash % BUILDER_BUCKETS];
}

static void add_to_bucket(struct builder_node *node)
{
	struct builder_node **first = bucket(node->builder, node->parent, node->name);

	node->next_in_bucket = *first;
	*first = node;
}

static void remove_from_bucket(struct builder_node *node)
{
	struct builder_node **pos = bucket(node->builder, node->parent, node->name);

	while (*pos != node)
		pos = &(*pos)->next_in_bucket;
	*pos = node->next_in_bucket;
}

struct builder_node *builder_node_find(struct tree_builder *b, const char *name)
{
	struct builder_node *node = *bucket(b, b->current, name);

	while (node != NULL && (node->parent != b->current || strcmp(node->name, name) != 0))
		node = node->next_in_bucket;
	return node;
}

struct builder_node *builder_node_new(struct tree_builder *b, const struct tree_entry *entry)
{
	const char *name = b->current != NULL ? entry->name : b->options->root;
	size_t len = strlen(name);
	struct builder_node *node = calloc(1, sizeof(*node) + len + 1);

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
	node->plain = !entry->attr.is_full;
	node->has_holes = entry->has_holes;
	list_init(&node->link);
	list_init(&node->waiting);
	list_init(&node->makes);
	list_init(&node->turn);
	list_init(&node->chunks);
	list_add_tail(&b->all, &node->all);
	add_to_bucket(node);
	return node;
}

void builder_node_free(struct builder_node *node)
{
	remove_from_bucket(node);
	while (!list_is_empty(&node->chunks))
		builder_chunk_free(container_of(node->chunks.next, struct builder_chunk, link));
	/* Children outlive it where the making of it has failed. */
	while (!list_is_empty(&node->waiting))
		list_remove(node->waiting.next);
	while (!list_is_empty(&node->makes))
		list_remove(node->makes.next);
	list_remove(&node->turn);
	list_remove(&node->link);
	list_remove(&node->all);
	builder_target_release(node->target);
	free(node->text);
	free(node->again);
	free(node);
}

void builder_node_finish(struct builder_node *node)
{
	struct tree_builder *b = node->builder;
	struct builder_node *parent = node->parent;

	b->n_closing--;
	if (parent == NULL) {
		b->finished = true;
	} else {
		parent->pending--;
		builder_node_settle(parent);
	}
	builder_node_free(node);
}

static bool needs_mode(const struct builder_node *node)
{
	if (node->attr.type == NFS_TYPE_SYMLINK)
		return false;
	/* Of a directory it was set with the owner. */
	if (node->attr.type == NFS_TYPE_DIRECTORY && !node->op.attr.has_mode)
		return false;
	return !node->made.has_mode || node->made.mode != builder_owner_mode(node);
}

/* Before the attributes, since reading sets the time of access. */
static enum builder_node_state after_commit(const struct builder_node *node)
{
	return node->builder->options->verify && node->size > 0 ? NODE_VERIFY : NODE_ATTRIBUTES;
}

/* What comes next for a node that nothing is left to be done in. */
void builder_node_settle(struct builder_node *node)
{
	if (!node->ended || node->busy || node->pending > 0 || node->state != NODE_FILL)
		return;
	if (node->unstable)
		node->state = NODE_COMMIT;
	else
		node->state = after_commit(node);
	builder_node_ready(node);
}

static void take_handle(struct builder_node *node, const struct nfs_handle *handle)
{
	struct tree_builder *b = node->builder;

	node->handle = *handle;
	node->state = NODE_FILL;
	if (node->parent == NULL)
		b->root = *handle;
	while (!list_is_empty(&node->waiting))
		builder_node_ready(container_of(node->waiting.next, struct builder_node, link));
	if (node->target != NULL) {
		node->target->handle = *handle;
		while (!list_is_empty(&node->target->waiting))
			builder_node_ready(container_of(node->target->waiting.next,
							struct builder_node, link));
	}
	if (!list_is_empty(&node->chunks))
		builder_node_ready(node);
	builder_node_settle(node);
}

static void take_made(struct builder_node *node)
{
	if (node->parent != NULL || builder_owner_look(node->builder, &node->made) == 0)
		take_handle(node, &node->found);
}

/* -------- replies -------- */

static void look(struct builder_node *node)
{
	node->state = NODE_LOOK;
	builder_node_ready(node);
}

static void made(struct builder_node *node, int r)
{
	struct tree_builder *b = node->builder;
	const struct nfs_op *op = &node->op;

	if (r == -EEXIST && node->parent != NULL && !node->was_there) {
		node->was_there = true;
		/* A directory without attributes is one that leads to something in an archive. */
		node->state = node->plain ? NODE_FIND : NODE_THERE;
		builder_node_ready(node);
		return;
	}
	if (r < 0) {
		builder_fail(b, r, "making", node->name);
		return;
	}
	node->made = op->attr;
	node->found = op->handle;
	if (op->handle.len == 0) {
		node->state = NODE_FIND; /* the handle is optional in a version 3 reply */
		builder_node_ready(node);
	} else if (node->parent == NULL && !op->attr.has_owner && !op->attr.is_named) {
		look(node);
	} else {
		take_made(node);
	}
}

static void found(struct builder_node *node, int r)
{
	if (r == 0 && node->op.attr.type != node->attr.type)
		r = -EEXIST;
	if (r < 0) {
		builder_fail(node->builder, r, "making", node->name);
		return;
	}
	if (node->plain && node->was_there) {
		node->attr = node->op.attr;
		node->plain = !node->attr.is_full;
	}
	node->made = node->op.attr;
	take_made(node);
}

static void committed(struct builder_node *node, int r)
{
	/* Another verifier than with the writes: the server was restarted, and may have lost them. */
	if (r == 0 && memcmp(node->verifier, node->op.verifier, sizeof(node->verifier)) != 0)
		r = -EIO;
	if (r < 0) {
		builder_fail(node->builder, r, "writing", node->name);
		return;
	}
	if (node->size - node->committed > COMMIT_BYTES)
		node->committed += COMMIT_BYTES;
	else
		node->state = after_commit(node);
	builder_node_ready(node);
}

/* Some of a piece has been read again: servers may give less than they are asked for. */
static void verified(struct builder_node *node, int r)
{
	const uint64_t end = node->verified + node->n_again + node->op.count;

	if (r == 0 && node->op.count == 0)
		r = -EIO; /* the file is shorter than what was written */
	if (r < 0) {
		builder_fail(node->builder, r, "reading again", node->name);
		return;
	}
	node->n_again += node->op.count;
	if (node->n_again == VERIFY_BYTES || end >= node->size) {
		node->sum_again += tree_checksum(node->verified, node->again, node->n_again);
		node->verified = end;
		node->n_again = 0;
	}
	if (node->verified >= node->size && node->sum_again != node->sum) {
		fail_differs(node, "the data that is read again is not what was written");
		return;
	}
	if (node->verified >= node->size)
		node->state = NODE_ATTRIBUTES;
	builder_node_ready(node);
}

static bool has_wrong_size(const struct builder_node *node)
{
	const struct nfs_attr *attr = &node->op.attr;

	return node->attr.type == NFS_TYPE_FILE && attr->is_full &&
	       attr->size != (node->has_holes ? node->attr.size : node->size);
}

static void attributes_set(struct builder_node *node, int r)
{
	/* Not every server has owners and times of symbolic links. */
	if (node->attr.type == NFS_TYPE_SYMLINK && (r == -EOPNOTSUPP || r == -EINVAL))
		r = 0;
	if (r == 0)
		r = builder_owner_check(node);
	if (r < 0) {
		builder_fail(node->builder, r, "setting the attributes of", node->name);
		return;
	}
	if (has_wrong_size(node)) {
		fail_differs(node, "the file has not got the size that was written");
		return;
	}
	/* Setting the owner may have taken bits away. */
	if (node->op.attr.has_mode) {
		node->made.has_mode = true;
		node->made.mode = node->op.attr.mode;
	}
	if (node->state == NODE_ATTRIBUTES && needs_mode(node)) {
		node->state = NODE_MODE;
		builder_node_ready(node);
		return;
	}
	builder_node_finish(node);
}

void builder_node_linked(struct builder_node *node)
{
	node->state = NODE_DONE;
	if (node->ended)
		builder_node_finish(node);
}

static void linked(struct builder_node *node, int r)
{
	if (r == -EEXIST && !node->was_there) {
		node->was_there = true;
		node->state = NODE_THERE;
		builder_node_ready(node);
		return;
	}
	if (r < 0)
		builder_fail(node->builder, r, "linking", node->name);
	else
		builder_node_linked(node);
}

static void replied(struct nfs_op *op)
{
	struct builder_node *node = container_of(op, struct builder_node, op);
	struct tree_builder *b = node->builder;
	int r = op->error;

	tree_op_returned(b->work, &b->work->writing, op);
	node->busy = false;
	if (r < 0 && tree_is_to_be_retried(b->work, r)) {
		builder_node_ready(node);
		return;
	}
	switch (node->state) {
	case NODE_MAKE:
		made(node, r);
		break;
	case NODE_FIND:
		node->found = op->handle;
		if (r == 0 && op->attr.type == NFS_TYPE_UNKNOWN)
			look(node);
		else
			found(node, r);
		break;
	case NODE_LOOK:
		found(node, r);
		break;
	case NODE_COMMIT:
		committed(node, r);
		break;
	case NODE_VERIFY:
		verified(node, r);
		break;
	case NODE_ATTRIBUTES:
	case NODE_MODE:
		attributes_set(node, r);
		break;
	case NODE_LINK:
		linked(node, r);
		break;
	case NODE_THERE:
	case NODE_FILL:
	case NODE_DONE:
		break; /* have no operation */
	}
}

/* -------- what is started -------- */

static void prepare_make(struct builder_node *node, struct nfs_op *op)
{
	const struct tree_builder *b = node->builder;
	struct nfs_change *change = &op->change;

	op->dir = node->parent != NULL ? &node->parent->handle : b->parent;
	op->name = node->name;
	op->mode = DIRECTORY_MODE;
	/* The owner comes with the times: knfsd writes the journal for each CREATE that sets one. */
	*change = (struct nfs_change){
		.has_mode = true,
		.mode = builder_owner_mode(node) & ~(uint32_t)SET_ID_BITS,
	};
	switch (node->attr.type) {
	case NFS_TYPE_DIRECTORY:
		op->type = NFS_OP_MKDIR;
		break;
	case NFS_TYPE_FILE:
		op->type = NFS_OP_CREATE;
		break;
	case NFS_TYPE_SYMLINK:
		op->type = NFS_OP_SYMLINK;
		op->text = node->text;
		break;
	default:
		op->type = NFS_OP_MKNOD;
		op->node = node->attr.type;
		op->device = node->attr.device;
		break;
	}
}

static int prepare_attributes(struct builder_node *node, struct nfs_change *change)
{
	const struct tree_builder *b = node->builder;

	*change = (struct nfs_change){
		.has_times = !node->plain,
		.atime = node->attr.atime,
		.mtime = node->attr.mtime,
		.has_mode = node->attr.type == NFS_TYPE_DIRECTORY,
		.mode = builder_owner_mode(node),
		.has_size = node->has_holes, /* one at the end is not written */
		.size = node->attr.size,
	};
	if (change->has_times && !node->clamped && !nfs_time_fits(b->work->to, &node->attr.mtime)) {
		node->clamped = true;
		b->work->progress.clamped++;
	}
	return builder_owner_put(node, change);
}

static int prepare(struct builder_node *node)
{
	struct nfs_op *op = &node->op;
	int r = 0;

	*op = (struct nfs_op){ .dir = &node->handle, .done = replied, .full = true };
	switch (node->state) {
	case NODE_MAKE:
		prepare_make(node, op);
		break;
	case NODE_FIND:
		op->type = NFS_OP_LOOKUP;
		op->dir = node->parent != NULL ? &node->parent->handle : node->builder->parent;
		op->name = node->name;
		break;
	case NODE_LOOK:
		op->type = NFS_OP_GETATTR;
		op->dir = &node->found;
		break;
	case NODE_COMMIT:
		op->type = NFS_OP_COMMIT;
		op->offset = node->committed;
		if (node->size - node->committed > COMMIT_BYTES)
			op->count = COMMIT_BYTES;
		break;
	case NODE_VERIFY:
		op->type = NFS_OP_READ;
		op->offset = node->verified + node->n_again;
		op->count = VERIFY_BYTES - node->n_again;
		op->buffer = node->again + node->n_again;
		break;
	case NODE_ATTRIBUTES:
		op->type = NFS_OP_SETATTR;
		r = prepare_attributes(node, &op->change);
		break;
	case NODE_LINK:
		op->type = NFS_OP_LINK;
		op->dir = &node->target->handle;
		op->to_dir = &node->parent->handle;
		op->to_name = node->name;
		break;
	default:
		op->type = NFS_OP_SETATTR;
		op->change =
			(struct nfs_change){ .has_mode = true, .mode = builder_owner_mode(node) };
		break;
	}
	return r;
}

int builder_node_start(struct builder_node *node)
{
	int r;

	if (node->state == NODE_FILL)
		return builder_chunk_start(node);
	if (node->state == NODE_VERIFY && node->again == NULL)
		node->again = malloc(VERIFY_BYTES);
	if (node->state == NODE_VERIFY && node->again == NULL)
		return -ENOMEM;
	list_remove(&node->link);
	r = prepare(node);
	if (r < 0)
		return r;
	node->busy = true;
	r = nfs_client_start(node->builder->work->to, &node->op);
	if (r < 0)
		node->busy = false;
	return r;
}
