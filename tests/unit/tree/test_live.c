/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Copies and archives of trees that change, and of servers that forget handles. */

#include <errno.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "nfs/calls.h"
#include "tree/archive.h"
#include "tree/copy.h"
#include "tree/hardlinks.h"
#include "tree/reader.h"
#include "tree_util.h"

#define BIG (4 * MIB)

static const struct fake_habits full = { .page = 100, .entries = FAKE_ENTRIES_FULL };
static const struct fake_habits seeks = { .page = 100,
					  .entries = FAKE_ENTRIES_FULL,
					  .offload = NFS_OFFLOAD_SEEK };

static const struct {
	const char *name;
	struct fake_habits habits;
} kinds[] = {
	{ "full", { .page = 100, .entries = FAKE_ENTRIES_FULL } },
	{ "mixed", { .page = 3 } },
	{ "bare", { .page = 4, .entries = FAKE_ENTRIES_BARE, .bare = true } },
};

/* A copy or archive of "tree" on one share, as "copy" on the other. */
struct job {
	struct fake_nfs *f, *g;
	struct nfs_client *from, *to;
	struct tree_work work;
	struct error err;
	int result;
};

/* Read extended attributes, although there are none, if that comes with the data. */
static void job_init(struct job *j, const struct fake_habits *habits)
{
	const bool lists = fake_nfs_lists_max > 0;
	struct fake_habits own = *habits;

	*j = (struct job){ .f = fake_nfs_new(), .g = fake_nfs_new() };
	j->from = fake_nfs_connect(j->f);
	j->to = fake_nfs_connect(j->g);
	fake_nfs_pair(j->from, j->to);
	own.xattrs = own.xattrs || lists;
	fake_nfs_habits(j->f, &own);
	j->work = (struct tree_work){ .from = j->from, .to = j->to, .from_xattrs = lists };
}

static void job_done(struct job *j)
{
	nfs_client_free(j->from);
	nfs_client_free(j->to);
	fake_nfs_free(j->f);
	fake_nfs_free(j->g);
}

static void check_ended(const char *row, const struct job *j)
{
	check_int(row, "operations left in flight", j->work.reading + j->work.writing, 0);
	check_int(row, "bytes left", j->work.ahead.held + j->work.unwritten.held, 0);
	check_int(row, "an error is reported", j->err.code != ERROR_OK, j->result < 0);
}

static void copy(const char *row, struct job *j)
{
	struct nfs_handle handle;
	struct nfs_attr attr;

	ck_assert(fake_nfs_get(j->f, "tree", &handle, &attr));
	j->result = tree_copy(&j->work, &handle, &attr, &j->to->root, "copy", true, &j->err);
	check_ended(row, j);
}

/* Copy by way of an archive, in one attempt. */
static void archive(const char *row, struct job *j)
{
	struct tree_work back = { .from = j->to, .to = j->to };
	struct tree_archive_sum sum = { .bytes = 0 };
	struct nfs_handle handle;
	struct nfs_attr attr;

	ck_assert(fake_nfs_get(j->f, "tree", &handle, &attr));
	j->result = tree_pack(&j->work, &handle, &attr, &j->to->root, "out", "archive",
			      TREE_COMPRESSION_NONE, &sum, &j->err);
	check_ended(row, j);
	if (j->result < 0)
		return;
	ck_assert(fake_nfs_get(j->g, "out/archive", &handle, &attr));
	j->result = tree_unpack(&back, &handle, attr.size, &sum, &j->to->root, "copy", &j->err);
	ck_assert_msg(j->result == 0, "%s: %s", row, j->err.msg);
}

static void (*const jobs[])(const char *row, struct job *j) = { copy, archive };
static const char *const job_names[] = { "copy", "archive" };

static void check_whole(const char *row, struct job *j)
{
	ck_assert_msg(j->result == 0, "%s: %s", row, j->err.msg);
	tree_check_same(row, j->f, "tree", j->g, "copy");
}

/* -------- handles that are stale for a while -------- */

#define FROM_OPS                                                                                   \
	(1U << NFS_OP_LOOKUP | 1U << NFS_OP_GETATTR | 1U << NFS_OP_READDIR |                       \
	 1U << NFS_OP_READLINK | 1U << NFS_OP_READ)

/* Make all handles stale before an operation and valid again some operations later. */
struct outage {
	unsigned int n, from, until;
	int error;
	unsigned int types;
};

static void fail_meanwhile(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct outage *o = data;
	const struct fake_failure failure = {
		.nth = 1, .error = o->error, .all = true, .types = o->types
	};

	o->n += (1U << op->type & o->types) != 0;
	if (o->n == o->from)
		fake_nfs_fail(f, &failure);
	if (o->n == o->until)
		fake_nfs_fail(f, NULL);
}

/* Return whether that operation was reached. */
static bool is_whole_despite(const char *row, size_t job, size_t kind, struct outage o)
{
	struct job j;

	job_init(&j, &kinds[kind].habits);
	tree_put(j.f);
	tree_fill_file(j.f, "tree/large", 0, 2 * MIB + 1);
	fake_nfs_watch(j.f, fail_meanwhile, &o);
	jobs[job](row, &j);
	fake_nfs_watch(j.f, NULL, NULL);
	fake_nfs_fail(j.f, NULL);
	check_whole(row, &j);
	check_int(row, "vanished", j.work.progress.vanished, 0);
	job_done(&j);
	return o.n >= o.from;
}

/* Stale handles at each operation, for one operation or for many. */
START_TEST(test_stale)
{
	static const unsigned int lengths[] = { 1, 3, 15 };
	const size_t job = (size_t)_i % 2, kind = (size_t)_i / 2;
	bool more = true;
	unsigned int n;
	size_t i;

	for (n = 1; more; n++) {
		for (i = 0, more = false; i < ARRAY_SIZE(lengths); i++) {
			const struct outage o = { .from = n,
						  .until = n + lengths[i],
						  .error = -ESTALE,
						  .types = FROM_OPS };
			char row[64];

			(void)snprintf(row, sizeof(row), "%s, %s, %u operations from %u",
				       job_names[job], kinds[kind].name, lengths[i], n);
			/* Being patient takes its time. */
			if (i == 0 || n % (lengths[i] * lengths[i] / 4) == 1)
				more = is_whole_despite(row, job, kind, o) || more;
		}
	}
	check_that("stale", "there were operations", n > 20);
}
END_TEST

