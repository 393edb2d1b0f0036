/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/reader_item.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/sparse.h"

#define MAP_FROM 65536 /* size of the smallest file whose segments are reported */
#define ITEMS_AHEAD 1024 /* queued or expected; with more, no directory page is read ahead */
#define BYTES_AHEAD (1024U * 1024) /* with more held, only the file being delivered is read ahead */
#define LINKED_AHEAD_MAX 65536 /* largest file with several names that is read ahead */
#define XATTR_BYTES_AHEAD (256U * 1024) /* of extended attributes of items that are read ahead */
#define XATTR_VALUES_AHEAD 8 /* values in flight for items that are read ahead: each may be large */
#define XATTR_PAGES_MAX 1024 /* of the names of one item, whatever the server says */

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

static void folder_forget_names(struct reader *rd, struct reader_folder *folder)
{
	rd->names -= folder->names.n;
	nfs_names_done(&folder->names);
}

/* Returns 1 if the name is new or names are not remembered, 0 if it came before, or -ENOMEM. */
static int folder_add_name(struct reader *rd, struct reader_folder *folder, const char *name)
{
	int r;

	if (rd->names >= READER_NAMES_MAX || rd->options->count) {
		folder->forgets = true;
		folder_forget_names(rd, folder);
	}
	if (folder->forgets)
		return 1;
	r = nfs_names_add(&folder->names, name);
	rd->names += r == 1;
	return r;
}

/* Forget a name whose item was dropped, because it will be read again. */
static void folder_drop_name(struct reader *rd, struct reader_folder *folder, const char *name)
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
	reader_item_forget_xattrs(item);
	if (item->kind == ITEM_REST) {
		folder_forget_names(rd, item->folder);
		free(item->folder);
	}
	free(item->fetch);
	free(item->text);
	free(item);
}

static void insert_before(struct list *pos, struct reader_item *item)
{
	list_add_tail(pos, &item->link); /* the tail of a list that begins at pos */
}

/* Insert the ITEM_REST of a directory behind its entry. */
static int insert_rest(struct reader *rd, struct reader_item *entry)
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
	/* A mount point is delivered empty. */
	folder->eof = !reader_is_inside(rd, entry);
	if (folder->eof)
		rest->state = ITEM_READY;
	entry->rest = rest;
	insert_before(entry->link.next, rest);
	return 0;
}

static bool item_is_known(const struct reader_item *item)
{
	return item->handle.len > 0 && item->attr.is_full;
}

/* -------- extended attributes -------- */

static bool has_xattrs_to_read(const struct reader *rd, const struct reader_item *item)
{
	const enum nfs_type type = item->attr.type;

	if (type != NFS_TYPE_FILE && type != NFS_TYPE_DIRECTORY)
		return false;
	if (rd->options->count && (rd->options->xattrs_found == NULL || item->xattrs != NULL))
		return false; /* one name is enough */
	/* A mount point is delivered empty. */
	if (type == NFS_TYPE_DIRECTORY && !reader_is_inside(rd, item))
		return false;
	if (!item->xattrs_listed && rd->work->from_xattrs)
		return true;
	return item->xattrs != NULL && item->xattrs_read < item->xattrs->n;
}

/* Account for the memory of the set, regardless of the limits: its size was unknown in advance. */
static void xattrs_charge(struct reader_item *item)
{
	struct tree_purse *purse = &item->reader->work->ahead;
	const size_t bytes = item->xattrs != NULL ? item->xattrs->bytes : 0;

	if (bytes > item->xattrs_charged)
		tree_purse_force(purse, bytes - item->xattrs_charged);
	else
		tree_purse_give(purse, item->xattrs_charged - bytes);
	item->reader->xattr_bytes += bytes - item->xattrs_charged;
	item->xattrs_charged = bytes;
}

void reader_item_forget_xattrs(struct reader_item *item)
{
	tree_xattrs_drop(item->xattrs);
	item->xattrs = NULL;
	xattrs_charge(item);
	item->xattrs_listed = false;
	item->xattrs_cookie = 0;
	item->xattr_pages = 0;
	item->xattrs_read = 0;
	item->xattrs_lost = 0;
}

static void item_lose_xattr(struct reader_item *item, int error)
{
	if (item->xattrs_lost++ == 0)
		item->xattr_error = error;
}

static void item_add_name(struct reader_item *item, const char *bytes, uint32_t len)
{
	int r = 0;

	if (item->xattrs == NULL)
		item->xattrs = tree_xattrs_new();
	r = item->xattrs != NULL ? tree_xattrs_add(item->xattrs, bytes, len) : -ENOMEM;
	if (r == -ENOMEM)
		item->error = r;
	else if (r < 0)
		item_lose_xattr(item, r);
}

