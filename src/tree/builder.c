/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/builder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "tree/builder_node.h"
#include "tree/checksum.h"

#define NODES_MAX 640 /* entries that are being made, without those that are still open */
#define BYTES_MAX (4U * 1024 * 1024) /* data that waits to be written */

static int failure(const struct tree_builder *b, struct error *err)
{
	(void)error_set(err, b->err.code, "%s", b->err.msg);
	return b->error;
}

struct wanted {
	const char *name;
	bool found;
};

static int look_for(void *data, const struct nfs_entry *entry)
{
	struct wanted *w = data;

	w->found = w->found || strcmp(entry->name, w->name) == 0;
	return 0;
}

/*
 * What is there by that name, and has come before. Not what is only the same to a server that folds names:
 * that is another file of the tree.
 */
static int look_at(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		   enum nfs_type *ret)
{
	struct wanted w = { .name = name };
	struct nfs_handle there;
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(c, dir, name, &there, &attr);
	if (r == 0 && attr.type == NFS_TYPE_UNKNOWN)
		r = nfs_getattr(c, &there, &attr);
	if (r == 0)
		r = nfs_readdir(c, dir, look_for, &w);
	*ret = attr.type;
	return r == 0 && !w.found ? -EEXIST : r;
}

/* Makes room for what is no directory. */
static int clear_name(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		      enum nfs_type there)
{
	int r = there == NFS_TYPE_DIRECTORY ? -EEXIST : nfs_remove(c, dir, name);

	return r == -ENOENT ? 0 : r;
}

/* What has come under the name before goes, unless it is the file itself. */
static int replace_by_link(struct nfs_client *c, const struct nfs_handle *target,
			   const struct nfs_handle *dir, const char *name)
{
	struct nfs_handle there;
	enum nfs_type type;
	int r = nfs_lookup(c, dir, name, &there, NULL);

	if (r < 0)
		return r;
	if (nfs_handle_is_equal(&there, target))
		return 0;
	r = look_at(c, dir, name, &type);
	if (r == 0)
		r = clear_name(c, dir, name, type);
	return r < 0 ? r : nfs_link(c, target, dir, name);
}

/* The later one stays, and directories are merged. */
static int come_again(struct tree_builder *b, struct builder_node *node)
{
	const struct nfs_handle *dir = &node->parent->handle;
	enum nfs_type there;
	int r;

	list_remove(&node->link);
	if (node->is_link) {
		r = replace_by_link(b->work->to, &node->target->handle, dir, node->name);
		if (r == 0)
			builder_node_linked(node);
		return r;
	}
	r = look_at(b->work->to, dir, node->name, &there);
	node->state = NODE_MAKE;
	if (r == 0 && node->attr.type != NFS_TYPE_DIRECTORY)
		r = clear_name(b->work->to, dir, node->name, there);
	else if (r == 0)
		node->state = NODE_FIND;
	if (r == 0 || r == -ENOENT)
		builder_node_ready(node);
	return r == -ENOENT ? 0 : r;
}