/* The server reports a handle as gone once, but its name still leads to it. */
START_TEST(test_not_gone)
{
	const size_t job = (size_t)_i % 2, kind = (size_t)_i / 2;
	bool more = true;
	unsigned int n;

	for (n = 1; more; n++) {
		const struct outage o = { .from = n,
					  .until = n + 1,
					  .error = -ENOENT,
					  .types = FROM_OPS &
						   ~(1U << NFS_OP_LOOKUP | 1U << NFS_OP_GETATTR) };
		char row[64];

		(void)snprintf(row, sizeof(row), "%s, %s, operation %u", job_names[job],
			       kinds[kind].name, n);
		more = is_whole_despite(row, job, kind, o);
	}
	check_that("not gone", "there were operations", n > 10);
}
END_TEST

/* Handles stay stale: the result must not be OK and incomplete. */
START_TEST(test_stale_for_ever)
{
	static const unsigned int at[] = { 1, 20 };
	struct job j;
	struct outage o = {
		.from = at[_i / 2], .until = UINT32_MAX, .error = -ESTALE, .types = FROM_OPS
	};

	job_init(&j, &full);
	tree_put(j.f);
	fake_nfs_watch(j.f, fail_meanwhile, &o);
	jobs[_i % 2]("for ever", &j);
	check_that("for ever", "it happened", o.n >= o.from);
	check_that("for ever", "it fails", j.result < 0);
	check_that("for ever", "it may pass",
		   j.err.code == ERROR_UNAVAILABLE || j.err.code == ERROR_ABORTED);
	job_done(&j);
}
END_TEST

/* -------- directories that are listed again -------- */

#define SIBLINGS 700
#define LEVELS 6

static unsigned int put_levels(struct fake_nfs *f)
{
	char path[256] = "tree";
	unsigned int level, i;

	for (level = 0; level < LEVELS; level++) {
		for (i = 0; i < SIBLINGS; i++) {
			char name[300];

			(void)snprintf(name, sizeof(name), "%s/%s%u", path,
				       i % 100 == 7 ? "g/" : "f", i);
			fake_nfs_put(f, name, NFS_TYPE_FILE, NULL);
		}
		ck_assert(strlen(path) + 2 < sizeof(path));
		strcat(path, "/d");
	}
	return LEVELS * SIBLINGS;
}

/* The server loses its place at each page in turn: each name still comes once. */
START_TEST(test_begin_again)
{
	const struct fake_habits habits = { .page = 300, .entries = FAKE_ENTRIES_FULL };
	bool more = true;
	unsigned int n;

	for (n = 1; more; n++) {
		const struct outage o = { .from = n,
					  .until = n + 1 + n % 3,
					  .error = -ERESTART,
					  .types = 1U << NFS_OP_READDIR };
		struct outage at = o;
		unsigned int files;
		struct job j;
		char row[32];

		(void)snprintf(row, sizeof(row), "READDIR %u", n);
		job_init(&j, &habits);
		files = put_levels(j.f);
		fake_nfs_watch(j.f, fail_meanwhile, &at);
		copy(row, &j);
		fake_nfs_watch(j.f, NULL, NULL);
		fake_nfs_fail(j.f, NULL);
		check_whole(row, &j);
		check_int(row, "files", j.work.progress.files, files);
		more = at.n >= at.from;
		job_done(&j);
	}
	check_that("begin again", "there were pages", n > LEVELS * 2);
}
END_TEST

struct listed {
	unsigned int n;
	bool seen[SIBLINGS];
};

static int see(void *data, const struct nfs_entry *entry)
{
	struct listed *l = data;
	unsigned int i = (unsigned int)atoi(entry->name + 1);

	check_that(entry->name, "comes once", i < SIBLINGS && !l->seen[i]);
	l->seen[i] = true;
	l->n++;
	return 0;
}

/*
 * The driver's own listings, too. nfs-ganesha answers NOENT when an entry is removed while it
 * lists: a restore from a snapshot failed with NOT_FOUND by that, under many copies at once.
 */
