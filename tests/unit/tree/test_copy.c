/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "tree/builder_node.h"
#include "tree/copy.h"
#include "tree/reader.h"
#include "tree_util.h"

static const struct fake_habits full = { .page = 100, .entries = FAKE_ENTRIES_FULL };

/* Copy "tree" to "copy" with new clients; g may be f. */
static int copy_with(struct fake_nfs *f, struct fake_nfs *g, uint32_t uid, struct tree_work *work,
		     struct error *err)
{
	struct nfs_client *from = fake_nfs_connect(f);
	struct nfs_client *to = f != g ? fake_nfs_connect(g) : from;
	int r;

	from->export.uid = to->export.uid = uid;
	if (from != to)
		fake_nfs_pair(from, to);
	work->from = from;
	work->to = to;
	error_clear(err);
	r = tree_copy_checked(work, f, true, err);
	check_that("copy", "an error has a message", r == 0 || err->msg[0] != '\0');
	if (from != to)
		nfs_client_free(to);
	nfs_client_free(from);
	return r;
}

static int copy(struct fake_nfs *f, struct tree_progress *ret, struct error *err)
{
	struct tree_work work = { .cancel = NULL };
	int r = copy_with(f, f, 0, &work, err);

	if (ret != NULL)
		*ret = work.progress;
	return r;
}

static void check_copy(const char *row, struct fake_nfs *f, struct tree_progress *ret)
{
	struct error err = { .code = ERROR_OK };
	int r = copy(f, ret, &err);

	ck_assert_msg(r == 0, "%s: %s", row, err.msg);
}

static const struct {
	const char *name;
	struct fake_habits habits;
} kinds[] = {
	{ "small pages", { .page = 0 } },
	{ "full", { .page = 100, .entries = FAKE_ENTRIES_FULL } },
	{ "one at a time", { .page = 1, .entries = FAKE_ENTRIES_FULL } },
	{ "bare entries", { .page = 5, .entries = FAKE_ENTRIES_BARE } },
	{ "bare replies", { .page = 5, .entries = FAKE_ENTRIES_BARE, .bare = true } },
	{ "mixed entries, bare replies", { .page = 5, .bare = true } },
	{ "short transfers", { .page = 5, .transfer_max = 1000 } },
	{ "long transfers", { .page = 5, .transfer_max = 128 * KIB } },
};

START_TEST(test_kinds)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct tree_progress p;

		tree_put(f);
		fake_nfs_put(f, "tree/nodes/socket", NFS_TYPE_SOCKET, NULL);
		fake_nfs_habits(f, &kinds[i].habits);
		check_copy(kinds[i].name, f, &p);
		tree_check_same(kinds[i].name, f, "tree", f, "copy");
		check_int(kinds[i].name, "directories", p.directories, 5);
		check_int(kinds[i].name, "files", p.files, 16);
		check_int(kinds[i].name, "vanished", p.vanished + p.changed + p.left_out, 0);
		fake_nfs_free(f);
	}
}
END_TEST

START_TEST(test_two_shares)
{
	struct fake_nfs *f = fake_nfs_new(), *g = fake_nfs_new();
	struct tree_work work = { .cancel = NULL };
	struct error err = { .code = ERROR_OK };

	tree_put(f);
	check_int("two shares", "result", copy_with(f, g, 0, &work, &err), 0);
	tree_check_same("two shares", f, "tree", g, "copy");
	fake_nfs_free(f);
	fake_nfs_free(g);
}
END_TEST

/* A copy needs nothing that other jobs may hold. */
START_TEST(test_budget_is_used_up)
{
	struct tree_budget budget = { .jobs = 3, .pooled = TREE_POOL_BYTES };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct tree_work work = {
			.ahead = { .budget = &budget },
			.unwritten = { .budget = &budget },
		};
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		tree_put(f);
		tree_fill_file(f, "tree/large", 0, 5 * MIB);
		fake_nfs_habits(f, &kinds[i].habits);
		check_int(kinds[i].name, "result", copy_with(f, f, 0, &work, &err), 0);
		tree_check_same(kinds[i].name, f, "tree", f, "copy");
		check_int(kinds[i].name, "pooled", atomic_load(&budget.pooled), TREE_POOL_BYTES);
		fake_nfs_free(f);
	}
}
END_TEST

