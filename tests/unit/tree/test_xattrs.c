/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Extended attributes in clones, archives and restored trees. */

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>

#include "base/cleanup.h"
#include "tree/archive.h"
#include "tree/copy.h"
#include "tree/reader.h"
#include "tree_util.h"

#define OPERATION(TYPE) (1U << NFS_OP_##TYPE)
#define XATTRS 12 /* in new_tree(), of the target a hard link */

static const struct fake_habits usual = { .page = 5,
					  .entries = FAKE_ENTRIES_MIXED,
					  .xattrs = true };

static char large[60 * KIB];

/* On the root, on directories and on files. */
static const struct {
	const char *path, *name, *value; /* of the path what follows the root's */
	size_t len;
} attributes[] = {
	{ "", "of the root", "r", 1 },
	{ "/deep", "a", "1", 1 },
	{ "/deep/er", "a", "2", 1 },
	{ "/deep/er", "caf\303\251", "3", 1 },
	{ "/empty", "nothing", "", 0 },
	{ "/empty", "bytes", "\0\n=%", 4 },
	{ "/small", "a", "of a file with several names", 28 },
	{ "/deep/er/setuid", "x=y%41", "odd", 3 },
	{ "/end", "1", "1", 1 },
	{ "/end", "2", "2", 1 },
	{ "/end", "3", large, sizeof(large) },
	{ "/end", "4", "4", 1 },
};

static void set_attributes(struct fake_nfs *f, const char *root, bool present)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(attributes); i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "%s%s", root, attributes[i].path);
		fake_nfs_set_xattr(f, path, attributes[i].name,
				   present ? attributes[i].value : NULL, attributes[i].len);
	}
}

/* Every kind of entry, with the attributes. */
static struct fake_nfs *new_tree(void)
{
	struct fake_nfs *f = fake_nfs_new();

	memset(large, 'x', sizeof(large));
	fake_nfs_habits(f, &usual);
	tree_put(f);
	set_attributes(f, "tree", true);
	return f;
}

struct result {
	struct tree_progress progress;
	bool from_xattrs, to_xattrs; /* at the end */
	struct error err;
	int r;
};

static void result_of(struct result *ret, const struct tree_work *work, int r)
{
	ret->r = r;
	ret->progress = work->progress;
	ret->from_xattrs = work->from_xattrs;
	ret->to_xattrs = work->to_xattrs;
	check_int("work", "operations left in flight", work->reading + work->writing, 0);
	check_int("work", "bytes left", work->ahead.held + work->unwritten.held, 0);
	check_that("work", "an error is reported", (r < 0) == (ret->err.code != ERROR_OK));
}

/* Copy "tree" to "copy" in the parent, as the user. */
static void copy_as(struct fake_nfs *f, uint32_t uid, const struct nfs_handle *parent,
		    bool to_xattrs, struct result *ret)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c, .from_xattrs = true, .to_xattrs = to_xattrs };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	*ret = (struct result){ .r = 0 };
	c->export.uid = c->export.gid = uid;
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	r = tree_copy(&work, &handle, &attr, parent != NULL ? parent : &c->root, "copy", false,
		      &ret->err);
	result_of(ret, &work, r);
}

static void copy(struct fake_nfs *f, bool to_xattrs, struct result *ret)
{
	copy_as(f, 0, NULL, to_xattrs, ret);
}

static unsigned int count(unsigned int types)
{
	const struct fake_failure none = { .types = types };
	struct fake_nfs *f = new_tree();
	struct result got;
	unsigned int n;

	fake_nfs_fail(f, &none);
	copy(f, true, &got);
	n = fake_nfs_operations(f);
	ck_assert_msg(got.r == 0, "%s", got.err.msg);
	check_int("all", "lost", got.progress.xattrs_lost, 0);
	tree_check_same("all", f, "tree", f, "copy");
	fake_nfs_free(f);
	return n;
}

START_TEST(test_copy)
{
	check_int("copy", "set", count(OPERATION(SETXATTR)), XATTRS);
	/* One file has three names. */
	check_int("copy", "read", count(OPERATION(GETXATTR)), XATTRS + 2);
}
END_TEST