static int fill(struct tree_builder *b, struct error *err)
{
	struct builder_node *node;
	int r;

	while (b->error == 0 && b->work->writing < nfs_window(b->work->to) &&
	       (node = builder_node_next(b)) != NULL) {
		if (node->state == NODE_THERE) {
			r = come_again(b, node);
		} else {
			r = builder_node_start(node);
			b->work->writing += r == 0;
		}
		if (r < 0)
			builder_fail(b, r, "making", node->name);
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

/*
 * What a link is to. Where that was made long ago, it takes a walk, for which all has to be there. The
 * caller releases it.
 */
static int find_target(struct tree_builder *b, const char *path, struct builder_target **ret,
		       struct error *err)
{
	struct nfs_handle handle = { .len = 0 };
	int r;

	*ret = builder_target_find(&b->targets, path);
	if (*ret != NULL) {
		builder_target_use(*ret);
		return 0;
	}
	r = flush(b, err);
	if (r == 0)
		r = find(b, path, &handle, err);
	if (r < 0)
		return r;
	*ret = builder_target_add(&b->targets, path);
	if (*ret == NULL)
		return error_oom(err);
	(*ret)->handle = handle;
	return 0;
}

/* Archives do not say how many names a file has. */
static bool may_get_links(const struct tree_entry *entry)
{
	return entry->attr.type != NFS_TYPE_DIRECTORY && entry->same_as == NULL &&
	       entry->attr.links != 1;
}

/* The number of those that are open is the depth of the tree. */
static int make_room(struct tree_builder *b, struct error *err)
{
	int r = fill(b, err);

	while (r == 0 && (b->n_closing > NODES_MAX || b->bytes > BYTES_MAX))
		r = wait(b, err);
	return r;
}

/*
 * Two in the making would not be in order. So, of what is found to be there, nothing is under way that came
 * before.
 */
static bool is_in_the_making(struct tree_builder *b, const char *name)
{
	return b->current != NULL && builder_node_find(b, name) != NULL;
}

static int begin(struct tree_sink *sink, const struct tree_entry *entry, struct error *err)
{
	struct tree_builder *b = builder_of(sink);
	struct builder_target *target = NULL;
	struct builder_node *node;
	int r;

	r = make_room(b, err);
	/* What comes without attributes has those that it was left with, once they are set. */
	if (r == 0 && (!entry->attr.is_full || is_in_the_making(b, entry->name)))
		r = flush(b, err);
	if (r == 0 && entry->same_as != NULL)
		r = find_target(b, entry->same_as, &target, err);
	if (r < 0)
		return r;
	/* Of what was there by that name before, nothing is known any more. */
	if (entry->attr.type != NFS_TYPE_DIRECTORY)
		builder_target_forget(&b->targets, entry->path);
	if (may_get_links(entry))
		target = builder_target_add(&b->targets, entry->path);
	node = may_get_links(entry) && target == NULL ? NULL : builder_node_new(b, entry);
	if (node == NULL) {
		builder_target_release(target);
		return error_oom(err);
	}
	node->target = target;
	b->current = node;
	if (node->parent != NULL)
		node->parent->pending++;
	node->is_link = entry->same_as != NULL;
	if (node->is_link)
		node->state = NODE_LINK;
	if (node->parent == NULL || node->parent->handle.len > 0)
		builder_node_ready(node);
	else
		list_add_tail(&node->parent->waiting, &node->link);
	return fill(b, err);
}

static int data(struct tree_sink *sink, const struct tree_piece *piece, struct error *err)
{
	struct tree_builder *b = builder_of(sink);
	struct builder_node *node = b->current;
	size_t max = nfs_write_max(b->work->to);
	size_t at = 0;
	int r;

	b->data += piece->len;
	if (node->size < piece->offset + piece->len)
		node->size = piece->offset + piece->len;
	if (b->options->verify)
		node->sum += tree_checksum(piece->offset, piece->data, piece->len);
	if (b->options->data_max > 0 && b->data > b->options->data_max)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "'%s': the archive unpacks to more than can be right", node->name);
	r = make_room(b, err);
	while (r == 0 && at < piece->len) {
		size_t n = piece->len - at < max ? piece->len - at : max;

		if (builder_chunk_add(node, piece, at, n) < 0)
			return error_oom(err);
		at += n;
	}
	if (r < 0)
		return r;
	if (node->handle.len > 0)
		builder_node_ready(node);
	return fill(b, err);
}

static int end(struct tree_sink *sink, struct error *err)
{
	struct tree_builder *b = builder_of(sink);
	struct builder_node *node = b->current;

	b->current = node->parent;
	b->n_closing++;
	node->ended = true;
	if (node->state == NODE_DONE)
		builder_node_finish(node);
	else
		builder_node_settle(node);
	return fill(b, err);
}

/* What waits to be written is not, and what is on its way is waited for. */
static int stop_node(struct tree_builder *b, struct builder_node *node, struct error *err)
{
	int r;

	while (!list_is_empty(&node->chunks)) {
		builder_chunk_free(container_of(node->chunks.next, struct builder_chunk, link));
		node->pending--;
	}
	if (node->state == NODE_FILL)
		list_remove(&node->link); /* it was ready to write them */
	r = fill(b, err);
	while (r == 0 && (node->busy || node->pending > 0 || node->handle.len == 0))
		r = wait(b, err);
	return r;
}

static int drop(struct tree_sink *sink, struct error *err)
{
	struct tree_builder *b = builder_of(sink);
	struct builder_node *node = b->current, *parent = node->parent;
	int r;

	if (parent == NULL)
		return error_set(err, ERROR_ABORTED, "what was to be copied was replaced meanwhile");
	r = stop_node(b, node, err);
	if (r < 0)
		return r;
	if (node->attr.type == NFS_TYPE_DIRECTORY)
		r = nfs_rmdir(b->work->to, &parent->handle, node->name);
	else
		r = nfs_remove(b->work->to, &parent->handle, node->name);
	if (r < 0 && r != -ENOENT) {
		builder_fail(b, r, "removing", node->name);
		return failure(b, err);
	}
	b->current = parent;
	parent->pending--;
	builder_node_free(node);
	return 0;
}

int tree_builder_new(struct tree_builder **ret, struct tree_work *work,
		     const struct nfs_handle *parent, const struct tree_builder_options *options)
{
	struct tree_builder *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return -ENOMEM;
	b->sink = (struct tree_sink){ .begin = begin, .data = data, .end = end, .drop = drop };
	b->work = work;
	b->parent = parent;
	b->options = options;
	list_init(&b->ready);
	list_init(&b->turns);
	list_init(&b->all);
	builder_targets_init(&b->targets);
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
		builder_node_free(container_of(b->all.next, struct builder_node, all));
	builder_targets_done(&b->targets);
	free(b);
}
