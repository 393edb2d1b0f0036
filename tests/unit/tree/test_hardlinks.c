/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/hardlinks.h"
#include "check_util.h"

/* A name: which handle and state it has. Inode number and file system are all the same. */
struct name {
	const char *path;
	char handle;
	uint64_t size;
	const char *first; /* NULL: it is the first of its file */
};

static const struct {
	const char *name;
	bool names_differ, unsure;
	struct name names[6];
} rows[] = {
	{ "one handle",
	  false,
	  false,
	  { { "a/f", 1, 1, NULL }, { "a/g", 1, 1, "a/f" }, { "b/f", 1, 2, "a/f" } } },
	{ "a handle for each name",
	  true,
	  true,
	  { { "a/f", 1, 1, NULL }, { "b/f", 2, 1, "a/f" }, { "c/f", 3, 1, "a/f" } } },
	{ "another file with the number",
	  true,
	  false,
	  { { "a/f", 1, 1, NULL }, { "b/f", 2, 2, NULL }, { "b/g", 2, 2, "b/f" } } },
	{ "a snapshot",
	  false,
	  true,
	  { { "a/f", 1, 1, NULL },
	    { "a/g", 1, 1, "a/f" },
	    { "b/f", 2, 1, NULL },
	    { "b/g", 2, 1, "b/f" } } },
	{ "a snapshot between the names",
	  false,
	  true,
	  { { "f", 1, 1, NULL },
	    { "snapshot/f", 2, 1, NULL },
	    { "snapshot/g", 2, 1, "snapshot/f" },
	    { "g", 1, 1, "f" } } },
};

START_TEST(test_names)
{
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct tree_hardlinks *l;
		bool unsure = false;

		ck_assert_int_eq(tree_hardlinks_new(&l, 100), 0);
		for (j = 0; j < ARRAY_SIZE(rows[i].names) && rows[i].names[j].path != NULL; j++) {
			const struct name *name = &rows[i].names[j];
			const struct nfs_handle handle = { .len = 1, .data = { name->handle } };
			const struct nfs_attr attr = { .fileid = 7, .size = name->size };
			const struct tree_hardlink_id id = tree_hardlink_id_of(&handle, &attr);
			const char *first;

			if (tree_hardlinks_are_unsure(l, &id)) {
				check_that(rows[i].name, "asked once", !unsure);
				unsure = true;
				tree_hardlinks_settle(l, rows[i].names_differ);
			}
			ck_assert_int_eq(tree_hardlinks_find(l, &id, 2, name->path, &first), 0);
			check_str(rows[i].name, name->path, first, name->first);
		}
		check_int(rows[i].name, "unsure", unsure, rows[i].unsure);
		tree_hardlinks_free(l);
	}
}
END_TEST

CHECK_MAIN("hardlinks", .tests = { test_names })
