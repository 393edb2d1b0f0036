/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Records of snapshots: one that was cut is noticed; a sum is that of the archive in place; the
 * name tells an archive from a tree.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "fake/nfs.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/layout.h"
#include "store/snapshot.h"
#include "store/volume_record.h"
#include "check_util.h"

#define ID "fake#share#snap#snap#vol"
#define SOURCE "fake#share#vol##"
#define RECORD ".csi-nfs/snapshots/snap"
#define FILE_NAME "vol.tar.gz"
#define ARCHIVE "snap/" FILE_NAME
#define TREE_NAME "vol.tree"
#define TREE "snap/" TREE_NAME

/* As csi-nfs writes it, in two parts: what it has from the beginning, and the rest. */
#define BEGUN                                                                                      \
	"v=1;name=snap;id=fake%23share%23snap%23snap%23vol;source=fake%23share%23vol%23%23;"       \
	"size=1073741824;file=vol.tar.gz"
#define BEGUN_TREE                                                                                 \
	"v=1;name=snap;id=fake%23share%23snap%23snap%23vol;source=fake%23share%23vol%23%23;"       \
	"size=1073741824;file=vol.tree"
#define FINISHED BEGUN ";bytes=12345;crc32=0a1b2c3d;built=1f;handle=2e;time=1600000000;ready=1"

/* -------- one call -------- */

struct attempt {
	struct fake_nfs *f;
	struct record *rec;
	uint32_t number;
	bool is_tree;
};

/* Makes an archive that no other attempt makes. It has as many bytes as its sum says. */
static int fill(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	static const char zeros[64];
	const struct attempt *a = data;
	const struct tree_archive_sum sum = { .bytes = a->number, .crc32 = a->number };
	const struct nfs_handle *work;
	char path[512];
	int r;

	r = store_folder(c, STORE_WORK, true, &work, err);
	if (r < 0)
		return r;
	if (a->is_tree) {
		(void)snprintf(path, sizeof(path), ".csi-nfs/work/%s/" TREE_NAME "/file", name);
		fake_nfs_write(a->f, path, 0, zeros, a->number);
		return snapshot_set_tree(a->rec, TREE_NAME) < 0 ? error_oom(err) : 0;
	}
	(void)snprintf(path, sizeof(path), ".csi-nfs/work/%s/" FILE_NAME, name);
	fake_nfs_write(a->f, path, 0, zeros, a->number);
	return snapshot_set_archive(a->rec, FILE_NAME, &sum) < 0 ? error_oom(err) : 0;
}

/*
 * Archives that begin with a zero are whole. "g" grows meanwhile, "m" is removed, "e" cannot be
 * read, and a file comes beside "b", which is whole.
 */
static int check_archive(struct nfs_client *c, void *data, struct error *err)
{
	const struct attempt *a = data;
	char first = 0;

	(void)c;
	fake_nfs_read(a->f, ARCHIVE, 0, &first, 1);
	switch (first) {
	case 'g':
		fake_nfs_write(a->f, ARCHIVE, 5, " more", 5);
		break;
	case 'm':
		fake_nfs_remove(a->f, ARCHIVE);
		break;
	case 'e':
		return error_set(err, ERROR_ABORTED, "the server does not answer");
	case 'b':
		fake_nfs_put(a->f, "snap/precious", NFS_TYPE_FILE, NULL);
		return 0;
	default:
		break;
	}
	return first == 0 ? 0 : error_set(err, ERROR_DATA_LOSS, "it is only a part");
}

/* missing: why the volume cannot be read. */
static int create_of(struct fake_nfs *f, uint32_t number, bool is_tree, const struct error *missing,
		     struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 }, volume = { .n = 0 };
	cleanup_volume_id struct volume_id id = { .server = NULL };
	struct attempt attempt = { f, &rec, number, is_tree };
	bool trashed = false;
	bool had_record = false;
	const struct snapshot_filler filler = {
		.fill = fill,
		.check = check_archive,
		.data = &attempt,
		.missing = missing,
		.ret_trashed = &trashed,
		.had_record = &had_record,
	};
	const struct snapshot_info info = {
		.name = "snap",
		.id = ID,
		.source = SOURCE,
		.size = 10,
		.file = is_tree ? TREE_NAME : FILE_NAME,
	};

	error_clear(err);
	ck_assert_int_eq(volume_id_parse(&id, ID), 0);
	ck_assert_int_eq(snapshot_describe(&rec, &info, &volume), 0);
	return snapshot_create(c, &id, &rec, &filler, err);
}

static int create_as(struct fake_nfs *f, uint32_t number, bool is_tree, struct error *err)
{
	const struct error none = { .code = ERROR_OK };

	return create_of(f, number, is_tree, &none, err);
}

static int create(struct fake_nfs *f, uint32_t number, struct error *err)
{
	return create_as(f, number, false, err);
}

static int read_snapshot(struct fake_nfs *f, struct snapshot *s, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	int r;

	error_clear(err);
	ck_assert_int_eq(snapshot_init(s, ID, err), 0);
	r = snapshot_read_record(c, s, err);
	return r < 0 || s->is_other ? r : snapshot_read_contents(c, s, err);
}

/* -------- records -------- */

static struct fake_nfs *with_record(const char *text)
{
	struct fake_nfs *f = fake_nfs_new();

