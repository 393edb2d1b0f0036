/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Internals of tree/reader.h: the queue of items to deliver, and how they are fetched ahead. An
 * entry stays in the queue until it is delivered. A directory's entry is followed by its ITEM_REST,
 * which stands for the pages that are not read yet and then for the directory's end; entries of a
 * page are inserted before it.
 *
 * State    Meaning                             Next state
 * WAITING  something is to be fetched          BUSY
 * BUSY     item->fetch is in flight, or a READ WAITING for the next operation; READY, or on errors
 *          that also lists the attributes
 * READY    can be delivered, or item->error    delivered and freed; WAITING if it is read again
 */
#ifndef TREE_READER_ITEM_H
#define TREE_READER_ITEM_H

#include <errno.h>

#include "base/buf.h"
#include "base/list.h"
#include "nfs/cookies.h"
#include "nfs/names.h"
#include "tree/file.h"
#include "tree/hardlinks.h"
#include "tree/reader.h"

#define READER_ITEMS_MAX 8192 /* beyond it, items at the end of the queue are dropped */

/* Names remembered for all open directories; beyond it, a directory cannot be listed again. */
#define READER_NAMES_MAX 200000

#define READER_REREADS_MAX 3 /* of a file that is being written to; then keep it as it was read */

/* Largest file that is read in full before it is begun. SEEK and COPY do not pay off below it. */
#define READER_WHOLE_MAX (1024U * 1024)

/* A directory that is begun and not ended. */
struct reader_folder {
	struct reader_folder *parent;
	struct nfs_handle handle;
	uint64_t fileid; /* identifies it when its handle is stale */
	struct nfs_names names; /* entries in the queue or delivered */
	bool forgets; /* has more names than can be remembered */
	unsigned int restarts; /* how often its listing began again */
	bool replaced; /* handle is that of another directory, which has its name now */
	char verifier[8];
	uint64_t cookie; /* of the next page */
	struct nfs_cookies cookies; /* since the listing began, or went back */
	bool eof;
	size_t path_len; /* length of its path in reader.path */
	size_t depth;
};

enum reader_item_kind {
	ITEM_ENTRY,
	ITEM_REST, /* of a directory: further pages, then its end */
};

enum reader_item_state {
	ITEM_WAITING,
	ITEM_BUSY,
	ITEM_READY,
};

struct reader_item {
	struct list link; /* in reader.items, in the order of delivery */
	struct reader *reader;
	enum reader_item_kind kind;
	enum reader_item_state state;
	struct reader_folder *folder; /* ITEM_REST: its directory; else the one above; NULL: root */
	struct reader_item *rest; /* entry of a directory: its ITEM_REST */
	uint64_t before; /* READDIR from this cookie begins with the item */
	int error;
	unsigned int looks; /* how often it was looked up again by name, or its page read again */
	unsigned int rereads; /* of a file that was written to while it was read */
	unsigned int cuts; /* reads that found the file shorter than its attributes said */
	uint64_t end; /* length of the file at the last cut */
	uint64_t holes; /* its part of reader.holes */
	bool is_limited; /* attr.size is end: what is behind it was written later, if it is there */
	bool is_cut; /* CLONE or COPY gave another length: read the file instead */
	bool is_later_name; /* its file was delivered under another name, so do not read it ahead */
	bool kept; /* delivered although the file was written to during each read */
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct reader_fetch *fetch; /* BUSY; NULL: a READ of file lists the attributes, too */
	char *text; /* of a symbolic link */
	struct tree_xattrs *xattrs; /* NULL: none, or not listed yet */
	bool xattrs_listed;
	bool xattrs_relisted; /* once, from the start */
	uint64_t xattrs_cookie; /* of the next page of their names */
	unsigned int xattr_pages;
	size_t xattrs_read; /* items of the set that have their value */
	size_t xattrs_charged; /* bytes taken from the purse */
	uint64_t xattrs_lost; /* counted when the item is delivered: it may be read again */
	int xattr_error; /* of the first of them */
	struct tree_file file;
	char name[];
};

