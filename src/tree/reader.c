/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "tree/file.h"
#include "tree/links.h"
#include "tree/segments.h"

#define MAP_FROM 65536 /* bytes of a file that is worth a map */
#define LOOKS_MAX 5 /* at a name that leads to something else each time */
#define ITEMS_AHEAD 1024 /* no more pages are read ahead while so many entries wait */
#define ITEMS_MAX 8192 /* entries far down the line are dropped, to be read again */

/* A directory that has been begun and not ended. */
struct folder {
	struct folder *parent;
	struct nfs_handle handle;
	char verifier[8];
	uint64_t cookie; /* where the next page starts */
	bool eof;
	size_t path_len; /* of its path */
	size_t depth;
};

enum item_kind {
	ITEM_ENTRY,
	ITEM_REST, /* of a directory: further pages, and then its end */
};

enum item_state {
	ITEM_WAITING,
	ITEM_BUSY, /* an operation is in flight */
	ITEM_READY,
};

/* Something to come, in the order in which it will. */
struct item {
	struct list link;
	struct reader *reader;
	enum item_kind kind;
	enum item_state state;
	struct folder *folder; /* it is in; of ITEM_REST: it is about. NULL for the root */
	struct item *rest; /* of a directory's entry: its ITEM_REST */
	uint64_t before; /* cookie that leads to it */
	int error;
	unsigned int looks; /* by name, since what was found before had gone */
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct fetch *fetch; /* while BUSY */
	char *text; /* of a symbolic link */
	struct tree_file file; /* of a file */
	char name[];
};

/* An operation on behalf of an item. */
struct fetch {
	struct nfs_op op;
	struct item *item;
	struct list entries; /* READDIR: items that were found */
	uint64_t last; /* cookie of the last of them */
	char link[NFS_LINK_MAX + 1];
};

struct reader {
	struct tree_work *work;
	const struct tree_reader_options *options;
	struct tree_sink *sink;
	struct list items;
	size_t n_items;
	struct item *cursor; /* nothing before it is WAITING; NULL: look from the front */
	struct folder *folder; /* that the sink is in */
	struct buf path;
	uint64_t fsid;
	struct tree_links *links;
};

/* -------- items -------- */

static struct item *item_new(struct reader *rd, enum item_kind kind, struct folder *folder,
			     const char *name)
{
	size_t len = strlen(name);
	struct item *item = calloc(1, sizeof(*item) + len + 1);

	if (item == NULL)
		return NULL;
	item->reader = rd;
	item->kind = kind;
	item->folder = folder;
	memcpy(item->name, name, len + 1);
	list_init(&item->link);
	list_init(&item->file.chunks);
	rd->n_items++;
	return item;
}

static void item_free(struct item *item)
{
	struct reader *rd = item->reader;

	if (rd->cursor == item)
		rd->cursor = NULL;
	rd->n_items--;
	list_remove(&item->link);
	tree_file_done(&item->file);
	if (item->kind == ITEM_REST)
		free(item->folder);
	free(item->fetch);
	free(item->text);
	free(item);
}

static void insert_before(struct list *pos, struct item *item)
{
	list_add_tail(pos, &item->link); /* the tail of the part of the list that ends at pos */
}

/* Fills in what is to come behind a directory's entry. */
static int add_rest(struct reader *rd, struct item *entry)
{
	struct folder *folder = calloc(1, sizeof(*folder));
	struct item *rest;

	if (folder == NULL)
		return -ENOMEM;
	folder->parent = entry->folder;
	folder->handle = entry->handle;
	rest = item_new(rd, ITEM_REST, folder, "");
	if (rest == NULL) {
		free(folder);
		return -ENOMEM;
	}
	/* What is left out has no contents. */
	folder->eof = entry->attr.fsid != rd->fsid;
	if (folder->eof)
		rest->state = ITEM_READY;
	entry->rest = rest;
	insert_before(entry->link.next, rest);
	return 0;
}

/* -------- what is fetched -------- */

static bool is_known(const struct item *item)
{
	return item->handle.len > 0 && item->attr.is_full;
}

/* Nothing is left to be fetched before the entry can begin; a file's data may follow it. */
static int settle_entry(struct reader *rd, struct item *item)
{
	if (item->attr.type == NFS_TYPE_SYMLINK && item->text == NULL && !rd->options->count) {
		item->state = ITEM_WAITING;
		rd->cursor = NULL;
		return 0;
	}
	item->state = ITEM_READY;
	if (item->attr.type == NFS_TYPE_DIRECTORY)
		return add_rest(rd, item);
	return 0;
}