	fake_nfs_put(f, ARCHIVE, NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, RECORD, NFS_TYPE_SYMLINK, text);
	return f;
}

static void check_damaged(const char *text)
{
	struct fake_nfs *f = with_record(text);
	cleanup_snapshot struct snapshot s = { .has_contents = false };
	cleanup_free char *before = fake_nfs_list(f, NULL);
	cleanup_free char *after = NULL;
	struct error err = { .code = ERROR_OK };

	check_that(text, "not read", read_snapshot(f, &s, &err) < 0);
	check_error(text, &err, ERROR_FAILED_PRECONDITION, "damaged");
	check_that(text, "not made", create(f, 1, &err) < 0);
	check_error(text, &err, ERROR_FAILED_PRECONDITION, "damaged");
	after = fake_nfs_list(f, ".csi-nfs/busy");
	check_str(text, "what is there", after, before);
	fake_nfs_free(f);
}

/* A record that was cut is damaged, or tells nothing wrong about the archive. */
static void check_cut(const char *text)
{
	struct fake_nfs *f = with_record(text);
	cleanup_snapshot struct snapshot s = { .has_contents = false };
	struct error err = { .code = ERROR_OK };
	int r = read_snapshot(f, &s, &err);

	if (r < 0) {
		check_error(text, &err, ERROR_FAILED_PRECONDITION, "damaged");
	} else {
		const struct snapshot_info info = snapshot_info_of(&s.record);
		const bool has_sum = strstr(text, "crc32=") != NULL;

		check_that(text, "is of this snapshot", !s.is_other && s.has_contents);
		check_int(text, "has a sum", info.has_sum, has_sum);
		check_int(text, "bytes", info.sum.bytes, has_sum ? 12345 : 0);
		check_int(text, "sum", info.sum.crc32, has_sum ? 0x0a1b2c3d : 0);
	}
	fake_nfs_free(f);
}

START_TEST(test_cut)
{
	size_t n;

	for (n = 0; n < strlen(FINISHED); n++) {
		cleanup_free char *text = strndup(FINISHED, n);

		ck_assert(text != NULL);
		/* Cut to another good name, it has no sum, and nothing compares the name. */
		if (n < strlen(BEGUN) && n != strlen(BEGUN) - strlen(".gz"))
			check_damaged(text);
		else
			check_cut(text);
	}
}
END_TEST

START_TEST(test_damaged)
{
	static const char *const texts[] = {
		BEGUN ";bytes=12345;ready=1",
		BEGUN ";crc32=0a1b2c3d;ready=1",
		BEGUN ";bytes=12345;crc32=0a1b2c3;ready=1",
		BEGUN ";bytes=12345;crc32=0a1b2c3dd;ready=1",
		BEGUN ";bytes=-1;crc32=0a1b2c3d;ready=1",
		BEGUN ";bytes=12345;crc32=0a1b2c3g;ready=1",
		"v=1;name=snap;id=fake%23share%23snap%23snap%23vol;source=vol;size=10;file=vol.tree.gz;ready=1",
		"v=1;name=snap;id=fake%23share%23snap%23snap%23vol;source=vol;size=10;file=x.tree;ready=1",
		"v=1;name=snap;id=snap;source=vol;size=10;file=vol.tar;ready=1",
		"v=1;name=snap;id=fake%23share%23vol%23%23;source=vol;size=10;file=vol.tar;ready=1",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(texts); i++)
		check_damaged(texts[i]);
}
END_TEST

/* -------- sums -------- */

/* The recorded sum is that of the archive in place, which tells its number by its length. */
static void check_sum(const char *row, struct fake_nfs *f)
{
	cleanup_snapshot struct snapshot s = { .has_contents = false };
	struct error err = { .code = ERROR_OK };
	struct snapshot_info info;
	struct nfs_handle handle;
	struct nfs_attr attr;

	ck_assert_msg(read_snapshot(f, &s, &err) == 0, "%s: %s", row, err.msg);
	check_that(row, "is ready", snapshot_is_ready(&s));
	info = snapshot_info_of(&s.record);
	check_that(row, "has a sum", info.has_sum);
	ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
	check_int(row, "bytes", info.sum.bytes, attr.size);
	check_int(row, "sum", info.sum.crc32, attr.size);
}

/* Kill the creation at each operation, and make another archive then. */
static void put_finished(struct fake_nfs *f)
{
	fake_nfs_put(f, RECORD, NFS_TYPE_SYMLINK, FINISHED);
}

/* Another replica deletes the snapshot, and begins to make it anew. */
static void made_anew(struct fake_nfs *f)
{
	fake_nfs_remove(f, "snap");
	fake_nfs_put(f, RECORD, NFS_TYPE_SYMLINK, BEGUN);
}

/* A paused deletion of an earlier snapshot has taken the directory for its own. */
static void moved(struct fake_nfs *f)
{
	fake_nfs_remove(f, "snap");
	fake_nfs_put(f, ".csi-nfs/trash/snap.1.2.h3/" FILE_NAME, NFS_TYPE_FILE, NULL);
}

static void removed(struct fake_nfs *f)
{
	fake_nfs_remove(f, "snap");
}

struct meanwhile {
	void (*act)(struct fake_nfs *f);
	bool was_read; /* the record */
};

