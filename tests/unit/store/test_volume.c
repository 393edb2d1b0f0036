/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/users.h"
#include "store/volume.h"
#include "fake/nfs.h"
#include "store/layout.h"
#include "check_util.h"

/* What the driver leaves on a share without volumes. */
#define FOLDERS ".csi-nfs/\n.csi-nfs/busy/\n.csi-nfs/trash/\n.csi-nfs/volumes/\n"

struct sample {
	const char *key;
	const char *dir;
	const char *on_delete;
	const char *mode;
	const char *size;
	size_t extra; /* bytes of further parameters, to make the record long */
	const char *claim; /* NULL: none */
	const char *existing; /* NULL: not given */
};

static const struct sample flat = { "pvc-1", "pvc-1", "delete", "0000", "10", 0, NULL, NULL };
static const struct sample nested = { "pvc-1", "a/b/c/d", "delete", "0770", "10", 0, NULL, NULL };
static const struct sample archived = { "pvc-1", "a/b/d", "archive", "0000", "10", 0, NULL, NULL };
static const struct sample wordy = { "pvc-1", "pvc-1", "delete", "0000", "10", 3500, NULL, NULL };
static const struct sample claimed = {
	"pvc-1", "a/b", "delete", "0770", "10", 0, VOLUME_CLAIM_EXCLUSIVE, NULL
};
static const struct sample claimed_archived = {
	"pvc-1", "a/b", "archive", "0000", "10", 0, VOLUME_CLAIM_EXCLUSIVE, NULL
};
static const struct sample refusing = {
	"pvc-1", "a/b", "delete", "0770", "10", 0, VOLUME_CLAIM_SHARED, "refuse"
};
static const struct sample refusing_long = {
	"pvc-1", "pvc-1", "delete", "0000", "10", 3500, VOLUME_CLAIM_EXCLUSIVE, "refuse"
};
static const struct sample *const kinds[] = {
	&flat, &nested, &archived, &wordy, &claimed, &claimed_archived, &refusing, &refusing_long
};
static const char *const kind_names[] = { "flat",     "nested",
					  "archived", "long record",
					  "claimed",  "claimed and archived",
					  "refusing", "refusing, long record" };

static void describe(const struct sample *v, struct record *rec)
{
	cleanup_free char *extra = check_repeat("x", v->extra);

	char id[2048];

	(void)snprintf(id, sizeof(id), "fake#share#%s#%s#", v->dir,
		       strcmp(v->key, v->dir) != 0 ? v->key : "");
	*rec = (struct record){ .n = 0 };
	ck_assert(record_set(rec, VOLUME_KEY_NAME, v->key) == 0);
	ck_assert(record_set(rec, VOLUME_KEY_ID, id) == 0);
	ck_assert(record_set(rec, VOLUME_KEY_DIR, v->dir) == 0);
	ck_assert(record_set(rec, VOLUME_KEY_SIZE, v->size) == 0);
	ck_assert(record_set(rec, VOLUME_KEY_MODE, v->mode) == 0);
	ck_assert(record_set(rec, VOLUME_KEY_ON_DELETE, v->on_delete) == 0);
	ck_assert(record_set(rec, VOLUME_CONTEXT_PREFIX "extra", extra) == 0);
	if (v->claim != NULL)
		ck_assert(record_set(rec, VOLUME_KEY_CLAIM, v->claim) == 0);
	if (v->existing != NULL)
		ck_assert(record_set(rec, VOLUME_KEY_EXISTING, v->existing) == 0);
}

/* One call, on a client of its own, as after a restart of the driver. */
static int create_as(struct fake_nfs *f, uint32_t uid, const struct sample *v, int64_t required,
		     struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	const struct volume_capacity capacity = { .required = required };
	cleanup_record struct record rec = { .n = 0 };

	c->export.uid = c->export.gid = uid;
	describe(v, &rec);
	error_clear(err);
	return volume_create(c, v->key, &rec, &capacity, NULL, err);
}

static int create(struct fake_nfs *f, const struct sample *v, int64_t required, struct error *err)
{
	return create_as(f, 0, v, required, err);
}

static int delete_at(struct fake_nfs *f, const char *server, const char *subdir, const char *uuid,
		     const char *on_delete, enum volume_on_delete policy, bool *ret_trashed,
		     struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const struct volume_disposal how = { .policy = policy };
	cleanup_record struct record rec = { .n = 0 };
	int r;

	id.server = strdup(server);
	id.share = strdup("share");
	id.subdir = strdup(subdir);
	id.uuid = strdup(uuid);
	id.on_delete = strdup(on_delete);
	error_clear(err);
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_delete(c, &id, &rec, &how, ret_trashed, err);
}

static int delete_as(struct fake_nfs *f, const char *subdir, const char *uuid,
		     const char *on_delete, enum volume_on_delete policy, bool *ret_trashed,
		     struct error *err)
{
	return delete_at(f, "fake", subdir, uuid, on_delete, policy, ret_trashed, err);
}

static int delete_telling(struct fake_nfs *f, const struct sample *v, bool *ret_trashed,
			  struct error *err)
{
	bool own = strcmp(v->key, v->dir) == 0;

	return delete_as(f, v->dir, own ? "" : v->key,
			 strcmp(v->on_delete, "delete") == 0 ? "" : v->on_delete, ON_DELETE_DELETE,
			 ret_trashed, err);
}

static int delete (struct fake_nfs *f, const struct sample *v, struct error *err)
{
	bool unused;

	return delete_telling(f, v, &unused, err);
}

static int create_empty(struct fake_nfs *f, const struct sample *v, struct error *err)
{
	return create(f, v, 0, err);
}

static int find(struct fake_nfs *f, const struct sample *v, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_record struct record rec = { .n = 0 };
	int r;

	id.server = strdup("fake");
	id.share = strdup("share");
	id.subdir = strdup(v->dir);
	id.uuid = strdup(v->key);
	id.on_delete = strdup("");
	error_clear(err);
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_find(c, &id, &rec, err);
}

static char *list_share(struct fake_nfs *f, const char *skip)
{
	char *list = fake_nfs_list(f, skip);

	check_shorten_notes(list);
	return list;
}

static void check_share(const char *row, struct fake_nfs *f, const char *skip, const char *want)
{
	cleanup_free char *got = list_share(f, skip);

	check_str(row, "what is on the share", got, want);
}

START_TEST(test_life)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		const char *row = kind_names[i];
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(row, "find before", find(f, kinds[i], &err), -ENOENT);
		check_error(row, &err, ERROR_NOT_FOUND, NULL);
		check_share(row, f, NULL, "");
		check_int(row, "create", create(f, kinds[i], 10, &err), 0);
		check_int(row, "type", fake_nfs_type(f, kinds[i]->dir), NFS_TYPE_DIRECTORY);
		check_int(row, "create again", create(f, kinds[i], 10, &err), 0);
		check_int(row, "find", find(f, kinds[i], &err), 0);
		check_int(row, "delete", delete (f, kinds[i], &err), 0);
		check_int(row, "delete again", delete (f, kinds[i], &err), 0);
		check_int(row, "find afterwards", find(f, kinds[i], &err), -ENOENT);
		check_int(row, "type afterwards", fake_nfs_type(f, kinds[i]->dir),
			  NFS_TYPE_UNKNOWN);
		fake_nfs_free(f);
	}
}
END_TEST

START_TEST(test_left_behind)
{
	static const struct {
		const char *name;
		const struct sample *volume;
		const char *left;
	} rows[] = {
		{ "flat", &flat, FOLDERS },
		{ "nested", &nested,
		  ".csi-nfs/\n.csi-nfs/busy/\n.csi-nfs/parents/\n.csi-nfs/trash/\n.csi-nfs/users/\n"
		  ".csi-nfs/volumes/\n" },
		{ "archived", &archived,
		  ".csi-nfs/\n.csi-nfs/busy/\n.csi-nfs/parents/\n.csi-nfs/parents/archived-a\n"
		  ".csi-nfs/parents/archived-a%2Fb\n"
		  ".csi-nfs/trash/\n.csi-nfs/users/\n.csi-nfs/volumes/\n"
		  "archived-a/\narchived-a/b/\narchived-a/b/d/\n" },
		{ "long record", &wordy, FOLDERS },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "create", create(f, rows[i].volume, 0, &err), 0);
		check_int(rows[i].name, "delete", delete (f, rows[i].volume, &err), 0);
		check_share(rows[i].name, f, NULL, rows[i].left);
		fake_nfs_free(f);
	}
}
END_TEST

