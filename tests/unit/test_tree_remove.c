/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "fake/nfs.h"
#include "tree/remove.h"
#include "check_util.h"

#define OWNER 1234
#define STRANGER 5
#define FILES 100
#define FOLDERS 30
#define ALL_MODES UINT32_MAX

/* Directories of which the mode is in the way, each in its own manner. */
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

/* "trash", which is everybody's, and in it "tree", which is the owner's; only the closed directories matter. */
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

/* What the watch has seen. */
struct seen {
	struct nfs_handle trash;
	unsigned int chmods;
	bool is_wrong; /* something but mode 0700 was set, or it was set of what is above the tree */
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

/* Removes "tree" as its owner. */
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
	{ "3", 3, 260, { .page = 1000, .entries = FAKE_ENTRIES_FULL, .modes = true } },
	{ "3, late", 3, 259, { .page = 1000, .entries = FAKE_ENTRIES_FULL, .modes = true, .late = true } },
	{ "3, bare", 3, 402, { .page = 1000, .entries = FAKE_ENTRIES_BARE, .modes = true } },
	{ "3, bare, late",
	  3,
	  395,
	  { .page = 50, .entries = FAKE_ENTRIES_BARE, .modes = true, .late = true } },
	{ "3, small pages", 3, 319, { .modes = true } },
	{ "4", 4, 115, { .page = 1000, .entries = FAKE_ENTRIES_FULL, .modes = true } },
	{ "4, late", 4, 145, { .page = 1000, .entries = FAKE_ENTRIES_FULL, .modes = true, .late = true } },
	{ "4, mixed", 4, 231, { .page = 50, .modes = true } },
	{ "4, mixed, late", 4, 231, { .page = 50, .modes = true, .late = true } },
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
		/* What was refused waits for the mode, and is not asked for again and again. */
		check_that(row, "operations", seen.operations <= kinds[i].operations);
		check_int(row, "files", stats.files, FILES + 6);
		check_int(row, "directories", stats.directories, FOLDERS + 2 + ARRAY_SIZE(closed));
		fake_nfs_free(f);
	}
}
END_TEST

/* The tree itself may be what is closed; what it lies in may not be touched. */
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

/* What cannot be opened stays, and the rest goes. */
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
	{ "one file, EPERM", { .nth = 1, .error = -EPERM, .types = 1U << NFS_OP_REMOVE }, true, 1, NULL },
	{ "one directory", { .nth = 1, .error = -EPERM, .types = 1U << NFS_OP_RMDIR }, true, 1, NULL },
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

/* Wherever it ends, nothing is left in flight that points into what was freed: what is left goes next time. */
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

/* Something is added whenever the directory is to go. */
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

/* One that is due is made, and then there are TREE_REPORT_S seconds without. */
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

CHECK_MAIN("tree/remove", test_closed, test_root, test_of_a_stranger, test_refused, test_ended,
	   test_never_empty, test_report)
