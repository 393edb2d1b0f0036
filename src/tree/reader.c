/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "tree/reader_item.h"
#include "tree/segments.h"

/* As TREE_LINKS_MAX, while something is counted: beside the copy's own, and it may be wrong. */
#define COUNT_LINKS_MAX 4096

#define LOOKS_MAX 5 /* at a name that leads to something else each time */

/* -------- what is delivered -------- */

static bool is_gone(int error)
{
	return error == -ENOENT || error == -ESTALE;
}

static int failed(struct reader *rd, int r, const char *verb, const char *path, struct error *err)
{
	(void)nfs_error_set(err, rd->work->from, r, "%s '%s'", verb, path != NULL ? path : "");
	/* Not the tree, but something in it, which the next attempt may not meet. */
	if (err != NULL && err->code == ERROR_NOT_FOUND)
		err->code = ERROR_ABORTED;
	return r;
}

/* The path of something in the folder that the sink is in. */
static int set_path(struct reader *rd, const char *name)
{
	size_t above = rd->folder != NULL ? rd->folder->path_len : 0;
	int r = 0;

	rd->path.len = above;
	if (above > 0)
		r = buf_puts(&rd->path, "/");
	return r == 0 ? buf_puts(&rd->path, name) : r;
}

static int send_chunks(struct reader *rd, struct reader_item *item, struct error *err)
{
	bool skip = tree_has_holes(&item->attr) && !rd->options->map;
	struct tree_chunk *chunk;
	struct tree_piece piece;
	int r;

	for (;;) {
		r = tree_file_next(&item->file, &chunk, err);
		if (r < 0 || chunk == NULL)
			return r;
		rd->work->progress.bytes += chunk->got;
		piece = (struct tree_piece){
			.offset = chunk->offset,
			.data = chunk->block->data,
			.len = chunk->got,
			/* What was read of a file that has become shorter shall not keep all of it. */
			.block = chunk->got == chunk->want ? chunk->block : NULL,
		};
		r = tree_send(rd->sink, &piece, skip, err);
		tree_file_release(&item->file, chunk);
		if (r == 0)
			r = reader_fill(rd);
		if (r < 0)
			return r;
	}
}

/* What is left of one that went away is missing, as of one that became shorter. */
static int send_data(struct reader *rd, struct reader_item *item, struct error *err)
{
	int r = send_chunks(rd, item, err);

	if (is_gone(r) && err->code == ERROR_OK)
		tree_drain(rd->work);
	else if (r < 0)
		return failed(rd, r, "reading", rd->path.data, err);
	if (r < 0 || item->file.at_end)
		rd->work->progress.changed++;
	return 0;
}

/* Where the holes of a file are takes a reading of it. */
static int find_segments(struct reader *rd, struct reader_item *item,
			 struct tree_segments *segments, struct error *err)
{
	struct tree_file f;
	struct tree_chunk *chunk;
	int r;

	tree_file_init(&f, rd->work, &item->handle, item->attr.size);
	do {
		r = tree_file_next(&f, &chunk, err);
		if (r < 0 || chunk == NULL)
			break;
		r = tree_segments_add(segments, chunk->offset, chunk->block->data, chunk->got);
		tree_file_release(&f, chunk);
	} while (r == 0);
	if (r < 0)
		tree_drain(rd->work);
	tree_file_done(&f);
	return r;
}

static int send_file(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		     struct error *err)
{
	struct tree_segments segments = { .n = 0 };
	int r = 0;

	entry->is_mapped = entry->same_as == NULL && reader_maps(rd, &item->attr);
	if (entry->is_mapped) {
		r = find_segments(rd, item, &segments, err);
		entry->segments = segments.items;
		entry->n_segments = segments.n;
	}
	if (is_gone(r)) {
		rd->work->progress.vanished++;
		tree_links_forget(rd->links, item->attr.fileid);
		r = 0;
		goto out;
	}
	if (r < 0) {
		r = failed(rd, r, "reading", rd->path.data, err);
		goto out;
	}
	r = rd->sink->begin(rd->sink, entry, err);
	if (r == 0 && entry->same_as == NULL && item->attr.size > 0) {
		if (!item->file.started)
			tree_file_init(&item->file, rd->work, &item->handle, item->attr.size);
		if (entry->is_mapped)
			tree_file_restrict(&item->file, entry->segments, entry->n_segments);
		r = send_data(rd, item, err);
	}
	if (r == 0)
		r = rd->sink->end(rd->sink, err);
	rd->work->progress.files++;
out:
	tree_segments_done(&segments);
	return r;
}