/* The record and the directory have one name; the record is looked up first. */
static void act_at_archive(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct meanwhile *m = data;

	if (m->was_read && m->act != NULL && op->type == NFS_OP_LOOKUP && op->name != NULL &&
	    strcmp(op->name, "snap") == 0) {
		m->act(f);
		m->act = NULL;
	}
	m->was_read = m->was_read || op->type == NFS_OP_READLINK;
}

/* The archive of a finished snapshot is gone; only what was removed by hand is reported as such. */
START_TEST(test_archive_gone)
{
	static const struct {
		const char *name;
		void (*act)(struct fake_nfs *f);
		enum error_code code;
	} rows[] = {
		{ "removed", removed, ERROR_FAILED_PRECONDITION },
		{ "made anew", made_anew, ERROR_ABORTED },
		{ "moved", moved, ERROR_ABORTED },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct meanwhile m = { .act = rows[i].act };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		put_finished(f);
		fake_nfs_put(f, ARCHIVE, NFS_TYPE_FILE, NULL);
		fake_nfs_watch(f, act_at_archive, &m);
		check_that(rows[i].name, "create fails", create(f, 1, &err) < 0);
		check_error(rows[i].name, &err, rows[i].code, NULL);
		check_that(rows[i].name, "it happened", m.act == NULL);
		fake_nfs_free(f);
	}
}
END_TEST

/* Another replica takes the record away, as store/text.c does, and may put it back later. */
static void take_record_away(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)data;
	if (op->type != NFS_OP_SYMLINK && fake_nfs_type(f, RECORD) != NFS_TYPE_UNKNOWN)
		fake_nfs_remove(f, RECORD);
}

