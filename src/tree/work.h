/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The pump of all work on trees: a thread starts operations up to the window of each client and
 * calls tree_pump() to wait for replies. Cancelling, progress reports and waiting for a busy
 * server are done here. One thread per tree_work.
 */
#ifndef TREE_WORK_H
#define TREE_WORK_H

#include <stdatomic.h>

#include "nfs/client.h"
#include "tree/budget.h"

struct tree_chunk; /* of tree/file.h */

#define TREE_REPORT_S 10
#define TREE_DEPTH_MAX 4096 /* nested directories */
#define TREE_PATH_MAX 16384 /* bytes of a path below the root: many may be in memory at a time */

struct tree_progress {
	uint64_t files; /* everything but directories */
	uint64_t directories;
	uint64_t bytes; /* of data */
	uint64_t all_files, all_directories, all_bytes; /* totals; 0: not counted */
	uint64_t changed; /* files kept although they were written to during each read */
	uint64_t vanished; /* entries that were removed during the work */
	uint64_t clamped; /* entries whose time NFSv3 or the target's file system does not have */
	uint64_t times_cut; /* entries whose time libarchive may have cut to 32 bits */
	uint64_t left_out; /* entries not kept: sockets in archives, other file systems */
	uint64_t xattrs_lost; /* extended attributes not kept */
	int xattr_error; /* why the first of them was not; a negative errno */
	uint64_t done, total; /* bytes of the archive that is read; total 0: none */
};

/* report may be NULL; it is called every report_ms and may use the clients. */
struct tree_work {
	struct nfs_client *from, *to; /* may be the same */
	const char *name; /* of the directory that is made, and of no other; NULL: not known */
	/*
	 * NFS_OFFLOAD_ flags to try: CLONE and COPY if handles of from are valid on to, SEEK on
	 * from. Cleared when the server refuses one: it would refuse it for the other files, too.
	 */
	unsigned int offload;
	/*
	 * Whether to read extended attributes on from, and to set them on to. Without to_xattrs,
	 * those that are read count as lost. Cleared when the server refuses them all.
	 */
	bool from_xattrs, to_xattrs;
	bool copies_async; /* the server copies asynchronously */
	/* Whether names of one file have handles of their own on the server; NULL: assume so. */
	bool (*names_differ)(struct nfs_client *from);
	const atomic_bool *cancel; /* may be NULL */
	struct tree_progress progress;
	void (*report)(const struct tree_progress *progress, void *data);
	void *data;
	uint64_t reported_ns;
	unsigned int report_ms; /* 0: TREE_REPORT_S */
	size_t reading, writing; /* operations in flight; each has a window of its own */
	struct tree_purse ahead; /* memory of data that is read ahead */
	/* Checks that wait to be sent together, see file.c: as many as nfs_getattr_max() allows. */
	struct tree_chunk *checks[NFS_GETATTR_MAX];
	size_t n_checks;
	struct tree_purse unwritten; /* memory of data that waits to be written */
	unsigned int patience; /* consecutive waits because the server asked to try later */
	bool wait; /* the server asked to try later */
	uint64_t wake_ns; /* tree_pump() returns then, even if nothing is in flight; 0: never */
	bool progressed; /* an operation has finished since tree_pump() last looked */
	struct tree_work *outer; /* work whose report() runs this one; both get replies then */
};

/*
 * Return -ECANCELED with CANCELLED if the work was cancelled, else 0. Call it in long loops that
 * do not call tree_pump().
 */
int tree_check_cancel(const struct tree_work *work, struct error *err);

/*
 * Wait until an operation has finished, or for wake_ns, see nfs_client_run_pair(). May return
 * early, after a report or a wait that the server asked for; call in a loop. Returns 0, the result
 * of tree_check_cancel(), or the transport's errno without an error set.
 */
int tree_pump(struct tree_work *work, struct error *err);

/* For long work without operations: take replies that have come, report. Returns as tree_pump(). */
int tree_poll(struct tree_work *work, struct error *err);

/*
 * Wait for all operations in flight, because they point into memory that is about to be freed.
 * Aborts the connections if that takes longer than NFS_CALL_TIMEOUT_MS or the work is cancelled.
 */
void tree_drain(struct tree_work *work);

/*
 * Wait for the reads only; writes go on. abort_slow: abort the connections as tree_drain() does.
 * Pass it only if the writes in flight are useless too.
 */
void tree_drain_reads(struct tree_work *work, bool abort_slow);

/* Account for a reply. in_flight is &work->reading or &work->writing. */
void tree_op_returned(struct tree_work *work, size_t *in_flight, const struct nfs_op *op);

/*
 * Return whether to repeat an operation that ended with this error: the server asked to try later,
 * and the patience is not used up. tree_pump() does the waiting.
 */
bool tree_should_retry(struct tree_work *work, int error);

#endif
