/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The stream between the two ends of a copy: entries of a tree, parents before children, and file
 * data in ascending order. Sources: tree/reader.h for a directory on an export, tree_unpack() for
 * an archive. Sinks: tree/builder.h and tree_pack().
 */
#ifndef TREE_ENTRY_H
#define TREE_ENTRY_H

#include "nfs/op.h"
#include "tree/block.h"
#include "tree/xattrs.h"

struct error;

/* A range of data between holes. */
struct tree_segment {
	uint64_t offset, len;
};

/* Valid during the call that it is passed to. */
struct tree_entry {
	const char *path; /* from the root of the tree, no leading slash; "" for the root */
	const char *name; /* last component of path */
	struct nfs_attr attr;
	const char *link; /* text of a symbolic link */
	const char *hardlink_to; /* path of an earlier entry that is the same file; NULL: none */
	bool has_holes; /* file: blocks of zeros may be left out, so set the size */
	bool is_mapped; /* file: only the data in segments follows */
	const struct tree_segment *segments;
	size_t n_segments;
	/* Extended attributes; a sink that keeps them takes a share. NULL: none. */
	struct tree_xattrs *xattrs;
};

/* File data, valid during the call that it is passed to. */
struct tree_piece {
	uint64_t offset; /* in the file */
	const char *data;
	size_t len;
	/* Holds exactly this data: take a share to keep it. NULL: the sink copies the data. */
	struct tree_block *block;
};

/*
 * Each entry is begun, and ended after its contents: the children of a directory, the data of a
 * file. An error ends the stream.
 *
 * copy() may replace the data of a file: the server copies it from the handle, which is valid on
 * the sink's client. Called again for a file that was not cloned, once its segments are known.
 * Returns 1 if it did, 0 if it cannot and the data has to follow, or a negative errno; without an
 * error set, -ERESTART if the sizes do not agree, or -ESTALE if the file is gone. NULL: the sink
 * needs the data.
 *
 * drop() replaces end() if the current entry, a file or a directory without children so far, has
 * changed in the source: undo begin(). The name may come again, as any type. A sink that cannot
 * undo returns -ERESTART with ABORTED: the caller must start over with a new sink.
 */
struct tree_sink {
	int (*begin)(struct tree_sink *sink, const struct tree_entry *entry, struct error *err);
	int (*data)(struct tree_sink *sink, const struct tree_piece *piece, struct error *err);
	int (*end)(struct tree_sink *sink, struct error *err);
	int (*drop)(struct tree_sink *sink, struct error *err);
	int (*copy)(struct tree_sink *sink, const struct tree_entry *entry,
		    const struct nfs_handle *from, struct error *err);
};

#endif
