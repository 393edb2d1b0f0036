/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/reader_item.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/segments.h"

#define MAP_FROM 65536 /* bytes of a file that is worth a map */
#define ITEMS_AHEAD 1024 /* entries that wait or are on their way: no more pages are read ahead */
#define BYTES_AHEAD (1024U * 1024) /* no file that has not been begun is read while these wait */

struct reader_item *reader_item_new(struct reader *rd, enum reader_item_kind kind,
				    struct reader_folder *folder, const char *name)
{
	size_t len = strlen(name);
	struct reader_item *item = calloc(1, sizeof(*item) + len + 1);

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

static void forget_names(struct reader *rd, struct reader_folder *folder)
{
	rd->names -= folder->names.n;
	nfs_names_done(&folder->names);
}

static void folder_free(struct reader *rd, struct reader_folder *folder)
{
	forget_names(rd, folder);
	free(folder);
}

/* 1: it is new, as far as is known. Of what is only counted, nothing has to be exact. */
static int remember_name(struct reader *rd, struct reader_folder *folder, const char *name)
{
	int r;

	if (rd->names >= READER_NAMES_MAX || rd->options->count) {
		folder->forgets = true;
		forget_names(rd, folder);
	}
	if (folder->forgets)
		return 1;
	r = nfs_names_add(&folder->names, name);
	rd->names += r == 1;
	return r;
}

/* It has been dropped from the line, and will be read again. */
static void forget_name(struct reader *rd, struct reader_folder *folder, const char *name)
{
	const size_t before = folder->names.n;

	nfs_names_forget(&folder->names, name);
	rd->names -= before - folder->names.n;
}

void reader_item_open(struct reader_item *item)
{
	tree_file_init(&item->file, item->reader->work, &item->handle, item->attr.size);
	tree_file_watch(&item->file, &item->attr);
}

void reader_item_free(struct reader_item *item)
{
	struct reader *rd = item->reader;

	if (rd->cursor == &item->link)
		rd->cursor = item->link.next;
	rd->n_items--;
	list_remove(&item->link);
	tree_file_done(&item->file);
	if (item->kind == ITEM_REST)
		folder_free(rd, item->folder);
	free(item->fetch);
	free(item->text);
	free(item);
}

static void insert_before(struct list *pos, struct reader_item *item)
{
	list_add_tail(pos, &item->link); /* the tail of the part of the list that ends at pos */
}

/* Fills in what is to come behind a directory's entry. */
static int add_rest(struct reader *rd, struct reader_item *entry)
{
	struct reader_folder *folder = calloc(1, sizeof(*folder));
	struct reader_item *rest;

	if (folder == NULL)
		return -ENOMEM;
	folder->parent = entry->folder;
	folder->handle = entry->handle;
	folder->fileid = entry->attr.fileid;
	rest = reader_item_new(rd, ITEM_REST, folder, "");
	if (rest == NULL) {
		free(folder);
		return -ENOMEM;
	}
	/* What is left out has no contents. */
	folder->eof = !nfs_fsid_is_equal(&entry->attr, rd->root);
	if (folder->eof)
		rest->state = ITEM_READY;
	entry->rest = rest;
	insert_before(entry->link.next, rest);
	return 0;
}

/* -------- what is fetched -------- */

static bool is_known(const struct reader_item *item)
{
	return item->handle.len > 0 && item->attr.is_full;
}

/* Nothing is left to be fetched before the entry can begin; a file's data may follow it. */
int reader_item_settle(struct reader *rd, struct reader_item *item)
{
	if (item->attr.type == NFS_TYPE_SYMLINK && item->text == NULL && !rd->options->count) {
		item->state = ITEM_WAITING;
		reader_rewind(rd);
		return 0;
	}
	item->state = ITEM_READY;
	if (item->attr.type == NFS_TYPE_DIRECTORY)
		return add_rest(rd, item);
	return 0;
}

static void entry_found(struct nfs_op *op, const struct nfs_entry *entry)
{
	struct reader_fetch *fetch = container_of(op, struct reader_fetch, op);
	struct reader_item *rest = fetch->item, *item;

	/* No name that a file system has; what is made of one could be anywhere. */
	if (entry->name[0] == '\0' || strchr(entry->name, '/') != NULL) {
		rest->reader->work->progress.left_out++;
		return;
	}
	item = reader_item_new(rest->reader, ITEM_ENTRY, rest->folder, entry->name);
	if (item == NULL) {
		rest->error = -ENOMEM;
		return;
	}
	item->before = fetch->last;
	fetch->last = entry->cookie;
	fetch->n_entries++;
	item->handle = entry->handle;
	item->attr = entry->attr;
	list_add_tail(&fetch->entries, &item->link);
}

/* Most directories of a tree are alike. */
static void learn_page(struct reader *rd, const struct reader_fetch *fetch)
{
	rd->pages--;
	if (fetch->op.error != 0)
		return;
	if (rd->page_entries < fetch->n_entries)
		rd->page_entries = fetch->n_entries;
	else
		rd->page_entries -= (rd->page_entries - fetch->n_entries) / 8;
}

/* A page has come: its entries stand before the rest of the directory. */
static int take_page(struct reader *rd, struct reader_fetch *fetch)
{
	struct reader_item *rest = fetch->item;
	struct reader_folder *folder = rest->folder;
	int r = rest->error;

	/* A server that neither ends nor moves on would keep us here for ever. */
	if (!fetch->op.eof && fetch->op.cookie == folder->cookie)
		return -EIO;
	folder->cookie = fetch->op.cookie;
	memcpy(folder->verifier, fetch->op.verifier, sizeof(folder->verifier));
	folder->eof = fetch->op.eof;
	rest->state = folder->eof ? ITEM_READY : ITEM_WAITING;
	rest->looks = 0;
	while (r >= 0 && !list_is_empty(&fetch->entries)) {
		struct reader_item *item =
			container_of(fetch->entries.next, struct reader_item, link);

		r = remember_name(rd, folder, item->name);
		if (r <= 0) {
			reader_item_free(item);
			continue;
		}
		list_remove(&item->link);
		insert_before(&rest->link, item);
		if (is_known(item))
			r = reader_item_settle(rd, item);
	}
	return r < 0 ? r : 0;
}

static int take(struct reader *rd, struct reader_item *item, struct reader_fetch *fetch)
{
	switch (fetch->op.type) {
	case NFS_OP_READDIR:
		return take_page(rd, fetch);
	case NFS_OP_READLINK:
		item->text = strdup(fetch->link);
		return item->text != NULL ? reader_item_settle(rd, item) : -ENOMEM;
	case NFS_OP_LOOKUP:
		item->handle = fetch->op.handle;
		item->attr = fetch->op.attr;
		/* Attributes are optional in a version 3 reply, but for GETATTR. */
		return is_known(item) ? reader_item_settle(rd, item) : 0;
	default:
		item->attr = fetch->op.attr;
		return is_known(item) ? reader_item_settle(rd, item) : -EREMOTEIO;
	}
}

static void fetch_free(struct reader_fetch *fetch)
{
	while (!list_is_empty(&fetch->entries))
		reader_item_free(container_of(fetch->entries.next, struct reader_item, link));
	free(fetch);
}

static void replied(struct nfs_op *op)
{
	struct reader_fetch *fetch = container_of(op, struct reader_fetch, op);
	struct reader_item *item = fetch->item;
	struct reader *rd = item->reader;
	int r = op->error;

	tree_op_returned(rd->work, &rd->work->reading, op);
	item->fetch = NULL;
	item->state = ITEM_WAITING;
	if (fetch->op.type == NFS_OP_READDIR)
		learn_page(rd, fetch);
	if (r == 0)
		r = take(rd, item, fetch);
	else if (tree_is_to_be_retried(rd->work, r))
		r = 0;
	fetch_free(fetch);
	reader_rewind(rd);
	if (r < 0) {
		item->error = r;
		item->state = ITEM_READY;
	}
}

static struct reader_fetch *fetch_new(struct reader_item *item, enum nfs_op_type type)
{
	const size_t text = type == NFS_OP_READLINK ? NFS_LINK_MAX + 1 : 0;
	struct reader_fetch *fetch = calloc(1, sizeof(*fetch) + text);

