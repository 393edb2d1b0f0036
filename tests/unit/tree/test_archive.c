/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "nfs/error.h"
#include "tree/archive.h"
#include "tree/archive_times.h"
#include "tree/zstd_frames.h"
#include "tree_util.h"

static const char *const compressions[] = {
	[TREE_COMPRESSION_NONE] = "none",
	[TREE_COMPRESSION_GZIP] = "gzip",
	[TREE_COMPRESSION_ZSTD] = "zstd",
};

#define FILE_NAME "archive"
#define ARCHIVE "out/" FILE_NAME

static void check_work(const struct tree_work *work, int r, const struct error *err)
{
	check_int("work", "operations left in flight", work->reading + work->writing, 0);
	check_int("work", "bytes left", work->ahead.held + work->unwritten.held, 0);
	check_that("work", "the error is reported", (r == 0) == (err->code == ERROR_OK));
}

/* Packs "tree" into "out". */
static int pack_and_sum(struct fake_nfs *f, enum tree_compression compression,
			struct tree_archive_sum *ret, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	error_clear(err);
	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	r = tree_pack(&work, &handle, &attr, &c->root, "out", FILE_NAME, compression, ret, err);
	check_work(&work, r, err);
	return r;
}

static int pack(struct fake_nfs *f, enum tree_compression compression, struct error *err)
{
	struct tree_archive_sum unused = { .bytes = 0 };

	return pack_and_sum(f, compression, &unused, err);
}

/* Unpacks the archive into "back". sum: NULL: not known. */
static int unpack_and_count(struct fake_nfs *f, const struct tree_archive_sum *sum,
			    struct tree_progress *ret, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	error_clear(err);
	ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
	r = tree_unpack(&work, &handle, attr.size, sum, &c->root, "back", err);
	check_work(&work, r, err);
	*ret = work.progress;
	return r;
}

static int unpack_with_sum(struct fake_nfs *f, const struct tree_archive_sum *sum,
			   struct error *err)
{
	struct tree_progress unused;

	return unpack_and_count(f, sum, &unused, err);
}

static int unpack(struct fake_nfs *f, struct error *err)
{
	return unpack_with_sum(f, NULL, err);
}

/* Read the archive without extracting it. */
static int check_only(struct fake_nfs *f, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	error_clear(err);
	ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
	r = tree_archive_check(&work, &handle, attr.size, err);
	check_work(&work, r, err);
	return r;
}

static void check_pack(const char *row, struct fake_nfs *f, enum tree_compression compression)
{
	struct error err = { .code = ERROR_OK };
	int r = pack(f, compression, &err);

	ck_assert_msg(r == 0, "%s: %s", row, err.msg);
}

static void check_unpack(const char *row, struct fake_nfs *f)
{
	struct error err = { .code = ERROR_OK };
	int r = unpack(f, &err);

	ck_assert_msg(r == 0, "%s: %s", row, err.msg);
}

/* Pack and unpack over this version on a server that sends owners as names. */
static int transfer_named(struct fake_nfs *f, unsigned int version, bool back, struct error *err)
{
	static const struct fake_habits named = { .page = 5, .owners = FAKE_OWNERS_NAMED };
	static const struct fake_habits numbered = { .page = 5 };
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct tree_work work = { .from = c, .to = c };
	struct nfs_handle handle;
	struct tree_archive_sum sum = { .bytes = 0 };
	struct nfs_attr attr;
	int r;

	c->version = version;
	error_clear(err);
	fake_nfs_habits(f, version == 4 ? &named : &numbered);
	ck_assert(fake_nfs_get(f, back ? ARCHIVE : "tree", &handle, &attr));
	if (back)
		r = tree_unpack(&work, &handle, attr.size, NULL, &c->root, "back", err);
	else
		r = tree_pack(&work, &handle, &attr, &c->root, "out", FILE_NAME,
			      TREE_COMPRESSION_NONE, &sum, err);
	check_work(&work, r, err);
	fake_nfs_habits(f, &numbered);
	return r;
}

/* Owners known by name only are restored by name, or not at all. */
START_TEST(test_named_owners)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	int r;

	tree_fill_file(f, "tree/file", 0, 10);
	tree_fill_file(f, "tree/of root", 0, 10);
	fake_nfs_put(f, "tree/link", NFS_TYPE_SYMLINK, "target");
	tree_mark(f, "tree/file", 06755, 3);
	tree_mark(f, "tree/link", 0777, 4);
	fake_nfs_set(f, "tree/of root", &(struct nfs_attr){ .mode = 04711 });
	r = transfer_named(f, 4, false, &err);
	ck_assert_msg(r == 0, "pack: %s", err.msg);
	r = transfer_named(f, 4, true, &err);
	ck_assert_msg(r == 0, "unpack: %s", err.msg);
	tree_check_same("named", f, "tree", f, "back");
	fake_nfs_remove(f, "back");
	check_that("version 3", "result", transfer_named(f, 3, true, &err) < 0);
	check_error("version 3", &err, ERROR_FAILED_PRECONDITION, "by name only");
	check_int("version 3", "set-id", fake_nfs_mode(f, "back/file") & 06000, 0);
	fake_nfs_free(f);
}
END_TEST

/* Refuse to archive without owners: extracted files would belong to root. */
START_TEST(test_no_owners)
{
	static const struct fake_habits habits = { .owners = FAKE_OWNERS_NONE };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	tree_fill_file(f, "tree/file", 0, 10);
	fake_nfs_habits(f, &habits);
	check_that("no owners", "result", pack(f, TREE_COMPRESSION_NONE, &err) < 0);
	check_error("no owners", &err, ERROR_FAILED_PRECONDITION, "owner");
	fake_nfs_free(f);
}
END_TEST

START_TEST(test_compressions)
{
	enum tree_compression c;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(compressions); i++) {
		check_int(compressions[i], "parse", tree_compression_parse(compressions[i], &c), 0);
		check_int(compressions[i], "parsed", c, i);
	}
	check_int("GZip", "parse", tree_compression_parse("GZip", &c), 0);
	check_int("xz", "parse", tree_compression_parse("xz", &c), -EINVAL);
	check_str("suffix", "zstd", tree_compression_suffix(TREE_COMPRESSION_ZSTD), ".tar.zst");
}
END_TEST

START_TEST(test_same)
{
	static const struct {
		const char *name;
		struct fake_habits habits;
	} rows[] = {
		{ "plain", { .page = 0 } },
		{ "full", { .page = 100, .entries = FAKE_ENTRIES_FULL } },
		{ "bare", { .page = 4, .entries = FAKE_ENTRIES_BARE, .bare = true } },
		{ "short transfers", { .page = 4, .transfer_max = 777 } },
	};
	struct nfs_handle handle;
	struct nfs_attr attr;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows) * ARRAY_SIZE(compressions); i++) {
		const char *row = rows[i / 3].name;
		struct fake_nfs *f = fake_nfs_new();

		tree_put(f);
		fake_nfs_habits(f, &rows[i / 3].habits);
		check_pack(row, f, (enum tree_compression)(i % 3));
		check_int(row, "mode", fake_nfs_mode(f, ARCHIVE), 0600);
		check_int(row, "mode of the folder", fake_nfs_mode(f, "out"), 0700);
		check_unpack(row, f);
		tree_check_same(row, f, "tree", f, "back");
		/* Holes are not in it. */
		ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
		check_that(row, "the archive is small", attr.size < MIB);
		fake_nfs_free(f);
	}
}
END_TEST

START_TEST(test_sockets)
{
	struct fake_nfs *f = fake_nfs_new();
	cleanup_free char *list = NULL;

	fake_nfs_put(f, "tree/socket", NFS_TYPE_SOCKET, NULL);
	fake_nfs_link(f, "tree/socket", "tree/the same");
	tree_fill_file(f, "tree/behind", 0, 10);
	check_pack("sockets", f, TREE_COMPRESSION_NONE);
	check_unpack("sockets", f);
	list = fake_nfs_list(f, "tree");
	check_str("sockets", "what is there", list, "back/\nback/behind\nout/\n" ARCHIVE "\n");
	fake_nfs_free(f);
}
END_TEST

/* Names that need pax headers, and names that are not UTF-8. */
START_TEST(test_names)
{
	struct fake_nfs *f = fake_nfs_new();
	cleanup_free char *name = check_repeat("n", NFS_NAME_MAX);
	struct buf path = { 0 };
	unsigned int i;

	ck_assert(buf_printf(&path, "tree") == 0);
	for (i = 0; i < 20; i++)
		ck_assert(buf_printf(&path, "/%s", name) == 0);
	fake_nfs_put(f, path.data, NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, "tree/\377\376 not UTF-8", NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, "tree/new\nline", NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, "tree/ . ", NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, "tree/...", NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, "tree/back\\slash", NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, "tree/to \377", NFS_TYPE_SYMLINK, "../\377");
	fake_nfs_link(f, "tree/\377\376 not UTF-8", "tree/\377 again");
	check_pack("names", f, TREE_COMPRESSION_NONE);
	check_unpack("names", f);
	tree_check_same("names", f, "tree", f, "back");
	buf_done(&path);
	fake_nfs_free(f);
}
END_TEST