/* An operation for an item. */
struct reader_fetch {
	struct nfs_op op;
	struct reader_item *item;
	struct list entries; /* READDIR: new items */
	size_t n_entries;
	uint64_t last; /* cookie of the last of them */
	char link[]; /* READLINK */
};

struct reader {
	struct tree_work *work;
	const struct tree_reader_options *options;
	struct tree_sink *sink;
	struct list items;
	size_t n_items;
	size_t pages; /* of directories, in flight */
	size_t xattr_values; /* in flight, whose size is not known */
	size_t xattr_bytes; /* of the extended attributes of all items */
	bool has_listed_xattrs;
	size_t page_entries; /* expected number of entries in a page */
	struct list *cursor; /* items before it have nothing to start */
	bool may_grow; /* items may be inserted before the cursor: don't read file data yet */
	struct reader_folder *folder; /* that the sink is in */
	struct buf path;
	const struct nfs_attr *root;
	size_t names; /* remembered in all folders */
	uint64_t holes; /* total size of files that are almost all holes */
	struct tree_hardlinks *links;
};

/* Create an item outside of the queue. NULL: no memory. */
struct reader_item *reader_item_new(struct reader *rd, enum reader_item_kind kind,
				    struct reader_folder *folder, const char *name);
void reader_item_free(struct reader_item *item);

/*
 * Return whether the directory's contents belong to the tree. The root's do, even if something is
 * mounted on the root itself.
 */
static inline bool reader_is_inside(const struct reader *rd, const struct reader_item *item)
{
	return item->folder == NULL || nfs_is_inside(&item->attr, rd->root);
}

/* Handle and attributes are known: fetch what else is needed, or make it READY. 0 or -ENOMEM. */
int reader_item_settle(struct reader *rd, struct reader_item *item);

/* Forget extended attributes that were read, because the item is to be read again. */
void reader_item_forget_xattrs(struct reader_item *item);

/* Begin to read the file's data, and remember the attributes to compare with. */
void reader_item_open(struct reader_item *item);

/* Return whether the segments of the file are to be found before it is delivered. */
bool reader_maps(const struct reader *rd, const struct nfs_attr *attr);

/*
 * Return whether SEEK is to find the holes of the file, or the server to copy it. Its data is not
 * read ahead then. If the server may share its blocks (CLONE), SEEK comes only after a refusal.
 */
bool reader_seeks(const struct reader *rd, const struct nfs_attr *attr);
bool reader_offloads(const struct reader *rd, const struct reader_item *item);
bool reader_clones(const struct reader *rd, const struct reader_item *item);

/* Start operations from the cursor on, within the limits. */
int reader_fill(struct reader *rd);

/* Start over with the queue, because an item in it may have become WAITING. */
static inline void reader_rewind(struct reader *rd)
{
	rd->cursor = rd->items.next;
	rd->may_grow = false;
}

/* Drop items from the end of the queue; call it if there are more than READER_ITEMS_MAX. */
void reader_drop_some(struct reader *rd);

/* -------- reader_file.c -------- */

/*
 * Deliver a file; rd->path is its path. Returns 0; 1 if the item must be delivered again, because
 * the file vanished or was written to; or a negative errno with the error set.
 */
int reader_send_file(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		     struct error *err);

/* -------- reader_retry.c: entries that vanished or changed -------- */

/* Return whether the error says that a name or handle leads nowhere. It may be temporary. */
static inline bool reader_is_gone(int error)
{
	return error == -ENOENT || error == -ESTALE;
}

/* Set the error for an operation on an entry of the tree. Returns r. */
int reader_fail(struct reader *rd, int r, const char *verb, const char *path, struct error *err);

/*
 * Look up again the name of an entry in rd->folder. Returns 1 if something is there, and the item
 * is to be delivered again; 0 if nothing is; or a negative errno with the error set.
 */
int reader_retry_entry(struct reader *rd, struct reader_item *item, struct error *err);

/*
 * Handle a listing of rd->folder that failed (rest->error), or a folder that was replaced. Returns
 * 1 if the folder, or the entry that has its name now, is to be delivered again; 0 if it has
 * vanished and ends here; or a negative errno with the error set.
 */
int reader_retry_folder(struct reader *rd, struct reader_item *rest, struct error *err);

#endif
