/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* What is started, and when: the loop around the nodes. */

#include "tree/remove.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "nfs/calls.h"
#include "tree/remove_node.h"

#define PATIENCE_MS 100 /* of one wait while the server asks to try later */
#define LIFTED_NAME_MAX 64

/* The error of a client that breaks is that of each operation: nothing of the batch is done then. */
static int start_batch(struct engine *e, struct node *node)
{
	const size_t max = e->client->version == 4 ? NFS_REMOVE_MAX : 1;
	struct call *call = call_new(e, node, node_replied);
	struct nfs_op *op;

	if (call == NULL)
		return -ENOMEM;
	op = &call->op;
	op->type = NFS_OP_REMOVE;
	op->dir = &node->handle;
	call->opened = node->chmod_done;
	while (op->n_names < max && !list_is_empty(&node->names)) {
		struct name *name = container_of(node->names.next, struct name, link);

		list_remove(&name->link);
		list_add_tail(&call->names, &name->link);
		call->texts[op->n_names++] = name->name;
	}
	op->name = call->texts[0];
	op->names = call->texts;
	if (op->n_names == 1)
		op->n_names = 0; /* by its name alone, as version 3 has it */
	if (list_is_empty(&node->names))
		list_remove(&node->queue);
	return call_start(e, call);
}

/* Unique in the root for whoever works on the tree at the same time. */
static int put_lift(struct engine *e, struct node *node, struct call *call)
{
	static _Atomic unsigned int counter;
	struct nfs_op *op = &call->op;

	call->to_name = malloc(LIFTED_NAME_MAX);
	if (call->to_name == NULL)
		return -ENOMEM;
	(void)snprintf(call->to_name, LIFTED_NAME_MAX, ".csi-nfs-deep.%" PRIx64 ".%x.%x",
		       clock_now_ns(), (unsigned int)getpid(), counter++);
	op->type = NFS_OP_RENAME;
	op->dir = node_parent_handle(e, node);
	op->to_dir = &e->root->handle;
	op->to_name = call->to_name;
	call->root_opened = e->root->chmod_done;
	return 0;
}

static void put_read(struct node *node, struct call *call)
{
	struct nfs_op *op = &call->op;

	call->before = node->cookie;
	op->type = NFS_OP_READDIR;
	op->entry = node_entry_found;
	op->cookie = node->cookie;
	memcpy(op->verifier, node->verifier, sizeof(op->verifier));
	node->seen_entry = node->seen_directory = node->is_cut = false;
	node->removed = 0;
}

/* Fills in the operation that is next for the node. */
static int put_operation(struct engine *e, struct node *node, struct call *call)
{
	struct nfs_op *op = &call->op;

	op->name = node->name;
	op->dir = &node->handle;
	switch (node->state) {
	case NODE_LOOKUP:
		op->type = NFS_OP_LOOKUP;
		op->dir = node_parent_handle(e, node);
		break;
	case NODE_GETATTR:
		op->type = NFS_OP_GETATTR;
		break;
	case NODE_CHMOD:
		op->type = NFS_OP_SETATTR;
		op->change = (struct nfs_change){ .has_mode = true, .mode = 0700 };
		break;
	case NODE_LIFT:
		return put_lift(e, node, call);
	case NODE_READ:
		put_read(node, call);
		break;
	case NODE_RMDIR:
		op->type = NFS_OP_RMDIR;
		op->dir = node_parent_handle(e, node);
		break;
	case NODE_REMOVE:
	case NODE_BUSY: /* has batches, and no operation of its own */
		op->type = NFS_OP_REMOVE;
		op->dir = node_parent_handle(e, node);
		break;
	}
	return 0;
}