/* A client that is not root keeps no owners and creates no setuid files of others. */
START_TEST(test_not_root)
{
	static const bool bare[] = { false, true };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bare); i++) {
		const struct fake_habits habits = { .bare = bare[i] };
		const char *row = bare[i] ? "bare" : "full";
		struct fake_nfs *f = fake_nfs_new();
		struct tree_work work = { .cancel = NULL };
		struct error err = { .code = ERROR_OK };

		fake_nfs_habits(f, &habits);
		tree_fill_file(f, "tree/own", 0, 10);
		tree_fill_file(f, "tree/other", 0, 10);
		tree_fill_file(f, "tree/of root", 0, 10);
		tree_mark(f, "tree/own", 04755, 234);
		tree_mark(f, "tree/other", 06755, 5);
		fake_nfs_set(f, "tree/of root", &(struct nfs_attr){ .mode = 04711 });
		check_int(row, "result", copy_with(f, f, 1234, &work, &err), 0);
		check_int(row, "own", fake_nfs_mode(f, "copy/own"), 04755);
		check_int(row, "other", fake_nfs_mode(f, "copy/other"), 0755);
		check_int(row, "of root", fake_nfs_mode(f, "copy/of root"), 0711);
		check_int(row, "owner", fake_nfs_owner(f, "copy/other"), 1234);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- owners sent as names -------- */

static void serve_owners(struct fake_nfs *f, enum fake_owners owners)
{
	const struct fake_habits habits = { .page = 5, .owners = owners };

	fake_nfs_habits(f, &habits);
}

/* copy_with() over these versions, from a server that sends owners as names. */
static int copy_named(struct fake_nfs *f, unsigned int from_version, struct fake_nfs *g,
		      unsigned int to_version, enum fake_owners owners, struct error *err)
{
	struct nfs_client *from = fake_nfs_connect(f);
	struct nfs_client *to = f != g ? fake_nfs_connect(g) : from;
	struct tree_work work = { .from = from, .to = to };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (from != to)
		fake_nfs_pair(from, to);
	from->version = from_version;
	to->version = to_version;
	serve_owners(g, owners);
	serve_owners(f, FAKE_OWNERS_NAMED);
	error_clear(err);
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	r = tree_copy(&work, &handle, &attr, &to->root, "copy", false, err);
	serve_owners(f, FAKE_OWNERS_NUMBERED);
	serve_owners(g, FAKE_OWNERS_NUMBERED);
	if (from != to)
		nfs_client_free(to);
	nfs_client_free(from);
	return r;
}

/* Create setuid and setgid entries of root and of others. */
static void put_owned(struct fake_nfs *f)
{
	fake_nfs_put(f, "tree/folder", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_put(f, "tree/link", NFS_TYPE_SYMLINK, "target");
	tree_fill_file(f, "tree/of somebody", 0, 10);
	tree_fill_file(f, "tree/of root", 0, 10);
	tree_mark(f, "tree/folder", 02770, 1);
	tree_mark(f, "tree/link", 0777, 2);
	tree_mark(f, "tree/of somebody", 06755, 3);
	fake_nfs_set(f, "tree/of root", &(struct nfs_attr){ .mode = 04711 });
}

START_TEST(test_named_owners)
{
	static const struct {
		const char *name;
		bool other; /* server */
		unsigned int from, to;
		enum fake_owners owners;
		int want;
	} rows[] = {
		{ "one server", false, 4, 4, FAKE_OWNERS_NAMED, 0 },
		{ "one that knows them", true, 4, 4, FAKE_OWNERS_NAMED, 0 },
		{ "one that does not", true, 4, 4, FAKE_OWNERS_STRANGE, -NFS_EOWNER },
		{ "version 3", true, 4, 3, FAKE_OWNERS_NUMBERED, -EINVAL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new(), *g = rows[i].other ? fake_nfs_new() : f;
		struct error err = { .code = ERROR_OK };
		int r;

		put_owned(f);
		r = copy_named(f, rows[i].from, g, rows[i].to, rows[i].owners, &err);
		ck_assert_msg((r == 0) == (rows[i].want == 0), "%s: %d: %s", rows[i].name, r,
			      err.msg);
		if (r == 0) {
			tree_check_same(rows[i].name, f, "tree", g, "copy");
		} else {
			check_error(rows[i].name, &err, ERROR_FAILED_PRECONDITION,
				    "Only_Numeric_Owners");
			/* Nothing is set-id for somebody else. */
			check_int(rows[i].name, "set-id",
				  fake_nfs_mode(g, "copy/of somebody") & 06000, 0);
		}
		if (g != f)
			fake_nfs_free(g);
		fake_nfs_free(f);
	}
}
END_TEST

/* Root cannot copy from or to a server that does not report owners. */
START_TEST(test_no_owners)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	put_owned(f);
	serve_owners(f, FAKE_OWNERS_NONE);
	check_that("no owners", "result", copy(f, NULL, &err) < 0);
	check_error("no owners", &err, ERROR_FAILED_PRECONDITION, "does not report");
	fake_nfs_free(f);
}
END_TEST

/* A copy whose files and directories have mode 0 is of no use to their owners. */
START_TEST(test_no_modes)
{
	static const struct fake_habits habits = { .no_modes = true };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	tree_fill_file(f, "tree/file", 0, 10);
	fake_nfs_habits(f, &habits);
	check_that("no modes", "result", copy(f, NULL, &err) < 0);
	check_error("no modes", &err, ERROR_FAILED_PRECONDITION, "does not report its mode");
	fake_nfs_free(f);
}
END_TEST

/*
 * A server that answers OK and leaves the owner as it is. bare: only GETATTR shows it. Nothing is
 * set-id for somebody else.
 */
START_TEST(test_ignored_owners)
{
	static const bool bare[] = { false, true };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bare); i++) {
		const struct fake_habits habits = { .no_owners = true, .bare = bare[i] };
		const struct fake_habits keeps = { .bare = bare[i] };
		const char *row = bare[i] ? "bare" : "full";
		struct fake_nfs *f = fake_nfs_new();
		struct tree_work work = { .cancel = NULL };
		struct error err = { .code = ERROR_OK };

		tree_fill_file(f, "tree/file", 0, 10);
		tree_mark(f, "tree/file", 06755, 5);
		fake_nfs_habits(f, &habits);
		check_that(row, "result", copy_with(f, f, 0, &work, &err) < 0);
		check_error(row, &err, ERROR_FAILED_PRECONDITION, "owner");
		check_int(row, "mode", fake_nfs_mode(f, "copy/file") & 06000, 0);
		fake_nfs_free(f);

		/* Where they are kept, bare replies cost one GETATTR, and one for each set-id. */
		f = fake_nfs_new();
		work = (struct tree_work){ .cancel = NULL };
		error_clear(&err);
		put_owned(f);
		tree_fill_file(f, "tree/plain", 0, 10);
		tree_mark(f, "tree/plain", 0640, 7);
		fake_nfs_habits(f, &keeps);
		check_int(row, "result", copy_with(f, f, 0, &work, &err), 0);
		tree_check_same(row, f, "tree", f, "copy");
		fake_nfs_free(f);
	}
}
END_TEST

/* If owners are not kept, a setgid file of another group does not become one of ours. */
START_TEST(test_not_root_group)
{
	struct fake_nfs *f = fake_nfs_new();
	struct tree_work work = { .cancel = NULL };
	struct error err = { .code = ERROR_OK };

	tree_fill_file(f, "tree/file", 0, 10);
	tree_mark(f, "tree/file", 06755, 234);
	check_int("group", "result", copy_with(f, f, 1234, &work, &err), 0);
	check_int("group", "mode", fake_nfs_mode(f, "copy/file"), 04755);
	fake_nfs_free(f);
}
END_TEST

/* Don't loop forever on a server that returns no data and no end of the file. */
START_TEST(test_empty_reads)
{
	static const struct fake_habits habits = { .empty = true };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	tree_fill_file(f, "tree/file", 0, 10);
	fake_nfs_habits(f, &habits);
	check_int("empty", "result", copy(f, NULL, &err), -EIO);
	fake_nfs_free(f);
}
END_TEST

/* Times out of range for version 3, not for version 4, are counted, once for each entry. */
START_TEST(test_times)
{
	static const int64_t seconds[] = { -315619200, -1, 0, UINT32_MAX, INT64_C(1) << 32 };
	struct fake_nfs *f = fake_nfs_new();
	struct tree_progress p;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(seconds); i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "tree/%zu", i);
		tree_fill_file(f, name, 0, 10);
		fake_nfs_set(f, name,
			     &(struct nfs_attr){ .mode = 0644, .mtime = { seconds[i], 0 } });
	}
	check_copy("times", f, &p);
	check_int("times", "clamped", p.clamped, fake_nfs_whole_max > 0 ? 0 : 3);
	fake_nfs_free(f);
}
END_TEST

