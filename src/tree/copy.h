/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Copies a tree from one export to another, or within one. */
#ifndef TREE_COPY_H
#define TREE_COPY_H

#include "tree/work.h"

/*
 * Copy the tree at the handle to a new directory or file named root in parent. verify: read the
 * copied files back and compare checksums. Returns 0, or a negative errno with the error set; then
 * parts of the copy may be left behind.
 */
int tree_copy(struct tree_work *work, const struct nfs_handle *tree, const struct nfs_attr *attr,
	      const struct nfs_handle *parent, const char *root, bool verify, struct error *err);

/*
 * As tree_copy(), into a new directory named folder in parent, which only its owner can enter: so
 * nobody else gets at the copy, and its own mode stays exact.
 */
int tree_copy_to_folder(struct tree_work *work, const struct nfs_handle *tree,
			const struct nfs_attr *attr, const struct nfs_handle *parent,
			const char *folder, const char *root, bool verify, struct error *err);

#endif