static void fetch_add_name(struct nfs_op *op, const char *bytes, uint32_t len)
{
	item_add_name(container_of(op, struct reader_fetch, op)->item, bytes, len);
}

static void fetch_add_value(struct nfs_op *op, const char *bytes, uint32_t len)
{
	struct reader_item *item = container_of(op, struct reader_fetch, op)->item;
	int r = tree_xattrs_set(item->xattrs, item->xattrs_read, bytes, len);

	if (r == -ENOMEM)
		item->error = r;
	else if (r < 0)
		op->error = r; /* as if the server had refused it */
}

static int take_xattr_names(struct reader_item *item, const struct nfs_op *op)
{
	struct tree_work *work = item->reader->work;
	const bool stuck = !op->eof && (op->cookie == item->xattrs_cookie ||
					++item->xattr_pages == XATTR_PAGES_MAX);

	/* The names changed between two pages, or the server cannot go on with a list. */
	if (op->error == -ERESTART && !item->xattrs_relisted) {
		reader_item_forget_xattrs(item);
		item->xattrs_relisted = true;
		return item->error;
	}
	if (op->error < 0)
		item_lose_xattr(item, op->error);
	else if (stuck)
		item_lose_xattr(item, -EREMOTEIO);
	/* After the first list, a refusal is about this file only. */
	if (op->error == 0)
		item->reader->has_listed_xattrs = true;
	else if (op->error == -EOPNOTSUPP && !item->reader->has_listed_xattrs)
		work->from_xattrs = false;
	item->xattrs_listed = op->error < 0 || op->eof || stuck;
	item->xattrs_cookie = op->cookie;
	return item->error;
}

/* An attribute that was removed since its name was listed is not lost. */
static int take_xattr_value(struct reader_item *item, const struct nfs_op *op)
{
	if (op->error < 0 && op->error != -ENODATA)
		item_lose_xattr(item, op->error);
	if (op->error < 0)
		tree_xattrs_remove(item->xattrs, item->xattrs_read);
	else
		item->xattrs_read++;
	return item->error;
}

/* Return whether the error is about the attributes alone, which does not fail the item. */
static bool is_xattr_reply(const struct nfs_op *op)
{
	if (op->type == NFS_OP_LISTXATTRS && op->error == -ERESTART)
		return true;
	return (op->type == NFS_OP_LISTXATTRS || op->type == NFS_OP_GETXATTR) &&
	       tree_xattrs_is_loss(op->error);
}

/* -------- replies -------- */

int reader_item_settle(struct reader *rd, struct reader_item *item)
{
	const bool needs_text =
		item->attr.type == NFS_TYPE_SYMLINK && item->text == NULL && !rd->options->count;

	if (needs_text || has_xattrs_to_read(rd, item)) {
		item->state = ITEM_WAITING;
		reader_rewind(rd);
		return 0;
	}
	item->state = ITEM_READY;
	return item->attr.type == NFS_TYPE_DIRECTORY ? insert_rest(rd, item) : 0;
}

static void fetch_add_entry(struct nfs_op *op, const struct nfs_entry *entry)
{
	struct reader_fetch *fetch = container_of(op, struct reader_fetch, op);
	struct reader_item *rest = fetch->item, *item;

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
	if (item->attr.type == NFS_TYPE_UNKNOWN)
		item->attr.fileid = entry->fileid; /* for LOOKUP */
	list_add_tail(&fetch->entries, &item->link);
}

/* Move the entries of the page to the queue, before the rest of the directory. */
static int fetch_take_page(struct reader *rd, struct reader_fetch *fetch)
{
	struct reader_item *rest = fetch->item;
	struct reader_folder *folder = rest->folder;
	int r = rest->error;

	/* Update the expected number of entries: most directories of a tree are alike. */
	if (rd->page_entries < fetch->n_entries)
		rd->page_entries = fetch->n_entries;
	else
		rd->page_entries -= (rd->page_entries - fetch->n_entries) / 8;
	if (!fetch->op.eof && nfs_cookies_repeat(&folder->cookies, fetch->op.cookie))
		return -EIO;
	folder->cookie = fetch->op.cookie;
	memcpy(folder->verifier, fetch->op.verifier, sizeof(folder->verifier));
	folder->eof = fetch->op.eof;
	rest->state = folder->eof ? ITEM_READY : ITEM_WAITING;
	rest->looks = 0;
	while (r >= 0 && !list_is_empty(&fetch->entries)) {
		struct reader_item *item =
			container_of(fetch->entries.next, struct reader_item, link);

		r = folder_add_name(rd, folder, item->name);
		if (r <= 0) {
			reader_item_free(item);
			continue;
		}
		list_remove(&item->link);
		insert_before(&rest->link, item);
		if (item_is_known(item))
			r = reader_item_settle(rd, item);
	}
	return r < 0 ? r : 0;
}