/* So are those that the file system of the target does not have. */
START_TEST(test_times_of_file_system)
{
	static const struct fake_habits since_1901 = { .time_min = INT32_MIN };
	static const struct {
		const char *path;
		enum nfs_type type;
		struct nfs_time mtime;
	} rows[] = {
		{ "tree/1800", NFS_TYPE_FILE, { -5364662400, 5 } },
		{ "tree/1900", NFS_TYPE_DIRECTORY, { -2208988800, 0 } },
		{ "tree/1900 as well", NFS_TYPE_FIFO, { -2208988800, 0 } },
		{ "tree/a second earlier", NFS_TYPE_FILE, { INT64_C(-2147483649), 0 } },
		{ "tree/1901", NFS_TYPE_FILE, { INT32_MIN, 0 } },
		{ "tree/2026", NFS_TYPE_DIRECTORY, { 1795860000, 999999999 } },
	};
	struct fake_nfs *f = fake_nfs_new();
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };
	struct error err = { .code = ERROR_OK };
	struct nfs_handle handle;
	struct nfs_attr attr;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		fake_nfs_put(f, rows[i].path, rows[i].type, NULL);
		fake_nfs_set(f, rows[i].path,
			     &(struct nfs_attr){ .mode = 0755, .mtime = rows[i].mtime });
	}
	fake_nfs_habits(f, &since_1901);
	c->version = 4;
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	check_int("times", "result",
		  tree_copy(&work, &handle, &attr, &c->root, "copy", false, &err), 0);
	/* A second may be what the file system rounds to. */
	check_int("times", "clamped", work.progress.clamped, 3);
	ck_assert(fake_nfs_get(f, "copy/1800", &handle, &attr));
	check_int("times", "of the copy", attr.mtime.sec, INT32_MIN);
	nfs_client_free(steal_ptr(&c));
	fake_nfs_free(f);
}
END_TEST

START_TEST(test_mounts)
{
	static const struct {
		const char *name;
		struct nfs_attr attr;
		enum fake_entries entries;
	} rows[] = {
		{ "other file system", { .mode = 0755, .fsid = 2 }, FAKE_ENTRIES_FULL },
		{ "bind mount", { .mode = 0755, .is_mount = true }, FAKE_ENTRIES_FULL },
		{ "bind mount, names", { .mode = 0755, .is_mount = true }, FAKE_ENTRIES_BARE },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *row = rows[i].name;
		struct fake_nfs *f = fake_nfs_new();
		struct tree_progress p;

		fake_nfs_habits(f, &(struct fake_habits){ .entries = rows[i].entries });
		fake_nfs_put(f, "tree/mounted/inside", NFS_TYPE_DIRECTORY, NULL);
		tree_fill_file(f, "tree/beside", 0, 10);
		fake_nfs_set(f, "tree/mounted", &rows[i].attr);
		check_copy(row, f, &p);
		check_int(row, "left out", p.left_out, 1);
		check_int(row, "directory", fake_nfs_type(f, "copy/mounted"), NFS_TYPE_DIRECTORY);
		check_int(row, "inside", fake_nfs_type(f, "copy/mounted/inside"), NFS_TYPE_UNKNOWN);
		check_int(row, "beside", fake_nfs_type(f, "copy/beside"), NFS_TYPE_FILE);
		fake_nfs_free(f);
	}
}
END_TEST

/* Something is mounted on the volume's own directory: all of it is copied. */
START_TEST(test_root_is_mounted)
{
	static const struct {
		const char *name;
		int (*find)(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			    struct nfs_handle *ret_handle, struct nfs_attr *ret_attr);
		bool stats; /* also by its handle, which loses the name */
		struct fake_failure failure;
	} rows[] = {
		{ "by handle", nfs_lookup, true, { .nth = 0 } },
		{ "by name", nfs_lookup_full, false, { .nth = 0 } },
		{ "looked at again",
		  nfs_lookup,
		  true,
		  { .nth = 1, .error = -ESTALE, .types = 1U << NFS_OP_LISTXATTRS } },
	};
	const struct fake_habits habits = { .entries = FAKE_ENTRIES_FULL, .xattrs = true };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *row = rows[i].name;
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct tree_work work = {
			.from = c, .to = c, .from_xattrs = true, .to_xattrs = true
		};
		struct error err = { .code = ERROR_OK };
		struct nfs_handle tree;
		struct nfs_attr attr;
		int r;

		tree_put(f);
		fake_nfs_set_xattr(f, "tree", "name", "value", 5);
		fake_nfs_set(f, "tree", &(struct nfs_attr){ .mode = 0711, .is_mount = true });
		fake_nfs_habits(f, &habits);
		fake_nfs_fail(f, &rows[i].failure);
		check_int(row, "lookup", rows[i].find(c, &c->root, "tree", &tree, &attr), 0);
		check_that(row, "the name is a mount point", attr.is_mount);
		if (rows[i].stats)
			check_int(row, "stat", nfs_stat(c, &tree, &attr), 0);
		check_int(row, "mounted", attr.is_mount, !rows[i].stats);
		check_int(row, "count", tree_count(&work, &tree, &attr, &err), 0);
		check_int(row, "counted", work.progress.all_directories, 5);
		r = tree_copy(&work, &tree, &attr, &c->root, "copy", false, &err);
		ck_assert_msg(r == 0, "%s: %s", row, err.msg);
		check_int(row, "left out", work.progress.left_out, 0);
		tree_check_same(row, f, "tree", f, "copy");
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

START_TEST(test_large_files)
{
	static const struct {
		const char *name;
		uint64_t size;
	} rows[] = {
		{ "tree/one chunk", NFS_TRANSFER_MAX },
		{ "tree/a byte more", NFS_TRANSFER_MAX + 1 },
		{ "tree/a byte less", NFS_TRANSFER_MAX - 1 },
		{ "tree/many", 20 * MIB + 3 },
		{ "tree/two", 2 * NFS_TRANSFER_MAX },
	};
	struct fake_nfs *f = fake_nfs_new();
	struct tree_progress p;
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		tree_fill_file(f, rows[i].name, 0, (size_t)rows[i].size);
		sum += rows[i].size;
	}
	check_copy("large", f, &p);
	tree_check_same("large", f, "tree", f, "copy");
	check_int("large", "bytes", p.bytes, sum);
	fake_nfs_free(f);
}
END_TEST

