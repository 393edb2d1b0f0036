/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/remove.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"

#define IDLE_PASSES_MAX 3 /* readings of a directory that lead to no removal */
#define RMDIR_TRIES_MAX 10 /* somebody keeps adding entries */
#define PATIENCE_MAX 100 /* waits of PATIENCE_MS while the server asks to try later */
#define PATIENCE_MS 100

enum node_state {
	NODE_LOOKUP, /* its handle or type is not known */
	NODE_CHMOD, /* its mode kept us from reading it, or from removing what is in it */
	NODE_READ,
	NODE_BUSY, /* entries are being removed */
	NODE_RMDIR,
	NODE_REMOVE, /* it turned out to be no directory */
};

/* A directory that is being emptied; what it holds is removed before itself. */
struct node {
	struct list all;
	struct list ready; /* in engine.ready while there is something to start */
	struct node *parent;
	enum node_state state;
	struct nfs_op op; /* for all but the removal of entries */
	bool op_active;
	bool opened; /* op was started when its directory had its new mode */
	struct nfs_handle handle;
	struct list names; /* entries of the page that was read, to be removed */
	size_t outstanding; /* entries and subdirectories that are not finished */
	size_t removed; /* since the last reading */
	unsigned int idle_passes;
	unsigned int rmdir_tries;
	bool seen_entry;
	bool chmod_tried;
	bool chmod_done; /* answered, well or not: who is refused from now on stays refused */
	bool failed;
	char name[];
};

/* An entry that is not a directory. */
struct name {
	struct list link;
	char name[];
};

/* Entries that one operation removes: one, or several over version 4. */
struct batch {
	struct nfs_op op;
	struct node *node;
	bool opened; /* it was started when the node had its new mode */
	struct list names;
	const char *texts[NFS_REMOVE_MAX];
};

struct engine {
	struct nfs_client *client;
	const struct nfs_handle *dir; /* of the root node */
	const char *name; /* of the root node */
	const atomic_bool *cancel;
	struct tree_stats *stats;
	struct list all; /* every node */
	struct list ready; /* last in, first out: depth before breadth bounds the memory */
	struct list held; /* nodes that wait for the new mode of their parent; linked by ready */
	size_t in_flight;
	unsigned int patience;
	bool wait; /* the server asked to try later */
	bool finished; /* the root node is */
	bool cancelled;
	int error; /* the first one */
	struct error *err;
};

static void node_replied(struct nfs_op *op);
static void entry_found(struct nfs_op *op, const struct nfs_entry *entry);

static void make_ready(struct engine *e, struct node *node)
{
	list_remove(&node->ready);
	list_add_tail(&e->ready, &node->ready);
}

static void fail(struct engine *e, int r, const char *verb, const char *name)
{
	if (e->error != 0)
		return;
	e->error = r;
	(void)nfs_error_set(e->err, e->client, r, "%s '%s'", verb, name);
}

static struct node *node_new(struct engine *e, struct node *parent, const char *name)
{
	size_t len = strlen(name);
	struct node *node = calloc(1, sizeof(*node) + len + 1);

	if (node == NULL)
		return NULL;
	memcpy(node->name, name, len + 1);
	node->parent = parent;
	list_add_tail(&e->all, &node->all);
	list_init(&node->ready);
	list_init(&node->names);
	node->op.data = e;
	node->op.done = node_replied;
	node->op.entry = entry_found;
	return node;
}

static void node_free(struct node *node)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &node->names)
		free(container_of(pos, struct name, link));
	list_remove(&node->ready);
	list_remove(&node->all);
	free(node);
}

static const struct nfs_handle *parent_handle(const struct engine *e, const struct node *node)
{
	return node->parent != NULL ? &node->parent->handle : e->dir;
}

static void settle(struct engine *e, struct node *node);

/* The node is gone, or has to stay. Its parent may have waited for that. */
static void node_finish(struct engine *e, struct node *node)
{
	struct node *parent = node->parent;

	if (parent == NULL) {
		e->finished = true;
	} else {
		parent->outstanding--;
		if (node->failed)
			parent->failed = true;
		else
			parent->removed++;
		settle(e, parent);
	}
	node_free(node);
}

