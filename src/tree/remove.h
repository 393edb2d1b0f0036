/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Removes a directory with all that is in it, many operations in flight. It works by handle: paths
 * are not resolved again, symbolic links are removed and not followed, entries that vanish
 * meanwhile are fine. A directory of the tree whose mode is in the way gets mode 0700, once.
 *
 * It ends at the border of the file system that the tree is on: the file system id of every directory is
 * known before it is entered, and one of another file system stays, with those above it. A directory
 * that somebody has moved out of the tree is left alone from about a second later on.
 *
 * Memory is bounded for every depth and width: directories that are deep are moved up into the root of
 * the tree, where they are found again if the work is interrupted.
 */
#ifndef TREE_REMOVE_H
#define TREE_REMOVE_H

#include "tree/work.h"

/* What has been removed, by several calls if it is given to them. */
struct tree_stats {
	uint64_t files; /* and everything else that is no directory */
	uint64_t directories;
	uint64_t failed; /* entries that could not be removed; not those that stay because of them */
	uint64_t borders; /* directories of other file systems, which stay */

	/* When to end, finished or not; 0: never. On clock_now_ns(). */
	uint64_t until_ns;

	/* Called every TREE_REPORT_S seconds after reported_ns; name is tree_remove()'s. May be NULL. */
	void (*report)(const struct tree_stats *stats, const char *name, void *data);
	void *data;
	uint64_t reported_ns;
};

/*
 * Removes the directory name in dir; 0 too where there is none. cancel, which may be NULL, is looked
 * at between operations: once it is true, nothing more is started and -ECANCELED is returned
 * with CANCELLED; -ETIME with ABORTED where the time is over. What could not be removed is reported, and
 * the rest is removed anyway: the first error is returned, or -EXDEV with FAILED_PRECONDITION where nothing
 * but other file systems was in the way. stats may be NULL. On the client's thread; blocks as long as it
 * takes, but for no single operation longer than NFS_CALL_TIMEOUT_MS.
 */
int tree_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		const atomic_bool *cancel, struct tree_stats *stats, struct error *err);

#endif