START_TEST(test_already_exists)
{
	static const struct {
		const char *name;
		struct sample volume;
		int64_t required;
		const char *word; /* NULL: the same volume */
	} rows[] = {
		{ "the same",
		  { "pvc-1", "pvc-1", "delete", "0000", "10", 0, NULL, NULL },
		  10,
		  NULL },
		{ "smaller", { "pvc-1", "pvc-1", "delete", "0000", "5", 0, NULL, NULL }, 5, NULL },
		{ "no size", { "pvc-1", "pvc-1", "delete", "0000", "0", 0, NULL, NULL }, 0, NULL },
		{ "larger",
		  { "pvc-1", "pvc-1", "delete", "0000", "11", 0, NULL, NULL },
		  11,
		  "size" },
		{ "other directory",
		  { "pvc-1", "a/b", "delete", "0000", "10", 0, NULL, NULL },
		  10,
		  "subDir" },
		{ "other policy",
		  { "pvc-1", "pvc-1", "retain", "0000", "10", 0, NULL, NULL },
		  10,
		  "onDelete" },
		{ "other mode",
		  { "pvc-1", "pvc-1", "delete", "0777", "10", 0, NULL, NULL },
		  10,
		  "mountPermissions" },
		{ "other mode, long record",
		  { "pvc-1", "pvc-1", "delete", "0777", "10", 2000, NULL, NULL },
		  10,
		  "mountPermissions" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		cleanup_free char *before = NULL;
		struct error err = { .code = ERROR_OK };
		bool same = rows[i].word == NULL;

		check_int(rows[i].name, "first", create(f, &flat, 10, &err), 0);
		before = fake_nfs_list(f, NULL);
		check_int(rows[i].name, "second",
			  create(f, &rows[i].volume, rows[i].required, &err), same ? 0 : -EEXIST);
		check_error(rows[i].name, &err, same ? ERROR_OK : ERROR_ALREADY_EXISTS,
			    rows[i].word);
		check_share(rows[i].name, f, NULL, before);
		fake_nfs_free(f);
	}
}
END_TEST

/* kubelet sets the setgid bit for fsGroup, and the CO may ask again for what it has. */
START_TEST(test_special_bits_stay)
{
	static const struct {
		const char *name, *asked;
		uint32_t before, after;
		bool bare; /* replies have no mode */
	} rows[] = {
		{ "setgid of kubelet", "0770", 02770, 02770, false },
		{ "setgid, bare replies", "0770", 02770, 02770, true },
		{ "other permissions", "0770", 03755, 03770, false },
		{ "a special bit is asked for", "1777", 02770, 01777, false },
		{ "none there", "0770", 0755, 0770, true },
		{ "no mode is asked for", "0000", 02755, 02755, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct nfs_attr before = { .has_mode = true, .mode = rows[i].before };
		const struct fake_habits habits = { .bare = rows[i].bare };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		struct sample v = flat;

		v.mode = rows[i].asked;
		fake_nfs_habits(f, &habits);
		fake_nfs_put(f, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
		fake_nfs_set(f, "pvc-1", &before);
		check_int(rows[i].name, "adopt", create(f, &v, 0, &err), 0);
		check_int(rows[i].name, "adopted", fake_nfs_mode(f, "pvc-1"), rows[i].after);
		fake_nfs_set(f, "pvc-1", &before);
		check_int(rows[i].name, "again", create(f, &v, 0, &err), 0);
		check_int(rows[i].name, "asked for again", fake_nfs_mode(f, "pvc-1"),
			  rows[i].after);
		fake_nfs_free(f);
	}
}
END_TEST

START_TEST(test_contents)
{
	struct fake_nfs *f = fake_nfs_new();
	cleanup_free char *trash = NULL;
	struct error err = { .code = ERROR_OK };
	bool trashed = false;

	check_int("create", "result", create(f, &nested, 0, &err), 0);
	check_int("create", "mode", fake_nfs_mode(f, "a/b/c/d"), 0770);
	fake_nfs_put(f, "a/b/c/d/file", NFS_TYPE_FILE, NULL);
	check_int("delete", "result",
		  delete_as(f, "a/b/c/d", "pvc-1", "", ON_DELETE_DELETE, &trashed, &err), 0);
	check_that("delete", "something is to be purged", trashed);
	check_share("delete", f, ".csi-nfs", "");
	trash = fake_nfs_list(f, NULL);
	check_that("delete", "the file is in the trash",
		   strstr(trash, ".csi-nfs/trash/a%2Fb%2Fc%2Fd.") != NULL &&
			   strstr(trash, "/file\n") != NULL);
	fake_nfs_free(f);
}
END_TEST

/* Which policy counts: the record's, the id's where there is no record, the default's last. */
START_TEST(test_policy)
{
	static const struct {
		const char *name;
		const char *recorded; /* NULL: the volume has no record */
		const char *in_id;
		enum volume_on_delete fallback;
		bool stays, archived;
	} rows[] = {
		{ "default delete", NULL, "", ON_DELETE_DELETE, false, false },
		{ "default retain", NULL, "", ON_DELETE_RETAIN, true, false },
		{ "default archive", NULL, "", ON_DELETE_ARCHIVE, false, true },
		{ "id says retain", NULL, "Retain", ON_DELETE_DELETE, true, false },
		{ "id says archive", NULL, "ARCHIVE", ON_DELETE_DELETE, false, true },
		{ "id says nonsense", NULL, "later", ON_DELETE_DELETE, true, false },
		{ "record says delete", "delete", "retain", ON_DELETE_RETAIN, false, false },
		{ "record says retain", "retain", "", ON_DELETE_DELETE, true, false },
		{ "record says archive", "archive", "", ON_DELETE_DELETE, false, true },
		{ "record says nonsense", "ret", "", ON_DELETE_DELETE, true, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct sample v = flat;
		struct error err = { .code = ERROR_OK };
		bool trashed;

		if (rows[i].recorded != NULL) {
			v.on_delete = rows[i].recorded;
			check_int(rows[i].name, "create", create(f, &v, 0, &err), 0);
		}
		fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
		check_int(rows[i].name, "delete",
			  delete_as(f, "pvc-1", "", rows[i].in_id, rows[i].fallback, &trashed,
				    &err),
			  0);
		check_int(rows[i].name, "still there",
			  fake_nfs_type(f, "pvc-1/file") != NFS_TYPE_UNKNOWN, rows[i].stays);
		check_int(rows[i].name, "archived",
			  fake_nfs_type(f, "archived-pvc-1/file") != NFS_TYPE_UNKNOWN,
			  rows[i].archived);
		check_int(rows[i].name, "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"),
			  NFS_TYPE_UNKNOWN);
		fake_nfs_free(f);
	}
}
END_TEST

static void create_without_policy(struct fake_nfs *f)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	const struct volume_capacity capacity = { .required = 0 };
	cleanup_record struct record rec = { .n = 0 };
	struct error err = { .code = ERROR_OK };

	describe(&flat, &rec);
	record_unset(&rec, VOLUME_KEY_ON_DELETE);
	ck_assert(record_set(&rec, VOLUME_KEY_VERSION, "3") == 0);
	ck_assert(volume_create(c, flat.key, &rec, &capacity, NULL, &err) == 0);
}

/* An interrupted deletion is finished by the default that it began with. */
START_TEST(test_default_changes)
{
	static const struct {
		const char *name;
		enum volume_on_delete first, second;
		bool stays, archived;
	} rows[] = {
		{ "delete, archive", ON_DELETE_DELETE, ON_DELETE_ARCHIVE, false, false },
		{ "delete, retain", ON_DELETE_DELETE, ON_DELETE_RETAIN, false, false },
		{ "archive, delete", ON_DELETE_ARCHIVE, ON_DELETE_DELETE, false, true },
		{ "archive, retain", ON_DELETE_ARCHIVE, ON_DELETE_RETAIN, false, true },
		{ "retain, delete", ON_DELETE_RETAIN, ON_DELETE_DELETE, true, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		unsigned int buried = 0, n;
		int r = -EIO;

		for (n = 1; r < 0; n++) {
			const struct fake_failure failure = {
				.nth = n, .error = -ECONNABORTED, .after = n % 2 == 0, .all = true
			};
			struct fake_nfs *f = fake_nfs_new();
			cleanup_free char *list = NULL;
			struct error err = { .code = ERROR_OK };
			bool trashed, has_begun;

			create_without_policy(f);
			fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
			fake_nfs_fail(f, &failure);
			r = delete_as(f, "pvc-1", "", "", rows[i].first, &trashed, &err);
			fake_nfs_fail(f, NULL);
			list = fake_nfs_list(f, NULL);
			has_begun = strstr(list, ".csi-nfs/volumes/pvc-1\n") == NULL;
			buried += strstr(list, ".csi-nfs/busy/pvc-1~") != NULL;
			check_int(rows[i].name, "again",
				  delete_as(f, "pvc-1", "", "", rows[i].second, &trashed, &err), 0);
			if (has_begun) {
				check_int(rows[i].name, "still there",
					  fake_nfs_type(f, "pvc-1/file") != NFS_TYPE_UNKNOWN,
					  rows[i].stays);
				check_int(rows[i].name, "archived",
					  fake_nfs_type(f, "archived-pvc-1/file") !=
						  NFS_TYPE_UNKNOWN,
					  rows[i].archived);
			}
			fake_nfs_free(f);
		}
		ck_assert_msg(buried > 3, "%s: interrupted %u times", rows[i].name, buried);
	}
}
END_TEST

static void put_file(struct fake_nfs *f, const char *dir)
{
	cleanup_free char *path = NULL;

	ck_assert(asprintf(&path, "%s/file", dir) > 0);
	fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
}

/* Count the files "file" of volumes and archives. */
static size_t count_files(struct fake_nfs *f)
{
	cleanup_free char *list = fake_nfs_list(f, ".csi-nfs");
	const char *p;
	size_t n = 0;

	for (p = strstr(list, "/file\n"); p != NULL; p = strstr(p + 1, "/file\n"))
		n++;
	return n;
}

/* Names that are taken, two and three times over: nothing that was archived is lost. */
START_TEST(test_archive_collision)
{
	struct fake_nfs *f = fake_nfs_new();
	struct sample v = flat;
	struct error err = { .code = ERROR_OK };
	size_t i;

	v.on_delete = "archive";
	for (i = 0; i < 4; i++) {
		check_int("collision", "create", create(f, &v, 0, &err), 0);
		fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
		check_int("collision", "delete", delete (f, &v, &err), 0);
		check_int("collision", "delete again", delete (f, &v, &err), 0);
	}
	check_int("collision", "archives", count_files(f), 4);
	check_int("collision", "first name", fake_nfs_type(f, "archived-pvc-1/file"),
		  NFS_TYPE_FILE);
	fake_nfs_free(f);
}
END_TEST

#define OWNER 1000

/* DeleteVolume as the owner; the nth operation fails. */
static int archive_as_owner(struct fake_nfs *f, unsigned int nth, int error, bool after,
			    struct error *err)
{
	const struct fake_failure failure = { .nth = nth, .error = error, .after = after };
	const struct volume_disposal how = { .policy = ON_DELETE_ARCHIVE };
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = strdup("fake"),
						  .share = strdup("share"),
						  .subdir = strdup("ns/pvc-1"),
						  .uuid = strdup("pvc-1"),
						  .on_delete = strdup("archive") };
	cleanup_record struct record rec = { .n = 0 };
	bool trashed;
	int r;

	c->export.uid = c->export.gid = OWNER;
	fake_nfs_fail(f, &failure);
	error_clear(err);
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_delete(c, &id, &rec, &how, &trashed, err);
}

/* A volume on a share that squashes root, whose owner may not write to its root. */
static struct fake_nfs *prepare_closed_volume(void)
{
	static const struct sample v = { .key = "pvc-1",
					 .dir = "ns/pvc-1",
					 .on_delete = "archive",
					 .mode = "0555",
					 .size = "10" };
	static const struct fake_habits habits = { .modes = true };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	fake_nfs_set(f, "", &(struct nfs_attr){ .mode = 0755, .uid = OWNER, .gid = OWNER });
	check_int("closed", "create", create_as(f, OWNER, &v, 0, &err), 0);
	fake_nfs_put(f, "ns/pvc-1/file", NFS_TYPE_FILE, NULL);
	fake_nfs_habits(f, &habits);
	fake_nfs_squash(f);
	return f;
}

/* A rename to another parent needs the right to write to the directory itself. */
START_TEST(test_archive_closed)
{
	static const struct {
		const char *name;
		int error;
		bool after;
	} ways[] = {
		{ "undisturbed", 0, false },
		{ "killed", -ECONNABORTED, false },
		{ "killed after it took effect", -ECONNABORTED, true },
		{ "input/output error", -EIO, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		unsigned int n, opened = 0;
		bool failed = true;

		for (n = ways[i].error != 0; failed; n++) {
			struct fake_nfs *f = prepare_closed_volume();
			struct error err = { .code = ERROR_OK };
			char row[128];
			uint32_t mode;

			(void)snprintf(row, sizeof(row), "%s, operation %u", ways[i].name, n);
			(void)archive_as_owner(f, n, ways[i].error, ways[i].after, &err);
			failed = n > 0 && fake_nfs_operations(f) >= n;
			if (archive_as_owner(f, 0, 0, false, &err) < 0)
				ck_abort_msg("%s: %s", row, err.msg);
			mode = fake_nfs_mode(f, "archived-ns/pvc-1");
			/* A kill may leave it open to its owner, and so may the last SETATTR. */
			opened += failed && (mode & 0200) != 0;
			check_int(row, "mode", failed ? mode & ~0200U : mode, 0555);
			check_int(row, "what is in it", fake_nfs_type(f, "archived-ns/pvc-1/file"),
				  NFS_TYPE_FILE);
			check_int(row, "the volume's place", fake_nfs_type(f, "ns"),
				  NFS_TYPE_UNKNOWN);
			fake_nfs_free(f);
		}
		check_that(ways[i].name, "it was closed", ways[i].error != -EIO || opened <= 1);
		check_that(ways[i].name, "there were operations", ways[i].error == 0 || n > 20);
	}
}
END_TEST

/* An empty directory that somebody else made counts as taken too: RENAME would replace it. */
START_TEST(test_archive_empty_there)
{
	struct fake_nfs *f = fake_nfs_new();
	struct sample v = flat;
	struct error err = { .code = ERROR_OK };

	v.on_delete = "archive";
	fake_nfs_put(f, "archived-pvc-1", NFS_TYPE_DIRECTORY, NULL);
	check_int("empty", "create", create(f, &v, 0, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	check_int("empty", "delete", delete (f, &v, &err), 0);
	check_int("empty", "still there", fake_nfs_type(f, "archived-pvc-1"), NFS_TYPE_DIRECTORY);
	check_int("empty", "untouched", fake_nfs_type(f, "archived-pvc-1/file"), NFS_TYPE_UNKNOWN);
	check_int("empty", "moved", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
	check_int("empty", "archives", count_files(f), 1);
	fake_nfs_free(f);
}
END_TEST

/* "archived-" and a name of 250 bytes are more than a name may have. */
START_TEST(test_archive_long_name)
{
	cleanup_free char *name = check_repeat("n", 250);
	struct fake_nfs *f = fake_nfs_new();
	struct sample v = { "pvc-1", name, "archive", "0000", "10", 0, NULL, NULL };
	struct error err = { .code = ERROR_OK };

	check_int("long name", "create", create(f, &v, 0, &err), 0);
	put_file(f, name);
	check_int("long name", "delete", delete (f, &v, &err), 0);
	check_error("long name", &err, ERROR_OK, NULL);
	check_int("long name", "gone", fake_nfs_type(f, name), NFS_TYPE_UNKNOWN);
	check_int("long name", "archives", count_files(f), 1);
	fake_nfs_free(f);
}
END_TEST

/* So are a name of 255 bytes and a date, wherever the name is. */
START_TEST(test_archive_long_names)
{
	static const char *const above[] = { "", "ns/", "ns/team/" };
	cleanup_free char *name = check_repeat("n", 255);
	size_t i, times;

	for (i = 0; i < ARRAY_SIZE(above); i++) {
		struct sample v = { "pvc-1", NULL, "archive", "0000", "10", 0, NULL, NULL };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *dir = NULL;

		ck_assert(asprintf(&dir, "%s%s", above[i], name) > 0);
		v.dir = dir;
		for (times = 0; times < 3; times++) {
			check_int(dir, "create", create(f, &v, 0, &err), 0);
			put_file(f, dir);
			check_int(dir, "delete", delete (f, &v, &err), 0);
			check_error(dir, &err, ERROR_OK, NULL);
			check_int(dir, "gone", fake_nfs_type(f, dir), NFS_TYPE_UNKNOWN);
			check_int(dir, "archives", count_files(f), times + 1);
		}
		fake_nfs_free(f);
	}
}
END_TEST

/* Parents go with the last volume in them, and only those that the driver made. */
START_TEST(test_parents)
{
	static const struct sample first = { "pvc-1", "ns/team/one", "delete", "0000", "0",
					     0,       NULL,          NULL };
	static const struct sample second = { "pvc-2", "ns/team/two", "delete", "0000", "0",
					      0,       NULL,          NULL };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	fake_nfs_put(f, "ns", NFS_TYPE_DIRECTORY, NULL);
	check_int("first", "create", create(f, &first, 0, &err), 0);
	check_int("second", "create", create(f, &second, 0, &err), 0);
	check_int("first", "delete", delete (f, &first, &err), 0);
	check_share("first", f, ".csi-nfs", "ns/\nns/team/\nns/team/two/\n");
	check_int("second", "delete", delete (f, &second, &err), 0);
	check_share("second", f, ".csi-nfs", "ns/\n");
	check_share("all", f, "ns",
		    ".csi-nfs/\n.csi-nfs/busy/\n.csi-nfs/parents/\n.csi-nfs/trash/\n.csi-nfs/users/\n"
		    ".csi-nfs/volumes/\n");
	check_int("third", "create", create(f, &first, 0, &err), 0);
	fake_nfs_put(f, "ns/team/of-somebody", NFS_TYPE_FILE, NULL);
	check_int("third", "delete", delete (f, &first, &err), 0);
	check_share("third", f, ".csi-nfs", "ns/\nns/team/\nns/team/of-somebody\n");
	fake_nfs_free(f);
}
END_TEST

/* What stands in the way is neither followed nor replaced, and nothing stays of the attempt. */
START_TEST(test_in_the_way)
{
	static const struct {
		const char *name;
		const struct sample *volume;
		const char *path;
		enum nfs_type type;
		const char *text;
	} rows[] = {
		{ "file", &flat, "pvc-1", NFS_TYPE_FILE, NULL },
		{ "link", &flat, "pvc-1", NFS_TYPE_SYMLINK, "/etc" },
		{ "link above", &nested, "a", NFS_TYPE_SYMLINK, "." },
		{ "file above", &nested, "a", NFS_TYPE_FILE, NULL },
		{ "file two above", &nested, "a/b", NFS_TYPE_FILE, NULL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *before = NULL;
		char quoted[16];

		(void)snprintf(quoted, sizeof(quoted), "'%s'", rows[i].path);
		fake_nfs_put(f, rows[i].path, rows[i].type, rows[i].text);
		before = fake_nfs_list(f, NULL);
		check_that(rows[i].name, "create fails", create(f, rows[i].volume, 0, &err) < 0);
		check_error(rows[i].name, &err, ERROR_FAILED_PRECONDITION, quoted);
		check_share(rows[i].name, f, ".csi-nfs", before);
		check_int(rows[i].name, "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"),
			  NFS_TYPE_UNKNOWN);
		fake_nfs_free(f);
	}
}
END_TEST

/* A directory that was there, with what is in it and its mode, is adopted. */
START_TEST(test_adopted)
{
	struct sample v = flat;
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	check_int("mode left", "create", create(f, &v, 0, &err), 0);
	check_int("mode left", "mode", fake_nfs_mode(f, "pvc-1"), 0755);
	check_int("mode left", "file", fake_nfs_type(f, "pvc-1/file"), NFS_TYPE_FILE);
	check_int("mode left", "delete", delete (f, &v, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	v.mode = "2770";
	check_int("mode set", "create", create(f, &v, 0, &err), 0);
	check_int("mode set", "mode", fake_nfs_mode(f, "pvc-1"), 02770);
	fake_nfs_free(f);
}
END_TEST

struct moment {
	const char *dir, *name; /* the directory, and the last part of its path */
	unsigned int from, until; /* LOOKUPs of the name that do not find it; until is excluded */
	unsigned int lookups;
};

static void take_away_for_a_moment(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct moment *m = data;

	if (op->type != NFS_OP_LOOKUP || op->name == NULL || strcmp(op->name, m->name) != 0)
		return;
	m->lookups++;
	if (m->lookups == m->from)
		fake_nfs_remove(f, m->dir);
	else if (m->lookups == m->until && fake_nfs_type(f, m->dir) == NFS_TYPE_UNKNOWN)
		fake_nfs_put(f, m->dir, NFS_TYPE_DIRECTORY, NULL);
}

/* Return whether the directory was taken away. */
static bool create_meanwhile(const struct sample *v, struct moment m)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	char row[64];

	(void)snprintf(row, sizeof(row), "%s, away at %u, back at %u", v->dir, m.from, m.until);
	m.dir = v->dir;
	m.name = strrchr(v->dir, '/') != NULL ? strrchr(v->dir, '/') + 1 : v->dir;
	check_int(row, "create", create(f, v, 0, &err), 0);
	fake_nfs_watch(f, take_away_for_a_moment, &m);
	if (create(f, v, 0, &err) < 0)
		check_error(row, &err, ERROR_ABORTED, "try again");
	else
		check_int(row, "type", fake_nfs_type(f, v->dir), NFS_TYPE_DIRECTORY);
	fake_nfs_free(f);
	return m.lookups >= m.from;
}

/*
 * During a repeated creation, another replica deletes the directory, and a third call makes it
 * again. The caller, who asked for no existing directory, reads no final code, and no OK without a
 * directory.
 */
START_TEST(test_away_for_a_moment)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct moment m = { .from = 1 };

		for (; create_meanwhile(kinds[i], m); m.from++)
			for (m.until = m.from + 1; m.until < m.from + 5; m.until++)
				(void)create_meanwhile(kinds[i], m);
		check_that(kind_names[i], "there were lookups", m.from > 2);
	}
}
END_TEST

#define CLAIMED_RECORD ".csi-nfs/volumes/pvc-1"

/* It has the directory that the claim is about. */
static const struct sample overlapping = {
	.key = "pvc-2", .dir = "a/b", .on_delete = "delete", .mode = "0000", .size = "10"
};

/* Another replica takes the record away, as store/text.c does, and may put it back later. */
static void take_record_away(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)data;
	if (op->type != NFS_OP_SYMLINK && fake_nfs_type(f, CLAIMED_RECORD) != NFS_TYPE_UNKNOWN)
		fake_nfs_remove(f, CLAIMED_RECORD);
}

/* A refused creation that cannot tell what becomes of its record is to be repeated. */
START_TEST(test_record_gone)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("another one", "create", create(f, &overlapping, 0, &err), 0);
	fake_nfs_watch(f, take_record_away, NULL);
	check_that("while it is away", "fails", create(f, &claimed, 0, &err) < 0);
	check_error("while it is away", &err, ERROR_ABORTED, "overlaps");
	fake_nfs_watch(f, NULL, NULL);
	check_that("once it is back", "fails", create(f, &claimed, 0, &err) < 0);
	check_error("once it is back", &err, ERROR_FAILED_PRECONDITION, "overlaps");
	check_int("once it is back", "record", fake_nfs_type(f, CLAIMED_RECORD), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

/* Records that somebody wrote or damaged lead nowhere. */
START_TEST(test_bad_record)
{
	static const struct {
		const char *name;
		const char *text;
	} rows[] = {
		{ "way out", "v=1;name=pvc-1;dir=../../etc" },
		{ "absolute", "v=1;name=pvc-1;dir=/etc" },
		{ "the driver's folder", "v=1;name=pvc-1;dir=.csi-nfs/volumes" },
		{ "no directory", "v=1;name=pvc-1" },
		{ "empty directory", "v=1;name=pvc-1;dir=" },
		{ "not a record", "/etc/passwd" },
		{ "of a later version", "v=2;dir=pvc-1" },
		{ "parts that are not there", "v=1;parts=2;hash=0123456789abcdef" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *before = NULL;

		fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
		fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK, rows[i].text);
		before = fake_nfs_list(f, NULL);
		check_that(rows[i].name, "delete fails", delete (f, &flat, &err) < 0);
		check_error(rows[i].name, &err, ERROR_FAILED_PRECONDITION, "pvc-1");
		check_that(rows[i].name, "create fails", create(f, &flat, 0, &err) < 0);
		check_that(rows[i].name, "find fails", find(f, &flat, &err) < 0);
		check_share(rows[i].name, f, NULL, before);
		fake_nfs_free(f);
	}
}
END_TEST

/* csi-driver-nfs may make the directory of a volume whose creation was interrupted. */
START_TEST(test_find_unfinished)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK,
		     "v=1;name=pvc-1;id=fake%23share%23pvc-1%23%23;dir=pvc-1;size=10;mode=0000;"
		     "src=volume%20fake%23share%23pvc-2%23%23");
	check_int("no directory", "find", find(f, &flat, &err), -ENOENT);
	check_error("no directory", &err, ERROR_NOT_FOUND, "directory 'pvc-1'");
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	check_int("directory", "find", find(f, &flat, &err), -ENOENT);
	check_error("directory", &err, ERROR_NOT_FOUND, "unfinished");
	fake_nfs_free(f);
}
END_TEST

/*
 * A paused deletion of an earlier volume has moved the directory, and puts it back. No code may
 * tell the caller that the volume does not exist.
 */
START_TEST(test_find_moved)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("made", "create", create_empty(f, &flat, &err), 0);
	fake_nfs_remove(f, "pvc-1");
	check_int("gone", "find", find(f, &flat, &err), -ENOENT);
	check_error("gone", &err, ERROR_NOT_FOUND, "directory 'pvc-1'");
	fake_nfs_put(f, ".csi-nfs/trash/pvc-1.1.2.h3/file", NFS_TYPE_FILE, NULL);
	check_that("moved", "find fails", find(f, &flat, &err) < 0);
	check_error("moved", &err, ERROR_ABORTED, "pvc-1");
	fake_nfs_put(f, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
	check_int("back", "find", find(f, &flat, &err), 0);
	fake_nfs_free(f);
}
END_TEST

/* Where root is squashed, only the user that began a deletion may remove what is left of it. */
START_TEST(test_owner_of_remains)
{
	const struct volume_disposal how = { .policy = ON_DELETE_DELETE };
	const struct volume_owner squashed = { .has_uid = false };
	unsigned int n, graves = 0;
	bool killed = true;

	for (n = 1; killed; n++) {
		const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		cleanup_volume_id struct volume_id id = { .server = NULL };
		cleanup_record struct record rec = { .n = 0 };
		struct error err = { .code = ERROR_OK };
		struct volume_owner owner = squashed;
		bool unused;

		check_int("made", "create", create_as(f, 1000, &wordy, 10, &err), 0);
		check_int("id", "parse", volume_id_parse(&id, "fake#share#pvc-1##"), 0);
		c->export.uid = c->export.gid = 1000;
		check_int("record", "read", volume_read(c, &id, &rec, &err), 0);
		fake_nfs_fail(f, &failure);
		(void)volume_delete(c, &id, &rec, &how, &unused, &err);
		killed = fake_nfs_operations(f) >= n;
		fake_nfs_fail(f, NULL);
		nfs_client_free(c);
		c = fake_nfs_connect(f);
		error_clear(&err);
		check_int("owner", "find", volume_find_buried_owner(c, &id, &owner, &err), 0);
		if (fake_nfs_type(f, ".csi-nfs/volumes/pvc-1~removed") != NFS_TYPE_UNKNOWN) {
			graves++;
			check_that("grave", "its owner is found",
				   owner.has_uid && owner.uid == 1000 && owner.has_gid);
		}
		nfs_client_free(c);
		fake_nfs_free(f);
	}
	check_that("killed", "some have left a grave", graves > 1);
}
END_TEST

/* Another replica finishes the volume, a pod writes, and the volume is deleted, and retained. */
static void retain_after_mkdir(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *left = data;

	if (*left == 2 && op->type == NFS_OP_MKDIR && strcmp(op->name, "pvc-1") == 0) {
		*left = 1;
	} else if (*left == 1) {
		*left = 0;
		fake_nfs_remove(f, ".csi-nfs/volumes/pvc-1");
		fake_nfs_put(f, "pvc-1/data", NFS_TYPE_FILE, NULL);
	}
}

/* A creation that was paused after it had made the directory takes back only an empty one. */
START_TEST(test_retained_while_it_was_made)
{
	static const struct sample retained = { "pvc-1", "pvc-1", "retain", "0000",
						"10",    0,       NULL,     NULL };
	static const struct sample *const samples[] = { &retained, &flat };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(samples); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		unsigned int left = 2;

		fake_nfs_watch(f, retain_after_mkdir, &left);
		check_that(samples[i]->on_delete, "create fails",
			   create(f, samples[i], 0, &err) < 0);
		check_error(samples[i]->on_delete, &err, ERROR_ABORTED, "has deleted");
		fake_nfs_watch(f, NULL, NULL);
		check_int(samples[i]->on_delete, "it happened", left, 0);
		check_int(samples[i]->on_delete, "data", fake_nfs_type(f, "pvc-1/data"),
			  NFS_TYPE_FILE);
		check_int(samples[i]->on_delete, "again", create(f, samples[i], 0, &err), 0);
		fake_nfs_free(f);
	}
}
END_TEST

/* An id that joins the key of one volume with the directory of another acts on neither. */
START_TEST(test_id_of_another_directory)
{
	struct fake_nfs *f = fake_nfs_new();
	const struct sample mixed = { .key = "pvc-1", .dir = "other" };
	cleanup_free char *before = NULL;
	struct error err = { .code = ERROR_OK };
	bool trashed;

	check_int("mixed", "create", create(f, &flat, 0, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, "other/file", NFS_TYPE_FILE, NULL);
	before = fake_nfs_list(f, NULL);
	check_that("mixed", "delete fails",
		   delete_as(f, "other", "pvc-1", "", ON_DELETE_DELETE, &trashed, &err) < 0);
	check_error("mixed", &err, ERROR_FAILED_PRECONDITION, "'other'");
	check_that("mixed", "find fails", find(f, &mixed, &err) < 0);
	check_error("mixed", &err, ERROR_FAILED_PRECONDITION, "'other'");
	check_share("mixed", f, NULL, before);
	fake_nfs_free(f);
}
END_TEST

/*
 * An id that would be too long has the volume's key in place of the directory. The id of a static
 * volume, whose directory is named like a volume, looks the same.
 */
START_TEST(test_id_without_its_directory)
{
	const struct volume_capacity capacity = { .required = 0 };
	cleanup_record struct record rec = { .n = 0 };
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	struct error err = { .code = ERROR_OK };
	cleanup_free char *address = NULL;
	bool trashed;

	check_int("static", "create", create(f, &nested, 0, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	check_that("static", "delete fails",
		   delete_as(f, "pvc-1", "", "", ON_DELETE_DELETE, &trashed, &err) < 0);
	check_error("static", &err, ERROR_FAILED_PRECONDITION, "'a/b/c/d'");
	check_int("static", "directory", fake_nfs_type(f, "a/b/c/d"), NFS_TYPE_DIRECTORY);
	check_int("static", "its own", fake_nfs_type(f, "pvc-1/file"), NFS_TYPE_FILE);
	fake_nfs_remove(f, "pvc-1");
	check_int("static", "delete",
		  delete_as(f, "a/b/c/d", "pvc-1", "", ON_DELETE_DELETE, &trashed, &err), 0);
	error_clear(&err);

	describe(&nested, &rec);
	ck_assert(record_set(&rec, VOLUME_KEY_ID, "fake#share#pvc-1##") == 0);
	check_int("short id", "create", volume_create(c, "pvc-1", &rec, &capacity, NULL, &err), 0);
	check_int("short id", "delete",
		  delete_as(f, "pvc-1", "", "", ON_DELETE_DELETE, &trashed, &err), 0);
	check_int("short id", "directory", fake_nfs_type(f, "a"), NFS_TYPE_UNKNOWN);

	/* The id was shortened since the share has a longer address by now. */
	address = check_repeat("s", 120);
	check_int("moved", "create", create(f, &nested, 0, &err), 0);
	check_int("moved", "delete",
		  delete_at(f, address, "pvc-1", "", "", ON_DELETE_DELETE, &trashed, &err), 0);
	check_int("moved", "directory", fake_nfs_type(f, "a"), NFS_TYPE_UNKNOWN);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* A record that was cut is damaged, or leads to the same directory and the same policy. */
START_TEST(test_cut_record)
{
	static const char text[] =
		"v=1;name=pvc-1;id=fake%23share%23a/b%23pvc-1%23retain;dir=a/b;size=1073741824;"
		"mode=0770;ondelete=retain;existing=adopt;vers=3";
	static const struct sample retained = { .key = "pvc-1",
						.dir = "a/b",
						.on_delete = "retain",
						.mode = "0770",
						.size = "1073741824" };
	size_t n;

	for (n = 0; n < strlen(text); n++) {
		cleanup_free char *cut = strndup(text, n);
		cleanup_volume_id struct volume_id id = { .server = NULL };
		cleanup_record struct record rec = { .n = 0 };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct error err = { .code = ERROR_OK };
		const char *dir;
		struct volume v;
		int r;

		ck_assert(cut != NULL);
		fake_nfs_put(f, "a/b/file", NFS_TYPE_FILE, NULL);
		fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK, cut);
		ck_assert_int_eq(volume_id_parse(&id, "fake#share#a/b#pvc-1#retain"), 0);
		r = volume_read(c, &id, &rec, &err);
		if (r == 0)
			r = volume_directory(c, &id, &rec, &dir, &err);
		if (r == 0) {
			v = volume_of(&rec);
			check_str(cut, "directory", dir, "a/b");
			check_int(cut, "policy", volume_policy(&v, &id, ON_DELETE_DELETE),
				  ON_DELETE_RETAIN);
		} else {
			check_error(cut, &err, ERROR_FAILED_PRECONDITION, NULL);
		}
		if (create(f, &retained, 0, &err) < 0)
			check_error(cut, &err, ERROR_FAILED_PRECONDITION, "damaged");
		check_that(cut, "the data is there", fake_nfs_type(f, "a/b/file") == NFS_TYPE_FILE);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

typedef int step_fn(struct fake_nfs *f, const struct sample *v, struct error *err);

static int create_step(struct fake_nfs *f, const struct sample *v, struct error *err)
{
	return create(f, v, 0, err);
}

/* A share as it is before the step that is to be interrupted. */
static struct fake_nfs *prepared(step_fn *step, const struct sample *v)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	if (step == delete) {
		check_int("preparation", "create", create(f, v, 0, &err), 0);
		fake_nfs_fail(f, NULL);
	}
	return f;
}

/* How many operations a step takes, and what is on the share after it. */
static unsigned int undisturbed(step_fn *step, const struct sample *v, char **ret_list)
{
	struct fake_nfs *f = prepared(step, v);
	struct error err = { .code = ERROR_OK };
	unsigned int n;

	check_int("undisturbed", "result", step(f, v, &err), 0);
	n = fake_nfs_operations(f);
	*ret_list = list_share(f, NULL);
	fake_nfs_free(f);
	return n;
}

/* The connection breaks at operation n; the call is made again; then the volume is deleted. */
static void interrupt(const char *row, step_fn *step, const struct sample *v, unsigned int n,
		      bool after, const char *want)
{
	const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED, .after = after };
	struct fake_nfs *f = prepared(step, v);
	struct error err = { .code = ERROR_OK };
	cleanup_free char *clean = NULL, *got = NULL;

	fake_nfs_fail(f, &failure);
	check_int(row, "interrupted", step(f, v, &err), -ECONNABORTED);
	check_error(row, &err, ERROR_UNAVAILABLE, NULL);
	fake_nfs_fail(f, NULL);
	check_int(row, "again", step(f, v, &err), 0);
	check_share(row, f, NULL, want);
	check_int(row, "delete", delete (f, v, &err), 0);
	got = list_share(f, NULL);
	fake_nfs_free(f);
	(void)undisturbed(delete, v, &clean);
	check_str(row, "what is on the share after the deletion", got, clean);
}

static void interrupt_everywhere(step_fn *step, const char *name, const struct sample *v,
				 const char *kind)
{
	cleanup_free char *want = NULL;
	unsigned int total = undisturbed(step, v, &want), n;

	check_that(kind, "there is something to interrupt", total > 2);
	for (n = 1; n <= total; n++) {
		char row[128];

		(void)snprintf(row, sizeof(row), "%s %s, operation %u of %u fails before it", name,
			       kind, n, total);
		interrupt(row, step, v, n, false, want);
		(void)snprintf(row, sizeof(row), "%s %s, operation %u of %u fails after it", name,
			       kind, n, total);
		interrupt(row, step, v, n, true, want);
	}
}

static const struct {
	step_fn *step;
	const char *name, *kind;
	const struct sample *volume;
} interruptions[] = {
	{ create_step, "create", "flat", &flat },
	{ create_step, "create", "nested", &nested },
	{ create_step, "create", "long record", &wordy },
	{ delete, "delete", "flat", &flat },
	{ delete, "delete", "nested", &nested },
	{ delete, "delete", "archived", &archived },
	{ delete, "delete", "long record", &wordy },
};

START_TEST(test_crash)
{
	interrupt_everywhere(interruptions[_i].step, interruptions[_i].name,
			     interruptions[_i].volume, interruptions[_i].kind);
}
END_TEST

/*
 * A volume of csi-driver-nfs, which has no record, in a directory so deep that the text of its
 * tombstone does not fit into one link. key: of the volume, which may be none for a record.
 * creates: another volume is made there next, and the deletion is not called again.
 */
static void delete_foreign(const char *key, const char *dir, unsigned int n, bool after,
			   bool creates, unsigned int *ret_total)
{
	const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED, .after = after };
	const struct sample next = {
		.key = "pvc-2", .dir = dir, .on_delete = "delete", .mode = "0000", .size = "10"
	};
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	cleanup_free char *path = NULL, *list = NULL;
	bool unused;
	char row[64];

	(void)snprintf(row, sizeof(row), "operation %u fails %s it", n, after ? "after" : "before");
	ck_assert(asprintf(&path, "%s/file", dir) > 0);
	fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
	fake_nfs_fail(f, n > 0 ? &failure : NULL);
	check_int(row, "first", delete_as(f, dir, key, "", ON_DELETE_DELETE, &unused, &err),
		  n > 0 ? -ECONNABORTED : 0);
	*ret_total = fake_nfs_operations(f);
	fake_nfs_fail(f, NULL);
	if (!creates) {
		check_int(row, "again", delete_as(f, dir, key, "", ON_DELETE_DELETE, &unused, &err),
			  0);
		check_int(row, "directory", fake_nfs_type(f, dir), NFS_TYPE_UNKNOWN);
	}
	check_int(row, "create", create(f, &next, 0, &err), 0);
	check_int(row, "delete", delete (f, &next, &err), 0);
	list = list_share(f, NULL);
	check_that(row, "no tombstone is left",
		   strstr(list, "/busy/\n") != NULL && strstr(list, "/busy/~") == NULL);
	/* A kill between the parts and their head leaves them. */
	check_that(row, "no parts are left", n > 0 || strstr(list, "/volumes/~") == NULL);
	fake_nfs_free(f);
}

START_TEST(test_crash_delete_foreign)
{
	cleanup_free char *name = check_repeat("d", 180), *key = check_repeat("k", 230);
	cleanup_free char *dir = NULL;
	const char *const keys[] = { "pvc-1", key };
	unsigned int total, unused, n;
	size_t i;

	ck_assert(asprintf(&dir, "~d~/%s/%s/%s/v", name, name, name) > 0);
	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		delete_foreign(keys[i], dir, 0, false, false, &total);
		check_that("foreign", "there is something to interrupt", total > 10);
		for (n = 1; n <= total; n++) {
			delete_foreign(keys[i], dir, n, false, false, &unused);
			delete_foreign(keys[i], dir, n, true, false, &unused);
			delete_foreign(keys[i], dir, n, true, true, &unused);
		}
	}
}
END_TEST

/*
 * A deletion dies at operation n; then somebody makes a volume of that name, which finds nothing of
 * the old.
 */
static void delete_then_create(const char *row, const struct sample *v, unsigned int n, bool after)
{
	const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED, .after = after };
	struct fake_nfs *f = prepared(delete, v);
	struct error err = { .code = ERROR_OK };
	cleanup_free char *path = NULL, *clean = NULL, *got = NULL;
	bool begun;

	ck_assert(asprintf(&path, "%s/file", v->dir) > 0);
	fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
	fake_nfs_fail(f, &failure);
	check_int(row, "interrupted", delete (f, v, &err), -ECONNABORTED);
	fake_nfs_fail(f, NULL);
	begun = fake_nfs_type(f, ".csi-nfs/volumes/pvc-1") == NFS_TYPE_UNKNOWN;
	check_int(row, "create", create(f, v, 0, &err), 0);
	check_int(row, "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"), NFS_TYPE_SYMLINK);
	check_int(row, "directory", fake_nfs_type(f, v->dir), NFS_TYPE_DIRECTORY);
	check_int(row, "old data", fake_nfs_type(f, path) != NFS_TYPE_UNKNOWN, !begun);
	check_int(row, "delete", delete (f, v, &err), 0);
	fake_nfs_remove(f, ".csi-nfs/trash");
	fake_nfs_put(f, ".csi-nfs/trash", NFS_TYPE_DIRECTORY, NULL);
	got = list_share(f, NULL);
	fake_nfs_free(f);
	(void)undisturbed(delete, v, &clean);
	check_str(row, "what is on the share after the deletion", got, clean);
}

START_TEST(test_crash_delete_then_create)
{
	static const struct sample *const volumes[] = { &flat, &nested, &wordy };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(volumes); i++) {
		cleanup_free char *unused = NULL;
		unsigned int total = undisturbed(delete, volumes[i], &unused), n;

		for (n = 1; n <= total; n++) {
			char row[128];

			(void)snprintf(row, sizeof(row), "kind %zu, operation %u of %u", i, n,
				       total);
			delete_then_create(row, volumes[i], n, false);
			delete_then_create(row, volumes[i], n, true);
		}
	}
}
END_TEST