/* A refused creation that cannot tell what becomes of its record is to be repeated. */
START_TEST(test_record_gone)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	fake_nfs_put(f, "snap", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_put(f, ".csi-nfs/volumes/snap", NFS_TYPE_SYMLINK,
		     "v=1;name=snap;id=fake%23share%23snap%23%23;dir=snap;size=10");
	fake_nfs_watch(f, take_record_away, NULL);
	check_that("while it is away", "fails", create(f, 1, &err) < 0);
	check_error("while it is away", &err, ERROR_ABORTED, "overlaps");
	fake_nfs_watch(f, NULL, NULL);
	fake_nfs_put(f, RECORD, NFS_TYPE_SYMLINK, BEGUN);
	check_that("once it is back", "fails", create(f, 1, &err) < 0);
	check_error("once it is back", &err, ERROR_FAILED_PRECONDITION, "overlaps");
	check_int("once it is back", "record", fake_nfs_type(f, RECORD), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

#define RESTORE_NOTE ".csi-nfs/busy/snap~u~0123456789abcdef.1"

static void restore_at_burial(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)data;
	if (op->type == NFS_OP_RENAME && strcmp(op->name, "snap") == 0)
		fake_nfs_put(f, RESTORE_NOTE, NFS_TYPE_SYMLINK, "v=1");
}

/* A restore wrote its note after the deletion had looked, and saw no tombstone (rule 1). */
START_TEST(test_deleted_beside_a_restore)
{
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	cleanup_snapshot struct snapshot s = { .has_contents = false };
	struct error err = { .code = ERROR_OK };
	bool trashed = false;

	check_int("create", "result", create(f, 11, &err), 0);
	check_int("read", "result", read_snapshot(f, &s, &err), 0);
	fake_nfs_watch(f, restore_at_burial, NULL);
	check_that("delete", "fails", snapshot_delete(c, &s, &trashed, &err) < 0);
	check_error("delete", &err, ERROR_ABORTED, "another controller");
	fake_nfs_watch(f, NULL, NULL);
	check_int("delete", "archive", fake_nfs_type(f, ARCHIVE), NFS_TYPE_FILE);
	check_int("delete", "record", fake_nfs_type(f, RECORD), NFS_TYPE_SYMLINK);
	fake_nfs_remove(f, RESTORE_NOTE);
	error_clear(&err);
	check_int("again", "result", snapshot_delete(c, &s, &trashed, &err), 0);
	check_int("again", "archive", fake_nfs_type(f, ARCHIVE), NFS_TYPE_UNKNOWN);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

#define TOMBSTONE ".csi-nfs/busy/snap~s~0123456789abcdef.1"

/* A backup has brought back the tombstone of an earlier snapshot of that name. */
START_TEST(test_tombstone_of_a_backup)
{
	struct fake_nfs *f = with_record(FINISHED);
	struct error err = { .code = ERROR_OK };

	fake_nfs_put(f, TOMBSTONE, NFS_TYPE_SYMLINK, FINISHED ";nonce=0123456789abcdef.1");
	check_int("create", "result", create(f, 7, &err), 0);
	check_int("create", "archive", fake_nfs_type(f, ARCHIVE), NFS_TYPE_FILE);
	check_int("create", "record", fake_nfs_type(f, RECORD), NFS_TYPE_SYMLINK);
	check_int("create", "tombstone", fake_nfs_type(f, TOMBSTONE), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

START_TEST(test_killed)
{
	unsigned int n;

	for (n = 1;; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = _i == 1, .all = true
		};
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char row[32];
		int r;

		(void)snprintf(row, sizeof(row), "killed at operation %u", n);
		fake_nfs_fail(f, &failure);
		r = create(f, 11, &err);
		if (fake_nfs_operations(f) < n) {
			check_int(row, "result", r, 0);
			check_that(row, "there were operations", n > 10);
			fake_nfs_free(f);
			return;
		}
		fake_nfs_fail(f, NULL);
		ck_assert_msg(create(f, 22, &err) == 0, "%s: again: %s", row, err.msg);
		check_sum(row, f);
		ck_assert_msg(create(f, 33, &err) == 0, "%s: ready: %s", row, err.msg);
		check_sum(row, f);
		fake_nfs_free(f);
	}
}
END_TEST

static int delete (struct fake_nfs *f, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_snapshot struct snapshot s = { .has_contents = false };
	bool trashed = false;
	int r = read_snapshot(f, &s, err);

	return r < 0 ? r : snapshot_delete(c, &s, &trashed, err);
}

/* Whether the trash has something that the purger does not take at once. */
static bool has_unchecked(struct fake_nfs *f)
{
	static const char trash[] = ".csi-nfs/trash/";
	cleanup_free char *list = fake_nfs_list(f, NULL);
	char *line, *rest = list;
	bool found = false;

	while ((line = strsep(&rest, "\n")) != NULL)
		if (str_has_prefix(line, trash) && line[strlen(trash)] != '\0') {
			char *name = line + strlen(trash);

			name[strcspn(name, "/")] = '\0';
			found = found || store_trash_name_is_unchecked(name);
		}
	return found;
}

/* A deletion by another replica, which puts its record back. */
struct rival {
	char tombstone[NFS_NAME_MAX + 20];
	char text[NFS_LINK_MAX + 1]; /* of the record */
	bool is_moved; /* the directory */
};

static void give_up_after_move(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct rival *rival = data;

	if (rival->is_moved && fake_nfs_type(f, rival->tombstone) != NFS_TYPE_UNKNOWN) {
		fake_nfs_remove(f, rival->tombstone);
		fake_nfs_put(f, RECORD, NFS_TYPE_SYMLINK, rival->text);
	}
	rival->is_moved = rival->is_moved ||
			  (op->type == NFS_OP_RENAME && store_trash_name_is_unchecked(op->to_name));
}

static void set_tombstone(struct fake_nfs *f, struct rival *rival)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *folder;
	char name[NFS_NAME_MAX + 1];

	ck_assert_int_eq(store_folder(c, STORE_SNAPSHOTS, false, &folder, NULL), 0);
	ck_assert_int_eq(record_read(c, folder, "snap", &rec, NULL), 0);
	ck_assert_int_eq(nfs_readlink(c, folder, "snap", rival->text), 0);
	busy_tombstone_name(name, BUSY_SNAPSHOT_GONE, "snap", volume_record_identity(&rec));
	(void)snprintf(rival->tombstone, sizeof(rival->tombstone), ".csi-nfs/busy/%s", name);
	fake_nfs_remove(f, RECORD);
	fake_nfs_put(f, rival->tombstone, NFS_TYPE_SYMLINK, rival->text);
}

/* A deletion that has taken over another one's tombstone has moved the archive by then. */
START_TEST(test_deletion_given_up)
{
	struct rival rival = { .is_moved = false };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("create", "result", create(f, 11, &err), 0);
	set_tombstone(f, &rival);
	fake_nfs_watch(f, give_up_after_move, &rival);
	check_that("delete", "fails", delete (f, &err) < 0);
	check_error("delete", &err, ERROR_ABORTED, "has given up its deletion; try again");
	check_that("delete", "it happened", rival.is_moved);
	fake_nfs_watch(f, NULL, NULL);
	check_sum("put back", f);
	check_int("again", "delete", delete (f, &err), 0);
	check_int("again", "archive", fake_nfs_type(f, ARCHIVE), NFS_TYPE_UNKNOWN);
	check_that("again", "is purged", !has_unchecked(f));
	fake_nfs_free(f);
}
END_TEST

#define MOVED ".csi-nfs/trash/snap.1.2.h3"

struct taken_over {
	unsigned int at; /* operations between the tombstone and the move */
	unsigned int operations;
	bool is_set;
};

static void move_after_tombstone(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct taken_over *t = data;

	if (t->is_set && ++t->operations == t->at &&
	    fake_nfs_type(f, ARCHIVE) != NFS_TYPE_UNKNOWN) {
		fake_nfs_remove(f, "snap");
		fake_nfs_put(f, MOVED "/" FILE_NAME, NFS_TYPE_FILE, NULL);
	}
	t->is_set = t->is_set || (op->type == NFS_OP_SYMLINK && strstr(op->name, "~s~") != NULL);
}

/* Another replica takes over the tombstone, moves the archive, and dies before it checks that. */
START_TEST(test_moved_by_another)
{
	struct taken_over t = { .at = 0 };

	do {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char row[32];

		t = (struct taken_over){ .at = t.at + 1 };
		(void)snprintf(row, sizeof(row), "moved at %u", t.at);
		fake_nfs_write(f, ARCHIVE, 0, "\0whole", 6);
		fake_nfs_watch(f, move_after_tombstone, &t);
		if (delete (f, &err) < 0) {
			check_error(row, &err, ERROR_ABORTED, NULL);
			check_int(row, "delete again", delete (f, &err), 0);
		}
		check_int(row, "archive", fake_nfs_type(f, ARCHIVE), NFS_TYPE_UNKNOWN);
		check_that(row, "is purged", !has_unchecked(f));
		fake_nfs_free(f);
	} while (t.operations >= t.at);
	check_that("moved", "there were operations", t.at > 5);
}
END_TEST

static void put_back_after_burial(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	bool *is_buried = data;

	if (*is_buried && fake_nfs_type(f, MOVED) != NFS_TYPE_UNKNOWN) {
		fake_nfs_remove(f, MOVED);
		fake_nfs_write(f, ARCHIVE, 0, "\0whole", 6);
	}
	*is_buried =
		*is_buried || (op->type == NFS_OP_RENAME && strstr(op->to_name, "~s~") != NULL);
}

/*
 * Another replica had moved the archive when the deletion looked for it, and puts it back, since
 * the deletion that it had taken over has been given up.
 */
START_TEST(test_put_back)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	bool is_buried = false;

	fake_nfs_write(f, ARCHIVE, 0, "\0whole", 6);
	check_int("adopt", "result", create(f, 11, &err), 0);
	fake_nfs_remove(f, "snap");
	fake_nfs_put(f, MOVED "/" FILE_NAME, NFS_TYPE_FILE, NULL);
	fake_nfs_watch(f, put_back_after_burial, &is_buried);
	ck_assert_msg(delete (f, &err) == 0, "%s", err.msg);
	check_that("delete", "it happened", fake_nfs_type(f, MOVED) == NFS_TYPE_UNKNOWN);
	check_int("delete", "archive", fake_nfs_type(f, ARCHIVE), NFS_TYPE_UNKNOWN);
	check_int("delete", "record", fake_nfs_type(f, RECORD), NFS_TYPE_UNKNOWN);
	check_that("delete", "is purged", !has_unchecked(f));
	fake_nfs_free(f);
}
END_TEST

/* A deletion that was killed is repeated, or a creation finishes it: no archive stays. */
START_TEST(test_killed_deletion)
{
	const bool is_foreign = (_i & 2) != 0, is_made_anew = (_i & 4) != 0;
	unsigned int n;

	for (n = 1;; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = (_i & 1) != 0, .all = true
		};
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char row[32];
		int r;

		(void)snprintf(row, sizeof(row), "killed at operation %u", n);
		if (is_foreign)
			fake_nfs_write(f, ARCHIVE, 0, "\0whole", 6);
		check_int(row, "create", create(f, 11, &err), 0);
		fake_nfs_fail(f, &failure);
		r = delete (f, &err);
		if (fake_nfs_operations(f) < n) {
			check_int(row, "result", r, 0);
			check_that(row, "there were operations", n > 10);
			fake_nfs_free(f);
			return;
		}
		fake_nfs_fail(f, NULL);
		r = is_made_anew ? create(f, 22, &err) : delete (f, &err);
		ck_assert_msg(r == 0, "%s: again: %s", row, err.msg);
		check_int(row, "archive", fake_nfs_type(f, ARCHIVE),
			  is_made_anew ? NFS_TYPE_FILE : NFS_TYPE_UNKNOWN);
		check_int(row, "record", fake_nfs_type(f, RECORD),
			  is_made_anew ? NFS_TYPE_SYMLINK : NFS_TYPE_UNKNOWN);
		check_that(row, "is purged", !has_unchecked(f));
		fake_nfs_free(f);
	}
}
END_TEST

