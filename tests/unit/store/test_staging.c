/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Volumes that begin with the contents of another, where the server or the driver fails meanwhile.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "store/staging.h"
#include "store/volume.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "tree/copy.h"
#include "tree_util.h"

#define OWNER 1000

static const char *const paths[] = { "pvc-1", "a/b/pvc-1" };

/* As csi/volume_source.c does it, on the client of the call. */
static int fill(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	struct tree_work tree = { .from = c, .to = c };
	const struct nfs_handle *work;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	(void)data;
	r = store_folder(c, STORE_WORK, true, &work, err);
	if (r < 0)
		return r;
	r = nfs_lookup(c, &c->root, "tree", &handle, &attr);
	if (r == 0)
		r = nfs_stat(c, &handle, &attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "looking for the source");
	return tree_copy(&tree, &handle, &attr, work, name, false, err);
}

/* One CreateVolume, on a client of its own, as after a restart of the driver. */
static int create_in(struct fake_nfs *f, uint32_t uid, const char *path, const char *mode,
		     const char *existing, bool *ret_trashed, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 };
	bool trashed = false;
	const struct volume_filler filler = { .fill = fill, .ret_trashed = &trashed };
	int r;

	c->export.uid = c->export.gid = uid;
	ck_assert(record_set(&rec, VOLUME_KEY_NAME, "pvc-1") == 0);
	ck_assert(record_set(&rec, VOLUME_KEY_DIR, path) == 0);
	ck_assert(record_set(&rec, VOLUME_KEY_MODE, mode) == 0);
	ck_assert(record_set(&rec, VOLUME_KEY_ON_DELETE, "delete") == 0);
	ck_assert(record_set(&rec, VOLUME_KEY_SOURCE, VOLUME_SOURCE_VOLUME "tree") == 0);
	if (existing != NULL) {
		ck_assert(record_set(&rec, VOLUME_KEY_EXISTING, existing) == 0);
		ck_assert(record_set(&rec, VOLUME_KEY_CLAIM, VOLUME_CLAIM_SHARED) == 0);
	}
	error_clear(err);
	r = volume_create(c, "pvc-1", &rec, &(struct volume_capacity){ 0 }, &filler, err);
	if (r == 0)
		check_that("create", "the record is complete", staging_state_of(&rec).ready);
	else
		check_that("create", "the error is reported", err->code != ERROR_OK);
	if (ret_trashed != NULL)
		*ret_trashed = *ret_trashed || trashed;
	return r;
}

static int create_as(struct fake_nfs *f, uint32_t uid, const char *path, const char *mode,
		     bool *ret_trashed, struct error *err)
{
	return create_in(f, uid, path, mode, NULL, ret_trashed, err);
}

static int create(struct fake_nfs *f, const char *path, bool *ret_trashed, struct error *err)
{
	return create_as(f, 0, path, "2771", ret_trashed, err);
}

static int delete (struct fake_nfs *f, const char *path, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = strdup("fake"),
						  .share = strdup("share"),
						  .subdir = strdup(path),
						  .uuid = strdup("pvc-1"),
						  .on_delete = strdup("") };
	const struct volume_disposal how = { .policy = ON_DELETE_DELETE };
	cleanup_record struct record rec = { .n = 0 };
	bool trashed;
	int r;

	error_clear(err);
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_delete(c, &id, &rec, &how, &trashed, err);
}

static struct fake_nfs *prepared(void)
{
	struct fake_nfs *f = fake_nfs_new();

	tree_put(f);
	return f;
}

/* All that the purger does not take. */
static char *remains(struct fake_nfs *f)
{
	char *list;

	fake_nfs_remove(f, ".csi-nfs/trash");
	fake_nfs_remove(f, ".csi-nfs/work");
	list = fake_nfs_list(f, "tree");
	check_shorten_notes(list);
	return list;
}

static void check_volume(const char *row, struct fake_nfs *f, const char *path)
{
	check_int(row, "mode", fake_nfs_mode(f, path), 02771);
	tree_mark(f, path, 0, 0);
	tree_mark(f, "tree", 0, 0);
	tree_check_same(row, f, "tree", f, path);
}

