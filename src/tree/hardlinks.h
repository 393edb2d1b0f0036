/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Maps each file with several names to the path where it came first. If memory is short, files
 * whose names have all been seen are forgotten first. They are not forgotten at once, because the
 * server's link count may be too low.
 */
#ifndef TREE_HARDLINKS_H
#define TREE_HARDLINKS_H

#include "nfs/op.h"

struct tree_hardlinks;

/*
 * Identifies a file. fileid is not enough: it is reused after a file is removed, and two file
 * systems under one fsid (btrfs subvolumes) may both have it. Then both handle and state differ. If
 * only one of them differs, it is the same file: exports with subtree_check give each name a handle
 * of its own, and the state changes when a file is written.
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
 * Set *ret to the path where the file came first, valid until the next call. NULL: path is the
 * first, and is remembered if there is room. names: the server's link count, at least 2. Returns 0
 * or -ENOMEM.
 */
int tree_hardlinks_find(struct tree_hardlinks *l, const struct tree_hardlink_id *id, uint32_t names,
			const char *path, const char **ret);

/* Forget the file, because its first path was not kept. The next path becomes the first. */
void tree_hardlinks_forget(struct tree_hardlinks *l, const struct tree_hardlink_id *id);

#endif