START_TEST(test_listing_begins_again)
{
	static const int errors[] = { -ERESTART, -ENOENT, -EREMOTEIO };
	unsigned int n;

	for (n = 1; n < 30; n++) {
		struct outage o = { .from = n,
				    .until = n + 1 + n % 3,
				    .error = errors[_i],
				    .types = 1U << NFS_OP_READDIR };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct listed l = { .n = 0 };
		struct nfs_handle handle;
		struct nfs_attr attr;
		unsigned int i;
		char name[32];

		for (i = 0; i < SIBLINGS; i++) {
			(void)snprintf(name, sizeof(name), "d/f%u", i);
			fake_nfs_put(f, name, NFS_TYPE_FILE, NULL);
		}
		fake_nfs_habits(f, &(struct fake_habits){ .page = 50 });
		ck_assert(fake_nfs_get(f, "d", &handle, &attr));
		fake_nfs_watch(f, fail_meanwhile, &o);
		check_int("listing", "result", nfs_readdir(c, &handle, see, &l), 0);
		check_int("listing", "names", l.n, SIBLINGS);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* ENOENT for a directory does not mean that a name in it is gone. */
START_TEST(test_listing_of_what_has_gone)
{
	struct outage o = {
		.from = 1, .until = UINT32_MAX, .error = -ENOENT, .types = 1U << NFS_OP_READDIR
	};
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct listed l = { .n = 0 };
	struct nfs_handle handle;
	struct nfs_attr attr;

	fake_nfs_put(f, "d/f0", NFS_TYPE_FILE, NULL);
	ck_assert(fake_nfs_get(f, "d", &handle, &attr));
	fake_nfs_watch(f, fail_meanwhile, &o);
	check_int("listing", "result", nfs_readdir(c, &handle, see, &l), -ESTALE);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* -------- changes by others -------- */

/* Make a change before operations of a type, from the first to the last. */
struct event {
	enum nfs_op_type type;
	unsigned int first, last;
	void (*happen)(struct fake_nfs *f, unsigned int n);
	unsigned int seen, happened;
};

static void watch(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct event *e = data;

	if (op->type != e->type)
		return;
	e->seen++;
	if (e->seen >= e->first && e->seen <= e->last) {
		e->happened++;
		e->happen(f, e->happened);
	}
}

static void write_version(struct fake_nfs *f, const char *path, unsigned int n)
{
	const size_t len = BIG + n % 5 * 4096 - n % 3 * 100;
	char *data = malloc(len);

	ck_assert(data != NULL);
	memset(data, 'a' + (int)n % 20, len);
	fake_nfs_write(f, path, 0, data, len);
	free(data);
}

static void replace_big(struct fake_nfs *f, unsigned int n)
{
	fake_nfs_remove(f, "tree/big");
	write_version(f, "tree/big", n);
}

static void write_into_big(struct fake_nfs *f, unsigned int n)
{
	tree_fill_file(f, "tree/big", n % 40 * 100 * KIB, 3 * KIB);
}

static void grow_big(struct fake_nfs *f, unsigned int n)
{
	tree_fill_file(f, "tree/big", BIG, 3 * n * KIB);
}

static void cut_big(struct fake_nfs *f, unsigned int n)
{
	fake_nfs_truncate(f, "tree/big", BIG / 2 - n * 1000);
}

static void remove_big(struct fake_nfs *f, unsigned int n)
{
	(void)n;
	fake_nfs_remove(f, "tree/big");
}

static void big_becomes_directory(struct fake_nfs *f, unsigned int n)
{
	remove_big(f, n);
	tree_fill_file(f, "tree/big/inside", 0, 100);
}

static void big_becomes_link(struct fake_nfs *f, unsigned int n)
{
	remove_big(f, n);
	fake_nfs_put(f, "tree/big", NFS_TYPE_SYMLINK, "elsewhere");
}

static void big_becomes_small(struct fake_nfs *f, unsigned int n)
{
	remove_big(f, n);
	tree_fill_file(f, "tree/big", 0, 5);
}

static void big_becomes_hole(struct fake_nfs *f, unsigned int n)
{
	remove_big(f, n);
	fake_nfs_write(f, "tree/big", 0, "", 0);
	fake_nfs_truncate(f, "tree/big", BIG);
	tree_fill_file(f, "tree/big", MIB, 10);
}

/* Another file takes the name, and this one is moved to a name that comes later. */
static void swap_links(struct fake_nfs *f, unsigned int n)
{
	(void)n;
	fake_nfs_remove(f, "tree/z");
	fake_nfs_link(f, "tree/big", "tree/z");
	fake_nfs_remove(f, "tree/big");
	write_version(f, "tree/big", 3);
	fake_nfs_link(f, "tree/big", "tree/zz");
}

static void put_live(struct fake_nfs *f)
{
	unsigned int i;
	char name[32];

	write_version(f, "tree/big", 0);
	for (i = 0; i < 8; i++) {
		(void)snprintf(name, sizeof(name), "tree/f%u", i);
		tree_fill_file(f, name, 0, 1000);
		(void)snprintf(name, sizeof(name), "tree/dir/%u", i);
		tree_fill_file(f, name, 0, 1000);
	}
	fake_nfs_write(f, "tree/z", 0, "z", 1);
}

#define READS (BIG / NFS_TRANSFER_MAX)

/* A single change at any READ: the copy has it, unless the file was copied before. */
START_TEST(test_happens_once)
{
	static const struct {
		const char *name;
		void (*happen)(struct fake_nfs *f, unsigned int n);
		bool archive_too; /* else it may have to be made anew */
	} rows[] = {
		{ "replaced", replace_big, true },
		{ "written in place", write_into_big, true },
		{ "longer", grow_big, true },
		{ "shorter", cut_big, true },
		{ "a link", big_becomes_link, true },
		{ "small", big_becomes_small, true },
		{ "a hole", big_becomes_hole, true },
		{ "links swapped", swap_links, true },
		{ "removed", remove_big, false },
		{ "a directory", big_becomes_directory, false },
	};
	size_t row = (size_t)_i / 2, job = (size_t)_i % 2;
	unsigned int at;

	for (at = 1; at < READS + 10; at += 5) {
		struct event e = { NFS_OP_READ, at, at, rows[row].happen, 0, 0 };
		struct job j;
		char text[64];

		(void)snprintf(text, sizeof(text), "%s, %s, READ %u", job_names[job],
			       rows[row].name, at);
		job_init(&j, &kinds[at % ARRAY_SIZE(kinds)].habits);
		put_live(j.f);
		fake_nfs_watch(j.f, watch, &e);
		jobs[job](text, &j);
		fake_nfs_watch(j.f, NULL, NULL);
		check_that(text, "it happened", e.happened == 1);
		if (job == 1 && !rows[row].archive_too && j.result == -ERESTART) {
			check_error(text, &j.err, ERROR_ABORTED, NULL);
			fake_nfs_remove(j.g, "out");
			error_clear(&j.err);
			jobs[job](text, &j);
		}
		if (j.result != 0 || fake_nfs_type(j.g, "copy/big") != NFS_TYPE_FILE ||
		    fake_nfs_type(j.f, "tree/big") == NFS_TYPE_FILE)
			ck_assert_msg(j.result == 0, "%s: %s", text, j.err.msg);
		check_int(text, "changed", j.work.progress.changed, 0);
		fake_nfs_remove(j.f, "tree/dir"); /* what was read before it happened, or not */
		fake_nfs_remove(j.g, "copy/dir");
		if (e.seen > at + READS || fake_nfs_type(j.f, "tree/big") == NFS_TYPE_FILE)
			tree_check_same(text, j.f, "tree/f7", j.g, "copy/f7");
		if (at <= READS)
			tree_check_same(text, j.f, "tree/big", j.g, "copy/big");
		job_done(&j);
	}
}
END_TEST

/* A change that READs show in the data, and not in the attributes that come with it. */
struct unseen {
	unsigned int reads, at;
	bool happened;
};

static void change_unseen(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct unseen *u = data;

	if (op->type == NFS_OP_GETATTR && u->happened)
		fake_nfs_lag(f, NULL);
	if (op->type != NFS_OP_READ || ++u->reads != u->at)
		return;
	u->happened = true;
	fake_nfs_lag(f, "tree/big");
	tree_fill_file(f, "tree/big", 0, 3 * KIB);
	tree_fill_file(f, "tree/big", BIG - 3 * KIB, 3 * KIB);
}

/* Linux's server sends pages that change after it took the attributes. */
START_TEST(test_data_later_than_attributes)
{
	const char *row = job_names[_i];
	unsigned int at;

	for (at = 2; at <= READS; at++) {
		struct unseen u = { .at = at };
		struct job j;

		job_init(&j, &full);
		write_version(j.f, "tree/big", 0);
		fake_nfs_watch(j.f, change_unseen, &u);
		jobs[_i](row, &j);
		fake_nfs_watch(j.f, NULL, NULL);
		check_that(row, "it happened", u.happened);
		check_int(row, "changed", j.work.progress.changed, 0);
		check_whole(row, &j);
		job_done(&j);
	}
}
END_TEST

/* The file is one version: all bytes are the same, and it has that version's size. */
static void check_version(const char *row, struct fake_nfs *g, const char *path)
{
	struct nfs_handle handle;
	struct nfs_attr attr;
	size_t i;
	char *data;

	ck_assert_msg(fake_nfs_get(g, path, &handle, &attr), "%s: it is not there", row);
	check_that(row, "size", attr.size > BIG - MIB);
	data = malloc((size_t)attr.size);
	ck_assert(data != NULL);
	fake_nfs_read(g, path, 0, data, (size_t)attr.size);
	for (i = 0; i < attr.size && data[i] == data[0]; i++)
		;
	ck_assert_msg(i == attr.size && data[0] != '\0', "%s: another byte at %zu", row, i);
	free(data);
}

/* Changes some READs apart; the last version stays long enough to be read. */
static void replace_sometimes(struct fake_nfs *f, unsigned int n)
{
	if (n % 10 == 0)
		replace_big(f, n);
}

START_TEST(test_replaced_again_and_again)
{
	struct event e = { NFS_OP_READ, 1, 55, replace_sometimes, 0, 0 };
	const char *row = job_names[_i];
	struct job j;

	job_init(&j, &full);
	put_live(j.f);
	fake_nfs_watch(j.f, watch, &e);
	jobs[_i](row, &j);
	fake_nfs_watch(j.f, NULL, NULL);
	ck_assert_msg(j.result == 0, "%s: %s", row, j.err.msg);
	check_version(row, j.g, "copy/big");
	check_int(row, "it was to the end", e.happened, 55);
	job_done(&j);
}
END_TEST

/* A file that is always replaced before it is read. */
START_TEST(test_replaced_for_ever)
{
	struct event e = { NFS_OP_READ, 1, UINT32_MAX, replace_big, 0, 0 };
	const char *row = job_names[_i];
	struct job j;

	job_init(&j, &full);
	put_live(j.f);
	fake_nfs_watch(j.f, watch, &e);
	jobs[_i](row, &j);
	check_int(row, "result", j.result, -ERESTART);
	check_error(row, &j.err, ERROR_ABORTED, "big");
	job_done(&j);
}
END_TEST

#define CUTS_LAST (3 * READS - 6)

/*
 * A file that becomes shorter each time it is read, and whose name another one takes then. Once it
 * was cut, READS / 2 read all of it.
 */
static void cut_and_replace_big(struct fake_nfs *f, unsigned int n)
{
	if (n == CUTS_LAST)
		replace_big(f, n);
	else if (n == 1 || (n > READS && n % (READS / 2) == 1))
		cut_big(f, n);
}

/* What is known of the length of the first file does not limit the second one. */
START_TEST(test_replaced_after_cuts)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(jobs); i++) {
		struct event e = { NFS_OP_READ, 2, CUTS_LAST + 1, cut_and_replace_big, 0, 0 };
		const char *row = job_names[i];
		struct job j;

		job_init(&j, &full);
		write_version(j.f, "tree/big", 0);
		fake_nfs_watch(j.f, watch, &e);
		jobs[i](row, &j);
		fake_nfs_watch(j.f, NULL, NULL);
		check_int(row, "it was replaced", e.happened, CUTS_LAST);
		ck_assert_msg(j.result == 0, "%s: %s", row, j.err.msg);
		tree_check_same(row, j.f, "tree/big", j.g, "copy/big");
		check_int(row, "changed", j.work.progress.changed, 0);
		job_done(&j);
	}
}
END_TEST

/* A writer opens a file with O_TRUNC again and again: each READ up to a limit finds nothing. */
struct rewriter {
	unsigned int cuts, max;
};

static void rewrite(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct rewriter *w = data;

	if (op->type == NFS_OP_READ && w->cuts < w->max) {
		w->cuts++;
		fake_nfs_truncate(f, "tree/small", 0);
	} else if (op->type == NFS_OP_LOOKUP) {
		tree_fill_file(f, "tree/small", 0, 5000);
	}
}

/* It is read again, three times. Then it is kept as short as it was found, and that is counted. */
START_TEST(test_cut_and_written_again)
{
	static const struct {
		unsigned int cuts;
		uint64_t changed, size;
	} rows[] = {
		{ 1, 0, 5000 }, { 2, 0, 5000 }, { 3, 0, 5000 }, { 4, 1, 0 }, { UINT32_MAX, 1, 0 },
	};
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (k = 0; k < ARRAY_SIZE(jobs); k++) {
			struct rewriter w = { .max = rows[i].cuts };
			struct nfs_handle handle;
			struct nfs_attr attr;
			struct job j;
			char row[64];

			(void)snprintf(row, sizeof(row), "%s, cut %u times", job_names[k],
				       rows[i].cuts);
			job_init(&j, &full);
			tree_fill_file(j.f, "tree/small", 0, 5000);
			fake_nfs_watch(j.f, rewrite, &w);
			jobs[k](row, &j);
			fake_nfs_watch(j.f, NULL, NULL);
			ck_assert_msg(j.result == 0, "%s: %s", row, j.err.msg);
			ck_assert(fake_nfs_get(j.g, "copy/small", &handle, &attr));
			check_int(row, "size", attr.size, rows[i].size);
			check_int(row, "changed", j.work.progress.changed, rows[i].changed);
			job_done(&j);
		}
	}
}
END_TEST

