/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* What an answer means for the node that asked. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tree/remove_node.h"

#define RMDIR_TRIES_MAX 10 /* somebody keeps adding entries */
#define LIFT_TRIES_MAX 5 /* names that are taken */

/*
 * Whether what was refused in dir is to be tried again. Who may not write there may still be its owner, who
 * may change the mode: that is done once, for all that was under way when it was refused. dir NULL is what
 * the tree lies in, which stays as it is. opened: dir had its new mode when the operation was started.
 */
static bool opens(struct engine *e, struct node *dir, int r, bool opened)
{
	if ((r != -EACCES && r != -EPERM) || dir == NULL || opened)
		return false;
	if (!dir->chmod_tried && dir->state == NODE_BUSY) {
		dir->chmod_tried = true;
		dir->after_chmod = NODE_READ;
		dir->state = NODE_CHMOD;
		node_make_ready(e, dir);
	}
	return dir->chmod_tried;
}

static void node_failed(struct engine *e, struct node *node, int r, const char *verb)
{
	engine_fail(e, r, verb, node->name);
	node->failed = true;
	node_finish(e, node);
}

/* -------- which file system it is on -------- */

static void leave(struct engine *e, struct node *node)
{
	if (e->borders++ == 0)
		node_path(node, e->border, sizeof(e->border));
	node->failed = true;
	node_finish(e, node);
}

static void set_state(struct engine *e, struct node *node, enum node_state state)
{
	node->state = state;
	node_make_ready(e, node);
}

/* A directory with a handle: whether it may be entered. */
static void enter(struct engine *e, struct node *node, const struct nfs_attr *attr)
{
	const bool is_deep = node->depth > 0 && node->depth % TREE_LEVELS == 0;

	if (!attr->has_fsid)
		set_state(e, node, NODE_GETATTR);
	else if (!nfs_fsid_is_equal(attr, &e->fs))
		leave(e, node);
	else
		set_state(e, node, is_deep ? NODE_LIFT : NODE_READ);
}

static void lookup_replied(struct engine *e, struct node *node, const struct nfs_op *op)
{
	if (op->error == -ENOENT) {
		node_finish(e, node);
		return;
	}
	if (op->error < 0) {
		node_failed(e, node, op->error, "looking up");
		return;
	}
	node->handle = op->handle;
	if (op->attr.type == NFS_TYPE_UNKNOWN)
		set_state(e, node, NODE_GETATTR);
	else if (op->attr.type != NFS_TYPE_DIRECTORY)
		set_state(e, node, NODE_REMOVE);
	else
		enter(e, node, &op->attr);
}

/* One that the server does not tell the file system of is not entered. */
static void getattr_replied(struct engine *e, struct node *node, const struct nfs_op *op)
{
	if (op->error == -ENOENT || op->error == -ESTALE)
		set_state(e, node, NODE_RMDIR); /* gone, or taken for gone: its name tells */
	else if (op->error < 0)
		node_failed(e, node, op->error, "looking up");
	else if (op->attr.type != NFS_TYPE_DIRECTORY && op->attr.type != NFS_TYPE_UNKNOWN)
		set_state(e, node, NODE_REMOVE);
	else if (op->attr.type != NFS_TYPE_DIRECTORY || !op->attr.has_fsid)
		leave(e, node);
	else
		enter(e, node, &op->attr);
}

/* -------- moving up -------- */

/* It is in the root now. What it was in may have waited for nothing else. */
static void lifted(struct engine *e, struct node *node, struct call *call)
{
	struct node *from = node->parent;

	free(node->name);
	node->name = steal_ptr(&call->to_name);
	node->parent = e->root;
	node->depth = 1;
	e->root->outstanding++;
	from->outstanding--;
	from->removed++;
	set_state(e, node, NODE_READ);
	node_settle(e, from);
}

/*
 * The rights that this takes are those that removing takes, and to write the directory itself: its ".."
 * changes. Where it is refused the tree is worked on as deep as it is, up to a limit.
 */