static int fetch_take_reply(struct reader *rd, struct reader_item *item, struct reader_fetch *fetch)
{
	int r;

	switch (fetch->op.type) {
	case NFS_OP_READDIR:
		return fetch_take_page(rd, fetch);
	case NFS_OP_READLINK:
		item->text = strdup(fetch->link);
		return item->text != NULL ? reader_item_settle(rd, item) : -ENOMEM;
	case NFS_OP_LISTXATTRS:
	case NFS_OP_GETXATTR:
		r = fetch->op.type == NFS_OP_LISTXATTRS ? take_xattr_names(item, &fetch->op)
							: take_xattr_value(item, &fetch->op);
		xattrs_charge(item);
		return r == 0 ? reader_item_settle(rd, item) : r;
	case NFS_OP_LOOKUP:
		item->handle = fetch->op.handle;
		item->attr = fetch->op.attr;
		/* Attributes are optional in version 3 replies, except in that of GETATTR. */
		return item_is_known(item) ? reader_item_settle(rd, item) : 0;
	default:
		fetch->op.attr.is_mount = item->attr.is_mount; /* as the name is */
		item->attr = fetch->op.attr;
		return item_is_known(item) ? reader_item_settle(rd, item) : -EREMOTEIO;
	}
}

static void fetch_free(struct reader_fetch *fetch)
{
	while (!list_is_empty(&fetch->entries))
		reader_item_free(container_of(fetch->entries.next, struct reader_item, link));
	free(fetch);
}

static void fetch_replied(struct nfs_op *op)
{
	struct reader_fetch *fetch = container_of(op, struct reader_fetch, op);
	struct reader_item *item = fetch->item;
	struct reader *rd = item->reader;
	int r = op->error;

	tree_op_returned(rd->work, &rd->work->reading, op);
	item->fetch = NULL;
	item->state = ITEM_WAITING;
	rd->pages -= fetch->op.type == NFS_OP_READDIR;
	rd->xattr_values -= fetch->op.type == NFS_OP_GETXATTR;
	if (r == 0 || is_xattr_reply(op))
		r = fetch_take_reply(rd, item, fetch);
	else if (tree_should_retry(rd->work, r))
		r = 0;
	fetch_free(fetch);
	reader_rewind(rd);
	if (r < 0) {
		item->error = r;
		item->state = ITEM_READY;
	}
}

/* -------- fetching -------- */

static enum nfs_op_type fetch_type(const struct reader_item *item)
{
	if (item->kind == ITEM_REST)
		return NFS_OP_READDIR;
	if (item->handle.len == 0)
		return NFS_OP_LOOKUP;
	if (!item_is_known(item))
		return NFS_OP_GETATTR;
	if (item->attr.type == NFS_TYPE_SYMLINK)
		return NFS_OP_READLINK;
	return item->xattrs_listed ? NFS_OP_GETXATTR : NFS_OP_LISTXATTRS;
}

static struct reader_fetch *fetch_new(struct reader_item *item)
{
	const enum nfs_op_type type = fetch_type(item);
	const size_t text = type == NFS_OP_READLINK ? NFS_LINK_MAX + 1 : 0;
	struct reader_fetch *fetch = calloc(1, sizeof(*fetch) + text);
	struct nfs_op *op = &fetch->op;

	if (fetch == NULL)
		return NULL;
	fetch->item = item;
	list_init(&fetch->entries);
	op->type = type;
	op->done = fetch_replied;
	op->full = true;
	op->dir = type == NFS_OP_READDIR || type == NFS_OP_LOOKUP ? &item->folder->handle
								  : &item->handle;
	op->name = type == NFS_OP_LOOKUP ? item->name : NULL;
	op->fileid = type == NFS_OP_LOOKUP ? item->attr.fileid : 0;
	op->link = type == NFS_OP_READLINK ? fetch->link : NULL;
	if (type == NFS_OP_GETXATTR)
		op->name = item->xattrs->items[item->xattrs_read].name;
	if (type == NFS_OP_LISTXATTRS)
		op->cookie = item->xattrs_cookie;
	op->xattr = type == NFS_OP_GETXATTR ? fetch_add_value : fetch_add_name;
	if (type == NFS_OP_READDIR) {
		op->entry = fetch_add_entry;
		op->cookie = fetch->last = item->folder->cookie;
		/* A listing from the start needs no verifier, even if it was begun before. */
		if (op->cookie != 0)
			memcpy(op->verifier, item->folder->verifier, sizeof(op->verifier));
	}
	return fetch;
}

