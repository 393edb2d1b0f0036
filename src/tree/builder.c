/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/builder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "tree/checksum.h"

#define NODES_MAX 256 /* entries that are being made, without those that are still open */
#define BYTES_MAX (4U * 1024 * 1024) /* data that waits to be written */
#define VERIFY_BYTES 32768 /* that are read again at a time, of each file that is verified */
#define SET_ID_BITS 06000
#define DIRECTORY_MODE 0700 /* while it is being filled */
#define ROOT_UID 0

enum node_state {
	NODE_MAKE,
	NODE_REPLACE, /* what has come under this name before goes */
	NODE_FIND, /* its handle is not known */
	NODE_LOOK, /* what it is, or whose: attributes are optional in version 3 replies */
	NODE_FILL, /* open for children and data */
	NODE_COMMIT,
	NODE_VERIFY,
	NODE_ATTRIBUTES,
	NODE_MODE, /* after the owner, which takes setuid away on some servers */
	NODE_LINK, /* another name of something; made at once */
};

struct node {
	struct list link; /* in builder.ready, or in parent->waiting */
	struct list all;
	struct tree_builder *builder;
	struct node *parent;
	enum node_state state;
	bool busy; /* op is in flight */
	bool ended;
	bool plain; /* without attributes of its own: keeps what it has */
	bool was_there; /* before it was begun */
	bool unstable; /* has data that is not yet on the disk */
	bool has_verifier;
	bool has_holes;
	char verifier[8];
	uint64_t size; /* of a file, as far as data has come */
	uint64_t verified; /* bytes before that piece */
	uint64_t sum, sum_again; /* checksums of what came, and of what was read again */
	char *again; /* a piece of VERIFY_BYTES that is read again */
	uint32_t n_again; /* bytes of it that have come */
	size_t pending; /* children or chunks that are not finished */
	struct list waiting; /* children, until the handle is known */
	struct list chunks; /* to be written */
	struct nfs_op op;
	struct nfs_handle handle; /* len 0: it cannot be used yet */
	struct nfs_handle found; /* until it can */
	struct nfs_attr attr; /* wanted */
	struct nfs_attr made; /* as the server made it, as far as it said */
	char *text; /* of a symbolic link */
	char name[];
};

struct chunk {
	struct list link;
	struct node *node;
	struct nfs_op op;
	uint64_t offset;
	size_t len;
	char data[];
};

struct tree_builder {
	struct tree_sink sink;
	struct tree_work *work;
	const struct nfs_handle *parent;
	const struct tree_builder_options *options;
	struct node *current; /* begun last, and not ended */
	struct list ready; /* nodes with something to start */
	struct list later; /* NODE_FIND and NODE_REPLACE, of what came before and is not finished */
	struct list all;
	size_t n_closing; /* nodes that have been ended and are not finished */
	size_t bytes; /* of chunks */
	uint64_t data; /* bytes taken */
	struct nfs_handle root;
	bool finished; /* the root is */
	bool owners; /* we are root on the server */
	uint32_t uid; /* that we are */
	int error; /* the first one; nothing is started after it */
	struct error err;
};

static void settle(struct node *node);

static void fail(struct tree_builder *b, int r, const char *verb, const char *name)
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

static void fail_differs(const struct node *node, const char *why)
{
	struct tree_builder *b = node->builder;

	if (b->error == 0)
		b->error =
			error_set(&b->err, ERROR_DATA_LOSS, "writing '%s' on %s:%s: %s", node->name,
				  b->work->to->export.server, b->work->to->export.share, why);
}

static int failure(const struct tree_builder *b, struct error *err)
{
	(void)error_set(err, b->err.code, "%s", b->err.msg);
	return b->error;
}

static void make_ready(struct node *node)
{
	list_remove(&node->link);
	list_add_tail(&node->builder->ready, &node->link);
}

/* -------- nodes -------- */

static struct node *node_new(struct tree_builder *b, const struct tree_entry *entry)
{
	const char *name = b->current != NULL ? entry->name : b->options->root;
	size_t len = strlen(name);
	struct node *node = calloc(1, sizeof(*node) + len + 1);

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
	list_init(&node->chunks);
	list_add_tail(&b->all, &node->all);
	return node;
}

