/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "nfs/error.h"
#include "tree/reader_item.h"
#include "tree/sparse.h"

/* For counting, which need not be exact and runs beside a copy with a table of its own. */
#define COUNT_HARDLINKS_MAX 4096

/* Set rd->path to that of an entry in rd->folder. */
static int set_path(struct reader *rd, const char *name)
{
	rd->path.len = rd->folder != NULL ? rd->folder->path_len : 0;
	if (rd->path.len > 0 && buf_puts(&rd->path, "/") < 0)
		return -ENOMEM;
	return buf_puts(&rd->path, name);
}

/* Counting keeps few paths and does not fail: the copy itself reports the error. */
static int check_path(const struct reader *rd, struct error *err)
{
	if (rd->path.len <= TREE_PATH_MAX || rd->options->count)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "a copy or an archive takes paths of at most %d bytes: '%.200s...' exceeds that",
			 TREE_PATH_MAX, rd->path.data);
}

/*
 * Version 4 servers need not have modes: mode 0 would take the data away from its owner. Symbolic
 * links have none.
 */
static int check_mode(const struct reader *rd, const struct reader_item *item, struct error *err)
{
	if (item->attr.has_mode || item->attr.type == NFS_TYPE_SYMLINK || rd->options->count)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "reading '%s' on %s:%s: the server does not report its mode",
			 rd->path.data, rd->work->from->export.server,
			 rd->work->from->export.share);
}

/*
 * Refuse the directory that this work makes: the tree is around it, and would hold copies of copies
 * until the disk is full. The name tells it, since handle and file id may differ from one path or
 * version of NFS to another.
 */
static int check_not_own(const struct reader *rd, const struct reader_item *item, struct error *err)
{
	if (rd->work->name == NULL || strcmp(item->name, rd->work->name) != 0)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "the copy is made in '%.*s', which lies in the directory that is to be copied; use another share",
			 rd->folder->path_len < 200 ? (int)rd->folder->path_len : 200,
			 rd->path.data);
}

static int enter_folder(struct reader *rd, struct reader_item *item, const struct tree_entry *entry,
			struct error *err)
{
	struct reader_folder *folder = item->rest->folder;
	int r = check_not_own(rd, item, err);

	if (r < 0)
		return r;
	if (!reader_is_inside(rd, item) && !rd->options->count) {
		rd->work->progress.left_out++;
		log_info("Skipping the contents of a directory on another file system",
			 LOG_STR("directory", rd->path.data));
	}
	folder->path_len = rd->path.len;
	folder->depth = rd->folder != NULL ? rd->folder->depth + 1 : 1;
	if (folder->depth > TREE_DEPTH_MAX)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "there are more than %d nested directories", TREE_DEPTH_MAX);
	rd->folder = folder;
	rd->work->progress.directories++;
	return rd->sink->begin(rd->sink, entry, err);
}

static int deliver_entry(struct reader *rd, struct reader_item *item, struct error *err)
{
	struct tree_entry entry = {
		.name = item->name,
		.attr = item->attr,
		.link = item->text,
		.xattrs = item->xattrs,
	};
	const enum nfs_type type = item->attr.type;
	int r = item->error;

	if (set_path(rd, item->name) < 0)
		return error_oom(err);
	if (reader_is_gone(r))
		return reader_retry_entry(rd, item, err);
	if (r < 0)
		return reader_fail(rd, r, "reading", rd->path.data, err);
	if (rd->options->xattrs_found != NULL && item->xattrs != NULL && item->xattrs->n > 0) {
		*rd->options->xattrs_found = true;
		return 0;
	}
	r = check_path(rd, err);
	if (r == 0)
		r = check_mode(rd, item, err);
	if (r < 0)
		return r;
	entry.path = buf_text(&rd->path);
	entry.has_holes = tree_has_holes(&item->attr);
	if (item->attr.links > 1 && type != NFS_TYPE_DIRECTORY) {
		const struct tree_hardlink_id id = tree_hardlink_id_of(&item->handle, &item->attr);
		struct tree_work *work = rd->work;

		if (tree_hardlinks_are_unsure(rd->links, &id))
			tree_hardlinks_settle(rd->links, work->names_differ == NULL ||
								 work->names_differ(work->from));
		if (tree_hardlinks_find(rd->links, &id, item->attr.links, rd->path.data,
					&entry.hardlink_to) < 0)
			return error_oom(err);
	}
	/* Its first name has told them. */
	if (entry.hardlink_to != NULL)
		item->xattrs_lost = 0;
	if (type == NFS_TYPE_DIRECTORY)
		return enter_folder(rd, item, &entry, err);
	if (rd->options->count) {
		rd->work->progress.files++;
		if (type == NFS_TYPE_FILE && entry.hardlink_to == NULL)
			rd->work->progress.bytes += item->attr.size;
		return 0;
	}
	if (type == NFS_TYPE_FILE)
		return reader_send_file(rd, item, &entry, err);
	if (type == NFS_TYPE_OTHER) {
		rd->work->progress.left_out++;
		return 0;
	}
	r = rd->sink->begin(rd->sink, &entry, err);
	if (r == 0)
		r = rd->sink->end(rd->sink, err);
	rd->work->progress.files++;
	return r;
}

