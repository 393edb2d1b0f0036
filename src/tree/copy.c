/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/copy.h"

#include "nfs/calls.h"
#include "tree/builder.h"
#include "tree/reader.h"

#define FOLDER_MODE 0700 /* as that of an archive */

int tree_copy(struct tree_work *work, const struct nfs_handle *tree, const struct nfs_attr *attr,
	      const struct nfs_handle *parent, const char *root, bool verify, struct error *err)
{
	const struct tree_builder_options to = { .root = root, .verify = verify };
	const struct tree_reader_options from = { .map = false };
	struct tree_builder *b;
	int r;

	if (tree_builder_new(&b, work, parent, &to) < 0)
		return error_oom(err);
	r = tree_read(work, tree, attr, &from, tree_builder_sink(b), err);
	if (r == 0)
		r = tree_builder_finish(b, err);
	tree_builder_free(b);
	return r;
}

static int make_copy_folder(struct nfs_client *c, const struct nfs_handle *parent, const char *name,
			    struct nfs_handle *ret, struct error *err)
{
	struct nfs_attr attr;
	int r = nfs_mkdir(c, parent, name, FOLDER_MODE, ret, &attr);

	if (r == 0)
		r = nfs_stat(c, ret, &attr);
	/* The server may add bits, such as the setgid bit of the directory above. */
	if (r == 0 && attr.mode != FOLDER_MODE)
		r = nfs_setmode(c, ret, FOLDER_MODE);
	return r < 0 ? nfs_error_set(err, c, r, "making the directory '%s'", name) : 0;
}

int tree_copy_to_folder(struct tree_work *work, const struct nfs_handle *tree,
			const struct nfs_attr *attr, const struct nfs_handle *parent,
			const char *folder, const char *root, bool verify, struct error *err)
{
	struct nfs_handle handle;
	int r = make_copy_folder(work->to, parent, folder, &handle, err);

	return r < 0 ? r : tree_copy(work, tree, attr, &handle, root, verify, err);
}