/* What another replica does just before an operation of ours that has that type and name. */
struct meanwhile {
	enum nfs_op_type type;
	const char *name;
	void (*act)(struct fake_nfs *f);
	unsigned int pass; /* so many of them before */
};

static void act_once(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct meanwhile *m = data;

	if (m->act == NULL || op->type != m->type || op->name == NULL ||
	    strcmp(op->name, m->name) != 0)
		return;
	if (m->pass > 0) {
		m->pass--;
		return;
	}
	m->act(f);
	m->act = NULL;
}

/* What a purger does to the trash that runs all the time. */
static void purge_trash(struct fake_nfs *f)
{
	static const char trash[] = ".csi-nfs/trash/";
	cleanup_free char *list = fake_nfs_list(f, NULL);
	const char *at = list;

	while ((at = strstr(at, trash)) != NULL) {
		char path[256];
		const size_t len = strcspn(at + strlen(trash), "/\n");

		(void)snprintf(path, sizeof(path), "%s%.*s", trash, (int)len, at + strlen(trash));
		if (len > 0 && !store_trash_name_is_unchecked(path + strlen(trash)))
			fake_nfs_remove(f, path);
		at += strlen(trash) + len;
	}
}

static void act_once_and_purge(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	act_once(f, op, data);
	purge_trash(f);
}

