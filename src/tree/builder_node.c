/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/builder_node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "nfs/error.h"
#include "tree/checksum.h"

#define COMMIT_BYTES (64U * 1024 * 1024) /* per COMMIT, which must not time out on a slow disk */
#define VERIFY_BYTES 32768 /* read back at a time; each READ in flight has such a buffer */
#define SET_ID_BITS (BUILDER_SET_UID | BUILDER_SET_GID)
#define DIRECTORY_MODE 0700 /* while it is filled */
#define OWNER_WRITES 0200

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

static int fail_data_loss(const struct builder_node *node, const char *why)
{
	struct tree_builder *b = node->builder;

	if (b->error == 0)
		b->error =
			error_set(&b->err, ERROR_DATA_LOSS, "writing '%s' on %s:%s: %s", node->name,
				  b->work->to->export.server, b->work->to->export.share, why);
	return b->error;
}

/* -------- nodes -------- */

/* Queue a directory by what is to be created in it, and in flight. */
static void folder_queue(struct builder_node *folder)
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
		folder_queue(parent);
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

static void node_enter_state(struct builder_node *node, enum builder_node_state state)
{
	node->state = state;
	builder_node_ready(node);
}

static void node_leave_data_states(struct builder_node *node)
{
	const bool verify = node->builder->options->verify && node->size > 0;

	node_enter_state(node, verify ? BUILD_VERIFY : BUILD_SETATTR);
}

void builder_node_settle(struct builder_node *node)
{
	if (!node->ended || node->busy || node->pending > 0 || node->state != BUILD_FILL)
		return;
	if (node->unstable)
		node_enter_state(node, BUILD_COMMIT);
	else
		node_leave_data_states(node);
}

static int node_enter_fill(struct builder_node *node)
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

/* The node has its handle: go on to its contents. */
static int node_is_found(struct builder_node *node)
{
	if (node->xattrs == NULL)
		return node_enter_fill(node);
	node_enter_state(node, BUILD_XATTRS);
	return 0;
}

void builder_node_linked(struct builder_node *node)
{
	node->state = BUILD_LINKED;
	if (node->ended)
		builder_node_finish(node);
}

/* -------- the attributes that are set last -------- */

static int final_change(struct builder_node *node, struct nfs_change *ret)
{
	struct tree_work *work = node->builder->work;

	*ret = (struct nfs_change){
		.has_times = !node->no_attr,
		.atime = node->attr.atime,
		.mtime = node->attr.mtime,
		.has_mode = node->attr.type == NFS_TYPE_DIRECTORY,
		.mode = builder_owner_mode(node),
		.has_size = node->has_holes, /* a hole at the end is not written */
		.size = node->attr.size,
	};
	if (!node->no_attr && !node->clamped && !nfs_time_fits(work->to, &node->attr.mtime)) {
		node->clamped = true;
		work->progress.clamped++;
	}
	return builder_owner_put(node, ret);
}

static bool needs_chmod(const struct builder_node *node)
{
	if (node->state == BUILD_CHMOD || node->attr.type == NFS_TYPE_SYMLINK)
		return false;
	/* SETATTR has set the mode of a directory. */
	if (node->attr.type == NFS_TYPE_DIRECTORY && !node->op.attr.has_mode)
		return false;
	return !node->made.has_mode || node->made.mode != builder_owner_mode(node);
}

static void node_leave_setattr(struct builder_node *node)
{
	if (needs_chmod(node))
		node_enter_state(node, BUILD_CHMOD);
	else
		builder_node_finish(node);
}

static int take_attributes_set(struct builder_node *node, const struct nfs_change *change,
			       const struct nfs_attr *attr)
{
	int r = builder_owner_check(node, change);

	if (r < 0)
		return r;
	if (node->attr.type == NFS_TYPE_FILE && attr->is_full &&
	    attr->size != (node->has_holes ? node->attr.size : node->size))
		return fail_data_loss(node, "the file does not have the size that was written");
	/* Setting the owner may have cleared bits. */
	if (attr->has_mode) {
		node->made.has_mode = true;
		node->made.mode = attr->mode;
	}
	if (builder_owner_is_unproved(node, change))
		node_enter_state(node, BUILD_OWNER);
	else
		node_leave_setattr(node);
	return 0;
}

