/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The line of what is to come in tree/reader.h, and how it is fetched ahead; of no use elsewhere. An entry
 * stands in it until it is delivered, and behind a directory's entry what is left of that directory.
 */
#ifndef TREE_READER_ITEM_H
#define TREE_READER_ITEM_H

#include "base/buf.h"
#include "base/list.h"
#include "tree/file.h"
#include "tree/links.h"
#include "tree/reader.h"

#define READER_ITEMS_MAX 8192 /* entries far down the line are dropped, to be read again */

/* A directory that has been begun and not ended. */
struct reader_folder {
	struct reader_folder *parent;
	struct nfs_handle handle;
	char verifier[8];
	uint64_t cookie; /* where the next page starts */
	bool eof;
	size_t path_len; /* of its path */
	size_t depth;
};

enum reader_item_kind {
	ITEM_ENTRY,
	ITEM_REST, /* of a directory: further pages, and then its end */
};

enum reader_item_state {
	ITEM_WAITING,
	ITEM_BUSY, /* an operation is in flight */
	ITEM_READY,
};

/* Something to come, in the order in which it will. */
struct reader_item {
	struct list link;
	struct reader *reader;
	enum reader_item_kind kind;
	enum reader_item_state state;
	struct reader_folder *folder; /* it is in; of ITEM_REST: it is about. NULL for the root */
	struct reader_item *rest; /* of a directory's entry: its ITEM_REST */
	uint64_t before; /* cookie that leads to it */
	int error;
	unsigned int looks; /* by name, since what was found before had gone; at a directory */
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct reader_fetch *fetch; /* while BUSY */
	char *text; /* of a symbolic link */
	struct tree_file file; /* of a file */
	char name[];
};

/* An operation on behalf of an item. */
struct reader_fetch {
	struct nfs_op op;
	struct reader_item *item;
	struct list entries; /* READDIR: items that were found */
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
	size_t page_entries; /* that such a page is expected to have */
	struct list *cursor; /* where to go on starting: of what is before it, nothing can be */
	bool behind; /* the cursor is behind something that grows: data would wait for too long */
	struct reader_folder *folder; /* that the sink is in */
	struct buf path;
	uint64_t fsid;
	struct tree_links *links;
};

/* Not in the line yet. NULL: no memory. */
struct reader_item *reader_item_new(struct reader *rd, enum reader_item_kind kind,
				    struct reader_folder *folder, const char *name);
void reader_item_free(struct reader_item *item);

/* Of an entry whose handle and attributes are known: what else has to be fetched, or that it is ready. */
int reader_item_settle(struct reader *rd, struct reader_item *item);

/* Whether the data of the file is to be told apart from its holes. */
bool reader_maps(const struct reader *rd, const struct nfs_attr *attr);

/* Starts what the limits allow, from the cursor on. */
int reader_fill(struct reader *rd);

/* Something in the line may have become one to be started. */
static inline void reader_rewind(struct reader *rd)
{
	rd->cursor = rd->items.next;
	rd->behind = false;
}

/* Where there are more than READER_ITEMS_MAX. */
void reader_drop_some(struct reader *rd);

#endif