int node_start(struct engine *e, struct node *node)
{
	struct call *call;
	int r;

	if (node->state == NODE_BUSY)
		return start_batch(e, node);
	call = call_new(e, node, node_replied);
	if (call == NULL)
		return -ENOMEM;
	r = put_operation(e, node, call);
	if (r < 0) {
		call_free(call);
		return r;
	}
	list_remove(&node->queue);
	call->opened = node->parent != NULL && node->parent->chmod_done;
	node->active = true;
	return call_start(e, call);
}

static bool is_ending(struct engine *e)
{
	if (e->ending == 0 && e->cancel != NULL && atomic_load(e->cancel))
		e->ending = -ECANCELED;
	if (e->ending == 0 && e->stats->until_ns != 0 && clock_now_ns() >= e->stats->until_ns)
		e->ending = -ETIME;
	return e->ending != 0;
}

static int fill(struct engine *e)
{
	while (e->in_flight < nfs_window(e->client) && !list_is_empty(&e->ready)) {
		struct node *node = container_of(e->ready.prev, struct node, queue);
		int r;

		if (is_ending(e))
			return 0;
		r = node_check(e, node);
		if (r > 0)
			r = node_start(e, node);
		if (r < 0)
			return r;
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
		r = fill(e);
		if (r < 0)
			return r;
		if (e->finished)
			break;
		if (e->in_flight == 0)
			return is_ending(e) ? e->ending : -EIO;
		r = nfs_client_run(e->client);
		if (r < 0)
			return r;
		/* A server that does something else meanwhile is worth more patience. */
		if (e->moved)
			e->patience = 0;
		e->moved = false;
		report(e);
	}
	return 0;
}

/* What is in flight points into nodes: it has to come back before they are freed. */
static void drain(struct engine *e)
{
	const uint64_t begun = clock_now_ns();

	while (e->in_flight > 0) {
		/* What takes a server's disk long is not worth waiting for any more. */
		if ((e->cancel != NULL && atomic_load(e->cancel)) ||
		    clock_now_ns() - begun > NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS)
			nfs_client_abort(e->client);
		if (nfs_client_run(e->client) < 0)
			break;
	}
}

static void free_all(struct engine *e)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &e->all)
		node_free(e, container_of(pos, struct node, all));
}

static int result(struct engine *e, int r)
{
	struct nfs_client *c = e->client;

	if (r == -ECANCELED)
		return error_set(e->err, ERROR_CANCELLED, "removing '%s' was interrupted", e->name);
	if (r == -ETIME) {
		(void)error_set(e->err, ERROR_ABORTED, "removing '%s' is not finished", e->name);
		return r;
	}
	if (r < 0)
		return nfs_error_set(e->err, c, r, "removing directory '%s'", e->name);
	if (e->error != 0 || e->borders == 0)
		return e->error;
	(void)error_set(e->err, ERROR_FAILED_PRECONDITION,
			"'%s' on %s:%s is on another file system, which is left alone (%" PRIu64
			" of them): unmount it on the server",
			e->border, c->export.server, c->export.share, e->borders);
	return -EXDEV;
}

static int find_file_system(struct engine *e)
{
	int r = nfs_getattr(e->client, e->dir, &e->fs);

	if (r < 0)
		return nfs_error_set(e->err, e->client, r, "looking up what holds '%s'", e->name);
	if (e->fs.has_fsid)
		return 0;
	(void)error_set(e->err, ERROR_FAILED_PRECONDITION,
			"server '%s' does not tell file systems apart (no fsid): '%s' is not removed",
			e->client->export.server, e->name);
	return -EXDEV;
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
	int r;

	list_init(&e.all);
	list_init(&e.ready);
	list_init(&e.held);
	list_init(&e.waiting);
	r = find_file_system(&e);
	if (r < 0)
		return r;
	e.root = node_new(&e, NULL, name);
	if (e.root == NULL)
		return error_oom(err);
	node_make_ready(&e, e.root);
	r = drive(&e);
	drain(&e);
	free_all(&e);
	e.stats->borders += e.borders;
	return result(&e, r);
}