static void entry_found(struct nfs_op *op, const struct nfs_entry *entry)
{
	struct fetch *fetch = container_of(op, struct fetch, op);
	struct item *rest = fetch->item, *item;

	/* No name that a file system has; what is made of one could be anywhere. */
	if (entry->name[0] == '\0' || strchr(entry->name, '/') != NULL) {
		rest->reader->work->progress.left_out++;
		return;
	}
	item = item_new(rest->reader, ITEM_ENTRY, rest->folder, entry->name);
	if (item == NULL) {
		rest->error = -ENOMEM;
		return;
	}
	item->before = fetch->last;
	fetch->last = entry->cookie;
	item->handle = entry->handle;
	item->attr = entry->attr;
	list_add_tail(&fetch->entries, &item->link);
}

/* A page has come: its entries stand before the rest of the directory. */
static int take_page(struct reader *rd, struct fetch *fetch)
{
	struct item *rest = fetch->item;
	struct folder *folder = rest->folder;
	int r = rest->error;

	/* A server that neither ends nor moves on would keep us here for ever. */
	if (!fetch->op.eof && fetch->op.cookie == folder->cookie)
		return -EIO;
	folder->cookie = fetch->op.cookie;
	memcpy(folder->verifier, fetch->op.verifier, sizeof(folder->verifier));
	folder->eof = fetch->op.eof;
	rest->state = folder->eof ? ITEM_READY : ITEM_WAITING;
	while (r == 0 && !list_is_empty(&fetch->entries)) {
		struct item *item = container_of(fetch->entries.next, struct item, link);

		list_remove(&item->link);
		insert_before(&rest->link, item);
		if (is_known(item))
			r = settle_entry(rd, item);
	}
	rd->cursor = NULL;
	return r;
}

static int take(struct reader *rd, struct item *item, struct fetch *fetch)
{
	switch (fetch->op.type) {
	case NFS_OP_READDIR:
		return take_page(rd, fetch);
	case NFS_OP_READLINK:
		item->text = strdup(fetch->link);
		return item->text != NULL ? settle_entry(rd, item) : -ENOMEM;
	case NFS_OP_LOOKUP:
		item->handle = fetch->op.handle;
		item->attr = fetch->op.attr;
		/* Attributes are optional in a version 3 reply, but for GETATTR. */
		return is_known(item) ? settle_entry(rd, item) : 0;
	default:
		item->attr = fetch->op.attr;
		return is_known(item) ? settle_entry(rd, item) : -EREMOTEIO;
	}
}

static void fetch_free(struct fetch *fetch)
{
	while (!list_is_empty(&fetch->entries))
		item_free(container_of(fetch->entries.next, struct item, link));
	free(fetch);
}

static void replied(struct nfs_op *op)
{
	struct fetch *fetch = container_of(op, struct fetch, op);
	struct item *item = fetch->item;
	struct reader *rd = item->reader;
	int r = op->error;

	rd->work->in_flight--;
	item->fetch = NULL;
	item->state = ITEM_WAITING;
	if (r == 0)
		r = take(rd, item, fetch);
	else if (tree_is_to_be_retried(rd->work, r))
		r = 0;
	fetch_free(fetch);
	rd->cursor = NULL;
	if (r < 0) {
		item->error = r;
		item->state = ITEM_READY;
	}
}

static struct fetch *fetch_new(struct item *item, enum nfs_op_type type)
{
	struct fetch *fetch = calloc(1, sizeof(*fetch));

	if (fetch == NULL)
		return NULL;
	fetch->item = item;
	list_init(&fetch->entries);
	fetch->op.type = type;
	fetch->op.done = replied;
	fetch->op.full = true;
	return fetch;
}

static struct fetch *fetch_for(struct item *item)
{
	struct fetch *fetch;

	if (item->kind == ITEM_REST) {
		fetch = fetch_new(item, NFS_OP_READDIR);
		if (fetch == NULL)
			return NULL;
		fetch->op.dir = &item->folder->handle;
		fetch->op.entry = entry_found;
		fetch->op.cookie = fetch->last = item->folder->cookie;
		/* From the start there is none: what was read of it may have been dropped. */
		if (item->folder->cookie != 0)
			memcpy(fetch->op.verifier, item->folder->verifier,
			       sizeof(fetch->op.verifier));
		return fetch;
	}
	if (item->handle.len == 0) {
		fetch = fetch_new(item, NFS_OP_LOOKUP);
		if (fetch != NULL) {
			fetch->op.dir = &item->folder->handle;
			fetch->op.name = item->name;
		}
		return fetch;
	}
	fetch = fetch_new(item, is_known(item) ? NFS_OP_READLINK : NFS_OP_GETATTR);
	if (fetch != NULL) {
		fetch->op.dir = &item->handle;
		fetch->op.link = fetch->link;
	}
	return fetch;
}