static void chunk_free(struct chunk *chunk)
{
	chunk->node->builder->bytes -= chunk->len;
	list_remove(&chunk->link);
	free(chunk);
}

static void node_free(struct node *node)
{
	while (!list_is_empty(&node->chunks))
		chunk_free(container_of(node->chunks.next, struct chunk, link));
	/* Children outlive it where the making of it has failed. */
	while (!list_is_empty(&node->waiting))
		list_remove(node->waiting.next);
	list_remove(&node->link);
	list_remove(&node->all);
	free(node->text);
	free(node->again);
	free(node);
}

static void finish(struct node *node)
{
	struct tree_builder *b = node->builder;
	struct node *parent = node->parent;

	b->n_closing--;
	while (!list_is_empty(&b->later))
		make_ready(container_of(b->later.next, struct node, link));
	if (parent == NULL) {
		b->finished = true;
	} else {
		parent->pending--;
		settle(parent);
	}
	node_free(node);
}

/* Owners that cannot be kept do not make anybody else's program setuid for us. */
static uint32_t wanted_mode(const struct node *node)
{
	const struct tree_builder *b = node->builder;
	uint32_t mode = node->attr.mode & 07777;

	if (b->owners || node->attr.type == NFS_TYPE_DIRECTORY || node->attr.uid == b->uid)
		return mode;
	return mode & ~(uint32_t)SET_ID_BITS;
}

static bool has_owner(const struct node *node)
{
	return node->made.has_owner && node->made.uid == node->attr.uid &&
	       node->made.gid == node->attr.gid;
}

static bool needs_mode(const struct node *node)
{
	if (node->attr.type == NFS_TYPE_DIRECTORY || node->attr.type == NFS_TYPE_SYMLINK)
		return false;
	return !node->made.has_mode || node->made.mode != wanted_mode(node);
}

/* Before the attributes, since reading sets the time of access. */
static enum node_state after_commit(const struct node *node)
{
	return node->builder->options->verify && node->size > 0 ? NODE_VERIFY : NODE_ATTRIBUTES;
}

/* What comes next for a node that nothing is left to be done in. */
static void settle(struct node *node)
{
	if (!node->ended || node->busy || node->pending > 0 || node->state != NODE_FILL)
		return;
	if (node->unstable)
		node->state = NODE_COMMIT;
	else
		node->state = after_commit(node);
	make_ready(node);
}

static void take_handle(struct node *node, const struct nfs_handle *handle)
{
	struct tree_builder *b = node->builder;

	node->handle = *handle;
	node->state = NODE_FILL;
	if (node->parent == NULL)
		b->root = *handle;
	while (!list_is_empty(&node->waiting))
		make_ready(container_of(node->waiting.next, struct node, link));
	if (!list_is_empty(&node->chunks))
		make_ready(node);
	settle(node);
}

/* The root tells who we are on the server. */
static void take_made(struct node *node)
{
	struct tree_builder *b = node->builder;

	if (node->parent == NULL && node->made.has_owner) {
		b->uid = node->made.uid;
		b->owners = node->made.uid == ROOT_UID;
	}
	take_handle(node, &node->found);
}

/* -------- replies -------- */

static void look(struct node *node)
{
	node->state = NODE_LOOK;
	make_ready(node);
}

static void made(struct node *node, int r)
{
	struct tree_builder *b = node->builder;
	const struct nfs_op *op = &node->op;

	if (r == -EEXIST && node->parent != NULL && !node->was_there) {
		node->was_there = true;
		node->state = node->attr.type == NFS_TYPE_DIRECTORY ? NODE_FIND : NODE_REPLACE;
		make_ready(node);
		return;
	}
	if (r < 0) {
		fail(b, r, "making", node->name);
		return;
	}
	node->made = op->attr;
	node->found = op->handle;
	if (op->handle.len == 0) {
		node->state = NODE_FIND; /* the handle is optional in a version 3 reply */
		make_ready(node);
	} else if (node->parent == NULL && !op->attr.has_owner) {
		look(node);
	} else {
		take_made(node);
	}
}

