/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The line of what is to come in tree/reader.h, and how it is fetched ahead; of no use elsewhere. An entry
 * stands in it until it is delivered, and behind a directory's entry what is left of that directory.
 */
#ifndef TREE_READER_ITEM_H
#define TREE_READER_ITEM_H

#include <errno.h>

#include "base/buf.h"
#include "base/list.h"
#include "nfs/names.h"
#include "tree/file.h"
#include "tree/links.h"
#include "tree/reader.h"

#define READER_ITEMS_MAX 8192 /* entries far down the line are dropped, to be read again */

/* Names that are remembered, of all directories that are open: of more, none can begin again. */
#define READER_NAMES_MAX 200000

/* A directory that has been begun and not ended. */
struct reader_folder {
	struct reader_folder *parent;
	struct nfs_handle handle;
	uint64_t fileid; /* by which it is known where its handle is not */
	struct nfs_names names; /* that stand in the line, or have been delivered */
	bool forgets; /* there are more than can be remembered */
	unsigned int times; /* that it has begun again */
	bool replaced; /* its name leads to another directory by now, whose handle this is: it has to */
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
	unsigned int looks; /* again, by name, at what had gone or was changed; at a directory */
	unsigned int rereads; /* of a file that was written to meanwhile */
	unsigned int cuts; /* of a file that turned out to be shorter than it was said to be */
	uint64_t end; /* where it ended then */
	bool kept; /* though it was written to meanwhile */
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
	const struct nfs_attr *root; /* on its file system all of the tree is */
	size_t names; /* that are remembered */
	uint64_t holes; /* bytes of files that are next to nothing else */
	struct tree_links *links;
};

/* Not in the line yet. NULL: no memory. */
struct reader_item *reader_item_new(struct reader *rd, enum reader_item_kind kind,
				    struct reader_folder *folder, const char *name);
void reader_item_free(struct reader_item *item);

/* Of an entry whose handle and attributes are known: what else has to be fetched, or that it is ready. */
int reader_item_settle(struct reader *rd, struct reader_item *item);

/* Reading of its data begins: what it is like is known. */
void reader_item_open(struct reader_item *item);

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

/* -------- reader_file.c -------- */

/*
 * Delivers a file. Returns 0; 1 where it has to be looked at again, as it went away or was written to; or a
 * negative errno with the error set. rd->path is that of the entry.
 */
int reader_send_file(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		     struct error *err);

/* -------- reader_again.c: what was not there any more, or not the same -------- */

/* That of a name or handle which leads to nothing. It may be the truth, and it may pass. */
static inline bool reader_is_gone(int error)
{
	return error == -ENOENT || error == -ESTALE;
}

/* Reports what was answered about something in the tree. Returns r. */
int reader_failed(struct reader *rd, int r, const char *verb, const char *path, struct error *err);

/*
 * Looks the name up, in a directory that is proved to be alive. Returns 1: something is there, and the item
 * comes again; 0: nothing is; or a negative errno with the error set. Only of what is in rd->folder.
 */
int reader_look_again(struct reader *rd, struct reader_item *item, struct error *err);

/*
 * The directory that the sink is in could not be read on: rest->error; or it was, and has been
 * replaced. Returns 1: it, or what is under its name now, comes again; 0: it ends here, as it is
 * gone; or a negative errno with the error set.
 */
int reader_list_again(struct reader *rd, struct reader_item *rest, struct error *err);

#endif
