/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A sink that makes the tree on an export, many operations in flight, on work->to. Directories get
 * their modes and times when all that is in them is there; data is on the server's disk before the
 * file is finished, and that the file has the size that was written is checked. Owners are set
 * where the client is root on the server, as nobody else may: by number, or by the name that they
 * came by (nfs/owner.h), and one that cannot be set is an error. Without them no file becomes
 * setuid or setgid for somebody else than its owner. Times that the protocol cannot tell become the
 * nearest that it can, and are counted.
 *
 * A directory may come again after it has been ended, and one may come without attributes (attr is not
 * full): archives need not be in order. Of anything else that comes twice the later one stays: servers may
 * list a name again while a directory changes. A directory and something else by one name are an error,
 * and so are two names that are one to the server.
 */
#ifndef TREE_BUILDER_H
#define TREE_BUILDER_H

#include "tree/entry.h"

struct tree_builder;

struct tree_builder_options {
	const char *root; /* name of the tree's root in parent, which must not be there yet */
	uint64_t data_max; /* bytes, without blocks of zeros, that are taken; 0: no limit */
	bool verify; /* read files again, and compare checksums; data has to come as for tree/checksum.h */
};

/* The arguments are borrowed for as long as it exists. 0 or -ENOMEM. */
int tree_builder_new(struct tree_builder **ret, struct tree_work *work,
		     const struct nfs_handle *parent, const struct tree_builder_options *options);

/* An error of the sink is that of any entry before, too: there is no telling when one shows. */
struct tree_sink *tree_builder_sink(struct tree_builder *b);

/* Waits until all of the tree is there, and tells the handle of its root. */
int tree_builder_finish(struct tree_builder *b, struct nfs_handle *ret_root, struct error *err);

/* Drains the work. Accepts NULL. */
void tree_builder_free(struct tree_builder *b);

#endif