/* -------- archives of other tools -------- */

struct member {
	const char *path;
	mode_t mode; /* with the type; 0: a hard link */
	const char *text; /* where a link leads; data of a file */
};

static la_ssize_t put_block(struct archive *a, void *data, const void *block, size_t len)
{
	(void)a;
	ck_assert(buf_append(data, block, len) == 0);
	return (la_ssize_t)len;
}

static void add_member(struct archive *a, const struct member *m)
{
	struct archive_entry *e = archive_entry_new();
	size_t len = S_ISREG(m->mode) && m->text != NULL ? strlen(m->text) : 0;

	archive_entry_set_pathname(e, m->path);
	archive_entry_set_mode(e, m->mode != 0 ? m->mode : S_IFREG | 0644);
	archive_entry_set_mtime(e, 1234567890, 0);
	archive_entry_set_size(e, (la_int64_t)len);
	if (m->mode == 0)
		archive_entry_set_hardlink(e, m->text);
	else if (S_ISLNK(m->mode))
		archive_entry_set_symlink(e, m->text);
	ck_assert_msg(archive_write_header(a, e) >= ARCHIVE_WARN, "%s: %s", m->path,
		      archive_error_string(a));
	ck_assert(len == 0 || archive_write_data(a, m->text, len) == (la_ssize_t)len);
	archive_entry_free(e);
}

static void put_archive(struct fake_nfs *f, const struct member *members)
{
	struct archive *a = archive_write_new();
	struct buf b = { 0 };

	ck_assert(archive_write_set_format_pax(a) == ARCHIVE_OK);
	ck_assert(archive_write_open(a, &b, NULL, put_block, NULL) == ARCHIVE_OK);
	for (; members->path != NULL; members++)
		add_member(a, members);
	ck_assert(archive_write_free(a) == ARCHIVE_OK);
	fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
	buf_done(&b);
}

#define DIR (S_IFDIR | 0750)
#define REG (S_IFREG | 0640)
#define LNK (S_IFLNK | 0777)
#define HARD 0