static void remove_notes(struct fake_nfs *f)
{
	static const char folder[] = ".csi-nfs/busy/";
	cleanup_free char *list = fake_nfs_list(f, NULL);
	char *line, *rest = list;

	while ((line = strsep(&rest, "\n")) != NULL)
		if (str_has_prefix(line, folder) && line[strlen(folder)] != '\0')
			fake_nfs_remove(f, line);
}

/* Another replica finishes the deletion, and a volume of that name is made anew. */
static void made_anew(struct fake_nfs *f)
{
	remove_notes(f);
	fake_nfs_remove(f, "pvc-1");
	fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK, "v=1;name=pvc-1;dir=pvc-1");
	fake_nfs_put(f, "pvc-1/new", NFS_TYPE_FILE, NULL);
}

/* The same, without data: RMDIR does not tell the two apart. */
static void made_anew_empty(struct fake_nfs *f)
{
	made_anew(f);
	fake_nfs_remove(f, "pvc-1/new");
}

/* It finishes the deletion after a time, and another volume has begun to use what is there. */
static void taken_as_it_is(struct fake_nfs *f)
{
	remove_notes(f);
	fake_nfs_put(f, ".csi-nfs/volumes/other", NFS_TYPE_SYMLINK, "v=1;name=other;dir=pvc-1");
	fake_nfs_put(f, ".csi-nfs/users/pvc-1/other", NFS_TYPE_SYMLINK, "v=1");
}