/* A log or a database, written to all the time, is copied and counted. */
START_TEST(test_written_for_ever)
{
	static void (*const happen[])(struct fake_nfs * f, unsigned int n) = { write_into_big,
									       grow_big };
	struct event e = { NFS_OP_READ, 1, UINT32_MAX, happen[_i / 2], 0, 0 };
	const char *row = job_names[_i % 2];
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct job j;

	job_init(&j, &full);
	put_live(j.f);
	fake_nfs_watch(j.f, watch, &e);
	jobs[_i % 2](row, &j);
	fake_nfs_watch(j.f, NULL, NULL);
	ck_assert_msg(j.result == 0, "%s: %s", row, j.err.msg);
	check_int(row, "changed", j.work.progress.changed, 1);
	check_that(row, "read again three times", e.seen > 4 * READS && e.seen < 5 * READS + 40);
	ck_assert(fake_nfs_get(j.g, "copy/big", &handle, &attr));
	check_that(row, "size", attr.size >= BIG);
	tree_check_same(row, j.f, "tree/f7", j.g, "copy/f7");
	job_done(&j);
}
END_TEST

/* -------- directories -------- */

static void dir_becomes_link(struct fake_nfs *f, unsigned int n)
{
	(void)n;
	fake_nfs_remove(f, "tree/dir");
	fake_nfs_put(f, "tree/dir", NFS_TYPE_SYMLINK, "/elsewhere");
}