/* Decides what comes next for a node of which nothing is left to start or to wait for. */
static void settle(struct engine *e, struct node *node)
{
	if (node->outstanding > 0 || node->op_active || !list_is_empty(&node->names))
		return;
	if (node->state != NODE_BUSY)
		return;
	if (node->failed && node->op.eof) {
		node_finish(e, node);
		return;
	}
	if (!node->failed) {
		/* All that there was is gone. If it is not so, RMDIR tells. */
		if (node->op.eof && (!node->seen_entry || node->removed > 0)) {
			node->state = NODE_RMDIR;
			make_ready(e, node);
			return;
		}
		node->idle_passes =
			node->seen_entry && node->removed == 0 ? node->idle_passes + 1 : 0;
		if (node->idle_passes >= IDLE_PASSES_MAX) {
			fail(e, -ENOTEMPTY, "emptying", node->name);
			node->failed = true;
			node_finish(e, node);
			return;
		}
		/* What was there is gone: from the start again. After a failure go on behind it. */
		if (node->seen_entry) {
			node->op.cookie = 0;
			memset(node->op.verifier, 0, sizeof(node->op.verifier));
		}
	}
	node->state = NODE_READ;
	make_ready(e, node);
}

static void drop_name(struct name *name)
{
	list_remove(&name->link);
	free(name);
}

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
		dir->state = NODE_CHMOD;
		make_ready(e, dir);
	}
	return dir->chmod_tried;
}

/* To be tried again, but not before its directory has its new mode. */
static void hold(struct engine *e, struct node *node)
{
	make_ready(e, node);
	if (node->parent->chmod_done)
		return;
	list_remove(&node->ready);
	list_add_tail(&e->held, &node->ready);
}

/* Those that were not come to have another try. */
static void put_back(struct engine *e, struct batch *batch)
{
	struct node *node = batch->node;

	while (!list_is_empty(&batch->names)) {
		struct list *link = batch->names.next;

		list_remove(link);
		list_add_tail(&node->names, link);
	}
	if (!list_is_empty(&node->names) && node->state == NODE_BUSY)
		make_ready(e, node);
}

static void batch_replied(struct nfs_op *op)
{
	struct batch *batch = container_of(op, struct batch, op);
	size_t removed = op->n_names > 0 ? op->count : op->error == 0;
	struct node *node = batch->node;
	struct engine *e = op->data;

	e->in_flight--;
	for (; removed > 0 && !list_is_empty(&batch->names); removed--) {
		drop_name(container_of(batch->names.next, struct name, link));
		e->stats->files++;
		node->removed++;
		node->outstanding--;
	}
	if (op->error == -EAGAIN && e->patience < PATIENCE_MAX) {
		e->wait = true;
	} else if (op->error != 0 && !list_is_empty(&batch->names) &&
		   !opens(e, node, op->error, batch->opened)) {
		struct name *name = container_of(batch->names.next, struct name, link);

		if (op->error != -ENOENT) {
			fail(e, op->error, "removing", name->name);
			node->failed = true;
		}
		drop_name(name);
		node->outstanding--;
	}
	put_back(e, batch);
	free(batch);
	settle(e, node);
}

static int add_name(struct node *node, const char *text)
{
	size_t len = strlen(text);
	struct name *name = calloc(1, sizeof(*name) + len + 1);

	if (name == NULL)
		return -ENOMEM;
	memcpy(name->name, text, len + 1);
	list_add_tail(&node->names, &name->link);
	return 0;
}

static int add_child(struct engine *e, struct node *node, const struct nfs_entry *entry)
{
	struct node *child = node_new(e, node, entry->name);

	if (child == NULL)
		return -ENOMEM;
	child->handle = entry->handle;
	child->state = entry->attr.type == NFS_TYPE_DIRECTORY && entry->handle.len > 0 ? NODE_READ
										       : NODE_LOOKUP;
	make_ready(e, child);
	return 0;
}

static void entry_found(struct nfs_op *op, const struct nfs_entry *entry)
{
	struct node *node = container_of(op, struct node, op);
	struct engine *e = op->data;
	bool is_file = entry->attr.type != NFS_TYPE_DIRECTORY && entry->attr.type != NFS_TYPE_UNKNOWN;
	int r;

	node->seen_entry = true;
	r = is_file ? add_name(node, entry->name) : add_child(e, node, entry);
	if (r < 0) {
		fail(e, r, "removing", entry->name);
		node->failed = true;
		return;
	}
	node->outstanding++;
}

