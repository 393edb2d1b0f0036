/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The operations of the states in tree/remove_node.h, and how their replies are handled. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "tree/remove_node.h"

#define RMDIR_TRIES_MAX 10 /* somebody keeps adding entries */
#define LIFT_TRIES_MAX 5 /* names that are taken */
#define LIFT_NAME_MAX 64

static void node_set_state(struct remover *rm, struct remove_node *node, enum remove_state state)
{
	node->state = state;
	remove_node_ready(rm, node);
}

static void node_start_chmod(struct remover *rm, struct remove_node *node, enum remove_state after)
{
	node->chmod_tried = true;
	node->after_chmod = after;
	node_set_state(rm, node, REMOVE_CHMOD);
}

/*
 * Return whether to repeat an operation that was refused in dir. As its owner we may change its
 * mode even if we may not write to it; try that once. dir: NULL for the directory that holds the
 * tree, which is never changed. opened: dir already had its new mode when the operation was
 * started.
 */
static bool chmod_may_help(struct remover *rm, struct remove_node *dir, int r, bool opened)
{
	if ((r != -EACCES && r != -EPERM) || dir == NULL || opened)
		return false;
	if (!dir->chmod_tried && dir->state == REMOVE_EMPTY)
		node_start_chmod(rm, dir, REMOVE_READ);
	return dir->chmod_tried;
}

/* Record a failure that is not final for the node. */
static void node_mark_failed(struct remover *rm, struct remove_node *node, int r, const char *verb)
{
	remover_fail(rm, r, verb, node->name);
	node->failed = true;
}

static void node_fail(struct remover *rm, struct remove_node *node, int r, const char *verb)
{
	node_mark_failed(rm, node, r, verb);
	remove_node_finish(rm, node);
}

/*
 * Handle a failed operation on the node's name. If somebody else removes the name at the same time,
 * nfs-ganesha may also answer STALE. Below the root that counts as gone, since RMDIR of the
 * directory above finds out what is still there. The root is looked up again.
 */
static bool node_ends_if_gone(struct remover *rm, struct remove_node *node, int r)
{
	if (r == -ENOENT || (r == -ESTALE && node->parent != NULL)) {
		remove_node_finish(rm, node);
		return true;
	}
	if (r == -ESTALE && ++node->stale_tries < REMOVE_STALE_TRIES_MAX) {
		remove_node_rewind(node);
		node_set_state(rm, node, REMOVE_LOOKUP);
		return true;
	}
	return false;
}

/* -------- lookup -------- */

/* Leave what is mounted here alone. */
static void node_stay(struct remover *rm, struct remove_node *node)
{
	if (rm->borders++ == 0)
		remove_node_path(node, rm->border, sizeof(rm->border));
	node->failed = true;
	remove_node_finish(rm, node);
}

/* Enter a directory with a known handle, if it is on our file system. */
static void node_enter(struct remover *rm, struct remove_node *node, const struct nfs_attr *attr)
{
	const bool is_deep = node->depth > 0 && node->depth % TREE_LEVELS == 0;

	if (!attr->has_fsid && !attr->is_mount)
		node_set_state(rm, node, REMOVE_GETATTR);
	else if (!nfs_is_inside(attr, &rm->fs))
		node_stay(rm, node);
	else
		node_set_state(rm, node, is_deep ? REMOVE_LIFT : REMOVE_READ);
}

static int lookup_prepare(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	(void)rm;
	call->op.fileid = node->listed;
	return 0;
}

static void lookup_replied(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	const struct nfs_op *op = &call->op;

	if (op->error < 0) {
		if (!node_ends_if_gone(rm, node, op->error))
			node_fail(rm, node, op->error, "looking up");
		return;
	}
	if (node->parent == NULL && rm->known != NULL &&
	    !nfs_handle_is_equal(&op->handle, rm->known)) {
		rm->replaced = true;
		remove_node_finish(rm, node);
		return;
	}
	node->handle = op->handle;
	if (op->attr.type == NFS_TYPE_UNKNOWN)
		node_set_state(rm, node, REMOVE_GETATTR);
	else if (op->attr.type != NFS_TYPE_DIRECTORY)
		node_set_state(rm, node, REMOVE_UNLINK);
	else
		node_enter(rm, node, &op->attr);
}