START_TEST(test_create)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		struct fake_nfs *f = prepared();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *before = NULL, *after = NULL;

		check_int(paths[i], "create", create(f, paths[i], NULL, &err), 0);
		before = fake_nfs_list(f, NULL);
		check_int(paths[i], "again", create(f, paths[i], NULL, &err), 0);
		after = fake_nfs_list(f, NULL);
		check_str(paths[i], "what is there", after, before);
		check_volume(paths[i], f, paths[i]);
		fake_nfs_free(f);
	}
}
END_TEST

/* An empty directory gives way; what is in another one stays. */
START_TEST(test_in_the_way)
{
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };
	cleanup_free char *list = NULL;

	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	check_int("full", "create", create(f, "pvc-1", NULL, &err) < 0, 1);
	check_error("full", &err, ERROR_FAILED_PRECONDITION, "pvc-1");
	list = remains(f);
	check_str("full", "what is left", list,
		  ".csi-nfs/\n.csi-nfs/busy/\n.csi-nfs/volumes/\npvc-1/\npvc-1/file\n");
	fake_nfs_remove(f, "pvc-1/file");
	check_int("empty", "create", create(f, "pvc-1", NULL, &err), 0);
	check_volume("empty", f, "pvc-1");
	fake_nfs_free(f);
}
END_TEST

/* A paused deletion of an earlier volume has moved the directory, and may put it back. */
START_TEST(test_moved)
{
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };

	check_int("moved", "create", create(f, "pvc-1", NULL, &err), 0);
	fake_nfs_remove(f, "pvc-1");
	fake_nfs_put(f, ".csi-nfs/trash/pvc-1.1.2.h3/file", NFS_TYPE_FILE, NULL);
	check_that("moved", "again", create(f, "pvc-1", NULL, &err) < 0);
	check_error("moved", &err, ERROR_ABORTED, "another controller");
	check_int("moved", "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"), NFS_TYPE_SYMLINK);
	check_int("moved", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
	fake_nfs_remove(f, ".csi-nfs/trash/pvc-1.1.2.h3");
	fake_nfs_put(f, ".csi-nfs/trash/pvc-1.1.2.3/released", NFS_TYPE_FILE, NULL);
	check_that("removed", "again", create(f, "pvc-1", NULL, &err) < 0);
	check_error("removed", &err, ERROR_ABORTED, "try again to re-create it");
	check_int("removed", "made anew", create(f, "pvc-1", NULL, &err), 0);
	check_volume("removed", f, "pvc-1");
	fake_nfs_free(f);
}
END_TEST

static int create_required(struct fake_nfs *f, struct error *err)
{
	return create_in(f, 0, "pvc-1", "2771", "require", NULL, err);
}

/*
 * The directory that existingDirectory=require asks for stays until the contents replace it: a call
 * that is repeated finds it, and so does the next one after a refusal.
 */
START_TEST(test_required)
{
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };
	unsigned int n;

	check_that("none", "create fails", create_required(f, &err) < 0);
	check_error("none", &err, ERROR_FAILED_PRECONDITION, "require");
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	check_that("full", "create fails", create_required(f, &err) < 0);
	check_error("full", &err, ERROR_FAILED_PRECONDITION, "not empty");
	fake_nfs_remove(f, "pvc-1/file");
	fake_nfs_remove(f, "tree");
	check_that("no source", "create fails", create_required(f, &err) < 0);
	check_error("no source", &err, ERROR_NOT_FOUND, NULL);
	check_int("no source", "type", fake_nfs_type(f, "pvc-1"), NFS_TYPE_DIRECTORY);
	fake_nfs_free(f);
	for (n = 1;; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = _i == 1, .all = true
		};
		char row[32];
		int r;

		(void)snprintf(row, sizeof(row), "killed at operation %u", n);
		f = prepared();
		fake_nfs_put(f, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
		fake_nfs_fail(f, &failure);
		r = create_required(f, &err);
		if (fake_nfs_operations(f) < n) {
			check_int(row, "result", r, 0);
			check_volume(row, f, "pvc-1");
			fake_nfs_free(f);
			return;
		}
		fake_nfs_fail(f, NULL);
		ck_assert_msg(create_required(f, &err) == 0, "%s: again: %s", row, err.msg);
		check_volume(row, f, "pvc-1");
		fake_nfs_free(f);
	}
}
END_TEST

