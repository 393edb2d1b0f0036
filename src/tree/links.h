/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Files that have several names in a tree: where the first one was. Those of which all names have come are
 * forgotten first, but not at once: servers may count too few.
 */
#ifndef TREE_LINKS_H
#define TREE_LINKS_H

#include "nfs/op.h"

struct tree_links;

/*
 * A file. Its number may become another's when it has gone, and two file systems under one fsid, as subvolumes
 * of btrfs are, may both have it: then neither the handle is the same, nor what it is like. One of them may
 * differ, since exports with subtree_check have a handle for each name, and a file may be written to.
 */
struct tree_link_id {
	uint64_t fileid, fsid, fsid_minor;
	uint64_t handle, state; /* hashes; state is that of size and times, of the change among them */
};

struct tree_link_id tree_link_id_of(const struct nfs_handle *handle, const struct nfs_attr *attr);

/* Of at most max files at a time. 0 or -ENOMEM. The caller frees. */
int tree_links_new(struct tree_links **ret, size_t max);
void tree_links_free(struct tree_links *l);

/*
 * *ret is the path under which the file came first, valid until the next call; NULL when this is the
 * first time, and path is remembered, or when there are too many. names: how many it has, 2 at least, as the
 * server says. 0 or -ENOMEM.
 */
int tree_links_find(struct tree_links *l, const struct tree_link_id *id, uint32_t names,
		    const char *path, const char **ret);

/* What came first has not been kept: the next name is the first one. */
void tree_links_forget(struct tree_links *l, const struct tree_link_id *id);

#endif
