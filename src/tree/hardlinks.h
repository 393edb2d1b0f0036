/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Maps each file with several names to the path where it came first. If memory is short, files
 * whose names have all been seen are forgotten first. They are not forgotten at once, because the
 * server's link count may be too low.
 */
#ifndef TREE_HARDLINKS_H
#define TREE_HARDLINKS_H

#include <stdbool.h>

#include "nfs/op.h"

struct tree_hardlinks;

/*
 * Identifies a file. fileid is not enough: it is reused after a file is removed, and two file
 * systems under one fsid (btrfs subvolumes) may both have it. Names with equal handles are one
 * file; its state changes when it is written. Names with different handles may be one file, too,
 * because exports with subtree_check give each name its own handle; or two files, because a file on
 * btrfs and its copy in a snapshot differ in nothing else. tree_hardlinks_settle() says which is
 * true on this server, once it matters.
 */
struct tree_hardlink_id {
	uint64_t fileid, fsid, fsid_minor;
	uint64_t handle, state; /* hashes; state: of size, mtime and ctime */
};

struct tree_hardlink_id tree_hardlink_id_of(const struct nfs_handle *handle,
					    const struct nfs_attr *attr);

/* Remember at most max files at a time. Returns 0 or -ENOMEM. The caller frees. */
int tree_hardlinks_new(struct tree_hardlinks **ret, size_t max);
void tree_hardlinks_free(struct tree_hardlinks *l);

/*
 * Check whether id equals that of a remembered file in all but the handle, and nobody has called
 * tree_hardlinks_settle() yet.
 */
bool tree_hardlinks_are_unsure(struct tree_hardlinks *l, const struct tree_hardlink_id *id);

/* names_differ: one file may have several handles. */
void tree_hardlinks_settle(struct tree_hardlinks *l, bool names_differ);

/*
 * Set *ret to the path where the file came first, valid until the next call. NULL: path is the
 * first, and is remembered if there is room. names: the server's link count, at least 2. Returns 0
 * or -ENOMEM.
 */
int tree_hardlinks_find(struct tree_hardlinks *l, const struct tree_hardlink_id *id, uint32_t names,
			const char *path, const char **ret);

/* Check whether tree_hardlinks_find() would find a path now, and not remember one. */
bool tree_hardlinks_have(struct tree_hardlinks *l, const struct tree_hardlink_id *id);

/* Forget the file, because its first path was not kept. The next path becomes the first. */
void tree_hardlinks_forget(struct tree_hardlinks *l, const struct tree_hardlink_id *id);

#endif