	if (fetch == NULL)
		return NULL;
	fetch->item = item;
	list_init(&fetch->entries);
	fetch->op.type = type;
	fetch->op.done = replied;
	fetch->op.full = true;
	return fetch;
}

static struct reader_fetch *fetch_for(struct reader_item *item)
{
	struct reader_fetch *fetch;

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

static int start(struct reader *rd, struct reader_item *item)
{
	struct reader_fetch *fetch = fetch_for(item);
	int r;

	if (fetch == NULL)
		return -ENOMEM;
	item->fetch = fetch;
	item->state = ITEM_BUSY;
	r = nfs_client_start(rd->work->from, &fetch->op);
	if (r == 0) {
		rd->work->reading++;
		rd->pages += fetch->op.type == NFS_OP_READDIR;
		return 0;
	}
	item->fetch = NULL;
	item->state = ITEM_WAITING;
	fetch_free(fetch);
	return r;
}

/* Not those that a server has compressed: reading takes longer than writing some zeros. */
bool reader_maps(const struct reader *rd, const struct nfs_attr *attr)
{
	return rd->options->map && tree_has_holes(attr) && attr->size >= MAP_FROM &&
	       attr->used < attr->size / 4;
}

/* One with several names may not be read at all. */
static bool is_read_ahead(const struct reader *rd, const struct reader_item *item)
{
	return !rd->options->count && item->kind == ITEM_ENTRY && item->state == ITEM_READY &&
	       item->attr.type == NFS_TYPE_FILE && item->attr.size > 0 && item->attr.links < 2 &&
	       !reader_maps(rd, &item->attr);
}

/* Data of a file that begins soon. Returns 1 where the limits kept some of it back. */
static int fill_file(struct reader *rd, struct reader_item *item)
{
	struct tree_file *f = &item->file;
	int r;

	if (rd->work->fetched >= BYTES_AHEAD)
		return 1;
	if (!f->started)
		reader_item_open(item);
	r = tree_file_fill(f, false);
	return r == 0 && f->next < f->size && !f->at_end ? 1 : r;
}

/* Other entries may come to stand in front of what follows: of a directory, or of what may be one. */
static bool may_grow(const struct reader_item *item)
{
	return item->state != ITEM_READY && (item->kind == ITEM_REST || !is_known(item));
}

static bool may_start(const struct reader *rd, const struct reader_item *item)
{
	return item->kind != ITEM_REST || item->link.prev == &rd->items ||
	       rd->n_items + rd->pages * rd->page_entries < ITEMS_AHEAD;
}

int reader_fill(struct reader *rd)
{
	int r = 0;

	while (rd->cursor != &rd->items && rd->work->reading < nfs_window(rd->work->from)) {
		struct reader_item *item = container_of(rd->cursor, struct reader_item, link);

		if (item->state == ITEM_WAITING)
			r = may_start(rd, item) ? start(rd, item) : 1;
		else if (!rd->behind && is_read_ahead(rd, item))
			r = fill_file(rd, item);
		if (r != 0)
			break;
		rd->behind = rd->behind || may_grow(item);
		rd->cursor = rd->cursor->next;
	}
	return r < 0 ? r : 0;
}

/* -------- what is dropped when there is too much of it -------- */

static bool may_drop(const struct reader_item *item, const struct reader_folder *folder)
{
	return item->kind == ITEM_ENTRY && item->folder == folder && item->state != ITEM_BUSY &&
	       !tree_file_is_busy(&item->file) &&
	       (item->rest == NULL ||
		(item->rest->state != ITEM_BUSY && item->link.next == &item->rest->link));
}

/*
 * From the end of the line, which is the rest of the root: the entries in front of the rest of a
 * directory are those of that directory, or the end of one that is in it.
 */
void reader_drop_some(struct reader *rd)
{
	struct list *pos = rd->items.prev;

	while (rd->n_items > READER_ITEMS_MAX / 2 && pos != &rd->items) {
		struct reader_item *rest = container_of(pos, struct reader_item, link);
		struct reader_item *item;

		if (rest->kind != ITEM_REST || rest->state == ITEM_BUSY)
			return;
		for (pos = pos->prev; pos != &rd->items; pos = rest->link.prev) {
			item = container_of(pos, struct reader_item, link);
			/* The end of a directory that nothing has been read of goes with its entry. */
			if (item->kind == ITEM_REST && item->state != ITEM_BUSY &&
			    pos->prev != &rd->items &&
			    container_of(pos->prev, struct reader_item, link)->rest == item)
				item = container_of(pos->prev, struct reader_item, link);
			if (!may_drop(item, rest->folder))
				break;
			rest->folder->cookie = item->before;
			if (item->before == 0) /* then the verifier has to be zero, too */
				memset(rest->folder->verifier, 0, sizeof(rest->folder->verifier));
			rest->folder->eof = false;
			rest->error = 0; /* of a page behind these */
			rest->state = ITEM_WAITING;
			forget_name(rd, rest->folder, item->name);
			if (item->rest != NULL)
				reader_item_free(item->rest);
			reader_item_free(item);
		}
	}
	reader_rewind(rd);
}