/*
 * The same where an operation fails. A server that does not replace an empty directory by RENAME
 * says EEXIST, or EIO. One that may not be read is replaced all the same.
 */
static const struct {
	int error;
	unsigned int types;
} refusals[] = {
	{ -ENOSPC, 0 },
	{ -EEXIST, 1U << NFS_OP_RENAME },
	{ -EIO, 1U << NFS_OP_RENAME },
	{ -EACCES, 1U << NFS_OP_READDIR },
};

START_TEST(test_required_fails)
{
	struct error err = { .code = ERROR_OK };
	unsigned int n, refused = 0, made = 0;

	for (n = 1;; n++) {
		const struct fake_failure failure = { .nth = n,
						      .error = refusals[_i].error,
						      .types = refusals[_i].types };
		struct fake_nfs *f = prepared();
		char row[32];
		int r;

		(void)snprintf(row, sizeof(row), "operation %u", n);
		fake_nfs_put(f, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
		fake_nfs_fail(f, &failure);
		r = create_required(f, &err);
		if (fake_nfs_operations(f) < n) {
			fake_nfs_free(f);
			break;
		}
		fake_nfs_fail(f, NULL);
		made += r == 0;
		if (r < 0 && error_is_final(err.code)) {
			refused++;
			check_int(row, "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_DIRECTORY);
			check_int(row, "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"),
				  NFS_TYPE_UNKNOWN);
		}
		ck_assert_msg(create_required(f, &err) == 0, "%s: again: %s", row, err.msg);
		check_volume(row, f, "pvc-1");
		fake_nfs_free(f);
	}
	if (refusals[_i].error == -ENOSPC)
		check_that("ENOSPC", "it is final at times", refused > 0);
	else
		check_that("refused", "the directory is replaced at times", made > 0);
}
END_TEST

static void fail_once_it_is_cleared(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	static const struct fake_failure failure = { .nth = 1,
						     .error = -ENOSPC,
						     .types = 1U << NFS_OP_RENAME };
	bool *cleared = data;

	if (*cleared || op->type != NFS_OP_RMDIR || !str_eq(op->name, "pvc-1"))
		return;
	*cleared = true;
	fake_nfs_fail(f, &failure);
}

/* Without room for the second RENAME of such a server, the required directory is made again. */
START_TEST(test_required_cleared)
{
	struct error err = { .code = ERROR_OK };
	bool cleared = false;
	unsigned int n;

	for (n = 1; !cleared; n++) {
		const struct fake_failure failure = { .nth = n,
						      .error = -EEXIST,
						      .types = 1U << NFS_OP_RENAME };
		struct fake_nfs *f = prepared();
		int r;

		fake_nfs_put(f, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
		fake_nfs_set(f, "pvc-1", &(struct nfs_attr){ .mode = 02750, .uid = 1000 });
		fake_nfs_fail(f, &failure);
		fake_nfs_watch(f, fail_once_it_is_cleared, &cleared);
		r = create_required(f, &err);
		check_that("cleared", "there are as many renames",
			   cleared || fake_nfs_operations(f) >= n);
		if (cleared) {
			check_that("cleared", "create fails", r < 0);
			check_that("cleared", "room", strstr(err.msg, "space") != NULL);
			check_int("cleared", "type", fake_nfs_type(f, "pvc-1"), NFS_TYPE_DIRECTORY);
			check_int("cleared", "mode", fake_nfs_mode(f, "pvc-1"), 02750);
			check_int("cleared", "owner", fake_nfs_owner(f, "pvc-1"), 1000);
			fake_nfs_watch(f, NULL, NULL);
			check_int("then", "create", create_required(f, &err), 0);
			check_volume("then", f, "pvc-1");
		}
		fake_nfs_free(f);
	}
}
END_TEST

/* The driver may have made the directory, above a volume that has gone. Its note goes, too. */
START_TEST(test_required_noted)
{
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };
	cleanup_free char *before = NULL, *after = NULL;

	check_int("inner", "create", create_in(f, 0, "pvc-1/a", "2771", NULL, NULL, &err), 0);
	before = fake_nfs_list(f, NULL);
	check_that("inner", "there is a note", strstr(before, "/parents/pvc-1~") != NULL);
	fake_nfs_remove(f, ".csi-nfs/volumes");
	fake_nfs_remove(f, ".csi-nfs/users");
	fake_nfs_remove(f, "pvc-1/a");
	check_int("outer", "create", create_required(f, &err), 0);
	after = fake_nfs_list(f, NULL);
	check_that("outer", "there is none", strstr(after, "/parents/pvc-1~") == NULL);
	fake_nfs_free(f);
}
END_TEST

/* It has moved the directory that existingDirectory=require asks for. */
START_TEST(test_required_moved)
{
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };

	check_that("none", "create fails", create_required(f, &err) < 0);
	check_error("none", &err, ERROR_FAILED_PRECONDITION, "require");
	fake_nfs_put(f, ".csi-nfs/trash/pvc-1.1.2.h3", NFS_TYPE_DIRECTORY, NULL);
	check_that("moved", "create fails", create_required(f, &err) < 0);
	check_error("moved", &err, ERROR_ABORTED, "another controller");
	fake_nfs_remove(f, ".csi-nfs/trash/pvc-1.1.2.h3");
	fake_nfs_put(f, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
	check_int("back", "create", create_required(f, &err), 0);
	check_volume("back", f, "pvc-1");
	fake_nfs_free(f);
}
END_TEST

/* Put it back when the creation, which has not found it, looks into the trash. */
static void put_back_at_listing(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	bool *done = data;
	struct nfs_handle trash;
	struct nfs_attr attr;

	if (*done || op->type != NFS_OP_READDIR ||
	    !fake_nfs_get(f, ".csi-nfs/trash", &trash, &attr) ||
	    !nfs_handle_is_equal(op->dir, &trash))
		return;
	*done = true;
	fake_nfs_remove(f, ".csi-nfs/trash/pvc-1.1.2.h3");
	fake_nfs_put(f, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
}

START_TEST(test_required_back)
{
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };
	bool done = false;
	int r;

	fake_nfs_put(f, ".csi-nfs/trash/pvc-1.1.2.h3", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_watch(f, put_back_at_listing, &done);
	r = create_required(f, &err);
	ck_assert_msg(r == 0, "%s", err.msg);
	check_that("back", "it happened", done);
	check_volume("back", f, "pvc-1");
	fake_nfs_free(f);
}
END_TEST

static void move_once(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	bool *done = data;

	if (*done || op->name == NULL || strcmp(op->name, "pvc-1") != 0 ||
	    fake_nfs_type(f, "pvc-1/file") == NFS_TYPE_UNKNOWN)
		return;
	*done = true;
	fake_nfs_remove(f, "pvc-1");
}

/* It does so before the call is done: no empty directory passes for the contents. */
START_TEST(test_moved_meanwhile)
{
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };
	bool done = false;

	fake_nfs_put(f, "tree/file", NFS_TYPE_FILE, NULL);
	fake_nfs_watch(f, move_once, &done);
	check_that("moved", "create", create(f, "pvc-1", NULL, &err) < 0);
	check_error("moved", &err, ERROR_ABORTED, "another controller");
	check_that("moved", "it happened", done);
	check_int("moved", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

struct second_attempt {
	bool is_at_work, done, has_renamed;
	unsigned int removed;
};

/*
 * Before the first attempt puts its work into place, another one discards it. The trash has no room
 * for it, and the removal stops after one file.
 */
static void discard_meanwhile(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct second_attempt *s = data;
	struct nfs_client *c;
	struct error err = { .code = ERROR_OK };
	bool trashed = false;

	if (s->is_at_work && op->type == NFS_OP_RENAME && !s->has_renamed) {
		s->has_renamed = true;
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -ENOSPC });
	} else if (s->is_at_work && op->type == NFS_OP_REMOVE && s->removed++ > 0) {
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -EIO });
	}
	if (s->done || op->type != NFS_OP_RENAME || strcmp(op->to_name, "pvc-1") != 0 ||
	    strncmp(op->name, "pvc-1.", strlen("pvc-1.")) != 0)
		return;
	s->done = s->is_at_work = true;
	c = fake_nfs_connect(f);
	check_that("discarded", "fails", staging_discard(c, "pvc-1", &trashed, &err) < 0);
	nfs_client_free(c);
	s->is_at_work = false;
	fake_nfs_fail(f, NULL);
}