static void getattr_replied(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	const struct nfs_op *op = &call->op;

	if (op->error == -ENOENT || op->error == -ESTALE)
		node_set_state(rm, node, REMOVE_RMDIR); /* RMDIR tells whether it is gone */
	else if (op->error < 0)
		node_fail(rm, node, op->error, "looking up");
	else if (op->attr.type != NFS_TYPE_DIRECTORY && op->attr.type != NFS_TYPE_UNKNOWN)
		node_set_state(rm, node, REMOVE_UNLINK);
	else if (op->attr.type != NFS_TYPE_DIRECTORY || !op->attr.has_fsid)
		node_stay(rm, node); /* the server does not tell its file system */
	else
		node_enter(rm, node, &op->attr);
}

/* -------- moving up -------- */

static int lift_prepare(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	static _Atomic unsigned int counter;
	struct nfs_op *op = &call->op;

	/* Unique, because others may work on the same tree. */
	call->to_name = malloc(LIFT_NAME_MAX);
	if (call->to_name == NULL)
		return -ENOMEM;
	(void)snprintf(call->to_name, LIFT_NAME_MAX, ".csi-nfs-deep.%" PRIx64 ".%x.%x",
		       clock_now_ns(), (unsigned int)getpid(), counter++);
	op->dir = remove_node_dir(rm, node);
	op->to_dir = &rm->root->handle;
	op->to_name = call->to_name;
	call->root_opened = rm->root->chmod_done;
	return 0;
}

/*
 * A move needs the permissions of a removal, and write permission for the directory itself, because
 * its ".." changes. If it is refused, empty the directory where it is, down to TREE_LEVELS_LAST.
 */
static void lift_replied(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	struct remove_node *from = node->parent;
	const int r = call->op.error;

	if (r == 0) {
		free(node->name);
		node->name = steal_ptr(&call->to_name);
		node->parent = rm->root;
		node->depth = 1;
		rm->root->outstanding++;
		from->outstanding--;
		from->removed++;
		node_set_state(rm, node, REMOVE_READ);
		remove_node_settle(rm, from);
	} else if (node_ends_if_gone(rm, node, r)) {
		return;
	} else if ((r == -EACCES || r == -EPERM) && !node->chmod_tried) {
		node_start_chmod(rm, node, REMOVE_LIFT);
	} else if (chmod_may_help(rm, from, r, call->opened)) {
		remove_node_hold(rm, node, from);
	} else if (chmod_may_help(rm, rm->root, r, call->root_opened)) {
		remove_node_hold(rm, node, rm->root);
	} else if ((r == -EEXIST || r == -ENOTEMPTY || r == -ENOTDIR || r == -EISDIR) &&
		   ++node->lift_tries < LIFT_TRIES_MAX) {
		remove_node_ready(rm, node);
	} else if (node->depth >= TREE_LEVELS_LAST) {
		node_fail(rm, node, r, "moving up a subtree that is too deep:");
	} else {
		node_set_state(rm, node, REMOVE_READ);
	}
}

/* -------- reading -------- */

static int node_add_child(struct remover *rm, struct remove_node *node,
			  const struct nfs_entry *entry)
{
	struct remove_node *child = remove_node_new(rm, node, entry->name);

	if (child == NULL)
		return -ENOMEM;
	node->outstanding++;
	child->handle = entry->handle;
	child->listed = entry->fileid;
	if (entry->attr.type == NFS_TYPE_DIRECTORY && entry->handle.len > 0)
		node_enter(rm, child, &entry->attr);
	else
		node_set_state(rm, child, REMOVE_LOOKUP);
	return 0;
}

static void remove_readdir_entry(struct nfs_op *op, const struct nfs_entry *entry)
{
	struct remove_node *node = container_of(op, struct remove_call, op)->node;
	struct remover *rm = op->data;
	const enum nfs_type type = entry->attr.type;
	const bool is_file = type != NFS_TYPE_DIRECTORY && type != NFS_TYPE_UNKNOWN;
	int r;

	if (node->is_cut)
		return;
	/* Take at least one directory of each page, to make progress. */
	if (!is_file && node->seen_directory && rm->n_nodes >= TREE_NODES_MAX) {
		node->is_cut = true;
		return;
	}
	node->seen_entry = true;
	node->seen_directory = node->seen_directory || !is_file;
	node->cookie = entry->cookie;
	r = is_file ? remove_node_add_name(node, entry->name) : node_add_child(rm, node, entry);
	if (r < 0) {
		remover_fail(rm, r, "removing", entry->name);
		node->failed = true;
	}
}