static void dir_becomes_file(struct fake_nfs *f, unsigned int n)
{
	(void)n;
	fake_nfs_remove(f, "tree/dir");
	tree_fill_file(f, "tree/dir", 0, 700);
}

static void dir_becomes_another(struct fake_nfs *f, unsigned int n)
{
	(void)n;
	fake_nfs_remove(f, "tree/dir");
	tree_fill_file(f, "tree/dir/3", 0, 77);
	tree_fill_file(f, "tree/dir/other", 0, 77);
}

static void remove_dir(struct fake_nfs *f, unsigned int n)
{
	(void)n;
	fake_nfs_remove(f, "tree/dir");
}

/* A change at any page: the copy has one of the versions, and the rest is complete. */
START_TEST(test_directory_replaced)
{
	static const struct {
		const char *name;
		void (*happen)(struct fake_nfs *f, unsigned int n);
		enum nfs_type type;
	} rows[] = {
		{ "a link", dir_becomes_link, NFS_TYPE_SYMLINK },
		{ "a file", dir_becomes_file, NFS_TYPE_FILE },
		{ "another", dir_becomes_another, NFS_TYPE_DIRECTORY },
		{ "removed", remove_dir, NFS_TYPE_UNKNOWN },
	};
	size_t row = (size_t)_i / 2, job = (size_t)_i % 2;
	unsigned int at;

	for (at = 1; at < 14; at++) {
		struct event e = { NFS_OP_READDIR, at, at, rows[row].happen, 0, 0 };
		struct job j;
		enum nfs_type type;
		char text[64];

		(void)snprintf(text, sizeof(text), "%s, %s, READDIR %u", job_names[job],
			       rows[row].name, at);
		job_init(&j, &(struct fake_habits){ .page = 2, .entries = FAKE_ENTRIES_FULL });
		put_live(j.f);
		fake_nfs_watch(j.f, watch, &e);
		jobs[job](text, &j);
		fake_nfs_watch(j.f, NULL, NULL);
		if (j.result == -ERESTART && job == 1) {
			error_clear(&j.err);
			fake_nfs_remove(j.g, "out");
			jobs[job](text, &j);
		}
		ck_assert_msg(j.result == 0, "%s: %s", text, j.err.msg);
		type = fake_nfs_type(j.g, "copy/dir");
		check_that(text, "the directory, or what came",
			   type == NFS_TYPE_DIRECTORY || type == rows[row].type);
		if (rows[row].type == NFS_TYPE_DIRECTORY && e.happened > 0)
			check_that(text, "what is new in it",
				   fake_nfs_type(j.g, "copy/dir/other") == NFS_TYPE_FILE ||
					   fake_nfs_type(j.g, "copy/dir/7") == NFS_TYPE_FILE);
		tree_check_same(text, j.f, "tree/f7", j.g, "copy/f7");
		tree_check_same(text, j.f, "tree/big", j.g, "copy/big");
		job_done(&j);
	}
}
END_TEST

static void move_dirs(struct fake_nfs *f, unsigned int n)
{
	struct nfs_client *c = fake_nfs_connect(f);
	struct nfs_handle from, to;
	struct nfs_attr attr;
	const char *a = n % 2 == 1 ? "tree/a" : "tree/x", *b = n % 2 == 1 ? "tree/x" : "tree/a";

	if (fake_nfs_get(f, a, &from, &attr) && fake_nfs_get(f, b, &to, &attr))
		(void)nfs_rename(c, &from, "moving", &to, "moving");
	nfs_client_free(c);
}