static int start(struct reader *rd, struct item *item)
{
	struct fetch *fetch = fetch_for(item);
	int r;

	if (fetch == NULL)
		return -ENOMEM;
	item->fetch = fetch;
	item->state = ITEM_BUSY;
	r = nfs_client_start(rd->work->from, &fetch->op);
	if (r == 0) {
		rd->work->in_flight++;
		return 0;
	}
	item->fetch = NULL;
	item->state = ITEM_WAITING;
	fetch_free(fetch);
	return r;
}

/* Not those that a server has compressed: reading takes longer than writing some zeros. */
static bool is_to_be_mapped(const struct reader *rd, const struct nfs_attr *attr)
{
	return rd->options->map && tree_has_holes(attr) && attr->size >= MAP_FROM &&
	       attr->used < attr->size / 4;
}

/* One with several names may not be read at all. */
static bool is_read_ahead(const struct reader *rd, const struct item *item)
{
	return !rd->options->count && item->kind == ITEM_ENTRY && item->state == ITEM_READY &&
	       item->attr.type == NFS_TYPE_FILE && item->attr.size > 0 && item->attr.links < 2 &&
	       !is_to_be_mapped(rd, &item->attr);
}

/* Data of a file that begins soon. Returns 1 where the limits kept some of it back. */
static int fill_file(struct reader *rd, struct item *item)
{
	struct tree_file *f = &item->file;
	int r;

	if (!f->started)
		tree_file_init(f, rd->work, &item->handle, item->attr.size);
	r = tree_file_fill(f, false);
	return r == 0 && f->next < f->size && !f->at_end ? 1 : r;
}

static bool may_start(const struct reader *rd, const struct item *item)
{
	return item->kind != ITEM_REST || rd->n_items < ITEMS_AHEAD || item->link.prev == &rd->items;
}

/* Starts what the limits allow, from the front on. */
static int fill(struct reader *rd)
{
	struct list *pos = rd->cursor != NULL ? &rd->cursor->link : rd->items.next;
	int r = 0;

	while (pos != &rd->items && rd->work->in_flight < nfs_window(rd->work->from)) {
		struct item *item = container_of(pos, struct item, link);

		if (item->state == ITEM_WAITING && may_start(rd, item))
			r = start(rd, item);
		else if (is_read_ahead(rd, item))
			r = fill_file(rd, item);
		if (r != 0)
			break;
		pos = pos->next;
	}
	rd->cursor = pos != &rd->items ? container_of(pos, struct item, link) : NULL;
	return r < 0 ? r : 0;
}

/* -------- what is dropped when there is too much of it -------- */

static bool may_drop(const struct item *item, const struct folder *folder)
{
	return item->kind == ITEM_ENTRY && item->folder == folder && item->state != ITEM_BUSY &&
	       !item->file.started &&
	       (item->rest == NULL ||
		(item->rest->state != ITEM_BUSY && item->link.next == &item->rest->link));
}

/*
 * From the end of the line, which is the rest of the root: the entries in front of the rest of a
 * directory are those of that directory, or the end of one that is in it.
 */
static void drop_some(struct reader *rd)
{
	struct list *pos = rd->items.prev;

	while (rd->n_items > ITEMS_MAX / 2 && pos != &rd->items) {
		struct item *rest = container_of(pos, struct item, link);
		struct item *item;

		if (rest->kind != ITEM_REST || rest->state == ITEM_BUSY)
			return;
		for (pos = pos->prev; pos != &rd->items; pos = rest->link.prev) {
			item = container_of(pos, struct item, link);
			/* The end of a directory that nothing has been read of goes with its entry. */
			if (item->kind == ITEM_REST && item->state != ITEM_BUSY &&
			    pos->prev != &rd->items &&
			    container_of(pos->prev, struct item, link)->rest == item)
				item = container_of(pos->prev, struct item, link);
			if (!may_drop(item, rest->folder))
				break;
			rest->folder->cookie = item->before;
			if (item->before == 0) /* then the verifier has to be zero, too */
				memset(rest->folder->verifier, 0, sizeof(rest->folder->verifier));
			rest->folder->eof = false;
			rest->state = ITEM_WAITING;
			if (item->rest != NULL)
				item_free(item->rest);
			item_free(item);
		}
	}
	rd->cursor = NULL;
}

/* -------- what is delivered -------- */

static bool is_gone(int error)
{
	return error == -ENOENT || error == -ESTALE;
}