/* A clone of that name asks for its place with existingDirectory=require. */
static void being_cloned_into_it(struct fake_nfs *f)
{
	remove_notes(f);
	fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK,
		     "v=1;src=volume%20vol;name=pvc-1;dir=pvc-1;claim=shared;existing=require");
}

/* A deletion that is paused between its last look and what it does then. */
START_TEST(test_delete_late)
{
	static const struct {
		const char *name;
		void (*act)(struct fake_nfs *f);
		enum nfs_op_type type;
		const char *data; /* of the volume */
		const char *left;
	} rows[] = {
		{ "made anew", made_anew, NFS_OP_RENAME, "pvc-1/file", "pvc-1/new" },
		{ "made anew, was empty", made_anew, NFS_OP_RMDIR, NULL, "pvc-1/new" },
		{ "made anew, empty", made_anew_empty, NFS_OP_RMDIR, "pvc-1/file", "pvc-1" },
		{ "taken", taken_as_it_is, NFS_OP_RENAME, "pvc-1/file", "pvc-1/file" },
		{ "taken, empty", taken_as_it_is, NFS_OP_RMDIR, NULL, "pvc-1" },
		{ "required, empty", being_cloned_into_it, NFS_OP_RMDIR, NULL, "pvc-1" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		/* The first RENAME of that name is that of the record. */
		struct meanwhile m = { rows[i].type, "pvc-1", rows[i].act,
				       rows[i].type == NFS_OP_RENAME };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "create", create(f, &flat, 0, &err), 0);
		if (rows[i].data != NULL)
			fake_nfs_put(f, rows[i].data, NFS_TYPE_FILE, NULL);
		fake_nfs_watch(f, act_once_and_purge, &m);
		check_that(rows[i].name, "delete fails", delete (f, &flat, &err) < 0);
		check_error(rows[i].name, &err, ERROR_ABORTED, "another controller");
		check_that(rows[i].name, "it happened", m.act == NULL);
		check_that(rows[i].name, "what is new is there",
			   fake_nfs_type(f, rows[i].left) != NFS_TYPE_UNKNOWN);
		fake_nfs_free(f);
	}
}
END_TEST

/* Likewise where the directory cannot be moved, and is removed in its place. */
START_TEST(test_delete_late_in_place)
{
	static const struct fake_failure failure = { .nth = 2,
						     .error = -EXDEV,
						     .types = 1U << NFS_OP_RENAME };
	struct meanwhile m = { NFS_OP_RENAME, "pvc-1", taken_as_it_is, 1 };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("in place", "create", create(f, &flat, 0, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	fake_nfs_fail(f, &failure);
	fake_nfs_watch(f, act_once, &m);
	check_that("in place", "delete fails", delete (f, &flat, &err) < 0);
	check_error("in place", &err, ERROR_ABORTED, "another controller");
	check_that("in place", "it happened", m.act == NULL);
	check_int("in place", "file", fake_nfs_type(f, "pvc-1/file"), NFS_TYPE_FILE);
	fake_nfs_free(f);
}
END_TEST

/* A full share has no room for one more name in the trash: the deletion makes some. */
START_TEST(test_delete_without_room_in_the_trash)
{
	static const int errors[] = { -ENOSPC, -EDQUOT };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int("no room", "create", create(f, &flat, 0, &err), 0);
		fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 2,
							 .error = errors[i],
							 .all = true,
							 .types = 1U << NFS_OP_RENAME });
		check_int("no room", "delete", delete (f, &flat, &err), 0);
		check_int("no room", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
		check_int("no room", "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"),
			  NFS_TYPE_UNKNOWN);
		fake_nfs_free(f);
	}
}
END_TEST

/* A record that may not be moved, as into another quota project of XFS, is made anew. */
START_TEST(test_delete_record_that_cannot_move)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("apart", "create", create(f, &flat, 0, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	fake_nfs_fail(f, &(struct fake_failure){
				 .nth = 1, .error = -EXDEV, .types = 1U << NFS_OP_RENAME });
	check_int("apart", "delete", delete (f, &flat, &err), 0);
	check_int("apart", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
	check_int("apart", "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

static void stay_outside(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	const bool *is_full = data;

	if (op->type == NFS_OP_RENAME)
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -EXDEV });
	if (op->type == NFS_OP_SYMLINK && *is_full)
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -EDQUOT });
}

/* Nor does it need room to be made anew, and its parts do not stay. */
START_TEST(test_delete_record_that_stays_outside)
{
	static const bool rows[] = { true, false };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct nfs_handle *folder;
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct error err = { .code = ERROR_OK };
		struct record rec = { .n = 0 };
		bool is_full = rows[i];
		char *list;

		check_int("outside", "create", create(f, &wordy, 0, &err), 0);
		check_int("outside", "folder", store_folder(c, STORE_VOLUMES, false, &folder, &err),
			  0);
		check_int("outside", "read", record_read(c, folder, "pvc-1", &rec, &err), 0);
		fake_nfs_watch(f, stay_outside, &is_full);
		if (is_full)
			check_int("outside", "delete", delete (f, &wordy, &err), 0);
		else
			check_int("outside", "remove",
				  record_remove(c, folder, "pvc-1", &rec, &err), 0);
		list = fake_nfs_list(f, NULL);
		check_that("outside", "nothing is left", strstr(list, "volumes/pvc-1") == NULL);
		free(list);
		record_done(&rec);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

static void fail_in_place(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)data;
	if (op->type == NFS_OP_RENAME && str_has_prefix(op->to_name, "pvc-1."))
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -EXDEV });
	if (op->type == NFS_OP_REMOVE && strcmp(op->name, "file") == 0)
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -EACCES });
}

/* Neither the trash nor the mark has room. */
static void fail_without_room(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)data;
	if (op->type == NFS_OP_RENAME && strcmp(op->name, "pvc-1") != 0 &&
	    strcmp(op->to_name, "pvc-1") != 0)
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -ENOSPC });
	if (op->type == NFS_OP_RENAME && str_has_prefix(op->to_name, "pvc-1."))
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -ENOSPC });
	if (op->type == NFS_OP_REMOVE && strcmp(op->name, "file") == 0)
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -EACCES });
}