static void node_failed(struct engine *e, struct node *node, int r, const char *verb)
{
	fail(e, r, verb, node->name);
	node->failed = true;
	node_finish(e, node);
}

static void lookup_replied(struct engine *e, struct node *node, int r)
{
	if (r == -ENOENT) {
		node_finish(e, node);
		return;
	}
	if (r < 0) {
		node_failed(e, node, r, "looking up");
		return;
	}
	node->handle = node->op.handle;
	node->state = node->op.attr.type == NFS_TYPE_DIRECTORY ? NODE_READ : NODE_REMOVE;
	make_ready(e, node);
}

/* What is in the node goes on, or the reading of it. If the mode could not be set, that is refused again. */
static void chmod_replied(struct engine *e, struct node *node)
{
	struct list *pos, *tmp;

	node->chmod_done = true;
	node->state = node->outstanding > 0 ? NODE_BUSY : NODE_READ;
	list_for_each_safe(pos, tmp, &e->held) {
		struct node *held = container_of(pos, struct node, ready);

		if (held->parent == node)
			make_ready(e, held);
	}
	if (node->state == NODE_READ || !list_is_empty(&node->names))
		make_ready(e, node);
}

static void read_replied(struct engine *e, struct node *node, int r)
{
	if (r == -EACCES && !node->chmod_tried) {
		node->chmod_tried = true;
		node->state = NODE_CHMOD;
		make_ready(e, node);
		return;
	}
	if (r == -ENOENT || r == -ESTALE || r == -ERESTART) {
		/* Gone, or taken for gone by the server, or its place is lost: RMDIR of its name tells. */
		node->state = NODE_RMDIR;
		make_ready(e, node);
		return;
	}
	if (r < 0) {
		/* Entries of this page may have been queued: they are finished first. */
		fail(e, r, "reading", node->name);
		node->failed = true;
		node->op.eof = true;
	}
	node->state = NODE_BUSY;
	if (!list_is_empty(&node->names))
		make_ready(e, node);
	settle(e, node);
}

static void rmdir_replied(struct engine *e, struct node *node, int r)
{
	if ((r == -ENOTEMPTY || r == -EEXIST) && ++node->rmdir_tries < RMDIR_TRIES_MAX) {
		node->op.cookie = 0;
		memset(node->op.verifier, 0, sizeof(node->op.verifier));
		node->state = NODE_READ;
		make_ready(e, node);
		return;
	}
	if (r < 0 && r != -ENOENT) {
		node_failed(e, node, r, "removing directory");
		return;
	}
	e->stats->directories++;
	node_finish(e, node);
}

/* Of an operation in the node's parent. */
static void name_replied(struct engine *e, struct node *node, int r)
{
	if (opens(e, node->parent, r, node->opened)) {
		hold(e, node);
	} else if (node->state == NODE_LOOKUP) {
		lookup_replied(e, node, r);
	} else if (node->state == NODE_RMDIR) {
		rmdir_replied(e, node, r);
	} else if (r < 0 && r != -ENOENT) {
		node_failed(e, node, r, "removing");
	} else {
		e->stats->files++;
		node_finish(e, node);
	}
}

static void node_replied(struct nfs_op *op)
{
	struct node *node = container_of(op, struct node, op);
	struct engine *e = op->data;
	int r = op->error;

	e->in_flight--;
	node->op_active = false;
	if (r == -EAGAIN && e->patience < PATIENCE_MAX) {
		e->wait = true;
		make_ready(e, node);
		return;
	}
	switch (node->state) {
	case NODE_LOOKUP:
	case NODE_RMDIR:
	case NODE_REMOVE:
		name_replied(e, node, r);
		break;
	case NODE_CHMOD:
		chmod_replied(e, node);
		break;
	case NODE_READ:
		read_replied(e, node, r);
		break;
	case NODE_BUSY:
		break; /* has no operation of its own */
	}
}

