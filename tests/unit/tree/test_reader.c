/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>

#include "base/clock.h"
#include "tree/copy.h"
#include "tree/reader.h"
#include "tree_util.h"

#define SMALL 1000 /* bytes */

static const struct fake_habits full = { .page = 150, .entries = FAKE_ENTRIES_FULL };

/* Read "tree" and return the number of entries. */
static uint64_t read_tree(const char *row, struct fake_nfs *f, struct tree_work *work)
{
	const struct tree_reader_options options = { .map = false };
	struct tree_meter m = TREE_METER;
	struct error err = { .code = ERROR_OK };
	struct nfs_handle handle;
	struct nfs_attr attr;

	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	check_int(row, "result", tree_read(work, &handle, &attr, &options, &m.sink, &err), 0);
	check_int(row, "operations left in flight", work->reading, 0);
	check_int(row, "bytes left", work->ahead.held + work->unwritten.held, 0);
	check_int(row, "ended", m.ended, m.begun);
	return m.begun;
}

/* -------- round trips -------- */

/* A client that answers all operations in flight at once. */
struct slow {
	const struct nfs_client_ops *real;
	const struct tree_work *work;
	unsigned int round_trips;
};

static struct slow slow;

static int run_slowly(struct nfs_client *c, uint64_t deadline_ns)
{
	size_t n = slow.work->reading;
	int r = 0;

	slow.round_trips++;
	while (n-- > 0 && r == 0)
		r = slow.real->run(c, deadline_ns);
	return r;
}

/* Create files "<before><number><behind>". */
static void put_each(struct fake_nfs *f, const char *before, unsigned int n, const char *behind)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "%s%u%s", before, i, behind);
		tree_fill_file(f, path, 0, SMALL);
	}
}

static void put_subtree(struct fake_nfs *f)
{
	unsigned int i;

	for (i = 0; i < 100; i++) {
		char folder[32];

		(void)snprintf(folder, sizeof(folder), "tree/a/%u/", i);
		put_each(f, folder, 20, "");
	}
}

static void put_file_behind(struct fake_nfs *f)
{
	put_subtree(f);
	tree_fill_file(f, "tree/z", 0, 3 * MIB);
}

static void put_files_behind(struct fake_nfs *f)
{
	put_subtree(f);
	put_each(f, "tree/z", 1000, "");
}

static void put_directories(struct fake_nfs *f)
{
	put_each(f, "tree/", 2000, "/f");
}

static void put_nested(struct fake_nfs *f)
{
	put_each(f, "tree/", 2000, "/d/f");
}

/* Add names to the files of put_subtree(): "<before><directory><between><file><behind>". */
static void link_each(struct fake_nfs *f, const char *before, const char *between,
		      const char *behind)
{
	unsigned int i, k;

	for (i = 0; i < 100; i++) {
		for (k = 0; k < 20; k++) {
			char first[64], name[64];

			(void)snprintf(first, sizeof(first), "tree/a/%u/%u", i, k);
			(void)snprintf(name, sizeof(name), "%s%u%s%u%s", before, i, between, k,
				       behind);
			fake_nfs_link(f, first, name);
		}
	}
}

static void put_links_behind(struct fake_nfs *f)
{
	put_subtree(f);
	link_each(f, "tree/b/", "/", "");
}

static void put_links_beside(struct fake_nfs *f)
{
	put_subtree(f);
	link_each(f, "tree/a/", "/", " too");
}