static int fetch_start(struct reader *rd, struct reader_item *item)
{
	struct reader_fetch *fetch = fetch_new(item);
	int r;

	if (fetch == NULL)
		return -ENOMEM;
	item->fetch = fetch;
	item->state = ITEM_BUSY;
	r = nfs_client_start(rd->work->from, &fetch->op);
	if (r == 0) {
		rd->work->reading++;
		rd->pages += fetch->op.type == NFS_OP_READDIR;
		rd->xattr_values += fetch->op.type == NFS_OP_GETXATTR;
		return 0;
	}
	item->fetch = NULL;
	item->state = ITEM_WAITING;
	fetch_free(fetch);
	return r;
}

/* Don't map a file with few holes, as on a server that compresses: reading twice costs more. */
bool reader_maps(const struct reader *rd, const struct nfs_attr *attr)
{
	return rd->options->map && tree_has_holes(attr) && attr->size >= MAP_FROM &&
	       attr->used < attr->size / 4;
}

bool reader_seeks(const struct reader *rd, const struct nfs_attr *attr)
{
	if ((rd->work->offload & NFS_OFFLOAD_SEEK) == 0 || !tree_has_holes(attr) ||
	    attr->size <= READER_WHOLE_MAX)
		return false;
	return !rd->options->map || reader_maps(rd, attr);
}

bool reader_offloads(const struct reader *rd, const struct reader_item *item)
{
	return rd->sink->copy != NULL && item->attr.size > READER_WHOLE_MAX && !item->is_cut &&
	       (rd->work->offload & (NFS_OFFLOAD_CLONE | NFS_OFFLOAD_COPY)) != 0;
}

bool reader_clones(const struct reader *rd, const struct reader_item *item)
{
	return reader_offloads(rd, item) && (rd->work->offload & NFS_OFFLOAD_CLONE) != 0;
}

/*
 * Return whether the file is worth being read ahead. Later names become links. While the first one
 * waits in the queue, they are read in vain: that saves round trips for small files only.
 */
static bool item_pays_ahead(const struct reader *rd, struct reader_item *item)
{
	struct tree_hardlink_id id;

	if (item->attr.links < 2 || item->file.started)
		return true;
	if (item->is_later_name || item->attr.size > LINKED_AHEAD_MAX)
		return false;
	id = tree_hardlink_id_of(&item->handle, &item->attr);
	item->is_later_name = tree_hardlinks_have(rd->links, &id);
	return !item->is_later_name;
}

static bool is_read_ahead(const struct reader *rd, struct reader_item *item)
{
	return !rd->options->count && item->kind == ITEM_ENTRY && item->state == ITEM_READY &&
	       item->attr.type == NFS_TYPE_FILE && item->attr.size > 0 &&
	       !reader_maps(rd, &item->attr) && !reader_seeks(rd, &item->attr) &&
	       !reader_offloads(rd, item) && item_pays_ahead(rd, item);
}

static void file_add_name(struct nfs_op *op, const char *bytes, uint32_t len)
{
	struct tree_file *f = container_of(op, struct tree_chunk, op)->file;

	item_add_name(container_of(f, struct reader_item, file), bytes, len);
}

/* Unless all names came with the data, list them alone. An error of the READ is its chunk's. */
static void file_listed(struct tree_file *f, const struct nfs_op *op)
{
	struct reader_item *item = container_of(f, struct reader_item, file);
	struct reader *rd = item->reader;

	item->state = ITEM_WAITING;
	if (op->error == 0 && op->listed && item->error == 0) {
		rd->has_listed_xattrs = true;
		item->xattrs_listed = true;
		xattrs_charge(item);
		item->error = reader_item_settle(rd, item);
	}
	if (item->error < 0)
		item->state = ITEM_READY;
	reader_rewind(rd);
}