/* Entries that stay in place are copied while others are moved around. */
START_TEST(test_directory_moves)
{
	struct event e = { NFS_OP_READDIR, 2, UINT32_MAX, NULL, 0, 0 };
	const char *row = job_names[_i];
	struct job j;
	unsigned int i;
	char name[40];

	job_init(&j, &(struct fake_habits){ .page = 2, .entries = FAKE_ENTRIES_FULL });
	for (i = 0; i < 30; i++) {
		(void)snprintf(name, sizeof(name), "tree/a/moving/%u", i);
		tree_fill_file(j.f, name, 0, 10);
		(void)snprintf(name, sizeof(name), "tree/a/stays/%u", i);
		tree_fill_file(j.f, name, 0, 10);
		(void)snprintf(name, sizeof(name), "tree/x/stays/%u", i);
		tree_fill_file(j.f, name, 0, 10);
	}
	e.happen = move_dirs;
	fake_nfs_watch(j.f, watch, &e);
	jobs[_i](row, &j);
	fake_nfs_watch(j.f, NULL, NULL);
	ck_assert_msg(j.result == 0, "%s: %s", row, j.err.msg);
	check_that(row, "it happened", e.happened > 10);
	tree_check_same(row, j.f, "tree/a/stays", j.g, "copy/a/stays");
	tree_check_same(row, j.f, "tree/x/stays", j.g, "copy/x/stays");
	job_done(&j);
}
END_TEST

/* -------- limits -------- */

START_TEST(test_all_hole)
{
	const char *row = job_names[_i];
	struct job j;

	job_init(&j, &full);
	tree_fill_file(j.f, "tree/a", 0, 10);
	fake_nfs_write(j.f, "tree/petabyte", 0, "x", 1);
	fake_nfs_truncate(j.f, "tree/petabyte", UINT64_C(1) << 50);
	jobs[_i](row, &j);
	check_that(row, "it is refused", j.result < 0);
	check_error(row, &j.err, ERROR_FAILED_PRECONDITION, "'petabyte'");
	job_done(&j);
}
END_TEST

/* SEEK finds the hole at once, but packing its zeros would take as long as reading them. */
START_TEST(test_all_hole_in_an_archive)
{
	struct job j;

	job_init(&j, &seeks);
	j.work.offload = NFS_OFFLOAD_SEEK;
	tree_fill_file(j.f, "tree/a", 0, 10);
	fake_nfs_write(j.f, "tree/exabytes", 0, "", 0);
	fake_nfs_truncate(j.f, "tree/exabytes", UINT64_C(7) << 60);
	archive("exabytes", &j);
	check_that("exabytes", "it is refused", j.result < 0);
	check_error("exabytes", &j.err, ERROR_FAILED_PRECONDITION, "'exabytes'");
	job_done(&j);
}
END_TEST

/* A file that is given other sizes while it is read. The job is cancelled after many operations. */
struct resized {
	uint64_t at_read, at_lookup; /* sizes */
	unsigned int operations, reads, lookups;
	atomic_bool cancel;
};

static void resize(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct resized *file = data;

	if (op->type == NFS_OP_READ && ++file->reads == 1)
		fake_nfs_truncate(f, "tree/file", file->at_read);
	if (op->type == NFS_OP_LOOKUP && ++file->lookups == 1)
		fake_nfs_truncate(f, "tree/file", file->at_lookup);
	if (++file->operations == 5000)
		atomic_store(&file->cancel, true);
}

/* A file that is looked up again counts with the size that it has then, and once. */
START_TEST(test_hole_at_second_look)
{
	static const struct {
		const char *name;
		size_t job;
		size_t data;
		uint64_t size, at_read, at_lookup;
		enum error_code code;
	} rows[] = {
		{ "copy, grows", 0, 300 * KIB, 300 * KIB, 1U << 30, UINT64_C(7) << 60,
		  ERROR_FAILED_PRECONDITION },
		{ "archive, grows", 1, 300 * KIB, 300 * KIB, 1U << 30, UINT64_C(7) << 60,
		  ERROR_FAILED_PRECONDITION },
		/* Reading it would take long, but is not refused. */
		{ "archive, as large again", 1, 1, UINT64_C(3) << 40, 0, UINT64_C(3) << 40,
		  ERROR_CANCELLED },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct resized file = { .at_read = rows[i].at_read,
					.at_lookup = rows[i].at_lookup };
		struct job j;

		job_init(&j, &full);
		j.work.cancel = &file.cancel;
		tree_fill_file(j.f, "tree/file", 0, rows[i].data);
		fake_nfs_truncate(j.f, "tree/file", rows[i].size);
		fake_nfs_watch(j.f, resize, &file);
		jobs[rows[i].job](rows[i].name, &j);
		check_int(rows[i].name, "lookups", file.lookups, 1);
		check_error(rows[i].name, &j.err, rows[i].code, NULL);
		job_done(&j);
	}
}
END_TEST

/* A file with too many holes for SEEK is read to find them: none becomes data. */
START_TEST(test_many_holes_in_an_archive)
{
	const char *row = "many holes";
	struct nfs_handle unused;
	struct nfs_attr attr;
	struct job j;
	unsigned int i;

	job_init(&j, &seeks);
	j.work.offload = NFS_OFFLOAD_SEEK;
	for (i = 0; i < 9000; i++)
		fake_nfs_write(j.f, "tree/parts", UINT64_C(8) * KIB * i, "data", 4);
	fake_nfs_truncate(j.f, "tree/parts", 256 * MIB);
	archive(row, &j);
	check_whole(row, &j);
	ck_assert(fake_nfs_get(j.g, "out/archive", &unused, &attr));
	check_that(row, "the archive holds the data alone", attr.size < 40 * MIB);
	job_done(&j);
}
END_TEST

static void count_report(const struct tree_progress *progress, void *data)
{
	(void)progress;
	++*(unsigned int *)data;
}

/* Packing many zeros reports, so that notes are renewed meanwhile. */
START_TEST(test_long_hole_reports)
{
	struct job j;
	unsigned int reports = 0;

	job_init(&j, &seeks);
	j.work.offload = NFS_OFFLOAD_SEEK;
	j.work.report = count_report;
	j.work.report_ms = 1;
	j.work.data = &reports;
	fake_nfs_write(j.f, "tree/hole", 0, "", 0);
	fake_nfs_truncate(j.f, "tree/hole", UINT64_C(64) << 30);
	archive("long hole", &j);
	ck_assert_msg(j.result == 0, "%s", j.err.msg);
	check_that("long hole", "it was reported often", reports > 5);
	job_done(&j);
}
END_TEST

