/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Removes a directory with its contents, with many operations in flight. Everything goes by handle:
 * paths are not resolved again, symbolic links are removed and not followed, and entries that
 * vanish during the removal are not errors. If the mode of a directory of the tree is in the way,
 * it is set to 0700, once.
 *
 * Whether a directory is a mount point of the server is known before the directory is entered. Such
 * a directory stays, and so do those above it. A directory that somebody moves out of the tree is
 * left alone after about a second, or about ten while the server is slow.
 *
 * Memory is bounded for any depth and width: deep directories are moved up into the root of the
 * tree, where they are found again if the work is interrupted.
 */
#ifndef TREE_REMOVE_H
#define TREE_REMOVE_H

#include "tree/work.h"

/* May be passed to several calls in a row, which add to the counts. */
struct tree_stats {
	uint64_t files; /* everything but directories */
	uint64_t directories;
	uint64_t failed; /* entries that could not be removed, not counting those above them */
	uint64_t borders; /* mount points, which stay */
	uint64_t until_ns; /* when to stop, on clock_now_ns(); 0: when finished */

	/* Called every report_ms; name is tree_remove()'s. May be NULL. */
	void (*report)(const struct tree_stats *stats, const char *name, void *data);
	void *data;
	unsigned int report_ms; /* 0: TREE_REPORT_S */
	uint64_t reported_ns; /* when report was called last */
};

/*
 * Remove the directory name in dir. Returns 0, also if there is none, or a negative errno with the
 * error set:
 *  -ECANCELED with CANCELLED once *cancel is true (cancel may be NULL)
 *  -ETIME with ABORTED after stats->until_ns
 *  -EXDEV with FAILED_PRECONDITION if only mount points are in the way
 *  the first error otherwise; what can be removed is removed anyway
 * stats may be NULL. On the client's thread. Blocks as long as it takes, and after *cancel or
 * until_ns as long as the operations in flight take: see nfs/client.h for their limits.
 */
int tree_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		const atomic_bool *cancel, struct tree_stats *stats, struct error *err);

/*
 * As tree_remove(), for the directory with that handle only: the name may get another directory
 * while the tree is removed, which keeps its contents. The error is ABORTED then.
 */
int tree_remove_known(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		      const struct nfs_handle *known, struct error *err);

#endif