static int failed(struct reader *rd, int r, const char *verb, const char *path, struct error *err)
{
	return nfs_error_set(err, rd->work->from, r, "%s '%s'", verb, path != NULL ? path : "");
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

static int send_chunks(struct reader *rd, struct item *item, struct error *err)
{
	bool skip = tree_has_holes(&item->attr) && !rd->options->map;
	struct tree_chunk *chunk;
	int r;

	for (;;) {
		r = tree_file_next(&item->file, &chunk, err);
		if (r < 0 || chunk == NULL)
			return r;
		rd->work->progress.bytes += chunk->got;
		r = tree_send(rd->sink, chunk->offset, chunk->data, chunk->got, skip, err);
		tree_file_release(&item->file, chunk);
		if (r == 0)
			r = fill(rd);
		if (r < 0)
			return r;
	}
}

/* What is left of one that went away is missing, as of one that became shorter. */
static int send_data(struct reader *rd, struct item *item, struct error *err)
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
static int find_segments(struct reader *rd, struct item *item, struct tree_segments *segments,
			 struct error *err)
{
	struct tree_file f;
	struct tree_chunk *chunk;
	int r;

	tree_file_init(&f, rd->work, &item->handle, item->attr.size);
	do {
		r = tree_file_next(&f, &chunk, err);
		if (r < 0 || chunk == NULL)
			break;
		r = tree_segments_add(segments, chunk->offset, chunk->data, chunk->got);
		tree_file_release(&f, chunk);
	} while (r == 0);
	if (r < 0)
		tree_drain(rd->work);
	tree_file_done(&f);
	return r;
}

static int send_file(struct reader *rd, struct item *item, struct tree_entry *entry, struct error *err)
{
	struct tree_segments segments = { .n = 0 };
	int r = 0;

	entry->is_mapped = entry->same_as == NULL && is_to_be_mapped(rd, &item->attr);
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
static int find_same(struct reader *rd, const struct item *item, const char **ret)
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
static int wait_for_data(struct reader *rd, struct item *item, struct error *err)
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

static int enter(struct reader *rd, struct item *item, const struct tree_entry *entry,
		 struct error *err)
{
	struct folder *folder = item->rest->folder;

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
static int look_again(struct reader *rd, struct item *item)
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

static int deliver_entry(struct reader *rd, struct item *item, struct error *err)
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
static bool has_no_name(struct reader *rd, const struct folder *folder)
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

static int deliver_end(struct reader *rd, struct item *rest, struct error *err)
{
	int r = rest->error;

	rd->path.len = rest->folder->path_len;
	if (rd->path.data != NULL)
		rd->path.data[rd->path.len] = '\0';
	if (is_gone(r) && has_no_name(rd, rest->folder))
		rd->work->progress.vanished++;
	else if (r < 0)
		return failed(rd, r, "reading directory", rd->path.data, err);
	rd->folder = rest->folder->parent;
	return rd->sink->end(rd->sink, err);
}

static int read_items(struct reader *rd, struct error *err)
{
	int r;

	while (!list_is_empty(&rd->items)) {
		struct item *item;

		if (rd->n_items > ITEMS_MAX)
			drop_some(rd);
		item = container_of(rd->items.next, struct item, link);
		/* It may have been passed over while it was not the first. */
		if (item->state == ITEM_WAITING)
			rd->cursor = NULL;
		r = fill(rd);
		if (r == 0 && item->state != ITEM_READY) {
			r = tree_pump(rd->work, err);
			if (r == 0)
				continue; /* a page may have come before it */
		} else if (r == 0) {
			r = item->kind == ITEM_ENTRY ? deliver_entry(rd, item, err)
						     : deliver_end(rd, item, err);
			if (r == 0)
				item_free(item);
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
	struct item *item = item_new(rd, ITEM_ENTRY, NULL, "");

	if (item == NULL)
		return -ENOMEM;
	item->handle = *root;
	item->attr = *attr;
	list_add_tail(&rd->items, &item->link);
	return settle_entry(rd, item);
}

int tree_read(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
	      const struct tree_reader_options *options, struct tree_sink *sink, struct error *err)
{
	struct reader rd = { .work = work, .options = options, .sink = sink, .fsid = attr->fsid };
	int r;

	list_init(&rd.items);
	r = tree_links_new(&rd.links, TREE_LINKS_MAX);
	if (r == 0)
		r = add_root(&rd, root, attr);
	if (r == 0)
		r = read_items(&rd, err);
	/* Transport and memory, which nobody has reported yet. */
	if (r < 0)
		(void)nfs_error_set(err, work->from, r, "reading the tree");
	tree_drain(work);
	while (!list_is_empty(&rd.items))
		item_free(container_of(rd.items.next, struct item, link));
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
	struct tree_work own = *work;
	int r;

	own.progress = (struct tree_progress){ .files = 0 };
	r = tree_read(&own, root, attr, &options, &sink, err);
	work->reported_ns = own.reported_ns;
	work->progress.all_files = own.progress.files;
	work->progress.all_directories = own.progress.directories;
	work->progress.all_bytes = own.progress.bytes;
	return r;
}