/* Each report takes longer than its interval. After many, the work is given up. */
struct slow_report {
	unsigned int reports;
	atomic_bool cancel;
};

static void report_slowly(const struct tree_progress *progress, void *data)
{
	struct slow_report *slow = data;

	(void)progress;
	clock_sleep_ms(2);
	if (++slow->reports == 2000)
		atomic_store(&slow->cancel, true);
}

START_TEST(test_slow_reports)
{
	struct slow_report slow = { .reports = 0 };
	struct job j;
	unsigned int i;

	job_init(&j, &full);
	j.work.report = report_slowly;
	j.work.report_ms = 1;
	j.work.cancel = &slow.cancel;
	j.work.data = &slow;
	for (i = 0; i < 20; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "tree/file%u", i);
		tree_fill_file(j.f, path, 0, 1000);
	}
	copy("slow reports", &j);
	ck_assert_msg(j.result == 0, "%s", j.err.msg);
	check_that("slow reports", "it was reported", slow.reports > 0);
	job_done(&j);
}
END_TEST

static void empty_sparse(struct fake_nfs *f, unsigned int n)
{
	(void)n;
	fake_nfs_truncate(f, "tree/sparse", 0);
}

static void rewrite_sparse(struct fake_nfs *f, unsigned int n)
{
	empty_sparse(f, n);
	tree_fill_file(f, "tree/sparse", 5, 30 * MIB);
}

static void refill_sparse(struct fake_nfs *f, unsigned int n)
{
	empty_sparse(f, n);
	tree_fill_file(f, "tree/sparse", 17 * MIB, 10);
	fake_nfs_truncate(f, "tree/sparse", 30 * MIB);
}

/* A file that loses its data before SEEK asks for it looks like a hole of the old length. */
START_TEST(test_cut_before_seek)
{
	static void (*const happen[])(struct fake_nfs * f, unsigned int n) = { empty_sparse,
									       rewrite_sparse,
									       refill_sparse };
	unsigned int at;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(happen); i++) {
		for (at = 1; at <= 3; at++) {
			struct event e = { NFS_OP_SEEK, at, at, happen[i], 0, 0 };
			struct job j;
			char row[64];

			(void)snprintf(row, sizeof(row), "%s, change %zu, SEEK %u", job_names[_i],
				       i, at);
			job_init(&j, &seeks);
			j.work.offload = NFS_OFFLOAD_SEEK;
			tree_fill_file(j.f, "tree/a", 0, 10);
			tree_fill_file(j.f, "tree/sparse", 7 * MIB, 10);
			fake_nfs_truncate(j.f, "tree/sparse", 30 * MIB);
			fake_nfs_watch(j.f, watch, &e);
			jobs[_i](row, &j);
			fake_nfs_watch(j.f, NULL, NULL);
			check_that(row, "it happened", e.happened == 1);
			check_int(row, "changed", j.work.progress.changed, 0);
			check_whole(row, &j);
			job_done(&j);
		}
	}
}
END_TEST

/* Fresh data that the server does not count as used space yet is copied. */
START_TEST(test_used_lags)
{
	const char *row = job_names[_i];
	struct job j;

	job_init(&j, &(struct fake_habits){
			     .page = 100, .entries = FAKE_ENTRIES_FULL, .used_lags = true });
	tree_fill_file(j.f, "tree/a", 0, 10);
	tree_fill_file(j.f, "tree/b", 0, 3 * MIB);
	jobs[_i](row, &j);
	fake_nfs_habits(j.f, &full);
	check_whole(row, &j);
	job_done(&j);
}
END_TEST

#define CLAIMED (UINT64_C(1) << 62)
#define WRITTEN_MAX (64 * MIB)

/* The server claims a size, but READs find the end. */
static void claim_size(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	const uint64_t end = *(const uint64_t *)data;
	const bool is_end = op->type == NFS_OP_READ && op->offset >= end;

	fake_nfs_truncate(f, "tree/big", is_end ? end : CLAIMED);
}

/* Otherwise a test that fails would go on for ever. */
static void cancel_late(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	atomic_bool *cancel = data;

	(void)f;
	if (op->type == NFS_OP_WRITE && op->offset > WRITTEN_MAX)
		*cancel = true;
}

/* No archive is filled with zeros in place of data that never was. */
START_TEST(test_size_that_is_not_there)
{
	static const struct {
		const char *name;
		uint64_t end;
		int archive; /* result; the copy has what was read */
	} rows[] = {
		{ "nothing", 0, 0 },
		{ "a part", 20 * MIB, -ERESTART },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const int result = _i == 1 ? rows[i].archive : 0;
		atomic_bool cancel = false;
		uint64_t end = rows[i].end;
		struct nfs_handle handle;
		struct nfs_attr attr;
		struct job j;
		char row[64];

		(void)snprintf(row, sizeof(row), "%s, %s", job_names[_i], rows[i].name);
		job_init(&j, &(struct fake_habits){
				     .page = 100, .entries = FAKE_ENTRIES_FULL, .used_all = true });
		j.work.cancel = &cancel;
		tree_fill_file(j.f, "tree/a", 0, 10);
		tree_fill_file(j.f, "tree/big", 0, (size_t)end);
		fake_nfs_truncate(j.f, "tree/big", CLAIMED);
		fake_nfs_watch(j.f, claim_size, &end);
		fake_nfs_watch(j.g, cancel_late, &cancel);
		jobs[_i](row, &j);
		fake_nfs_watch(j.f, NULL, NULL);
		fake_nfs_watch(j.g, NULL, NULL);
		ck_assert_msg(j.result == result, "%s: %d, %s", row, j.result, j.err.msg);
		check_error(row, &j.err, result < 0 ? ERROR_ABORTED : ERROR_OK,
			    result < 0 ? "'big' was replaced or removed" : NULL);
		if (result == 0) {
			ck_assert(fake_nfs_get(j.g, "copy/big", &handle, &attr));
			check_int(row, "size", attr.size, end);
		}
		job_done(&j);
	}
}
END_TEST

