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

#define NODES_MAX 640 /* nodes that are ended and not finished */
#define KNOWN_MAX 131072 /* paths, 1 MiB of memory */

int builder_error(const struct tree_builder *b, struct error *err)
{
	(void)error_set(err, b->err.code, "%s", b->err.msg);
	return b->error;
}

/* -------- names that are taken -------- */

struct name_search {
	const char *name;
	bool found;
};

static int match_name(void *data, const struct nfs_entry *entry)
{
	struct name_search *search = data;

	search->found = search->found || strcmp(entry->name, search->name) == 0;
	return 0;
}

/*
 * Return the type of the entry that has the name. -EEXIST if the directory lists no such name: the
 * server folds names, so the entry is another file of the tree.
 */
static int find_old_entry(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			  enum nfs_type *ret)
{
	struct name_search search = { .name = name };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(c, dir, name, &handle, &attr);
	if (r < 0)
		return r;
	*ret = attr.type;
	r = nfs_readdir(c, dir, match_name, &search);
	return r == 0 && !search.found ? -EEXIST : r;
}

static int remove_old_entry(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			    enum nfs_type type)
{
	int r = type == NFS_TYPE_DIRECTORY ? -EEXIST : nfs_remove(c, dir, name);

	return r == -ENOENT ? 0 : r;
}

static int replace_by_link(struct nfs_client *c, const struct nfs_handle *target,
			   const struct nfs_handle *dir, const char *name)
{
	struct nfs_handle handle;
	enum nfs_type type;
	int r = nfs_lookup(c, dir, name, &handle, NULL);

	if (r < 0)
		return r;
	if (nfs_handle_is_equal(&handle, target))
		return 0;
	r = find_old_entry(c, dir, name, &type);
	if (r < 0)
		return r;
	r = remove_old_entry(c, dir, name, type);
	if (r < 0)
		return r;
	return nfs_link(c, target, dir, name);
}

/* Leave BUILD_EXISTS: the new entry replaces the old one, but directories are merged. */
static int resolve_taken_name(struct tree_builder *b, struct builder_node *node)
{
	const struct nfs_handle *dir = &node->parent->handle;
	enum nfs_type type;
	int r;

	list_remove(&node->link);
	if (node->is_link) {
		r = replace_by_link(b->work->to, &node->target->handle, dir, node->name);
		if (r < 0)
			return r;
		builder_node_linked(node);
		return 0;
	}
	r = find_old_entry(b->work->to, dir, node->name, &type);
	node->state = BUILD_CREATE;
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && node->attr.type == NFS_TYPE_DIRECTORY) {
		node->state = BUILD_LOOKUP;
	} else if (r == 0) {
		r = remove_old_entry(b->work->to, dir, node->name, type);
		if (r < 0)
			return r;
	}
	builder_node_ready(node);
	return 0;
}

/*
 * Remember the path of a directory. Returns whether it was known before: then an existing directory
 * of that name was made by this build, and no listing is needed to see whether the server folded
 * another name into it. A path may be forgotten when another one takes its slot; that only costs
 * the listing.
 */
static bool check_known(struct tree_builder *b, const char *path)
{
	const uint64_t hash = str_hash(path, strlen(path));
	uint64_t *slot;
	bool known;

	if (b->known == NULL)
		return false;
	slot = &b->known[hash % KNOWN_MAX];
	known = *slot == hash;
	*slot = hash;
	return known;
}

/* -------- the loop -------- */

/* crowd: also start what a directory with many creates in flight keeps waiting. */
static int fill_window(struct tree_builder *b, bool crowd, struct error *err)
{
	struct builder_node *node;
	int r;

	while (b->error == 0 && b->work->writing < nfs_window(b->work->to) &&
	       !nfs_client_is_full(b->work->to) && (node = builder_node_next(b, crowd)) != NULL) {
		r = node->state == BUILD_EXISTS ? resolve_taken_name(b, node)
						: builder_node_start(node);
		if (r < 0)
			builder_fail(b, r, "making", node->name);
	}
	return b->error == 0 ? 0 : builder_error(b, err);
}

/* Start what can be started while the source still delivers entries. */
static int builder_fill(struct tree_builder *b, struct error *err)
{
	return fill_window(b, false, err);
}

int builder_wait(struct tree_builder *b, struct error *err)
{
	int r = fill_window(b, true, err);

	if (r < 0)
		return r;
	r = tree_pump(b->work, err);
	if (r < 0)
		return nfs_error_set(err, b->work->to, r, "making the tree");
	return fill_window(b, true, err);
}

/* Wait until all nodes that are ended are finished, and the current one has its handle. */
static int builder_flush(struct tree_builder *b, struct error *err)
{
	int r = builder_fill(b, err);

	while (r == 0 && (b->n_closing > 0 || (b->current != NULL && b->current->handle.len == 0)))
		r = builder_wait(b, err);
	return r;
}

/* Nodes that are open do not count: there are only as many as the tree is deep. */
static int builder_wait_for_room(struct tree_builder *b, struct error *err)
{
	int r = builder_fill(b, err);

	while (r == 0 && b->n_closing > NODES_MAX)
		r = builder_wait(b, err);
	return r;
}

