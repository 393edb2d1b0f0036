/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Reads a tree from an export into a sink, depth first. Directory pages, symbolic links and file
 * data are read ahead, with many operations in flight. Everything goes by handle: no path is
 * resolved and no symbolic link followed. Entries that vanish during the reading are skipped.
 * Memory is bounded for any tree: if too many entries are read ahead, some are dropped and read
 * again. A path longer than TREE_PATH_MAX fails with FAILED_PRECONDITION, unless only counting, and
 * so does a directory that is called work->name.
 *
 * Mount points of the server, and directories on another file system than the root (NetApp's
 * .snapshot), are delivered empty.
 */
#ifndef TREE_READER_H
#define TREE_READER_H

#include "tree/entry.h"
#include "tree/work.h"

/* Files with several names that are remembered. Beyond the limit, each name becomes a copy. */
#define TREE_HARDLINKS_MAX 65536

struct tree_reader_options {
	bool map; /* report the segments of files that are mostly holes, which reads them twice */
	bool count; /* only count files and bytes: the sink gets only directories */
	bool *xattrs_found; /* with count: stop at the first extended attribute and set this */
};

/*
 * Read the directory or file at the handle on work->from; attr: its attributes (is_full). Returns
 * 0, or a negative errno with the error set, by the sink or as nfs_error_set() does.
 */
int tree_read(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
	      const struct tree_reader_options *options, struct tree_sink *sink, struct error *err);

/*
 * List the tree and set the totals all_... of work->progress, as tree_read() would count them. May
 * be called from work->report during tree_read(). Returns as tree_read().
 */
int tree_count(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
	       struct error *err);

/*
 * Like tree_count(), and find out whether anything in the tree has an extended attribute. Ends at
 * the first one, without the totals. Names that cannot be listed count as one.
 */
int tree_find_xattrs(struct tree_work *work, const struct nfs_handle *root,
		     const struct nfs_attr *attr, bool *ret_found, struct error *err);

#endif