/* Several names of one file: the first of them is the file. */
static int find_same(struct reader *rd, const struct reader_item *item, const char **ret)
{
	const struct nfs_attr *attr = &item->attr;
	const uint64_t state[] = { attr->size, (uint64_t)attr->mtime.sec, attr->mtime.nsec };
	const struct tree_link_id id = {
		.fileid = attr->fileid,
		.handle = str_hash(item->handle.data, item->handle.len),
		.state = str_hash(state, sizeof(state)),
	};

	if (attr->links < 2 || attr->type == NFS_TYPE_DIRECTORY)
		return 0;
	return tree_links_find(rd->links, &id, attr->links, rd->path.data, ret);
}

/* A file of which the first data cannot be read has gone before it was begun. */
static int wait_for_data(struct reader *rd, struct reader_item *item, struct error *err)
{
	struct tree_chunk *chunk;

	if (item->attr.type != NFS_TYPE_FILE || !item->file.started ||
	    list_is_empty(&item->file.chunks))
		return 0;
	chunk = container_of(item->file.chunks.next, struct tree_chunk, link);
	while (!chunk->finished) {
		int r = tree_pump(rd->work, err);

		if (r < 0)
			return r;
	}
	return is_gone(chunk->error) ? chunk->error : 0;
}

static int enter(struct reader *rd, struct reader_item *item, const struct tree_entry *entry,
		 struct error *err)
{
	struct reader_folder *folder = item->rest->folder;

	if (item->attr.fsid != rd->fsid && !rd->options->count) {
		rd->work->progress.left_out++;
		log_info("What is on another file system is left out",
			 LOG_STR("directory", rd->path.data));
	}
	folder->path_len = rd->path.len;
	folder->depth = rd->folder != NULL ? rd->folder->depth + 1 : 1;
	if (folder->depth > TREE_DEPTH_MAX)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "there are more than %d directories inside each other",
				 TREE_DEPTH_MAX);
	rd->folder = folder;
	rd->work->progress.directories++;
	return rd->sink->begin(rd->sink, entry, err);
}

/*
 * What was found under a name may be another file by now, as editors and databases replace files by a
 * rename: only a name that leads to nothing is passed over. Returns 1 where there is something.
 */
static int look_again(struct reader *rd, struct reader_item *item)
{
	if (item->looks == LOOKS_MAX || (item->looks > 0 && item->error != 0)) {
		rd->work->progress.vanished++;
		return 0;
	}
	item->looks++;
	tree_file_done(&item->file);
	item->file = (struct tree_file){ .work = rd->work };
	list_init(&item->file.chunks);
	free(item->text);
	item->text = NULL;
	item->error = 0;
	item->handle.len = 0;
	item->attr = (struct nfs_attr){ .type = NFS_TYPE_UNKNOWN };
	item->state = ITEM_WAITING;
	return 1;
}

static int deliver_entry(struct reader *rd, struct reader_item *item, struct error *err)
{
	struct tree_entry entry = { .name = item->name, .attr = item->attr, .link = item->text };
	int r = item->error;

	if (set_path(rd, item->name) < 0)
		return error_oom(err);
	if (r == 0)
		r = wait_for_data(rd, item, err);
	if (is_gone(r) && item->folder != NULL) {
		tree_drain(rd->work); /* further data may have been asked for */
		return look_again(rd, item);
	}
	if (r < 0)
		return failed(rd, r, "reading", rd->path.data, err);
	entry.path = rd->path.data != NULL ? rd->path.data : "";
	entry.has_holes = tree_has_holes(&item->attr);
	if (find_same(rd, item, &entry.same_as) < 0)
		return error_oom(err);
	if (item->attr.type == NFS_TYPE_DIRECTORY)
		return enter(rd, item, &entry, err);
	if (rd->options->count) {
		rd->work->progress.files++;
		if (item->attr.type == NFS_TYPE_FILE && entry.same_as == NULL)
			rd->work->progress.bytes += item->attr.size;
		return 0;
	}
	if (item->attr.type == NFS_TYPE_FILE)
		return send_file(rd, item, &entry, err);
	if (item->attr.type == NFS_TYPE_OTHER) {
		rd->work->progress.left_out++;
		return 0;
	}
	r = rd->sink->begin(rd->sink, &entry, err);
	if (r == 0)
		r = rd->sink->end(rd->sink, err);
	rd->work->progress.files++;
	return r;
}