static const struct {
	const char *name;
	struct member members[8];
	enum error_code code;
	const char *want; /* what is in it then */
} foreign[] = {
	{ "empty", { { NULL, 0, NULL } }, ERROR_OK, "" },
	{ "absolute", { { "/etc/passwd", REG, "x" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "up", { { "../x", REG, "x" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "up in the middle", { { "a/../../x", REG, "x" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "up at the end", { { "a/..", DIR, NULL } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "nearly up",
	  { { "..a/b..", REG, "x" }, { ".../x", REG, "x" } },
	  ERROR_OK,
	  "back/.../\nback/.../x\nback/..a/\nback/..a/b..\n" },
	{ "below a link",
	  { { "a", LNK, "../tree" }, { "a/x", REG, "x" } },
	  ERROR_FAILED_PRECONDITION,
	  NULL },
	{ "below a link, directory first",
	  { { "a", LNK, "../tree" }, { "a/", DIR, NULL }, { "a/x", REG, "x" } },
	  ERROR_FAILED_PRECONDITION,
	  NULL },
	{ "below a file",
	  { { "a", REG, "x" }, { "a/x", REG, "x" } },
	  ERROR_FAILED_PRECONDITION,
	  NULL },
	{ "hard link up", { { "a", HARD, "../tree/secret" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "hard link, absolute",
	  { { "a", HARD, "/tree/secret" } },
	  ERROR_FAILED_PRECONDITION,
	  NULL },
	{ "hard link by a link",
	  { { "a", LNK, "../tree" }, { "b", HARD, "a/secret" } },
	  ERROR_FAILED_PRECONDITION,
	  NULL },
	{ "hard link to nothing", { { "a", HARD, "b" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "hard link to itself", { { "a", HARD, "a" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "hard link to a directory",
	  { { "d", DIR, NULL }, { "a", HARD, "d" } },
	  ERROR_FAILED_PRECONDITION,
	  NULL },
	{ "hard link to the root", { { "a", HARD, "." } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "hard link to a link",
	  { { "a", LNK, "../tree/secret" }, { "b", HARD, "a" } },
	  ERROR_OK,
	  "back/a\nback/b\n" },
	{ "hard link",
	  { { "./d/a", REG, "x" }, { "./b", HARD, "./d/a" } },
	  ERROR_OK,
	  "back/b\nback/d/\nback/d/a\n" },
	{ "file twice", { { "a", REG, "x" }, { "a", REG, "y" } }, ERROR_OK, "back/a\n" },
	{ "link to nothing", { { "a", LNK, "" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "link twice", { { "a", LNK, "x" }, { "a", LNK, "y" } }, ERROR_OK, "back/a\n" },
	{ "file for a link",
	  { { "a", LNK, "../tree/secret" }, { "a", REG, "evil!!" } },
	  ERROR_OK,
	  "back/a\n" },
	{ "file for a directory",
	  { { "a", DIR, NULL }, { "a", REG, "x" } },
	  ERROR_FAILED_PRECONDITION,
	  NULL },
	{ "hard link twice",
	  { { "b", REG, "x" }, { "a", HARD, "b" }, { "a", HARD, "b" } },
	  ERROR_OK,
	  "back/a\nback/b\n" },
	{ "hard link for a link",
	  { { "b", REG, "x" }, { "a", LNK, "../tree/secret" }, { "a", HARD, "b" } },
	  ERROR_OK,
	  "back/a\nback/b\n" },
	{ "hard link for a directory",
	  { { "b", REG, "x" }, { "a", DIR, NULL }, { "a", HARD, "b" } },
	  ERROR_FAILED_PRECONDITION,
	  NULL },
	{ "root that is a file", { { ".", REG, "x" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "root that is a link", { { "./", LNK, "../tree" } }, ERROR_FAILED_PRECONDITION, NULL },
	{ "no root", { { "a/b/c", REG, "x" } }, ERROR_OK, "back/a/\nback/a/b/\nback/a/b/c\n" },
	{ "out of order",
	  { { "a/b", REG, "x" }, { "c", REG, "x" }, { "a/d/e", REG, "x" }, { "a", DIR, NULL } },
	  ERROR_OK,
	  "back/a/\nback/a/b\nback/a/d/\nback/a/d/e\nback/c\n" },
	{ "slashes",
	  { { "./", DIR, NULL }, { ".//a/.//b", REG, "x" } },
	  ERROR_OK,
	  "back/a/\nback/a/b\n" },
};

/* No archive can change anything outside of the directory. */
static void check_outside(const char *row, struct fake_nfs *f, const char *before)
{
	cleanup_free char *after = fake_nfs_list(f, "back");
	char data[8] = "";

	check_str(row, "what is outside", after, before);
	fake_nfs_read(f, "tree/secret", 0, data, 6);
	check_str(row, "what is in a file outside", data, "secret");
	check_int(row, "mode of what is outside", fake_nfs_mode(f, "tree"), 0711);
}

static struct fake_nfs *with_secret(void)
{
	struct fake_nfs *f = fake_nfs_new();

	fake_nfs_write(f, "tree/secret", 0, "secret", 6);
	fake_nfs_set(f, "tree", &(struct nfs_attr){ .mode = 0711 });
	return f;
}

START_TEST(test_foreign)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(foreign); i++) {
		const char *row = foreign[i].name;
		struct fake_nfs *f = with_secret();
		cleanup_free char *before = NULL, *want = NULL, *got = NULL;
		struct error err = { .code = ERROR_OK };

		put_archive(f, foreign[i].members);
		before = fake_nfs_list(f, NULL);
		(void)unpack(f, &err);
		check_error(row, &err, foreign[i].code, NULL);
		check_outside(row, f, before);
		if (foreign[i].want != NULL) {
			struct buf b = { 0 };

			got = fake_nfs_list(f, NULL);
			ck_assert(buf_printf(&b, "back/\n%s%s", foreign[i].want, before) == 0);
			want = buf_steal(&b);
			check_str(row, "what is in it", got, want);
		}
		fake_nfs_free(f);
	}
}
END_TEST

/* Numbers beyond what NFS has for them: cut off, the user 4294967296 would be root. */
START_TEST(test_numbers)
{
	static const struct {
		const char *name;
		mode_t mode;
		int64_t uid, gid, mtime;
		uint64_t major, minor;
		const char *words; /* of the message; NULL: it is restored */
	} rows[] = {
		{ "largest", REG, 4294967293, 4294967293, 4294967295, 0, 0, NULL },
		{ "uid 2^32", REG, INT64_C(1) << 32, 7, 1, 0, 0, "'some/entry' has a user id" },
		{ "uid 2^32 - 1", REG, UINT32_MAX, 7, 1, 0, 0, "'some/entry' has a user id" },
		/* libarchive 3.8 cannot read it, and older ones can. */
		{ "uid 2^63 - 1", REG, INT64_MAX, 7, 1, 0, 0, "'some/entry' has a " },
		{ "gid 2^32", REG, 7, INT64_C(1) << 32, 1, 0, 0, "'some/entry' has a group id" },
		{ "gid 2^32 - 1", LNK, 7, UINT32_MAX, 1, 0, 0, "'some/entry' has a group id" },
		{ "mtime", REG, 7, 7, INT64_MAX, 0, 0, "'some/entry' has a " },
		{ "device", S_IFCHR | 0600, 7, 7, 1, UINT32_MAX, UINT32_MAX, NULL },
		{ "major", S_IFCHR | 0600, 7, 7, 1, UINT64_C(1) << 32, 5, "has a device number" },
		{ "minor", S_IFBLK | 0600, 7, 7, 1, 5, UINT64_C(1) << 32, "has a device number" },
	};
	size_t i;

	ck_assert_int_eq(tree_archive_prepare(NULL), 0); /* for archive_times_set() */
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct archive_entry *e = archive_entry_new();
		struct archive *a = archive_write_new();
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct buf b = { 0 };

		archive_entry_set_pathname(e, "some/entry");
		archive_entry_set_mode(e, rows[i].mode);
		archive_entry_set_uid(e, rows[i].uid);
		archive_entry_set_gid(e, rows[i].gid);
		if (!archive_times_set(e, rows[i].mtime, 0, rows[i].mtime, 0)) {
			check_that(rows[i].name, "that the time is too late for a 32-bit time_t",
				   sizeof(long) == 4 && rows[i].mtime > INT32_MAX);
			archive_entry_free(e);
			(void)archive_write_free(a);
			fake_nfs_free(f);
			continue;
		}
		archive_entry_set_rdevmajor(e, rows[i].major);
		archive_entry_set_rdevminor(e, rows[i].minor);
		archive_entry_set_size(e, 0);
		if (S_ISLNK(rows[i].mode))
			archive_entry_set_symlink(e, "x");
		ck_assert(archive_write_set_format_pax(a) == ARCHIVE_OK);
		ck_assert(archive_write_open(a, &b, NULL, put_block, NULL) == ARCHIVE_OK);
		ck_assert(archive_write_header(a, e) >= ARCHIVE_WARN);
		ck_assert(archive_write_free(a) == ARCHIVE_OK);
		fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
		(void)unpack(f, &err);
		check_error(rows[i].name, &err,
			    rows[i].words != NULL ? ERROR_FAILED_PRECONDITION : ERROR_OK,
			    rows[i].words);
		if (rows[i].words == NULL)
			check_int(rows[i].name, "uid", fake_nfs_owner(f, "back/some/entry"),
				  rows[i].uid);
		buf_done(&b);
		archive_entry_free(e);
		fake_nfs_free(f);
	}
}
END_TEST

/* A libarchive whose time_t has 32 bits, as on some 32-bit systems, ends in January 2038. */
START_TEST(test_late_times)
{
	static const struct {
		const char *name;
		int64_t mtime;
	} rows[] = {
		{ "the last second of 32 bits", INT32_MAX },
		{ "the next one", INT64_C(1) << 31 },
		{ "the last one that NFSv3 has", UINT32_MAX },
	};
	struct archive_entry *e;
	size_t i;

	ck_assert_int_eq(tree_archive_prepare(NULL), 0); /* for archive_times_set() */
	e = archive_entry_new();
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		bool is_kept = archive_times_set(e, rows[i].mtime, 0, 0, 0);
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct nfs_handle handle;
		struct nfs_attr attr;

		check_that(rows[i].name, "that libarchive keeps the time",
			   is_kept || (sizeof(long) == 4 && rows[i].mtime > INT32_MAX));
		tree_fill_file(f, "tree/file", 0, 10);
		fake_nfs_set(f, "tree/file",
			     &(struct nfs_attr){ .mode = 0644, .mtime = { rows[i].mtime, 0 } });
		(void)pack(f, TREE_COMPRESSION_GZIP, &err);
		check_error(rows[i].name, &err, is_kept ? ERROR_OK : ERROR_FAILED_PRECONDITION,
			    is_kept ? NULL : "32-bit time_t");
		if (is_kept) {
			check_unpack(rows[i].name, f);
			ck_assert(fake_nfs_get(f, "back/file", &handle, &attr));
			check_int(rows[i].name, "time", attr.mtime.sec, rows[i].mtime);
		}
		fake_nfs_free(f);
	}
	archive_entry_free(e);
}
END_TEST

/* The later entry stays, even if the earlier one is still being written. */
START_TEST(test_file_again)
{
	cleanup_free char *big = check_repeat("first", 300 * KIB);
	const struct member members[] = {
		{ "a", REG, big },
		{ "a", S_IFREG | 0600, "second" },
		{ NULL, 0, NULL },
	};
	/* The server may put off what is done for the first of them. */
	static const enum nfs_op_type later[] = { NFS_OPS, NFS_OP_CREATE, NFS_OP_WRITE,
						  NFS_OP_SETATTR };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(later); i++) {
		const struct fake_failure failure = { .nth = later[i] != NFS_OPS,
						      .error = -EAGAIN,
						      .types = 1U << later[i] };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_handle handle;
		struct nfs_attr attr;
		char row[32], data[8] = "";

		(void)snprintf(row, sizeof(row), "again, %d later", (int)later[i]);
		put_archive(f, members);
		fake_nfs_fail(f, &failure);
		check_unpack(row, f);
		ck_assert(fake_nfs_get(f, "back/a", &handle, &attr));
		check_int(row, "size", attr.size, 6);
		check_int(row, "mode", attr.mode, 0600);
		fake_nfs_read(f, "back/a", 0, data, 6);
		check_str(row, "data", data, "second");
		fake_nfs_free(f);
	}
}
END_TEST

/* A directory gets the attributes that came last, not the time of the extraction. */
START_TEST(test_directory_again)
{
	static const struct {
		const char *name;
		struct member members[8];
	} rows[] = {
		{ "once", { { ".", DIR, NULL }, { "a", DIR, NULL }, { "a/b", REG, "x" } } },
		{ "at the end", { { "a/b", REG, "x" }, { "a", DIR, NULL } } },
		{ "twice",
		  { { "a", S_IFDIR | 0700, NULL }, { "a/b", REG, "x" }, { "a", DIR, NULL } } },
		{ "twice in a row",
		  { { "a", S_IFDIR | 0700, NULL }, { "a", DIR, NULL }, { "a/b", REG, "x" } } },
		{ "more in it later",
		  { { "a", DIR, NULL }, { "b", REG, "x" }, { "a/b", REG, "x" } } },
		{ "and later",
		  { { "a", DIR, NULL },
		    { "b", REG, "x" },
		    { "a/c/d", REG, "x" },
		    { "a/b", REG, "x" } } },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_handle handle;
		struct nfs_attr attr;

		put_archive(f, rows[i].members);
		check_unpack(rows[i].name, f);
		check_int(rows[i].name, "type", fake_nfs_type(f, "back/a/b"), NFS_TYPE_FILE);
		check_int(rows[i].name, "mode", fake_nfs_mode(f, "back/a"), 0750);
		ck_assert(fake_nfs_get(f, "back/a", &handle, &attr));
		check_int(rows[i].name, "time", attr.mtime.sec, 1234567890);
		fake_nfs_free(f);
	}
}
END_TEST

/* A directory comes again while its first part is unfinished. */
START_TEST(test_directory_again_soon)
{
	cleanup_free char *big = check_repeat("data", 300 * KIB);
	const struct member members[] = {
		{ "a", S_IFDIR | 0700, NULL },
		{ "a/1", REG, big },
		{ "a/2", REG, big },
		{ "a", DIR, NULL },
		{ NULL, 0, NULL },
	};
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_handle handle;
	struct nfs_attr attr;

	put_archive(f, members);
	check_unpack("soon", f);
	check_int("soon", "mode", fake_nfs_mode(f, "back/a"), 0750);
	ck_assert(fake_nfs_get(f, "back/a", &handle, &attr));
	check_int("soon", "time", attr.mtime.sec, 1234567890);
	fake_nfs_free(f);
}
END_TEST

START_TEST(test_depth)
{
	static const struct {
		size_t directories;
		enum error_code code;
	} rows[] = {
		{ 4000, ERROR_OK },
		{ 4096, ERROR_FAILED_PRECONDITION },
		{ 100000, ERROR_FAILED_PRECONDITION },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *path = check_repeat("d/", rows[i].directories);
		const struct member members[] = { { path, DIR, NULL }, { NULL, 0, NULL } };
		struct fake_nfs *f = with_secret();
		cleanup_free char *before = NULL;
		struct error err = { .code = ERROR_OK };

		put_archive(f, members);
		before = fake_nfs_list(f, NULL);
		(void)unpack(f, &err);
		check_error("depth", &err, rows[i].code, NULL);
		check_outside("depth", f, before);
		fake_nfs_free(f);
	}
}
END_TEST

/* A few KiB of gzip can become a megabyte of one name, and the builder keeps hundreds. */
START_TEST(test_lengths)
{
	cleanup_free char *name = check_repeat("n", NFS_NAME_MAX + 1);
	cleanup_free char *path = check_repeat(name + 128, 129); /* of 128 bytes; cut below */
	cleanup_free char *text = check_repeat("t", NFS_LINK_MAX + 1);
	const struct {
		const char *row;
		struct member members[3];
		const char *words; /* of the message; NULL: it is restored */
	} rows[] = {
		{ "name", { { name + 1, REG, "x" } }, NULL },
		{ "long name", { { name, REG, "x" } }, "a name of more than 255 bytes" },
		{ "path", { { path + 1, REG, "x" } }, NULL },
		{ "long path", { { path, REG, "x" } }, "a path of more than 16384 bytes" },
		{ "long path of a directory",
		  { { path, DIR, NULL } },
		  "a path of more than 16384 bytes" },
		{ "target", { { "a", LNK, text + 1 } }, NULL },
		{ "long target", { { "a", LNK, text } }, "a target of more than 4095 bytes" },
		{ "hard link", { { path + 1, REG, "x" }, { "a", HARD, path + 1 } }, NULL },
		{ "hard link to a long name",
		  { { "a", HARD, name } },
		  "a name of more than 255 bytes" },
		{ "hard link to a long path",
		  { { "a", HARD, path } },
		  "a path of more than 16384 bytes" },
	};
	size_t i;

	/* 16,385 bytes, with a slash in each 128, and none at the ends. */
	path[TREE_PATH_MAX + 1] = '\0';
	for (i = 64; i < TREE_PATH_MAX; i += 128)
		path[i] = '/';
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		put_archive(f, rows[i].members);
		(void)unpack(f, &err);
		check_error(rows[i].row, &err,
			    rows[i].words != NULL ? ERROR_FAILED_PRECONDITION : ERROR_OK,
			    rows[i].words);
		check_that(rows[i].row, "the message is short", strlen(err.msg) < 300);
		fake_nfs_free(f);
	}
}
END_TEST

/* Two names that the server takes for the same must not become one, with or without an entry. */
START_TEST(test_folded)
{
	static const struct {
		const char *name;
		struct member members[8];
		const char *want; /* what is in it; NULL: an error */
	} rows[] = {
		{ "implied", { { "a/x", REG, "1" }, { "A/x", REG, "2" } }, NULL },
		{ "deeper", { { "d/a/x", REG, "1" }, { "d/A/y", REG, "2" } }, NULL },
		{ "implied first", { { "a/x", REG, "1" }, { "A", DIR, NULL } }, NULL },
		{ "implied last", { { "a", DIR, NULL }, { "A/x", REG, "2" } }, NULL },
		{ "a file first", { { "a", REG, "1" }, { "A/x", REG, "2" } }, NULL },
		{ "a file last", { { "a/x", REG, "1" }, { "A", REG, "2" } }, NULL },
		{ "returns",
		  { { "a/x", REG, "1" },
		    { "b", DIR, NULL },
		    { "a/y", REG, "1" },
		    { "b/x", REG, "1" },
		    { "a", DIR, NULL },
		    { "b", DIR, NULL } },
		  "back/a/\nback/a/x\nback/a/y\nback/b/\nback/b/x\n" },
	};
	static const struct fake_habits folds = { .page = 100, .folds = true };
	static const struct fake_failure listings = { .types = 1U << NFS_OP_READDIR };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *got = NULL;

		fake_nfs_habits(f, &folds);
		put_archive(f, rows[i].members);
		fake_nfs_fail(f, &listings);
		(void)unpack(f, &err);
		check_error(rows[i].name, &err,
			    rows[i].want == NULL ? ERROR_FAILED_PRECONDITION : ERROR_OK,
			    rows[i].want == NULL ? "the name is taken" : NULL);
		if (rows[i].want != NULL) {
			got = fake_nfs_list(f, "out");
			check_that(rows[i].name, "what is in it",
				   strncmp(got, "back/\n", 6) == 0 &&
					   strcmp(got + 6, rows[i].want) == 0);
			check_int(rows[i].name, "listings", fake_nfs_operations(f), 0);
		}
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- damage -------- */

/* If an archive is truncated in a file of zeros, these look like its end. */
static void put_small(struct fake_nfs *f)
{
	static const char zeros[1024];

	fake_nfs_write(f, "tree/0 zeros", 0, zeros, sizeof(zeros));
	tree_fill_file(f, "tree/a", 0, 700);
	fake_nfs_write(f, "tree/b zeros", 0, zeros, 512);
	fake_nfs_put(f, "tree/c", NFS_TYPE_SYMLINK, "text");
	fake_nfs_link(f, "tree/a", "tree/d/e");
	tree_fill_file(f, "tree/h", 40 * KIB, 100);
	fake_nfs_truncate(f, "tree/h", 100 * KIB);
	fake_nfs_write(f, "tree/z zeros", 0, zeros, sizeof(zeros));
	fake_nfs_write(f, "tree/zz", 0, "", 0);
	tree_mark(f, "tree", 0755, 1);
}

/* Unpack the damaged archive: it must be right or refused. */
static bool check_damaged(const char *row, struct fake_nfs *f, bool exact)
{
	struct error err = { .code = ERROR_OK }, read_err;
	int r = unpack(f, &err);
	int read = check_only(f, &read_err);

	/* Entries that are damaged may be refused only when they are extracted. */
	check_that(row, "it is as whole for who only reads it",
		   exact ? (r == 0) == (read == 0) && err.code == read_err.code
			 : r < 0 || read == 0);
	if (r == 0 && exact)
		tree_check_same(row, f, "tree", f, "back");
	if (r < 0)
		check_that(row, "the error is about the archive",
			   err.code == ERROR_DATA_LOSS || err.code == ERROR_FAILED_PRECONDITION ||
				   err.code == ERROR_INVALID_ARGUMENT);
	fake_nfs_remove(f, "back");
	return r == 0;
}

START_TEST(test_cut)
{
	enum tree_compression compression = (enum tree_compression)_i;
	size_t step = compression == TREE_COMPRESSION_NONE ? 512 : 1, cut, good = 0;
	struct fake_nfs *f = fake_nfs_new();
	cleanup_free char *data = NULL;
	struct nfs_handle handle;
	struct nfs_attr attr;

	put_small(f);
	check_pack("cut", f, compression);
	ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
	data = malloc((size_t)attr.size);
	ck_assert(data != NULL);
	fake_nfs_read(f, ARCHIVE, 0, data, (size_t)attr.size);
	for (cut = 0; cut < attr.size; cut += step) {
		char row[64];

		(void)snprintf(row, sizeof(row), "%s, cut after %zu of %zu bytes",
			       compressions[compression], cut, (size_t)attr.size);
		fake_nfs_truncate(f, ARCHIVE, cut);
		good += check_damaged(row, f, true);
		fake_nfs_write(f, ARCHIVE, 0, data, (size_t)attr.size);
	}
	check_that("cut", "few are taken for whole", good < 20);
	check_that("cut", "the whole one is good", check_damaged("whole", f, true));
	fake_nfs_free(f);
}
END_TEST

static void write_compressed(struct fake_nfs *f, enum tree_compression compression,
			     const char *data, size_t len)
{
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();
	struct buf b = { 0 };

	ck_assert(archive_write_set_format_raw(a) == ARCHIVE_OK);
	if (compression == TREE_COMPRESSION_GZIP)
		ck_assert(archive_write_add_filter_gzip(a) == ARCHIVE_OK);
	if (compression == TREE_COMPRESSION_ZSTD)
		ck_assert(archive_write_add_filter_zstd(a) == ARCHIVE_OK);
	ck_assert(archive_write_set_bytes_in_last_block(a, 1) == ARCHIVE_OK);
	ck_assert(archive_write_open(a, &b, NULL, put_block, NULL) == ARCHIVE_OK);
	archive_entry_set_mode(e, REG);
	ck_assert(archive_write_header(a, e) == ARCHIVE_OK);
	ck_assert(archive_write_data(a, data, len) == (la_ssize_t)len);
	ck_assert(archive_write_free(a) == ARCHIVE_OK);
	archive_entry_free(e);
	fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
	fake_nfs_truncate(f, ARCHIVE, b.len);
	buf_done(&b);
}

/* A truncated tar in intact gzip, as when tar is killed in a pipe to gzip. */
START_TEST(test_cut_before_compression)
{
	struct fake_nfs *f = fake_nfs_new();
	cleanup_free char *data = NULL;
	struct nfs_handle handle;
	struct nfs_attr attr;
	size_t cut, good = 0;

	put_small(f);
	check_pack("cut", f, TREE_COMPRESSION_NONE);
	ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
	data = malloc((size_t)attr.size);
	ck_assert(data != NULL);
	fake_nfs_read(f, ARCHIVE, 0, data, (size_t)attr.size);
	for (cut = 512; cut < attr.size; cut += 512) {
		char row[64];

		(void)snprintf(row, sizeof(row), "cut after %zu of %zu bytes", cut,
			       (size_t)attr.size);
		write_compressed(f, TREE_COMPRESSION_GZIP, data, cut);
		good += check_damaged(row, f, true);
	}
	check_that("cut", "few are taken for whole", good < 20);
	fake_nfs_free(f);
}
END_TEST

/* A flipped bit may give another valid archive, but must do no harm. */
START_TEST(test_flipped)
{
	enum tree_compression compression = (enum tree_compression)_i;
	struct fake_nfs *f = with_secret();
	cleanup_free char *before = NULL;
	struct nfs_handle handle;
	struct nfs_attr attr;
	uint64_t at;

	put_small(f);
	tree_mark(f, "tree", 0711, 0);
	check_pack("flipped", f, compression);
	before = fake_nfs_list(f, NULL);
	ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
	for (at = 0; at < attr.size; at += compression == TREE_COMPRESSION_NONE ? 5 : 1) {
		char byte, flipped;

		fake_nfs_read(f, ARCHIVE, at, &byte, 1);
		flipped = (char)(byte ^ 1 << at % 8);
		fake_nfs_write(f, ARCHIVE, at, &flipped, 1);
		(void)check_damaged("flipped", f, false);
		check_outside("flipped", f, before);
		fake_nfs_write(f, ARCHIVE, at, &byte, 1);
	}
	fake_nfs_free(f);
}
END_TEST

/* -------- sums -------- */

struct image {
	char *data;
	size_t len;
	enum tree_compression compression;
};

static struct image read_image(struct fake_nfs *f, enum tree_compression compression)
{
	struct nfs_handle handle;
	struct image image;
	struct nfs_attr attr;

	ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
	image = (struct image){ malloc((size_t)attr.size), (size_t)attr.size, compression };
	ck_assert(image.data != NULL);
	fake_nfs_read(f, ARCHIVE, 0, image.data, image.len);
	return image;
}

static void put_image(struct fake_nfs *f, const char *data, size_t len)
{
	fake_nfs_truncate(f, ARCHIVE, 0);
	fake_nfs_write(f, ARCHIVE, 0, data, len);
}

/* Text and noise, so that each compression has blocks that it packs and blocks that it stores. */
static void put_contents(struct fake_nfs *f)
{
	cleanup_free char *text = check_repeat("a line of text\n", 2000);
	char noise[100 * 1024];
	uint32_t state = 1;
	size_t i;

	for (i = 0; i < sizeof(noise); i++) {
		state = state * 1103515245 + 12345;
		noise[i] = (char)(state >> 16);
	}
	for (i = 0; i < 3; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "tree/%zu noise", i);
		fake_nfs_write(f, path, 0, noise, sizeof(noise));
		(void)snprintf(path, sizeof(path), "tree/%zu text", i);
		fake_nfs_write(f, path, 0, text, strlen(text));
	}
	tree_mark(f, "tree", 0755, 1);
}

static void flip_bit(struct fake_nfs *f, const struct image *good, size_t at)
{
	char byte = (char)(good->data[at] ^ 0x10);

	fake_nfs_write(f, ARCHIVE, at, &byte, 1);
}

static void flip_at_start(struct fake_nfs *f, const struct image *good)
{
	flip_bit(f, good, 5);
}

static void flip_in_the_middle(struct fake_nfs *f, const struct image *good)
{
	flip_bit(f, good, good->len / 2);
}

static void flip_at_end(struct fake_nfs *f, const struct image *good)
{
	flip_bit(f, good, good->len - 1);
}

static void truncate_by_a_byte(struct fake_nfs *f, const struct image *good)
{
	fake_nfs_truncate(f, ARCHIVE, good->len - 1);
}

static void truncate_by_a_block(struct fake_nfs *f, const struct image *good)
{
	fake_nfs_truncate(f, ARCHIVE, good->len - 512);
}

static void truncate_to_half(struct fake_nfs *f, const struct image *good)
{
	fake_nfs_truncate(f, ARCHIVE, good->len / 2);
}

static void truncate_to_nothing(struct fake_nfs *f, const struct image *good)
{
	(void)good;
	fake_nfs_truncate(f, ARCHIVE, 0);
}

/* Lost blocks read as zeros. Two of 512 bytes in place of a header are the end of a tar. */
static void lose_blocks(struct fake_nfs *f, const struct image *good)
{
	static const char zeros[2048];
	size_t at;

	/* In a plain archive, take the header of a file in the middle. */
	for (at = good->len / 2 / 512 * 512; at > 0; at -= 512)
		if (memcmp(good->data + at + 257, "ustar", 5) == 0)
			break;
	fake_nfs_write(f, ARCHIVE, at > 0 ? at : good->len / 2, zeros, sizeof(zeros));
}

static void append_zeros(struct fake_nfs *f, const struct image *good)
{
	static const char zeros[4096];

	fake_nfs_write(f, ARCHIVE, good->len, zeros, sizeof(zeros));
}

static void append_garbage(struct fake_nfs *f, const struct image *good)
{
	fake_nfs_write(f, ARCHIVE, good->len, "garbage", 7);
}

static void append_itself(struct fake_nfs *f, const struct image *good)
{
	fake_nfs_write(f, ARCHIVE, good->len, good->data, good->len);
}

/* The archive of a volume with other data, whole. */
static void replace_archive(struct fake_nfs *f, const struct image *good)
{
	fake_nfs_write(f, "tree/1 text", 0, "A", 1);
	fake_nfs_remove(f, "out");
	check_pack("other", f, good->compression);
}

/* Whichever damage was done to an archive with a sum, it is noticed. */
START_TEST(test_sums)
{
	static const struct {
		const char *name;
		void (*damage)(struct fake_nfs *f, const struct image *good);
		bool is_good_without_sum[3]; /* as the compressions */
		bool is_noticed_without_sum[3];
	} rows[] = {
		{ "flipped at the start", flip_at_start, { false }, { false } },
		{ "flipped in the middle", flip_in_the_middle, { false }, { false, true } },
		{ "flipped at the end", flip_at_end, { false }, { true, true } },
		{ "cut by a byte", truncate_by_a_byte, { true }, { false, true } },
		{ "cut by a block", truncate_by_a_block, { true }, { false, true } },
		{ "cut to half", truncate_to_half, { false }, { true, true, true } },
		{ "cut to nothing", truncate_to_nothing, { false }, { true, true, true } },
		{ "lost blocks", lose_blocks, { false }, { true, true } },
		{ "zeros appended", append_zeros, { true, true }, { false } },
		{ "garbage appended", append_garbage, { false }, { true, true } },
		{ "itself appended", append_itself, { false }, { true, true } },
		{ "replaced", replace_archive, { false }, { false } },
	};
	enum tree_compression compression = (enum tree_compression)_i;
	struct fake_nfs *f = fake_nfs_new();
	struct tree_archive_sum sum = { .bytes = 0 };
	struct error err;
	struct image good;
	size_t i;

	put_contents(f);
	error_clear(&err);
	ck_assert_int_eq(pack_and_sum(f, compression, &sum, &err), 0);
	good = read_image(f, compression);
	check_int(compressions[_i], "length", sum.bytes, good.len);
	check_int(compressions[_i], "good", unpack_with_sum(f, &sum, &err), 0);
	tree_check_same(compressions[_i], f, "tree", f, "back");
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		char row[64];
		int r;

		(void)snprintf(row, sizeof(row), "%s, %s", compressions[_i], rows[i].name);
		rows[i].damage(f, &good);
		fake_nfs_remove(f, "back");
		r = unpack_with_sum(f, &sum, &err);
		check_that(row, "refused", r < 0);
		check_error(row, &err, ERROR_DATA_LOSS, "damaged");
		fake_nfs_remove(f, "back");
		r = unpack(f, &err);
		if (rows[i].is_good_without_sum[_i]) {
			ck_assert_msg(r == 0, "%s, without sum: %s", row, err.msg);
			tree_check_same(row, f, "tree", f, "back");
		}
		if (rows[i].is_noticed_without_sum[_i])
			check_error(row, &err, ERROR_DATA_LOSS, "damaged");
		fake_nfs_remove(f, "back");
		put_image(f, good.data, good.len);
	}
	check_int(compressions[_i], "good again", unpack_with_sum(f, &sum, &err), 0);
	free(good.data);
	fake_nfs_free(f);
}
END_TEST

/* Padding behind a tar is read to its end, but not for ever. */
START_TEST(test_padding)
{
	static const struct {
		uint64_t bytes;
		const char *message; /* NULL: the archive is good */
	} rows[] = {
		{ 32 * MIB, NULL },
		{ UINT64_C(1) << 50, "too many zeros" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct image good;

		put_small(f);
		check_pack("padding", f, TREE_COMPRESSION_NONE);
		good = read_image(f, TREE_COMPRESSION_NONE);
		fake_nfs_truncate(f, ARCHIVE, good.len + rows[i].bytes);
		check_int("padding", "result", unpack(f, &err) < 0, rows[i].message != NULL);
		check_error("padding", &err, rows[i].message ? ERROR_DATA_LOSS : ERROR_OK,
			    rows[i].message);
		free(good.data);
		fake_nfs_free(f);
	}
}
END_TEST

/* A server may return less than was asked for, also of the end of a tar. */
START_TEST(test_short_reads)
{
	struct fake_nfs *f = fake_nfs_new();

	put_small(f);
	check_pack("short reads", f, TREE_COMPRESSION_NONE);
	fake_nfs_habits(f, &(struct fake_habits){ .transfer_max = 100 });
	check_unpack("short reads", f);
	tree_check_same("short reads", f, "tree", f, "back");
	fake_nfs_free(f);
}
END_TEST

/* Files of 80 MiB without holes. */
static void put_much_data(struct archive *a, struct archive_entry *e)
{
	static const char block[MIB] = { [0 ... MIB - 1] = 'x' };
	unsigned int i, k;

	for (i = 0; i < 16; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "%u", i);
		archive_entry_clear(e);
		archive_entry_set_pathname(e, name);
		archive_entry_set_mode(e, REG);
		archive_entry_set_size(e, 80 * MIB);
		ck_assert(archive_write_header(a, e) == ARCHIVE_OK);
		for (k = 0; k < 80; k++)
			ck_assert(archive_write_data(a, block, MIB) == MIB);
	}
}

/* All of the root, which makes nothing. */
static void put_many_entries(struct archive *a, struct archive_entry *e)
{
	unsigned int written = 0, i;

	archive_entry_set_pathname(e, ".");
	archive_entry_set_mode(e, S_IFDIR | 0755);
	for (i = 0; i < 1100000; i++)
		written += archive_write_header(a, e) == ARCHIVE_OK;
	check_int("entries", "written", written, i); /* Check is slow where each is an assertion */
}

/*
 * A bomb: a small archive with more than a gigabyte of data, not holes, or with too many entries.
 * With the sum that tree_pack() returned, it is no bomb, but what was packed.
 */
START_TEST(test_bomb)
{
	static const struct {
		const char *name, *words;
		void (*put)(struct archive *a, struct archive_entry *e);
		bool has_sum; /* in each run, also in one that is not long */
	} rows[] = {
		{ "data", "more data than its size allows", put_much_data, false },
		{ "entries", "more entries than its size allows", put_many_entries, true },
	};
	size_t i;

	if (fake_nfs_whole_max > 0)
		return; /* the files are too large to be made in one call */
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct archive *a = archive_write_new();
		struct archive_entry *e = archive_entry_new();
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct tree_archive_sum sum;
		struct buf b = { 0 };

		ck_assert(archive_write_set_format_pax(a) == ARCHIVE_OK);
		ck_assert(archive_write_add_filter_zstd(a) == ARCHIVE_OK);
		ck_assert(archive_write_set_bytes_in_last_block(a, 1) == ARCHIVE_OK);
		ck_assert(archive_write_open(a, &b, NULL, put_block, NULL) == ARCHIVE_OK);
		rows[i].put(a, e);
		ck_assert(archive_write_free(a) == ARCHIVE_OK);
		archive_entry_free(e);
		fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
		sum.bytes = b.len;
		sum.crc32 = (uint32_t)crc32_z(0, (const Bytef *)b.data, b.len);
		buf_done(&b);
		(void)unpack(f, &err);
		check_error(rows[i].name, &err, ERROR_FAILED_PRECONDITION, rows[i].words);
		if (rows[i].has_sum || check_is_long()) {
			fake_nfs_remove(f, "back");
			(void)unpack_with_sum(f, &sum, &err);
			check_error(rows[i].name, &err, ERROR_OK, NULL);
		}
		fake_nfs_free(f);
	}
}
END_TEST

/* Append the header of a file. */
static void put_tar_header(struct buf *b, char type, const char *name, size_t size)
{
	char header[512] = "";
	unsigned int sum = 0;
	size_t i;

	(void)snprintf(header, 100, "%s", name);
	(void)snprintf(header + 100, 8, "0000644");
	(void)snprintf(header + 108, 8, "0000000");
	(void)snprintf(header + 116, 8, "0000000");
	(void)snprintf(header + 124, 12, "%011o", (unsigned int)size);
	(void)snprintf(header + 136, 12, "%011o", 0U);
	memset(header + 148, ' ', 8);
	header[156] = type;
	memcpy(header + 257, "ustar\00000", 8);
	for (i = 0; i < sizeof(header); i++)
		sum += (unsigned char)header[i];
	(void)snprintf(header + 148, 8, "%06o", sum);
	ck_assert(buf_append(b, header, sizeof(header)) == 0);
}

static void put_tar_padding(struct buf *b, size_t len)
{
	static const char zeros[1024];

	ck_assert(buf_append(b, zeros, len) == 0);
}

/* Append a file of a map of holes and len bytes of data: GNU's sparse format 1.0. */
static void put_tar_sparse(struct buf *b, unsigned int size, const char *map, size_t len)
{
	const size_t padding = 511 - (strlen(map) - 1) % 512;
	cleanup_free char *data = check_repeat("x", len);
	char number[16], records[512];

	(void)snprintf(number, sizeof(number), "%u", size);
	(void)snprintf(records, sizeof(records),
		       "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n21 GNU.sparse.name=f\n"
		       "%zu GNU.sparse.realsize=%s\n",
		       24 + strlen(number), number);
	put_tar_header(b, 'x', "PaxHeaders/f", strlen(records));
	ck_assert(buf_puts(b, records) == 0);
	put_tar_padding(b, 512 - strlen(records));
	put_tar_header(b, '0', "GNUSparseFile/f", strlen(map) + padding + len);
	ck_assert(buf_puts(b, map) == 0);
	put_tar_padding(b, padding);
	ck_assert(buf_puts(b, data) == 0);
	put_tar_padding(b, (512 - len % 512) % 512);
}

/* Append an empty file with a map of n ranges, each as in range. */
static void put_tar_map(struct buf *b, unsigned int n, const char *range)
{
	cleanup_free char *ranges = check_repeat(range, n);
	cleanup_buf struct buf map = { .data = NULL };

	ck_assert(buf_printf(&map, "%06u\n%s", n, ranges) == 0);
	put_tar_sparse(b, 0, map.data, 0);
}

/* Where libarchive's time_t has 32 bits, it cuts later times, and the work counts their entries. */
START_TEST(test_cut_times)
{
	static const struct {
		const char *name, *record;
		int64_t mtime;
		bool counts; /* with 32 bits */
	} rows[] = {
		{ "2009", "20 mtime=1234567890\n", 1234567890, false },
		{ "2039", "20 mtime=2177452800\n", 2177452800, true },
		{ "1969, which could be 2106", "12 mtime=-1\n", -1, true },
	};
	struct archive_entry *e;
	bool has_32_bits;
	size_t i;

	ck_assert_int_eq(tree_archive_prepare(NULL), 0); /* for archive_times_set() */
	e = archive_entry_new();
	has_32_bits = !archive_times_set(e, INT64_C(1) << 31, 0, 0, 0);
	archive_entry_free(e);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct tree_progress progress;
		struct nfs_handle handle;
		struct nfs_attr attr;
		struct buf b = { 0 };

		put_tar_header(&b, 'x', "PaxHeaders/f", strlen(rows[i].record));
		ck_assert(buf_puts(&b, rows[i].record) == 0);
		put_tar_padding(&b, 512 - strlen(rows[i].record));
		put_tar_header(&b, '0', "f", 0);
		put_tar_padding(&b, 1024);
		fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
		(void)unpack_and_count(f, NULL, &progress, &err);
		check_error(rows[i].name, &err, ERROR_OK, NULL);
		ck_assert(fake_nfs_get(f, "back/f", &handle, &attr));
		check_int(rows[i].name, "time", attr.mtime.sec,
			  has_32_bits ? (int32_t)rows[i].mtime : rows[i].mtime);
		check_int(rows[i].name, "entries that are cut", progress.times_cut,
			  has_32_bits && rows[i].counts);
		buf_done(&b);
		fake_nfs_free(f);
	}
}
END_TEST

/* A file that would be shorter or longer than its header says is no copy of any file. */
START_TEST(test_map_contradicts)
{
	static const struct {
		const char *name;
		unsigned int size;
		const char *map;
		size_t data;
		bool is_right;
	} rows[] = {
		{ "all data", 4096, "1\n0\n4096\n", 4096, true },
		{ "hole at the end", 4096, "1\n0\n600\n", 600, true },
		{ "hole at the beginning", 4096, "1\n4000\n96\n", 96, true },
		{ "one hole", 4096, "1\n4096\n0\n", 0, true },
		{ "large hole", 400000, "1\n400000\n0\n", 0, true },
		{ "nothing, not even a hole", 4096, "0\n", 0, false },
		{ "less data than in its map", 5000, "1\n0\n5000\n", 600, false },
		{ "more data than its size", 4096, "1\n0\n5000\n", 5000, false },
		{ "more data than its size, large", 400000, "1\n399999\n600\n", 600, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct nfs_handle handle;
		struct nfs_attr attr;
		struct buf b = { 0 };

		put_tar_sparse(&b, rows[i].size, rows[i].map, rows[i].data);
		put_tar_padding(&b, 1024);
		fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
		(void)unpack(f, &err);
		check_error(rows[i].name, &err, rows[i].is_right ? ERROR_OK : ERROR_DATA_LOSS,
			    rows[i].is_right ? NULL : "do not agree");
		if (rows[i].is_right) {
			ck_assert(fake_nfs_get(f, "back/f", &handle, &attr));
			check_int(rows[i].name, "size", attr.size, rows[i].size);
		}
		buf_done(&b);
		fake_nfs_free(f);
	}
}
END_TEST

/* libarchive keeps each range of a map, so that a few KiB of gzip could take all memory. */
START_TEST(test_map)
{
	static const struct {
		const char *name;
		unsigned int ranges;
		const char *range;
		const char *words; /* of the message; NULL: it is restored */
	} rows[] = {
		{ "as long as csi-nfs writes it", 65536, "1000000000000000000\n000000000000000\n",
		  NULL },
		{ "bomb", 999999, "0\n0\n", "map of holes" },
	};
	const enum tree_compression compression = (enum tree_compression)_i;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct buf b = { 0 };

		put_tar_map(&b, rows[i].ranges, rows[i].range);
		put_tar_padding(&b, 1024);
		write_compressed(f, compression, b.data, b.len);
		(void)unpack(f, &err);
		check_error(rows[i].name, &err,
			    rows[i].words != NULL ? ERROR_FAILED_PRECONDITION : ERROR_OK,
			    rows[i].words);
		if (rows[i].words == NULL)
			check_int(rows[i].name, "type", fake_nfs_type(f, "back/f"), NFS_TYPE_FILE);
		buf_done(&b);
		fake_nfs_free(f);
	}
}
END_TEST

/* A small tar in zstd, with the header of each frame as it is in head. */
static void put_frame(struct buf *b, const char *head, size_t head_len, const char *data,
		      size_t len)
{
	const size_t block = len << 3 | 1; /* the last one, not compressed */
	const char header[] = { (char)block, (char)(block >> 8), (char)(block >> 16) };

	ck_assert(buf_append(b, "\x28\xb5\x2f\xfd", 4) == 0);
	ck_assert(buf_append(b, head, head_len) == 0);
	ck_assert(buf_append(b, header, sizeof(header)) == 0);
	ck_assert(buf_append(b, data, len) == 0);
}

static const struct zstd_row {
	const char *name;
	struct {
		const char *bytes;
		size_t len;
	} heads[2]; /* of the frame with the entry, and of that with the end of the tar */
	const char *words; /* of the message; NULL: it is restored */
} zstd_rows[] = {
	{ "8 MiB", { { "\x00\x68", 2 }, { "\x00\x68", 2 } }, NULL },
	{ "9 MiB", { { "\x00\x69", 2 }, { "\x00\x68", 2 } }, "zstd window is larger" },
	{ "128 MiB", { { "\x00\x88", 2 }, { "\x00\x68", 2 } }, "zstd window is larger" },
	{ "only later", { { "\x00\x68", 2 }, { "\x00\x88", 2 } }, "zstd window is larger" },
	{ "all in one segment", { { "\x60\x00\x01", 3 }, { "\x60\x00\x03", 3 } }, NULL },
	{ "content of 4 bytes", { { "\x80\x68\x00\x02\x00\x00", 6 }, { "\x00\x68", 2 } }, NULL },
	{ "one segment of 16 MiB",
	  { { "\xa0\x00\x00\x00\x01", 5 }, { "\x00\x68", 2 } },
	  "zstd window is larger" },
	{ "one segment of 2^56",
	  { { "\xe0\x00\x00\x00\x00\x00\x00\x00\x01", 9 }, { "\x00\x68", 2 } },
	  "zstd window is larger" },
	{ "a dictionary and a large window",
	  { { "\x03\x88zzzz", 6 }, { "\x00\x68", 2 } },
	  "zstd window is larger" },
	{ "a dictionary and one large segment",
	  { { "\xa1\x01\x00\x00\x00\x01", 6 }, { "\x00\x68", 2 } },
	  "zstd window is larger" },
};

static void put_zstd(struct buf *b, const struct zstd_row *row)
{
	struct buf tar = { 0 };

	put_tar_header(&tar, '0', "f", 0);
	put_frame(b, row->heads[0].bytes, row->heads[0].len, tar.data, tar.len);
	ck_assert(buf_append(b, "\x5f\x2a\x4d\x18\x03\x00\x00\x00zzz", 11) == 0); /* skipped */
	tar.len = 0;
	put_tar_padding(&tar, 1024);
	put_frame(b, row->heads[1].bytes, row->heads[1].len, tar.data, tar.len);
	buf_done(&tar);
}

/* Decompressing takes as much memory as a frame says. */
START_TEST(test_zstd_window)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(zstd_rows); i++) {
		const struct zstd_row *row = &zstd_rows[i];
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct buf b = { 0 };

		put_zstd(&b, row);
		fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
		(void)unpack(f, &err);
		check_error(row->name, &err,
			    row->words != NULL ? ERROR_FAILED_PRECONDITION : ERROR_OK, row->words);
		if (row->words == NULL)
			check_int(row->name, "type", fake_nfs_type(f, "back/f"), NFS_TYPE_FILE);
		buf_done(&b);
		fake_nfs_free(f);
	}
}
END_TEST

/* libarchive would decompress both, the inner one with any window. */
START_TEST(test_compressed_twice)
{
	static const enum tree_compression outer[] = { TREE_COMPRESSION_GZIP,
						       TREE_COMPRESSION_ZSTD };
	static const char *const inner[] = { "8 MiB", "128 MiB", "gzip" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(outer) * ARRAY_SIZE(inner); i++) {
		const char *name = inner[i / ARRAY_SIZE(outer)];
		const enum tree_compression compression = outer[i % ARRAY_SIZE(outer)];
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct buf b = { 0 };
		struct image image;
		char row[32];
		size_t k;

		(void)snprintf(row, sizeof(row), "%s in %s", name, compressions[compression]);
		for (k = 0; k < ARRAY_SIZE(zstd_rows); k++)
			if (strcmp(zstd_rows[k].name, name) == 0)
				put_zstd(&b, &zstd_rows[k]);
		if (b.len > 0) {
			write_compressed(f, compression, b.data, b.len);
		} else {
			put_tar_header(&b, '0', "f", 0);
			put_tar_padding(&b, 1024);
			write_compressed(f, TREE_COMPRESSION_GZIP, b.data, b.len);
			image = read_image(f, TREE_COMPRESSION_GZIP);
			write_compressed(f, compression, image.data, image.len);
			free(image.data);
		}
		(void)unpack(f, &err);
		check_error(row, &err, ERROR_FAILED_PRECONDITION, "compressed twice");
		check_int(row, "check", check_only(f, &err) < 0, true);
		check_error(row, &err, ERROR_FAILED_PRECONDITION, "compressed twice");
		buf_done(&b);
		fake_nfs_free(f);
	}
}
END_TEST

/* Pieces of a file may end anywhere. */
START_TEST(test_zstd_bytes)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(zstd_rows); i++) {
		struct tree_zstd_frames z = { .skip = 0 };
		struct buf b = { 0 };
		size_t at, len = 0;
		int r = 0;

		put_zstd(&b, &zstd_rows[i]);
		for (at = 0; at < b.len && r == 0; at++)
			r = tree_zstd_next(&z, b.data + at, 1, &len);
		check_int(zstd_rows[i].name, "result", r, zstd_rows[i].words != NULL ? -EFBIG : 0);
		if (r == 0)
			check_int(zstd_rows[i].name, "garbage",
				  tree_zstd_next(&z, "garbage", 7, &len) == 0 && len < 7, true);
		if (r == 0)
			check_int(zstd_rows[i].name, "more", tree_zstd_next(&z, "g", 1, &len),
				  -EBADMSG);
		buf_done(&b);
	}
}
END_TEST

/* However much a little zstd becomes, libarchive gets it bit by bit. */
START_TEST(test_zstd_pieces)
{
	cleanup_free char *data = check_repeat("0\n0\n", 4 * MIB);
	struct fake_nfs *f = fake_nfs_new();
	struct tree_zstd_frames z = { .skip = 0 };
	struct image image;
	size_t at, len = 0, pieces = 0;

	write_compressed(f, TREE_COMPRESSION_ZSTD, data, strlen(data));
	image = read_image(f, TREE_COMPRESSION_ZSTD);
	check_that("pieces", "little", image.len < 64 * KIB);
	for (at = 0; at < image.len; at += len, pieces++)
		ck_assert(tree_zstd_next(&z, image.data + at, image.len - at, &len) == 0);
	check_that("pieces", "many", pieces >= strlen(data) / (256 * KIB));
	free(image.data);
	fake_nfs_free(f);
}
END_TEST

/* Data that nobody reads is no header, however long it is. */
START_TEST(test_skipped_data)
{
	cleanup_free char *data = check_repeat("data", MIB + MIB / 2);
	struct fake_nfs *f = fake_nfs_new();
	struct buf b = { 0 };

	put_tar_header(&b, '0', "a", 0);
	put_tar_header(&b, 'D', "list of a directory/", strlen(data));
	ck_assert(buf_puts(&b, data) == 0);
	put_tar_header(&b, '0', "b", 0);
	put_tar_padding(&b, 1024);
	fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
	check_unpack("skipped", f);
	check_int("skipped", "type", fake_nfs_type(f, "back/b"), NFS_TYPE_FILE);
	buf_done(&b);
	fake_nfs_free(f);
}
END_TEST

/* Put n files in gzip, in turn below two directories, each below as many as depth. */
static void put_in_turn(struct fake_nfs *f, size_t n, size_t depth)
{
	cleanup_free char *below = check_repeat("/d", depth);
	struct archive *a = archive_write_new();
	struct buf b = { 0 }, path = { 0 };
	size_t i;

	ck_assert(archive_write_set_format_pax(a) == ARCHIVE_OK);
	ck_assert(archive_write_add_filter_gzip(a) == ARCHIVE_OK);
	ck_assert(archive_write_open(a, &b, NULL, put_block, NULL) == ARCHIVE_OK);
	for (i = 0; i < n; i++) {
		path.len = 0;
		ck_assert(buf_printf(&path, "%c%s/f", i % 2 == 0 ? 'a' : 'b', below) == 0);
		add_member(a, &(struct member){ path.data, REG, "x" });
	}
	ck_assert(archive_write_free(a) == ARCHIVE_OK);
	fake_nfs_write(f, ARCHIVE, 0, b.data, b.len);
	buf_done(&path);
	buf_done(&b);
}

/* An entry may need as many directories as its path is long, over and over again. */
START_TEST(test_directories_in_turn)
{
	static const struct {
		const char *name;
		size_t files, depth;
		unsigned int operations;
		const char *words; /* of the message; NULL: it is restored */
	} rows[] = {
		{ "flat", 20000, 3, 1000000, NULL },
		{ "deep", 60, 1000, 1000000, NULL },
		{ "bomb", 1000, 1000, 500000, "in the order of the tree" },
	};
	static const struct fake_failure none;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		put_in_turn(f, rows[i].files, rows[i].depth);
		fake_nfs_fail(f, &none); /* counts from here */
		(void)unpack(f, &err);
		check_error(rows[i].name, &err,
			    rows[i].words != NULL ? ERROR_FAILED_PRECONDITION : ERROR_OK,
			    rows[i].words);
		check_that(rows[i].name, "operations", fake_nfs_operations(f) < rows[i].operations);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- changes during the work -------- */

struct event {
	enum nfs_op_type type; /* before the first operation of that type */
	bool happened;
	void (*happen)(struct fake_nfs *f);
};

static void watch(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct event *e = data;

	if (op->type != e->type || e->happened)
		return;
	e->happened = true;
	e->happen(f);
}

static void remove_both(struct fake_nfs *f)
{
	fake_nfs_remove(f, "tree/a");
	fake_nfs_remove(f, "tree/b");
}

static void shorten(struct fake_nfs *f)
{
	fake_nfs_truncate(f, "tree/a", 10);
}

/* An archive of a changing tree can be unpacked. */
START_TEST(test_changes)
{
	static void (*const happen[])(struct fake_nfs * f) = { remove_both, shorten };
	static const bool hole[] = { false, true };
	size_t i;

	for (i = 0; i < 2 * ARRAY_SIZE(happen); i++) {
		const struct fake_habits habits = { .page = 100, .entries = FAKE_ENTRIES_FULL };
		struct event event = { .type = NFS_OP_READ, .happen = happen[i / 2] };
		struct fake_nfs *f = fake_nfs_new();

		tree_fill_file(f, "tree/a", 0, 300 * KIB);
		if (hole[i % 2])
			fake_nfs_truncate(f, "tree/a", MIB);
		fake_nfs_link(f, "tree/a", "tree/b");
		tree_fill_file(f, "tree/c", 0, 10);
		fake_nfs_habits(f, &habits);
		fake_nfs_watch(f, watch, &event);
		check_pack("changes", f, TREE_COMPRESSION_NONE);
		check_that("changes", "it happened", event.happened);
		fake_nfs_watch(f, NULL, NULL);
		check_unpack("changes", f);
		tree_check_same("changes", f, "tree/c", f, "back/c");
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- every operation fails once -------- */

static const struct way {
	const char *name;
	int error;
	bool after;
} ways[] = {
	{ "input/output error", -EIO, false },
	{ "no space", -ENOSPC, false },
	{ "refused", -EACCES, false },
	{ "cut off", -ECONNABORTED, false },
	{ "cut off after it took effect", -ECONNABORTED, true },
	{ "no space after it took effect", -ENOSPC, true },
};

static int pack_step(struct fake_nfs *f, struct error *err)
{
	return pack(f, TREE_COMPRESSION_GZIP, err);
}

static void fail_everywhere(const char *step_name,
			    int (*step)(struct fake_nfs *f, struct error *err),
			    const struct way *way, const char *made)
{
	unsigned int n;

	for (n = 1;; n++) {
		const struct fake_failure failure = { .nth = n,
						      .error = way->error,
						      .after = way->after };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char row[128];
		int r;

		(void)snprintf(row, sizeof(row), "%s, %s, operation %u", step_name, way->name, n);
		tree_put(f);
		if (step != pack_step)
			check_pack(row, f, TREE_COMPRESSION_NONE);
		fake_nfs_fail(f, &failure);
		r = step(f, &err);
		if (fake_nfs_operations(f) < n) {
			check_int(row, "result", r, 0);
			check_that(row, "there were operations", n > 20);
			fake_nfs_free(f);
			return;
		}
		check_int(row, "result", r, way->error);
		check_error(row, &err, nfs_error_code(way->error), NULL);
		fake_nfs_fail(f, NULL);
		fake_nfs_remove(f, made);
		r = step(f, &err);
		ck_assert_msg(r == 0, "%s: again: %s", row, err.msg);
		if (step == pack_step)
			check_unpack(row, f);
		tree_check_same(row, f, "tree", f, "back");
		fake_nfs_free(f);
	}
}

START_TEST(test_pack_failures)
{
	fail_everywhere("pack", pack_step, &ways[_i], "out");
}
END_TEST

START_TEST(test_unpack_failures)
{
	fail_everywhere("unpack", unpack, &ways[_i], "back");
}
END_TEST

/* clang-format off */
CHECK_MAIN("tree_archive",
	   .tests = {
		   test_compressions, test_same, test_sockets, test_names, test_foreign,
		   test_numbers, test_late_times, test_cut_times,
		   test_directory_again, test_depth, test_lengths,
		   test_directory_again_soon, test_file_again,
		   test_bomb, test_changes, test_cut_before_compression, test_named_owners,
		   test_no_owners, test_padding, test_skipped_data, test_zstd_window,
		   test_compressed_twice, test_zstd_bytes, test_zstd_pieces,
		   test_directories_in_turn, test_folded, test_short_reads,
		   test_map_contradicts,
	   },
	   .loops = {
		   { test_cut, ARRAY_SIZE(compressions) },
		   { test_flipped, ARRAY_SIZE(compressions), .is_shared = true },
		   { test_sums, ARRAY_SIZE(compressions) },
		   { test_map, ARRAY_SIZE(compressions), .is_shared = true },
		   { test_pack_failures, ARRAY_SIZE(ways), .is_shared = true },
		   { test_unpack_failures, ARRAY_SIZE(ways), .is_shared = true },
	   })