/* Take memory for n bytes of data. If no data waits to be written, no reply would free any. */
static int builder_wait_for_memory(struct tree_builder *b, size_t n, struct error *err)
{
	struct tree_purse *purse = &b->work->unwritten;
	int r = builder_fill(b, err);

	while (r == 0 && !tree_purse_take(purse, n)) {
		if (purse->held == 0) {
			tree_purse_force(purse, n);
			break;
		}
		r = builder_wait(b, err);
	}
	return r;
}

/* -------- hard links -------- */

/* Walk by handle and follow no symbolic link, so that the path cannot lead out of the tree. */
static int walk_to_target(struct tree_builder *b, const char *path, struct nfs_handle *ret,
			  struct error *err)
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
				 "linking to '%s', which is not a file of the tree", path);
	if (r < 0)
		return nfs_error_set(err, b->work->to, r, "linking to '%s'", path);
	*ret = handle;
	return 0;
}

/* Return the target of a link; the caller releases it. A walk waits for earlier entries first. */
static int find_link_target(struct tree_builder *b, const char *path, struct builder_target **ret,
			    struct error *err)
{
	struct nfs_handle handle = { .len = 0 };
	int r;

	*ret = builder_target_find(&b->targets, path);
	if (*ret != NULL) {
		builder_target_use(*ret);
		return 0;
	}
	r = builder_flush(b, err);
	if (r == 0)
		r = walk_to_target(b, path, &handle, err);
	if (r < 0)
		return r;
	*ret = builder_target_add(&b->targets, path);
	if (*ret == NULL)
		return error_oom(err);
	(*ret)->handle = handle;
	return 0;
}

/* -------- the sink -------- */

/*
 * Take a share of the entry's extended attributes, and memory for it; none if the target has none.
 * Further names of a file come without.
 */
static int take_xattrs(struct tree_builder *b, const struct tree_entry *entry,
		       struct tree_xattrs **ret, struct error *err)
{
	struct tree_xattrs *set = entry->xattrs;
	int r;

	*ret = NULL;
	if (set == NULL || set->n == 0 || entry->hardlink_to != NULL || !b->work->to_xattrs)
		return 0;
	r = builder_wait_for_memory(b, set->bytes, err);
	if (r < 0)
		return r;
	*ret = tree_xattrs_share(set);
	return 0;
}

static int builder_begin(struct tree_sink *sink, const struct tree_entry *entry, struct error *err)
{
	struct tree_builder *b = container_of(sink, struct tree_builder, sink);
	const bool is_directory = entry->attr.type == NFS_TYPE_DIRECTORY;
	const bool is_link = entry->hardlink_to != NULL;
	/* Archives do not report link counts: then links is 0. */
	const bool is_target = !is_directory && !is_link && entry->attr.links != 1;
	struct builder_target *target = NULL;
	struct tree_xattrs *xattrs = NULL;
	struct builder_node *node;
	int r;

	r = builder_wait_for_room(b, err);
	if (r < 0)
		return r;
	/*
	 * An earlier entry of that name must be finished: two nodes of one name would race. A
	 * directory without attributes keeps those of its earlier entry, so they must be set.
	 * Targets that have no user can be forgotten.
	 */
	if (!entry->attr.is_full ||
	    (is_target && !builder_targets_make_room(&b->targets, entry->path)) ||
	    (b->current != NULL && builder_node_find(b, entry->name) != NULL)) {
		r = builder_flush(b, err);
		if (r < 0)
			return r;
	}
	if (is_link) {
		r = find_link_target(b, entry->hardlink_to, &target, err);
		if (r < 0)
			return r;
	}
	r = take_xattrs(b, entry, &xattrs, err);
	if (r < 0)
		return r;
	if (!is_directory)
		builder_target_forget(&b->targets, entry->path);
	if (is_target)
		target = builder_target_add(&b->targets, entry->path);
	node = is_target && target == NULL ? NULL : builder_node_new(b, entry);
	if (node == NULL) {
		builder_target_release(&b->targets, target);
		if (xattrs != NULL)
			tree_purse_give(&b->work->unwritten, xattrs->bytes);
		tree_xattrs_drop(xattrs);
		return error_oom(err);
	}
	node->target = target;
	node->xattrs = xattrs;
	if (xattrs == NULL && entry->xattrs != NULL && !is_link)
		builder_node_lose_xattrs(node, entry->xattrs->n, -EOPNOTSUPP);
	node->deferred = node->deferred && xattrs == NULL;
	node->known = is_directory && check_known(b, entry->path);
	b->current = node;
	if (node->parent != NULL)
		node->parent->pending++;
	node->is_link = is_link;
	if (is_link)
		node->state = BUILD_LINK;
	if (!node->deferred)
		builder_node_queue(node);
	return builder_fill(b, err);
}

