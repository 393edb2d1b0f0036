/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "csi/locks.h"
#include "nfs/export.h"
#include "store/layout.h"
#include "store/volume.h"
#include "fake/nfs.h"
#include "check_util.h"

#define UID 1000
#define OTHER 2000

static void fill_id(struct volume_id *id, const char *dir, const char *uuid)
{
	id->server = strdup("fake");
	id->share = strdup("share");
	id->subdir = strdup(dir);
	id->uuid = strdup(uuid);
	id->on_delete = strdup("");
}

/* The record of a volume: which, and whether the change has come to it. */
static char *record_text(struct fake_nfs *f)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_record struct record rec = { .n = 0 };
	char *text = NULL;

	fill_id(&id, "v", "");
	check_int("record", "read", volume_read(c, &id, &rec, NULL), 0);
	check_int("record", "encode", record_encode(&rec, &text), 0);
	return text;
}

static int create(struct fake_nfs *f)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 };

	check_int("create", "name", record_set(&rec, VOLUME_KEY_NAME, "v"), 0);
	check_int("create", "dir", record_set(&rec, VOLUME_KEY_DIR, "v"), 0);
	check_int("create", "mode", record_set(&rec, VOLUME_KEY_MODE, "0750"), 0);
	check_int("create", "size", record_set(&rec, VOLUME_KEY_SIZE, "10"), 0);
	return volume_create(c, "v", &rec, &(struct volume_capacity){ 0 }, NULL, NULL);
}

/* One ControllerModifyVolume, on a client of its own, as the given uid. */
static int modify_to(struct fake_nfs *f, const struct volume_settings *changes, uint32_t uid,
		     struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_record struct record rec = { .n = 0 };
	int r;

	c->export.uid = uid;
	fill_id(&id, "v", "");
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_modify(c, &id, &rec, changes, err);
}

static int modify(struct fake_nfs *f, uint32_t uid, struct error *err)
{
	static const struct volume_settings changes = {
		.given = MUTABLE_MODE | MUTABLE_ON_DELETE,
		.mode = 02711,
		.owner = { .has_uid = true, .uid = OTHER },
		.on_delete = ON_DELETE_RETAIN,
	};

	return modify_to(f, &changes, uid, err);
}

static bool is_final(const struct error *err)
{
	return err->code != ERROR_ABORTED && err->code != ERROR_UNAVAILABLE;
}

/* The record and the directory tell the same, whatever has happened. */
static void check_whole(const char *row, struct fake_nfs *f, bool changed)
{
	cleanup_free char *text = record_text(f);

	check_int(row, "mode", fake_nfs_mode(f, "v"), changed ? 02711 : 0750);
	check_int(row, "owner", fake_nfs_owner(f, "v"), changed ? OTHER : 0);
	check_int(row, "mode in the record", strstr(text, "m.mode=2711") != NULL, changed);
	check_int(row, "owner in the record", strstr(text, "m.uid=2000") != NULL, changed);
	check_int(row, "policy in the record", strstr(text, "m.ondelete=retain") != NULL, changed);
	check_that(row, "the mode of the creation stays", strstr(text, ";mode=0750") != NULL);
}

/* One ControllerExpandVolume to 20 bytes, on a client of its own. */
static int expand_volume(struct fake_nfs *f, const char *dir, const char *uuid, struct error *err)
{
	const struct volume_capacity capacity = { .required = 20 };
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_record struct record rec = { .n = 0 };
	int64_t size;
	int r;

	fill_id(&id, dir, uuid);
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_expand(c, &id, &rec, &capacity, &size, err);
}

static int expand(struct fake_nfs *f, struct error *err)
{
	return expand_volume(f, "v", "", err);
}

/*
 * Found by two replicas at once: one deleted and then changed the volume that the other was making
 * anew. The creation was refused for ever with ALREADY_EXISTS, "another onDelete".
 */