/* The sum is compared with the file that it was made of only. */
START_TEST(test_recorded_file)
{
	static const struct {
		const char *others[2];
		bool keeps; /* the recorded one */
		const char *found;
		bool has_sum;
	} rows[] = {
		{ { NULL }, true, "vol.tar.gz", true },
		{ { "snap/vol.tar", "snap/vol.tar.zst" }, true, "vol.tar.gz", true },
		{ { "snap/vol.tar", "snap/vol.tar.zst" }, false, "vol.tar", false },
		{ { "snap/vol.tar.zst" }, false, "vol.tar.zst", false },
	};
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = with_record(FINISHED);
		struct nfs_client *c = fake_nfs_connect(f);
		cleanup_snapshot struct snapshot s = { .has_contents = false };
		struct error err = { .code = ERROR_OK };
		struct snapshot_contents archive;
		struct snapshot_info info;

		for (k = 0; k < 2 && rows[i].others[k] != NULL; k++)
			fake_nfs_put(f, rows[i].others[k], NFS_TYPE_FILE, NULL);
		if (!rows[i].keeps)
			fake_nfs_remove(f, ARCHIVE);
		check_int(rows[i].found, "read", read_snapshot(f, &s, &err), 0);
		check_int(rows[i].found, "find",
			  snapshot_find_contents(c, &s.id, &s.record, &archive, &err), 0);
		info = snapshot_info_of(&s.record);
		check_str(rows[i].found, "name", archive.name, rows[i].found);
		check_int(rows[i].found, "sum", snapshot_recorded_sum(&info, &archive) != NULL,
			  rows[i].has_sum);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- trees -------- */

/* What is found beside the record of a tree, and of none. */
START_TEST(test_recorded_tree)
{
	static const struct {
		const char *row, *record;
		const char *directory, *file; /* in the snapshot's directory; NULL: none */
		const char *found; /* NULL: nothing */
	} rows[] = {
		{ "tree", BEGUN_TREE, TREE, NULL, TREE_NAME },
		{ "tree and an archive", BEGUN_TREE, TREE, ARCHIVE, TREE_NAME },
		{ "packed by hand", BEGUN_TREE, NULL, ARCHIVE, FILE_NAME },
		{ "a file in its place", BEGUN_TREE, NULL, TREE, NULL },
		{ "an archive's record", BEGUN, TREE, NULL, NULL },
		{ "an archive's record, and a directory", BEGUN, ARCHIVE, NULL, NULL },
		{ "no record", NULL, TREE, NULL, NULL },
		{ "nothing", BEGUN_TREE, NULL, NULL, NULL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		cleanup_snapshot struct snapshot s = { .has_contents = false };
		struct error err = { .code = ERROR_OK };
		struct snapshot_contents contents;
		int r;

		if (rows[i].record != NULL)
			fake_nfs_put(f, RECORD, NFS_TYPE_SYMLINK, rows[i].record);
		if (rows[i].directory != NULL)
			fake_nfs_put(f, rows[i].directory, NFS_TYPE_DIRECTORY, NULL);
		if (rows[i].file != NULL)
			fake_nfs_put(f, rows[i].file, NFS_TYPE_FILE, NULL);
		check_int(rows[i].row, "read", read_snapshot(f, &s, &err), 0);
		check_int(rows[i].row, "has contents", s.has_contents, rows[i].found != NULL);
		check_int(rows[i].row, "recorded tree", snapshot_is_recorded_tree(&s.record),
			  rows[i].record != NULL && strstr(rows[i].record, TREE_NAME) != NULL);
		r = snapshot_find_contents(c, &s.id, &s.record, &contents, &err);
		check_int(rows[i].row, "find", r, rows[i].found != NULL ? 0 : -ENOENT);
		if (r == 0) {
			check_str(rows[i].row, "name", contents.name, rows[i].found);
			check_int(rows[i].row, "is a tree", contents.is_tree,
				  strcmp(rows[i].found, TREE_NAME) == 0);
		}
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/*
 * Kill the creation of one format at each operation, and ask for the other one then: what was
 * complete stays, and the record tells what is there.
 */
START_TEST(test_killed_tree)
{
	const bool first = (_i & 1) != 0;
	unsigned int n, kept = 0, changed = 0;

	for (n = 1;; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = (_i & 2) != 0, .all = true
		};
		cleanup_snapshot struct snapshot s = { .has_contents = false };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct snapshot_info info;
		bool is_tree;
		char row[32];

		(void)snprintf(row, sizeof(row), "killed at operation %u", n);
		fake_nfs_fail(f, &failure);
		(void)create_as(f, 11, first, &err);
		if (fake_nfs_operations(f) < n) {
			fake_nfs_free(f);
			break;
		}
		fake_nfs_fail(f, NULL);
		ck_assert_msg(create_as(f, 22, !first, &err) == 0, "%s: again: %s", row, err.msg);
		ck_assert_msg(read_snapshot(f, &s, &err) == 0, "%s: %s", row, err.msg);
		check_that(row, "is ready", snapshot_is_ready(&s));
		info = snapshot_info_of(&s.record);
		is_tree = snapshot_is_recorded_tree(&s.record);
		check_int(row, "tree", fake_nfs_type(f, TREE) == NFS_TYPE_DIRECTORY, is_tree);
		check_int(row, "archive", fake_nfs_type(f, ARCHIVE) == NFS_TYPE_FILE, !is_tree);
		check_int(row, "has a sum", info.has_sum, !is_tree);
		if (is_tree == first)
			kept++;
		else
			changed++;
		fake_nfs_free(f);
	}
	check_that("killed", "in front of the rename and behind it", kept > 0 && changed > 0);
}
END_TEST

/* Without a record it may be anyone's: it is not adopted, not listed and not removed. */
START_TEST(test_foreign_tree)
{
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	cleanup_snapshot struct snapshot s = { .has_contents = false };
	struct error err = { .code = ERROR_OK };
	bool trashed = false;

	fake_nfs_put(f, TREE "/file", NFS_TYPE_FILE, NULL);
	check_that("create", "is refused", create_as(f, 11, true, &err) < 0);
	check_error("create", &err, ERROR_FAILED_PRECONDITION, "move it away");
	check_int("read", "result", read_snapshot(f, &s, &err), 0);
	check_that("read", "is not ready", !snapshot_is_ready(&s));
	check_int("delete", "result", snapshot_delete(c, &s, &trashed, &err), 0);
	check_int("delete", "is there", fake_nfs_type(f, TREE "/file"), NFS_TYPE_FILE);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/*
 * A directory without a record is a snapshot only if nothing but archives of it is in there. A
 * user's directory may hold an archive, and other names that begin like it.
 */
START_TEST(test_foreign_archive)
{
	static const struct {
		const char *other;
		bool is_directory, is_snapshot;
	} rows[] = {
		{ "snap/vol.tar.gz", false, true },      { "snap/vol.tar", false, true },
		{ "snap/vol.tar.zst", false, true },     { "snap/vol", false, false },
		{ "snap/vol.db", false, false },         { "snap/volumes", false, false },
		{ "snap/vol.tar.gz.bak", false, false }, { "snap/vol.tar", true, false },
		{ "snap/vol.tree", true, false },        { "snap/a", false, false },
	};
	static const struct fake_habits habits = { .entries = FAKE_ENTRIES_FULL };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *row = rows[i].other;
		const bool wanted = rows[i].is_snapshot;
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		cleanup_snapshot struct snapshot s = { .has_contents = false };
		struct error err = { .code = ERROR_OK };
		bool trashed = false;

		fake_nfs_habits(f, &habits);
		fake_nfs_put(f, ARCHIVE, NFS_TYPE_FILE, NULL);
		fake_nfs_put(f, row, rows[i].is_directory ? NFS_TYPE_DIRECTORY : NFS_TYPE_FILE,
			     NULL);
		if (!wanted) {
			check_that(row, "is not adopted", create(f, 11, &err) < 0);
			check_error(row, &err, ERROR_FAILED_PRECONDITION, "more than");
		}
		check_int(row, "read", read_snapshot(f, &s, &err), 0);
		check_int(row, "is ready", snapshot_is_ready(&s), wanted);
		check_int(row, "delete", snapshot_delete(c, &s, &trashed, &err), 0);
		check_int(row, "is there", fake_nfs_type(f, row) != NFS_TYPE_UNKNOWN, !wanted);
		check_int(row, "is there", fake_nfs_type(f, ARCHIVE) != NFS_TYPE_UNKNOWN, !wanted);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* A whole archive of csi-driver-nfs is adopted, whatever a first attempt has left. */
START_TEST(test_killed_foreign)
{
	unsigned int n;

	for (n = 1;; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = _i != 0, .all = true
		};
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct nfs_handle handle;
		struct nfs_attr attr;
		char row[32];
		int r;

		(void)snprintf(row, sizeof(row), "killed at operation %u", n);
		fake_nfs_write(f, ARCHIVE, 0, "\0whole", 6);
		fake_nfs_fail(f, &failure);
		r = create(f, 22, &err);
		if (fake_nfs_operations(f) < n) {
			check_int(row, "result", r, 0);
			check_that(row, "there were operations", n > 10);
			fake_nfs_free(f);
			return;
		}
		fake_nfs_fail(f, NULL);
		ck_assert_msg(create(f, 22, &err) == 0, "%s: again: %s", row, err.msg);
		ck_assert_msg(create(f, 33, &err) == 0, "%s: ready: %s", row, err.msg);
		ck_assert(fake_nfs_get(f, ARCHIVE, &handle, &attr));
		check_int(row, "size", (long)attr.size, 6);
		fake_nfs_free(f);
	}
}
END_TEST

/*
 * What a first attempt found whole, and what it had recorded, says nothing about another file: a
 * part that is there afterwards is not adopted, unless the snapshot was ready before.
 */
START_TEST(test_replaced_foreign)
{
	unsigned int n, ready = 0, refused = 0;

	for (n = 1;; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = _i != 0, .all = true
		};
		struct fake_nfs *f = fake_nfs_new();
		cleanup_snapshot struct snapshot s = { .has_contents = false };
		struct error err = { .code = ERROR_OK };
		char row[32], text[4];
		bool is_over;

		(void)snprintf(row, sizeof(row), "killed at operation %u", n);
		fake_nfs_write(f, ARCHIVE, 0, "\0whole", 6);
		fake_nfs_fail(f, &failure);
		(void)create(f, 22, &err);
		is_over = fake_nfs_operations(f) < n;
		fake_nfs_fail(f, NULL);
		fake_nfs_write(f, ARCHIVE, 0, "part", 4);
		ck_assert_int_eq(read_snapshot(f, &s, &err), 0);
		if (s.record.n > 0 && snapshot_info_of(&s.record).ready) {
			ready++;
			ck_assert_msg(create(f, 22, &err) == 0, "%s: %s", row, err.msg);
		} else {
			refused++;
			check_that(row, "is refused", create(f, 22, &err) < 0);
			check_error(row, &err, ERROR_FAILED_PRECONDITION, "not a whole archive");
			check_int(row, "record", fake_nfs_type(f, RECORD), NFS_TYPE_UNKNOWN);
		}
		fake_nfs_read(f, ARCHIVE, 0, text, sizeof(text));
		check_that(row, "the file is as it was", memcmp(text, "part", 4) == 0);
		fake_nfs_free(f);
		if (is_over)
			break;
	}
	check_that("killed", "before the adoption and after it", ready > 0 && refused > 0);
}
END_TEST

/* What is not found whole is refused and stays as it is, with all that is beside it. */
START_TEST(test_part)
{
	static const struct {
		const char *text; /* see check_archive() */
		enum error_code code;
		const char *words;
	} rows[] = {
		{ "part", ERROR_FAILED_PRECONDITION, "move the directory away" },
		{ "grow", ERROR_ABORTED, "has changed" },
		{ "error", ERROR_ABORTED, "does not answer" },
		{ "beside", ERROR_FAILED_PRECONDITION, "more than a snapshot" },
		{ "missing", ERROR_ABORTED, "has changed" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *row = rows[i].text;
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char text[4];

		fake_nfs_write(f, ARCHIVE, 0, row, strlen(row));
		check_that(row, "create fails", create(f, 22, &err) < 0);
		check_error(row, &err, rows[i].code, rows[i].words);
		check_int(row, "record", fake_nfs_type(f, RECORD), NFS_TYPE_UNKNOWN);
		if (*row != 'm') {
			fake_nfs_read(f, ARCHIVE, 0, text, sizeof(text));
			check_that(row, "is left alone", memcmp(text, row, 4) == 0);
		}
		if (*row == 'b')
			check_int(row, "beside", fake_nfs_type(f, "snap/precious"), NFS_TYPE_FILE);
		if (*row == 'b' || *row == 'm') {
			fake_nfs_free(f);
			continue;
		}
		/* Now csi-driver-nfs has finished it. */
		fake_nfs_write(f, ARCHIVE, 0, "\0whole", 6);
		ck_assert_msg(create(f, 22, &err) == 0, "%s: %s", row, err.msg);
		fake_nfs_free(f);
	}
}
END_TEST

/* Killed at the nth operation; then the volume goes. Return false if there are fewer. */
static bool killed_without_volume(unsigned int n, bool after, bool is_tree, int *finished)
{
	const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED, .after = after };
	const struct error missing = { .code = ERROR_NOT_FOUND, .msg = "the volume is gone" };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	bool killed;
	char row[64];
	int r;

	(void)snprintf(row, sizeof(row), "%s operation %u", after ? "after" : "before", n);
	fake_nfs_fail(f, &failure);
	r = create_as(f, 7, is_tree, &err);
	killed = fake_nfs_operations(f) >= n;
	fake_nfs_fail(f, NULL);
	if (!killed)
		check_int(row, "undisturbed", r, 0);
	r = create_of(f, 8, is_tree, &missing, &err);
	if (r == 0) {
		++*finished;
		check_int(row, "again", create_of(f, 9, is_tree, &missing, &err), 0);
		check_int(row, "contents", fake_nfs_type(f, is_tree ? TREE : ARCHIVE),
			  is_tree ? NFS_TYPE_DIRECTORY : NFS_TYPE_FILE);
	} else {
		check_error(row, &err, ERROR_NOT_FOUND, "gone");
		check_int(row, "record", fake_nfs_type(f, RECORD), NFS_TYPE_UNKNOWN);
		check_int(row, "directory", fake_nfs_type(f, "snap"), NFS_TYPE_UNKNOWN);
	}
	fake_nfs_free(f);
	return killed;
}

/* What is whole is finished, and what is not is undone: no code asks the caller to come back. */
START_TEST(test_killed_without_volume)
{
	int i, finished = 0;
	unsigned int n;

	for (i = 0; i < 4; i++) {
		for (n = 1; killed_without_volume(n, i % 2 != 0, i / 2 != 0, &finished); n++)
			;
		check_that("killed", "there were operations", n > 20);
	}
	check_that("killed", "some were in place", finished > 4);
}
END_TEST

/* Kill a creation after it has put its contents in place, and before it has recorded that. */
static struct fake_nfs *killed_in_place(bool is_tree)
{
	unsigned int n;

	for (n = 1;; n++) {
		const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		int r;

		fake_nfs_fail(f, &failure);
		r = create_as(f, 7, is_tree, &err);
		fake_nfs_fail(f, NULL);
		check_that("killed", "before its end", r < 0);
		if (fake_nfs_type(f, is_tree ? TREE : ARCHIVE) != NFS_TYPE_UNKNOWN)
			return f;
		fake_nfs_free(f);
	}
}

/*
 * The volume has gone, and an operation of the next call fails. Only a call that leaves nothing may
 * be refused for good.
 */
START_TEST(test_fails_without_volume)
{
	const struct error missing = { .code = ERROR_NOT_FOUND, .msg = "the volume is gone" };
	unsigned int n = 0, failed = 0;
	bool was_reached = true;

	while (was_reached) {
		const struct fake_failure failure = { .nth = ++n,
						      .error = _i / 2 ? -EACCES : -ECONNABORTED };
		struct fake_nfs *f = killed_in_place(_i % 2);
		struct error err = { .code = ERROR_OK };
		char row[32];
		int r;

		(void)snprintf(row, sizeof(row), "operation %u", n);
		fake_nfs_fail(f, &failure);
		r = create_of(f, 8, _i % 2, &missing, &err);
		was_reached = fake_nfs_operations(f) >= n;
		fake_nfs_fail(f, NULL);
		failed += r < 0;
		if (r < 0 && error_is_final(err.code) && err.code != ERROR_PERMISSION_DENIED)
			check_int(row, "record", fake_nfs_type(f, RECORD), NFS_TYPE_UNKNOWN);
		error_clear(&err);
		check_int(row, "again", create_of(f, 9, _i % 2, &missing, &err), 0);
		fake_nfs_free(f);
	}
	check_that("failures", "some were answered", failed > 4);
}
END_TEST

CHECK_MAIN("snapshot",
	   .tests = { test_cut, test_archive_gone, test_damaged, test_recorded_file,
		      test_recorded_tree, test_foreign_tree, test_foreign_archive, test_part,
		      test_deleted_beside_a_restore, test_tombstone_of_a_backup, test_record_gone,
		      test_deletion_given_up, test_moved_by_another, test_put_back,
		      test_killed_without_volume },
	   .loops = { { test_killed, 2 },
		      { test_fails_without_volume, 4 },
		      { test_killed_deletion, 8 },
		      { test_killed_tree, 4 },
		      { test_killed_foreign, 2 },
		      { test_replaced_foreign, 2 } })