/* Two files with one fileid, on subvolumes of one file system. */
START_TEST(test_links)
{
	const struct nfs_attr attr = { .fileid = 257,
				       .fsid = 7,
				       .links = 2,
				       .size = 5,
				       .mtime = { 1000, 0 },
				       .ctime = { 2000, 0 } };
	const struct nfs_handle handles[] = { { 2, "ab" }, { 2, "cd" } };
	struct nfs_attr other = attr;
	struct tree_hardlink_id a = tree_hardlink_id_of(&handles[0], &attr), b;
	const char *same;
	struct tree_hardlinks *l;

	ck_assert_int_eq(tree_hardlinks_new(&l, 100), 0);
	other.ctime.nsec = 1;
	b = tree_hardlink_id_of(&handles[1], &other);
	ck_assert_int_eq(tree_hardlinks_find(l, &a, 2, "a/1", &same), 0);
	ck_assert_ptr_null(same);
	ck_assert_int_eq(tree_hardlinks_find(l, &b, 2, "b/1", &same), 0);
	ck_assert_ptr_null(same);
	ck_assert_int_eq(tree_hardlinks_find(l, &b, 2, "b/2", &same), 0);
	check_str("links", "of the second", same, "b/1");
	ck_assert_int_eq(tree_hardlinks_find(l, &a, 2, "a/2", &same), 0);
	check_str("links", "of the first", same, "a/1");
	/* With subtree_check the handle is that of a name. */
	ck_assert_int_eq(tree_hardlinks_find(l, &a, 2, "a/1", &same), 0);
	b = tree_hardlink_id_of(&handles[1], &attr);
	ck_assert_int_eq(tree_hardlinks_find(l, &b, 2, "a/2", &same), 0);
	check_str("links", "by another handle", same, "a/1");
	/* Two file systems whose numbers are the same when folded. */
	other = attr;
	other.fsid_minor = 9;
	ck_assert_int_eq(tree_hardlinks_find(l, &a, 2, "a/1", &same), 0);
	b = tree_hardlink_id_of(&handles[0], &other);
	ck_assert_int_eq(tree_hardlinks_find(l, &b, 2, "b/1", &same), 0);
	ck_assert_ptr_null(same);
	tree_hardlinks_free(l);
}
END_TEST

START_TEST(test_archive_depth)
{
	static const struct {
		size_t levels;
		const char *level;
		enum error_code code;
	} rows[] = {
		{ 1000, "d/", ERROR_OK },
		{ 1100, "d/", ERROR_FAILED_PRECONDITION },
		{ 100,
		  "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789/",
		  ERROR_OK },
		{ 200,
		  "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789/",
		  ERROR_FAILED_PRECONDITION },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *path = check_repeat(rows[i].level, rows[i].levels);
		cleanup_free char *all = malloc(strlen(path) + 6);
		struct job j;

		ck_assert(all != NULL);
		(void)sprintf(all, "tree/%s", path);
		job_init(&j, &full);
		fake_nfs_put(j.f, all, NFS_TYPE_DIRECTORY, NULL);
		archive("depth", &j);
		check_error("depth", &j.err, rows[i].code, NULL);
		job_done(&j);
	}
}
END_TEST

/* Many paths are in memory at a time. Counting keeps few of them. */
START_TEST(test_path_limit)
{
	static const struct {
		size_t last; /* length of the last name, below 16,256 bytes */
		enum error_code code;
	} rows[] = {
		{ 128, ERROR_OK },
		{ 129, ERROR_FAILED_PRECONDITION },
	};
	cleanup_free char *level = check_repeat("d", 127);
	const char *row = job_names[_i];
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *last = check_repeat("f", rows[i].last);
		cleanup_buf struct buf path = { .data = NULL };
		struct error err = { .code = ERROR_OK };
		struct nfs_handle handle;
		struct nfs_attr attr;
		struct job j;

		ck_assert(buf_puts(&path, "tree/") == 0);
		for (k = 0; k < 127; k++)
			ck_assert(buf_printf(&path, "%s/", level) == 0);
		ck_assert(buf_puts(&path, last) == 0);
		job_init(&j, &full);
		fake_nfs_put(j.f, path.data, NFS_TYPE_FILE, NULL);
		ck_assert(fake_nfs_get(j.f, "tree", &handle, &attr));
		check_int(row, "count", tree_count(&j.work, &handle, &attr, &err), 0);
		check_int(row, "files", j.work.progress.all_files, 1);
		jobs[_i](row, &j);
		check_error(row, &j.err, rows[i].code,
			    rows[i].code == ERROR_OK ? NULL : "paths of at most 16384 bytes: 'ddd");
		check_that(row, "the message is short", strlen(j.err.msg) < 400);
		job_done(&j);
	}
}
END_TEST

CHECK_MAIN("tree_live",
	   .tests = { test_begin_again, test_listing_of_what_has_gone, test_links,
		      test_archive_depth, test_all_hole_in_an_archive, test_long_hole_reports,
		      test_many_holes_in_an_archive, test_hole_at_second_look, test_slow_reports,
		      test_replaced_after_cuts, test_cut_and_written_again },
	   .loops = { { test_listing_begins_again, 3 },
		      { test_replaced_again_and_again, 2 },
		      { test_replaced_for_ever, 2 },
		      { test_directory_moves, 2 },
		      { test_all_hole, 2 },
		      { test_cut_before_seek, 2 },
		      { test_used_lags, 2 },
		      { test_size_that_is_not_there, 2 },
		      { test_path_limit, 2 },
		      { test_stale, 2 * ARRAY_SIZE(kinds), .is_shared = true },
		      { test_not_gone, 2 * ARRAY_SIZE(kinds), .is_shared = true },
		      { test_stale_for_ever, 4 },
		      { test_happens_once, 20, .is_shared = true },
		      { test_data_later_than_attributes, 2 },
		      { test_written_for_ever, 4 },
		      { test_directory_replaced, 8, .is_shared = true } })