/* The error of a client that breaks is that of each operation: nothing of the batch is done then. */
static int start_batch(struct engine *e, struct node *node)
{
	const size_t max = e->client->version == 4 ? NFS_REMOVE_MAX : 1;
	struct batch *batch = calloc(1, sizeof(*batch));
	int r;

	if (batch == NULL)
		return -ENOMEM;
	list_init(&batch->names);
	batch->node = node;
	batch->opened = node->chmod_done;
	batch->op.type = NFS_OP_REMOVE;
	batch->op.dir = &node->handle;
	batch->op.data = e;
	batch->op.done = batch_replied;
	while (batch->op.n_names < max && !list_is_empty(&node->names)) {
		struct name *name = container_of(node->names.next, struct name, link);

		list_remove(&name->link);
		list_add_tail(&batch->names, &name->link);
		batch->texts[batch->op.n_names++] = name->name;
	}
	batch->op.name = batch->texts[0];
	batch->op.names = batch->texts;
	if (batch->op.n_names == 1)
		batch->op.n_names = 0; /* by its name alone, as version 3 has it */
	if (list_is_empty(&node->names))
		list_remove(&node->ready);
	r = nfs_client_start(e->client, &batch->op);
	if (r < 0) {
		put_back(e, batch);
		free(batch);
	}
	return r;
}

static int start_node(struct engine *e, struct node *node)
{
	struct nfs_op *op = &node->op;

	switch (node->state) {
	case NODE_BUSY:
		return start_batch(e, node);
	case NODE_LOOKUP:
		op->type = NFS_OP_LOOKUP;
		break;
	case NODE_CHMOD:
		op->type = NFS_OP_SETATTR;
		op->change = (struct nfs_change){ .has_mode = true, .mode = 0700 };
		break;
	case NODE_READ:
		op->type = NFS_OP_READDIR;
		node->seen_entry = false;
		node->removed = 0;
		break;
	case NODE_RMDIR:
		op->type = NFS_OP_RMDIR;
		break;
	case NODE_REMOVE:
		op->type = NFS_OP_REMOVE;
		break;
	}
	op->name = node->name;
	op->dir = node->state == NODE_READ || node->state == NODE_CHMOD ? &node->handle
									: parent_handle(e, node);
	list_remove(&node->ready);
	node->opened = node->parent != NULL && node->parent->chmod_done;
	node->op_active = true;
	return nfs_client_start(e->client, op);
}

/* Fills the window. A failure to start is one of the connection, or of memory: nothing goes on. */
static int fill(struct engine *e)
{
	while (e->in_flight < nfs_window(e->client) && !list_is_empty(&e->ready)) {
		struct node *node = container_of(e->ready.prev, struct node, ready);
		int r;

		if (e->cancel != NULL && atomic_load(e->cancel)) {
			e->cancelled = true;
			return 0;
		}
		r = start_node(e, node);
		if (r < 0)
			return r;
		e->in_flight++;
	}
	return 0;
}

static void be_patient(struct engine *e)
{
	e->wait = false;
	e->patience++;
	clock_sleep_ms(PATIENCE_MS);
}

static void report(const struct engine *e)
{
	struct tree_stats *stats = e->stats;

	if (stats->report != NULL && tree_is_report_due(&stats->reported_ns))
		stats->report(stats, e->name, stats->data);
}

static int drive(struct engine *e)
{
	int r;

	while (!e->finished) {
		if (e->wait)
			be_patient(e);
		r = e->cancelled ? 0 : fill(e);
		if (r < 0)
			return r;
		if (e->in_flight == 0)
			return e->cancelled ? -ECANCELED : -EIO;
		r = nfs_client_run(e->client);
		if (r < 0)
			return r;
		report(e);
	}
	return 0;
}

/* What is in flight points into nodes: it has to come back before they are freed. */
static void drain(struct engine *e)
{
	while (e->in_flight > 0 && nfs_client_run(e->client) == 0)
		;
}

static void free_all(struct engine *e)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &e->all)
		node_free(container_of(pos, struct node, all));
}

int tree_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		const atomic_bool *cancel, struct tree_stats *stats, struct error *err)
{
	struct tree_stats unused = { .report = NULL };
	struct engine e = {
		.client = c,
		.dir = dir,
		.name = name,
		.cancel = cancel,
		.stats = stats != NULL ? stats : &unused,
		.err = err,
	};
	struct node *root;
	int r;

	list_init(&e.all);
	list_init(&e.ready);
	list_init(&e.held);
	root = node_new(&e, NULL, name);
	if (root == NULL)
		return error_oom(err);
	make_ready(&e, root);
	r = drive(&e);
	drain(&e);
	free_all(&e);
	if (r == -ECANCELED)
		return error_set(err, ERROR_CANCELLED, "removing '%s' was interrupted", name);
	if (r < 0)
		return nfs_error_set(err, c, r, "removing directory '%s'", name);
	return e.error;
}