/* After such a removal has failed, the volume is not put back: its data is no longer whole. */
START_TEST(test_delete_fails_in_place)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("in place", "create", create(f, &flat, 0, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	fake_nfs_watch(f, fail_in_place, NULL);
	check_that("in place", "delete fails", delete (f, &flat, &err) < 0);
	check_error("in place", &err, ERROR_PERMISSION_DENIED, "file");
	check_int("in place", "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"),
		  NFS_TYPE_UNKNOWN);
	fake_nfs_watch(f, NULL, NULL);
	error_clear(&err);
	check_int("in place", "delete again", delete (f, &flat, &err), 0);
	check_int("in place", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

/* Nor on a share that is too full even for the mark of rule 9. */
START_TEST(test_delete_fails_without_a_mark)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("no mark", "create", create(f, &flat, 0, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	fake_nfs_watch(f, fail_without_room, NULL);
	check_that("no mark", "delete fails", delete (f, &flat, &err) < 0);
	check_error("no mark", &err, ERROR_PERMISSION_DENIED, "file");
	check_int("no mark", "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"),
		  NFS_TYPE_UNKNOWN);
	fake_nfs_watch(f, NULL, NULL);
	error_clear(&err);
	check_int("no mark", "delete again", delete (f, &flat, &err), 0);
	check_int("no mark", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

#define COPY_NOTE ".csi-nfs/busy/pvc-1~u~0123456789abcdef.1"

static void copy_begins(struct fake_nfs *f)
{
	fake_nfs_put(f, COPY_NOTE, NFS_TYPE_SYMLINK, "v=1");
}

/* A copy wrote its note after the deletion had looked, and saw no tombstone (rule 1). */
START_TEST(test_delete_late_beside_a_copy)
{
	static const struct sample *const rows[] = { &flat, &wordy };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct meanwhile m = { NFS_OP_RENAME, "pvc-1", copy_begins, 0 };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int("beside a copy", "create", create(f, rows[i], 0, &err), 0);
		fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
		fake_nfs_watch(f, act_once, &m);
		check_that("beside a copy", "delete fails", delete (f, rows[i], &err) < 0);
		check_error("beside a copy", &err, ERROR_ABORTED, "another controller");
		check_that("beside a copy", "it happened", m.act == NULL);
		check_int("beside a copy", "file", fake_nfs_type(f, "pvc-1/file"), NFS_TYPE_FILE);
		fake_nfs_remove(f, COPY_NOTE);
		error_clear(&err);
		check_int("after the copy", "is whole", find(f, rows[i], &err), 0);
		check_int("after the copy", "delete", delete (f, rows[i], &err), 0);
		check_int("after the copy", "directory", fake_nfs_type(f, "pvc-1"),
			  NFS_TYPE_UNKNOWN);
		fake_nfs_free(f);
	}
}
END_TEST

/* Replicas at work while a paused deletion moves a directory not its own, and puts it back. */
struct rivals {
	void (*before)(struct fake_nfs *f); /* it moves, or removes, the directory */
	void (*between)(struct fake_nfs *f); /* before it puts it back */
	enum nfs_op_type type; /* of the operation on the directory */
	unsigned int pass; /* so many of that type and name before */
};

static void act_around(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct rivals *rivals = data;
	const char *name = op->name != NULL ? op->name : "";

	if (op->type == rivals->type && strcmp(name, "pvc-1") == 0 && rivals->pass-- == 0)
		rivals->before(f);
	if (rivals->between != NULL &&
	    ((op->type == NFS_OP_RENAME && str_has_prefix(name, "pvc-1.")) ||
	     (op->type == NFS_OP_MKDIR && strcmp(name, "pvc-1") == 0)))
		rivals->between(f);
}

/* The deletion of the new volume finds no directory, and releases the one in the trash. */
static void deleted_again(struct fake_nfs *f)
{
	struct error err = { .code = ERROR_OK };

	fake_nfs_watch(f, NULL, NULL);
	check_int("the other deletion", "result", delete (f, &flat, &err), 0);
}

static void user_deleted(struct fake_nfs *f)
{
	fake_nfs_watch(f, NULL, NULL);
	fake_nfs_remove(f, ".csi-nfs/volumes/other");
	fake_nfs_remove(f, ".csi-nfs/users/pvc-1/other");
}

/* A clone of that name is being built; it wants nothing in its place. */
static void being_cloned(struct fake_nfs *f)
{
	remove_notes(f);
	fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK,
		     "v=1;src=volume%20vol;name=pvc-1;dir=pvc-1");
}

/* A paused deletion puts nothing back that has no user, or none any more. */
START_TEST(test_delete_late_twice)
{
	static const struct {
		const char *name;
		void (*before)(struct fake_nfs *f);
		void (*between)(struct fake_nfs *f);
		enum nfs_op_type type;
		const char *data; /* of the volume */
	} rows[] = {
		{ "made anew", made_anew, deleted_again, NFS_OP_RENAME, "pvc-1/file" },
		{ "taken, empty", taken_as_it_is, user_deleted, NFS_OP_RMDIR, NULL },
		{ "cloned, empty", being_cloned, NULL, NFS_OP_RMDIR, NULL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		/* The first RENAME of that name is that of the record. */
		struct rivals rivals = { rows[i].before, rows[i].between, rows[i].type,
					 rows[i].type == NFS_OP_RENAME };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "create", create(f, &flat, 0, &err), 0);
		if (rows[i].data != NULL)
			fake_nfs_put(f, rows[i].data, NFS_TYPE_FILE, NULL);
		fake_nfs_watch(f, act_around, &rivals);
		check_that(rows[i].name, "delete fails", delete (f, &flat, &err) < 0);
		check_error(rows[i].name, &err, ERROR_ABORTED, "");
		check_int(rows[i].name, "nothing comes back", fake_nfs_type(f, "pvc-1"),
			  NFS_TYPE_UNKNOWN);
		check_share(rows[i].name, f, ".csi-nfs", "");
		fake_nfs_free(f);
	}
}
END_TEST

/* The directory above goes while a paused deletion has moved, or removed, what is not its own. */
struct parent_losing {
	void (*before)(struct fake_nfs *f); /* it does */
	enum nfs_op_type type; /* of the operation on the directory */
	enum { PARENT_STAYS, PARENT_GOES, PARENT_IS_GONE } state;
};

static void lose_parent(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct parent_losing *losing = data;

	if (losing->state == PARENT_GOES) {
		losing->state = PARENT_IS_GONE;
		fake_nfs_remove(f, "ns");
	} else if (losing->state == PARENT_STAYS && op->type == losing->type &&
		   str_eq(op->name, "a")) {
		losing->state = PARENT_GOES;
		losing->before(f);
	}
}

static void taken_below(struct fake_nfs *f)
{
	remove_notes(f);
	fake_nfs_put(f, ".csi-nfs/volumes/other", NFS_TYPE_SYMLINK, "v=1;name=other;dir=ns/a");
	fake_nfs_put(f, ".csi-nfs/users/ns%2Fa/other", NFS_TYPE_SYMLINK, "v=1");
}

static void made_anew_below(struct fake_nfs *f)
{
	taken_below(f);
	fake_nfs_remove(f, "ns/a");
	fake_nfs_put(f, "ns/a/file", NFS_TYPE_FILE, NULL);
}

/* It goes back all the same: of an archive, nobody else would know. */
START_TEST(test_delete_late_below)
{
	static const struct {
		const char *name, *policy;
		void (*before)(struct fake_nfs *f);
		enum nfs_op_type type;
		const char *data; /* of the volume */
		const char *left;
	} rows[] = {
		{ "made anew", "delete", made_anew_below, NFS_OP_RENAME, "ns/a/old", "ns/a/file" },
		{ "taken", "delete", taken_below, NFS_OP_RENAME, "ns/a/file", "ns/a/file" },
		{ "taken, empty", "delete", taken_below, NFS_OP_RMDIR, NULL, "ns/a" },
		{ "archive, made anew", "archive", made_anew_below, NFS_OP_RENAME, "ns/a/old",
		  "ns/a/file" },
		{ "archive, taken", "archive", taken_below, NFS_OP_RENAME, "ns/a/file",
		  "ns/a/file" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct sample v = { "pvc-1", "ns/a", rows[i].policy, "0000",
					  "10",    0,      NULL,           NULL };
		struct parent_losing losing = { rows[i].before, rows[i].type, PARENT_STAYS };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "create", create(f, &v, 0, &err), 0);
		if (rows[i].data != NULL)
			fake_nfs_put(f, rows[i].data, NFS_TYPE_FILE, NULL);
		fake_nfs_watch(f, lose_parent, &losing);
		check_that(rows[i].name, "delete fails", delete (f, &v, &err) < 0);
		check_error(rows[i].name, &err, ERROR_ABORTED, "another controller");
		check_int(rows[i].name, "it happened", losing.state, PARENT_IS_GONE);
		check_that(rows[i].name, "the directory is back",
			   fake_nfs_type(f, rows[i].left) != NFS_TYPE_UNKNOWN);
		check_that(rows[i].name, "there is no archive",
			   fake_nfs_type(f, "archived-ns") == NFS_TYPE_UNKNOWN);
		fake_nfs_free(f);
	}
}
END_TEST

/* Between the look for owners of a directory above and its RMDIR, a volume takes it. */
struct parent_taking {
	const char *record; /* of that volume */
	bool deleted; /* again, before the directory comes back */
};

static void take_parent(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	static const char *const notes[] = { ".csi-nfs/users/ns/other",
					     ".csi-nfs/users/ns%/other" };
	const struct parent_taking *taking = data;
	size_t i;

	if (op->name == NULL || strcmp(op->name, "ns") != 0)
		return;
	if (op->type == NFS_OP_RMDIR && fake_nfs_type(f, notes[0]) == NFS_TYPE_UNKNOWN) {
		fake_nfs_put(f, ".csi-nfs/volumes/other", NFS_TYPE_SYMLINK, taking->record);
		for (i = 0; i < ARRAY_SIZE(notes); i++)
			fake_nfs_put(f, notes[i], NFS_TYPE_SYMLINK, "v=1");
	} else if (op->type == NFS_OP_MKDIR && taking->deleted) {
		fake_nfs_watch(f, NULL, NULL);
		fake_nfs_remove(f, ".csi-nfs/volumes/other");
		for (i = 0; i < ARRAY_SIZE(notes); i++)
			fake_nfs_remove(f, notes[i]);
	}
}

/* A paused deletion removes the directory above, which is a volume's by now, and is still empty. */
START_TEST(test_parent_late)
{
	static const struct sample v = { "pvc-1", "ns/a", "delete", "0000", "10", 0, NULL, NULL };
	static const struct {
		const char *name;
		struct parent_taking taking;
		uint32_t mode, uid; /* of the directory afterwards; mode 0: there is none */
	} rows[] = {
		{ "taken", { "v=1;name=other;dir=ns", false }, 0755, 0 },
		{ "taken, with mode and owner",
		  { "v=1;name=other;dir=ns;mode=2770;uid=1000;gid=1000;ready=1", false },
		  02770,
		  1000 },
		{ "taken, and deleted", { "v=1;name=other;dir=ns", true }, 0, 0 },
		{ "being cloned", { "v=1;src=volume%20vol;name=other;dir=ns", false }, 0, 0 },
		{ "being cloned into what is required",
		  { "v=1;src=volume%20vol;name=other;dir=ns;claim=shared;existing=require", false },
		  0755,
		  0 },
		{ "cloned", { "v=1;src=volume%20vol;name=other;dir=ns;ready=1", false }, 0755, 0 },
		{ "taken deeper", { "v=1;name=other;dir=ns/b", false }, 0, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct parent_taking taking = rows[i].taking;
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "create", create(f, &v, 0, &err), 0);
		fake_nfs_watch(f, take_parent, &taking);
		check_int(rows[i].name, "delete", delete (f, &v, &err), 0);
		check_int(rows[i].name, "type", fake_nfs_type(f, "ns"),
			  rows[i].mode != 0 ? NFS_TYPE_DIRECTORY : NFS_TYPE_UNKNOWN);
		if (rows[i].mode != 0) {
			check_int(rows[i].name, "mode", fake_nfs_mode(f, "ns"), rows[i].mode);
			check_int(rows[i].name, "owner", fake_nfs_owner(f, "ns"), rows[i].uid);
		}
		check_share(rows[i].name, f, ".csi-nfs", rows[i].mode != 0 ? "ns/\n" : "");
		fake_nfs_free(f);
	}
}
END_TEST

/* The user finds no directory, makes another one, and writes to it. */
static void user_made_another(struct fake_nfs *f)
{
	fake_nfs_watch(f, NULL, NULL);
	fake_nfs_put(f, "pvc-1/new", NFS_TYPE_FILE, NULL);
}

/* A paused deletion puts nothing back in place of what is there by then. */
START_TEST(test_delete_late_replaced)
{
	struct rivals rivals = { taken_as_it_is, user_made_another, NFS_OP_RENAME, 1 };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("replaced", "create", create(f, &flat, 0, &err), 0);
	fake_nfs_put(f, "pvc-1/file", NFS_TYPE_FILE, NULL);
	fake_nfs_watch(f, act_around, &rivals);
	check_that("replaced", "delete fails", delete (f, &flat, &err) < 0);
	check_error("replaced", &err, ERROR_ABORTED, "has finished the deletion");
	check_int("replaced", "new", fake_nfs_type(f, "pvc-1/new"), NFS_TYPE_FILE);
	check_int("replaced", "old", fake_nfs_type(f, "pvc-1/file"), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

static void changed_again(struct fake_nfs *f)
{
	fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK,
		     "v=1;name=pvc-1;dir=pvc-1;by=0123456789abcdef.1");
}

/*
 * A change that was under way brings the record back: the deletion has to be done again, and
 * nothing of it refuses the volume until then.
 */
START_TEST(test_record_comes_back)
{
	static const struct {
		const char *name;
		bool recorded;
		int (*next)(struct fake_nfs *f, const struct sample *v, struct error *err);
	} rows[] = {
		{ "deleted again", true, delete },
		{ "created again", true, create_empty },
		{ "without a record, deleted again", false, delete },
		{ "without a record, created again", false, create_empty },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct meanwhile m = { NFS_OP_RMDIR, "pvc-1", changed_again, 0 };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "create", create(f, &flat, 0, &err), 0);
		if (!rows[i].recorded)
			fake_nfs_remove(f, ".csi-nfs/volumes/pvc-1");
		fake_nfs_watch(f, act_once, &m);
		check_that(rows[i].name, "delete fails", delete (f, &flat, &err) < 0);
		check_error(rows[i].name, &err, ERROR_ABORTED, "being changed");
		check_int(rows[i].name, "the next call", rows[i].next(f, &flat, &err), 0);
		check_int(rows[i].name, "delete", delete (f, &flat, &err), 0);
		check_share(rows[i].name, f, NULL, FOLDERS);
		fake_nfs_free(f);
	}
}
END_TEST

/* The name of the tombstone that a deletion of the volume which is there now would set. */
static void name_tombstone(struct fake_nfs *f, const struct sample *v, char ret[NFS_NAME_MAX + 1])
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 };

	ck_assert(record_read_at(c, STORE_VOLUMES, v->key, &rec, NULL) == 0);
	busy_tombstone_name(ret, BUSY_VOLUME_GONE, v->dir, volume_record_identity(&rec));
}

static void rename_record(struct fake_nfs *f, const struct sample *v, const char *tombstone)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	const struct nfs_handle *records, *busy;

	ck_assert(store_folder(c, STORE_VOLUMES, false, &records, NULL) == 0);
	ck_assert(store_folder(c, STORE_BUSY, true, &busy, NULL) == 0);
	ck_assert(nfs_rename(c, records, v->key, busy, tombstone) == 0);
}

static int replace_record(struct fake_nfs *f, const struct sample *v, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *records;
	int r;

	r = store_folder(c, STORE_VOLUMES, false, &records, err);
	if (r == 0)
		r = record_read(c, records, v->key, &rec, err);
	if (r < 0)
		return r;
	ck_assert(record_set(&rec, VOLUME_KEY_SIZE, "77") == 0);
	return record_replace(c, records, v->key, &rec, err);
}

static int64_t recorded_size(struct fake_nfs *f, const struct sample *v)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 };

	ck_assert(record_read_at(c, STORE_VOLUMES, v->key, &rec, NULL) == 0);
	return volume_of(&rec).size;
}

struct burial {
	char record[NFS_NAME_MAX + 20], tombstone[NFS_NAME_MAX + 20]; /* paths */
	char text[NFS_LINK_MAX + 1]; /* of the record */
	bool has_listed, is_done, is_back;
};

/* The creation has looked for tombstones when another replica sets one. */
static void bury_after_listing(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct burial *b = data;

	if (b->has_listed && !b->is_done) {
		fake_nfs_remove(f, b->record);
		fake_nfs_put(f, b->tombstone, NFS_TYPE_SYMLINK, b->text);
		b->is_done = true;
	}
	b->has_listed = b->has_listed || op->type == NFS_OP_READDIR;
}

static struct burial burial_of(struct fake_nfs *f, const struct sample *v)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	const struct nfs_handle *records;
	char name[NFS_NAME_MAX + 1];
	struct burial b = { .is_done = false };

	ck_assert(store_folder(c, STORE_VOLUMES, false, &records, NULL) == 0);
	ck_assert(nfs_readlink(c, records, v->key, b.text) == 0);
	name_tombstone(f, v, name);
	(void)snprintf(b.record, sizeof(b.record), ".csi-nfs/volumes/%s", v->key);
	(void)snprintf(b.tombstone, sizeof(b.tombstone), ".csi-nfs/busy/%s", name);
	return b;
}

