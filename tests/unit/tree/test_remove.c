/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake/nfs.h"
#include "tree/remove.h"
#include "check_util.h"
#include "nfs/error.h"

#define OWNER 1234
#define STRANGER 5
#define FILES 100
#define FOLDERS 30
#define ALL_MODES UINT32_MAX

/* Offset of the monotonic clock, so that the tests need not wait. */
static _Atomic int64_t later_s;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = check_real_clock(id, ts);

	if (id == CLOCK_MONOTONIC)
		ts->tv_sec += atomic_load(&later_s);
	return r;
}

/* Counts sleeps instead of sleeping. */
static unsigned int waits;

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)wanted;
	(void)left;
	waits++;
	return 0;
}

/* Directories whose modes are in the way in various manners. */
static const struct {
	const char *path;
	uint32_t mode;
} closed[] = {
	{ "trash/tree/wide", 0555 },          { "trash/tree/deep", 0555 },
	{ "trash/tree/deep/er", 0500 },       { "trash/tree/unreadable", 0 },
	{ "trash/tree/no search", 0444 },     { "trash/tree/no read", 0300 },
	{ "trash/tree/no search/in", 02555 },
};

static void own(struct fake_nfs *f, const char *path, uint32_t uid, uint32_t mode)
{
	fake_nfs_set(f, path, &(struct nfs_attr){ .mode = mode, .uid = uid, .gid = uid });
}

static void put(struct fake_nfs *f, enum nfs_type type, const char *path)
{
	fake_nfs_put(f, path, type, NULL);
	own(f, path, OWNER, type == NFS_TYPE_DIRECTORY ? 0755 : 0444);
}

static void put_many(struct fake_nfs *f, enum nfs_type type, const char *path, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		char name[128];

		(void)snprintf(name, sizeof(name), "%s %u", path, i);
		put(f, type, name);
	}
}

/* Create "trash", writable by all, with "tree" of OWNER in it. */
static struct fake_nfs *share_new(const struct fake_habits *habits, bool with_closed)
{
	struct fake_nfs *f = fake_nfs_new();
	unsigned int i;

	fake_nfs_habits(f, habits);
	put(f, NFS_TYPE_DIRECTORY, "trash/tree");
	own(f, "trash", 0, 01777);
	put_many(f, NFS_TYPE_FILE, "trash/tree/wide/file", FILES);
	put_many(f, NFS_TYPE_DIRECTORY, "trash/tree/wide/folder", FOLDERS);
	put(f, NFS_TYPE_FILE, "trash/tree/deep/er/file");
	put(f, NFS_TYPE_FILE, "trash/tree/unreadable/file");
	put(f, NFS_TYPE_FILE, "trash/tree/no search/in/file");
	put(f, NFS_TYPE_FIFO, "trash/tree/no search/fifo");
	put(f, NFS_TYPE_FILE, "trash/tree/no read/file");
	put(f, NFS_TYPE_FILE, "trash/tree/open/file");
	own(f, "trash/tree/open", OWNER, 0755);
	for (i = 0; i < ARRAY_SIZE(closed); i++)
		own(f, closed[i].path, OWNER, with_closed ? closed[i].mode : 0755);
	return f;
}

/* Recorded by watch(). */
struct seen {
	struct nfs_handle trash;
	unsigned int chmods;
	bool is_wrong; /* a mode other than 0700 was set, or one above the tree */
	unsigned int operations;
	unsigned int cancel_at; /* 0: never */
	atomic_bool cancel;
};

static void watch(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct seen *seen = data;
	const struct nfs_change want = { .has_mode = true, .mode = 0700 };

	(void)f;
	seen->operations++;
	if (seen->operations == seen->cancel_at)
		atomic_store(&seen->cancel, true);
	if (op->type != NFS_OP_SETATTR)
		return;
	seen->chmods++;
	seen->is_wrong = seen->is_wrong || memcmp(&op->change, &want, sizeof(want)) != 0 ||
			 memcmp(op->dir->data, seen->trash.data, seen->trash.len) == 0 ||
			 memcmp(op->dir->data, op->client->root.data, op->client->root.len) == 0;
}

/* Remove "tree" as its owner. */
static int remove_tree(struct fake_nfs *f, unsigned int version, struct seen *seen,
		       struct tree_stats *stats, struct error *err)
{
	struct nfs_client *c = fake_nfs_connect(f);
	struct nfs_attr unused;
	int r;