START_TEST(test_discarded_meanwhile)
{
	struct fake_nfs *f = prepared();
	struct second_attempt s = { .done = false };
	struct error err = { .code = ERROR_OK };

	fake_nfs_watch(f, discard_meanwhile, &s);
	check_that("discarded", "create", create(f, "pvc-1", NULL, &err) < 0);
	check_error("discarded", &err, ERROR_ABORTED, "another attempt");
	check_that("discarded", "it happened", s.done && s.has_renamed && s.removed > 1);
	check_int("discarded", "again", create(f, "pvc-1", NULL, &err), 0);
	check_volume("discarded", f, "pvc-1");
	fake_nfs_free(f);
}
END_TEST

static const struct way {
	const char *name;
	int error;
	bool after;
} ways[] = {
	{ "input/output error", -EIO, false },
	{ "input/output error after it took effect", -EIO, true },
	{ "no space", -ENOSPC, false },
	{ "no space after it took effect", -ENOSPC, true },
	{ "refused", -EACCES, false },
	{ "refused after it took effect", -EACCES, true },
	{ "cut off", -ECONNABORTED, false },
	{ "cut off after it took effect", -ECONNABORTED, true },
};

/*
 * After a final code nobody comes back: nothing of the volume is left, but for what the purger
 * takes.
 */
