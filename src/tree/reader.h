/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Reads a tree from an export into a sink, depth first. What comes next is fetched ahead, many
 * operations in flight: pages of directories, texts of links, data of files. By handle: no path is
 * resolved, no symbolic link followed. What goes away meanwhile is passed over. Memory is bounded,
 * whatever the tree: what was fetched of a large directory is dropped and read again when there is too
 * much of it.
 *
 * What is on another file system than the root (NetApp's .snapshot, what is mounted below) is left
 * out, but for the directory itself.
 */
#ifndef TREE_READER_H
#define TREE_READER_H

#include "tree/entry.h"

/* Files with several names that are remembered; of more, the further names become copies. */
#define TREE_LINKS_MAX 65536

struct tree_reader_options {
	bool map; /* tell where the data of files that are mostly holes is, which takes a second reading */
	bool count; /* only count files and bytes: the sink is given directories, and nothing else is read */
};

/*
 * Reads what is at the handle, a directory or a file, with its attributes (is_full), on work->from.
 * Returns 0, or a negative errno with the error set: the sink's, or as nfs_error_set().
 */
int tree_read(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
	      const struct tree_reader_options *options, struct tree_sink *sink, struct error *err);

/*
 * Lists the tree, and sets the all_... of work->progress: what tree_read() will come to if the tree stays
 * as it is. May be called by work->report, while that is read. Returns as tree_read().
 */
int tree_count(struct tree_work *work, const struct nfs_handle *root, const struct nfs_attr *attr,
	       struct error *err);

#endif
