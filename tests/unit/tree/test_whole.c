/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Small files that the server makes in one call (nfs_op.whole). Where a call does a part of it, the
 * rest is done as for large files.
 */

#include <errno.h>

#include "base/cleanup.h"
#include "tree/copy.h"
#include "tree_util.h"

#define OPERATION(TYPE) (1U << NFS_OP_##TYPE)
#define CHANGES (OPERATION(CREATE) | OPERATION(WRITE) | OPERATION(SETATTR))

/* Copy "tree" to "copy". Returns the result. */
static int copy(struct fake_nfs *f, bool verify, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };

	return tree_copy_checked(&work, f, verify, err);
}

static void check_copy(const char *row, struct fake_nfs *f, bool verify)
{
	struct error err = { .code = ERROR_OK };
	int r = copy(f, verify, &err);

	ck_assert_msg(r == 0, "%s: %s", row, err.msg);
	tree_check_same(row, f, "tree", f, "copy");
}

/* A directory with an empty file, a small one and one of limit + 1 bytes. */
static struct fake_nfs *three_files(uint32_t limit)
{
	struct fake_nfs *f = fake_nfs_new();

	fake_nfs_put(f, "tree", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_write(f, "tree/empty", 0, "", 0);
	tree_fill_file(f, "tree/small", 0, limit);
	tree_fill_file(f, "tree/larger", 0, limit + 1);
	tree_mark(f, "tree/empty", 0600, 1);
	tree_mark(f, "tree/small", 0640, 2);
	tree_mark(f, "tree/larger", 0640, 3);
	return f;
}

/* A file takes one change, or three (two if empty); the directory takes a SETATTR. */
START_TEST(test_calls)
{
	static const struct {
		const char *name;
		uint32_t max;
		enum fake_whole whole;
		bool verify;
		unsigned int changes;
	} rows[] = {
		{ "as a server without sessions", 0, FAKE_WHOLE_ALL, false, 2 + 3 + 3 + 1 },
		{ "in one call", 5000, FAKE_WHOLE_ALL, false, 1 + 1 + 3 + 1 },
		{ "the data is refused", 5000, FAKE_WHOLE_NO_DATA, false, 2 + 3 + 3 + 1 },
		{ "attributes are refused", 5000, FAKE_WHOLE_NO_ATTRIBUTES, false, 2 + 3 + 3 + 1 },
		{ "read back", 5000, FAKE_WHOLE_ALL, true, 2 + 3 + 3 + 1 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_habits habits = { .page = 100, .whole = rows[i].whole };
		const struct fake_failure none = { .types = CHANGES };
		struct fake_nfs *f = three_files(5000);

		fake_nfs_habits(f, &habits);
		fake_nfs_fail(f, &none);
		fake_nfs_whole_max = rows[i].max;
		check_copy(rows[i].name, f, rows[i].verify);
		check_int(rows[i].name, "changes", fake_nfs_operations(f), rows[i].changes);
		fake_nfs_free(f);
	}
}
END_TEST

/* Entries of each kind, however far the server gets, and whatever it fails first. */
START_TEST(test_kinds)
{
	static const enum fake_whole wholes[] = { FAKE_WHOLE_ALL, FAKE_WHOLE_NO_DATA,
						  FAKE_WHOLE_NO_ATTRIBUTES };
	static const uint32_t sizes[] = { 1, 5, 8192, 32768 };
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(wholes); i++) {
		for (j = 0; j < ARRAY_SIZE(sizes); j++) {
			const struct fake_habits habits = { .whole = wholes[i] };
			const struct fake_failure later = { .nth = 2,
							    .error = -EAGAIN,
							    .types = OPERATION(CREATE) };
			struct fake_nfs *f = fake_nfs_new();

			tree_put(f);
			fake_nfs_habits(f, &habits);
			fake_nfs_fail(f, &later);
			fake_nfs_whole_max = sizes[j];
			check_copy("kinds", f, false);
			fake_nfs_free(f);
		}
	}
}
END_TEST

/* The server clears setuid when the owner is set, so the mode is set once more. */
START_TEST(test_setuid)
{
	const struct fake_failure none = { .types = CHANGES };
	struct fake_nfs *f = fake_nfs_new();

	fake_nfs_put(f, "tree", NFS_TYPE_DIRECTORY, NULL);
	tree_fill_file(f, "tree/program", 0, 100);
	tree_mark(f, "tree/program", 04755, 1);
	fake_nfs_fail(f, &none);
	fake_nfs_whole_max = 32768;
	check_copy("setuid", f, false);
	check_int("setuid", "changes", fake_nfs_operations(f), 1 + 1 + 1);
	fake_nfs_free(f);
}
END_TEST

/* Errors of CREATE end the copy, as they do for large files. */
START_TEST(test_fails)
{
	static const int errors[] = { -ENOSPC, -EDQUOT, -EIO, -EACCES };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		const struct fake_failure failure = { .nth = 2,
						      .error = errors[i],
						      .types = OPERATION(CREATE) };
		struct error err = { .code = ERROR_OK };
		struct fake_nfs *f = three_files(100);

		fake_nfs_fail(f, &failure);
		fake_nfs_whole_max = 32768;
		check_int("fails", "result", copy(f, false, &err), errors[i]);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- files that are checked by one call -------- */

#define MANY 50

/* What happens before one of the calls that ask for the attributes of several files again. */
struct checks {
	unsigned int calls, files; /* so far */
	unsigned int at;
	void (*happen)(struct fake_nfs *f, const char *path);
};

static void watch_checks(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct checks *checks = data;
	char path[32];

	if (op->type != NFS_OP_GETATTR || op->n_handles == 0)
		return;
	(void)snprintf(path, sizeof(path), "tree/%02u",
		       checks->files + (unsigned int)op->n_handles / 2);
	checks->files += (unsigned int)op->n_handles;
	if (++checks->calls == checks->at && checks->happen != NULL)
		checks->happen(f, path);
}

static void write_to(struct fake_nfs *f, const char *path)
{
	fake_nfs_write(f, path, 3, "changed", 7);
}

static void empty(struct fake_nfs *f, const char *path)
{
	fake_nfs_truncate(f, path, 0);
}

static void replace(struct fake_nfs *f, const char *path)
{
	fake_nfs_remove(f, path);
	tree_fill_file(f, path, 0, 77);
}

static void remove_file(struct fake_nfs *f, const char *path)
{
	fake_nfs_remove(f, path);
}

/* One of the files changes: it is copied as it is then, and the others as they are. */
START_TEST(test_checks)
{
	static const struct {
		const char *name;
		void (*happen)(struct fake_nfs *f, const char *path);
	} rows[] = {
		{ "nothing", NULL },     { "written to", write_to }, { "emptied", empty },
		{ "replaced", replace }, { "removed", remove_file },
	};
	const struct fake_habits habits = { .page = 100, .entries = FAKE_ENTRIES_FULL };
	unsigned int i, n;

	for (n = 1; n <= 4; n++) {
		struct checks checks = { .at = n, .happen = rows[_i].happen };
		struct error err = { .code = ERROR_OK };
		struct fake_nfs *f = fake_nfs_new();
		char path[32];

		fake_nfs_whole_max = 32768;
		fake_nfs_habits(f, &habits);
		for (i = 0; i < MANY; i++) {
			(void)snprintf(path, sizeof(path), "tree/%02u", i);
			tree_fill_file(f, path, i, 100);
		}
		fake_nfs_watch(f, watch_checks, &checks);
		ck_assert_msg(copy(f, false, &err) == 0, "%s", err.msg);
		fake_nfs_watch(f, NULL, NULL);
		check_that(rows[_i].name, "the call was made", checks.calls >= n);
		check_that(rows[_i].name, "few calls", checks.calls <= MANY / NFS_GETATTR_MAX + 2);
		/* The directory's own time changed after it was read. */
		tree_mark(f, "tree", 0755, 1);
		tree_mark(f, "copy", 0755, 1);
		tree_check_same(rows[_i].name, f, "tree", f, "copy");
		fake_nfs_free(f);
	}
}
END_TEST

/* A server whose sessions allow fewer operations gets fewer files in a call, or one. */
START_TEST(test_checks_fit)
{
	static const struct {
		unsigned int version, operations;
		size_t max;
	} rows[] = {
		{ 3, 0, 1 },
		{ 4, 0, NFS_GETATTR_MAX },
		{ 4, 50, NFS_GETATTR_MAX },
		{ 4, 7, 3 },
		{ 4, 4, 2 },
		{ 4, 3, 1 },
		{ 4, 1, 1 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct nfs_client c = { .version = rows[i].version,
					      .operations = rows[i].operations };

		ck_assert_uint_eq(nfs_getattr_max(&c), rows[i].max);
	}
}
END_TEST

CHECK_MAIN("whole", .tests = { test_calls, test_kinds, test_setuid, test_fails, test_checks_fit },
	   .loops = { { test_checks, 5 } })