static void check_undone(const char *row, struct fake_nfs *f, const char *path)
{
	cleanup_free char *list = NULL;
	const char *p;

	check_int(row, "the directory after a final error", fake_nfs_type(f, path),
		  NFS_TYPE_UNKNOWN);
	list = fake_nfs_list(f, "tree");
	for (p = list; *p != '\0'; p += strcspn(p, "\n") + 1)
		ck_assert_msg(p[strcspn(p, "\n") - 1] == '/' ||
				      strncmp(p, ".csi-nfs/trash/", strlen(".csi-nfs/trash/")) ==
					      0 ||
				      strncmp(p, ".csi-nfs/work/", strlen(".csi-nfs/work/")) == 0,
			      "%s: '%.*s' is left", row, (int)strcspn(p, "\n"), p);
}

/* The nth operation fails; the call is made again. False: there are fewer. */
static bool fail_at(const struct way *way, const char *path, unsigned int n, const char *want)
{
	const struct fake_failure failure = { .nth = n, .error = way->error, .after = way->after };
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };
	cleanup_free char *list = NULL, *left = NULL;
	bool trashed = false;
	char row[128];
	int r;

	(void)snprintf(row, sizeof(row), "%s, %s, operation %u", path, way->name, n);
	fake_nfs_fail(f, &failure);
	r = create(f, path, &trashed, &err);
	if (fake_nfs_operations(f) < n) {
		check_int(row, "result", r, 0);
		fake_nfs_free(f);
		return false;
	}
	fake_nfs_fail(f, NULL);
	if (r < 0 && error_is_final(err.code) && !way->after)
		check_undone(row, f, path);
	left = fake_nfs_list(f, "tree");
	check_int(row, "there is something to purge", trashed,
		  strstr(left, ".csi-nfs/trash/pvc-1") != NULL);
	if (n % 2 == 0) {
		/* The CO gives up instead. */
		check_int(row, "delete", delete (f, path, &err), 0);
		check_undone(row, f, path);
		fake_nfs_free(f);
		return true;
	}
	r = create(f, path, NULL, &err);
	ck_assert_msg(r == 0, "%s: again: %s", row, err.msg);
	list = remains(f);
	check_str(row, "what is on the share", list, want);
	check_volume(row, f, path);
	fake_nfs_free(f);
	return true;
}