static void replaced(struct node *node, int r)
{
	if (r < 0 && r != -ENOENT) {
		fail(node->builder, r == -EISDIR || r == -EPERM ? -EEXIST : r, "making", node->name);
		return;
	}
	node->state = NODE_MAKE;
	make_ready(node);
}

static void found(struct node *node, int r)
{
	if (r == 0 && node->op.attr.type != node->attr.type)
		r = -EEXIST;
	if (r < 0) {
		fail(node->builder, r, "making", node->name);
		return;
	}
	if (node->plain && node->was_there) {
		node->attr = node->op.attr;
		node->plain = !node->attr.is_full;
	}
	node->made = node->op.attr;
	take_made(node);
}

static void committed(struct node *node, int r)
{
	/* Another verifier than with the writes: the server was restarted, and may have lost them. */
	if (r == 0 && memcmp(node->verifier, node->op.verifier, sizeof(node->verifier)) != 0)
		r = -EIO;
	if (r < 0) {
		fail(node->builder, r, "writing", node->name);
		return;
	}
	node->state = after_commit(node);
	make_ready(node);
}

/* Some of a piece has been read again: servers may give less than they are asked for. */
static void verified(struct node *node, int r)
{
	const uint64_t end = node->verified + node->n_again + node->op.count;

	if (r == 0 && node->op.count == 0)
		r = -EIO; /* the file is shorter than what was written */
	if (r < 0) {
		fail(node->builder, r, "reading again", node->name);
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
	make_ready(node);
}

static bool has_wrong_size(const struct node *node)
{
	const struct nfs_attr *attr = &node->op.attr;

	return node->attr.type == NFS_TYPE_FILE && attr->is_full &&
	       attr->size != (node->has_holes ? node->attr.size : node->size);
}

static void attributes_set(struct node *node, int r)
{
	/* Not every server has owners and times of symbolic links. */
	if (node->attr.type == NFS_TYPE_SYMLINK && (r == -EOPNOTSUPP || r == -EINVAL))
		r = 0;
	if (r < 0) {
		fail(node->builder, r, "setting the attributes of", node->name);
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
		make_ready(node);
		return;
	}
	finish(node);
}

static void replied(struct nfs_op *op)
{
	struct node *node = container_of(op, struct node, op);
	struct tree_builder *b = node->builder;
	int r = op->error;

	b->work->in_flight--;
	node->busy = false;
	if (r < 0 && tree_is_to_be_retried(b->work, r)) {
		make_ready(node);
		return;
	}
	switch (node->state) {
	case NODE_MAKE:
		made(node, r);
		break;
	case NODE_REPLACE:
		replaced(node, r);
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
	case NODE_FILL:
	case NODE_LINK:
		break; /* have no operation */
	}
}

static int check_verifier(struct node *node, const struct nfs_op *op)
{
	if (op->stable)
		return 0;
	node->unstable = true;
	if (!node->has_verifier)
		memcpy(node->verifier, op->verifier, sizeof(node->verifier));
	node->has_verifier = true;
	return memcmp(node->verifier, op->verifier, sizeof(node->verifier)) == 0 ? 0 : -EIO;
}

static void written(struct nfs_op *op)
{
	struct chunk *chunk = container_of(op, struct chunk, op);
	struct node *node = chunk->node;
	struct tree_builder *b = node->builder;
	size_t done = chunk->op.offset + op->count - chunk->offset;
	int r = op->error;

	b->work->in_flight--;
	if (r == 0)
		r = check_verifier(node, op);
	if (r == 0 && op->count == 0)
		r = -EIO;
	if ((r == 0 && done < chunk->len) || (r < 0 && tree_is_to_be_retried(b->work, r))) {
		/* Servers may take less than they are given: op.offset tells how far it got. */
		if (r == 0)
			chunk->op.offset += op->count;
		list_add_tail(&node->chunks, &chunk->link);
		make_ready(node);
		return;
	}
	if (r < 0)
		fail(b, r, "writing", node->name);
	chunk_free(chunk);
	node->pending--;
	settle(node);
}

/* -------- what is started -------- */

static void prepare_make(struct node *node, struct nfs_op *op)
{
	const struct tree_builder *b = node->builder;
	struct nfs_change *change = &op->change;

	op->dir = node->parent != NULL ? &node->parent->handle : b->parent;
	op->name = node->name;
	op->mode = DIRECTORY_MODE;
	/* The owner comes with the times: knfsd writes the journal for each CREATE that sets one. */
	*change = (struct nfs_change){
		.has_mode = true,
		.mode = wanted_mode(node) & ~(uint32_t)SET_ID_BITS,
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

static void prepare_attributes(struct node *node, struct nfs_change *change)
{
	const struct tree_builder *b = node->builder;

	const bool owner = b->owners && !node->plain && !has_owner(node);

	*change = (struct nfs_change){
		.has_times = !node->plain,
		.atime = node->attr.atime,
		.mtime = node->attr.mtime,
		.has_uid = owner,
		.uid = node->attr.uid,
		.has_gid = owner,
		.gid = node->attr.gid,
		.has_mode = node->attr.type == NFS_TYPE_DIRECTORY,
		.mode = wanted_mode(node),
		.has_size = node->has_holes, /* one at the end is not written */
		.size = node->attr.size,
	};
}

static void prepare(struct node *node)
{
	struct nfs_op *op = &node->op;

	*op = (struct nfs_op){ .dir = &node->handle, .done = replied, .full = true };
	switch (node->state) {
	case NODE_MAKE:
		prepare_make(node, op);
		break;
	case NODE_REPLACE:
		op->type = NFS_OP_REMOVE;
		op->dir = &node->parent->handle;
		op->name = node->name;
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
		break;
	case NODE_VERIFY:
		op->type = NFS_OP_READ;
		op->offset = node->verified + node->n_again;
		op->count = VERIFY_BYTES - node->n_again;
		op->buffer = node->again + node->n_again;
		break;
	case NODE_ATTRIBUTES:
		op->type = NFS_OP_SETATTR;
		prepare_attributes(node, &op->change);
		break;
	default:
		op->type = NFS_OP_SETATTR;
		op->change = (struct nfs_change){ .has_mode = true, .mode = wanted_mode(node) };
		break;
	}
}

/* One that fits into a single operation need not be committed by another. */
static int start_chunk(struct node *node)
{
	struct chunk *chunk = container_of(node->chunks.next, struct chunk, link);
	struct tree_work *work = node->builder->work;
	struct nfs_op *op = &chunk->op;
	size_t done = op->offset - chunk->offset;
	int r;

	list_remove(&chunk->link);
	if (list_is_empty(&node->chunks))
		list_remove(&node->link);
	op->count = (uint32_t)(chunk->len - done);
	op->buffer = chunk->data + done;
	op->stable = !node->has_holes && node->attr.size == chunk->len;
	r = nfs_client_start(work->to, op);
	if (r < 0)
		list_add_tail(&node->chunks, &chunk->link);
	return r;
}

/* Whether something that was begun earlier is left to be done, but for the directories that it is in. */
static bool has_earlier(const struct node *node)
{
	const struct list *pos = node->all.prev;
	const struct node *above = node->parent;

	while (above != NULL && pos == &above->all) {
		above = above->parent;
		pos = pos->prev;
	}
	return pos != &node->builder->all;
}

static int start(struct node *node)
{
	int r;

	if (node->state == NODE_FILL)
		return start_chunk(node);
	if (node->state == NODE_VERIFY && node->again == NULL)
		node->again = malloc(VERIFY_BYTES);
	if (node->state == NODE_VERIFY && node->again == NULL)
		return -ENOMEM;
	list_remove(&node->link);
	prepare(node);
	node->busy = true;
	r = nfs_client_start(node->builder->work->to, &node->op);
	if (r < 0)
		node->busy = false;
	return r;
}

static int fill(struct tree_builder *b, struct error *err)
{
	while (b->error == 0 && b->work->in_flight < 2 * nfs_window(b->work->to) &&
	       !list_is_empty(&b->ready)) {
		struct node *node = container_of(b->ready.next, struct node, link);
		int r;

		/* What has the same name may be among it, and is not finished. */
		if (node->was_there && (node->state == NODE_FIND || node->state == NODE_REPLACE) &&
		    has_earlier(node)) {
			list_remove(&node->link);
			list_add_tail(&b->later, &node->link);
			continue;
		}
		r = start(node);
		if (r < 0)
			fail(b, r, "making", node->name);
		else
			b->work->in_flight++;
	}
	return b->error == 0 ? 0 : failure(b, err);
}

static int wait(struct tree_builder *b, struct error *err)
{
	int r = fill(b, err);

	if (r < 0)
		return r;
	r = tree_pump(b->work, err);
	if (r < 0)
		(void)nfs_error_set(err, b->work->to, r, "making the tree");
	return r < 0 ? r : fill(b, err);
}

/* -------- the sink -------- */

static struct tree_builder *builder_of(struct tree_sink *sink)
{
	return container_of(sink, struct tree_builder, sink);
}

/* Until nothing is left that is not open. */
static int flush(struct tree_builder *b, struct error *err)
{
	int r = fill(b, err);

	while (r == 0 && (b->n_closing > 0 || (b->current != NULL && b->current->handle.len == 0)))
		r = wait(b, err);
	return r;
}

/* By handle, as everything: a symbolic link on the way is not followed, so nothing leads out. */
static int find(struct tree_builder *b, const char *path, struct nfs_handle *ret, struct error *err)
{
	cleanup_strv struct strv parts = { NULL, 0 };
	struct nfs_handle handle = b->root;
	struct nfs_attr attr = { .type = NFS_TYPE_DIRECTORY };
	size_t i;
	int r = 0;

	if (strv_split(&parts, path, '/') < 0)
		return error_oom(err);
	for (i = 0; i < parts.n && r == 0; i++)
		r = attr.type == NFS_TYPE_DIRECTORY
			    ? nfs_lookup(b->work->to, &handle, parts.items[i], &handle, &attr)
			    : -ENOTDIR;
	if (r == 0 && attr.type == NFS_TYPE_DIRECTORY)
		r = -EISDIR;
	if (r == -ENOENT || r == -ENOTDIR || r == -EISDIR || r == -ENAMETOOLONG)
		return error_sys(err, ERROR_FAILED_PRECONDITION, -r,
				 "linking to '%s', which is no file of the tree", path);
	if (r < 0)
		return nfs_error_set(err, b->work->to, r, "linking to '%s'", path);
	*ret = handle;
	return 0;
}

static bool is_same(const struct nfs_handle *a, const struct nfs_handle *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* What has come under the name before goes, unless it is the file itself. */
static int replace_by_link(struct nfs_client *c, const struct nfs_handle *target,
			   const struct nfs_handle *dir, const char *name)
{
	struct nfs_handle there;
	struct nfs_attr attr;
	int r = nfs_lookup(c, dir, name, &there, &attr);

	if (r < 0)
		return r;
	if (is_same(&there, target))
		return 0;
	if (attr.type == NFS_TYPE_DIRECTORY)
		return -EEXIST;
	r = nfs_remove(c, dir, name);
	return r < 0 ? r : nfs_link(c, target, dir, name);
}

static int make_link(struct tree_builder *b, const struct tree_entry *entry, struct error *err)
{
	struct nfs_handle target = { .len = 0 };
	int r;

	r = flush(b, err);
	if (r == 0)
		r = find(b, entry->same_as, &target, err);
	if (r < 0)
		return r;
	r = nfs_link(b->work->to, &target, &b->current->handle, entry->name);
	if (r == -EEXIST)
		r = replace_by_link(b->work->to, &target, &b->current->handle, entry->name);
	if (r < 0)
		fail(b, r, "linking", entry->path);
	return r < 0 ? failure(b, err) : 0;
}

/* The number of those that are open is the depth of the tree. */
static int make_room(struct tree_builder *b, struct error *err)
{
	int r = fill(b, err);

	while (r == 0 && (b->n_closing > NODES_MAX || b->bytes > BYTES_MAX))
		r = wait(b, err);
	return r;
}

static int begin(struct tree_sink *sink, const struct tree_entry *entry, struct error *err)
{
	struct tree_builder *b = builder_of(sink);
	struct node *node;
	int r;

	r = make_room(b, err);
	/* What comes without attributes has those that it was left with, once they are set. */
	if (r == 0 && !entry->attr.is_full)
		r = flush(b, err);
	if (r == 0 && entry->same_as != NULL)
		r = make_link(b, entry, err);
	if (r < 0)
		return r;
	node = node_new(b, entry);
	if (node == NULL)
		return error_oom(err);
	b->current = node;
	if (node->parent != NULL)
		node->parent->pending++;
	if (entry->same_as != NULL)
		node->state = NODE_LINK;
	else if (node->parent == NULL || node->parent->handle.len > 0)
		make_ready(node);
	else
		list_add_tail(&node->parent->waiting, &node->link);
	return fill(b, err);
}

static int add_chunk(struct node *node, uint64_t offset, const char *data, size_t len)
{
	struct chunk *chunk = malloc(sizeof(*chunk) + len);

	if (chunk == NULL)
		return -ENOMEM;
	memset(chunk, 0, sizeof(*chunk)); /* not the data */
	memcpy(chunk->data, data, len);
	chunk->node = node;
	chunk->offset = offset;
	chunk->len = len;
	chunk->op.type = NFS_OP_WRITE;
	chunk->op.dir = &node->handle;
	chunk->op.offset = offset;
	chunk->op.done = written;
	list_add_tail(&node->chunks, &chunk->link);
	node->builder->bytes += len;
	node->pending++;
	return 0;
}

static int data(struct tree_sink *sink, uint64_t offset, const char *bytes, size_t len,
		struct error *err)
{
	struct tree_builder *b = builder_of(sink);
	struct node *node = b->current;
	size_t max = nfs_write_max(b->work->to);
	int r;

	b->data += len;
	if (node->size < offset + len)
		node->size = offset + len;
	if (b->options->verify)
		node->sum += tree_checksum(offset, bytes, len);
	if (b->options->data_max > 0 && b->data > b->options->data_max)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "'%s': the archive unpacks to more than can be right", node->name);
	r = make_room(b, err);
	while (r == 0 && len > 0) {
		size_t n = len < max ? len : max;

		if (add_chunk(node, offset, bytes, n) < 0)
			return error_oom(err);
		offset += n;
		bytes += n;
		len -= n;
	}
	if (r < 0)
		return r;
	if (node->handle.len > 0)
		make_ready(node);
	return fill(b, err);
}

static int end(struct tree_sink *sink, struct error *err)
{
	struct tree_builder *b = builder_of(sink);
	struct node *node = b->current;

	b->current = node->parent;
	b->n_closing++;
	node->ended = true;
	if (node->state == NODE_LINK)
		finish(node);
	else
		settle(node);
	return fill(b, err);
}

int tree_builder_new(struct tree_builder **ret, struct tree_work *work,
		     const struct nfs_handle *parent, const struct tree_builder_options *options)
{
	struct tree_builder *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return -ENOMEM;
	b->sink = (struct tree_sink){ .begin = begin, .data = data, .end = end };
	b->work = work;
	b->parent = parent;
	b->options = options;
	list_init(&b->ready);
	list_init(&b->later);
	list_init(&b->all);
	*ret = b;
	return 0;
}

struct tree_sink *tree_builder_sink(struct tree_builder *b)
{
	return &b->sink;
}

int tree_builder_finish(struct tree_builder *b, struct nfs_handle *ret_root, struct error *err)
{
	int r = 0;

	while (r == 0 && !b->finished)
		r = wait(b, err);
	if (r == 0)
		*ret_root = b->root;
	return r;
}

void tree_builder_free(struct tree_builder *b)
{
	if (b == NULL)
		return;
	tree_drain(b->work);
	while (!list_is_empty(&b->all))
		node_free(container_of(b->all.next, struct node, all));
	free(b);
}