	c->version = version;
	c->export.uid = c->export.gid = OWNER;
	ck_assert(fake_nfs_get(f, "trash", &seen->trash, &unused));
	fake_nfs_watch(f, watch, seen);
	error_clear(err);
	r = tree_remove(c, &seen->trash, "tree", &seen->cancel, stats, err);
	check_int("remove", "an error is reported", err->code != ERROR_OK, r < 0);
	check_that("remove", "modes", !seen->is_wrong);
	fake_nfs_watch(f, NULL, NULL);
	nfs_client_free(c);
	return r;
}

static const struct {
	const char *name;
	unsigned int version;
	unsigned int operations; /* that it takes at most */
	struct fake_habits habits;
} kinds[] = {
	{ "3", 3, 261, { .page = 1000, .entries = FAKE_ENTRIES_FULL, .modes = true } },
	{ "3, late",
	  3,
	  260,
	  { .page = 1000, .entries = FAKE_ENTRIES_FULL, .modes = true, .late = true } },
	{ "3, bare", 3, 403, { .page = 1000, .entries = FAKE_ENTRIES_BARE, .modes = true } },
	{ "3, bare, late",
	  3,
	  396,
	  { .page = 50, .entries = FAKE_ENTRIES_BARE, .modes = true, .late = true } },
	{ "3, small pages", 3, 320, { .modes = true } },
	{ "4", 4, 116, { .page = 1000, .entries = FAKE_ENTRIES_FULL, .modes = true } },
	{ "4, late",
	  4,
	  146,
	  { .page = 1000, .entries = FAKE_ENTRIES_FULL, .modes = true, .late = true } },
	{ "4, mixed", 4, 232, { .page = 50, .modes = true } },
	{ "4, mixed, late", 4, 232, { .page = 50, .modes = true, .late = true } },
};

START_TEST(test_closed)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		const char *row = kinds[i].name;
		struct fake_nfs *f = share_new(&kinds[i].habits, true);
		struct seen seen = { .chmods = 0 };
		struct tree_stats stats = { .files = 0 };
		struct error err = { .code = ERROR_OK };

		check_int(row, "result", remove_tree(f, kinds[i].version, &seen, &stats, &err), 0);
		check_int(row, "tree", fake_nfs_type(f, "trash/tree"), NFS_TYPE_UNKNOWN);
		check_int(row, "mode of the trash", fake_nfs_mode(f, "trash"), 01777);
		check_int(row, "modes set", seen.chmods, ARRAY_SIZE(closed));
		/* Refused operations wait for the new mode and are not repeated before. */
		check_that(row, "operations", seen.operations <= kinds[i].operations);
		check_int(row, "files", stats.files, FILES + 6);
		check_int(row, "directories", stats.directories, FOLDERS + 2 + ARRAY_SIZE(closed));
		fake_nfs_free(f);
	}
}
END_TEST

/* The root of the tree may be closed; the directory that holds it is not changed. */
START_TEST(test_root)
{
	static const uint32_t modes[] = { 0555, 0444, 0 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		struct fake_nfs *f = share_new(&kinds[0].habits, false);
		struct seen seen = { .chmods = 0 };
		struct error err;

		own(f, "trash/tree", OWNER, modes[i]);
		check_int("root", "result", remove_tree(f, 3, &seen, NULL, &err), 0);
		check_int("root", "modes set", seen.chmods, 1);
		fake_nfs_free(f);
	}
	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		struct fake_nfs *f = share_new(&kinds[0].habits, false);
		struct seen seen = { .chmods = 0 };
		struct error err;

		own(f, "trash", OWNER, modes[i]);
		check_int("above", "result", remove_tree(f, 3, &seen, NULL, &err), -EACCES);
		check_error("above", &err, ERROR_PERMISSION_DENIED, "'tree'");
		check_int("above", "modes set", seen.chmods, 0);
		check_int("above", "mode", fake_nfs_mode(f, "trash"), modes[i]);
		fake_nfs_free(f);
	}
}
END_TEST

/* Directories that cannot be opened stay; the rest is removed. */
START_TEST(test_of_a_stranger)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		const char *row = kinds[i].name;
		struct fake_nfs *f = share_new(&kinds[i].habits, true);
		struct seen seen = { .chmods = 0 };
		struct error err;

		own(f, "trash/tree/deep/er", STRANGER, 0555);
		check_int(row, "result", remove_tree(f, kinds[i].version, &seen, NULL, &err),
			  -EACCES);
		check_error(row, &err, ERROR_PERMISSION_DENIED, "'file'");
		check_int(row, "file", fake_nfs_type(f, "trash/tree/deep/er/file"), NFS_TYPE_FILE);
		check_int(row, "mode", fake_nfs_mode(f, "trash/tree/deep/er"), 0555);
		check_int(row, "wide", fake_nfs_type(f, "trash/tree/wide"), NFS_TYPE_UNKNOWN);
		check_int(row, "open", fake_nfs_type(f, "trash/tree/open"), NFS_TYPE_UNKNOWN);
		check_that(row, "modes set",
			   seen.chmods == ARRAY_SIZE(closed) ||
				   seen.chmods == ARRAY_SIZE(closed) - 1);
		fake_nfs_free(f);
	}
}
END_TEST