static void set_more(struct fake_nfs *f, const char *path, const char *value)
{
	char name[] = "n0";

	for (; name[1] < '0' + 9; name[1]++)
		fake_nfs_set_xattr(f, path, name, value, sizeof(large));
}

static void fill_one(struct fake_nfs *f)
{
	set_more(f, "tree/end", large);
}

/* Compare all but the attributes. */
static void check_rest(const char *row, struct fake_nfs *f)
{
	set_attributes(f, "tree", false);
	set_attributes(f, "copy", false);
	set_more(f, "tree/end", NULL);
	set_more(f, "copy/end", NULL);
	tree_check_same(row, f, "tree", f, "copy");
}

/* What is lost is counted, and the rest of the copy is as it should be. */
START_TEST(test_losses)
{
	static const struct {
		const char *name;
		struct fake_habits habits;
		bool to_xattrs;
		struct fake_failure failure;
		void (*prepare)(struct fake_nfs *f);
		uint64_t lost;
		int error;
		bool from_after, to_after;
	} rows[] = {
		{ .name = "the target has none",
		  .habits = { .page = 5, .xattrs = true },
		  .lost = XATTRS,
		  .error = -EOPNOTSUPP,
		  .from_after = true },
		{ .name = "the source has none after all",
		  .habits = { .page = 5 },
		  .to_xattrs = true,
		  .lost = 1,
		  .error = -EOPNOTSUPP,
		  .to_after = true },
		{ .name = "the source refuses once",
		  .habits = { .page = 5, .xattrs = true },
		  .to_xattrs = true,
		  .failure = { 3, -EOPNOTSUPP, false, false, OPERATION(LISTXATTRS) },
		  .lost = 1,
		  .error = -EOPNOTSUPP,
		  .from_after = true,
		  .to_after = true },
		{ .name = "the target refuses all",
		  .habits = { .page = 5, .xattrs = true },
		  .to_xattrs = true,
		  .failure = { 1, -EOPNOTSUPP, false, true, OPERATION(SETXATTR) },
		  .lost = XATTRS,
		  .error = -EOPNOTSUPP,
		  .from_after = true },
		{ .name = "no room",
		  .habits = { .page = 5, .xattrs = true },
		  .to_xattrs = true,
		  .failure = { 1, -ENOSPC, false, true, OPERATION(SETXATTR) },
		  .lost = XATTRS,
		  .error = -ENOSPC,
		  .from_after = true,
		  .to_after = true },
		{ .name = "a value is too large",
		  .habits = { .page = 5, .xattrs = true, .xattr_max = 1024 },
		  .to_xattrs = true,
		  .lost = 1,
		  .error = -E2BIG,
		  .from_after = true,
		  .to_after = true },
		{ .name = "a value does not fit a reply",
		  .habits = { .page = 5, .xattrs = true },
		  .to_xattrs = true,
		  .failure = { 3, -ERANGE, false, false, OPERATION(GETXATTR) },
		  .lost = 1,
		  .error = -ERANGE,
		  .from_after = true,
		  .to_after = true },
		{ .name = "names cannot be read",
		  .habits = { .page = 5, .xattrs = true },
		  .to_xattrs = true,
		  .failure = { 1, -EACCES, false, false, OPERATION(LISTXATTRS) },
		  .lost = 1,
		  .error = -EACCES,
		  .from_after = true,
		  .to_after = true },
		{ .name = "more than an entry may have",
		  .habits = { .page = 5, .xattrs = true },
		  .to_xattrs = true,
		  .prepare = fill_one,
		  .lost = 2,
		  .error = -E2BIG,
		  .from_after = true,
		  .to_after = true },
		{ .name = "a reply is lost for now",
		  .habits = { .page = 5, .xattrs = true },
		  .to_xattrs = true,
		  .failure = { 2, -EAGAIN, false, false,
			       OPERATION(LISTXATTRS) | OPERATION(SETXATTR) },
		  .from_after = true,
		  .to_after = true },
		{ .name = "removed since it was listed",
		  .habits = { .page = 5, .xattrs = true },
		  .to_xattrs = true,
		  .failure = { 2, -ENODATA, false, false, OPERATION(GETXATTR) },
		  .from_after = true,
		  .to_after = true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = new_tree();
		struct result got;

		if (rows[i].prepare != NULL)
			rows[i].prepare(f);
		fake_nfs_habits(f, &rows[i].habits);
		fake_nfs_fail(f, &rows[i].failure);
		copy(f, rows[i].to_xattrs, &got);
		ck_assert_msg(got.r == 0, "%s: %s", rows[i].name, got.err.msg);
		check_int(rows[i].name, "lost", got.progress.xattrs_lost, rows[i].lost);
		check_int(rows[i].name, "error", got.progress.xattr_error, rows[i].error);
		check_int(rows[i].name, "source", got.from_xattrs, rows[i].from_after);
		check_int(rows[i].name, "target", got.to_xattrs, rows[i].to_after);
		check_rest(rows[i].name, f);
		fake_nfs_free(f);
	}
}
END_TEST

/* Attributes for which there is no room at present are not lost: the call fails. */
START_TEST(test_full)
{
	static const struct {
		const char *name;
		bool is_full;
		int error;
	} rows[] = {
		{ "file system", true, -ENOSPC },
		{ "quota", false, -EDQUOT },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_habits habits = { .page = 5,
						    .xattrs = true,
						    .is_full = rows[i].is_full };
		struct fake_nfs *f = new_tree();
		struct result got;

		fake_nfs_habits(f, &habits);
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 2,
							 .error = rows[i].error,
							 .types = OPERATION(SETXATTR) });
		copy(f, true, &got);
		check_int(rows[i].name, "result", got.r, rows[i].error);
		check_error(rows[i].name, &got.err, ERROR_RESOURCE_EXHAUSTED, "attributes");
		check_int(rows[i].name, "lost", got.progress.xattrs_lost, 0);
		fake_nfs_free(f);
	}
}
END_TEST

