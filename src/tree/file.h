/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Reads a file from one end to the other, ahead of who wants the data. Part of a tree_work, on its
 * thread; reads on work->from.
 */
#ifndef TREE_FILE_H
#define TREE_FILE_H

#include "base/list.h"
#include "tree/entry.h"

/* What is read ahead takes at the most, of all files of a tree_work together. */
#define TREE_FETCHED_MAX (4U * 1024 * 1024)

struct tree_file {
	struct tree_work *work;
	const struct nfs_handle *handle; /* borrowed */
	uint64_t next; /* where the next read starts */
	uint64_t size; /* and where reading ends */
	const struct tree_segment *segments; /* the parts to read; NULL: everything */
	size_t n_segments, segment;
	struct list chunks; /* of struct tree_chunk, ascending: in flight or finished */
	bool at_end; /* the file turned out to be shorter */
	uint64_t end; /* where it ended then */
	bool started;
	const struct nfs_attr *before; /* what it was like before it was read; NULL: nobody asks. Borrowed */
	bool changed; /* it has not been like that all the time */
	bool unsure; /* the server does not tell with the data */
};

struct tree_chunk {
	struct list link;
	struct tree_file *file;
	struct nfs_op op;
	uint64_t offset;
	size_t want, got;
	bool finished;
	int error;
	struct tree_block *block; /* of as much as was wanted */
};

/* handle is borrowed for as long as the file is used. */
void tree_file_init(struct tree_file *f, struct tree_work *work, const struct nfs_handle *handle,
		    uint64_t size);

/* Before anything is read: sets changed, or unsure, as what comes with the data tells. Borrowed. */
void tree_file_watch(struct tree_file *f, const struct nfs_attr *before);

/*
 * Whether nothing was written between two looks. Of a server's change attribute no more than its times tell
 * where the time of access differs: some count that as a change, and reading sets it.
 */
bool tree_file_is_same(const struct nfs_attr *before, const struct nfs_attr *after);

/* Reads only these parts; before anything is read. Borrowed. */
void tree_file_restrict(struct tree_file *f, const struct tree_segment *segments, size_t n);

/*
 * Starts reading ahead, as far as the limits allow; must: at least one read, whatever they say.
 * Returns 0 or what nfs_client_start() does.
 */
int tree_file_fill(struct tree_file *f, bool must);

/*
 * Waits for the next chunk. *ret stays valid until tree_file_release(); NULL at the end. Returns a
 * negative errno, unreported unless it is of tree_pump().
 */
int tree_file_next(struct tree_file *f, struct tree_chunk **ret, struct error *err);

/* Starts and waits for all that is left. As tree_file_next(), with the error of the first chunk that has one. */
int tree_file_wait(struct tree_file *f, struct error *err);

/* Waits for the first chunk, which tree_file_next() then has. Its error, too. */
int tree_file_wait_first(struct tree_file *f, struct error *err);
void tree_file_release(struct tree_file *f, struct tree_chunk *chunk);

/* Whether something is in flight. */
bool tree_file_is_busy(const struct tree_file *f);

/* Frees; nothing may be in flight (tree_drain()). */
void tree_file_done(struct tree_file *f);

#endif