static const struct {
	const char *name;
	struct fake_failure failure;
	bool is_removed;
	unsigned int chmods;
	const char *word;
} refusals[] = {
	{ "one file", { .nth = 1, .error = -EACCES, .types = 1U << NFS_OP_REMOVE }, true, 1, NULL },
	{ "one file, EPERM",
	  { .nth = 1, .error = -EPERM, .types = 1U << NFS_OP_REMOVE },
	  true,
	  1,
	  NULL },
	{ "one directory",
	  { .nth = 1, .error = -EPERM, .types = 1U << NFS_OP_RMDIR },
	  true,
	  1,
	  NULL },
	{ "one name", { .nth = 2, .error = -EACCES, .types = 1U << NFS_OP_LOOKUP }, true, 1, NULL },
	{ "all files",
	  { .nth = 1, .error = -EACCES, .all = true, .types = 1U << NFS_OP_REMOVE },
	  false,
	  7,
	  "removing '" },
	{ "all directories",
	  { .nth = 1, .error = -EPERM, .all = true, .types = 1U << NFS_OP_RMDIR },
	  false,
	  0,
	  "removing directory '" },
	{ "another error",
	  { .nth = 1, .error = -EIO, .types = 1U << NFS_OP_REMOVE },
	  false,
	  0,
	  "removing '" },
	{ "the mode, for a while",
	  { .nth = 1, .error = -EAGAIN, .types = 1U << NFS_OP_SETATTR },
	  true,
	  ALL_MODES,
	  NULL },
	{ "the mode",
	  { .nth = 1, .error = -EPERM, .all = true, .types = 1U << NFS_OP_SETATTR },
	  false,
	  ALL_MODES,
	  "'" },
};

START_TEST(test_refused)
{
	static const unsigned int versions[] = { 3, 4 };
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(refusals) * ARRAY_SIZE(versions); i++) {
		const bool mixed = strstr(refusals[i / 2].name, "name") != NULL;
		const struct fake_habits habits = {
			.page = 1000,
			.entries = mixed ? FAKE_ENTRIES_MIXED : FAKE_ENTRIES_FULL,
			.modes = true,
		};
		const char *row = refusals[i / 2].name;
		const bool all_modes = refusals[i / 2].chmods == ALL_MODES;
		struct fake_nfs *f = share_new(&habits, all_modes);
		struct seen seen = { .chmods = 0 };
		struct error err;
		int r;

		fake_nfs_fail(f, &refusals[i / 2].failure);
		r = remove_tree(f, versions[i % 2], &seen, NULL, &err);
		check_int(row, "success", r == 0, refusals[i / 2].is_removed);
		check_int(row, "removed", fake_nfs_type(f, "trash/tree") == NFS_TYPE_UNKNOWN,
			  refusals[i / 2].is_removed);
		if (r < 0)
			check_error(row, &err, nfs_error_code(r), refusals[i / 2].word);
		if (all_modes)
			check_that(row, "modes set", seen.chmods >= ARRAY_SIZE(closed) - 2);
		else if (refusals[i / 2].chmods > 0)
			check_int(row, "modes set", seen.chmods, refusals[i / 2].chmods);
		for (k = 0; r < 0 && all_modes && k < ARRAY_SIZE(closed); k++)
			check_int(row, closed[k].path, fake_nfs_mode(f, closed[k].path),
				  closed[k].mode);
		fake_nfs_free(f);
	}
}
END_TEST