/* Somebody makes room between the SETXATTR that fails and the FSSTAT: nothing is lost. */
START_TEST(test_room_is_made)
{
	struct fake_nfs *f = new_tree();
	unsigned int n;

	for (n = 1; n < 4; n++) {
		struct result got;

		fake_nfs_habits(f, &usual);
		fake_nfs_fail(f, &(struct fake_failure){ .nth = n,
							 .error = -ENOSPC,
							 .types = OPERATION(SETXATTR) });
		copy(f, true, &got);
		check_int("room", "result", got.r, 0);
		check_int("room", "lost", got.progress.xattrs_lost, 0);
		fake_nfs_remove(f, "copy");
	}
	fake_nfs_free(f);
}
END_TEST

/* Whether there is room may not be found out. */
START_TEST(test_room_unknown)
{
	struct fake_nfs *f = new_tree();
	struct result got;

	fake_nfs_habits(f, &usual);
	fake_nfs_fail(f,
		      &(struct fake_failure){ .nth = 1,
					      .error = -ENOSPC,
					      .all = true,
					      .types = OPERATION(SETXATTR) | OPERATION(FSSTAT) });
	copy(f, true, &got);
	check_int("no FSSTAT", "result", got.r, -ENOSPC);
	check_int("no FSSTAT", "lost", got.progress.xattrs_lost, 0);
	fake_nfs_free(f);
}
END_TEST

/* A listing without an end ends nevertheless. */
START_TEST(test_stuck)
{
	const struct fake_habits habits = { .page = 5, .xattrs = true, .xattr_stuck = true };
	struct fake_nfs *f = fake_nfs_new();
	struct result got;

	fake_nfs_write(f, "tree/file", 0, "", 0);
	fake_nfs_set_xattr(f, "tree/file", "a", "1", 1);
	fake_nfs_habits(f, &habits);
	copy(f, true, &got);
	ck_assert_msg(got.r == 0, "%s", got.err.msg);
	check_that("stuck", "it is said", got.progress.xattrs_lost >= 1);
	fake_nfs_free(f);
}
END_TEST