START_TEST(test_failures)
{
	const struct way *way = &ways[_i];
	/* Odd: what follows a failure depends on whether the number of the operation is even. */
	const unsigned int stride = check_is_long() ? 1 : 3;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		struct fake_nfs *f = prepared();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *want = NULL;
		unsigned int n;

		check_int("undisturbed", "result", create(f, paths[i], NULL, &err), 0);
		want = remains(f);
		fake_nfs_free(f);
		for (n = 1 + (unsigned int)_i % stride; fail_at(way, paths[i], n, want);
		     n += stride)
			;
		check_that(way->name, "there were operations", n > 80);
	}
}
END_TEST

/* What the record says after a kill, as if it had been written over version 4: other handles. */
static bool rewrite_handle(struct fake_nfs *f, const char *more)
{
	static const char path[] = ".csi-nfs/volumes/pvc-1";
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct error err = { .code = ERROR_OK };
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *folder;

	if (fake_nfs_type(f, path) == NFS_TYPE_UNKNOWN)
		return false;
	ck_assert_int_eq(store_folder(c, STORE_VOLUMES, false, &folder, &err), 0);
	ck_assert_int_eq(record_read(c, folder, "pvc-1", &rec, &err), 0);
	if (staging_state_of(&rec).built == NULL || staging_state_of(&rec).ready)
		return false;
	ck_assert_int_eq(record_set(&rec, STAGING_KEY_HANDLE, "1"), 0);
	ck_assert_int_eq(record_set(&rec, STAGING_KEY_VERSION, "4"), 0);
	if (more != NULL)
		ck_assert_int_eq(record_set(&rec, STAGING_KEY_TIME, more), 0);
	ck_assert_int_eq(record_replace(c, folder, "pvc-1", &rec, &err), 0);
	return true;
}

/* Killed at the nth operation, and repeated over another version of NFS. False: there are fewer. */
static bool repeated_over_another(const char *path, unsigned int n, bool is_known, int *in_place)
{
	const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED };
	struct fake_nfs *f = prepared();
	struct error err = { .code = ERROR_OK };
	bool failed, was_built, placed;
	struct nfs_attr before, after;
	struct nfs_handle unused;
	char row[128];
	int r;

	(void)snprintf(row, sizeof(row), "%s, operation %u", path, n);
	fake_nfs_fail(f, &failure);
	(void)create(f, path, NULL, &err);
	failed = fake_nfs_operations(f) >= n;
	fake_nfs_fail(f, NULL);
	was_built = rewrite_handle(f, is_known ? NULL : "1.000000001");
	placed = fake_nfs_get(f, path, &unused, &before);
	r = create(f, path, NULL, &err);
	if (was_built && placed && !is_known) {
		check_that(row, "is not known", r < 0);
		check_error(row, &err, ERROR_ABORTED, "vers=4");
		check_that(row, "the record stays", rewrite_handle(f, NULL));
		check_that(row, "is not deleted", delete (f, path, &err) < 0);
		check_error(row, &err, ERROR_ABORTED, "vers=4");
		check_int(row, "the directory stays", fake_nfs_type(f, path), NFS_TYPE_DIRECTORY);
		fake_nfs_free(f);
		(*in_place)++;
		return failed;
	}
	if (r < 0)
		ck_abort_msg("%s: %s", row, err.msg);
	check_volume(row, f, path);
	if (was_built && placed) {
		ck_assert(fake_nfs_get(f, path, &unused, &after));
		check_that(row, "it is the same directory", before.fileid == after.fileid);
		(*in_place)++;
	}
	fake_nfs_free(f);
	return failed;
}