/* A volume with an exclusive claim does not get the data of one whose deletion has just begun. */
START_TEST(test_claimed_during_deletion)
{
	struct burial burial;
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	unsigned int tries = 0;

	check_int("another one", "create", create(f, &overlapping, 0, &err), 0);
	fake_nfs_put(f, "a/b/theirs", NFS_TYPE_FILE, NULL);
	burial = burial_of(f, &overlapping);
	fake_nfs_watch(f, bury_after_listing, &burial);
	check_that("meanwhile", "create fails", create(f, &claimed, 0, &err) < 0);
	check_error("meanwhile", &err, ERROR_ABORTED, "deletion");
	check_that("meanwhile", "it happened", burial.is_done);
	fake_nfs_watch(f, NULL, NULL);
	check_int("another one", "delete", delete (f, &overlapping, &err), 0);
	while (create(f, &claimed, 0, &err) < 0 && ++tries < 3)
		check_error("then", &err, ERROR_ABORTED, NULL);
	check_that("then", "create", tries < 3);
	check_int("then", "their file", fake_nfs_type(f, "a/b/theirs"), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

/* It gives up once the creation has looked for other volumes, and puts the record back. */
static void bury_and_give_up(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct burial *b = data;

	if (b->is_done && !b->is_back && op->type == NFS_OP_LOOKUP && str_eq(op->name, "b")) {
		fake_nfs_remove(f, b->tombstone);
		fake_nfs_put(f, b->record, NFS_TYPE_SYMLINK, b->text);
		b->is_back = true;
	}
	bury_after_listing(f, op, data);
}

/* It does not get the directory of that volume either if the deletion is given up. */
START_TEST(test_claimed_during_vain_deletion)
{
	struct burial burial;
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("another one", "create", create(f, &overlapping, 0, &err), 0);
	burial = burial_of(f, &overlapping);
	fake_nfs_watch(f, bury_and_give_up, &burial);
	check_that("meanwhile", "create fails", create(f, &claimed, 0, &err) < 0);
	check_error("meanwhile", &err, ERROR_FAILED_PRECONDITION, "overlaps");
	check_that("meanwhile", "it happened", burial.is_back);
	check_int("meanwhile", "record", fake_nfs_type(f, CLAIMED_RECORD), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

#define MOVED ".csi-nfs/trash/a%2Fb.1.2.h3"
#define MOVED_PLAIN ".csi-nfs/trash/pvc-1.1.2.h3"

static void move_at_archiving(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	bool *is_moved = data;

	if (*is_moved || op->type != NFS_OP_RENAME || !str_eq(op->name, "b"))
		return;
	*is_moved = true;
	fake_nfs_remove(f, "a/b");
	fake_nfs_put(f, MOVED "/data", NFS_TYPE_FILE, NULL);
}

/*
 * A paused deletion of an earlier volume has moved the directory that is to be kept. Once it is
 * back, it is kept.
 */
START_TEST(test_kept_while_moved)
{
	static const struct {
		const char *row, *dir, *policy, *data, *moved, *kept;
		bool late; /* it is moved when it is archived */
	} rows[] = {
		{ "retain", "a/b", "retain", "a/b/data", MOVED, "a/b/data", false },
		{ "retain, its name", "pvc-1", "retain", "pvc-1/data", MOVED_PLAIN, "pvc-1/data",
		  false },
		{ "archive", "a/b", "archive", "a/b/data", MOVED, "archived-a/b/data", false },
		{ "archive, late", "a/b", "archive", "a/b/data", MOVED, "archived-a/b/data", true },
	};
	const char *row = rows[_i].row;
	const struct sample v = { "pvc-1", rows[_i].dir, rows[_i].policy, "0000", "10", 0,
				  NULL,    NULL };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	bool is_moved = false;
	char data[64];

	(void)snprintf(data, sizeof(data), "%s/data", rows[_i].moved);
	check_int(row, "create", create(f, &v, 0, &err), 0);
	fake_nfs_put(f, rows[_i].data, NFS_TYPE_FILE, NULL);
	if (rows[_i].late) {
		fake_nfs_watch(f, move_at_archiving, &is_moved);
	} else {
		fake_nfs_remove(f, v.dir);
		fake_nfs_put(f, data, NFS_TYPE_FILE, NULL);
	}
	check_that(row, "delete fails", delete (f, &v, &err) < 0);
	check_error(row, &err, ERROR_ABORTED, "another controller");
	check_int(row, "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"), NFS_TYPE_SYMLINK);
	check_int(row, "in the trash", fake_nfs_type(f, data), NFS_TYPE_FILE);
	fake_nfs_watch(f, NULL, NULL);
	fake_nfs_remove(f, rows[_i].moved);
	fake_nfs_put(f, rows[_i].data, NFS_TYPE_FILE, NULL);
	check_int(row, "delete", delete (f, &v, &err), 0);
	check_int(row, "kept", fake_nfs_type(f, rows[_i].kept), NFS_TYPE_FILE);
	fake_nfs_free(f);
}
END_TEST

/* Another volume gets the directory, and a paused deletion of an earlier one moves it. */
static void made_and_moved(struct fake_nfs *f)
{
	struct error err = { .code = ERROR_OK };

	fake_nfs_watch(f, NULL, NULL);
	check_int("meanwhile", "create", create(f, &overlapping, 0, &err), 0);
	fake_nfs_remove(f, "a/b");
	fake_nfs_put(f, MOVED "/data", NFS_TYPE_FILE, NULL);
}

/* Another replica finishes the deletion before that. */
static void deleted_made_and_moved(struct fake_nfs *f)
{
	static const struct sample v = { "pvc-1", "a/b", "delete", "0000", "10", 0, NULL, NULL };
	struct error err = { .code = ERROR_OK };

	fake_nfs_watch(f, NULL, NULL);
	check_int("meanwhile", "delete", delete (f, &v, &err), 0);
	made_and_moved(f);
}

/* A volume in it has been retained before. */
static void moved_with_what_is_retained(struct fake_nfs *f)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);

	fake_nfs_watch(f, NULL, NULL);
	check_int("meanwhile", "note", users_add_policy(c, "a/b/c", ON_DELETE_RETAIN, NULL), 0);
	fake_nfs_put(f, MOVED "/c/data", NFS_TYPE_FILE, NULL);
}

static void moved(struct fake_nfs *f)
{
	fake_nfs_watch(f, NULL, NULL);
	fake_nfs_put(f, MOVED "/data", NFS_TYPE_FILE, NULL);
}

/* How test_nothing_of_others_is_released begins. */
enum release_setting {
	RELEASE_REPEATED, /* the deletion, after it has succeeded */
	RELEASE_WITH_RECORD,
	RELEASE_OF_CLONE, /* it is unfinished, and the other volume has the directory */
};

/* A deletion that finds no directory is about to look into the trash. */
START_TEST(test_nothing_of_others_is_released)
{
	static const struct {
		const char *row;
		void (*act)(struct fake_nfs *f);
		enum release_setting setting;
		const char *data;
	} rows[] = {
		{ "repeated", made_and_moved, RELEASE_REPEATED, MOVED "/data" },
		{ "repeated, retained in it", moved_with_what_is_retained, RELEASE_REPEATED,
		  MOVED "/c/data" },
		{ "with a tombstone", deleted_made_and_moved, RELEASE_WITH_RECORD, MOVED "/data" },
		{ "with a tombstone, retained in it", moved_with_what_is_retained,
		  RELEASE_WITH_RECORD, MOVED "/c/data" },
		{ "an unfinished clone", moved, RELEASE_OF_CLONE, MOVED "/data" },
	};
	static const struct sample v = { "pvc-1", "a/b", "delete", "0000", "10", 0, NULL, NULL };
	const char *row = rows[_i].row;
	struct meanwhile m = { NFS_OP_LOOKUP, "trash", rows[_i].act, 0 };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	if (rows[_i].setting == RELEASE_OF_CLONE) {
		check_int(row, "create the other", create(f, &overlapping, 0, &err), 0);
		fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK,
			     "v=1;name=pvc-1;dir=a/b;src=volume%20vol;built=1f;handle=2e");
	} else {
		check_int(row, "create", create(f, &v, 0, &err), 0);
	}
	if (rows[_i].setting == RELEASE_REPEATED)
		check_int(row, "delete", delete (f, &v, &err), 0);
	else
		fake_nfs_remove(f, "a/b");
	fake_nfs_watch(f, act_once, &m);
	check_that(row, "delete fails", delete (f, &v, &err) < 0);
	check_error(row, &err, ERROR_ABORTED, "another controller");
	check_that(row, "it happened", m.act == NULL);
	check_int(row, "the other's data", fake_nfs_type(f, rows[_i].data), NFS_TYPE_FILE);
	fake_nfs_free(f);
}
END_TEST

/*
 * Nobody puts a directory back below the tombstone of a removal in place, and that becomes no
 * record again: so the deletion leaves what is not its own in the trash, and ends.
 */
