/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What passes from one end of a copy to the other: a tree as a stream of entries, parents before
 * what is in them, and data in ascending order. tree/reader.h makes it of a directory on an
 * export, tree/unpack.h of an archive; tree/builder.h and tree/pack.h take it.
 */
#ifndef TREE_ENTRY_H
#define TREE_ENTRY_H

#include <stdatomic.h>

#include "nfs/client.h"
#include "tree/block.h"

/* Data between holes. */
struct tree_segment {
	uint64_t offset, len;
};

/* Borrowed by those who are given it, during the call. */
struct tree_entry {
	const char *path; /* from the root of the tree, without a slash in front; "" for the root */
	const char *name; /* its last component */
	struct nfs_attr attr;
	const char *link; /* of a symbolic link: its text */
	const char *same_as; /* path of an earlier entry that is the same file; NULL: none */
	bool has_holes; /* a file: blocks of zeros need not be written, and the size has to be set */
	bool is_mapped; /* a file: segments tells where its data is, and only that follows */
	const struct tree_segment *segments;
	size_t n_segments;
};

/* Data of a file, borrowed during the call. */
struct tree_piece {
	uint64_t offset; /* in the file */
	const char *data;
	size_t len;
	/* Of which this is all, to be shared by who needs it for longer; NULL: that takes a copy. */
	struct tree_block *block;
};

/*
 * Each entry is begun, and ended when all that is in it has been: the children of a directory, the
 * data of a file. An error ends the stream.
 *
 * drop() takes the place of end() where the source has changed under what was begun, a file or a directory
 * that nothing has been begun in: as if that had not been. It may come again then, as whatever it is by then.
 * A sink that cannot take it back answers -ERESTART, with ABORTED: all of it has to be made anew.
 */
struct tree_sink {
	int (*begin)(struct tree_sink *sink, const struct tree_entry *entry, struct error *err);
	int (*data)(struct tree_sink *sink, const struct tree_piece *piece, struct error *err);
	int (*end)(struct tree_sink *sink, struct error *err);
	int (*drop)(struct tree_sink *sink, struct error *err);
};

/* What has been done so far. */
struct tree_progress {
	uint64_t files; /* and everything else that is no directory */
	uint64_t directories;
	uint64_t bytes; /* of data */
	uint64_t all_files, all_directories, all_bytes; /* that there are; 0: they were not counted */
	uint64_t changed; /* files that were written to each time they were read, and kept so */
	uint64_t vanished; /* entries that went away meanwhile */
	uint64_t clamped; /* entries whose time NFSv3 cannot tell, and that have the nearest one */
	uint64_t left_out; /* what cannot be kept: sockets in archives, other file systems */
	uint64_t done, total; /* bytes of an archive that is read; 0: there is none */
};

/*
 * What one thread of work needs: the clients on which operations are in flight, and how it is told
 * to end. report, which may be NULL, is called every TREE_REPORT_S seconds; it may use the clients.
 */
struct tree_work {
	struct nfs_client *from, *to; /* may be the same */
	const atomic_bool *cancel; /* may be NULL */
	struct tree_progress progress;
	void (*report)(const struct tree_progress *progress, void *data);
	void *data;
	uint64_t reported_ns;
	size_t reading, writing; /* operations in flight of either end: each has a window of its own */
	size_t fetched; /* bytes that data which is read ahead takes */
	unsigned int patience; /* how often the server has asked to wait, and nothing else */
	bool wait;
	bool moved; /* something else than that was answered */
	struct tree_work *outer; /* in whose report this is done, and whose operations go on; may be NULL */
};

#define TREE_REPORT_S 10
#define TREE_DEPTH_MAX 4096 /* directories inside each other */

/* Whether TREE_REPORT_S have passed since *reported_ns, which then becomes now. */
bool tree_is_report_due(uint64_t *reported_ns);

/* -ECANCELED with CANCELLED where the work is to end, else 0. For long stretches without tree_pump(). */
int tree_check_cancel(const struct tree_work *work, struct error *err);

/*
 * Waits until an operation has finished, or for a while where the server has asked to try later, or reports.
 * So what the caller waits for may not have come. As tree_check_cancel(), or the transport's error, unreported.
 */
int tree_pump(struct tree_work *work, struct error *err);

/*
 * Waits for all operations of this work that are in flight, which point into what is about to be freed. They
 * are cut off, with their connections, when that takes long or the work has been cancelled.
 */
void tree_drain(struct tree_work *work);

/*
 * Waits for the reads alone. Writes go on, however long they take: so the connections are not cut off for
 * the time that it takes, but where soon is set, as what is read is of no use any more.
 */
void tree_drain_reads(struct tree_work *work, bool soon);

/* For each operation that was counted by in_flight, which is reading or writing, in its reply. */
void tree_op_returned(struct tree_work *work, size_t *in_flight, const struct nfs_op *op);

/*
 * Whether an operation that ended with this error is to be started again: the server asked to try
 * later, and has not done so too often.
 */
bool tree_is_to_be_retried(struct tree_work *work, int error);

#endif