START_TEST(test_another_version)
{
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		for (k = 0; k < 2; k++) {
			int in_place = 0;
			unsigned int n;

			for (n = 1; repeated_over_another(paths[i], n, k == 0, &in_place); n++)
				;
			check_that(paths[i], "it was in place", in_place > 0);
		}
	}
}
END_TEST

/* A share that squashes root, and a source whose owner may not write to it. */
static struct fake_nfs *prepared_for_owner(void)
{
	static const struct fake_habits habits = { .modes = true };
	struct fake_nfs *f = fake_nfs_new();

	fake_nfs_put(f, "tree/file", NFS_TYPE_FILE, NULL);
	fake_nfs_habits(f, &habits);
	fake_nfs_squash(f);
	fake_nfs_set(f, "", &(struct nfs_attr){ .mode = 0755, .uid = OWNER, .gid = OWNER });
	fake_nfs_set(f, "tree", &(struct nfs_attr){ .mode = 0555, .uid = OWNER, .gid = OWNER });
	fake_nfs_set(f, "tree/file",
		     &(struct nfs_attr){ .mode = 0444, .uid = OWNER, .gid = OWNER });
	return f;
}

static void check_closed(const char *row, struct fake_nfs *f, const char *path)
{
	char file[64], *record = fake_nfs_dump(f, ".csi-nfs/volumes");

	(void)snprintf(file, sizeof(file), "%s/file", path);
	check_int(row, "mode", fake_nfs_mode(f, path), 0555);
	check_int(row, "what is in it", fake_nfs_type(f, file), NFS_TYPE_FILE);
	check_that(row, "the record has no mode to restore", strstr(record, "dirmode") == NULL);
	free(record);
}

/* The driver is killed at the nth operation; the call is made again. False: there are fewer. */
static bool killed_at(const char *path, const char *mode, unsigned int n, bool after)
{
	const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED, .after = after };
	struct fake_nfs *f = prepared_for_owner();
	struct error err = { .code = ERROR_OK };
	char row[128];
	bool failed;

	(void)snprintf(row, sizeof(row), "%s, mode %s, operation %u%s", path, mode, n,
		       after ? ", done" : "");
	fake_nfs_fail(f, &failure);
	(void)create_as(f, OWNER, path, mode, NULL, &err);
	failed = fake_nfs_operations(f) >= n;
	fake_nfs_fail(f, NULL);
	if (create_as(f, OWNER, path, mode, NULL, &err) < 0)
		ck_abort_msg("%s: %s", row, err.msg);
	check_closed(row, f, path);
	fake_nfs_free(f);
	return failed;
}

/* Its owner may not write to the directory, as a rename to another parent requires. */
START_TEST(test_closed)
{
	static const char *const modes[] = { "0000", "0555" };
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		for (k = 0; k < ARRAY_SIZE(modes); k++) {
			struct fake_nfs *f = prepared_for_owner();
			struct error err = { .code = ERROR_OK };
			unsigned int n;

			if (create_as(f, OWNER, paths[i], modes[k], NULL, &err) < 0)
				ck_abort_msg("%s, mode %s: %s", paths[i], modes[k], err.msg);
			check_closed(paths[i], f, paths[i]);
			fake_nfs_free(f);
			for (n = 1; killed_at(paths[i], modes[k], n, false); n++)
				(void)killed_at(paths[i], modes[k], n, true);
			check_that(paths[i], "there were operations", n > 50);
		}
	}
}
END_TEST

CHECK_MAIN("build",
	   .tests = { test_create, test_in_the_way, test_moved, test_required_noted,
		      test_required_cleared, test_required_moved, test_required_back,
		      test_moved_meanwhile, test_discarded_meanwhile, test_closed,
		      test_another_version },
	   .loops = { { test_failures, ARRAY_SIZE(ways) },
		      { test_required, 2 },
		      { test_required_fails, ARRAY_SIZE(refusals) } })