START_TEST(test_create_after_change_of_a_foreign_directory)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	cleanup_free char *text = NULL;

	fake_nfs_put(f, "v", NFS_TYPE_DIRECTORY, NULL);
	check_int("foreign", "expand", expand(f, &err), 0);
	check_int("foreign", "modify", modify(f, 0, &err), 0);
	check_int("foreign", "create", create(f), 0);
	check_int("foreign", "create again", create(f), 0);
	text = record_text(f);
	check_that("foreign", "keeps its size", strstr(text, ";size=20") != NULL);
	check_that("foreign", "has the mode of the creation", strstr(text, ";mode=0750") != NULL);
	check_that("foreign", "keeps what was modified", strstr(text, "m.mode=2711") != NULL);
	check_that("foreign", "is foreign no more", strstr(text, ";vers=") != NULL);
	check_int("foreign", "mode", fake_nfs_mode(f, "v"), 02711);
	fake_nfs_free(f);
}
END_TEST

/* Volume "late" has no record, and directory "v/x". */
static int expand_late(struct fake_nfs *f, struct error *err)
{
	return expand_volume(f, "v/x", "late", err);
}

static int modify_late(struct fake_nfs *f, struct error *err)
{
	static const struct volume_settings changes = { .given = MUTABLE_ON_DELETE,
							.on_delete = ON_DELETE_RETAIN };
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_record struct record rec = { .n = 0 };
	int r;

	fill_id(&id, "v/x", "late");
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_modify(c, &id, &rec, &changes, err);
}

/*
 * A late call for a volume that is gone finds a directory that another one has. Its record would
 * keep that for good. A volume of csi-driver-nfs has no record either, so it gets its first one
 * where others are, too; but not where it cannot have been.
 */