static void lift_replied(struct engine *e, struct node *node, struct call *call)
{
	const int r = call->op.error;

	if (r == 0) {
		lifted(e, node, call);
	} else if (r == -ENOENT) {
		node_finish(e, node);
	} else if ((r == -EACCES || r == -EPERM) && !node->chmod_tried) {
		node->chmod_tried = true;
		node->after_chmod = NODE_LIFT;
		set_state(e, node, NODE_CHMOD);
	} else if (opens(e, node->parent, r, call->opened)) {
		node_hold(e, node, node->parent);
	} else if (opens(e, e->root, r, call->root_opened)) {
		node_hold(e, node, e->root);
	} else if ((r == -EEXIST || r == -ENOTEMPTY || r == -ENOTDIR || r == -EISDIR) &&
		   ++node->lift_tries < LIFT_TRIES_MAX) {
		node_make_ready(e, node);
	} else if (node->depth >= TREE_LEVELS_LAST) {
		node_failed(e, node, r, "moving up what is too deep:");
	} else {
		set_state(e, node, NODE_READ);
	}
}

/* -------- reading -------- */

static int add_child(struct engine *e, struct node *node, const struct nfs_entry *entry)
{
	struct node *child = node_new(e, node, entry->name);

	if (child == NULL)
		return -ENOMEM;
	node->outstanding++;
	child->handle = entry->handle;
	if (entry->attr.type == NFS_TYPE_DIRECTORY && entry->handle.len > 0)
		enter(e, child, &entry->attr);
	else
		set_state(e, child, NODE_LOOKUP);
	return 0;
}

void node_entry_found(struct nfs_op *op, const struct nfs_entry *entry)
{
	struct node *node = container_of(op, struct call, op)->node;
	struct engine *e = op->data;
	bool is_file = entry->attr.type != NFS_TYPE_DIRECTORY && entry->attr.type != NFS_TYPE_UNKNOWN;
	int r;

	if (node->is_cut)
		return;
	/* One directory of each page at least, so that it goes on. */
	if (!is_file && node->seen_directory && !node_is_room(e)) {
		node->is_cut = true;
		return;
	}
	node->seen_entry = true;
	node->seen_directory = node->seen_directory || !is_file;
	node->cookie = entry->cookie;
	if (is_file) {
		r = node_add_name(node, entry->name);
		node->outstanding += r == 0;
	} else {
		r = add_child(e, node, entry);
	}
	if (r < 0) {
		engine_fail(e, r, "removing", entry->name);
		node->failed = true;
	}
}

static void take_page(struct engine *e, struct node *node, const struct nfs_op *op, uint64_t before)
{
	node->eof = op->eof && !node->is_cut;
	memcpy(node->verifier, op->verifier, sizeof(node->verifier));
	if (!node->is_cut)
		node->cookie = op->cookie;
	/* A server that neither ends nor moves on would keep us here for ever. */
	if (!node->eof && !node->seen_entry && node->cookie == before) {
		engine_fail(e, -EIO, "reading", node->name);
		node->failed = true;
		node->eof = true;
	}
}

static void read_replied(struct engine *e, struct node *node, const struct nfs_op *op, uint64_t before)
{
	const int r = op->error;

	if (r == -EACCES && !node->chmod_tried) {
		node->chmod_tried = true;
		node->after_chmod = NODE_READ;
		set_state(e, node, NODE_CHMOD);
		return;
	}
	if (r == -ENOENT || r == -ESTALE) {
		/* Gone, or taken for gone by the server: RMDIR of its name tells. */
		set_state(e, node, NODE_RMDIR);
		return;
	}
	if (r < 0) {
		/* Entries of this page may have been queued: they are finished first. */
		engine_fail(e, r, "reading", node->name);
		node->failed = true;
		node->eof = true;
	} else {
		take_page(e, node, op, before);
	}
	node->state = NODE_BUSY;
	if (!list_is_empty(&node->names))
		node_make_ready(e, node);
	node_settle(e, node);
}

/* -------- removing -------- */

