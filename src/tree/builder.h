/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A sink that creates the tree on the export of work->to, with many operations in flight. A
 * directory gets its mode and times after its contents. File data is on the server's disk before
 * the file is finished, and the size is checked. Times that the protocol cannot express become the
 * nearest that it can, and are counted.
 *
 * Owners are set only if the client is root on the server, as nobody else may: by number, or by the
 * name that the source sent (nfs/owner.h). An owner that cannot be set is an error, even if the
 * server answers OK. The reply shows which owner was set. If it does not, a GETATTR finds out:
 * once, and for each set-id file. If owners are not kept, no file becomes setuid or setgid for
 * anybody but its owner.
 *
 * Entries may repeat and directories may come without attributes (attr.is_full is false), because
 * archives need not be in order and servers may list a name twice while a directory changes.
 * Directories are merged; of anything else the later entry stays. A directory and something else
 * under one name are an error, and so are two names that the server takes for the same.
 */
#ifndef TREE_BUILDER_H
#define TREE_BUILDER_H

#include "tree/entry.h"
#include "tree/work.h"

struct tree_builder;

struct tree_builder_options {
	const char *root; /* name of the tree's root in parent; must not exist */
	uint64_t data_max; /* limit of data in bytes, without blocks of zeros; 0: none */
	bool repeats; /* directories may come again, often: remember them */
	bool verify; /* read files back and compare checksums; pieces as for tree/checksum.h */
};

/* Borrows the arguments until tree_builder_free(). Returns 0 or -ENOMEM. */
int tree_builder_new(struct tree_builder **ret, struct tree_work *work,
		     const struct nfs_handle *parent, const struct tree_builder_options *options);

/* Operations finish later: the sink may return the error of an earlier entry. */
struct tree_sink *tree_builder_sink(struct tree_builder *b);

/*
 * Give the root, which is open, the attributes of a later entry: archives may have the entry of
 * their root behind its contents.
 */
void tree_builder_set_root(struct tree_builder *b, const struct nfs_attr *attr);

/* Wait until the tree is complete. */
int tree_builder_finish(struct tree_builder *b, struct error *err);

/* Drains the work. Accepts NULL. */
void tree_builder_free(struct tree_builder *b);

#endif
