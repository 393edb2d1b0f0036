/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Reads a file sequentially with readahead, on the thread of a tree_work and on work->from. */
#ifndef TREE_FILE_H
#define TREE_FILE_H

#include "base/list.h"
#include "tree/entry.h"
#include "tree/work.h"

struct tree_file {
	struct tree_work *work;
	const struct nfs_handle *handle; /* borrowed */
	uint64_t next; /* offset of the next read */
	uint64_t size; /* where reading ends */
	const struct tree_segment *segments; /* parts to read; NULL: everything */
	size_t n_segments, segment;
	struct list chunks; /* struct tree_chunk, ascending: in flight or finished */
	bool at_end; /* the file turned out to be shorter than size */
	uint64_t end; /* its length, if at_end */
	bool started;
	const struct nfs_attr *before; /* to compare with, borrowed; NULL: don't compare */
	bool changed; /* attributes with or after the data differed from before */
	void (*xattr)(struct nfs_op *op, const char *bytes, uint32_t len); /* see nfs_op */
	void (*listed)(struct tree_file *f, const struct nfs_op *op);
};

struct tree_chunk {
	struct list link;
	struct tree_file *file;
	struct nfs_op op;
	uint64_t offset;
	size_t want, got;
	bool finished;
	bool waits; /* a check that was not sent yet */
	bool lists; /* the extended attributes, too */
	int error;
	struct tree_block *block; /* of want bytes; NULL: the check, a GETATTR after all data */
};

/* Borrows handle until tree_file_done(). */
void tree_file_init(struct tree_file *f, struct tree_work *work, const struct nfs_handle *handle,
		    uint64_t size);

/*
 * Set changed if the file is written to while it is read: compare the attributes that come with the
 * data, and those of a GETATTR after all of it, with before (borrowed). Call it before anything is
 * read.
 */
void tree_file_watch(struct tree_file *f, const struct nfs_attr *before);

/*
 * Let the first READ also list the extended attributes, see nfs_op.xattr; op is the op of a struct
 * tree_chunk. listed() is called when that READ is over, with its result. Call it before anything
 * is read.
 */
void tree_file_list_xattrs(struct tree_file *f,
			   void (*xattr)(struct nfs_op *op, const char *bytes, uint32_t len),
			   void (*listed)(struct tree_file *f, const struct nfs_op *op));

/*
 * Return whether the file was not written to between the two attributes. If the access times
 * differ, the change attribute is ignored: some servers count the new access time of a READ as a
 * change.
 */
bool tree_file_is_same(const struct nfs_attr *before, const struct nfs_attr *after);

/* Read only these parts (borrowed). Call it before anything is read. */
void tree_file_restrict(struct tree_file *f, const struct tree_segment *segments, size_t n);

/*
 * Start reads within the limits. must: start at least one regardless of the limits.
 * Returns 0 or the error of nfs_client_start().
 */
int tree_file_fill(struct tree_file *f, bool must);

/*
 * Wait for the next chunk; release it with tree_file_release(). *ret is NULL at the end. Returns 0
 * or a negative errno; the error is set only if it comes from tree_pump().
 */
int tree_file_next(struct tree_file *f, struct tree_chunk **ret, struct error *err);

/* Read the rest and wait for it. Errors as tree_file_next(), of the first chunk that has one. */
int tree_file_wait(struct tree_file *f, struct error *err);

/* Wait for the first chunk, and leave it for tree_file_next(). Errors as tree_file_next(). */
int tree_file_wait_first(struct tree_file *f, struct error *err);
void tree_file_release(struct tree_chunk *chunk);

/* Return whether a read or the check is in flight. */
bool tree_file_is_busy(const struct tree_file *f);

/* Free the chunks. Nothing may be in flight: call tree_drain() first. */
void tree_file_done(struct tree_file *f);

#endif