/* A list that cannot be continued is read again once, from its start. Then its names are lost. */
START_TEST(test_relisted)
{
	static const struct fake_habits habits = { .page = 5, .xattrs = true };
	static const struct {
		const char *name;
		struct fake_failure failure;
		bool is_lost;
	} rows[] = {
		{ "once", { .nth = 1, .error = -ERESTART, .types = OPERATION(LISTXATTRS) }, false },
		{ "each time",
		  { .nth = 1, .error = -ERESTART, .all = true, .types = OPERATION(LISTXATTRS) },
		  true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct result got;

		fake_nfs_write(f, "tree/file", 0, "", 0);
		fake_nfs_set_xattr(f, "tree/file", "a", "1", 1);
		fake_nfs_set_xattr(f, "tree/file", "b", "2", 1);
		fake_nfs_habits(f, &habits);
		fake_nfs_fail(f, &rows[i].failure);
		copy(f, true, &got);
		ck_assert_msg(got.r == 0, "%s: %s", rows[i].name, got.err.msg);
		check_that(rows[i].name, "lost", (got.progress.xattrs_lost > 0) == rows[i].is_lost);
		if (!rows[i].is_lost)
			tree_check_same(rows[i].name, f, "tree", f, "copy");
		fake_nfs_free(f);
	}
}
END_TEST

/* A connection that breaks at any of these operations ends the copy with an error. */
START_TEST(test_broken)
{
	static const unsigned int types =
		OPERATION(LISTXATTRS) | OPERATION(GETXATTR) | OPERATION(SETXATTR);
	const unsigned int n = count(types);
	unsigned int i;

	for (i = 1; i <= n; i++) {
		const struct fake_failure failure = { i, -ECONNABORTED, false, false, types };
		struct fake_nfs *f = new_tree();
		struct result got;

		fake_nfs_fail(f, &failure);
		copy(f, true, &got);
		check_int("broken", "result", got.r, -ECONNABORTED);
		check_int("broken", "lost", got.progress.xattrs_lost, 0);
		fake_nfs_free(f);
	}
}
END_TEST

/* The owner of a file that he may not write to sets its attributes, and the mode stays. */
START_TEST(test_read_only)
{
	const struct fake_habits habits = { .page = 5, .modes = true, .xattrs = true };
	struct fake_nfs *f = fake_nfs_new();
	const struct nfs_attr mine = { .mode = 0500, .uid = 1000, .gid = 1000 };
	struct nfs_handle home;
	struct nfs_attr unused;
	struct result got;

	fake_nfs_write(f, "tree/file", 0, "data", 4);
	fake_nfs_set_xattr(f, "tree/file", "a", "1", 1);
	fake_nfs_set_xattr(f, "tree", "b", "2", 1);
	fake_nfs_set(f, "tree/file", &mine);
	fake_nfs_set(f, "tree", &mine);
	fake_nfs_put(f, "home", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_set(f, "home", &(struct nfs_attr){ .mode = 0700, .uid = 1000 });
	ck_assert(fake_nfs_get(f, "home", &home, &unused));
	fake_nfs_habits(f, &habits);
	copy_as(f, 1000, &home, true, &got);
	ck_assert_msg(got.r == 0, "%s", got.err.msg);
	check_int("read-only", "lost", got.progress.xattrs_lost, 0);
	tree_check_same("read-only", f, "tree", f, "home/copy");
	fake_nfs_free(f);
}
END_TEST

/* Return whether a look at the tree found any. The names are listed by types. */
static int look(struct fake_nfs *f, bool *ret_found, struct tree_progress *ret, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	*ret_found = false;
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	r = tree_find_xattrs(&work, &handle, &attr, ret_found, err);
	check_int("find", "operations left in flight", work.reading, 0);
	check_int("find", "bytes left", work.ahead.held, 0);
	*ret = work.progress;
	return r;
}

static bool find(struct fake_nfs *f, struct tree_progress *ret)
{
	struct error err = { .code = ERROR_OK };
	bool found;
	int r = look(f, &found, ret, &err);

	ck_assert_msg(r == 0 && err.code == ERROR_OK, "%s", err.msg);
	return found;
}

/* As callers take it: a look that fails tells nothing. */
static bool may_have(struct fake_nfs *f, struct tree_progress *ret)
{
	struct error err = { .code = ERROR_OK };
	bool found;

	return look(f, &found, ret, &err) < 0 || found;
}

START_TEST(test_find)
{
	static const char *const paths[] = { "tree", "tree/deep/er", "tree/deep/er/\303\274" };
	const struct fake_failure refused = { 5, -EACCES, false, false, OPERATION(LISTXATTRS) };
	struct fake_nfs *f = fake_nfs_new();
	struct tree_progress got;
	size_t i;

	fake_nfs_habits(f, &usual);
	tree_put(f);
	check_that("none", "nothing is found", !find(f, &got));
	check_int("none", "files are counted", got.all_files, 15);
	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		fake_nfs_set_xattr(f, paths[i], "a", "", 0);
		check_that(paths[i], "it is found", find(f, &got));
		fake_nfs_set_xattr(f, paths[i], "a", NULL, 0);
	}
	fake_nfs_fail(f, &refused);
	check_that("refused", "it may have one", find(f, &got));
	fake_nfs_fail(f, NULL);
	fake_nfs_habits(f, &(struct fake_habits){ .page = 5 });
	check_that("the server refuses all", "they may have some", find(f, &got));
	fake_nfs_free(f);
}
END_TEST

/* Whatever cannot be looked at may have some, although nothing else has any. */
START_TEST(test_find_less)
{
	static const unsigned int types[] = { OPERATION(LISTXATTRS), OPERATION(READDIR) };
	static const int errors[] = { -ESTALE, -ENOENT, -EREMOTEIO, -EIO };
	struct fake_nfs *f = fake_nfs_new();
	size_t i, j;

	fake_nfs_habits(f, &usual);
	tree_put(f);
	for (i = 0; i < ARRAY_SIZE(types); i++)
		for (j = 0; j < ARRAY_SIZE(errors); j++) {
			unsigned int n;

			for (n = 1; n <= 6; n++) {
				const struct fake_failure failure = { n, errors[j], false, false,
								      types[i] };
				struct tree_progress got;
				char row[64];

				(void)snprintf(row, sizeof(row), "kind %zu, %d, %u", i, errors[j],
					       n);
				fake_nfs_fail(f, &failure);
				check_that(row, "they may have some", may_have(f, &got));
				check_that(row, "it failed", fake_nfs_operations(f) >= n);
			}
		}
	fake_nfs_free(f);
}
END_TEST

static void count_set(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *n = data;

	(void)f;
	*n += op->type == NFS_OP_SETXATTR;
}

/* The target refuses one in the middle: what is not set is counted. */
START_TEST(test_refused_later)
{
	unsigned int nth;

	for (nth = 1; nth <= XATTRS; nth++) {
		const struct fake_failure failure = { nth, -EOPNOTSUPP, false, false,
						      OPERATION(SETXATTR) };
		struct fake_nfs *f = new_tree();
		unsigned int tried = 0;
		struct result got;

		fake_nfs_habits(f, &usual);
		fake_nfs_fail(f, &failure);
		fake_nfs_watch(f, count_set, &tried);
		copy(f, true, &got);
		ck_assert_msg(got.r == 0, "%s", got.err.msg);
		check_int("refused", "set and lost", tried - 1 + got.progress.xattrs_lost, XATTRS);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- a source that changes -------- */

static void change_at_read(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	bool *done = data;

	if (op->type != NFS_OP_READ || *done)
		return;
	*done = true;
	fake_nfs_set_xattr(f, "tree/small", "a", "another", 7);
	fake_nfs_set_xattr(f, "tree/small", "late", "later", 5);
}

/* An attribute that is set while the file is read counts as a change of the file. */
START_TEST(test_changed)
{
	struct fake_nfs *f = fake_nfs_new();
	struct result got;
	bool done = false;

	fake_nfs_habits(f, &usual);
	tree_fill_file(f, "tree/small", 0, 3000);
	fake_nfs_set_xattr(f, "tree/small", "a", "one", 3);
	fake_nfs_set_xattr(f, "tree/small", "b", "two", 3);
	fake_nfs_watch(f, change_at_read, &done);
	copy(f, true, &got);
	ck_assert_msg(got.r == 0, "%s", got.err.msg);
	check_that("changed", "it happened", done);
	tree_check_same("changed", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* Change the file at a READ, once it was begun in the copy. */
static void write_at_read(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *reads = data;

	if (op->type == NFS_OP_READ && ++*reads == 5)
		tree_fill_file(f, "tree/big", 0, 100);
}

/* What a file loses counts once, however often the file is read, and whatever names it has. */
START_TEST(test_losses_of_what_is_read_again)
{
	static const struct {
		const char *name;
		bool to_xattrs;
		struct fake_failure failure;
		uint64_t lost;
	} rows[] = {
		{ "by the target", false, { .nth = 0 }, 2 },
		/* What cannot be listed counts as one: the file, and the directory. */
		{ "by the source", true, { 1, -EACCES, false, true, OPERATION(LISTXATTRS) }, 2 },
		{ "by the target's refusals",
		  true,
		  { 1, -ENOSPC, false, true, OPERATION(SETXATTR) },
		  2 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		unsigned int reads = 0;
		struct result got;

		fake_nfs_habits(f, &usual);
		tree_fill_file(f, "tree/big", 0, 3 * MIB);
		fake_nfs_link(f, "tree/big", "tree/other name");
		fake_nfs_set_xattr(f, "tree/big", "a", "one", 3);
		fake_nfs_set_xattr(f, "tree/big", "b", "two", 3);
		fake_nfs_fail(f, &rows[i].failure);
		fake_nfs_watch(f, write_at_read, &reads);
		copy(f, rows[i].to_xattrs, &got);
		ck_assert_msg(got.r == 0, "%s: %s", rows[i].name, got.err.msg);
		check_that(rows[i].name, "it is read again", reads > 15);
		check_int(rows[i].name, "lost", got.progress.xattrs_lost, rows[i].lost);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- archives -------- */

static void pack(struct fake_nfs *f, struct result *ret)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c, .from_xattrs = true };
	struct tree_archive_sum sum;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	*ret = (struct result){ .r = 0 };
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	r = tree_pack(&work, &handle, &attr, &c->root, "out", "archive", TREE_COMPRESSION_NONE,
		      &sum, &ret->err);
	result_of(ret, &work, r);
}

static void unpack(struct fake_nfs *f, const char *archive, bool to_xattrs, struct result *ret)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c, .to_xattrs = to_xattrs };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	*ret = (struct result){ .r = 0 };
	ck_assert(fake_nfs_get(f, archive, &handle, &attr));
	r = tree_unpack(&work, &handle, attr.size, NULL, &c->root, "back", &ret->err);
	result_of(ret, &work, r);
}

START_TEST(test_archive)
{
	struct fake_nfs *f = new_tree();
	struct result got;

	pack(f, &got);
	ck_assert_msg(got.r == 0, "pack: %s", got.err.msg);
	check_int("pack", "lost", got.progress.xattrs_lost, 0);
	unpack(f, "out/archive", true, &got);
	ck_assert_msg(got.r == 0, "unpack: %s", got.err.msg);
	check_int("unpack", "lost", got.progress.xattrs_lost, 0);
	tree_check_same("archive", f, "tree", f, "back");
	fake_nfs_remove(f, "back");
	unpack(f, "out/archive", false, &got);
	ck_assert_msg(got.r == 0, "unpack: %s", got.err.msg);
	check_int("unpack without", "lost", got.progress.xattrs_lost, XATTRS);
	fake_nfs_free(f);
}
END_TEST

/* An archive of another tool, in memory. Returns its length. */
static size_t foreign_archive(char *to, size_t size)
{
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();
	size_t used = 0;

	ck_assert(archive_write_set_format_pax(a) == ARCHIVE_OK);
	ck_assert(archive_write_open_memory(a, to, size, &used) == ARCHIVE_OK);
	archive_entry_set_pathname(e, "./file");
	archive_entry_set_mode(e, AE_IFREG | 0644);
	archive_entry_set_mtime(e, 1600000000, 0);
	archive_entry_xattr_add_entry(e, "user.a", "1", 1);
	archive_entry_xattr_add_entry(e, "security.selinux", "label", 5);
	archive_entry_xattr_add_entry(e, "trusted.b", "2", 1);
	archive_entry_xattr_add_entry(e, "user.", "no name", 7);
	ck_assert(archive_write_header(a, e) == ARCHIVE_OK);
	ck_assert(archive_write_close(a) == ARCHIVE_OK);
	archive_entry_free(e);
	archive_write_free(a);
	return used;
}

/* Both headers that libarchive writes, and namespaces that NFS does not have. */
START_TEST(test_foreign)
{
	struct fake_nfs *f = fake_nfs_new();
	static char data[64 * KIB];
	struct result got;
	char *dump;

	fake_nfs_habits(f, &usual);
	fake_nfs_write(f, "archive", 0, data, foreign_archive(data, sizeof(data)));
	unpack(f, "archive", true, &got);
	ck_assert_msg(got.r == 0, "%s", got.err.msg);
	check_that("foreign", "others are counted", got.progress.xattrs_lost >= 3);
	dump = fake_nfs_dump(f, "back/file");
	check_that("foreign", "the user's is there", strstr(dump, " a=1,") != NULL);
	check_that("foreign", "others are not", strstr(dump, "selinux") == NULL);
	free(dump);
	fake_nfs_free(f);
}
END_TEST

static void count_lists(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *lists = data;

	(void)f;
	*lists += op->type == NFS_OP_LISTXATTRS;
}

/* A server that refuses a READ with the listing behind it is asked for each alone. */
START_TEST(test_reads_alone)
{
	struct fake_habits habits = usual;
	struct fake_nfs *f = new_tree();
	struct result result;

	habits.reads_alone = true;
	fake_nfs_habits(f, &habits);
	copy_as(f, 0, NULL, true, &result);
	check_int("alone", "result", result.r, 0);
	check_int("alone", "lost", (long)result.progress.xattrs_lost, 0);
	tree_check_same("alone", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* The names come with the data if a server can do that: the directory alone takes a call. */
START_TEST(test_calls)
{
	const bool lists_with_data = fake_nfs_lists_max > 0;
	struct fake_nfs *f = fake_nfs_new();
	struct result result;
	unsigned int i, lists = 0;

	fake_nfs_habits(f, &(struct fake_habits){ .entries = FAKE_ENTRIES_FULL, .xattrs = true });
	for (i = 0; i < 40; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "tree/%u", i);
		tree_fill_file(f, path, 0, 100);
		fake_nfs_set_xattr(f, path, "a", "1", i % 2);
	}
	fake_nfs_watch(f, count_lists, &lists);
	copy_as(f, 0, NULL, true, &result);
	fake_nfs_watch(f, NULL, NULL);
	check_int("calls", "result", result.r, 0);
	check_int("calls", "lists", lists, lists_with_data ? 1 : 41);
	check_int("calls", "lost", (long)result.progress.xattrs_lost, 0);
	tree_check_same("calls", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

CHECK_MAIN("xattrs",
	   .tests = { test_copy, test_calls, test_reads_alone, test_find, test_find_less,
		      test_refused_later, test_losses, test_full, test_room_is_made,
		      test_room_unknown, test_stuck, test_relisted, test_broken, test_read_only,
		      test_losses_of_what_is_read_again, test_changed, test_archive, test_foreign })