static int deliver_end(struct reader *rd, struct reader_item *rest, struct error *err)
{
	int r = rest->error;

	rd->path.len = rest->folder->path_len;
	if (rd->path.data != NULL)
		rd->path.data[rd->path.len] = '\0';
	if (reader_is_gone(r) || nfs_readdir_lost_entry(r) || r == -ERESTART ||
	    rest->folder->replaced) {
		r = reader_retry_folder(rd, rest, err);
		if (r != 0)
			return r;
	} else if (r < 0) {
		return reader_fail(rd, r, "reading directory", rd->path.data, err);
	}
	rd->folder = rest->folder->parent;
	return rd->sink->end(rd->sink, err);
}

/* Deliver the first item, or wait for it. */
static int read_item(struct reader *rd, struct error *err)
{
	struct reader_item *item = container_of(rd->items.next, struct reader_item, link);
	int r;

	/* The cursor may have passed the item while it was not the first. */
	if (item->state == ITEM_WAITING)
		reader_rewind(rd);
	r = reader_fill(rd);
	if (r < 0)
		return r;
	if (item->state != ITEM_READY)
		return tree_pump(rd->work, err);
	r = item->kind == ITEM_ENTRY ? deliver_entry(rd, item, err) : deliver_end(rd, item, err);
	if (r == 0) {
		tree_xattrs_lose(rd->work, item->xattrs_lost, item->xattr_error);
		reader_item_free(item);
	}
	return r < 0 ? r : 0; /* 1: the item is still queued */
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
	struct reader rd = { .work = work, .options = options, .sink = sink, .root = attr };
	int r;

	list_init(&rd.items);
	r = tree_hardlinks_new(&rd.links,
			       options->count ? COUNT_HARDLINKS_MAX : TREE_HARDLINKS_MAX);
	if (r == 0)
		r = add_root(&rd, root, attr);
	while (r == 0 && !list_is_empty(&rd.items) &&
	       (options->xattrs_found == NULL || !*options->xattrs_found)) {
		if (rd.n_items > READER_ITEMS_MAX)
			reader_drop_some(&rd);
		r = read_item(&rd, err);
	}
	/* Errors of the transport and of memory are not reported yet. */
	if (r < 0)
		(void)nfs_error_set(err, work->from, r, "reading the tree");
	tree_drain_reads(work, r < 0 && work->outer == NULL); /* writes of an outer work go on */
	while (!list_is_empty(&rd.items))
		reader_item_free(container_of(rd.items.next, struct reader_item, link));
	tree_hardlinks_free(rd.links);
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

/* ret_found: also look for extended attributes; NULL: do not. */
static int count(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
		 bool *ret_found, struct error *err)
{
	const struct tree_reader_options options = {
		.count = true,
		.xattrs_found = ret_found,
	};
	struct tree_sink sink = { .begin = count_begin, .end = count_end };
	struct tree_work own = {
		.from = work->from,
		.to = work->to,
		.from_xattrs = ret_found != NULL,
		.names_differ = work->names_differ,
		.cancel = work->cancel,
		.report = work->report,
		.data = work->data,
		.reported_ns = work->reported_ns,
		.report_ms = work->report_ms,
		.outer = work,
	};
	bool missed;
	int r;

	r = tree_read(&own, root, attr, &options, &sink, err);
	work->reported_ns = own.reported_ns;
	/* Assume that what could not be examined has some. */
	missed = own.progress.xattrs_lost > 0 || own.progress.vanished > 0 || !own.from_xattrs;
	if (r < 0)
		return r;
	if (ret_found != NULL) {
		*ret_found = *ret_found || missed;
		if (*ret_found)
			return 0;
	}
	work->progress.all_files = own.progress.files;
	work->progress.all_directories = own.progress.directories;
	work->progress.all_bytes = own.progress.bytes;
	return 0;
}

int tree_count(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
	       struct error *err)
{
	return count(work, root, attr, NULL, err);
}

int tree_find_xattrs(struct tree_work *work, const struct nfs_handle *root,
		     const struct nfs_attr *attr, bool *ret_found, struct error *err)
{
	*ret_found = false;
	return count(work, root, attr, ret_found, err);
}