static int read_prepare(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	struct nfs_op *op = &call->op;

	(void)rm;
	op->entry = remove_readdir_entry;
	op->cookie = node->cookie;
	memcpy(op->verifier, node->verifier, sizeof(op->verifier));
	node->seen_entry = node->seen_directory = node->is_cut = false;
	node->removed = 0;
	return 0;
}

static void read_replied(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	const struct nfs_op *op = &call->op;
	const int r = op->error;

	if (r == -EACCES && !node->chmod_tried) {
		node_start_chmod(rm, node, REMOVE_READ);
		return;
	}
	/* The directory is gone, so its name may be another one's: look at that before RMDIR. */
	if (r == -ESTALE && rm->known != NULL && node_ends_if_gone(rm, node, r))
		return;
	if (nfs_readdir_lost_entry(r) || r == -ESTALE || r == -ERESTART) {
		/* RMDIR tells if the directory is gone. If not, it is read from the start. */
		node->read_error = r;
		node_set_state(rm, node, REMOVE_RMDIR);
		return;
	}
	if (r < 0) {
		/* Entries of this page may be queued: they are finished first. */
		node_mark_failed(rm, node, r, "reading");
		node->eof = true;
	} else {
		node->eof = op->eof && !node->is_cut;
		memcpy(node->verifier, op->verifier, sizeof(node->verifier));
		if (!node->is_cut)
			node->cookie = op->cookie;
		if (!node->eof && nfs_cookies_repeat(&node->cookies, node->cookie)) {
			node_mark_failed(rm, node, -EIO, "reading");
			node->eof = true;
		}
	}
	node->state = REMOVE_EMPTY;
	if (!list_is_empty(&node->names))
		remove_node_ready(rm, node);
	remove_node_settle(rm, node);
}

/* -------- removing -------- */

static int chmod_prepare(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	(void)rm;
	(void)node;
	call->op.change = (struct nfs_change){ .has_mode = true, .mode = 0700 };
	return 0;
}

/* Continue even if the mode could not be set: the operation is refused again, and that is final. */
static void chmod_replied(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	(void)call;
	node->chmod_done = true;
	node->state = node->outstanding > 0 ? REMOVE_EMPTY : node->after_chmod;
	remove_node_release(rm, node);
	if (node->state != REMOVE_EMPTY || !list_is_empty(&node->names))
		remove_node_ready(rm, node);
}

static void rmdir_replied(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	const int r = call->op.error;

	if ((r == -ENOTEMPTY || r == -EEXIST) && ++node->rmdir_tries < RMDIR_TRIES_MAX) {
		remove_node_rewind(node);
		node_set_state(rm, node, REMOVE_READ);
		return;
	}
	if (r == 0) {
		rm->stats->directories++;
		remove_node_finish(rm, node);
	} else if (r == -EBUSY) {
		node_stay(rm, node); /* what is mounted there may not be exported */
	} else if ((r == -ENOTEMPTY || r == -EEXIST) && node->read_error == -EREMOTEIO) {
		node_fail(rm, node, node->read_error, "reading"); /* why it could not be emptied */
	} else if (!node_ends_if_gone(rm, node, r)) {
		node_fail(rm, node, r, "removing directory");
	}
}

static void unlink_replied(struct remover *rm, struct remove_node *node, struct remove_call *call)
{
	const int r = call->op.error;

	if (r == 0) {
		rm->stats->files++;
		remove_node_finish(rm, node);
	} else if (!node_ends_if_gone(rm, node, r)) {
		node_fail(rm, node, r, "removing");
	}
}

/* -------- batches -------- */

static void batch_replied(struct nfs_op *op)
{
	struct remove_call *call = container_of(op, struct remove_call, op);
	struct remove_node *node = call->node;
	struct remover *rm = op->data;
	size_t removed = op->n_names > 0 ? op->count : op->error == 0;
	bool retry;

	tree_op_returned(&rm->work, &rm->work.writing, op);
	if (removed > 0)
		rm->work.progressed = true;
	retry = tree_should_retry(&rm->work, op->error);
	for (; removed > 0 && !list_is_empty(&call->names); removed--) {
		remove_name_free(container_of(call->names.next, struct remove_name, link));
		rm->stats->files++;
		node->removed++;
		node->outstanding--;
	}
	/*
	 * The first remaining name has failed, and those after it were not tried. After NOENT or
	 * STALE, RMDIR shows whether the entry is still there.
	 */
	if (op->error != 0 && !retry && !list_is_empty(&call->names) &&
	    !chmod_may_help(rm, node, op->error, call->opened)) {
		struct remove_name *name = container_of(call->names.next, struct remove_name, link);

		if (op->error != -ENOENT && op->error != -ESTALE) {
			remover_fail(rm, op->error, "removing", name->name);
			node->failed = true;
		}
		remove_name_free(name);
		node->outstanding--;
	}
	while (!list_is_empty(&call->names)) {
		struct list *link = call->names.next;

		list_remove(link);
		list_add_tail(&node->names, link);
	}
	if (!list_is_empty(&node->names) && node->state == REMOVE_EMPTY)
		remove_node_ready(rm, node);
	remove_call_free(call);
	remove_node_settle(rm, node);
}