/* Hard links in many directories, with further names outside of the tree. */
START_TEST(test_hard_links)
{
	struct fake_nfs *f = fake_nfs_new();
	unsigned int i, k;

	fake_nfs_habits(f, &full);
	for (i = 0; i < 50; i++) {
		char first[64], name[64];

		(void)snprintf(first, sizeof(first), "tree/z/%u", i);
		tree_fill_file(f, first, 0, 5000 + i);
		for (k = 0; k < 20; k++) {
			(void)snprintf(name, sizeof(name), "tree/%u/%u", (i + k) % 50, i);
			fake_nfs_link(f, first, name);
		}
		(void)snprintf(name, sizeof(name), "outside/%u", i);
		fake_nfs_link(f, first, name);
	}
	check_copy("hard links", f, NULL);
	tree_check_same("hard links", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

static void remove_first_name(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	const struct fake_failure stale = { .nth = 1, .error = -ESTALE };
	unsigned int *reads = data;

	fake_nfs_fail(f, NULL);
	if (op->type != NFS_OP_READ || ++*reads != 1)
		return;
	fake_nfs_remove(f, "tree/1");
	fake_nfs_fail(f, &stale);
}

/* The first name goes while it is read. The next one was read ahead, and has the data. */
START_TEST(test_first_name_vanishes)
{
	struct fake_nfs *f = fake_nfs_new();
	struct tree_work work = { .cancel = NULL };
	struct error err = { .code = ERROR_OK };
	struct nfs_handle unused;
	struct nfs_attr two, three;
	unsigned int reads = 0;

	fake_nfs_habits(f, &full);
	tree_fill_file(f, "tree/1", 0, 5000);
	fake_nfs_link(f, "tree/1", "tree/2");
	fake_nfs_link(f, "tree/1", "tree/3");
	fake_nfs_watch(f, remove_first_name, &reads);
	check_int("vanishes", "result", copy_with(f, f, 0, &work, &err), 0);
	fake_nfs_watch(f, NULL, NULL);
	check_int("vanishes", "counted", work.progress.vanished, 1);
	tree_check_same("vanishes", f, "tree/2", f, "copy/2");
	ck_assert(fake_nfs_get(f, "copy/2", &unused, &two));
	ck_assert(fake_nfs_get(f, "copy/3", &unused, &three));
	check_int("vanishes", "one file", two.fileid == three.fileid, true);
	fake_nfs_free(f);
}
END_TEST

struct crowd {
	const struct tree_work *work;
	size_t most; /* operations that were in flight with a LINK */
	unsigned int lookups;
};

static void count_crowd(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct crowd *crowd = data;

	(void)f;
	crowd->lookups += op->type == NFS_OP_LOOKUP;
	if (op->type == NFS_OP_LINK && crowd->work->writing > crowd->most)
		crowd->most = crowd->work->writing;
}

/* Hard links are pipelined and need no lookups. */
START_TEST(test_links_in_flight)
{
	struct fake_nfs *f = fake_nfs_new();
	struct tree_work work = { .cancel = NULL };
	struct crowd crowd = { .work = &work };
	struct error err = { .code = ERROR_OK };
	unsigned int i;

	tree_fill_file(f, "tree/a/b/c/file", 0, 10);
	for (i = 0; i < 500; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "tree/z/%u", i);
		fake_nfs_link(f, "tree/a/b/c/file", name);
	}
	fake_nfs_habits(f, &full);
	fake_nfs_watch(f, count_crowd, &crowd);
	check_int("in flight", "result", copy_with(f, f, 0, &work, &err), 0);
	fake_nfs_watch(f, NULL, NULL);
	check_that("in flight", "together", crowd.most > 10);
	check_int("in flight", "looked up", crowd.lookups, 0);
	tree_check_same("in flight", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* -------- directories take turns -------- */

#define SPREAD_DIRECTORIES 20
#define SPREAD_FILES 60

/* A client that answers all operations in flight at once, and counts creations by directory. */
struct spread {
	const struct nfs_client_ops *real;
	const struct tree_work *work;
	unsigned int creating[4096]; /* in flight, by the hash of the directory's handle */
	unsigned int created, crowded; /* files; those that were one of many in their directory */
	unsigned int round_trips;
};

static struct spread spread;

static unsigned int *spread_slot(const struct nfs_handle *dir)
{
	return &spread.creating[str_hash(dir->data, dir->len) % ARRAY_SIZE(spread.creating)];
}

static int start_spread(struct nfs_client *c, struct nfs_op *op)
{
	if (op->type == NFS_OP_CREATE)
		++*spread_slot(op->dir);
	return spread.real->start(c, op);
}

static int run_spread(struct nfs_client *c, uint64_t deadline_ns)
{
	size_t n = spread.work->reading + spread.work->writing;
	int r = 0;

	spread.round_trips++;
	while (n-- > 0 && r == 0)
		r = spread.real->run(c, deadline_ns);
	return r;
}

static void count_spread(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)f;
	(void)data;
	if (op->type != NFS_OP_CREATE)
		return;
	spread.created++;
	spread.crowded += (*spread_slot(op->dir))-- > BUILDER_CREATES;
}

static void copy_spread(struct fake_nfs *f, const char *row)
{
	struct nfs_client *c = fake_nfs_connect(f);
	struct nfs_client_ops ops = *c->ops;
	struct tree_work work = { .from = c, .to = c };
	struct error err = { .code = ERROR_OK };

	fake_nfs_habits(f, &full);
	spread = (struct spread){ .real = c->ops, .work = &work };
	ops.start = start_spread;
	ops.run = run_spread;
	c->ops = &ops;
	fake_nfs_watch(f, count_spread, NULL);
	check_int(row, "result", tree_copy_checked(&work, f, false, &err), 0);
	fake_nfs_watch(f, NULL, NULL);
	c->ops = spread.real;
	nfs_client_free(c);
	tree_check_same(row, f, "tree", f, "copy");
}

static void fill_files(struct fake_nfs *f, unsigned int directory, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "tree/%u/%u", directory, i);
		tree_fill_file(f, path, 0, 100);
	}
}

/* Few files of a directory are created at a time while there are others, else many. */
START_TEST(test_turns)
{
	/* A file that is made in one call waits for its data, so more are left for the end. */
	const unsigned int part = fake_nfs_whole_max > 0 ? 6 : 50;
	struct fake_nfs *f = fake_nfs_new();
	unsigned int i;

	for (i = 0; i < SPREAD_DIRECTORIES; i++)
		fill_files(f, i, SPREAD_FILES);
	copy_spread(f, "many directories");
	check_int("many directories", "files", spread.created, SPREAD_DIRECTORIES * SPREAD_FILES);
	ck_assert_msg(spread.crowded < spread.created / part, "%u of %u files were in a crowd",
		      spread.crowded, spread.created);
	fake_nfs_free(f);

	f = fake_nfs_new();
	fill_files(f, 0, 2000);
	copy_spread(f, "one directory");
	check_int("one directory", "files", spread.created, 2000);
	ck_assert_msg(spread.round_trips < 200, "one directory: %u round trips",
		      spread.round_trips);
	fake_nfs_free(f);
}
END_TEST