/* A directory that went away while it was read; not one that was replaced, or that has further pages. */
static bool has_no_name(struct reader *rd, const struct reader_folder *folder)
{
	const char *slash = rd->path.data != NULL ? strrchr(rd->path.data, '/') : NULL;
	struct nfs_handle handle;
	int r;

	if (folder->parent == NULL || folder->cookie != 0)
		return false;
	r = nfs_lookup(rd->work->from, &folder->parent->handle,
		       slash != NULL ? slash + 1 : rd->path.data, &handle, NULL);
	return is_gone(r); /* ESTALE: the one above it has gone, too, and is looked for in its turn */
}

/* Some servers say so of a directory when a file in it has gone while they listed it. */
static bool list_again(struct reader *rd, struct reader_item *rest)
{
	if (!is_gone(rest->error) || rest->looks == LOOKS_MAX)
		return false;
	rest->looks++;
	rest->error = 0;
	rest->state = ITEM_WAITING;
	rd->work->wait = true;
	return true;
}

static int deliver_end(struct reader *rd, struct reader_item *rest, struct error *err)
{
	int r = rest->error;

	rd->path.len = rest->folder->path_len;
	if (rd->path.data != NULL)
		rd->path.data[rd->path.len] = '\0';
	if (is_gone(r) && has_no_name(rd, rest->folder))
		rd->work->progress.vanished++;
	else if (list_again(rd, rest))
		return 1;
	else if (r < 0)
		return failed(rd, r, "reading directory", rd->path.data, err);
	rd->folder = rest->folder->parent;
	return rd->sink->end(rd->sink, err);
}

static int read_items(struct reader *rd, struct error *err)
{
	int r;

	while (!list_is_empty(&rd->items)) {
		struct reader_item *item;

		if (rd->n_items > READER_ITEMS_MAX)
			reader_drop_some(rd);
		item = container_of(rd->items.next, struct reader_item, link);
		/* It may have been passed over while it was not the first. */
		if (item->state == ITEM_WAITING)
			reader_rewind(rd);
		r = reader_fill(rd);
		if (r == 0 && item->state != ITEM_READY) {
			r = tree_pump(rd->work, err);
			if (r == 0)
				continue; /* a page may have come before it */
		} else if (r == 0) {
			r = item->kind == ITEM_ENTRY ? deliver_entry(rd, item, err)
						     : deliver_end(rd, item, err);
			if (r == 0)
				reader_item_free(item);
			if (r > 0)
				r = 0; /* it comes again */
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_root(struct reader *rd, const struct nfs_handle *root, const struct nfs_attr *attr)
{
	struct reader_item *item = reader_item_new(rd, ITEM_ENTRY, NULL, "");

	if (item == NULL)
		return -ENOMEM;
	item->handle = *root;
	item->attr = *attr;
	list_add_tail(&rd->items, &item->link);
	reader_rewind(rd);
	return reader_item_settle(rd, item);
}

int tree_read(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
	      const struct tree_reader_options *options, struct tree_sink *sink, struct error *err)
{
	struct reader rd = { .work = work, .options = options, .sink = sink, .fsid = attr->fsid };
	int r;

	list_init(&rd.items);
	r = tree_links_new(&rd.links, options->count ? COUNT_LINKS_MAX : TREE_LINKS_MAX);
	if (r == 0)
		r = add_root(&rd, root, attr);
	if (r == 0)
		r = read_items(&rd, err);
	/* Transport and memory, which nobody has reported yet. */
	if (r < 0)
		(void)nfs_error_set(err, work->from, r, "reading the tree");
	tree_drain(work);
	while (!list_is_empty(&rd.items))
		reader_item_free(container_of(rd.items.next, struct reader_item, link));
	tree_links_free(rd.links);
	buf_done(&rd.path);
	return r;
}

static int count_begin(struct tree_sink *sink, const struct tree_entry *entry, struct error *err)
{
	(void)sink;
	(void)entry;
	(void)err;
	return 0;
}

static int count_end(struct tree_sink *sink, struct error *err)
{
	(void)sink;
	(void)err;
	return 0;
}

int tree_count(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
	       struct error *err)
{
	const struct tree_reader_options options = { .count = true };
	struct tree_sink sink = { .begin = count_begin, .end = count_end };
	struct tree_work own = {
		.from = work->from,
		.to = work->to,
		.cancel = work->cancel,
		.report = work->report,
		.data = work->data,
		.reported_ns = work->reported_ns,
		.outer = work,
	};
	int r;

	r = tree_read(&own, root, attr, &options, &sink, err);
	work->reported_ns = own.reported_ns;
	if (r < 0)
		return r;
	work->progress.all_files = own.progress.files;
	work->progress.all_directories = own.progress.directories;
	work->progress.all_bytes = own.progress.bytes;
	return 0;
}
