/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "nfs/error.h"
#include "tree/copy.h"
#include "tree_util.h"

#define ALL (NFS_OFFLOAD_CLONE | NFS_OFFLOAD_COPY | NFS_OFFLOAD_SEEK)
#define OPERATION(TYPE) (1U << NFS_OP_##TYPE)

/* These replace the C library's, so that the pauses between two questions take no time. */
static _Atomic uint64_t slept_ns;

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = check_real_clock(id, ret);
	uint64_t ns = (uint64_t)ret->tv_nsec + slept_ns;

	ret->tv_sec += (time_t)(ns / CLOCK_NS_PER_S);
	ret->tv_nsec = (long)(ns % CLOCK_NS_PER_S);
	return r;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)left;
	slept_ns += (uint64_t)wanted->tv_sec * CLOCK_NS_PER_S + (uint64_t)wanted->tv_nsec;
	return 0;
}

/* Set by a test that stops the driver. */
static atomic_bool cancelled;

/* Copy "tree" to "copy". Returns the result. */
static int copy(struct fake_nfs *f, unsigned int offload, bool verify, struct tree_progress *ret,
		struct error *err)
{
	struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c, .offload = offload, .cancel = &cancelled };
	int r = tree_copy_checked(&work, f, verify, err);

	if (ret != NULL)
		*ret = work.progress;
	nfs_client_free(c);
	return r;
}

/* A tree with large files: one that is full, and some with holes. */
static struct fake_nfs *new_tree(void)
{
	struct fake_nfs *f = fake_nfs_new();

	tree_put(f);
	tree_fill_file(f, "tree/large", 0, 9 * MIB + 5);
	tree_fill_file(f, "tree/deep/sparse", 3 * MIB, 64 * KIB);
	tree_fill_file(f, "tree/deep/sparse", 20 * MIB + 8 * KIB, 5 * MIB);
	fake_nfs_truncate(f, "tree/deep/sparse", 40 * MIB + 1);
	fake_nfs_write(f, "tree/hole", 0, "", 0);
	fake_nfs_truncate(f, "tree/hole", 30 * MIB);
	fake_nfs_link(f, "tree/large", "tree/deep/er/large");
	tree_mark(f, "tree/large", 04755, 20);
	tree_mark(f, "tree/deep/sparse", 0600, 21);
	tree_mark(f, "tree/deep/er", 0711, 22);
	tree_mark(f, "tree/deep", 0700, 23);
	tree_mark(f, "tree", 0755, 24);
	return f;
}

static unsigned int count_operations(struct fake_nfs *f, unsigned int types, unsigned int offload,
				     bool verify)
{
	const struct fake_failure none = { .types = types };
	struct error err = { .code = ERROR_OK };

	fake_nfs_fail(f, &none);
	ck_assert_msg(copy(f, offload, verify, NULL, &err) == 0, "%s", err.msg);
	return fake_nfs_operations(f);
}

static const struct {
	const char *name;
	unsigned int offload, refused;
	uint64_t copy_max;
	bool verify, bad_seek;
	unsigned int clones, copies, seeks; /* expected */
} kinds[] = {
	/* The tree has four large files, three of them with holes: 11 SEEKs, unless CLONE works. */
	{ .name = "nothing" },
	{ .name = "all", .offload = ALL, .clones = 4 },
	{ .name = "no clone",
	  .offload = ALL & ~NFS_OFFLOAD_CLONE,
	  .copies = 3 + 3 + 2,
	  .seeks = 11 },
	{ .name = "clone is refused",
	  .offload = ALL,
	  .refused = NFS_OFFLOAD_CLONE,
	  .clones = 1,
	  .copies = 3 + 3 + 2,
	  .seeks = 11 },
	{ .name = "short copies",
	  .offload = ALL,
	  .refused = NFS_OFFLOAD_CLONE,
	  .copy_max = 3 * MIB,
	  .clones = 1,
	  .copies = 4 + 4 + 2,
	  .seeks = 11 },
	{ .name = "clone and copy are refused",
	  .offload = ALL,
	  .refused = NFS_OFFLOAD_CLONE | NFS_OFFLOAD_COPY,
	  .clones = 1,
	  .copies = 1,
	  .seeks = 11 },
	{ .name = "no holes known", .offload = NFS_OFFLOAD_COPY, .copies = 3 },
	{ .name = "seek is refused",
	  .offload = ALL,
	  .refused = NFS_OFFLOAD_CLONE | NFS_OFFLOAD_SEEK,
	  .clones = 1,
	  .copies = 3,
	  .seeks = 1 },
	{ .name = "seek finds nothing right",
	  .offload = ALL,
	  .refused = NFS_OFFLOAD_CLONE,
	  .bad_seek = true,
	  .clones = 1,
	  .copies = 3,
	  .seeks = 2 },
	{ .name = "checksums", .offload = ALL, .verify = true, .seeks = 11 },
};