/* After a failure at any operation nothing is left in flight, and the next call does the rest. */
static bool is_ended_at(unsigned int nth, size_t kind, bool cancel)
{
	const struct fake_failure failure = { .nth = cancel ? 0 : nth, .error = -ECONNABORTED };
	struct fake_nfs *f = share_new(&kinds[kind].habits, true);
	struct seen seen = { .cancel_at = cancel ? nth : 0 };
	struct error err;
	int r;

	fake_nfs_fail(f, &failure);
	r = remove_tree(f, kinds[kind].version, &seen, NULL, &err);
	if (r < 0) {
		check_int(kinds[kind].name, "result", r, cancel ? -ECANCELED : -ECONNABORTED);
		fake_nfs_fail(f, NULL);
		seen = (struct seen){ .chmods = 0 };
		check_int(kinds[kind].name, "next time",
			  remove_tree(f, kinds[kind].version, &seen, NULL, &err), 0);
	}
	check_int(kinds[kind].name, "tree", fake_nfs_type(f, "trash/tree"), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
	return r < 0;
}

START_TEST(test_ended)
{
	size_t kind;
	unsigned int nth;

	for (kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
		for (nth = 1; is_ended_at(nth, kind, false); nth++)
			;
		check_that(kinds[kind].name, "operations", nth > 20);
		for (nth = 1; is_ended_at(nth, kind, true); nth++)
			;
		check_that(kinds[kind].name, "operations", nth > 20);
	}
}
END_TEST

/* Add an entry before each RMDIR. */
static void add_one(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *added = data;
	char name[32];

	if (op->type != NFS_OP_RMDIR)
		return;
	(void)snprintf(name, sizeof(name), "tree/%u", ++*added);
	fake_nfs_put(f, name, NFS_TYPE_FILE, NULL);
	ck_assert_msg(*added < 1000, "it does not end");
}

START_TEST(test_never_empty)
{
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct error err = { .code = ERROR_OK };
	unsigned int added = 0;

	fake_nfs_put(f, "tree/file", NFS_TYPE_FILE, NULL);
	fake_nfs_watch(f, add_one, &added);
	check_int("never empty", "result", tree_remove(c, &c->root, "tree", NULL, NULL, &err),
		  -ENOTEMPTY);
	check_that("never empty", "tries", added > 1);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

struct reports {
	unsigned int n;
	uint64_t entries;
	bool is_named;
};

static void count_report(const struct tree_stats *stats, const char *name, void *data)
{
	struct reports *reports = data;

	reports->n++;
	reports->entries = stats->files + stats->directories;
	reports->is_named = strcmp(name, "tree") == 0;
}

/* A report that is due is made, the next one TREE_REPORT_S later. */
START_TEST(test_report)
{
	const uint64_t now = clock_now_ns(), ago = TREE_REPORT_S * CLOCK_NS_PER_S;
	const uint64_t times[] = { now, now - ago };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(times); i++) {
		struct fake_nfs *f = share_new(&kinds[0].habits, false);
		struct reports reports = { .n = 0 };
		struct tree_stats stats = {
			.files = 1000,
			.report = count_report,
			.data = &reports,
			.reported_ns = times[i],
		};
		struct seen seen = { .chmods = 0 };
		struct error err;

		check_int("report", "result", remove_tree(f, 3, &seen, &stats, &err), 0);
		check_int("report", "reports", reports.n, i);
		if (i > 0) {
			check_that("report", "name", reports.is_named);
			check_that("report", "entries", reports.entries >= 1000);
			check_that("report", "time", stats.reported_ns >= now);
		}
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- borders -------- */

static const struct {
	const char *name;
	struct fake_habits habits;
	uint64_t fsid, fsid_minor; /* of what is mounted; the tree has 1, 0 */
	bool is_mount;
} borders[] = {
	{ "entries tell", { .page = 1000, .entries = FAKE_ENTRIES_FULL }, 2, 0 },
	{ "the other half", { .page = 1000, .entries = FAKE_ENTRIES_FULL }, 1, 9 },
	{ "some entries tell", { .entries = FAKE_ENTRIES_MIXED }, 2, 0 },
	{ "names tell", { .entries = FAKE_ENTRIES_BARE }, 2, 0 },
	{ "handles tell", { .entries = FAKE_ENTRIES_BARE, .bare = true }, 2, 0 },
	{ "asked alone", { .entries = FAKE_ENTRIES_FULL, .fsid = FAKE_FSID_ASKED }, 2, 0 },
	{ "asked alone, names", { .entries = FAKE_ENTRIES_BARE, .fsid = FAKE_FSID_ASKED }, 2, 0 },
	{ "same file system, entries tell", { .entries = FAKE_ENTRIES_FULL }, 1, 0, true },
	{ "same file system, names tell", { .entries = FAKE_ENTRIES_BARE }, 1, 0, true },
	{ "same file system, asked alone",
	  { .entries = FAKE_ENTRIES_FULL, .fsid = FAKE_FSID_ASKED },
	  1,
	  0,
	  true },
};

static struct fake_nfs *bordered_new(size_t row)
{
	struct fake_nfs *f = share_new(&borders[row].habits, false);

	put(f, NFS_TYPE_FILE, "trash/tree/wide/in/mounted/in/canary");
	put(f, NFS_TYPE_FILE, "trash/tree/wide/in/neighbour");
	fake_nfs_set(f, "trash/tree/wide/in/mounted",
		     &(struct nfs_attr){ .mode = 0755,
					 .uid = OWNER,
					 .fsid = borders[row].fsid,
					 .fsid_minor = borders[row].fsid_minor,
					 .is_mount = borders[row].is_mount });
	/* Entries below are on that file system and never reached. */
	fake_nfs_set(f, "trash/tree/wide/in/mounted/in",
		     &(struct nfs_attr){ .mode = 0755,
					 .uid = OWNER,
					 .fsid = borders[row].fsid,
					 .fsid_minor = borders[row].fsid_minor });
	return f;
}

START_TEST(test_border)
{
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(borders); i++) {
		const char *row = borders[i / 2].name;
		struct fake_nfs *f = bordered_new(i / 2);
		struct seen seen = { .chmods = 0 };
		struct tree_stats stats = { .files = 0 };
		struct error err;
		char *list;

		check_int(row, "result", remove_tree(f, 3 + i % 2, &seen, &stats, &err), -EXDEV);
		check_error(row, &err, ERROR_FAILED_PRECONDITION, "'tree/wide/in/mounted'");
		check_error(row, &err, ERROR_FAILED_PRECONDITION, "unmount");
		check_int(row, "borders", stats.borders, 1);
		check_int(row, "failed", stats.failed, 0);
		list = fake_nfs_list(f, NULL);
		check_str(row, "left", list,
			  "trash/\ntrash/tree/\ntrash/tree/wide/\ntrash/tree/wide/in/\n"
			  "trash/tree/wide/in/mounted/\ntrash/tree/wide/in/mounted/in/\n"
			  "trash/tree/wide/in/mounted/in/canary\n");
		free(list);
		fake_nfs_free(f);
	}
}
END_TEST

/* The root of the tree is a mount point, or the server sends no fsid. */
START_TEST(test_border_of_all)
{
	static const struct {
		const char *name;
		enum fake_fsid fsid;
		uint64_t mounted;
		const char *word;
	} rows[] = {
		{ "the tree", FAKE_FSID_ALL, 2, "'tree'" },
		{ "never told", FAKE_FSID_NEVER, 1, "fsid" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_habits habits = { .entries = FAKE_ENTRIES_FULL,
						    .fsid = rows[i].fsid };
		struct fake_nfs *f = share_new(&habits, false);
		struct seen seen = { .chmods = 0 };
		struct error err;
		char *before, *after;

		fake_nfs_set(f, "trash/tree",
			     &(struct nfs_attr){
				     .mode = 0755, .uid = OWNER, .fsid = rows[i].mounted });
		before = fake_nfs_dump(f, "trash");
		check_int(rows[i].name, "result", remove_tree(f, 4, &seen, NULL, &err), -EXDEV);
		check_error(rows[i].name, &err, ERROR_FAILED_PRECONDITION, rows[i].word);
		after = fake_nfs_dump(f, "trash");
		check_str(rows[i].name, "tree", after, before);
		free(before);
		free(after);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- depth and width -------- */

/* 0 if malloc() does not report it, as in musl. */
static size_t heap_bytes(void)
{
#ifdef HAVE_MALLINFO2
	return mallinfo2().uordblks;
#else
	return 0;
#endif
}

struct heap {
	size_t start, peak;
	unsigned int operations;
};

static void watch_heap(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct heap *heap = data;
	size_t now;

	(void)f;
	(void)op;
	/* To ask takes as long as there are pieces of free memory. */
	if (++heap->operations % 10000 != 0)
		return;
	now = heap_bytes();
	if (now > heap->peak)
		heap->peak = now;
}

/* Return "d/d/d/..." below path. The caller frees. */
static char *deep_path(const char *path, size_t levels)
{
	size_t len = strlen(path), i;
	char *deep = malloc(len + 2 * levels + 1);

	ck_assert(deep != NULL);
	memcpy(deep, path, len);
	for (i = 0; i < levels; i++)
		memcpy(deep + len + 2 * i, "/d", 2);
	deep[len + 2 * levels] = '\0';
	return deep;
}

#define DEPTH 100000
#define HEAP_MAX (4 << 20) /* above what the share takes in the beginning */

static const struct {
	const char *name;
	bool is_closed;
	struct fake_failure failure;
	size_t levels;
	int result;
	enum fake_entries entries;
} depths[] = {
	{ "deep", false, { .nth = 0 }, DEPTH, 0, FAKE_ENTRIES_FULL },
	{ "deep, bare", false, { .nth = 0 }, DEPTH / 10, 0, FAKE_ENTRIES_BARE },
	{ "closed", true, { .nth = 0 }, 1000, 0, FAKE_ENTRIES_FULL },
	{ "a name that is taken",
	  false,
	  { .nth = 1, .error = -EEXIST, .types = 1U << NFS_OP_RENAME },
	  1000,
	  0,
	  FAKE_ENTRIES_FULL },
	{ "refused, and not too deep for that",
	  false,
	  { .nth = 1, .error = -EXDEV, .all = true, .types = 1U << NFS_OP_RENAME },
	  3000,
	  0,
	  FAKE_ENTRIES_FULL },
	{ "refused",
	  false,
	  { .nth = 1, .error = -EXDEV, .all = true, .types = 1U << NFS_OP_RENAME },
	  30000,
	  -EXDEV,
	  FAKE_ENTRIES_FULL },
};

/* Everything belongs to OWNER and is closed to him. */
static void close_all(struct fake_nfs *f, char *path, size_t levels)
{
	size_t len = strlen(path), i;

	for (i = 0; i <= levels; i++) {
		path[len - 2 * i] = '\0';
		own(f, path, OWNER, 0);
	}
}

START_TEST(test_deep)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(depths); i++) {
		const struct fake_habits habits = { .entries = depths[i].entries, .modes = true };
		const char *row = depths[i].name;
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		char *path = deep_path("trash/tree", depths[i].levels);
		struct tree_stats stats = { .files = 0 };
		struct error err = { .code = ERROR_OK };
		struct nfs_handle trash;
		struct nfs_attr unused;
		struct heap heap = { .operations = 0 };

		fake_nfs_habits(f, &habits);
		fake_nfs_put(f, path, NFS_TYPE_DIRECTORY, NULL);
		own(f, "trash", 0, 01777);
		if (depths[i].is_closed) {
			c->export.uid = c->export.gid = OWNER;
			close_all(f, path, depths[i].levels);
		}
		ck_assert(fake_nfs_get(f, "trash", &trash, &unused));
		heap.start = heap.peak = heap_bytes();
		fake_nfs_watch(f, watch_heap, &heap);
		fake_nfs_fail(f, &depths[i].failure);
		check_int(row, "result", tree_remove(c, &trash, "tree", NULL, &stats, &err),
			  depths[i].result);
		check_that(row, "heap", heap.peak - heap.start < HEAP_MAX);
		if (depths[i].result == 0)
			check_int(row, "directories", stats.directories, depths[i].levels + 1);
		else
			check_error(row, &err, nfs_error_code(depths[i].result), "too deep");
		check_int(row, "tree", fake_nfs_type(f, "trash/tree"),
			  depths[i].result == 0 ? NFS_TYPE_UNKNOWN : NFS_TYPE_DIRECTORY);
		fake_nfs_remove(f, depths[i].result == 0 ? "none" : path);
		fake_nfs_watch(f, NULL, NULL);
		nfs_client_free(c);
		free(path);
		fake_nfs_free(f);
	}
}
END_TEST

#define BRANCHES 100
#define LEAVES 10
#define WIDE_MAX (3 << 20)

/* Wide directories: those read at a time hold 7,000 directories together. */
START_TEST(test_wide)
{
	const struct fake_habits habits = { .page = 1000, .entries = FAKE_ENTRIES_FULL };
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct tree_stats stats = { .files = 0 };
	struct error err = { .code = ERROR_OK };
	struct heap heap = { .operations = 0 };
	unsigned int i;

	fake_nfs_habits(f, &habits);
	for (i = 0; i < BRANCHES * BRANCHES * LEAVES; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "tree/%u/%u/%u", i % BRANCHES,
			       i / BRANCHES % BRANCHES, i / BRANCHES / BRANCHES);
		fake_nfs_put(f, path, NFS_TYPE_DIRECTORY, NULL);
	}
	heap.start = heap.peak = heap_bytes();
	fake_nfs_watch(f, watch_heap, &heap);
	check_int("wide", "result", tree_remove(c, &c->root, "tree", NULL, &stats, &err), 0);
	check_that("wide", "heap", heap.peak - heap.start < WIDE_MAX);
	check_int("wide", "directories", stats.directories,
		  BRANCHES * BRANCHES * (LEAVES + 1) + BRANCHES + 1);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* -------- others who work on the tree -------- */

struct mover {
	unsigned int countdown; /* operations until it moves */
	const char *from, *to;
};

/* Move a directory away, then advance the clock with each operation. */
static void move_away(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct mover *mover = data;

	(void)op;
	if (mover->countdown == 0) {
		atomic_fetch_add(&later_s, 2);
	} else if (--mover->countdown == 0) {
		fake_nfs_link(f, mover->from, mover->to);
		fake_nfs_remove(f, mover->from);
	}
}

/* A directory that is moved out of the tree is left alone, except for operations in flight. */
START_TEST(test_moved_out)
{
	static const char *const what[] = { "trash/tree", "trash/tree/wide", "trash/tree/wide/in" };
	size_t i, lines;

	for (i = 0; i < 2 * ARRAY_SIZE(what); i++) {
		const struct fake_habits habits = { .page = 20, .entries = FAKE_ENTRIES_FULL };
		struct mover mover = { .countdown = 30, .from = what[i / 2], .to = "rescued" };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct error err = { .code = ERROR_OK };
		struct nfs_handle trash;
		struct nfs_attr unused;
		char *list, *at;

		fake_nfs_habits(f, &habits);
		put_many(f, NFS_TYPE_FILE, "trash/tree/wide/in/file", 500);
		put_many(f, NFS_TYPE_DIRECTORY, "trash/tree/wide/in/folder", 500);
		ck_assert(fake_nfs_get(f, "trash", &trash, &unused));
		c->version = 3 + i % 2;
		fake_nfs_watch(f, move_away, &mover);
		check_int(what[i / 2], "result", tree_remove(c, &trash, "tree", NULL, NULL, &err),
			  0);
		fake_nfs_watch(f, NULL, NULL);
		list = fake_nfs_list(f, NULL);
		for (lines = 0, at = list; *at != '\0'; at++)
			lines += *at == '\n';
		free(list);
		check_that(what[i / 2], "rescued", lines > 600);
		check_int(what[i / 2], "tree", fake_nfs_type(f, "trash/tree"), NFS_TYPE_UNKNOWN);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* As a file that takes ten minutes to remove keeps its directory locked. */
struct lock {
	struct mover mover;
	unsigned int lookups, operations; /* operations: since the slow lookup */
};

static void move_after_lock(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct lock *lock = data;

	lock->lookups += op->type == NFS_OP_LOOKUP;
	lock->operations += lock->lookups > 2;
	if (lock->operations == 1)
		atomic_fetch_add(&later_s, 600);
	else if (lock->operations < 100)
		atomic_fetch_add(&later_s, 1);
	else
		move_away(f, op, &lock->mover);
}

/* One lookup that took long does not delay the others for the rest of the pass. */
START_TEST(test_moved_out_after_lock)
{
	const struct fake_habits habits = { .page = 20, .entries = FAKE_ENTRIES_FULL };
	struct lock lock = {
		.mover = { .countdown = 1, .from = "trash/tree/wide", .to = "rescued" },
	};
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct error err = { .code = ERROR_OK };
	struct nfs_handle trash;
	struct nfs_attr unused;
	size_t lines = 0;
	char *list, *at;

	fake_nfs_habits(f, &habits);
	put_many(f, NFS_TYPE_FILE, "trash/tree/wide/file", 1000);
	ck_assert(fake_nfs_get(f, "trash", &trash, &unused));
	c->window = 4;
	fake_nfs_watch(f, move_after_lock, &lock);
	check_int("lock", "result", tree_remove(c, &trash, "tree", NULL, NULL, &err), 0);
	fake_nfs_watch(f, NULL, NULL);
	list = fake_nfs_list(f, NULL);
	for (at = list; *at != '\0'; at++)
		lines += *at == '\n';
	free(list);
	check_that("lock", "it was moved", fake_nfs_type(f, "rescued") == NFS_TYPE_DIRECTORY);
	check_that("lock", "rescued", lines > 800);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* Another purge that removes the same entries. */
struct rival {
	unsigned int left; /* entries that it removes */
	unsigned int types; /* operations that it comes before: 1 << enum nfs_op_type */
	int error; /* the server's answer then; 0: the right one */
	struct fake_failure failure;
};

static void be_faster(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct rival *rival = data;
	char path[64];

	fake_nfs_fail(f, NULL);
	if ((rival->types & (1U << op->type)) == 0 || rival->left == 0)
		return;
	rival->left--;
	(void)snprintf(path, sizeof(path), op->type == NFS_OP_RMDIR ? "%s" : "tree/%s", op->name);
	fake_nfs_remove(f, path);
	if (rival->error == 0)
		return;
	rival->failure = (struct fake_failure){ .nth = 1, .error = rival->error };
	fake_nfs_fail(f, &rival->failure);
}

/* nfs-ganesha answers STALE if an entry goes while it removes it. */
START_TEST(test_two_at_once)
{
	static const struct {
		const char *row;
		unsigned int types;
		unsigned int times;
		int error;
	} rows[] = {
		{ "files", 1U << NFS_OP_REMOVE, 15, 0 },
		{ "stale files", 1U << NFS_OP_REMOVE, 15, -ESTALE },
		{ "the root", 1U << NFS_OP_RMDIR, 1, 0 },
		{ "the stale root", 1U << NFS_OP_RMDIR, 1, -ESTALE },
	};
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
		const char *row = rows[i / 2].row;
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct tree_stats stats = { .files = 0 };
		struct error err = { .code = ERROR_OK };
		struct rival rival = { .left = rows[i / 2].times,
				       .types = rows[i / 2].types,
				       .error = rows[i / 2].error };

		c->version = 3 + i % 2;
		put_many(f, NFS_TYPE_FILE, "tree/file", 20);
		fake_nfs_watch(f, be_faster, &rival);
		check_int(row, "result", tree_remove(c, &c->root, "tree", NULL, &stats, &err), 0);
		fake_nfs_watch(f, NULL, NULL);
		check_int(row, "left", rival.left, 0);
		check_int(row, "failed", stats.failed, 0);
		check_int(row, "tree", fake_nfs_type(f, "tree"), NFS_TYPE_UNKNOWN);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* A server that keeps saying so is believed in the end. */
START_TEST(test_stale_for_ever)
{
	const struct fake_failure failure = {
		.nth = 1, .all = true, .error = -ESTALE, .types = 1U << NFS_OP_RMDIR
	};
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct tree_stats stats = { .files = 0 };
	struct error err = { .code = ERROR_OK };

	put_many(f, NFS_TYPE_FILE, "tree/in/file", 3);
	fake_nfs_fail(f, &failure);
	check_int("stale", "result", tree_remove(c, &c->root, "tree", NULL, &stats, &err), -ESTALE);
	check_error("stale", &err, ERROR_UNAVAILABLE, "removing directory 'tree'");
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* -------- when it ends -------- */

static void ask_to_wait(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	const struct fake_failure failure = { .nth = 1, .error = -EAGAIN };
	unsigned int *n = data;

	(void)op;
	fake_nfs_fail(f, ++*n % 2 == 0 ? &failure : NULL);
}

/* The server answers every second operation with "try later": keep waiting. */
START_TEST(test_patience)
{
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct error err = { .code = ERROR_OK };
	unsigned int operations = 0;

	waits = 0;
	put_many(f, NFS_TYPE_FILE, "tree/file", 150);
	fake_nfs_watch(f, ask_to_wait, &operations);
	check_int("patience", "result", tree_remove(c, &c->root, "tree", NULL, NULL, &err), 0);
	check_that("patience", "waits", waits > 130);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* After until_ns the removal stops; the next call does the rest. */
START_TEST(test_until)
{
	struct fake_nfs *f = share_new(&kinds[0].habits, false);
	struct seen seen = { .chmods = 0 };
	struct tree_stats stats = { .until_ns = 1 };
	struct error err;

	check_int("until", "result", remove_tree(f, 3, &seen, &stats, &err), -ETIME);
	check_error("until", &err, ERROR_ABORTED, "'tree'");
	check_int("until", "tree", fake_nfs_type(f, "trash/tree"), NFS_TYPE_DIRECTORY);
	stats.until_ns = 0;
	check_int("until", "result", remove_tree(f, 3, &seen, &stats, &err), 0);
	fake_nfs_free(f);
}
END_TEST

CHECK_MAIN("tree/remove", .tests = {
				  test_closed,
				  test_root,
				  test_of_a_stranger,
				  test_refused,
				  test_ended,
				  test_never_empty,
				  test_report,
				  test_moved_out_after_lock,
				  test_border,
				  test_border_of_all,
				  test_deep,
				  test_wide,
				  test_moved_out,
				  test_two_at_once,
				  test_stale_for_ever,
				  test_patience,
				  test_until,
			  })