/* Return whether one call is to read the whole file ahead and list its extended attributes. */
static bool lists_while_reading(const struct reader *rd, struct reader_item *item)
{
	return !rd->may_grow && !rd->options->count && item->kind == ITEM_ENTRY &&
	       item_is_known(item) && item->attr.type == NFS_TYPE_FILE && item->attr.size > 0 &&
	       item->attr.size <= rd->work->from->lists_max &&
	       item->attr.size <= nfs_read_max(rd->work->from) &&
	       item->attr.size <= NFS_WHOLE_MAX && !item->file.started && !item->xattrs_listed &&
	       rd->work->from_xattrs && rd->work->ahead.held < BYTES_AHEAD &&
	       rd->xattr_bytes < XATTR_BYTES_AHEAD && item_pays_ahead(rd, item);
}

/* Returns 1 if the limits did not allow it. */
static int read_and_list(struct reader_item *item)
{
	int r;

	reader_item_open(item);
	tree_file_list_xattrs(&item->file, file_add_name, file_listed);
	item->state = ITEM_BUSY;
	r = tree_file_fill(&item->file, false);
	if (r == 0 && item->file.next > 0)
		return 0;
	tree_file_init(&item->file, item->reader->work, NULL, 0);
	item->state = ITEM_WAITING;
	return r < 0 ? r : 1;
}

/* Read data of a file ahead. Returns 1 if the limits did not allow all of it. */
static int read_file_ahead(struct reader *rd, struct reader_item *item)
{
	struct tree_file *f = &item->file;
	int r;

	if (rd->work->ahead.held >= BYTES_AHEAD)
		return 1;
	if (!f->started)
		reader_item_open(item);
	r = tree_file_fill(f, false);
	return r == 0 && f->next < f->size && !f->at_end ? 1 : r;
}

/* Return whether entries may be inserted after the item: it is a directory, or may be one. */
static bool item_may_grow(const struct reader_item *item)
{
	return item->state != ITEM_READY && (item->kind == ITEM_REST || !item_is_known(item) ||
					     item->attr.type == NFS_TYPE_DIRECTORY);
}

static bool may_start(const struct reader *rd, const struct reader_item *item)
{
	if (item->link.prev == &rd->items)
		return true;
	if (item->kind == ITEM_REST)
		return rd->n_items + rd->pages * rd->page_entries < ITEMS_AHEAD;
	if (!item_is_known(item) || item->attr.type == NFS_TYPE_SYMLINK)
		return true;
	return rd->xattr_bytes < XATTR_BYTES_AHEAD &&
	       (!item->xattrs_listed || rd->xattr_values < XATTR_VALUES_AHEAD);
}

int reader_fill(struct reader *rd)
{
	int r = 0;

	while (rd->cursor != &rd->items && rd->work->reading < nfs_window(rd->work->from)) {
		struct reader_item *item = container_of(rd->cursor, struct reader_item, link);

		if (item->state == ITEM_WAITING) {
			r = lists_while_reading(rd, item) ? read_and_list(item) : 1;
			if (r == 1)
				r = may_start(rd, item) ? fetch_start(rd, item) : 1;
		} else if (!rd->may_grow && is_read_ahead(rd, item))
			r = read_file_ahead(rd, item);
		if (r != 0)
			break;
		rd->may_grow = rd->may_grow || item_may_grow(item);
		rd->cursor = rd->cursor->next;
	}
	return r < 0 ? r : 0;
}

/* -------- dropping -------- */

static bool may_drop(const struct reader_item *item, const struct reader_folder *folder)
{
	return item->kind == ITEM_ENTRY && item->folder == folder && item->state != ITEM_BUSY &&
	       !tree_file_is_busy(&item->file) &&
	       (item->rest == NULL ||
		(item->rest->state != ITEM_BUSY && item->link.next == &item->rest->link));
}

/*
 * The last item is the ITEM_REST of the root. In front of the rest of a directory stand the entries
 * of that directory, or the rest of a directory in it: go backwards and drop whole entries.
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
			/* The rest of a directory of which nothing was read goes with its entry. */
			if (item->kind == ITEM_REST && item->state != ITEM_BUSY &&
			    pos->prev != &rd->items &&
			    container_of(pos->prev, struct reader_item, link)->rest == item)
				item = container_of(pos->prev, struct reader_item, link);
			if (!may_drop(item, rest->folder))
				break;
			rest->folder->cookie = item->before;
			rest->folder->cookies = (struct nfs_cookies){ .last = item->before };
			if (item->before == 0) /* cookie 0 needs verifier 0 */
				memset(rest->folder->verifier, 0, sizeof(rest->folder->verifier));
			rest->folder->eof = false;
			rest->error = 0; /* of a later page */
			rest->state = ITEM_WAITING;
			folder_drop_name(rd, rest->folder, item->name);
			if (item->rest != NULL)
				reader_item_free(item->rest);
			reader_item_free(item);
		}
	}
	reader_rewind(rd);
}