START_TEST(test_left_below_a_mark)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	char name[NFS_NAME_MAX + 1], marked[NFS_NAME_MAX + 1], tombstone[NFS_NAME_MAX + 20];

	check_int("marked", "create", create(f, &overlapping, 0, &err), 0);
	name_tombstone(f, &overlapping, name);
	busy_irrevocable_name(marked, name);
	rename_record(f, &overlapping, marked);
	fake_nfs_remove(f, "a/b");
	moved_with_what_is_retained(f);
	ck_assert_msg(delete (f, &overlapping, &err) == 0, "marked: %s", err.msg);
	check_int("marked", "what is retained", fake_nfs_type(f, MOVED "/c/data"), NFS_TYPE_FILE);
	(void)snprintf(tombstone, sizeof(tombstone), ".csi-nfs/busy/%s", marked);
	check_int("marked", "tombstone", fake_nfs_type(f, tombstone), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

/*
 * A hung server performs the RENAME of a deletion after the volume was deleted by a repeated call,
 * and made again with the same id. Whoever meets that tombstone puts the new record back.
 */
START_TEST(test_late_tombstone)
{
	static const struct sample beside = { "pvc-2", "a/b/c/d", "delete", "0770",
					      "10",    0,         NULL,     NULL };
	static const struct {
		const char *name;
		const struct sample *volume, *met_by;
		int (*call)(struct fake_nfs *f, const struct sample *v, struct error *err);
		bool changed; /* the new volume, since it was made */
	} rows[] = {
		{ "met by another volume", &nested, &beside, create_empty, false },
		{ "changed, met by another volume", &nested, &beside, create_empty, true },
		{ "met by its creation", &flat, &flat, create_empty, false },
		{ "changed, met by its creation", &flat, &flat, create_empty, true },
		{ "long record, changed, met by its creation", &wordy, &wordy, create_empty, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct sample *v = rows[i].volume;
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char tombstone[NFS_NAME_MAX + 1], path[NFS_NAME_MAX + 20], file[64];

		(void)snprintf(file, sizeof(file), "%s/file", v->dir);
		check_int(rows[i].name, "create", create(f, v, 0, &err), 0);
		name_tombstone(f, v, tombstone);
		check_int(rows[i].name, "delete", delete (f, v, &err), 0);
		check_int(rows[i].name, "create again", create(f, v, 0, &err), 0);
		if (rows[i].changed)
			check_int(rows[i].name, "change", replace_record(f, v, &err), 0);
		fake_nfs_put(f, file, NFS_TYPE_FILE, NULL);
		rename_record(f, v, tombstone);

		check_that(rows[i].name, "the first call",
			   rows[i].call(f, rows[i].met_by, &err) < 0);
		check_error(rows[i].name, &err, ERROR_ABORTED, "re-created");
		check_int(rows[i].name, "the next call", rows[i].call(f, rows[i].met_by, &err), 0);
		check_int(rows[i].name, "the volume", find(f, v, &err), 0);
		check_int(rows[i].name, "its size", recorded_size(f, v), rows[i].changed ? 77 : 10);
		check_int(rows[i].name, "its data", fake_nfs_type(f, file), NFS_TYPE_FILE);
		(void)snprintf(path, sizeof(path), ".csi-nfs/busy/%s", tombstone);
		check_int(rows[i].name, "tombstone", fake_nfs_type(f, path), NFS_TYPE_UNKNOWN);
		check_int(rows[i].name, "delete", delete (f, v, &err), 0);
		fake_nfs_free(f);
	}
}
END_TEST

static void copy_record(struct fake_nfs *f, const struct sample *v, const char *tombstone)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	const struct nfs_handle *records, *busy;
	char text[NFS_LINK_MAX + 1];

	ck_assert(store_folder(c, STORE_VOLUMES, false, &records, NULL) == 0);
	ck_assert(store_folder(c, STORE_BUSY, true, &busy, NULL) == 0);
	ck_assert(nfs_readlink(c, records, v->key, text) == 0);
	ck_assert(nfs_symlink(c, busy, tombstone, text) == 0);
}

/*
 * A backup has brought back the tombstone of an earlier volume of that name. What was made since
 * stays. A tombstone of the present volume counts: a change may have brought its record back.
 */
START_TEST(test_tombstone_of_a_backup)
{
	static const struct {
		const char *name;
		const struct sample *volume;
		const char *tag; /* of the tombstone */
		bool again; /* the volume was deleted and created after the backup */
		bool stays;
	} rows[] = {
		{ "another volume", &claimed, "1", true, true },
		{ "another volume, removed in place", &claimed, "1x", true, true },
		{ "another volume, archived", &claimed_archived, "1", true, true },
		{ "the same volume", &claimed, "1", false, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct sample *v = rows[i].volume;
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char name[NFS_NAME_MAX + 1], kept[NFS_NAME_MAX + 1], path[NFS_NAME_MAX + 20];
		const char *hash;

		check_int(rows[i].name, "create", create(f, v, 0, &err), 0);
		name_tombstone(f, v, name);
		hash = strrchr(name, '.');
		(void)snprintf(kept, sizeof(kept), "a%%2Fb~d~0123456789abcdef.%s%s", rows[i].tag,
			       hash);
		copy_record(f, v, kept);
		(void)snprintf(path, sizeof(path), ".csi-nfs/busy/%s", kept);
		if (rows[i].again) {
			char text[NFS_LINK_MAX + 1];
			cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
			const struct nfs_handle *busy;

			ck_assert(store_folder(c, STORE_BUSY, false, &busy, NULL) == 0);
			ck_assert(nfs_readlink(c, busy, kept, text) == 0);
			fake_nfs_remove(f, path);
			check_int(rows[i].name, "delete", delete (f, v, &err), 0);
			check_int(rows[i].name, "create again", create(f, v, 0, &err), 0);
			fake_nfs_put(f, path, NFS_TYPE_SYMLINK, text);
		}
		fake_nfs_put(f, "a/b/file", NFS_TYPE_FILE, NULL);

		(void)create(f, v, 0, &err);
		check_int(rows[i].name, "the next call", create(f, v, 0, &err), 0);
		check_int(rows[i].name, "the volume", find(f, v, &err), 0);
		check_int(rows[i].name, "its data", fake_nfs_type(f, "a/b/file"),
			  rows[i].stays ? NFS_TYPE_FILE : NFS_TYPE_UNKNOWN);
		check_int(rows[i].name, "tombstone", fake_nfs_type(f, path), NFS_TYPE_UNKNOWN);
		check_int(rows[i].name, "delete", delete (f, v, &err), 0);
		fake_nfs_free(f);
	}
}
END_TEST

/* A deletion that finds no directory renames what is in the trash under its name, and no more. */
START_TEST(test_delete_moving)
{
	static const struct {
		const char *name;
		const struct sample *volume;
		const char *trashed;
		bool stays;
		int error; /* of the RENAME in the trash */
	} rows[] = {
		{ "its own", &flat, "pvc-1.1.2.3", false },
		{ "refused", &flat, "pvc-1.1.2.3@5:6", true, -EPERM },
		{ "denied", &flat, "pvc-1.1.2.3@5:6", true, -EACCES },
		{ "gone meanwhile", &flat, "pvc-1.1.2.3", true, -ENOENT },
		{ "of another identity", &flat, "pvc-1.1.2.3@5:6", false },
		{ "another volume's", &flat, "pvc-10.1.2.3", true },
		{ "another volume's with dots", &flat, "pvc-1.0.1.2.3", true },
		{ "nested", &nested, "a%2Fb%2Fc%2Fd.1.2.3", false },
		{ "another directory of that name", &nested, "b%2Fd.1.2.3", true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *list = NULL;
		bool trashed = false;
		char path[128];

		check_int(rows[i].name, "create", create(f, rows[i].volume, 0, &err), 0);
		fake_nfs_remove(f, rows[i].volume->dir);
		(void)snprintf(path, sizeof(path), ".csi-nfs/trash/%s/file", rows[i].trashed);
		fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
		/* The first RENAME is that of the record. */
		fake_nfs_fail(f, &(struct fake_failure){ rows[i].error != 0 ? 2 : 0, rows[i].error,
							 false, false, 1U << NFS_OP_RENAME });
		check_int(rows[i].name, "delete", delete_telling(f, rows[i].volume, &trashed, &err),
			  0);
		check_int(rows[i].name, "under its old name",
			  fake_nfs_type(f, path) != NFS_TYPE_UNKNOWN, rows[i].stays);
		/* A purge that is under way has listed the old name. */
		check_int(rows[i].name, "something is to be purged", trashed, !rows[i].stays);
		list = fake_nfs_list(f, NULL);
		check_that(rows[i].name, "the file is left to the purger",
			   strstr(list, "/file\n") != NULL);
		fake_nfs_free(f);
	}
}
END_TEST

/* Another replica deletes the volume that is being made, or has made it as well. */
static void deleted(struct fake_nfs *f)
{
	fake_nfs_remove(f, ".csi-nfs/volumes/pvc-1");
}

START_TEST(test_create_deleted)
{
	static const struct sample *const volumes[] = { &flat, &wordy };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(volumes); i++) {
		struct meanwhile m = { NFS_OP_MKDIR, "pvc-1", deleted, 0 };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		fake_nfs_watch(f, act_once, &m);
		check_that("deleted", "create fails", create(f, volumes[i], 0, &err) < 0);
		check_error("deleted", &err, ERROR_ABORTED, NULL);
		check_int("deleted", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
		check_int("deleted", "create again", create(f, volumes[i], 0, &err), 0);
		check_int("deleted", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_DIRECTORY);
		fake_nfs_free(f);
	}
}
END_TEST

/* Those whose directory is decided on. */
START_TEST(test_crash_claimed)
{
	interrupt_everywhere(create_step, "create", &claimed, "claimed");
	interrupt_everywhere(delete, "delete", &claimed, "claimed");
	interrupt_everywhere(delete, "delete", &claimed_archived, "claimed and archived");
}
END_TEST

START_TEST(test_crash_refusing)
{
	interrupt_everywhere(create_step, "create", &refusing, "refusing");
	interrupt_everywhere(delete, "delete", &refusing, "refusing");
}
END_TEST

/*
 * The server refuses operation n with a code after which a CO never comes back: whatever of the
 * volume was made has to be gone. The driver's folders may stay.
 */
static void refuse(const char *row, const struct sample *v, unsigned int n, int error, bool umask)
{
	const struct fake_failure failure = { .nth = n, .error = error };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	cleanup_free char *outside = NULL, *all = NULL;
	const char *p;
	int r;

	if (umask)
		fake_nfs_umask(f, 0077);
	fake_nfs_fail(f, &failure);
	r = create(f, v, 0, &err);
	fake_nfs_fail(f, NULL);
	if (r < 0 && (err.code == ERROR_ABORTED || err.code == ERROR_UNAVAILABLE)) {
		fake_nfs_free(f);
		return; /* the CO comes back: the other loop is about that */
	}
	/* Without the RENAME of a note of a parent, it is written anew. */
	if (r == 0)
		check_int(row, "delete", delete (f, v, &err), 0);
	outside = fake_nfs_list(f, ".csi-nfs");
	check_str(row, "what is left outside the driver's folder", outside, "");
	all = fake_nfs_list(f, NULL);
	for (p = all; *p != '\0'; p += strcspn(p, "\n") + 1)
		ck_assert_msg(p[strcspn(p, "\n") - 1] == '/', "%s: '%.*s' is left", row,
			      (int)strcspn(p, "\n"), p);
	fake_nfs_free(f);
}

static void refuse_everywhere(const struct sample *v, const char *kind, bool umask)
{
	static const int errors[] = { -EACCES, -ENOSPC, -EROFS, -EPERM };
	cleanup_free char *unused = NULL;
	unsigned int total = undisturbed(create_step, v, &unused), n;
	size_t i;

	if (umask)
		total++; /* for SETATTR */
	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		for (n = 1; n <= total; n++) {
			char row[128];

			(void)snprintf(row, sizeof(row), "%s, operation %u of %u: %s", kind, n,
				       total, strerror(-errors[i]));
			refuse(row, v, n, errors[i], umask);
		}
	}
}

static const struct {
	const struct sample *volume;
	const char *kind;
	bool mode;
} refusals[] = {
	{ &flat, "flat" },       { &flat, "flat, mode to be set", .mode = true },
	{ &nested, "nested" },   { &wordy, "long record" },
	{ &claimed, "claimed" }, { &refusing, "refusing" },
};

START_TEST(test_refused)
{
	refuse_everywhere(refusals[_i].volume, refusals[_i].kind, refusals[_i].mode);
}
END_TEST

/*
 * The directory was made, its mode was refused, and so was its removal: a CO has to come back for
 * it.
 */
START_TEST(test_directory_that_cannot_be_taken_back)
{
	const struct fake_failure failure = {
		.nth = 1,
		.error = -EACCES,
		.all = true,
		.types = 1U << NFS_OP_SETATTR | 1U << NFS_OP_RMDIR,
	};
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	fake_nfs_umask(f, 0077);
	fake_nfs_fail(f, &failure);
	check_that("refused", "the call fails", create(f, &flat, 0, &err) < 0);
	fake_nfs_fail(f, NULL);
	check_error("refused", &err, ERROR_ABORTED, NULL);
	check_int("refused", "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"),
		  NFS_TYPE_SYMLINK);
	check_int("again", "create", create(f, &flat, 0, &err), 0);
	check_int("again", "delete", delete (f, &flat, &err), 0);
	check_int("again", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_UNKNOWN);
	fake_nfs_free(f);
}
END_TEST

/*
 * A deletion is not answered OK while something of it is there, whichever operation the server
 * failed.
 */
START_TEST(test_deleted_without_a_rest)
{
	static const int errors[] = { -EIO, -EACCES, -ENOSPC, -ESTALE };
	cleanup_free char *clean = NULL;
	unsigned int total = undisturbed(delete, &nested, &clean), n;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		for (n = 1; n <= total; n++) {
			const struct fake_failure failure = { .nth = n, .error = errors[i] };
			struct fake_nfs *f = prepared(delete, &nested);
			struct error err = { .code = ERROR_OK };
			char row[64];

			(void)snprintf(row, sizeof(row), "operation %u of %u: %s", n, total,
				       strerror(-errors[i]));
			fake_nfs_fail(f, &failure);
			if (delete (f, &nested, &err) < 0) {
				fake_nfs_fail(f, NULL);
				check_int(row, "again", delete (f, &nested, &err), 0);
			}
			check_share(row, f, NULL, clean);
			fake_nfs_free(f);
		}
	}
}
END_TEST

/*
 * What of a volume is written only if nobody else is at it: another replica makes it just as it is
 * undone.
 */
static void made_by_another(struct fake_nfs *f)
{
	fake_nfs_put(f, "pvc-1", NFS_TYPE_DIRECTORY, NULL);
}

START_TEST(test_undone_while_another_makes_it)
{
	const struct fake_failure failure = {
		.nth = 1, .error = -ENOSPC, .types = 1U << NFS_OP_MKDIR, .all = true
	};
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	struct meanwhile m = { .type = NFS_OP_REMOVE, .name = "pvc-1", .act = made_by_another };

	check_int("folders", "create", create(f, &flat, 0, &err), 0);
	check_int("folders", "delete", delete (f, &flat, &err), 0);
	fake_nfs_watch(f, act_once, &m);
	fake_nfs_fail(f, &failure);
	check_that("refused", "the call fails", create(f, &flat, 0, &err) < 0);
	fake_nfs_fail(f, NULL);
	check_error("refused", &err, ERROR_ABORTED, NULL);
	check_int("refused", "record", fake_nfs_type(f, ".csi-nfs/volumes/pvc-1"),
		  NFS_TYPE_SYMLINK);
	check_int("refused", "directory", fake_nfs_type(f, "pvc-1"), NFS_TYPE_DIRECTORY);
	fake_nfs_free(f);
}
END_TEST

CHECK_MAIN("volume",
	   .loops = { { test_kept_while_moved, 4 },
		      { test_nothing_of_others_is_released, 5 },
		      { test_crash, ARRAY_SIZE(interruptions) },
		      { test_refused, ARRAY_SIZE(refusals) } },
	   .tests = {
		   test_left_below_a_mark,
		   test_life,
		   test_left_behind,
		   test_already_exists,
		   test_special_bits_stay,
		   test_contents,
		   test_policy,
		   test_default_changes,
		   test_find_unfinished,
		   test_find_moved,
		   test_owner_of_remains,
		   test_retained_while_it_was_made,
		   test_id_of_another_directory,
		   test_id_without_its_directory,
		   test_archive_collision,
		   test_archive_closed,
		   test_archive_empty_there,
		   test_archive_long_name,
		   test_archive_long_names,
		   test_parents,
		   test_tombstone_of_a_backup,
		   test_in_the_way,
		   test_adopted,
		   test_away_for_a_moment,
		   test_record_gone,
		   test_claimed_during_deletion,
		   test_claimed_during_vain_deletion,
		   test_bad_record,
		   test_cut_record,
		   test_crash_delete_foreign,
		   test_crash_delete_then_create,
		   test_delete_late,
		   test_delete_late_in_place,
		   test_delete_record_that_stays_outside,
		   test_delete_fails_in_place,
		   test_delete_fails_without_a_mark,
		   test_delete_without_room_in_the_trash,
		   test_delete_record_that_cannot_move,
		   test_delete_late_beside_a_copy,
		   test_delete_late_twice,
		   test_delete_late_below,
		   test_parent_late,
		   test_delete_late_replaced,
		   test_delete_moving,
		   test_record_comes_back,
		   test_late_tombstone,
		   test_create_deleted,
		   test_crash_claimed,
		   test_crash_refusing,
		   test_directory_that_cannot_be_taken_back,
		   test_deleted_without_a_rest,
		   test_undone_while_another_makes_it,
	   })