/* Data that is read ahead leaves room for the file that is delivered. */
START_TEST(test_round_trips)
{
	static const struct {
		const char *name;
		void (*put)(struct fake_nfs *f);
		unsigned int most;
	} rows[] = {
		{ "2,000 files in 100 directories", put_subtree, 80 },
		{ "and a large file behind them", put_file_behind, 80 },
		{ "and a thousand small ones", put_files_behind, 120 },
		{ "2,000 directories of one file", put_directories, 210 },
		{ "2,000 directories of one directory", put_nested, 270 },
		{ "2,000 files with another name far away", put_links_behind, 120 },
		{ "2,000 files with another name beside it", put_links_beside, 160 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct nfs_client_ops ops = *c->ops;
		struct tree_work work = { .from = c, .to = c };

		fake_nfs_habits(f, &full);
		rows[i].put(f);
		slow = (struct slow){ .real = c->ops, .work = &work };
		ops.run = run_slowly;
		c->ops = &ops;
		(void)read_tree(rows[i].name, f, &work);
		ck_assert_msg(slow.round_trips <= rows[i].most, "%s: %u round trips", rows[i].name,
			      slow.round_trips);
		c->ops = slow.real;
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

static void count_reads(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *reads = data;

	(void)f;
	*reads += op->type == NFS_OP_READ;
}

/* Each file is delivered once. A later name is not even read, unless it follows closely. */
START_TEST(test_names)
{
	static const struct {
		const char *name;
		void (*put)(struct fake_nfs *f);
		unsigned int reads;
	} rows[] = {
		{ "far away", put_links_behind, 2000 },
		{ "beside it", put_links_beside, 4000 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct tree_work work = { .from = c, .to = c };
		unsigned int reads = 0;

		fake_nfs_habits(f, &full);
		rows[i].put(f);
		fake_nfs_watch(f, count_reads, &reads);
		(void)read_tree(rows[i].name, f, &work);
		check_int(rows[i].name, "files", work.progress.files, 4000);
		check_int(rows[i].name, "bytes", work.progress.bytes, 2000 * SMALL);
		check_that(rows[i].name, "reads", reads >= 2000 && reads <= rows[i].reads);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- failures and changes -------- */

#define LEVELS 30
#define SIBLINGS 700

/* Return the number of entries, with the root. */
static unsigned int put_levels(struct fake_nfs *f)
{
	char path[256] = "tree";
	unsigned int level, i;

	for (level = 0; level < LEVELS; level++) {
		char name[300];

		(void)snprintf(name, sizeof(name), "%s/d", path);
		fake_nfs_put(f, name, NFS_TYPE_DIRECTORY, NULL);
		for (i = 0; i < SIBLINGS; i++) {
			(void)snprintf(name, sizeof(name), "%s/f%u", path, i);
			fake_nfs_put(f, name, NFS_TYPE_FILE, NULL);
		}
		ck_assert(strlen(path) + 2 < sizeof(path));
		strcat(path, "/d");
	}
	return LEVELS * (SIBLINGS + 1) + 1;
}

/* A page fails as gone once, while items in front of it are dropped and read again. */
START_TEST(test_page_fails)
{
	const struct fake_habits habits = { .page = 300, .entries = FAKE_ENTRIES_FULL };
	unsigned int nth;

	for (nth = 1; nth < 16; nth++) {
		const struct fake_failure failure = { .nth = nth,
						      .error = -ESTALE,
						      .types = 1U << NFS_OP_READDIR };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct tree_work work = { .from = c, .to = c };
		unsigned int entries = put_levels(f);
		char row[32];

		(void)snprintf(row, sizeof(row), "READDIR %u", nth);
		fake_nfs_habits(f, &habits);
		fake_nfs_fail(f, &failure);
		check_int(row, "entries", read_tree(row, f, &work), entries);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

#define CUT_FILES 900

struct cut {
	struct fake_nfs *from;
	bool done;
	size_t start, peak;
};

static void cut_files(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct cut *cut = data;
	size_t used = cut->done ? tree_heap_in_use() : 0;
	unsigned int i;

	if (cut->done && used > cut->start && used - cut->start > cut->peak)
		cut->peak = used - cut->start;
	if (cut->done || f != cut->from || op->type != NFS_OP_READ)
		return;
	for (i = 0; i < CUT_FILES; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "tree/%u", i);
		fake_nfs_truncate(f, path, 10);
	}
	cut->done = true;
	cut->start = tree_heap_in_use();
}

/* A short read does not pin a full block while it waits to be written. */
START_TEST(test_shorter)
{
	const struct fake_habits habits = { .page = CUT_FILES, .entries = FAKE_ENTRIES_FULL };
	struct fake_nfs *f = fake_nfs_new(), *g = fake_nfs_new();
	struct nfs_client *from = fake_nfs_connect(f), *to = fake_nfs_connect(g);
	struct tree_work work = { .from = from, .to = to };
	struct cut cut = { .from = f };
	struct error err = { .code = ERROR_OK };
	struct nfs_handle handle;
	struct nfs_attr attr;
	unsigned int i;

	for (i = 0; i < CUT_FILES; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "tree/%u", i);
		tree_fill_file(f, path, 0, 200 * KIB);
	}
	fake_nfs_habits(f, &habits);
	fake_nfs_pair(from, to);
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	fake_nfs_watch(f, cut_files, &cut);
	fake_nfs_watch(g, cut_files, &cut);
	check_int("shorter", "result",
		  tree_copy(&work, &handle, &attr, &to->root, "copy", false, &err), 0);
	check_that("shorter", "it happened", cut.done);
	tree_check_same("shorter", f, "tree", g, "copy");
	ck_assert_msg(cut.peak < 8 * MIB, "the copy took %zu bytes", cut.peak);
	nfs_client_free(to);
	nfs_client_free(from);
	fake_nfs_free(g);
	fake_nfs_free(f);
}
END_TEST

/* -------- counting during a copy -------- */

/* A tree_count() in the middle of a copy of "tree". */
struct meanwhile {
	struct tree_work *work;
	struct nfs_handle handle;
	struct nfs_attr attr;
	unsigned int operations;
	unsigned int at; /* the operation after which a report is due */
	unsigned int cancel_at; /* 0: never */
	unsigned int counts;
	unsigned int refused; /* READs during a count, where all are told to come later */
	int result; /* of the count */
	unsigned int patience; /* that was needed meanwhile */
	bool is_counting;
	bool stop; /* the copy, after the count */
	atomic_bool cancel;
};

static void count_in_report(const struct tree_progress *progress, void *data)
{
	struct meanwhile *m = data;
	const unsigned int before = m->work->patience;
	struct error ignored = { .code = ERROR_OK };

	if (progress != &m->work->progress || m->counts > 0)
		return;
	m->counts++;
	m->is_counting = true;
	m->result = tree_count(m->work, &m->handle, &m->attr, &ignored);
	m->is_counting = false;
	m->patience = m->work->patience - before;
	if (m->stop)
		atomic_store(&m->cancel, true);
}

static void make_due(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct meanwhile *m = data;

	(void)f;
	m->operations++;
	if (m->operations == m->at)
		m->work->reported_ns = 0;
	if (m->operations == m->cancel_at)
		atomic_store(&m->cancel, true);
	m->refused += m->is_counting && op->type == NFS_OP_READ;
}

static const struct {
	const char *name;
	int error;
	bool cancelled;
	int result;
} troubles[] = {
	{ "none", 0, false, 0 },
	{ "input/output error", -EIO, false, -EIO },
	{ "refused", -EACCES, false, -EACCES },
	{ "later", -EAGAIN, false, 0 },
	{ "cut off", -ECONNABORTED, false, -ECONNABORTED },
	{ "cancelled", 0, true, -ECANCELED },
};

/*
 * Count after so many operations, with a failure so many later. Returns whether the copy came that
 * far. A failure of the count is no error of the copy.
 */
static bool is_counted_at(size_t trouble, unsigned int at, unsigned int later, bool two)
{
	const char *row = troubles[trouble].name;
	struct fake_nfs *f = fake_nfs_new(), *g = two ? fake_nfs_new() : f;
	struct nfs_client *from = fake_nfs_connect(f), *to = two ? fake_nfs_connect(g) : from;
	struct tree_work work = { .from = from, .to = to, .report = count_in_report };
	struct meanwhile m = { .work = &work, .at = at };
	const struct fake_failure failure = {
		.nth = troubles[trouble].error != 0 ? at + later : 0,
		.error = troubles[trouble].error,
	};
	struct error err = { .code = ERROR_OK };
	bool counted;
	int r;

	tree_put(f);
	put_each(f, "tree/more/", 20, "");
	if (two)
		fake_nfs_pair(from, to);
	ck_assert(fake_nfs_get(f, "tree", &m.handle, &m.attr));
	m.cancel_at = troubles[trouble].cancelled ? at + later : 0;
	work.cancel = &m.cancel;
	work.data = &m;
	work.reported_ns = clock_now_ns();
	fake_nfs_watch(f, make_due, &m);
	fake_nfs_fail(f, &failure);
	r = tree_copy(&work, &m.handle, &m.attr, &to->root, "copy", true, &err);
	check_that(row, "result", r == 0 || r == troubles[trouble].result);
	check_int(row, "an error is reported", err.code != ERROR_OK, r < 0);
	check_int(row, "operations left in flight", work.reading + work.writing, 0);
	check_int(row, "bytes left", work.ahead.held + work.unwritten.held, 0);
	counted = m.counts > 0;
	if (counted && trouble == 0)
		check_int(row, "count", m.result, 0);
	if (counted && m.result == 0 && r == 0)
		check_int(row, "files", work.progress.all_files, work.progress.files);
	fake_nfs_watch(f, NULL, NULL);
	fake_nfs_fail(f, NULL);
	if (r == 0)
		tree_check_same(row, f, "tree", g, "copy");
	if (two)
		nfs_client_free(to);
	nfs_client_free(from);
	if (two)
		fake_nfs_free(g);
	fake_nfs_free(f);
	return counted;
}

START_TEST(test_counted_meanwhile)
{
	static const unsigned int later[] = { 1, 10, 40 };
	size_t trouble = (size_t)_i / 2, i;
	unsigned int at, counted = 0;

	/* Being told to come later takes its time. */
	for (i = 0; i < (troubles[trouble].error == -EAGAIN ? 1 : ARRAY_SIZE(later)); i++)
		for (at = 1; at < 250; at += 13)
			counted += is_counted_at(trouble, at, later[i], _i % 2 == 1);
	check_that(troubles[trouble].name, "it was counted in the middle", counted > 5);
}
END_TEST

#define FILES 2

/* An operation that was asked to try later is not repeated all the time while others go on. */
START_TEST(test_patient_meanwhile)
{
	const struct fake_failure failure = {
		.nth = 1, .error = -EAGAIN, .all = true, .types = 1U << NFS_OP_READ
	};
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c, .report = count_in_report };
	struct meanwhile m = { .work = &work, .at = 5, .stop = true };
	struct error err = { .code = ERROR_OK };

	put_each(f, "tree/", FILES, "");
	put_each(f, "tree/a/b/c/d/e/f/g/h/i/j/", 1, "");
	ck_assert(fake_nfs_get(f, "tree", &m.handle, &m.attr));
	work.cancel = &m.cancel;
	work.data = &m;
	work.reported_ns = clock_now_ns();
	fake_nfs_watch(f, make_due, &m);
	fake_nfs_fail(f, &failure);
	check_int("patient", "result",
		  tree_copy(&work, &m.handle, &m.attr, &c->root, "copy", false, &err), -ECANCELED);
	check_int("patient", "count", m.result, 0);
	ck_assert_msg(m.refused <= FILES * (m.patience + 1), "%u READs in %u turns", m.refused,
		      m.patience);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

CHECK_MAIN("tree_reader",
	   .tests = { test_round_trips, test_names, test_page_fails, test_shorter,
		      test_patient_meanwhile },
	   .loops = { { test_counted_meanwhile, 2 * ARRAY_SIZE(troubles) } })
