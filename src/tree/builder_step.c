/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The operation of a node in each state, and what its reply means. builder_node.h has the table of
 * the states.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/builder_node.h"
#include "tree/checksum.h"

#define COMMIT_BYTES (64U * 1024 * 1024) /* per COMMIT, which must not time out on a slow disk */
#define VERIFY_BYTES 32768 /* read back at a time; each READ in flight has such a buffer */
#define SET_ID_BITS (BUILDER_SET_UID | BUILDER_SET_GID)
#define DIRECTORY_MODE 0700 /* while it is filled */
#define OWNER_WRITES 0200
#define XATTR_ROOM (1024 * 1024) /* free bytes in which any attribute has room */

static int fail_data_loss(const struct builder_node *node, const char *why)
{
	struct tree_builder *b = node->builder;

	if (b->error == 0)
		b->error =
			error_set(&b->err, ERROR_DATA_LOSS, "writing '%s' on %s:%s: %s", node->name,
				  b->work->to->export.server, b->work->to->export.share, why);
	return b->error;
}

/* The node has its handle: go on to its contents. */
static int node_is_found(struct builder_node *node)
{
	if (node->xattrs == NULL)
		return builder_node_enter_fill(node);
	builder_node_enter_state(node, BUILD_XATTRS);
	return 0;
}

/* -------- the attributes that are set last -------- */

static void count_clamped(struct builder_node *node)
{
	if (!node->clamped)
		node->builder->work->progress.clamped++;
	node->clamped = true;
}

/*
 * A server moves a time that its file system does not have to the nearest one that it has. Some
 * have even seconds only, and version 3 sends the lower half of the number.
 */
static bool is_time_kept(const struct nfs_client *c, const struct nfs_time *wanted,
			 const struct nfs_time *now)
{
	const uint64_t apart = (uint64_t)now->sec - (uint64_t)wanted->sec + 1;

	return (c->version == 3 ? (uint32_t)apart : apart) <= 2;
}

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
	if (!node->no_attr && !nfs_time_fits(work->to, &node->attr.mtime))
		count_clamped(node);
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
		builder_node_enter_state(node, BUILD_CHMOD);
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
	/* Not every server keeps times of symbolic links. */
	if (change->has_times && attr->is_full && node->attr.type != NFS_TYPE_SYMLINK &&
	    !is_time_kept(node->builder->work->to, &node->attr.mtime, &attr->mtime))
		count_clamped(node);
	/* Setting the owner may have cleared bits. */
	if (attr->has_mode) {
		node->made.has_mode = true;
		node->made.mode = attr->mode;
	}
	if (builder_owner_is_unproved(node, change))
		builder_node_enter_state(node, BUILD_OWNER);
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
		builder_node_enter_state(node, node->known ? BUILD_LOOKUP : BUILD_EXISTS);
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
		builder_node_enter_state(node, BUILD_LOOKUP);
	else if (node->parent == NULL && !op->attr.has_owner && !op->attr.is_named)
		builder_node_enter_state(node, BUILD_GETATTR);
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
	builder_node_enter_state(node, BUILD_GETATTR);
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

/* Go on after an attribute that was set, or that the target does not take. */
static int next_xattr(struct builder_node *node)
{
	struct tree_work *work = node->builder->work;
	const size_t left = node->xattrs->n - ++node->xattrs_set;

	node->had_room = false;
	if (left > 0 && work->to_xattrs) {
		builder_node_enter_state(node, BUILD_XATTRS);
		return 0;
	}
	/* Another node's reply may have ended it. */
	builder_node_lose_xattrs(node, left, -EOPNOTSUPP);
	builder_node_drop_xattrs(node);
	return builder_node_enter_fill(node);
}

static int after_xattr(struct builder_node *node, const struct nfs_op *op, int r)
{
	(void)op;
	if (r == -ENOSPC) {
		builder_node_enter_state(node, BUILD_ROOM);
		return 0;
	}
	if (r < 0 && !tree_xattrs_is_loss(r))
		return r;
	if (r < 0)
		builder_node_lose_xattrs(node, 1, r);
	if (r == -EOPNOTSUPP)
		node->builder->work->to_xattrs = false;
	return next_xattr(node);
}

/* Ask about the directory: XFS reports a project's quota for directories alone. */
static int prepare_room(struct builder_node *node, struct nfs_op *op)
{
	op->type = NFS_OP_FSSTAT;
	op->dir = parent_handle(node);
	return 0;
}

/*
 * ext4 says ENOSPC for an attribute that is too large for it, too. That one is lost if there was
 * room both before the SETXATTR and after it: room may have been made after a first one.
 */
static int after_room(struct builder_node *node, const struct nfs_op *op, int r)
{
	if (r < 0)
		return r;
	if (op->space.available < XATTR_ROOM)
		return -ENOSPC;
	if (!node->had_room) {
		node->had_room = true;
		builder_node_enter_state(node, BUILD_XATTRS);
		return 0;
	}
	builder_node_lose_xattrs(node, 1, -ENOSPC);
	return next_xattr(node);
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
		return builder_fail_lost(node);
	if (commits_rest(node)) {
		builder_node_leave_data_states(node);
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
		builder_node_enter_state(node, BUILD_SETATTR);
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
		builder_node_enter_state(node, BUILD_EXISTS);
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
	[BUILD_ROOM] = { "setting extended attributes of", prepare_room, after_room },
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
		builder_folder_queue(folder);
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
		builder_folder_queue(folder);
	}
	return r;
}