/* Operations on a file, by the hash of its handle. */
static struct {
	const struct nfs_client_ops *real;
	unsigned int in_flight[4096]; /* WRITE, COMMIT and SETATTR */
	bool is_linked[4096];
	unsigned int links, overlaps;
} changes;

static size_t changes_slot(const struct nfs_op *op)
{
	return str_hash(op->dir->data, op->dir->len) % ARRAY_SIZE(changes.in_flight);
}

static bool is_file_change(const struct nfs_op *op)
{
	return op->type == NFS_OP_WRITE || op->type == NFS_OP_COMMIT || op->type == NFS_OP_SETATTR;
}

static int start_change(struct nfs_client *c, struct nfs_op *op)
{
	if (is_file_change(op)) {
		changes.in_flight[changes_slot(op)]++;
		changes.overlaps += changes.is_linked[changes_slot(op)];
	} else if (op->type == NFS_OP_LINK) {
		changes.links++;
		changes.overlaps += changes.in_flight[changes_slot(op)] > 0;
		changes.is_linked[changes_slot(op)] = true;
	}
	return changes.real->start(c, op);
}

static void end_change(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)f;
	(void)data;
	if (is_file_change(op))
		changes.in_flight[changes_slot(op)]--;
}

/* A file is finished before it is linked to: some servers take link counts from before. */
START_TEST(test_links_come_last)
{
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct nfs_client_ops ops = *c->ops;
	struct tree_work work = { .from = c, .to = c };
	struct error err = { .code = ERROR_OK };
	unsigned int i;

	for (i = 0; i < 60; i++) {
		char first[64], name[64];

		(void)snprintf(first, sizeof(first), "tree/a/%u", i);
		(void)snprintf(name, sizeof(name), "tree/b/%u", i);
		tree_fill_file(f, first, 0, i % 3 * 1000000);
		tree_mark(f, first, 0604, i);
		fake_nfs_link(f, first, name);
	}
	fake_nfs_habits(f, &full);
	memset(&changes, 0, sizeof(changes));
	changes.real = c->ops;
	ops.start = start_change;
	c->ops = &ops;
	fake_nfs_watch(f, end_change, NULL);
	check_int("links", "result", tree_copy_checked(&work, f, false, &err), 0);
	fake_nfs_watch(f, NULL, NULL);
	c->ops = changes.real;
	nfs_client_free(c);
	check_int("links", "made", changes.links, 60);
	check_int("links", "overlaps", changes.overlaps, 0);
	tree_check_same("links", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* More files with hard links than can be remembered: first the files, then the links. */
START_TEST(test_links_forgotten)
{
	struct fake_nfs *f = fake_nfs_new();
	const unsigned int n = BUILDER_TARGET_BYTES / 1000 + 200; /* of nearly 1,000 bytes */
	char deep[251];
	unsigned int i;

	memset(deep, 'd', sizeof(deep));
	for (i = 0; i < n; i++) {
		char first[1024], name[64];

		(void)snprintf(first, sizeof(first), "tree/a/%.250s/%.250s/%.250s/%.200s%u", deep,
			       deep, deep, deep, i);
		(void)snprintf(name, sizeof(name), "tree/z/%u", i);
		tree_fill_file(f, first, 0, 1 + i % 3);
		fake_nfs_link(f, first, name);
	}
	fake_nfs_habits(f, &full);
	check_copy("forgotten", f, NULL);
	tree_check_same("forgotten", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

static void measure(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct tree_meter *m = data;
	const size_t used = m->begun++ % 16 == 0 ? tree_heap_in_use() : 0;

	(void)f;
	(void)op;
	if (used > m->start && used - m->start > m->peak)
		m->peak = used - m->start;
}

/* Long paths of files that are not finished count, too. The reader remembers 6 MiB of paths. */
START_TEST(test_links_of_long_paths)
{
	const struct fake_habits habits = { .page = 1000, .entries = FAKE_ENTRIES_FULL };
	cleanup_free char *level = check_repeat("d", 250);
	cleanup_buf struct buf path = { .data = NULL };
	struct fake_nfs *f = fake_nfs_new(), *g = fake_nfs_new();
	struct nfs_client *from = fake_nfs_connect(f), *to = fake_nfs_connect(g);
	struct tree_work work = { .from = from, .to = to };
	struct tree_meter m = TREE_METER;
	struct error err = { .code = ERROR_OK };
	struct nfs_handle handle;
	struct nfs_attr attr;
	unsigned int i;
	size_t len;

	fake_nfs_pair(from, to);
	ck_assert(buf_puts(&path, "tree") == 0);
	for (i = 0; i < 64; i++)
		ck_assert(buf_printf(&path, "/%s", level) == 0);
	len = path.len;
	for (i = 0; i < 1000; i++) {
		char name[32];

		path.len = len;
		ck_assert(buf_printf(&path, "/%u", i) == 0);
		(void)snprintf(name, sizeof(name), "other/%u", i);
		fake_nfs_put(f, path.data, NFS_TYPE_FILE, NULL);
		fake_nfs_link(f, path.data, name);
	}
	fake_nfs_habits(f, &habits);
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	m.start = tree_heap_in_use();
	fake_nfs_watch(g, measure, &m);
	check_int("long paths", "result",
		  tree_copy(&work, &handle, &attr, &to->root, "copy", false, &err), 0);
	fake_nfs_watch(g, NULL, NULL);
	tree_check_same("long paths", f, "tree", g, "copy");
	if (getenv("VERBOSE") != NULL)
		(void)printf("the copy took %zu bytes\n", m.peak);
	ck_assert_msg(m.peak < 15 * MIB, "the copy took %zu bytes", m.peak);
	nfs_client_free(from);
	nfs_client_free(to);
	fake_nfs_free(f);
	fake_nfs_free(g);
}
END_TEST

START_TEST(test_many_entries)
{
	struct fake_nfs *f = fake_nfs_new();
	struct tree_progress p;
	unsigned int i;

	for (i = 0; i < 20000; i++) {
		char name[64];

		(void)snprintf(name, sizeof(name), "tree/large/entry-%05u", i);
		tree_fill_file(f, name, 0, i % 3);
		if (i % 1000 == 0)
			tree_mark(f, name, 0604, i);
	}
	fake_nfs_habits(f, &full);
	check_copy("many", f, &p);
	check_int("many", "files", p.files, 20000);
	tree_check_same("many", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* -------- deep trees -------- */

#define LEVELS 1000
#define SIBLINGS 40

/* Files, links and directories at each level, in front of and behind the next level. */
static void put_chain(struct fake_nfs *f, unsigned int levels)
{
	struct buf path = { 0 };
	unsigned int level, i;

	ck_assert(buf_puts(&path, "tree") == 0);
	for (level = 0; level < levels; level++) {
		size_t len = path.len;

		for (i = 0; i < SIBLINGS; i++) {
			if (i == SIBLINGS / 4) {
				ck_assert(buf_puts(&path, "/d") == 0);
				fake_nfs_put(f, path.data, NFS_TYPE_DIRECTORY, NULL);
				path.len = len;
			}
			ck_assert(buf_printf(&path, "/%c%u", 'a' + (char)(i % 26), i) == 0);
			if (i % 5 == 0)
				fake_nfs_put(f, path.data, NFS_TYPE_SYMLINK, "text");
			else
				fake_nfs_write(f, path.data, 0, "some", 4); /* to be read ahead */
			path.len = len;
		}
		ck_assert(buf_puts(&path, "/b") == 0);
		fake_nfs_put(f, path.data, NFS_TYPE_DIRECTORY, NULL);
		path.len = len;
		ck_assert(buf_puts(&path, "/b/within") == 0);
		fake_nfs_put(f, path.data, NFS_TYPE_FILE, NULL);
		path.len = len;
		ck_assert(buf_puts(&path, "/d") == 0);
	}
	buf_done(&path);
}

/* Directories that are read ahead, dropped with their contents and read again. */
static void put_behind(struct fake_nfs *f, unsigned int directories, unsigned int files)
{
	unsigned int i, k;

	for (i = 0; i < directories; i++) {
		for (k = 0; k < files; k++) {
			char name[64];

			(void)snprintf(name, sizeof(name), "tree/behind%u/%u", i, k);
			fake_nfs_put(f, name, NFS_TYPE_FILE, NULL);
		}
	}
}

static const enum fake_entries chain_entries[] = { FAKE_ENTRIES_FULL, FAKE_ENTRIES_MIXED };

START_TEST(test_chain)
{
	const struct fake_habits habits = { .page = 1000, .entries = chain_entries[_i] };
	struct fake_nfs *f = fake_nfs_new();
	struct tree_progress p;

	put_chain(f, LEVELS);
	put_behind(f, 40, 10);
	fake_nfs_habits(f, &habits);
	check_copy("chain", f, &p);
	check_int("chain", "files", p.files, LEVELS * (SIBLINGS + 1) + 40 * 10);
	tree_check_same("chain", f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* Chains about as long as the queue: the items dropped last are read again. */
START_TEST(test_dropped)
{
	const struct fake_habits habits = { .page = 1000, .entries = FAKE_ENTRIES_FULL };
	const unsigned int levels = 220 + 5 * (unsigned int)_i;
	struct fake_nfs *f = fake_nfs_new();
	char row[32];

	(void)snprintf(row, sizeof(row), "%u levels", levels);
	put_chain(f, levels);
	put_behind(f, 40, 10);
	fake_nfs_habits(f, &habits);
	check_copy(row, f, NULL);
	tree_check_same(row, f, "tree", f, "copy");
	fake_nfs_free(f);
}
END_TEST

/* 40,000 entries of half a kilobyte or more on the way down, of which 8,192 are kept. */
START_TEST(test_memory)
{
	const struct fake_habits habits = { .page = 1000, .entries = FAKE_ENTRIES_FULL };
	const struct tree_reader_options options = { .map = false };
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };
	struct tree_meter m = TREE_METER;
	struct error err = { .code = ERROR_OK };
	struct nfs_handle handle;
	struct nfs_attr attr;

	put_chain(f, LEVELS);
	fake_nfs_habits(f, &habits);
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	m.start = tree_heap_in_use();
	check_int("memory", "result", tree_read(&work, &handle, &attr, &options, &m.sink, &err), 0);
	check_int("memory", "entries", m.begun, LEVELS * (SIBLINGS + 3) + 1);
	check_int("memory", "ended", m.ended, m.begun);
	ck_assert_msg(m.peak < 9 * MIB, "the reader took %zu bytes", m.peak);
	if (getenv("VERBOSE") != NULL)
		(void)printf("the reader took %zu bytes\n", m.peak);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* -------- changes during the copy -------- */

struct event {
	enum nfs_op_type type; /* before the nth operation of that type */
	unsigned int nth, seen;
	void (*happen)(struct fake_nfs *f);
};

static void watch(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct event *e = data;

	if (op->type == e->type && ++e->seen == e->nth)
		e->happen(f);
}

static void remove_file(struct fake_nfs *f)
{
	fake_nfs_remove(f, "tree/f3");
}

static void remove_directory(struct fake_nfs *f)
{
	fake_nfs_remove(f, "tree/dir");
}

static void remove_link(struct fake_nfs *f)
{
	fake_nfs_remove(f, "tree/link");
}

static void remove_big(struct fake_nfs *f)
{
	fake_nfs_remove(f, "tree/big");
}

static void remove_everything(struct fake_nfs *f)
{
	fake_nfs_remove(f, "tree");
}

static void shrink_big(struct fake_nfs *f)
{
	fake_nfs_truncate(f, "tree/big", MIB + 10);
}

static void empty_big(struct fake_nfs *f)
{
	fake_nfs_truncate(f, "tree/big", 0);
}

static void grow_big(struct fake_nfs *f)
{
	tree_fill_file(f, "tree/big", 8 * MIB, 100);
}

static void restart(struct fake_nfs *f)
{
	fake_nfs_restart(f);
}

static void put_changing(struct fake_nfs *f)
{
	unsigned int i;
	char name[32];

	tree_fill_file(f, "tree/big", 0, 8 * MIB);
	for (i = 0; i < 8; i++) {
		(void)snprintf(name, sizeof(name), "tree/f%u", i);
		tree_fill_file(f, name, 0, 1000);
		(void)snprintf(name, sizeof(name), "tree/dir/%u", i);
		tree_fill_file(f, name, 0, 1000);
	}
	fake_nfs_put(f, "tree/link", NFS_TYPE_SYMLINK, "text");
}

START_TEST(test_changes)
{
	static const struct {
		const char *name;
		struct event event;
		struct fake_habits habits;
		enum error_code code;
		const char *gone; /* what the copy has not */
		uint64_t vanished, changed;
	} rows[] = {
		{ "file before its data",
		  { NFS_OP_READ, 1, 0, remove_file },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_OK,
		  "copy/f3",
		  1,
		  0 },
		{ "file before its handle",
		  { NFS_OP_LOOKUP, 1, 0, remove_file },
		  { .page = 100, .entries = FAKE_ENTRIES_BARE },
		  ERROR_OK,
		  "copy/f3",
		  1,
		  0 },
		{ "file before its attributes",
		  { NFS_OP_GETATTR, 1, 0, remove_file },
		  { .page = 100, .entries = FAKE_ENTRIES_BARE, .bare = true },
		  ERROR_OK,
		  "copy/f3",
		  1,
		  0 },
		{ "link before its text",
		  { NFS_OP_READLINK, 1, 0, remove_link },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_OK,
		  "copy/link",
		  1,
		  0 },
		{ "directory before its pages",
		  { NFS_OP_READDIR, 2, 0, remove_directory },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_OK,
		  "copy/dir/0",
		  1,
		  0 },
		{ "root",
		  { NFS_OP_READDIR, 1, 0, remove_everything },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_UNAVAILABLE,
		  "copy/f3",
		  0,
		  0 },
		{ "file in its data",
		  { NFS_OP_READ, 8, 0, remove_big },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_OK,
		  "copy/big",
		  1,
		  0 },
		{ "shorter",
		  { NFS_OP_READ, 3, 0, shrink_big },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_OK,
		  NULL,
		  0,
		  0 },
		{ "shorter, short reads",
		  { NFS_OP_READ, 300, 0, shrink_big },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL, .transfer_max = 5000 },
		  ERROR_OK,
		  NULL,
		  0,
		  0 },
		{ "empty",
		  { NFS_OP_READ, 1, 0, empty_big },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_OK,
		  NULL,
		  0,
		  0 },
		{ "longer",
		  { NFS_OP_READ, 3, 0, grow_big },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_OK,
		  NULL,
		  0,
		  0 },
		{ "server restarted between writes",
		  { NFS_OP_WRITE, 20, 0, restart },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_UNAVAILABLE,
		  NULL,
		  0,
		  0 },
		{ "server restarted before the commit",
		  { NFS_OP_COMMIT, 1, 0, restart },
		  { .page = 100, .entries = FAKE_ENTRIES_FULL },
		  ERROR_UNAVAILABLE,
		  NULL,
		  0,
		  0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct event event = rows[i].event;
		struct tree_progress p;

		put_changing(f);
		fake_nfs_habits(f, &rows[i].habits);
		fake_nfs_watch(f, watch, &event);
		(void)copy(f, &p, &err);
		check_error(rows[i].name, &err, rows[i].code, NULL);
		check_that(rows[i].name, "it happened", event.seen >= event.nth);
		if (rows[i].gone != NULL)
			check_int(rows[i].name, rows[i].gone, fake_nfs_type(f, rows[i].gone),
				  NFS_TYPE_UNKNOWN);
		if (err.code == ERROR_OK) {
			check_int(rows[i].name, "vanished", p.vanished, rows[i].vanished);
			check_int(rows[i].name, "changed", p.changed, rows[i].changed);
			check_int(rows[i].name, "the rest", fake_nfs_type(f, "copy/f7"),
				  NFS_TYPE_FILE);
			tree_check_same(rows[i].name, f, "tree/big", f, "copy/big");
		}
		fake_nfs_free(f);
	}
}
END_TEST

/* The copy of a truncated file has the data that was there and no more. */
START_TEST(test_shorter)
{
	struct event event = { NFS_OP_READ, 3, 0, shrink_big };
	struct fake_nfs *f = fake_nfs_new();
	struct tree_progress p;

	put_changing(f);
	fake_nfs_habits(f, &full);
	fake_nfs_watch(f, watch, &event);
	check_copy("shorter", f, &p);
	tree_check_same("shorter", f, "tree/f1", f, "copy/f1");
	check_int("shorter", "size", p.bytes, MIB + 10 + 16 * 1000);
	fake_nfs_free(f);
}
END_TEST

/* -------- cancelling, and servers that ask to try later -------- */

struct canceller {
	atomic_bool cancel;
	unsigned int n, at;
};

static void cancel_at(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct canceller *x = data;

	(void)f;
	(void)op;
	if (++x->n == x->at)
		atomic_store(&x->cancel, true);
}

START_TEST(test_cancel)
{
	unsigned int at;

	for (at = 1; at < 200; at += 7) {
		struct fake_nfs *f = fake_nfs_new();
		struct canceller x = { .at = at };
		struct tree_work work = { .cancel = &x.cancel };
		struct error err = { .code = ERROR_OK };

		tree_put(f);
		put_changing(f);
		fake_nfs_watch(f, cancel_at, &x);
		check_int("cancel", "result", copy_with(f, f, 0, &work, &err) < 0, 1);
		check_error("cancel", &err, ERROR_CANCELLED, NULL);
		check_that("cancel", "soon", x.n < at + 2 * NFS_WINDOW + 2);
		fake_nfs_free(f);
	}
}
END_TEST

/* Cancelling works although the server answers each READ with "try later". */
START_TEST(test_cancel_patient)
{
	const struct fake_failure failure = {
		.nth = 3, .error = -EAGAIN, .all = true, .types = 1U << NFS_OP_READ
	};
	struct fake_nfs *f = fake_nfs_new();
	struct canceller x = { .at = 100 };
	struct tree_work work = { .cancel = &x.cancel };
	struct error err = { .code = ERROR_OK };

	put_changing(f);
	fake_nfs_habits(f, &full);
	fake_nfs_watch(f, cancel_at, &x);
	fake_nfs_fail(f, &failure);
	check_int("patient", "result", copy_with(f, f, 0, &work, &err) < 0, 1);
	check_error("patient", &err, ERROR_CANCELLED, NULL);
	fake_nfs_free(f);
}
END_TEST

/* The copy is complete in spite of the failure. Frees f. Returns whether the failure happened. */
static bool check_copy_despite(const char *row, struct fake_nfs *f,
			       const struct fake_failure *failure)
{
	bool failed;

	fake_nfs_fail(f, failure);
	check_copy(row, f, NULL);
	failed = fake_nfs_operations(f) >= failure->nth;
	tree_check_same(row, f, "tree", f, "copy");
	fake_nfs_free(f);
	return failed;
}

START_TEST(test_later)
{
	unsigned int type;

	for (type = 0; type < NFS_OPS; type++) {
		const struct fake_failure failure = { .nth = 1,
						      .error = -EAGAIN,
						      .types = 1U << type };
		struct fake_nfs *f = fake_nfs_new();
		char row[32];

		(void)snprintf(row, sizeof(row), "operation %u", type);
		tree_put(f);
		put_changing(f);
		(void)check_copy_despite(row, f, &failure); /* not all types are used */
	}
}
END_TEST

/* Two names of the source are the same on the target: an error, not a lost file. */
START_TEST(test_folded_names)
{
	static const char *const rows[][2] = {
		{ "tree/readme", "tree/README" },
		{ "tree/README", "tree/readme" },
		{ "tree/d/x", "tree/D/x" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new(), *g = fake_nfs_new();
		struct tree_work work = { .cancel = NULL };
		struct error err = { .code = ERROR_OK };

		fake_nfs_write(f, rows[i][0], 0, "one", 3);
		fake_nfs_habits(g, &(struct fake_habits){ .folds = true });
		check_int(rows[i][0], "alone", copy_with(f, g, 0, &work, &err), 0);
		tree_check_same(rows[i][0], f, "tree", g, "copy");
		fake_nfs_remove(g, "copy");
		fake_nfs_write(f, rows[i][1], 0, "two", 3);
		check_int(rows[i][0], "result", copy_with(f, g, 0, &work, &err), -EEXIST);
		check_error(rows[i][0], &err, ERROR_FAILED_PRECONDITION, NULL);
		fake_nfs_free(f);
		fake_nfs_free(g);
	}
}
END_TEST

/* -------- counting before the copy -------- */

static void forbid_reads(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)f;
	(void)data;
	check_that("count", "no data is read", op->type != NFS_OP_READ);
}

START_TEST(test_count)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct tree_work work = { .cancel = NULL };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct error err = { .code = ERROR_OK };
		struct nfs_handle handle;
		struct nfs_attr attr;
		struct tree_progress p;

		tree_put(f);
		put_changing(f);
		fake_nfs_habits(f, &kinds[i].habits);
		ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
		fake_nfs_watch(f, forbid_reads, NULL);
		work.from = work.to = c;
		check_int(kinds[i].name, "result", tree_count(&work, &handle, &attr, &err), 0);
		check_int(kinds[i].name, "operations left in flight", work.reading + work.writing,
			  0);
		check_int(kinds[i].name, "done", work.progress.files + work.progress.bytes, 0);
		fake_nfs_watch(f, NULL, NULL);
		check_copy(kinds[i].name, f, &p);
		check_int(kinds[i].name, "files", work.progress.all_files, p.files);
		check_int(kinds[i].name, "directories", work.progress.all_directories,
			  p.directories);
		check_int(kinds[i].name, "bytes", work.progress.all_bytes, p.bytes);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* The server reports each directory in turn as gone once, although it is there. */
START_TEST(test_not_gone)
{
	static const int errors[] = { -ENOENT, -ESTALE };
	bool more = true;
	unsigned int n;

	for (n = 1; more; n++) {
		const struct fake_failure failure = { .nth = n,
						      .error = errors[n % 2],
						      .types = 1U << NFS_OP_READDIR };
		struct fake_nfs *f = fake_nfs_new();
		char row[32];

		(void)snprintf(row, sizeof(row), "READDIR %u", n);
		tree_put(f);
		more = check_copy_despite(row, f, &failure);
	}
	check_that("not gone", "there were operations", n > 6);
}
END_TEST

/* -------- every operation fails once -------- */

struct way {
	const char *name;
	int error;
	bool after;
};

static const struct way ways[] = {
	{ "input/output error", -EIO, false },
	{ "no space", -ENOSPC, false },
	{ "refused", -EACCES, false },
	{ "cut off", -ECONNABORTED, false },
	{ "cut off after it took effect", -ECONNABORTED, true },
	{ "input/output error after it took effect", -EIO, true },
};

START_TEST(test_failures)
{
	const struct way *way = &ways[_i];
	unsigned int n;

	for (n = 1;; n++) {
		const struct fake_failure failure = { .nth = n,
						      .error = way->error,
						      .after = way->after };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char row[96];
		int r;

		(void)snprintf(row, sizeof(row), "%s, operation %u", way->name, n);
		tree_put(f);
		fake_nfs_fail(f, &failure);
		r = copy(f, NULL, &err);
		if (fake_nfs_operations(f) < n) {
			check_int(row, "result", r, 0);
			check_that(row, "there were operations", n > 60);
			fake_nfs_free(f);
			break;
		}
		check_int(row, "result", r, way->error);
		check_error(row, &err, nfs_error_code(way->error), NULL);
		fake_nfs_fail(f, NULL);
		fake_nfs_remove(f, "copy");
		check_copy(row, f, NULL);
		tree_check_same(row, f, "tree", f, "copy");
		fake_nfs_free(f);
	}
}
END_TEST

/* As the setgid bit of the directory above. */
static void add_setgid(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	bool *done = data;

	(void)op;
	if (*done || fake_nfs_type(f, "folder") != NFS_TYPE_DIRECTORY)
		return;
	*done = true;
	fake_nfs_set(f, "folder", &(struct nfs_attr){ .mode = 02700 });
}

/* clang-format off */
/* The folder around it is for its owner alone, also where the server adds bits. */
START_TEST(test_to_folder)
{
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };
	struct error err = { .code = ERROR_OK };
	struct nfs_handle handle;
	struct nfs_attr attr;
	bool added = false;

	fake_nfs_put(f, "tree/file", NFS_TYPE_FILE, NULL);
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	check_int("root", "setmode", nfs_setmode(c, &handle, 0755), 0);
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	fake_nfs_watch(f, add_setgid, &added);
	check_int("copy", "result",
		  tree_copy_to_folder(&work, &handle, &attr, &c->root, "folder", "copy", false,
				      &err),
		  0);
	check_that("folder", "the server added a bit", added);
	check_int("folder", "mode", fake_nfs_mode(f, "folder"), 0700);
	check_int("copy", "mode", fake_nfs_mode(f, "folder/copy"), 0755);
	check_int("file", "type", fake_nfs_type(f, "folder/copy/file"), NFS_TYPE_FILE);
	check_int("again", "result",
		  tree_copy_to_folder(&work, &handle, &attr, &c->root, "folder", "copy", false,
				      &err),
		  -EEXIST);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

CHECK_MAIN("tree_copy",
	   .tests = {
		   test_kinds, test_two_shares,
			       test_budget_is_used_up, test_not_root, test_mounts,
		   test_root_is_mounted,
		   test_large_files, test_hard_links, test_many_entries,
		   test_first_name_vanishes,
		   test_memory, test_changes, test_shorter, test_cancel, test_cancel_patient,
		   test_later, test_count, test_folded_names, test_not_gone, test_named_owners,
		   test_no_owners, test_no_modes, test_ignored_owners, test_not_root_group,
		   test_times, test_times_of_file_system,
		   test_links_in_flight, test_links_come_last,
		   test_turns,
		   test_links_forgotten, test_links_of_long_paths, test_empty_reads, test_to_folder,
	   },
	   .loops = {
		   { test_failures, ARRAY_SIZE(ways), .is_shared = true },
		   { test_chain, ARRAY_SIZE(chain_entries), .is_shared = true },
		   { test_dropped, 10, .is_shared = true },
	   })
