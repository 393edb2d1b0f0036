/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/copy.h"

#include "tree/builder.h"
#include "tree/reader.h"

int tree_copy(struct tree_work *work, const struct nfs_handle *tree, const struct nfs_attr *attr,
	      const struct nfs_handle *parent, const char *root, bool verify,
	      struct nfs_handle *ret_root, struct error *err)
{
	const struct tree_builder_options to = { .root = root, .verify = verify };
	const struct tree_reader_options from = { .map = false };
	struct tree_builder *b;
	int r;

	if (tree_builder_new(&b, work, parent, &to) < 0)
		return error_oom(err);
	r = tree_read(work, tree, attr, &from, tree_builder_sink(b), err);
	if (r == 0)
		r = tree_builder_finish(b, ret_root, err);
	tree_builder_free(b);
	return r;
}