/* What is in the node goes on, or the reading of it. If the mode could not be set, that is refused again. */
static void chmod_replied(struct engine *e, struct node *node)
{
	node->chmod_done = true;
	node->state = node->outstanding > 0 ? NODE_BUSY : node->after_chmod;
	node_release(e, node);
	if (node->state != NODE_BUSY || !list_is_empty(&node->names))
		node_make_ready(e, node);
}

static void rmdir_replied(struct engine *e, struct node *node, int r)
{
	if ((r == -ENOTEMPTY || r == -EEXIST) && ++node->rmdir_tries < RMDIR_TRIES_MAX) {
		node->cookie = 0;
		memset(node->verifier, 0, sizeof(node->verifier));
		set_state(e, node, NODE_READ);
		return;
	}
	if (r < 0 && r != -ENOENT) {
		node_failed(e, node, r, "removing directory");
		return;
	}
	e->stats->directories += r == 0;
	node_finish(e, node);
}

static void remove_replied(struct engine *e, struct node *node, int r)
{
	if (r < 0 && r != -ENOENT) {
		node_failed(e, node, r, "removing");
		return;
	}
	e->stats->files += r == 0;
	node_finish(e, node);
}

/* Those that were not come to have another try. */
static void put_back(struct engine *e, struct call *call)
{
	struct node *node = call->node;

	while (!list_is_empty(&call->names)) {
		struct list *link = call->names.next;

		list_remove(link);
		list_add_tail(&node->names, link);
	}
	if (!list_is_empty(&node->names) && node->state == NODE_BUSY)
		node_make_ready(e, node);
}

static void batch_replied(struct engine *e, struct call *call)
{
	const struct nfs_op *op = &call->op;
	size_t removed = op->n_names > 0 ? op->count : op->error == 0;
	const bool is_back = call_is_back(e, op, removed > 0);
	struct node *node = call->node;

	for (; removed > 0 && !list_is_empty(&call->names); removed--) {
		node_drop_name(container_of(call->names.next, struct name, link));
		e->stats->files++;
		node->removed++;
		node->outstanding--;
	}
	if (op->error != 0 && !is_back && !list_is_empty(&call->names) &&
	    !opens(e, node, op->error, call->opened)) {
		struct name *name = container_of(call->names.next, struct name, link);

		if (op->error != -ENOENT) {
			engine_fail(e, op->error, "removing", name->name);
			node->failed = true;
		}
		node_drop_name(name);
		node->outstanding--;
	}
	put_back(e, call);
	call_free(call);
	node_settle(e, node);
}

/* -------- all of them -------- */

static void own_replied(struct engine *e, struct call *call)
{
	const bool is_in_parent = call->op.type == NFS_OP_LOOKUP || call->op.type == NFS_OP_RMDIR ||
				  call->op.type == NFS_OP_REMOVE;
	struct node *node = call->node;
	const int r = call->op.error;

	if (is_in_parent && opens(e, node->parent, r, call->opened)) {
		node_hold(e, node, node->parent);
		return;
	}
	switch (node->state) {
	case NODE_LOOKUP:
		lookup_replied(e, node, &call->op);
		break;
	case NODE_GETATTR:
		getattr_replied(e, node, &call->op);
		break;
	case NODE_CHMOD:
		chmod_replied(e, node);
		break;
	case NODE_LIFT:
		lift_replied(e, node, call);
		break;
	case NODE_READ:
		read_replied(e, node, &call->op, call->before);
		break;
	case NODE_RMDIR:
		rmdir_replied(e, node, r);
		break;
	case NODE_REMOVE:
		remove_replied(e, node, r);
		break;
	case NODE_BUSY:
		break; /* has no operation of its own */
	}
}

void node_replied(struct nfs_op *op)
{
	struct call *call = container_of(op, struct call, op);
	struct node *node = call->node;
	struct engine *e = op->data;

	if (!list_is_empty(&call->names)) {
		batch_replied(e, call);
		return;
	}
	node->active = false;
	if (call_is_back(e, op, false))
		node_make_ready(e, node);
	else
		own_replied(e, call);
	call_free(call);
}