static int builder_data(struct tree_sink *sink, const struct tree_piece *piece, struct error *err)
{
	struct tree_builder *b = container_of(sink, struct tree_builder, sink);
	struct builder_node *node = b->current;
	size_t max = nfs_write_max(b->work->to);
	size_t at, n;
	int r;

	/* Otherwise a second piece may wait for the memory of the first one. */
	if (piece->offset > 0 || piece->len != node->attr.size)
		builder_node_split(node);
	b->data += piece->len;
	if (node->size < piece->offset + piece->len)
		node->size = piece->offset + piece->len;
	if (b->options->verify)
		node->sum += tree_checksum(piece->offset, piece->data, piece->len);
	if (b->options->data_max > 0 && b->data > b->options->data_max)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "'%s': the archive unpacks to more data than its size allows",
				 node->name);
	for (at = 0; at < piece->len; at += n) {
		n = piece->len - at < max ? piece->len - at : max;
		r = builder_wait_for_memory(b, builder_chunk_size(n), err);
		if (r < 0)
			return r;
		if (builder_chunk_add(node, piece, at, n) < 0)
			return error_oom(err);
		if (node->handle.len > 0)
			builder_node_ready(node);
	}
	return builder_fill(b, err);
}

static int builder_end(struct tree_sink *sink, struct error *err)
{
	struct tree_builder *b = container_of(sink, struct tree_builder, sink);
	struct builder_node *node = b->current;

	b->current = node->parent;
	b->n_closing++;
	if (node->size != node->attr.size)
		builder_node_split(node);
	node->ended = true;
	if (node->deferred)
		builder_node_queue(node);
	else if (node->state == BUILD_LINKED)
		builder_node_finish(node);
	else
		builder_node_settle(node);
	return builder_fill(b, err);
}

/* Discard data that is not being written yet, and wait for the operations in flight. */
static int stop_node(struct tree_builder *b, struct builder_node *node, struct error *err)
{
	int r;

	while (!list_is_empty(&node->chunks)) {
		builder_chunk_free(container_of(node->chunks.next, struct builder_chunk, link));
		node->pending--;
	}
	if (node->state == BUILD_FILL)
		list_remove(&node->link); /* it was ready to write the chunks */
	r = builder_fill(b, err);
	while (r == 0 && (node->busy || node->pending > 0 || node->handle.len == 0))
		r = builder_wait(b, err);
	return r;
}

/* Remove what was made of the node so far. */
static int remove_node(struct tree_builder *b, struct builder_node *node, struct error *err)
{
	const struct nfs_handle *dir = &node->parent->handle;
	int r = stop_node(b, node, err);

	if (r < 0)
		return r;
	if (node->attr.type == NFS_TYPE_DIRECTORY)
		r = nfs_rmdir(b->work->to, dir, node->name);
	else
		r = nfs_remove(b->work->to, dir, node->name);
	if (r < 0 && r != -ENOENT) {
		builder_fail(b, r, "removing", node->name);
		return builder_error(b, err);
	}
	return 0;
}

static int builder_drop(struct tree_sink *sink, struct error *err)
{
	struct tree_builder *b = container_of(sink, struct tree_builder, sink);
	struct builder_node *node = b->current, *parent = node->parent;
	int r;

	if (parent == NULL)
		return error_set(err, ERROR_ABORTED, "the source was replaced while it was copied");
	r = node->deferred ? 0 : remove_node(b, node, err); /* a deferred one was not made yet */
	if (r < 0)
		return r;
	b->work->progress.xattrs_lost -= node->xattrs_lost; /* the name may come again */
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
	if (options->repeats) {
		b->known = calloc(KNOWN_MAX, sizeof(*b->known));
		if (b->known == NULL) {
			free(b);
			return -ENOMEM;
		}
	}
	b->sink = (struct tree_sink){
		.begin = builder_begin,
		.data = builder_data,
		.end = builder_end,
		.drop = builder_drop,
		.copy = builder_copy,
	};
	b->work = work;
	b->parent = parent;
	b->options = options;
	list_init(&b->ready);
	list_init(&b->turns);
	list_init(&b->crowded);
	list_init(&b->all);
	builder_targets_init(&b->targets);
	*ret = b;
	return 0;
}

struct tree_sink *tree_builder_sink(struct tree_builder *b)
{
	return &b->sink;
}

void tree_builder_set_root(struct tree_builder *b, const struct nfs_attr *attr)
{
	struct builder_node *root = b->current;

	while (root->parent != NULL)
		root = root->parent;
	root->attr = *attr;
	root->no_attr = false;
}

int tree_builder_finish(struct tree_builder *b, struct error *err)
{
	while (!b->finished) {
		int r = builder_wait(b, err);

		if (r < 0)
			return r;
	}
	return 0;
}

void tree_builder_free(struct tree_builder *b)
{
	if (b == NULL)
		return;
	tree_drain(b->work);
	while (!list_is_empty(&b->all)) {
		struct builder_node *node = container_of(b->all.next, struct builder_node, all);

		/* A reply may have told of a copy after its file was given up. */
		builder_async_cancel(node);
		builder_node_free(node);
	}
	builder_targets_done(&b->targets);
	free(b->known);
	free(b);
}