/* -------- an operation and its reply, for each state -------- */

static const struct nfs_handle *parent_handle(const struct builder_node *node)
{
	return node->parent != NULL ? &node->parent->handle : node->builder->parent;
}

static struct builder_chunk *first_chunk(const struct builder_node *node)
{
	return list_is_empty(&node->chunks)
		       ? NULL
		       : container_of(node->chunks.next, struct builder_chunk, link);
}

static int prepare_create_whole(struct builder_node *node, struct nfs_op *op)
{
	const struct builder_chunk *chunk = first_chunk(node);

	op->whole = true;
	if (chunk != NULL) {
		op->buffer = chunk->data;
		op->count = (uint32_t)chunk->len;
	}
	return final_change(node, &op->then);
}

static int prepare_create(struct builder_node *node, struct nfs_op *op)
{
	op->dir = parent_handle(node);
	op->name = node->name;
	op->mode = DIRECTORY_MODE;
	/* SETATTR sets the owner: knfsd writes the journal for each CREATE that sets one. */
	op->change = (struct nfs_change){
		.has_mode = true,
		.mode = builder_owner_mode(node) & ~(uint32_t)SET_ID_BITS,
	};
	/* Unlike data, extended attributes need the right to write. CHMOD takes it away again. */
	if (node->xattrs != NULL)
		op->change.mode |= OWNER_WRITES;
	switch (node->attr.type) {
	case NFS_TYPE_DIRECTORY:
		op->type = NFS_OP_MKDIR;
		break;
	case NFS_TYPE_FILE:
		op->type = NFS_OP_CREATE;
		if (node->deferred)
			return prepare_create_whole(node, op);
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
	return 0;
}

/* All is done but for bits of the mode that the owner may have cleared. */
static int finish_whole(struct builder_node *node, const struct nfs_op *op)
{
	node->handle = node->found;
	if (op->count > 0) {
		builder_chunk_free(first_chunk(node));
		node->pending--;
	}
	return take_attributes_set(node, &op->then, &op->attr);
}

static int after_create(struct builder_node *node, const struct nfs_op *op, int r)
{
	if (r == -EEXIST && node->parent != NULL && !node->existed) {
		node->existed = true;
		node_enter_state(node, node->known ? BUILD_LOOKUP : BUILD_EXISTS);
		return 0;
	}
	if (r < 0)
		return r;
	node->made = op->attr;
	node->found = op->handle;
	if (op->whole)
		return finish_whole(node, op);
	/* The handle is optional in a version 3 reply. */
	if (op->handle.len == 0)
		node_enter_state(node, BUILD_LOOKUP);
	else if (node->parent == NULL && !op->attr.has_owner && !op->attr.is_named)
		node_enter_state(node, BUILD_GETATTR);
	else
		return node_is_found(node);
	return 0;
}

static int prepare_getattr(struct builder_node *node, struct nfs_op *op)
{
	op->type = NFS_OP_GETATTR;
	op->dir = &node->found;
	return 0;
}

static int after_getattr(struct builder_node *node, const struct nfs_op *op, int r)
{
	if (r < 0)
		return r;
	if (op->attr.type != node->attr.type)
		return -EEXIST;
	if (node->no_attr && node->existed) {
		node->attr = op->attr;
		node->no_attr = !node->attr.is_full;
	}
	node->made = op->attr;
	return node_is_found(node);
}

static int prepare_lookup(struct builder_node *node, struct nfs_op *op)
{
	op->type = NFS_OP_LOOKUP;
	op->dir = parent_handle(node);
	op->name = node->name;
	return 0;
}

static int after_lookup(struct builder_node *node, const struct nfs_op *op, int r)
{
	if (r < 0)
		return r;
	node->found = op->handle;
	/* Attributes are optional in a version 3 reply. */
	if (op->attr.type != NFS_TYPE_UNKNOWN)
		return after_getattr(node, op, 0);
	node_enter_state(node, BUILD_GETATTR);
	return 0;
}

static int prepare_xattr(struct builder_node *node, struct nfs_op *op)
{
	const struct tree_xattr *xattr = &node->xattrs->items[node->xattrs_set];

	op->type = NFS_OP_SETXATTR;
	op->dir = &node->found;
	op->name = xattr->name;
	op->buffer = xattr->value;
	op->count = xattr->len;
	return 0;
}

static int after_xattr(struct builder_node *node, const struct nfs_op *op, int r)
{
	struct tree_work *work = node->builder->work;
	size_t left;

	(void)op;
	if (r < 0 && !tree_xattrs_is_loss(r))
		return r;
	if (r < 0)
		tree_xattrs_lose(work, 1, r);
	if (r == -EOPNOTSUPP)
		work->to_xattrs = false;
	left = node->xattrs->n - ++node->xattrs_set;
	if (left > 0 && work->to_xattrs) {
		builder_node_ready(node);
		return 0;
	}
	/* Another node's reply may have ended it. */
	tree_xattrs_lose(work, left, -EOPNOTSUPP);
	builder_node_drop_xattrs(node);
	return node_enter_fill(node);
}

/* Whether the next COMMIT is for all of the rest. A file that is mostly holes has little data. */
static bool commits_rest(const struct builder_node *node)
{
	return node->written <= COMMIT_BYTES || node->size - node->committed <= COMMIT_BYTES;
}

static int prepare_commit(struct builder_node *node, struct nfs_op *op)
{
	op->type = NFS_OP_COMMIT;
	op->offset = node->committed;
	if (!commits_rest(node))
		op->count = COMMIT_BYTES;
	return 0;
}

static int after_commit(struct builder_node *node, const struct nfs_op *op, int r)
{
	if (r < 0)
		return r;
	/* If the verifier changed, the server was restarted and may have lost the writes. */
	if (memcmp(node->verifier, op->verifier, sizeof(node->verifier)) != 0)
		return -EIO;
	if (commits_rest(node)) {
		node_leave_data_states(node);
		return 0;
	}
	node->committed += COMMIT_BYTES;
	builder_node_ready(node);
	return 0;
}

static int prepare_verify(struct builder_node *node, struct nfs_op *op)
{
	if (node->reread == NULL)
		node->reread = malloc(VERIFY_BYTES);
	if (node->reread == NULL)
		return -ENOMEM;
	op->type = NFS_OP_READ;
	op->offset = node->verified + node->n_reread;
	op->count = VERIFY_BYTES - node->n_reread;
	op->buffer = node->reread + node->n_reread;
	return 0;
}

/* Servers may return less than they are asked for: the checksum is taken of full parts. */
static int after_verify(struct builder_node *node, const struct nfs_op *op, int r)
{
	const uint64_t end = node->verified + node->n_reread + op->count;

	if (r < 0)
		return r;
	if (op->count == 0)
		return -EIO; /* the file is shorter than what was written */
	node->n_reread += op->count;
	if (node->n_reread == VERIFY_BYTES || end >= node->size) {
		node->sum_reread += tree_checksum(node->verified, node->reread, node->n_reread);
		node->verified = end;
		node->n_reread = 0;
		/* Nodes that wait for their turn need no buffer. */
		free(steal_ptr(&node->reread));
	}
	if (node->verified < node->size)
		builder_node_ready(node);
	else if (node->sum_reread != node->sum)
		return fail_data_loss(node, "the data read back is not what was written");
	else
		node_enter_state(node, BUILD_SETATTR);
	return 0;
}

static int prepare_setattr(struct builder_node *node, struct nfs_op *op)
{
	op->type = NFS_OP_SETATTR;
	return final_change(node, &op->change);
}

static int prepare_chmod(struct builder_node *node, struct nfs_op *op)
{
	op->type = NFS_OP_SETATTR;
	op->change = (struct nfs_change){ .has_mode = true, .mode = builder_owner_mode(node) };
	return 0;
}

static int after_setattr(struct builder_node *node, const struct nfs_op *op, int r)
{
	/* Not every server keeps owners and times of symbolic links. */
	if (node->attr.type == NFS_TYPE_SYMLINK && (r == -EOPNOTSUPP || r == -EINVAL))
		r = 0;
	return r < 0 ? r : take_attributes_set(node, &op->change, &op->attr);
}

static int prepare_owner(struct builder_node *node, struct nfs_op *op)
{
	(void)node;
	op->type = NFS_OP_GETATTR;
	return 0;
}

static int after_owner(struct builder_node *node, const struct nfs_op *op, int r)
{
	struct nfs_change change = { .has_uid = false };

	if (r == 0)
		r = builder_owner_put(node, &change);
	if (r == 0)
		r = builder_owner_check(node, &change);
	if (r < 0)
		return r;
	node->made.has_mode = op->attr.has_mode;
	node->made.mode = op->attr.mode;
	node_leave_setattr(node);
	return 0;
}

static int prepare_link(struct builder_node *node, struct nfs_op *op)
{
	op->type = NFS_OP_LINK;
	op->dir = &node->target->handle;
	op->to_dir = &node->parent->handle;
	op->to_name = node->name;
	return 0;
}

static int after_link(struct builder_node *node, const struct nfs_op *op, int r)
{
	(void)op;
	if (r == -EEXIST && !node->existed) {
		node->existed = true;
		node_enter_state(node, BUILD_EXISTS);
		return 0;
	}
	if (r == 0)
		builder_node_linked(node);
	return r;
}

/* after() may free the node if it returns 0. States that are missing have no operation here. */
static const struct {
	const char *verb; /* for messages */
	int (*prepare)(struct builder_node *node, struct nfs_op *op);
	int (*after)(struct builder_node *node, const struct nfs_op *op, int r);
} build_steps[] = {
	[BUILD_CREATE] = { "making", prepare_create, after_create },
	[BUILD_LOOKUP] = { "making", prepare_lookup, after_lookup },
	[BUILD_GETATTR] = { "making", prepare_getattr, after_getattr },
	[BUILD_XATTRS] = { "setting extended attributes of", prepare_xattr, after_xattr },
	[BUILD_COMMIT] = { "writing", prepare_commit, after_commit },
	[BUILD_VERIFY] = { "reading back", prepare_verify, after_verify },
	[BUILD_SETATTR] = { "setting the attributes of", prepare_setattr, after_setattr },
	[BUILD_OWNER] = { "looking up the owner of", prepare_owner, after_owner },
	[BUILD_CHMOD] = { "setting the attributes of", prepare_chmod, after_setattr },
	[BUILD_LINK] = { "linking", prepare_link, after_link },
};

/* The directory whose entry the operation of the node's state makes, or NULL. */
static struct builder_node *node_folder(const struct builder_node *node)
{
	return node->state == BUILD_CREATE || node->state == BUILD_LINK ? node->parent : NULL;
}

static void step_replied(struct nfs_op *op)
{
	struct builder_node *node = container_of(op, struct builder_node, op);
	struct builder_node *folder = node_folder(node);
	struct tree_builder *b = node->builder;
	const char *verb = build_steps[node->state].verb;
	int r = op->error;

	tree_op_returned(b->work, &b->work->writing, op);
	node->busy = false;
	if (folder != NULL) {
		folder->creating--;
		folder_queue(folder);
	}
	if (tree_should_retry(b->work, r)) {
		builder_node_ready(node);
		return;
	}
	r = build_steps[node->state].after(node, op, r);
	if (r < 0)
		builder_fail(b, r, verb, node->name);
}

int builder_node_start(struct builder_node *node)
{
	struct builder_node *folder = node_folder(node);
	struct tree_work *work = node->builder->work;
	struct nfs_op *op = &node->op;
	int r;

	if (node->state == BUILD_FILL) {
		r = builder_chunk_start(node);
		work->writing += r == 0;
		return r;
	}
	list_remove(&node->link);
	*op = (struct nfs_op){ .dir = &node->handle, .done = step_replied, .full = true };
	r = build_steps[node->state].prepare(node, op);
	if (r < 0)
		return r;
	r = nfs_client_start(work->to, op);
	/* Too large for a request of this session: as if the server had refused it. */
	if (r == -EMSGSIZE && node->state == BUILD_XATTRS)
		return after_xattr(node, op, r);
	node->busy = r == 0;
	work->writing += r == 0;
	if (folder != NULL) {
		folder->creating += r == 0;
		folder_queue(folder);
	}
	return r;
}