START_TEST(test_kinds)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct fake_habits habits = {
			.page = 100,
			.entries = FAKE_ENTRIES_FULL,
			.offload = kinds[i].offload,
			.refused = kinds[i].refused,
			.copy_max = kinds[i].copy_max,
			.bad_seek = kinds[i].bad_seek,
		};
		const struct {
			const char *what;
			unsigned int types, expected;
		} counts[] = {
			{ "CLONE", OPERATION(CLONE), kinds[i].clones },
			{ "COPY", OPERATION(COPY), kinds[i].copies },
			{ "SEEK", OPERATION(SEEK), kinds[i].seeks },
		};
		size_t n;

		for (n = 0; n < ARRAY_SIZE(counts); n++) {
			struct fake_nfs *f = new_tree();

			fake_nfs_habits(f, &habits);
			check_int(kinds[i].name, counts[n].what,
				  count_operations(f, counts[n].types, kinds[i].offload,
						   kinds[i].verify),
				  counts[n].expected);
			tree_check_same(kinds[i].name, f, "tree", f, "copy");
			fake_nfs_free(f);
		}
	}
}
END_TEST

static void count_types(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *n = data;

	(void)f;
	n[op->type]++;
}

/* CLONE is refused for one file after another: each is tried once, and its holes are found then. */
START_TEST(test_refused_one_by_one)
{
	const struct fake_habits habits = { .page = 100,
					    .entries = FAKE_ENTRIES_FULL,
					    .offload = ALL };
	const struct fake_failure failure = {
		.nth = 1, .error = -EACCES, .all = true, .types = OPERATION(CLONE)
	};
	unsigned int n[64] = { 0 };
	struct fake_nfs *f = new_tree();
	struct error err = { .code = ERROR_OK };
	struct tree_progress p;

	fake_nfs_habits(f, &habits);
	fake_nfs_fail(f, &failure);
	fake_nfs_watch(f, count_types, n);
	ck_assert_msg(copy(f, ALL, false, &p, &err) == 0, "%s", err.msg);
	check_int("one by one", "CLONE", n[NFS_OP_CLONE], 4);
	check_int("one by one", "COPY", n[NFS_OP_COPY], 3 + 3 + 2);
	check_int("one by one", "SEEK", n[NFS_OP_SEEK], 11);
	check_int("one by one", "REMOVE", n[NFS_OP_REMOVE], 0);
	check_int("one by one", "changed", p.changed, 0);
	tree_check_same("one by one", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* -------- a source that changes -------- */

struct change {
	const char *name;
	unsigned int refused;
	enum nfs_op_type at; /* the change comes with the nth of these operations */
	unsigned int nth;
	void (*make)(struct fake_nfs *f);
	unsigned int seen; /* operations so far */
	uint64_t changed; /* expected: files kept although they were written to */
};

static void truncate_large(struct fake_nfs *f)
{
	fake_nfs_truncate(f, "tree/large", 5 * MIB);
}

static void extend_large(struct fake_nfs *f)
{
	tree_fill_file(f, "tree/large", 9 * MIB + 5, 3 * MIB);
}

static void write_large(struct fake_nfs *f)
{
	fake_nfs_write(f, "tree/large", 6 * MIB, "changed", 7);
}

static void remove_large(struct fake_nfs *f)
{
	fake_nfs_remove(f, "tree/large");
}

static void replace_large(struct fake_nfs *f)
{
	fake_nfs_remove(f, "tree/large");
	tree_fill_file(f, "tree/large", 1, 7 * MIB);
}

static void watch(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct change *change = data;

	if (op->type == change->at && ++change->seen == change->nth)
		change->make(f);
}

START_TEST(test_changes)
{
	struct change changes[] = {
		{ "cut before CLONE", 0, NFS_OP_CLONE, 1, truncate_large, 0, 0 },
		{ "extended before CLONE", 0, NFS_OP_CLONE, 1, extend_large, 0, 0 },
		{ "written to before CLONE", 0, NFS_OP_CLONE, 1, write_large, 0, 0 },
		{ "removed before CLONE", 0, NFS_OP_CLONE, 1, remove_large, 0, 0 },
		{ "replaced before CLONE", 0, NFS_OP_CLONE, 1, replace_large, 0, 0 },
		{ "cut", NFS_OFFLOAD_CLONE, NFS_OP_COPY, 2, truncate_large, 0, 0 },
		{ "cut before all", NFS_OFFLOAD_CLONE, NFS_OP_COPY, 1, truncate_large, 0, 0 },
		{ "extended", NFS_OFFLOAD_CLONE, NFS_OP_COPY, 3, extend_large, 0, 0 },
		{ "written to", NFS_OFFLOAD_CLONE, NFS_OP_COPY, 3, write_large, 0, 0 },
		{ "removed", NFS_OFFLOAD_CLONE, NFS_OP_COPY, 2, remove_large, 0, 0 },
		{ "replaced", NFS_OFFLOAD_CLONE, NFS_OP_COPY, 2, replace_large, 0, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(changes); i++) {
		const struct fake_habits habits = {
			.page = 100,
			.entries = FAKE_ENTRIES_FULL,
			.offload = ALL,
			.refused = changes[i].refused,
		};
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct tree_progress p;

		tree_fill_file(f, "tree/large", 0, 9 * MIB + 5);
		tree_fill_file(f, "tree/other", 0, 2 * MIB);
		fake_nfs_habits(f, &habits);
		fake_nfs_watch(f, watch, &changes[i]);
		ck_assert_msg(copy(f, ALL, false, &p, &err) == 0, "%s: %s", changes[i].name,
			      err.msg);
		check_that(changes[i].name, "the change was made",
			   changes[i].seen >= changes[i].nth);
		/* The directory's own times changed after it was read. */
		tree_mark(f, "tree", 0755, 1);
		tree_mark(f, "copy", 0755, 1);
		tree_check_same(changes[i].name, f, "tree", f, "copy");
		check_int(changes[i].name, "changed", p.changed, changes[i].changed);
		fake_nfs_free(f);
	}
}
END_TEST

static void write_again(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *n = data;

	if (op->type == NFS_OP_CLONE || op->type == NFS_OP_COPY)
		fake_nfs_write(f, "tree/large", (*n)++, "again", 5);
}

/* A file that is always being written to is kept as it was copied, and counted. */
START_TEST(test_written_to_always)
{
	static const unsigned int refused[] = { 0, NFS_OFFLOAD_CLONE };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		const struct fake_habits habits = { .offload = ALL, .refused = refused[i] };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct tree_progress p;
		unsigned int n = 0;

		tree_fill_file(f, "tree/large", 0, 5 * MIB);
		fake_nfs_habits(f, &habits);
		fake_nfs_watch(f, write_again, &n);
		ck_assert_msg(copy(f, ALL, false, &p, &err) == 0, "%s", err.msg);
		check_int("always", "changed", p.changed, 1);
		check_int("always", "bytes", p.bytes, 5 * MIB);
		fake_nfs_free(f);
	}
}
END_TEST

static void write_at_seek(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *n = data;

	if (op->type == NFS_OP_SEEK)
		fake_nfs_write(f, "tree/sparse", (*n)++, "again", 5);
}

/* Looking for holes takes long: a file that is written to meanwhile is cloned as it is. */
START_TEST(test_written_to_while_seeking)
{
	static const unsigned int refused[] = { 0, NFS_OFFLOAD_CLONE };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		const struct fake_habits habits = { .offload = ALL, .refused = refused[i] };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct tree_progress p;
		unsigned int n = 0;

		tree_fill_file(f, "tree/sparse", 3 * MIB, 64 * KIB);
		fake_nfs_truncate(f, "tree/sparse", 5 * MIB);
		fake_nfs_habits(f, &habits);
		fake_nfs_watch(f, write_at_seek, &n);
		ck_assert_msg(copy(f, ALL, false, &p, &err) == 0, "%s", err.msg);
		check_int("seeking", "changed", p.changed, refused[i] != 0);
		check_int("seeking", "files", p.files, 1);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- a server that fails -------- */

static const unsigned int clone_or_copy[] = { 0, NFS_OFFLOAD_CLONE }; /* refused at all */

/* Copy with this failure; what was copied is whole. Count in *reached whether it came to that. */
static void copy_with(const struct fake_failure *failure, unsigned int refused, bool must_copy,
		      size_t *reached)
{
	const struct fake_habits habits = { .offload = ALL, .refused = refused };
	struct fake_nfs *f = new_tree();
	struct error err = { .code = ERROR_OK };
	int r;

	fake_nfs_habits(f, &habits);
	fake_nfs_fail(f, failure);
	r = copy(f, ALL, false, NULL, &err);
	*reached += fake_nfs_operations(f) >= failure->nth;
	ck_assert_msg(r == 0 || !must_copy, "%s, operation %u: %s", strerror(-failure->error),
		      failure->nth, err.msg);
	if (r == 0)
		tree_check_same("failure", f, "tree", f, "copy");
	fake_nfs_free(f);
}

static const int failures[] = {
	-EIO, -ENOSPC, -EINVAL, -ESTALE, -ECONNABORTED, -ETIMEDOUT,
};

/* Whatever fails, the copy fails with a message, or it is whole. */
START_TEST(test_failures)
{
	size_t k, reached = 0;
	unsigned int n;

	for (k = 0; k < ARRAY_SIZE(clone_or_copy); k++)
		for (n = 1; n < 14; n++) {
			const struct fake_failure failure = {
				.nth = n,
				.error = failures[_i],
				.types = OPERATION(CLONE) | OPERATION(COPY) | OPERATION(SEEK),
			};

			copy_with(&failure, clone_or_copy[k], false, &reached);
		}
	ck_assert_uint_gt(reached, 0);
}
END_TEST

static const int refusals[] = { -EOPNOTSUPP, -EXDEV, -EINVAL, -EACCES, -EPERM, -EREMOTEIO };

/*
 * Whatever the server refuses to copy, in whichever part of a file, is read and written. Half of
 * the errors at each part, unless the run is long.
 */
START_TEST(test_refusals)
{
	size_t k, reached = 0;
	unsigned int n;

	for (k = 0; k < ARRAY_SIZE(clone_or_copy); k++)
		for (n = 1; n < 14; n++) {
			if ((n + (unsigned int)_i) % 2 != 0 && !check_is_long())
				continue;
			struct fake_failure failure = {
				.nth = n,
				.error = refusals[_i],
				.types = OPERATION(CLONE) | OPERATION(COPY),
			};

			copy_with(&failure, clone_or_copy[k], true, &reached);
			failure.all = true;
			copy_with(&failure, clone_or_copy[k], true, &reached);
		}
	ck_assert_uint_gt(reached, check_is_long() ? 16 : 8); /* also in the middle of files */
}
END_TEST

static void restart_server(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	const enum nfs_op_type *type = data;

	if (op->type == NFS_OP_COMMIT || op->type == *type)
		fake_nfs_restart(f);
}

/* A server that crashes before the COMMIT may have lost what it copied. */
START_TEST(test_restart)
{
	static const unsigned int refused[] = { 0, NFS_OFFLOAD_CLONE };
	enum nfs_op_type types[] = { NFS_OP_COMMIT, NFS_OP_COPY };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		const struct fake_habits habits = { .offload = ALL, .refused = refused[i] };
		struct fake_nfs *f = new_tree();
		struct error err = { .code = ERROR_OK };

		fake_nfs_habits(f, &habits);
		fake_nfs_watch(f, restart_server, &types[i]);
		check_int("restart", "result", copy(f, ALL, false, NULL, &err), -EIO);
		check_error("restart", &err, ERROR_UNAVAILABLE, "may have lost");
		fake_nfs_free(f);
	}
}
END_TEST

/* A CLONE that says success and did nothing must not leave a file of zeros. */
START_TEST(test_lazy_clone)
{
	const struct fake_habits habits = { .offload = ALL, .lazy_clone = true };
	struct fake_nfs *f = new_tree();
	struct error err = { .code = ERROR_OK };

	fake_nfs_habits(f, &habits);
	ck_assert_msg(copy(f, ALL, false, NULL, &err) == 0, "%s", err.msg);
	tree_check_same("lazy", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* A terabyte of hole costs no more than its data. */
START_TEST(test_huge_hole)
{
	static const unsigned int refused[] = { 0, NFS_OFFLOAD_CLONE,
						NFS_OFFLOAD_CLONE | NFS_OFFLOAD_COPY };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		const struct fake_habits habits = { .offload = ALL, .refused = refused[i] };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		const struct fake_failure none = { .nth = 0 };

		tree_fill_file(f, "tree/huge", 16 * MIB, 16 * MIB);
		fake_nfs_truncate(f, "tree/huge", UINT64_C(8) << 40);
		fake_nfs_habits(f, &habits);
		fake_nfs_fail(f, &none);
		ck_assert_msg(copy(f, ALL, false, NULL, &err) == 0, "%s", err.msg);
		check_that("huge", "few operations", fake_nfs_operations(f) < 200);
		fake_nfs_free(f);
	}
}
END_TEST

/* Blocks of data with holes between them and behind them. */
static void put_parts(struct fake_nfs *f, unsigned int n, uint64_t size)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		fake_nfs_write(f, "tree/parts", UINT64_C(2) * i * 4 * KIB, "data", 4);
	fake_nfs_truncate(f, "tree/parts", size);
}

/*
 * Holes stay holes, however many there are. If they cannot be found, the file is read, unless that
 * would take days.
 */
START_TEST(test_many_parts)
{
	static const struct {
		const char *name;
		unsigned int refused, parts;
		uint64_t size;
		bool copies, refuses; /* expected */
	} rows[] = {
		{ "copied", NFS_OFFLOAD_CLONE, 2000, 32 * MIB, true, false },
		{ "copied, to the last", NFS_OFFLOAD_CLONE, 8192, 128 * MIB, true, false },
		{ "read", NFS_OFFLOAD_CLONE, 8193, 128 * MIB, false, false },
		{ "too long to read", NFS_OFFLOAD_CLONE, 8193, UINT64_C(16) << 40, false, true },
		{ "copied, long", NFS_OFFLOAD_CLONE, 2000, UINT64_C(16) << 40, true, false },
		{ "cloned", 0, 8193, UINT64_C(16) << 40, false, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_habits habits = { .offload = ALL, .refused = rows[i].refused };
		const struct fake_failure copies = { .types = OPERATION(COPY) };
		const char *row = rows[i].name;
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct nfs_attr before, after;
		struct nfs_handle unused;
		int r;

		put_parts(f, rows[i].parts, rows[i].size);
		fake_nfs_habits(f, &habits);
		fake_nfs_fail(f, &copies);
		r = copy(f, ALL, false, NULL, &err);
		check_that(row, "COPY is used", (fake_nfs_operations(f) > 0) == rows[i].copies);
		if (rows[i].refuses) {
			check_that(row, "fails", r < 0);
			check_error(row, &err, ERROR_FAILED_PRECONDITION, "'parts'");
		} else {
			ck_assert_msg(r == 0, "%s: %s", row, err.msg);
			ck_assert(fake_nfs_get(f, "tree/parts", &unused, &before));
			ck_assert(fake_nfs_get(f, "copy/parts", &unused, &after));
			check_int(row, "used", after.used, before.used);
			tree_check_same(row, f, "tree", f, "copy");
		}
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- COPY that goes on after its reply -------- */

#define COPY_TYPES (OPERATION(COPY) | OPERATION(COPY_STATUS) | OPERATION(COPY_CANCEL))

struct async_row {
	const char *name;
	struct fake_async async;
	unsigned int copies; /* expected */
	bool writes; /* expected: data of large files was written by us */
};

static const struct async_row async_rows[] = {
	/* Five ranges, and the COPY that shows how the server copies. */
	{ "done with the reply", { .only = true }, 6, false },
	{ "done after some questions", { .only = true, .steps = 40 }, 6, false },
	{ "short", { .only = true, .steps = 3, .max = 4 * MIB }, 9, false },
	{ "uninvited", { .uninvited = true, .asked = true, .steps = 5 }, 6, false },
	/* The first file is written by us. */
	{ "uninvited, without a verifier",
	  { .uninvited = true, .asked = true, .steps = 5, .no_verifier = true },
	  5,
	  true },
	{ "uninvited, and not if it may", { .uninvited = true, .steps = 5 }, 6, false },
	{ "begins late", { .only = true, .after = 2, .steps = 5 }, 7, true },
	{ "begins late, uninvited",
	  { .uninvited = true, .asked = true, .after = 2, .steps = 5 },
	  7,
	  true },
	{ "status is not supported",
	  { .only = true, .steps = 5, .endless = true, .status_error = -EOPNOTSUPP },
	  2,
	  true },
	{ "status is refused",
	  { .only = true, .steps = 5, .endless = true, .status_error = -EREMOTEIO },
	  2,
	  true },
	{ "never ends", { .only = true, .steps = 5, .endless = true }, 2, true },
	{ "never ends, and cannot be cancelled",
	  { .only = true, .steps = 5, .endless = true, .cancel_error = -EOPNOTSUPP },
	  2,
	  true },
	{ "the server lacks it after all", { .only = true, .error = -EOPNOTSUPP }, 2, true },
	{ "status asks for patience for ever",
	  { .only = true, .steps = 5, .status_error = -EAGAIN },
	  2,
	  true },
};

/* Whatever the server makes of a COPY, the copy is right, and nothing goes on behind it. */
START_TEST(test_async)
{
	const struct async_row *row = &async_rows[_i];
	const struct fake_habits habits = {
		.page = 100,
		.entries = FAKE_ENTRIES_FULL,
		.offload = ALL,
		.refused = NFS_OFFLOAD_CLONE,
		.async = row->async,
	};
	const struct fake_habits at_once = {
		.page = 100,
		.entries = FAKE_ENTRIES_FULL,
		.offload = ALL,
		.refused = NFS_OFFLOAD_CLONE,
	};
	const bool stays = row->async.cancel_error < 0;
	struct fake_nfs *f = new_tree();
	unsigned int writes;

	fake_nfs_habits(f, &at_once);
	writes = count_operations(f, OPERATION(WRITE), ALL, false);
	fake_nfs_free(f);
	f = new_tree();
	fake_nfs_habits(f, &habits);
	check_int(row->name, "COPY", count_operations(f, OPERATION(COPY), ALL, false), row->copies);
	fake_nfs_free(f);
	f = new_tree();
	fake_nfs_habits(f, &habits);
	check_that(row->name, "we write what the server does not copy",
		   (count_operations(f, OPERATION(WRITE), ALL, false) > writes) == row->writes);
	tree_check_same(row->name, f, "tree", f, "copy");
	check_that(row->name, "no copy goes on", stays || fake_nfs_copies(f) == 0);
	fake_nfs_free(f);
}
END_TEST

/* Bytes are counted once, however they came. */
START_TEST(test_async_progress)
{
	const struct async_row *row = &async_rows[_i];
	const struct fake_habits habits = { .offload = ALL,
					    .refused = NFS_OFFLOAD_CLONE,
					    .async = row->async };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	struct tree_progress p;

	tree_fill_file(f, "tree/large", 0, 9 * MIB + 5);
	fake_nfs_habits(f, &habits);
	ck_assert_msg(copy(f, ALL, false, &p, &err) == 0, "%s: %s", row->name, err.msg);
	check_int(row->name, "bytes", p.bytes, 9 * MIB + 5);
	check_int(row->name, "changed", p.changed, 0);
	fake_nfs_free(f);
}
END_TEST

/* A copy that fails on the server is a copy that fails. */
START_TEST(test_async_error)
{
	static const int errors[] = { -ENOSPC, -EIO, -EDQUOT };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		const struct fake_habits habits = {
			.offload = ALL,
			.refused = NFS_OFFLOAD_CLONE,
			.async = { .only = true, .steps = 3, .error = errors[i] },
		};
		struct fake_nfs *f = new_tree();
		struct error err = { .code = ERROR_OK };

		fake_nfs_habits(f, &habits);
		check_int("error", "result", copy(f, ALL, false, NULL, &err), errors[i]);
		check_that("error", "it is said", err.code == nfs_error_code(errors[i]));
		check_int("error", "copies that go on", fake_nfs_copies(f), 0);
		fake_nfs_free(f);
	}
}
END_TEST

static const int async_errors[] = { -EIO,    -EAGAIN,       -ESTALE,    -EOPNOTSUPP,
				    -EINVAL, -ECONNABORTED, -ETIMEDOUT, -EBADMSG };

/* The nth of these operations fails. Those that lose the connection may have had their effect. */
static void check_async_failure(const struct fake_async *async, int error, unsigned int n,
				bool after)
{
	const struct fake_habits habits = { .offload = ALL,
					    .refused = NFS_OFFLOAD_CLONE,
					    .async = *async };
	const struct fake_failure failure = {
		.nth = n, .error = error, .after = after, .types = COPY_TYPES
	};
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	int r;

	tree_fill_file(f, "tree/large", 0, 5 * MIB);
	tree_fill_file(f, "tree/other", 0, 2 * MIB);
	fake_nfs_habits(f, &habits);
	fake_nfs_fail(f, &failure);
	r = copy(f, ALL, false, NULL, &err);
	if (r == 0)
		tree_check_same("failure", f, "tree", f, "copy");
	if (error == -ECONNABORTED || error == -ETIMEDOUT || (error == -EBADMSG && !async->endless))
		check_that("failure", "what is not known fails the copy",
			   r < 0 || fake_nfs_operations(f) < n);
	else if (error == -EOPNOTSUPP || error == -EAGAIN)
		check_that("failure", "a refusal does not fail the copy", r == 0);
	fake_nfs_free(f);
}

START_TEST(test_async_failures)
{
	static const struct fake_async async_habits[] = {
		{ .only = true, .steps = 6 },
		{ .uninvited = true, .asked = true, .steps = 6 },
		{ .only = true, .steps = 6, .endless = true },
	};
	const int error = async_errors[_i];
	size_t i;
	unsigned int n;

	for (i = 0; i < ARRAY_SIZE(async_habits); i++)
		for (n = 1; n < 10; n++) {
			check_async_failure(&async_habits[i], error, n, false);
			if (error == -ECONNABORTED || error == -ETIMEDOUT)
				check_async_failure(&async_habits[i], error, n, true);
		}
}
END_TEST

/* The server is restarted while it copies: it knows the copy no more, and its verifier is new. */
static void restart_at_status(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *left = data;

	if (op->type == NFS_OP_COPY_STATUS && *left > 0 && --*left == 0)
		fake_nfs_restart(f);
}

START_TEST(test_async_restart)
{
	unsigned int n, left;

	for (n = 1; n < 6; n++) {
		const struct fake_habits habits = {
			.page = 100,
			.entries = FAKE_ENTRIES_FULL,
			.offload = ALL,
			.refused = NFS_OFFLOAD_CLONE,
			.async = { .only = true, .steps = 4, .max = 2 * MIB },
		};
		struct fake_nfs *f = new_tree();
		struct error err = { .code = ERROR_OK };
		int r;

		left = n;
		fake_nfs_habits(f, &habits);
		fake_nfs_watch(f, restart_at_status, &left);
		r = copy(f, ALL, false, NULL, &err);
		check_int("restart", "it came", left, 0);
		/* What was copied before is made again, or the copy fails. */
		if (r == 0)
			tree_check_same("restart", f, "tree", f, "copy");
		check_int("restart", "copies that go on", fake_nfs_copies(f), 0);
		fake_nfs_free(f);
	}
}
END_TEST

/* A restart between the end of a copy and the COMMIT: the data may be lost. */
static void restart_before_commit(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)data;
	if (op->type == NFS_OP_COMMIT)
		fake_nfs_restart(f);
}

START_TEST(test_async_lost)
{
	const struct fake_habits habits = {
		.offload = ALL,
		.refused = NFS_OFFLOAD_CLONE,
		.async = { .only = true, .steps = 2 },
	};
	struct fake_nfs *f = new_tree();
	struct error err = { .code = ERROR_OK };

	fake_nfs_habits(f, &habits);
	fake_nfs_watch(f, restart_before_commit, NULL);
	check_int("lost", "result", copy(f, ALL, false, NULL, &err), -EIO);
	check_error("lost", &err, ERROR_UNAVAILABLE, "may have lost");
	fake_nfs_free(f);
}
END_TEST

static void cancel_at_status(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *left = data;

	(void)f;
	if (op->type == NFS_OP_COPY_STATUS && *left > 0 && --*left == 0)
		cancelled = true;
}

/* The driver is stopped: so is the server's copy. */
START_TEST(test_async_cancelled)
{
	const struct fake_habits habits = {
		.offload = ALL,
		.refused = NFS_OFFLOAD_CLONE,
		.async = { .only = true, .endless = true, .steps = 10 },
	};
	unsigned int n, left;

	for (n = 1; n < 4; n++) {
		struct fake_nfs *f = new_tree();
		struct error err = { .code = ERROR_OK };

		left = n;
		cancelled = false;
		fake_nfs_habits(f, &habits);
		fake_nfs_watch(f, cancel_at_status, &left);
		check_int("cancelled", "result", copy(f, ALL, false, NULL, &err), -ECANCELED);
		check_int("cancelled", "copies that go on", fake_nfs_copies(f), 0);
		fake_nfs_free(f);
	}
	cancelled = false; /* for the next test, if they share a process */
}
END_TEST

/* Questions come with a growing pause, a bounded number of them. */
START_TEST(test_async_pauses)
{
	const struct fake_habits habits = {
		.offload = ALL,
		.refused = NFS_OFFLOAD_CLONE,
		.async = { .only = true, .endless = true, .steps = 10 },
	};
	const struct fake_failure none = { .types = OPERATION(COPY_STATUS) };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	const uint64_t before = slept_ns;

	tree_fill_file(f, "tree/large", 0, 9 * MIB + 5);
	fake_nfs_habits(f, &habits);
	fake_nfs_fail(f, &none);
	ck_assert_msg(copy(f, ALL, false, NULL, &err) == 0, "%s", err.msg);
	check_that("pauses", "a minute", slept_ns - before > 55 * CLOCK_NS_PER_S);
	check_that("pauses", "not longer", slept_ns - before < 70 * CLOCK_NS_PER_S);
	check_that("pauses", "few questions", fake_nfs_operations(f) < 150);
	fake_nfs_free(f);
}
END_TEST

CHECK_MAIN("offload",
	   .loops = { { test_failures, ARRAY_SIZE(failures) },
		      { test_refusals, ARRAY_SIZE(refusals) },
		      { test_async, ARRAY_SIZE(async_rows) },
		      { test_async_progress, ARRAY_SIZE(async_rows) },
		      { test_async_failures, ARRAY_SIZE(async_errors) } },
	   .tests = { test_kinds, test_refused_one_by_one, test_changes, test_written_to_always,
		      test_written_to_while_seeking, test_restart, test_lazy_clone, test_huge_hole,
		      test_many_parts, test_async_error, test_async_restart, test_async_lost,
		      test_async_cancelled, test_async_pauses })