static int batch_start(struct remover *rm, struct remove_node *node)
{
	const size_t max = nfs_remove_max(rm->work.to);
	struct remove_call *call = remove_call_new(rm, node, batch_replied);
	struct nfs_op *op;

	if (call == NULL)
		return -ENOMEM;
	op = &call->op;
	op->type = NFS_OP_REMOVE;
	op->dir = &node->handle;
	call->opened = node->chmod_done;
	while (op->n_names < max && !list_is_empty(&node->names)) {
		struct remove_name *name = container_of(node->names.next, struct remove_name, link);

		list_remove(&name->link);
		list_add_tail(&call->names, &name->link);
		call->texts[op->n_names++] = name->name;
	}
	op->name = call->texts[0];
	op->names = call->texts;
	if (op->n_names == 1)
		op->n_names = 0; /* by op->name, as version 3 has it */
	if (list_is_empty(&node->names))
		list_remove(&node->queue);
	return remove_call_start(rm, call);
}

/* -------- the operations of all states but EMPTY -------- */

/* replied() may free the node. */
static const struct {
	enum nfs_op_type type;
	bool in_parent; /* removes or looks up the name in the parent */
	int (*prepare)(struct remover *rm, struct remove_node *node, struct remove_call *call);
	void (*replied)(struct remover *rm, struct remove_node *node, struct remove_call *call);
} remove_steps[] = {
	[REMOVE_LOOKUP] = { NFS_OP_LOOKUP, true, lookup_prepare, lookup_replied },
	[REMOVE_GETATTR] = { NFS_OP_GETATTR, false, NULL, getattr_replied },
	[REMOVE_CHMOD] = { NFS_OP_SETATTR, false, chmod_prepare, chmod_replied },
	[REMOVE_LIFT] = { NFS_OP_RENAME, false, lift_prepare, lift_replied },
	[REMOVE_READ] = { NFS_OP_READDIR, false, read_prepare, read_replied },
	[REMOVE_RMDIR] = { NFS_OP_RMDIR, true, NULL, rmdir_replied },
	[REMOVE_UNLINK] = { NFS_OP_REMOVE, true, NULL, unlink_replied },
};

static void node_replied(struct nfs_op *op)
{
	struct remove_call *call = container_of(op, struct remove_call, op);
	struct remove_node *node = call->node;
	struct remover *rm = op->data;

	tree_op_returned(&rm->work, &rm->work.writing, op);
	node->active = false;
	if (tree_should_retry(&rm->work, op->error))
		remove_node_ready(rm, node);
	else if (remove_steps[node->state].in_parent &&
		 chmod_may_help(rm, node->parent, op->error, call->opened))
		remove_node_hold(rm, node, node->parent);
	else
		remove_steps[node->state].replied(rm, node, call);
	remove_call_free(call);
}

int remove_node_start(struct remover *rm, struct remove_node *node)
{
	struct remove_call *call;

	if (node->state == REMOVE_EMPTY)
		return batch_start(rm, node);
	call = remove_call_new(rm, node, node_replied);
	if (call == NULL)
		return -ENOMEM;
	call->op.type = remove_steps[node->state].type;
	call->op.name = node->name;
	call->op.dir =
		remove_steps[node->state].in_parent ? remove_node_dir(rm, node) : &node->handle;
	if (remove_steps[node->state].prepare != NULL) {
		int r = remove_steps[node->state].prepare(rm, node, call);

		if (r < 0) {
			remove_call_free(call);
			return r;
		}
	}
	list_remove(&node->queue);
	call->opened = node->parent != NULL && node->parent->chmod_done;
	node->active = true;
	return remove_call_start(rm, call);
}