START_TEST(test_late_change_beside_another_volume)
{
	static const struct {
		const char *claim, *dir;
		bool found, gets_record;
	} rows[] = {
		{ VOLUME_CLAIM_EXCLUSIVE, "v/x", false, false },
		{ VOLUME_CLAIM_EXCLUSIVE, "v", false, false },
		{ VOLUME_CLAIM_EXCLUSIVE, "v/x/y", false, true },
		{ VOLUME_CLAIM_EXCLUSIVE, "v/x", true, true },
		{ VOLUME_CLAIM_SHARED, "v/x", false, true },
		{ NULL, "v/x", false, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *before = NULL, *after = NULL;
		struct error err = { .code = ERROR_OK };
		cleanup_record struct record rec = { .n = 0 };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		char row[64];

		(void)snprintf(row, sizeof(row), "%s, %s, %d", rows[i].claim ? rows[i].claim : "-",
			       rows[i].dir, rows[i].found);
		if (rows[i].found)
			fake_nfs_put(f, "v/x/data", NFS_TYPE_FILE, NULL);
		check_int(row, "name", record_set(&rec, VOLUME_KEY_NAME, "w"), 0);
		check_int(row, "dir", record_set(&rec, VOLUME_KEY_DIR, rows[i].dir), 0);
		if (rows[i].claim != NULL)
			check_int(row, "claim", record_set(&rec, VOLUME_KEY_CLAIM, rows[i].claim),
				  0);
		check_int(row, "create",
			  volume_create(c, "w", &rec, &(struct volume_capacity){ 0 }, NULL, NULL),
			  0);
		fake_nfs_put(f, "v/x", NFS_TYPE_DIRECTORY, NULL);
		fake_nfs_put(f, ".csi-nfs/users/v%2Fx/other", NFS_TYPE_FILE, NULL);
		fake_nfs_put(f, ".csi-nfs/users/v%2Fx%/other", NFS_TYPE_FILE, NULL);
		before = fake_nfs_list(f, NULL);
		check_int(row, "expand", expand_late(f, &err), 0);
		check_int(row, "modify", modify_late(f, &err) == 0, rows[i].gets_record);
		if (!rows[i].gets_record)
			check_error(row, &err, ERROR_FAILED_PRECONDITION, "another volume alone");
		after = fake_nfs_list(f, NULL);
		check_int(row, "it has a record", strstr(after, "volumes/late") != NULL,
			  rows[i].gets_record);
		if (!rows[i].gets_record)
			check_that(row, "nothing has changed", strcmp(before, after) == 0);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/*
 * A creation that is refused leaves such a record alone: it may be all that says that the data of a
 * volume of csi-driver-nfs is to stay.
 */
START_TEST(test_refused_creation_keeps_a_foreign_record)
{
	static const struct {
		const char *row, *key, *value;
		enum error_code code;
	} rows[] = {
		{ "refuse", VOLUME_KEY_EXISTING, "refuse", ERROR_FAILED_PRECONDITION },
		{ "other directory", VOLUME_KEY_DIR, "elsewhere", ERROR_ALREADY_EXISTS },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		cleanup_record struct record rec = { .n = 0 };
		struct error err = { .code = ERROR_OK };
		cleanup_free char *before = NULL, *after = NULL;

		fake_nfs_put(f, "v/data", NFS_TYPE_FILE, NULL);
		check_int(rows[i].row, "modify", modify(f, 0, &err), 0);
		before = record_text(f);
		check_int(rows[i].row, "name", record_set(&rec, VOLUME_KEY_NAME, "v"), 0);
		check_int(rows[i].row, "dir", record_set(&rec, VOLUME_KEY_DIR, "v"), 0);
		check_int(rows[i].row, "claim",
			  record_set(&rec, VOLUME_KEY_CLAIM, VOLUME_CLAIM_EXCLUSIVE), 0);
		check_int(rows[i].row, "wish", record_set(&rec, rows[i].key, rows[i].value), 0);
		check_that(rows[i].row, "refused",
			   volume_create(c, "v", &rec, &(struct volume_capacity){ 0 }, NULL, &err) <
				   0);
		check_error(rows[i].row, &err, rows[i].code, NULL);
		after = record_text(f);
		check_that(rows[i].row, "policy in the record",
			   strstr(after, "m.ondelete=retain") != NULL);
		check_that(rows[i].row, "the record is as before", strcmp(before, after) == 0);
		check_that(rows[i].row, "the data is there",
			   fake_nfs_type(f, "v/data") == NFS_TYPE_FILE);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/*
 * A record that is longer than a link is replaced in several steps: a retry takes away what is
 * left.
 */
START_TEST(test_expand_again_leaves_no_parts)
{
	unsigned int n;

	for (n = 1; n <= 40; n++) {
		const struct fake_failure failure = { .nth = n, .error = -EIO };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		cleanup_record struct record rec = { .n = 0 }, now = { .n = 0 };
		cleanup_free char *text = NULL, *tree = NULL;
		struct error err = { .code = ERROR_OK };
		size_t parts = 0;
		const char *p;
		char row[32];

		(void)snprintf(row, sizeof(row), "operation %u", n);
		text = check_repeat("x", 2500);
		check_int(row, "name", record_set(&rec, VOLUME_KEY_NAME, "v"), 0);
		check_int(row, "dir", record_set(&rec, VOLUME_KEY_DIR, "v"), 0);
		check_int(row, "size", record_set(&rec, VOLUME_KEY_SIZE, "10"), 0);
		check_int(row, "long", record_set(&rec, "long", text), 0);
		check_int(row, "create",
			  volume_create(c, "v", &rec, &(struct volume_capacity){ 0 }, NULL, NULL),
			  0);
		fake_nfs_fail(f, &failure);
		(void)expand(f, &err);
		fake_nfs_fail(f, NULL);
		error_clear(&err);
		check_int(row, "again", expand(f, &err), 0);
		check_int(row, "read", record_read_at(c, STORE_VOLUMES, "v", &now, &err), 0);
		check_that(row, "the record has parts", now.parts > 0);
		tree = fake_nfs_list(f, NULL);
		for (p = strstr(tree, "/v~"); p != NULL; p = strstr(p + 1, "/v~"))
			parts++;
		check_int(row, "nothing is left of the old record", parts, now.parts);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

START_TEST(test_modify)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("none", "result", modify(f, 0, &err) < 0, 1);
	check_error("none", &err, ERROR_NOT_FOUND, "'v'");
	error_clear(&err);
	check_int("create", "result", create(f), 0);
	check_whole("before", f, false);
	check_int("refused", "result", modify(f, UID, &err) < 0, 1);
	check_error("refused", &err, ERROR_PERMISSION_DENIED, "uid 1000");
	check_whole("refused", f, false);
	error_clear(&err);
	check_int("change", "result", modify(f, 0, &err), 0);
	check_whole("change", f, true);
	check_int("again", "result", modify(f, 0, &err), 0);
	check_whole("again", f, true);
	fake_nfs_free(f);
}
END_TEST

static int delete (struct fake_nfs *f, struct error *err)
{
	static const struct volume_disposal how = { .policy = ON_DELETE_DELETE };
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_record struct record rec = { .n = 0 };
	bool trashed;
	int r;

	check_int("delete", "id", volume_id_parse(&id, "fake#share#v##"), 0);
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_delete(c, &id, &rec, &how, &trashed, err);
}

/* Another replica sets the policy just before the record becomes a tombstone. */
static void retain_meanwhile(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	static const struct volume_settings changes = {
		.given = MUTABLE_ON_DELETE,
		.on_delete = ON_DELETE_RETAIN,
	};
	struct error err = { .code = ERROR_OK };
	bool *done = data;

	if (op->type != NFS_OP_RENAME || !str_eq(op->name, "v"))
		return;
	fake_nfs_watch(f, NULL, NULL);
	*done = modify_to(f, &changes, 0, &err) == 0;
}

/* Without a reply, the deletion is repeated, and then the policy of the id counts. */
START_TEST(test_retained_during_deletion)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	bool done = false;

	check_int("meanwhile", "create", create(f), 0);
	fake_nfs_put(f, "v/data", NFS_TYPE_FILE, NULL);
	fake_nfs_watch(f, retain_meanwhile, &done);
	check_int("meanwhile", "delete", delete (f, &err), 0);
	check_that("meanwhile", "it happened", done);
	check_int("meanwhile", "data", fake_nfs_type(f, "v/data"), NFS_TYPE_FILE);
	check_int("again", "delete", delete (f, &err), 0);
	check_int("again", "data", fake_nfs_type(f, "v/data"), NFS_TYPE_FILE);
	fake_nfs_free(f);
}
END_TEST

/* kubelet sets the setgid bit for fsGroup: it goes over the whole volume again where it is gone. */
START_TEST(test_modify_keeps_special_bits)
{
	static const struct {
		const char *name;
		uint32_t before, asked, after;
		bool owner; /* is changed, too */
	} rows[] = {
		{ "setgid of kubelet", 02770, 0770, 02770, false },
		{ "other permissions", 03755, 0770, 03770, false },
		{ "a special bit is asked for", 02770, 01777, 01777, false },
		{ "one more is asked for", 0755, 02770, 02770, false },
		{ "another owner", 02770, 0700, 02700, true },
		{ "none there", 0750, 0700, 0700, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct nfs_attr before = { .has_mode = true, .mode = rows[i].before };
		const struct volume_settings changes = {
			.given = MUTABLE_MODE,
			.mode = rows[i].asked,
			.owner = { .has_uid = rows[i].owner, .uid = OTHER },
		};
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "create", create(f), 0);
		fake_nfs_set(f, "v", &before);
		check_int(rows[i].name, "modify", modify_to(f, &changes, 0, &err), 0);
		check_int(rows[i].name, "mode", fake_nfs_mode(f, "v"), rows[i].after);
		fake_nfs_free(f);
	}
}
END_TEST

/* Each operation fails once: refused, or cut off before or after it took effect. */
START_TEST(test_modify_interrupted)
{
	static const struct {
		const char *name;
		int error;
		bool after;
	} ways[] = {
		{ "refused", -EACCES, false },
		{ "full", -ENOSPC, false },
		{ "cut off before", -ECONNABORTED, false },
		{ "cut off after", -ECONNABORTED, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		unsigned int n;

		for (n = 1;; n++) {
			const struct fake_failure failure = { .nth = n,
							      .error = ways[i].error,
							      .after = ways[i].after };
			struct fake_nfs *f = fake_nfs_new();
			struct error err = { .code = ERROR_OK };
			char row[64];
			int r;

			(void)snprintf(row, sizeof(row), "%s, operation %u", ways[i].name, n);
			check_int(row, "create", create(f), 0);
			fake_nfs_fail(f, &failure);
			r = modify(f, 0, &err);
			if (r == 0 && fake_nfs_operations(f) < n) {
				check_that(row, "there were operations", n > 5);
				fake_nfs_free(f);
				break;
			}
			fake_nfs_fail(f, NULL);
			if (r < 0 && is_final(&err))
				check_whole(row, f, false);
			error_clear(&err);
			check_int(row, "retry", modify(f, 0, &err), 0);
			check_whole(row, f, true);
			fake_nfs_free(f);
		}
	}
}
END_TEST

START_TEST(test_overlap)
{
	static const struct {
		const char *a, *b;
		bool overlap;
	} rows[] = {
		{ "a", "a", true },
		{ "a", "b", false },
		{ "a", "a/b", true },
		{ "a", "ab", false },
		{ "a/b", "a/b/c", true },
		{ "a/b", "a/bc", false },
		{ "a/b", "a/c", false },
		{ "a/b/c", "a/b/d", false },
		{ "A/b", "a/B/c", true },
		{ "a/\xc3\xa9", "a/e", true },
		{ "\xc3\xa9/a", "\xc3\xa9/b", false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		check_int(rows[i].a, rows[i].b, dir_locks_overlap(rows[i].a, rows[i].b),
			  rows[i].overlap);
		check_int(rows[i].b, rows[i].a, dir_locks_overlap(rows[i].b, rows[i].a),
			  rows[i].overlap);
	}
}
END_TEST

START_TEST(test_locks)
{
	char server[] = "s", share[] = "/s", other[] = "/t";
	const struct nfs_export e = { .server = server, .share = share };
	const struct nfs_export elsewhere = { .server = server, .share = other };
	struct dir_lock *first, *second, *third, *refused = NULL;
	struct error err = { .code = ERROR_OK };
	struct dir_locks *t;

	check_int("new", "result", dir_locks_new(&t), 0);
	check_int("one", "create", dir_lock_take(t, e.server, e.share, "a/b", false, &first, NULL),
		  0);
	check_int("two", "create", dir_lock_take(t, e.server, e.share, "a", false, &second, NULL),
		  0);
	check_int("below", "delete",
		  dir_lock_take(t, e.server, e.share, "a/b/c", true, &refused, &err), -EAGAIN);
	check_error("below", &err, ERROR_ABORTED, "a/b/c");
	check_that("below", "nothing is given", refused == NULL);
	check_int("other share", "delete",
		  dir_lock_take(t, elsewhere.server, elsewhere.share, "a", true, &third, NULL), 0);
	dir_lock_drop(third);
	dir_lock_drop(first);
	dir_lock_drop(second);
	check_int("free", "delete", dir_lock_take(t, e.server, e.share, "a/b", true, &first, NULL),
		  0);
	check_int("above", "create", dir_lock_take(t, e.server, e.share, "a", false, &second, NULL),
		  -EAGAIN);
	check_int("beside", "delete",
		  dir_lock_take(t, e.server, e.share, "a/c", true, &second, NULL), 0);
	dir_lock_drop(first);
	dir_lock_drop(second);
	check_int("archive", "delete",
		  dir_lock_take(t, e.server, e.share, "a/b", true, &first, NULL), 0);
	check_int("archive", "create",
		  dir_lock_take(t, e.server, e.share, "archived-a/b/c", false, &second, NULL),
		  -EAGAIN);
	check_int("other archive", "create",
		  dir_lock_take(t, e.server, e.share, "archived-a/c", false, &second, NULL), 0);
	dir_lock_drop(first);
	check_int("archive, the other way", "delete",
		  dir_lock_take(t, e.server, e.share, "a", true, &first, NULL), -EAGAIN);
	dir_lock_drop(second);
	dir_lock_drop(NULL);
	dir_locks_free(t);
	dir_locks_free(NULL);
}
END_TEST

CHECK_MAIN("change", .tests = {
			     test_expand_again_leaves_no_parts,
			     test_modify,
			     test_create_after_change_of_a_foreign_directory,
			     test_late_change_beside_another_volume,
			     test_refused_creation_keeps_a_foreign_record,
			     test_retained_during_deletion,
			     test_modify_keeps_special_bits,
			     test_modify_interrupted,
			     test_overlap,
			     test_locks,
		     })
