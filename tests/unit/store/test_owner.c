/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Whose directories are: volumes that meet, policies that a crash must not forget, and shares that
 * fold case. Calls are cut off, and other calls come in between, at every single operation.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "store/volume.h"
#include "store/directory.h"
#include "store/owner.h"
#include "store/users.h"
#include "store/volume.h"
#include "fake/nfs.h"
#include "store/layout.h"
#include "check_util.h"

struct sample {
	const char *key;
	const char *dir;
	const char *claim; /* NULL: none */
	const char *existing; /* NULL: not given */
	const char *on_delete; /* NULL: delete */
};

#define PLAIN(name)                                                                                \
	{                                                                                          \
		name, name, NULL, NULL, NULL                                                       \
	}
#define CLASS(name, dir)                                                                           \
	{                                                                                          \
		name, dir, VOLUME_CLAIM_EXCLUSIVE, NULL, NULL                                      \
	} /* variables in the subDir */
#define CONSTANT(name, dir)                                                                        \
	{                                                                                          \
		name, dir, NULL, NULL, NULL                                                        \
	}
#define RETAINED(name, dir)                                                                        \
	{                                                                                          \
		name, dir, NULL, NULL, "retain"                                                    \
	}
#define ADOPT(name, dir)                                                                           \
	{                                                                                          \
		name, dir, NULL, "adopt", NULL                                                     \
	}

static void describe(const struct sample *v, struct record *rec)
{
	bool own = strcmp(v->key, v->dir) == 0;
	char id[256];

	*rec = (struct record){ .n = 0 };
	(void)snprintf(id, sizeof(id), "fake#share#%s#%s#%s", v->dir, own ? "" : v->key,
		       v->on_delete != NULL ? v->on_delete : "");
	ck_assert(record_set(rec, VOLUME_KEY_NAME, v->key) == 0);
	ck_assert(record_set(rec, VOLUME_KEY_ID, id) == 0);
	ck_assert(record_set(rec, VOLUME_KEY_DIR, v->dir) == 0);
	ck_assert(record_set(rec, VOLUME_KEY_SIZE, "0") == 0);
	ck_assert(record_set(rec, VOLUME_KEY_MODE, "0000") == 0);
	ck_assert(record_set(rec, VOLUME_KEY_ON_DELETE,
			     v->on_delete != NULL ? v->on_delete : "delete") == 0);
	if (v->existing != NULL)
		ck_assert(record_set(rec, VOLUME_KEY_EXISTING, v->existing) == 0);
	if (v->claim != NULL)
		ck_assert(record_set(rec, VOLUME_KEY_CLAIM, v->claim) == 0);
}

static int create(struct fake_nfs *f, const struct sample *v, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 };

	describe(v, &rec);
	error_clear(err);
	return volume_create(c, v->key, &rec, &(struct volume_capacity){ 0 }, NULL, err);
}

static int delete_with(struct fake_nfs *f, const char *key, const char *dir, const char *policy,
		       bool replace_archive, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const struct volume_disposal how = { .policy = ON_DELETE_DELETE,
					     .replace_archive = replace_archive };
	cleanup_record struct record rec = { .n = 0 };
	bool trashed;
	int r;

	id.server = strdup("fake");
	id.share = strdup("share");
	id.subdir = strdup(dir);
	id.uuid = strdup(strcmp(key, dir) == 0 ? "" : key);
	id.on_delete = strdup(policy);
	error_clear(err);
	r = volume_read(c, &id, &rec, err);
	return r < 0 ? r : volume_delete(c, &id, &rec, &how, &trashed, err);
}

static int delete_by(struct fake_nfs *f, const char *key, const char *dir, bool replace_archive,
		     struct error *err)
{
	return delete_with(f, key, dir, "", replace_archive, err);
}

static int delete (struct fake_nfs *f, const struct sample *v, struct error *err)
{
	return delete_with(f, v->key, v->dir, v->on_delete != NULL ? v->on_delete : "", false, err);
}

static bool is_there(struct fake_nfs *f, const char *path)
{
	return fake_nfs_type(f, path) != NFS_TYPE_UNKNOWN;
}

static bool has_record(struct fake_nfs *f, const char *key)
{
	char path[256];

	(void)snprintf(path, sizeof(path), ".csi-nfs/volumes/%s", key);
	return is_there(f, path);
}

static void put_file(struct fake_nfs *f, const char *dir)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/file", dir);
	fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
}

static bool has_file(struct fake_nfs *f, const char *dir)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/file", dir);
	return is_there(f, path);
}

/* -------- volumes that meet -------- */

static const struct meeting {
	const char *name;
	struct sample first, second;
	bool allowed;
} meetings[] = {
	{ "two claims, one directory", CLASS("pvc-1", "a-b-c"), CLASS("pvc-2", "a-b-c"), false },
	{ "one in the other", CLASS("pvc-1", "a"), CLASS("pvc-2", "a/b"), false },
	{ "deep in the other", CLASS("pvc-1", "a"), CLASS("pvc-2", "a/b/c/d"), false },
	{ "one around the other", CLASS("pvc-1", "a/b"), CLASS("pvc-2", "a"), false },
	{ "beside the other", CLASS("pvc-1", "a/b"), CLASS("pvc-2", "a/c"), true },
	{ "another's beginning", CLASS("pvc-1", "a/b"), CLASS("pvc-2", "a/bc"), true },
	{ "a key, first", PLAIN("pvc-1"), CLASS("pvc-2", "pvc-1"), false },
	{ "a key, last", CLASS("pvc-2", "pvc-1"), PLAIN("pvc-1"), false },
	{ "in a key", PLAIN("pvc-1"), CLASS("pvc-2", "pvc-1/x"), false },
	{ "a key around", CLASS("pvc-2", "pvc-1/x"), PLAIN("pvc-1"), false },
	{ "a key that was adopted", CONSTANT("pvc-2", "pvc-1"), PLAIN("pvc-1"), false },
	{ "constant", CONSTANT("pvc-1", "shared"), CONSTANT("pvc-2", "shared"), true },
	{ "constant in a claim's", CLASS("pvc-1", "a"), CONSTANT("pvc-2", "a/b"), true },
	{ "claim in a constant one", CONSTANT("pvc-1", "a"), CLASS("pvc-2", "a/b"), false },
	{ "claim of a constant one", CONSTANT("pvc-1", "a"), CLASS("pvc-2", "a"), false },
	{ "adopting what is a claim's", CLASS("pvc-1", "a"), ADOPT("pvc-2", "a"), true },
	{ "claim of an adopted one", ADOPT("pvc-1", "a"), CLASS("pvc-2", "a"), false },
	{ "case makes the difference", CLASS("pvc-1", "Team/x"), CLASS("pvc-2", "team/x"), true },
};

START_TEST(test_meeting)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(meetings); i++) {
		const struct meeting *m = &meetings[i];
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(m->name, "first", create(f, &m->first, &err), 0);
		put_file(f, m->first.dir);
		check_int(m->name, "second", create(f, &m->second, &err) == 0, m->allowed);
		if (!m->allowed) {
			check_error(m->name, &err, ERROR_FAILED_PRECONDITION, m->first.key);
			check_error(m->name, &err, ERROR_FAILED_PRECONDITION, m->second.key);
			check_that(m->name, "no record is left", !has_record(f, m->second.key));
			check_int(m->name, "second again", create(f, &m->second, &err) == 0, 0);
		}
		check_int(m->name, "first again", create(f, &m->first, &err) == 0, 1);
		check_int(m->name, "deletion of the second", delete (f, &m->second, &err), 0);
		check_that(m->name, "the first has its data", has_file(f, m->first.dir));
		check_int(m->name, "deletion of the first", delete (f, &m->first, &err), 0);
		check_that(m->name, "nothing is left", !is_there(f, m->first.dir));
		check_that(m->name, "no records", !has_record(f, m->first.key));
		fake_nfs_free(f);
	}
}
END_TEST

/* An unrecorded directory is taken, as csi-driver-nfs does, but for an archive. */
START_TEST(test_unrecorded)
{
	static const struct sample claim = CLASS("pvc-1", "a/b");
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	put_file(f, "a/b");
	check_int("unrecorded", "create", create(f, &claim, &err), 0);
	check_that("unrecorded", "its data", has_file(f, "a/b"));
	check_int("unrecorded", "delete", delete (f, &claim, &err), 0);
	check_that("unrecorded", "gone", !is_there(f, "a/b"));
	fake_nfs_free(f);
}
END_TEST

/* Two that begin at once: the second's whole call comes in before each operation of the first. */
struct intruder {
	const struct sample *volume;
	unsigned int before; /* operation of the first */
	unsigned int seen;
	bool inside;
	int result;
	enum error_code code;
};

static void intrude(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct error err = { .code = ERROR_OK };
	struct intruder *x = data;

	(void)op;
	if (x->inside || ++x->seen != x->before)
		return;
	x->inside = true;
	x->result = create(f, x->volume, &err);
	x->code = err.code;
	x->inside = false;
}

static bool race(const struct meeting *m, const struct sample *first, const struct sample *second,
		 unsigned int before)
{
	struct intruder x = { .volume = second, .before = before, .result = 1 };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	char row[128];
	int r;

	(void)snprintf(row, sizeof(row), "%s, %s comes before operation %u of %s", m->name,
		       second->key, before, first->key);
	fake_nfs_watch(f, intrude, &x);
	r = create(f, first, &err);
	fake_nfs_watch(f, NULL, NULL);
	if (x.result > 0) {
		fake_nfs_free(f);
		return false; /* the first was done by then */
	}
	check_that(row, "not both succeed", r < 0 || x.result < 0);
	if (r < 0)
		check_that(row, "the first's code",
			   err.code == ERROR_FAILED_PRECONDITION || err.code == ERROR_ABORTED ||
				   err.code == ERROR_UNAVAILABLE || r == -ESTALE);
	if (x.result < 0)
		check_int(row, "the second's code", x.code, ERROR_FAILED_PRECONDITION);
	if (r == 0)
		check_int(row, "the first is there", is_there(f, first->dir), 1);
	if (x.result == 0)
		check_int(row, "the second is there", is_there(f, second->dir), 1);
	/* Who comes again after both have failed gets it. */
	if (r < 0 && x.result < 0)
		check_int(row, "again", create(f, first, &err), 0);
	fake_nfs_free(f);
	return true;
}

START_TEST(test_race)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(meetings); i++) {
		const struct meeting *m = &meetings[i];
		bool both = m->second.claim != NULL || strcmp(m->second.key, m->second.dir) == 0;
		unsigned int n;

		/* What may share does, in whatever order it comes. */
		if (m->allowed || !both || m->first.claim == NULL)
			continue;
		for (n = 1; race(m, &m->first, &m->second, n); n++)
			;
		check_that(m->name, "there were some", n > 5);
		for (n = 1; race(m, &m->second, &m->first, n); n++)
			;
	}
}
END_TEST

/* -------- policies and crashes -------- */

static const struct sample refusing = { "pvc-1", "a/b", VOLUME_CLAIM_SHARED, "refuse", NULL };
static const struct sample refusing_plain = { "pvc-1", "pvc-1", VOLUME_CLAIM_EXCLUSIVE, "refuse",
					      NULL };
static const struct sample requiring = { "pvc-1", "a/b", VOLUME_CLAIM_SHARED, "require", NULL };

START_TEST(test_policies)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("require", "without", create(f, &requiring, &err) < 0, 1);
	check_error("require", &err, ERROR_FAILED_PRECONDITION, "require");
	check_that("require", "no record", !has_record(f, "pvc-1"));
	put_file(f, "a/b");
	check_int("require", "with", create(f, &requiring, &err), 0);
	check_int("require", "again", create(f, &requiring, &err), 0);
	fake_nfs_remove(f, "a");
	check_int("require", "again, and it has gone", create(f, &requiring, &err) < 0, 1);
	check_error("require", &err, ERROR_FAILED_PRECONDITION, "require");
	check_that("require", "none is made", !is_there(f, "a"));
	put_file(f, "a/b");
	check_int("require", "with another", create(f, &requiring, &err), 0);
	check_int("require", "delete", delete (f, &requiring, &err), 0);
	check_that("require", "gone", !is_there(f, "a/b"));
	put_file(f, "a/b");
	check_int("refuse", "with", create(f, &refusing, &err) < 0, 1);
	check_error("refuse", &err, ERROR_FAILED_PRECONDITION, "a/b");
	check_that("refuse", "no record", !has_record(f, "pvc-1"));
	fake_nfs_remove(f, "a/b");
	fake_nfs_put(f, "a/b", NFS_TYPE_DIRECTORY, NULL);
	check_int("refuse", "with an empty one", create(f, &refusing, &err) < 0, 1);
	fake_nfs_remove(f, "a");
	check_int("refuse", "without", create(f, &refusing, &err), 0);
	check_int("refuse", "mode", fake_nfs_mode(f, "a/b"), 0755);
	check_int("refuse", "again", create(f, &refusing, &err), 0);
	check_int("refuse", "delete", delete (f, &refusing, &err), 0);
	check_that("refuse", "gone", !is_there(f, "a"));
	fake_nfs_free(f);
}
END_TEST

/*
 * The call is cut off at operation n. Then a stranger makes the directory, unless it is there.
 * Whatever comes after, the stranger's data stays: the retry is refused, and a deletion leaves it
 * alone.
 */
static bool cut_off(const char *name, const struct sample *v, unsigned int n, bool after,
		    bool retry)
{
	const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED, .after = after };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	bool stranger;
	char row[128];
	int r;

	(void)snprintf(row, sizeof(row), "%s, cut off %s operation %u%s", name,
		       after ? "after" : "before", n, retry ? ", tried again" : "");
	fake_nfs_fail(f, &failure);
	r = create(f, v, &err);
	fake_nfs_fail(f, NULL);
	if (r == 0) {
		fake_nfs_free(f);
		return false;
	}
	stranger = !is_there(f, v->dir);
	if (stranger)
		put_file(f, v->dir);
	if (retry) {
		r = create(f, v, &err);
		check_int(row, "the retry succeeds", r == 0, !stranger);
		if (r < 0)
			check_error(row, &err, ERROR_FAILED_PRECONDITION, v->dir);
	}
	/*
	 * An id that leads to no record is csi-driver-nfs's, and was never handed out by this
	 * driver.
	 */
	if (has_record(f, v->key))
		check_int(row, "delete", delete (f, v, &err), 0);
	check_int(row, "what is there", has_file(f, v->dir), stranger);
	check_int(row, "the directory", is_there(f, v->dir), stranger);
	check_that(row, "no record", !has_record(f, v->key));
	fake_nfs_free(f);
	return true;
}

static void cut_off_everywhere(const char *name, const struct sample *v)
{
	unsigned int n, i;

	for (i = 0; i < 4; i++) {
		for (n = 1; cut_off(name, v, n, i & 1, i & 2); n++)
			;
		check_that(name, "there was something to cut off", n > 5);
	}
}

START_TEST(test_refuse_is_not_forgotten)
{
	cut_off_everywhere("refuse", &refusing);
	cut_off_everywhere("refuse, named by default", &refusing_plain);
}
END_TEST

/*
 * A directory that was there, and one that is there no more: a retry makes none, and what a
 * deletion takes was decided on before.
 */
static bool cut_off_requiring(unsigned int n, bool after)
{
	const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED, .after = after };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	bool decided = false;
	char row[64], *list;
	int r;

	(void)snprintf(row, sizeof(row), "cut off %s operation %u", after ? "after" : "before", n);
	put_file(f, "a/b");
	fake_nfs_fail(f, &failure);
	r = create(f, &requiring, &err);
	fake_nfs_fail(f, NULL);
	if (has_record(f, "pvc-1")) {
		struct nfs_client *c = fake_nfs_connect(f);
		cleanup_volume_id struct volume_id id = { .server = NULL };
		cleanup_record struct record rec = { .n = 0 };
		struct volume v;

		check_int(row, "id", volume_id_parse(&id, "fake#share#a/b#pvc-1#"), 0);
		check_int(row, "record", volume_read(c, &id, &rec, &err), 0);
		v = volume_of(&rec);
		decided = !volume_is_unfinished(&v);
		nfs_client_free(c);
		check_int(row, "delete", delete (f, &requiring, &err), 0);
		check_int(row, "what stays", has_file(f, "a/b"), !decided);
	}
	fake_nfs_remove(f, "a");
	list = fake_nfs_list(f, ".csi-nfs");
	check_int(row, "a directory is made", create(f, &requiring, &err) == 0, 0);
	check_error(row, &err, ERROR_FAILED_PRECONDITION, "require");
	check_str(row, "what is there", list, "");
	free(list);
	fake_nfs_free(f);
	return r < 0;
}

START_TEST(test_require_is_not_forgotten)
{
	unsigned int n, after;

	for (after = 0; after < 2; after++) {
		for (n = 1; cut_off_requiring(n, after != 0); n++)
			;
		check_that("require", "there was something to cut off", n > 5);
	}
}
END_TEST

/* A retry of require after a crash makes no directory. */
START_TEST(test_require_again)
{
	const struct fake_failure failure = { .nth = 6, .error = -ECONNABORTED };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	fake_nfs_fail(f, &failure);
	check_int("require again", "first", create(f, &requiring, &err), -ECONNABORTED);
	fake_nfs_fail(f, NULL);
	check_that("require again", "there is a record", has_record(f, "pvc-1"));
	check_int("require again", "second", create(f, &requiring, &err) == 0, 0);
	check_that("require again", "no directory", !is_there(f, "a/b"));
	check_that("require again", "no record", !has_record(f, "pvc-1"));
	fake_nfs_free(f);
}
END_TEST

/*
 * A claim that is refused, and whose call ends before its record is gone: when the owner's volume
 * is deleted, its directory goes, and the claim that is tried again finds nothing of it.
 */
START_TEST(test_refused_claim_waits)
{
	static const struct sample owner = CLASS("pvc-1", "a-b-c"), late = CLASS("pvc-2", "a-b-c");
	unsigned int n;

	for (n = 1;; n++) {
		const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED };
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		bool cut;

		check_int("late", "owner", create(f, &owner, &err), 0);
		put_file(f, owner.dir);
		fake_nfs_fail(f, &failure);
		check_that("late", "it is refused", create(f, &late, &err) < 0);
		cut = err.code != ERROR_FAILED_PRECONDITION;
		fake_nfs_fail(f, NULL);
		check_int("late", "owner again", create(f, &owner, &err), 0);
		check_int("late", "deletion of the owner's", delete (f, &owner, &err), 0);
		check_that("late", "the data is gone", !has_file(f, owner.dir));
		check_int("late", "tried again", create(f, &late, &err), 0);
		check_that("late", "it is empty", !has_file(f, late.dir));
		fake_nfs_free(f);
		if (!cut)
			break;
	}
	check_that("late", "there was something to cut off", n > 5);
}
END_TEST

/* -------- archives -------- */

START_TEST(test_archive_spares_others)
{
	static const struct sample old = { "pvc-1", "shop/data", VOLUME_CLAIM_EXCLUSIVE, NULL,
					   "archive" };
	static const struct sample lives[] = {
		CLASS("pvc-2", "archived-shop/data"),
		CLASS("pvc-2", "archived-shop"),
		CLASS("pvc-2", "archived-shop/data/deep"),
		PLAIN("archived-shop"),
	};
	size_t i, replace;

	for (i = 0; i < 2 * ARRAY_SIZE(lives); i++) {
		const struct sample *live = &lives[i / 2];
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *list = NULL;

		replace = i % 2;
		check_int(live->dir, "old", create(f, &old, &err), 0);
		put_file(f, old.dir);
		check_int(live->dir, "live", create(f, live, &err), 0);
		put_file(f, live->dir);
		check_int(live->dir, "delete", delete_by(f, old.key, old.dir, replace, &err), 0);
		check_that(live->dir, "the live volume has its data", has_file(f, live->dir));
		list = fake_nfs_list(f, live->dir);
		check_that(live->dir, "the old one is archived elsewhere",
			   strstr(list, "archived-shop.2") != NULL &&
				   strstr(list, "/data/file") != NULL);
		check_int(live->dir, "delete", delete (f, live, &err), 0);
		check_that(live->dir, "the live volume is gone", !has_file(f, live->dir));
		fake_nfs_free(f);
	}
}
END_TEST

/* An archive replaces only an older archive of the same volume, and lies in no other. */
START_TEST(test_archive_spares_archives)
{
	static const struct sample outer = { "pvc-1", "apps", VOLUME_CLAIM_EXCLUSIVE, NULL,
					     "archive" };
	static const struct sample inner = { "pvc-2", "apps/db", VOLUME_CLAIM_EXCLUSIVE, NULL,
					     "archive" };
	size_t i;

	for (i = 0; i < 4; i++) {
		const struct sample *first = i % 2 ? &outer : &inner;
		const struct sample *second = i % 2 ? &inner : &outer;
		const char *row = i % 2 ? "outer first" : "inner first";
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *list = NULL;
		const char *at;
		unsigned int files = 0;

		check_int(row, "first", create(f, first, &err), 0);
		put_file(f, first->dir);
		put_file(f, "apps/db");
		check_int(row, "delete", delete_by(f, first->key, first->dir, i / 2, &err), 0);
		check_int(row, "second", create(f, second, &err), 0);
		put_file(f, second->dir);
		check_int(row, "delete", delete_by(f, second->key, second->dir, i / 2, &err), 0);
		list = fake_nfs_list(f, NULL);
		for (at = list; (at = strstr(at, "/file")) != NULL; at++)
			files++;
		check_int(row, "files", files, i % 2 ? 3 : 2);
		check_that(row, "nothing is in the trash",
			   strstr(list, "trash/\n.csi-nfs/trash") == NULL);
		fake_nfs_free(f);
	}
}
END_TEST

/* Likewise on a share that was restored from a backup: the directories are others then. */
START_TEST(test_archive_spares_restored_archives)
{
	static const struct sample inner = { "pvc-2", "apps/db", VOLUME_CLAIM_EXCLUSIVE, NULL,
					     "archive" };
	static const struct sample outer = { "pvc-1", "apps", VOLUME_CLAIM_EXCLUSIVE, NULL,
					     "archive" };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("restored", "create", create(f, &inner, &err), 0);
	put_file(f, "apps/db");
	check_int("restored", "delete", delete_by(f, inner.key, inner.dir, true, &err), 0);
	check_that("restored", "the archive", has_file(f, "archived-apps/db"));
	fake_nfs_remove(f, "archived-apps");
	put_file(f, "archived-apps/db");
	check_int("restored", "create", create(f, &outer, &err), 0);
	put_file(f, "apps");
	check_int("restored", "delete", delete_by(f, outer.key, outer.dir, true, &err), 0);
	check_that("restored", "the archive stays", has_file(f, "archived-apps/db"));
	check_that("restored", "the volume is archived", !is_there(f, "apps"));
	fake_nfs_free(f);
}
END_TEST

/* What was archived does not become another volume's by its name. */
START_TEST(test_archive_is_not_adopted)
{
	static const struct sample old = { "pvc-1", "shop/data", VOLUME_CLAIM_EXCLUSIVE, NULL,
					   "archive" };
	static const struct sample late = CLASS("pvc-2", "archived-shop/data");
	static const struct sample adopter = ADOPT("pvc-3", "archived-shop/data");
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("archive", "old", create(f, &old, &err), 0);
	put_file(f, old.dir);
	check_int("archive", "delete", delete (f, &old, &err), 0);
	check_int("archive", "adopted", create(f, &late, &err) == 0, 0);
	check_error("archive", &err, ERROR_FAILED_PRECONDITION, "archive");
	check_that("archive", "stays", has_file(f, "archived-shop/data"));
	check_int("archive", "adopted on purpose", create(f, &adopter, &err), 0);
	check_that("archive", "stays", has_file(f, "archived-shop/data"));
	fake_nfs_free(f);
}
END_TEST

/* A directory that was removed and made again is another one: mounts of the first are stale. */
static bool is_still(struct fake_nfs *f, const char *path, const struct nfs_handle *handle)
{
	struct nfs_handle now;
	struct nfs_attr attr;

	return fake_nfs_get(f, path, &now, &attr) && nfs_handle_is_equal(&now, handle);
}

/* A parent that a volume has made its own is not removed with the last volume in it. */
START_TEST(test_parent_became_a_volume)
{
	static const struct sample inner = RETAINED("pvc-1", "a/b"), outer = CONSTANT("pvc-2", "a");
	static const struct sample again = CONSTANT("pvc-3", "a/x");
	struct fake_failure failure = { .error = -EDQUOT, .types = 1U << NFS_OP_MKDIR };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	check_int("parent", "inner", create(f, &inner, &err), 0);
	check_int("parent", "outer", create(f, &outer, &err), 0);
	check_that("parent", "outer's directory", fake_nfs_get(f, "a", &handle, &attr));
	/* Else a/b would stay, as outer's, and "a" would not be empty. */
	fake_nfs_remove(f, "a/b");
	check_int("parent", "delete inner", delete (f, &inner, &err), 0);
	check_that("parent", "outer stays", is_still(f, "a", &handle));
	/* The last MKDIR is that of a/x: when it fails, outer's directory is empty. */
	do {
		failure.nth++;
		fake_nfs_fail(f, &failure);
		r = create(f, &again, &err);
		fake_nfs_fail(f, NULL);
		check_that("parent", "outer stays", is_still(f, "a", &handle));
	} while (r < 0);
	check_that("parent", "some failed", failure.nth > 1);
	fake_nfs_free(f);
}
END_TEST

/* -------- shares that fold case -------- */

static struct fake_nfs *folding(void)
{
	const struct fake_habits habits = { .folds = true };
	struct fake_nfs *f = fake_nfs_new();

	fake_nfs_habits(f, &habits);
	return f;
}

START_TEST(test_folded_directories)
{
	static const struct {
		struct sample first, second;
		bool allowed;
	} rows[] = {
		{ CLASS("pvc-1", "Team/x"), CLASS("pvc-2", "team/x"), false },
		{ CLASS("pvc-1", "Team"), CLASS("pvc-2", "team/x"), false },
		{ CLASS("pvc-1", "team/x"), CLASS("pvc-2", "TEAM"), false },
		{ PLAIN("Team"), CLASS("pvc-2", "team/x"), false },
		{ CLASS("pvc-2", "team/x"), PLAIN("Team"), false },
		{ CONSTANT("pvc-1", "Team/x"), CONSTANT("pvc-2", "team/x"), true },
		{ CONSTANT("pvc-1", "Team"), CONSTANT("pvc-2", "team/x"), true },
		{ PLAIN("Team"), CONSTANT("pvc-2", "team"), true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct sample *first = &rows[i].first, *second = &rows[i].second;
		struct fake_nfs *f = folding();
		struct error err = { .code = ERROR_OK };

		check_int(first->dir, "first", create(f, first, &err), 0);
		put_file(f, first->dir);
		check_int(second->dir, "second", create(f, second, &err) == 0, rows[i].allowed);
		check_int(second->dir, "delete the second", delete (f, second, &err), 0);
		check_that(second->dir, "the first has its data", has_file(f, first->dir));
		check_int(first->dir, "first again", create(f, first, &err), 0);
		check_int(first->dir, "delete the first", delete (f, first, &err), 0);
		check_that(first->dir, "all is gone", !is_there(f, first->dir));
		fake_nfs_free(f);
	}
}
END_TEST

/* One record under two keys: it is the one's whose name is in it. */
START_TEST(test_folded_keys)
{
	static const struct sample big = PLAIN("PVC-1"), small = PLAIN("pvc-1");
	static const struct sample big_named = CLASS("PVC-1", "team/x"),
				   other = CLASS("pvc-1", "team/y");
	struct fake_nfs *f = folding();
	struct error err = { .code = ERROR_OK };

	check_int("keys", "first", create(f, &big, &err), 0);
	put_file(f, "PVC-1");
	check_int("keys", "second", create(f, &small, &err) == 0, 0);
	check_error("keys", &err, ERROR_ALREADY_EXISTS, "pvc-1");
	check_int("keys", "delete the second", delete (f, &small, &err), 0);
	check_that("keys", "the first has its data", has_file(f, "PVC-1"));
	check_that("keys", "the first has its record", has_record(f, "PVC-1"));
	check_int("keys", "delete the first", delete (f, &big, &err), 0);
	check_that("keys", "no record", !has_record(f, "PVC-1"));
	check_int("named", "first", create(f, &big_named, &err), 0);
	put_file(f, "team/x");
	check_int("named", "second", create(f, &other, &err) == 0, 0);
	check_int("named", "delete the second", delete_by(f, "pvc-1", "team/x", false, &err), 0);
	check_that("named", "the first has its data", has_file(f, "team/x"));
	check_that("named", "and its note", is_there(f, ".csi-nfs/users/team%2Fx/PVC-1"));
	fake_nfs_free(f);
}
END_TEST

/* By whatever name, the driver's own folder is no volume's, nor is anything in it. */
START_TEST(test_own_folder)
{
	static const char *const paths[] = { ".CSI-NFS", ".Csi-nfs/volumes", ".csi-NFS/x/y" };
	struct fake_nfs *f = folding();
	struct nfs_client *c = fake_nfs_connect(f);
	static const struct sample v = PLAIN("pvc-1");
	struct error err = { .code = ERROR_OK };
	size_t i;

	check_int("own", "create", create(f, &v, &err), 0);
	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		const struct sample bad = CLASS("pvc-2", paths[i]);
		struct directory_place place;
		struct nfs_handle handle;
		struct nfs_attr attr;

		error_clear(&err);
		check_that(paths[i], "found",
			   directory_find(c, paths[i], &place, &handle, &attr, &err) < 0);
		check_error(paths[i], &err, ERROR_FAILED_PRECONDITION, ".csi-nfs");
		check_that(paths[i], "create", create(f, &bad, &err) < 0);
		if (strcmp(paths[i], ".csi-NFS/x/y") != 0)
			check_that(paths[i], "delete",
				   delete_by(f, "pvc-2", paths[i], false, &err) < 0);
		check_that(paths[i], "the record is there", has_record(f, "pvc-1"));
	}
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* Somebody has removed the notes, or restored the records without them. */
START_TEST(test_notes_are_gone)
{
	static const struct {
		const char *name;
		struct sample one, other;
	} rows[] = {
		{ "the same directory", CONSTANT("one", "a/shared"), CONSTANT("two", "a/shared") },
		{ "one in it", CONSTANT("one", "a"), CONSTANT("two", "a/shared") },
		{ "one around it", CONSTANT("one", "a/shared/b"), CONSTANT("two", "a/shared") },
		{ "retained", RETAINED("one", "a/shared"), CONSTANT("two", "a/shared") },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "create", create(f, &rows[i].one, &err), 0);
		check_int(rows[i].name, "create the other", create(f, &rows[i].other, &err), 0);
		fake_nfs_put(f, "a/shared/b/file", NFS_TYPE_FILE, NULL);
		fake_nfs_remove(f, ".csi-nfs/users");
		check_int(rows[i].name, "delete", delete (f, &rows[i].one, &err), 0);
		check_that(rows[i].name, "the file stays", is_there(f, "a/shared/b/file"));
		check_that(rows[i].name, "the record goes", !is_there(f, ".csi-nfs/volumes/one"));
		check_int(rows[i].name, "delete the other", delete (f, &rows[i].other, &err), 0);
		check_int(rows[i].name, "the file goes", is_there(f, "a/shared/b/file"),
			  rows[i].one.on_delete != NULL);
		fake_nfs_free(f);
	}
}
END_TEST

/* The other volume's deletion comes before each operation of the one that reads all records. */
struct leaver {
	const struct sample *volume;
	unsigned int before, seen;
	bool inside;
	int result;
};

static void leave(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct error err = { .code = ERROR_OK };
	struct leaver *x = data;

	(void)op;
	if (x->inside || ++x->seen != x->before)
		return;
	x->inside = true;
	x->result = delete (f, x->volume, &err);
	x->inside = false;
}

static bool leaves_before(const struct sample *one, const struct sample *other, unsigned int before)
{
	struct leaver x = { .volume = other, .before = before, .result = 1 };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	char row[128];

	(void)snprintf(row, sizeof(row), "%s around %s leaves before operation %u", other->dir,
		       one->dir, before);
	check_int(row, "create", create(f, one, &err), 0);
	check_int(row, "create the other", create(f, other, &err), 0);
	put_file(f, "a/b");
	fake_nfs_remove(f, ".csi-nfs/users");
	fake_nfs_watch(f, leave, &x);
	(void)delete (f, one, &err);
	fake_nfs_watch(f, NULL, NULL);
	if (x.result <= 0) {
		check_int(row, "delete again", delete (f, one, &err), 0);
		check_int(row, "delete the other again", delete (f, other, &err), 0);
		check_that(row, "what is retained stays", has_file(f, "a/b"));
	}
	fake_nfs_free(f);
	return x.result <= 0;
}

START_TEST(test_notes_are_gone_and_another_leaves)
{
	static const struct {
		struct sample one, other;
	} rows[] = {
		{ CONSTANT("one", "a/b"), RETAINED("two", "a/b") },
		{ CONSTANT("one", "a"), RETAINED("two", "a/b") },
		{ CONSTANT("one", "a/b"), RETAINED("two", "a") },
	};
	unsigned int n;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (n = 1; leaves_before(&rows[i].one, &rows[i].other, n); n++)
			;
		check_that("another leaves", "there were some", n > 5);
	}
}
END_TEST

/*
 * An interrupted deletion may have removed the notes already. What is left of it is done though
 * another volume's record is damaged, as a whole deletion is.
 */
START_TEST(test_notes_are_gone_by_a_deletion)
{
	static const struct sample rows[] = {
		CONSTANT("one", "a/b"),
		RETAINED("one", "a/b"),
		{ "one", "a/b", VOLUME_CLAIM_EXCLUSIVE, NULL, "archive" },
	};
	unsigned int n, calls;
	size_t i;
	int r;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (n = 1, r = -1; r < 0; n++) {
			struct fake_nfs *f = fake_nfs_new();
			struct error err = { .code = ERROR_OK };
			char row[64];

			(void)snprintf(row, sizeof(row), "row %zu, killed at operation %u", i, n);
			check_int(row, "create", create(f, &rows[i], &err), 0);
			put_file(f, rows[i].dir);
			fake_nfs_put(f, ".csi-nfs/volumes/other", NFS_TYPE_SYMLINK, "garbage");
			fake_nfs_fail(f, &(struct fake_failure){
						 .nth = n, .error = -ECONNABORTED, .all = true });
			r = delete (f, &rows[i], &err);
			fake_nfs_fail(f, &(struct fake_failure){ .nth = 0 });
			for (calls = 0; delete (f, &rows[i], &err) < 0 && calls < 3; calls++)
				;
			check_int(row, err.msg, err.code, ERROR_OK);
			check_that(row, "the record is gone", !has_record(f, "one"));
			check_int(row, "the data", has_file(f, rows[i].dir),
				  str_eq(rows[i].on_delete, "retain"));
			fake_nfs_free(f);
		}
		check_that("killed", "there were some", n > 20);
	}
}
END_TEST

/* A record that somebody has copied speaks for nobody. */
START_TEST(test_copied_record)
{
	static const struct sample good = PLAIN("pvc-1"), bad = PLAIN("pvc-2");
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("copied", "create", create(f, &good, &err), 0);
	put_file(f, "pvc-1");
	fake_nfs_put(f, ".csi-nfs/volumes/pvc-2", NFS_TYPE_SYMLINK,
		     "v=1;name=pvc-1;id=fake%23share%23pvc-1%23%23;dir=pvc-1;size=0;mode=0000");
	check_that("copied", "delete", delete (f, &bad, &err) < 0);
	check_error("copied", &err, ERROR_FAILED_PRECONDITION, "pvc-1");
	check_that("copied", "create", create(f, &bad, &err) < 0);
	check_that("copied", "the data is there", has_file(f, "pvc-1"));
	fake_nfs_free(f);
}
END_TEST

/* What a damaged record may own stays. */
START_TEST(test_damaged_record)
{
	static const struct sample inner = CLASS("pvc-1", "ns/data"),
				   outer = CONSTANT("pvc-2", "ns");
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("damaged", "inner", create(f, &inner, &err), 0);
	put_file(f, "ns/data");
	check_int("damaged", "outer", create(f, &outer, &err), 0);
	fake_nfs_remove(f, ".csi-nfs/volumes/pvc-1");
	fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK,
		     "v=1;parts=2;hash=0123456789abcdef");
	check_that("damaged", "delete", delete (f, &outer, &err) < 0);
	check_error("damaged", &err, ERROR_FAILED_PRECONDITION, "pvc-1");
	check_that("damaged", "the data is there", has_file(f, "ns/data"));
	check_that("damaged", "the record is there", has_record(f, "pvc-2"));
	/* One that does not tell its directory any more. */
	fake_nfs_remove(f, ".csi-nfs/volumes/pvc-1");
	fake_nfs_put(f, ".csi-nfs/volumes/pvc-1", NFS_TYPE_SYMLINK, "v=1;name=pvc-1;id=fake%23sha");
	check_int("cut", "delete", delete (f, &outer, &err), 0);
	check_that("cut", "the data is there", has_file(f, "ns/data"));
	fake_nfs_free(f);
}
END_TEST

/* Ids without a record lead to what has one: it stays. */
START_TEST(test_foreign_ids)
{
	static const struct sample inner = CLASS("pvc-1", "ns/data"), plain = PLAIN("pvc-2");
	static const char *const paths[] = { "ns",      "ns/data", "ns/data/x", "pvc-2",
					     "pvc-2/x", "snap-1",  "snap-1/x" };
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	size_t i;

	check_int("foreign", "inner", create(f, &inner, &err), 0);
	check_int("foreign", "plain", create(f, &plain, &err), 0);
	put_file(f, "ns/data/x");
	put_file(f, "pvc-2/x");
	put_file(f, "snap-1/x");
	fake_nfs_put(f, ".csi-nfs/snapshots/snap-1", NFS_TYPE_SYMLINK, "v=1;name=snap-1");
	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		check_int(paths[i], "delete", delete_by(f, "foreign", paths[i], false, &err), 0);
		check_that(paths[i], "all is there",
			   has_file(f, "ns/data/x") && has_file(f, "pvc-2/x") &&
				   has_file(f, "snap-1/x"));
	}
	check_int("foreign", "its own", delete_by(f, "foreign", "nobody", false, &err), 0);
	put_file(f, "nobody");
	check_int("foreign", "its own", delete_by(f, "foreign", "nobody", false, &err), 0);
	check_that("foreign", "its own is gone", !is_there(f, "nobody"));
	fake_nfs_free(f);
}
END_TEST

/*
 * The record of a snapshot that is being deleted is a tombstone, and may become a record again. Its
 * directory is nobody else's until then.
 */
START_TEST(test_snapshot_is_being_deleted)
{
	static const struct {
		const char *path;
		const char *tombstone;
		bool refused;
	} rows[] = {
		{ "snap-1", "snap-1~s~00000000000000aa.1", true },
		{ "snap-1/x", "snap-1~s~00000000000000aa.1", true },
		{ "snap-2", "snap-1~s~00000000000000aa.1", false },
		{ "snap-1/x", "snap-1~d~00000000000000aa.1", false },
		{ "snap-1", "snap-1%2Fx~s~00000000000000aa.1", false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct owner_question q = { .volume = "pvc-1", .scope = OWNER_ALL };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct error err = { .code = ERROR_OK };
		char path[128];
		struct owner owner;

		put_file(f, "snap-1/x/file");
		fake_nfs_put(f, ".csi-nfs/snapshots", NFS_TYPE_DIRECTORY, NULL);
		(void)snprintf(path, sizeof(path), ".csi-nfs/busy/%s", rows[i].tombstone);
		fake_nfs_put(f, path, NFS_TYPE_SYMLINK, "v=1;name=snap-1");
		check_int(rows[i].tombstone, rows[i].path,
			  owner_find(c, rows[i].path, &q, &owner, &err),
			  rows[i].refused ? -EAGAIN : 0);
		check_int(rows[i].tombstone, "code", (int)err.code,
			  rows[i].refused ? ERROR_ABORTED : ERROR_OK);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* -------- directories that are kept -------- */

#define RETAIN(name, dir)                                                                          \
	{                                                                                          \
		name, dir, NULL, NULL, "retain"                                                    \
	}
#define ARCHIVE(name, dir)                                                                         \
	{                                                                                          \
		name, dir, NULL, NULL, "archive"                                                   \
	}

/* The first keeps its data, whatever becomes of the second. */
static const struct pair {
	const char *name;
	struct sample first, second;
} pairs[] = {
	{ "retained, the same", RETAIN("v1", "p"), CONSTANT("v2", "p") },
	{ "retained, around", RETAIN("v1", "p"), CONSTANT("v2", "p/x") },
	{ "retained, in it", RETAIN("v1", "p/x"), CONSTANT("v2", "p") },
	{ "retained, deep in it", RETAIN("v1", "p/x/y/z"), CONSTANT("v2", "p/x") },
	{ "retained, deep and the same", RETAIN("v1", "p/x/y"), CONSTANT("v2", "p/x/y") },
	{ "retained, a key", RETAIN("v1", "v1"), CONSTANT("v2", "v1") },
	{ "retained, around, a key", RETAIN("v1", "v1"), CONSTANT("v2", "v1/x") },
	{ "retained, of a key", RETAIN("v1", "v2"), ADOPT("v2", "v2") },
	{ "retained, in a key", RETAIN("v1", "v2/x"), ADOPT("v2", "v2") },
	{ "retained, the other is archived", RETAIN("v1", "p"), ARCHIVE("v2", "p") },
	{ "archived, the same", ARCHIVE("v1", "p"), CONSTANT("v2", "p") },
	{ "archived, around", ARCHIVE("v1", "p"), CONSTANT("v2", "p/x") },
	{ "archived, in it", ARCHIVE("v1", "p/x"), CONSTANT("v2", "p") },
	{ "archived, a key", ARCHIVE("v1", "v1"), CONSTANT("v2", "v1") },
	{ "archived, of a key", ARCHIVE("v1", "v2"), ADOPT("v2", "v2") },
};

/* Whether the file of the volume is where it was, or in an archive. */
static bool is_kept(struct fake_nfs *f, const struct sample *v)
{
	cleanup_free char *all = fake_nfs_list(f, ".csi-nfs");
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/of-%s\n", v->dir, v->key);
	return strstr(all, path) != NULL;
}

static struct fake_nfs *make_pair(const struct pair *pair)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	char path[256];

	check_int(pair->name, "first", create(f, &pair->first, &err), 0);
	check_int(pair->name, "second", create(f, &pair->second, &err), 0);
	(void)snprintf(path, sizeof(path), "%s/of-v1", pair->first.dir);
	fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
	(void)snprintf(path, sizeof(path), "%s/of-v2", pair->second.dir);
	fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
	return f;
}

/* Check what is left once both are deleted, then delete both again, as a CO may. */
static void check_kept(const char *row, struct fake_nfs *f, const struct pair *pair)
{
	struct error err = { .code = ERROR_OK };

	check_that(row, "no records", !has_record(f, "v1") && !has_record(f, "v2"));
	check_that(row, "the first's data", is_kept(f, &pair->first));
	check_int(row, "the second's deletion again", delete (f, &pair->second, &err), 0);
	check_that(row, "the first's data, then", is_kept(f, &pair->first));
	check_int(row, "the first's deletion again", delete (f, &pair->first, &err), 0);
	check_that(row, "the first's data, after both", is_kept(f, &pair->first));
	check_int(row, "the second's deletion once more", delete (f, &pair->second, &err), 0);
	check_that(row, "the first's data, at last", is_kept(f, &pair->first));
}

START_TEST(test_kept)
{
	size_t i;
	int order;

	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		for (order = 0; order < 2; order++) {
			const struct pair *pair = &pairs[i];
			const struct sample *one = order ? &pair->second : &pair->first;
			const struct sample *two = order ? &pair->first : &pair->second;
			struct fake_nfs *f = make_pair(pair);
			struct error err = { .code = ERROR_OK };
			char row[128];

			(void)snprintf(row, sizeof(row), "%s, %s goes first", pair->name, one->key);
			check_int(row, "the one", delete (f, one, &err), 0);
			check_that(row, "all is there",
				   is_kept(f, &pair->first) && is_kept(f, &pair->second));
			check_int(row, "the other", delete (f, two, &err), 0);
			check_kept(row, f, pair);
			fake_nfs_free(f);
		}
	}
}
END_TEST

/* What is archived, or goes with the directory around it, leaves no notes. */
START_TEST(test_kept_ends)
{
	static const struct pair archived = { "archived", ARCHIVE("v1", "p/x"),
					      CONSTANT("v2", "p/x") };
	static const struct pair inner = { "inner", ARCHIVE("v1", "p/x"), CONSTANT("v2", "p") };
	static const struct pair gone = { "gone by hand", RETAIN("v1", "p/x"),
					  CONSTANT("v2", "p") };
	static const struct pair deep = { "deep inner", ARCHIVE("v1", "p/q/r/x"),
					  CONSTANT("v2", "p") };
	static const struct pair gone_deep = { "deep, gone by hand", RETAIN("v1", "p/q/x"),
					       CONSTANT("v2", "p") };
	const struct pair *const all[] = { &archived, &inner, &deep, &gone, &gone_deep };
	struct error err = { .code = ERROR_OK };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		struct fake_nfs *f = make_pair(all[i]);
		const bool is_gone = all[i] == &gone || all[i] == &gone_deep;
		cleanup_free char *left = NULL;

		check_int(all[i]->name, "first", delete (f, &all[i]->first, &err), 0);
		if (is_gone)
			fake_nfs_remove(f, all[i]->first.dir);
		check_int(all[i]->name, "second", delete (f, &all[i]->second, &err), 0);
		check_int(all[i]->name, "archive", is_kept(f, &all[i]->first), !is_gone);
		check_that(all[i]->name, "is moved", !is_there(f, all[i]->second.dir));
		left = fake_nfs_list(f, NULL);
		check_that(all[i]->name, "no notes of use", strstr(left, "/users/p") == NULL);
		check_that(all[i]->name, "no notes of parents", strstr(left, "/parents/p") == NULL);
		fake_nfs_free(f);
	}
}
END_TEST

/* A volume that was made later, of just that directory and alone, has it by its own policy. */
START_TEST(test_kept_is_taken)
{
	static const struct sample later = CONSTANT("v3", "p"), inside = CONSTANT("v3", "p/y"),
				   plain = ADOPT("v1", "v1"), claim = CLASS("v3", "p/y");
	static const struct pair same = { "same", RETAIN("v1", "p"), CONSTANT("v2", "p") };
	static const struct pair key = { "key", RETAIN("v1", "v1"), CONSTANT("v2", "v1") };
	struct fake_nfs *f = make_pair(&same);
	struct error err = { .code = ERROR_OK };

	check_int("alone", "first", delete (f, &same.first, &err), 0);
	check_int("alone", "second again", create(f, &same.second, &err), 0);
	check_int("alone", "second", delete (f, &same.second, &err), 0);
	check_that("alone", "kept", is_kept(f, &same.first));
	check_int("in it", "create", create(f, &inside, &err), 0);
	put_file(f, "p/y");
	check_int("in it", "delete", delete (f, &inside, &err), 0);
	check_that("in it", "stays", has_file(f, "p/y"));
	fake_nfs_remove(f, "p/y");
	check_int("claim", "create", create(f, &claim, &err), 0);
	check_int("claim", "delete", delete (f, &claim, &err), 0);
	check_that("claim", "is gone", !is_there(f, "p/y"));
	check_that("claim", "the rest is kept", is_kept(f, &same.first));
	check_int("alone", "third", create(f, &later, &err), 0);
	check_that("alone", "its data", is_kept(f, &same.first));
	check_int("alone", "delete", delete (f, &later, &err), 0);
	check_that("alone", "is gone", !is_there(f, "p"));
	fake_nfs_free(f);

	f = make_pair(&same);
	check_int("not alone", "first", delete (f, &same.first, &err), 0);
	check_int("not alone", "third", create(f, &later, &err), 0);
	check_int("not alone", "second", delete (f, &same.second, &err), 0);
	check_int("not alone", "third again", create(f, &later, &err), 0);
	check_int("not alone", "delete", delete (f, &later, &err), 0);
	check_that("not alone", "kept", is_kept(f, &same.first));
	fake_nfs_free(f);

	f = make_pair(&key);
	check_int("key", "first", delete (f, &key.first, &err), 0);
	check_int("key", "second", delete (f, &key.second, &err), 0);
	check_that("key", "kept", is_kept(f, &key.first));
	check_int("key", "create", create(f, &plain, &err), 0);
	check_int("key", "delete", delete (f, &plain, &err), 0);
	check_that("key", "is gone", !is_there(f, "v1"));
	fake_nfs_free(f);
}
END_TEST

/* A claim that takes a part of a retained directory, with what is in it, does not take it along. */
START_TEST(test_kept_is_claimed)
{
	static const struct sample first = RETAIN("v1", "p"), claim = CLASS("v2", "p/y");
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("claimed", "first", create(f, &first, &err), 0);
	put_file(f, "p/y");
	check_int("claimed", "first goes", delete (f, &first, &err), 0);
	check_int("claimed", "claim", create(f, &claim, &err), 0);
	check_int("claimed", "claim again", create(f, &claim, &err), 0);
	check_int("claimed", "claim goes", delete (f, &claim, &err), 0);
	check_that("claimed", "the first's data", has_file(f, "p/y"));
	check_that("claimed", "no record", !has_record(f, "v2"));
	fake_nfs_free(f);
}
END_TEST

/* Neither deletion need come to its end: of what, and how it goes on. */
struct cut_deletion {
	bool second; /* the second volume's is cut off */
	bool after; /* the operation took effect */
	bool other_first; /* the other volume is deleted before the call comes again */
};

static bool cut_deletion(const struct pair *pair, const struct cut_deletion *cut, unsigned int n)
{
	const struct fake_failure failure = { .nth = n,
					      .error = -ECONNABORTED,
					      .after = cut->after };
	const struct sample *v = cut->second ? &pair->second : &pair->first;
	const struct sample *other = cut->second ? &pair->first : &pair->second;
	struct fake_nfs *f = make_pair(pair);
	struct error err = { .code = ERROR_OK };
	char row[200];
	int r;

	(void)snprintf(row, sizeof(row), "%s, deletion of %s ends %s operation %u%s", pair->name,
		       v->key, cut->after ? "after" : "before", n,
		       cut->other_first ? ", the other comes first" : "");
	if (cut->second && !cut->other_first)
		check_int(row, "other", delete (f, other, &err), 0);
	fake_nfs_fail(f, &failure);
	r = delete (f, v, &err);
	fake_nfs_fail(f, NULL);
	if (cut->other_first)
		check_int(row, "other", delete (f, other, &err), 0);
	check_that(row, "the first's data", is_kept(f, &pair->first));
	check_int(row, "again", delete (f, v, &err), 0);
	if (!cut->second && !cut->other_first)
		check_int(row, "other", delete (f, other, &err), 0);
	check_kept(row, f, pair);
	fake_nfs_free(f);
	return r < 0;
}

START_TEST(test_kept_crash)
{
	size_t i;
	unsigned int n, how;

	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		for (how = 0; how < 8; how++) {
			const struct cut_deletion cut = { how & 1, how & 2, how & 4 };

			for (n = 1; cut_deletion(&pairs[i], &cut, n); n++)
				;
			check_that(pairs[i].name, "there was something to cut off", n > 5);
		}
	}
}
END_TEST

/* Two replicas: the other call comes in before an operation of the first one. */
struct interloper {
	int (*call)(struct fake_nfs *f, const struct sample *v, struct error *err);
	const struct sample *volume;
	unsigned int before, seen;
	bool inside, done;
	int result; /* of the other call */
};

static void interlope(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct error err = { .code = ERROR_OK };
	struct interloper *x = data;

	(void)op;
	if (x->inside || ++x->seen != x->before)
		return;
	x->inside = true;
	x->done = true;
	x->result = x->call(f, x->volume, &err);
	x->inside = false;
}

static void delete_at_last(const char *row, struct fake_nfs *f, const struct sample *v)
{
	struct error err = { .code = ERROR_OK };
	int i, r = -1;

	for (i = 0; i < 3 && r < 0; i++)
		r = delete (f, v, &err);
	check_int(row, v->key, r, 0);
}

static bool race_deletions(const struct pair *pair, bool swap, unsigned int before)
{
	const struct sample *v = swap ? &pair->second : &pair->first;
	struct interloper x = { .call = delete, .before = before };
	struct fake_nfs *f = make_pair(pair);
	struct error err = { .code = ERROR_OK };
	char row[128];

	x.volume = swap ? &pair->first : &pair->second;
	(void)snprintf(row, sizeof(row), "%s, %s goes before operation %u of the other's",
		       pair->name, x.volume->key, before);
	fake_nfs_watch(f, interlope, &x);
	(void)delete (f, v, &err);
	fake_nfs_watch(f, NULL, NULL);
	delete_at_last(row, f, v);
	delete_at_last(row, f, x.volume);
	check_kept(row, f, pair);
	fake_nfs_free(f);
	return x.done;
}

/* A volume takes an older archive, which is empty, while another one's archive replaces it. */
START_TEST(test_empty_archive_is_adopted)
{
	const struct sample goes = { "v1", "a", NULL, NULL, "archive" };
	const struct sample comes = CONSTANT("v2", "archived-a");
	struct interloper x = { .call = create, .volume = &comes };
	unsigned int made = 0;

	do {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		char row[64];

		(void)snprintf(row, sizeof(row), "before operation %u", ++x.before);
		x.seen = 0;
		x.done = false;
		check_int(row, "create", create(f, &goes, &err), 0);
		put_file(f, goes.dir);
		fake_nfs_put(f, comes.dir, NFS_TYPE_DIRECTORY, NULL);
		fake_nfs_watch(f, interlope, &x);
		(void)delete_with(f, goes.key, goes.dir, "archive", true, &err);
		fake_nfs_watch(f, NULL, NULL);
		made += x.done && x.result == 0;
		if (x.done && x.result == 0)
			check_int(row, comes.dir, fake_nfs_type(f, comes.dir), NFS_TYPE_DIRECTORY);
		delete_at_last(row, f, &goes);
		fake_nfs_free(f);
	} while (x.done);
	check_that("all", "some were made", made > 10);
}
END_TEST

/* A third volume comes while the first goes and the second is there. */
static bool race_creation(const struct pair *pair, bool swap, unsigned int before)
{
	const struct sample third = { "v3", pair->first.dir, NULL, NULL, NULL };
	struct interloper x = { .before = before };
	struct fake_nfs *f = make_pair(pair);
	struct error err = { .code = ERROR_OK };
	char row[128];

	x.call = swap ? delete : create;
	x.volume = swap ? &pair->first : &third;
	(void)snprintf(row, sizeof(row), "%s, a third %s operation %u", pair->name,
		       swap ? "is made around" : "comes before", before);
	fake_nfs_watch(f, interlope, &x);
	if (swap)
		(void)create(f, &third, &err);
	else
		(void)delete (f, &pair->first, &err);
	fake_nfs_watch(f, NULL, NULL);
	delete_at_last(row, f, &pair->first);
	(void)create(f, &third, &err);
	delete_at_last(row, f, &pair->second);
	delete_at_last(row, f, &third);
	check_that(row, "the first's data", is_kept(f, &pair->first));
	fake_nfs_free(f);
	return x.done;
}

START_TEST(test_kept_race)
{
	unsigned int n, swap;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		for (swap = 0; swap < 2; swap++) {
			for (n = 1; race_deletions(&pairs[i], swap, n); n++)
				;
			check_that(pairs[i].name, "there were some", n > 5);
			if (strcmp(pairs[i].first.key, pairs[i].first.dir) == 0)
				continue;
			for (n = 1; race_creation(&pairs[i], swap, n); n++)
				;
			check_that(pairs[i].name, "there were some", n > 5);
		}
	}
}
END_TEST

/* A deletion that is repeated after the whole life of a later, retained volume. */
START_TEST(test_kept_from_late_deletions)
{
	static const struct {
		const char *row;
		struct sample early, late;
		const char *file; /* in this directory */
	} rows[] = {
		{ "same", CONSTANT("pvc-1", "team"), RETAINED("pvc-2", "team"), "team" },
		{ "nested", CONSTANT("pvc-1", "p/x"), RETAINED("pvc-2", "p"), "p/x" },
		{ "around", CONSTANT("pvc-1", "p"), RETAINED("pvc-2", "p/x"), "p/x" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].row, "early", create(f, &rows[i].early, &err), 0);
		check_int(rows[i].row, "early goes", delete (f, &rows[i].early, &err), 0);
		check_int(rows[i].row, "late", create(f, &rows[i].late, &err), 0);
		put_file(f, rows[i].file);
		check_int(rows[i].row, "late goes", delete (f, &rows[i].late, &err), 0);
		check_int(rows[i].row, "again", delete (f, &rows[i].early, &err), 0);
		check_that(rows[i].row, "the data is there", has_file(f, rows[i].file));
		fake_nfs_free(f);
	}
}
END_TEST

/* A retained volume whose directory is gone leaves no note and no directory above. */
START_TEST(test_kept_nothing)
{
	static const struct sample v = RETAINED("pvc-1", "ns/data");
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };

	check_int("nothing", "create", create(f, &v, &err), 0);
	fake_nfs_remove(f, "ns/data");
	check_int("nothing", "delete", delete (f, &v, &err), 0);
	check_that("nothing", "the directory above is gone", !is_there(f, "ns"));
	check_that("nothing", "there is no note", !is_there(f, ".csi-nfs/users/ns"));
	fake_nfs_free(f);
}
END_TEST

/* A volume of csi-driver-nfs goes by the notes too. Its id puts no policy on others. */
START_TEST(test_kept_foreign)
{
	static const struct pair pair = { "foreign", RETAIN("v1", "p"), CONSTANT("v2", "p") };
	struct fake_nfs *f = make_pair(&pair);
	struct error err = { .code = ERROR_OK };

	check_int("foreign", "first", delete (f, &pair.first, &err), 0);
	check_int("foreign", "second", delete (f, &pair.second, &err), 0);
	check_int("foreign", "the same", delete_by(f, "other", "p", false, &err), 0);
	check_int("foreign", "its key", delete_by(f, "p", "p", false, &err), 0);
	put_file(f, "p/x");
	check_int("foreign", "in it", delete_by(f, "other", "p/x", false, &err), 0);
	check_that("foreign", "kept", is_kept(f, &pair.first) && has_file(f, "p/x"));
	fake_nfs_free(f);

	f = make_pair(&pair);
	check_int("foreign", "first", delete_with(f, "other", "p", "retain", false, &err), 0);
	check_int("foreign", "second", delete (f, &pair.second, &err), 0);
	check_int("foreign", "first, again", delete_with(f, "other", "p", "retain", false, &err),
		  0);
	check_that("foreign", "the recorded one's", is_kept(f, &pair.first));
	fake_nfs_free(f);

	f = fake_nfs_new();
	check_int("foreign", "create", create(f, &pair.second, &err), 0);
	check_int("foreign", "archive", delete_with(f, "other", "p", "archive", false, &err), 0);
	check_int("foreign", "delete", delete (f, &pair.second, &err), 0);
	check_that("foreign", "no archive", !is_there(f, "p") && !is_there(f, "archived-p"));
	fake_nfs_free(f);
}
END_TEST

/* -------- mode and owner -------- */

static int create_with_mode(struct fake_nfs *f, const char *key, const char *dir, const char *mode)
{
	const struct sample v = { key, dir, NULL, NULL, NULL };
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 };
	struct error err = { .code = ERROR_OK };

	describe(&v, &rec);
	ck_assert(record_set(&rec, VOLUME_KEY_MODE, mode) == 0);
	return volume_create(c, key, &rec, &(struct volume_capacity){ 0 }, NULL, &err);
}

START_TEST(test_mode_of_others)
{
	const struct nfs_attr changed = { .mode = 0711 };
	struct fake_nfs *f = fake_nfs_new();

	check_int("mode", "first", create_with_mode(f, "v1", "p", "0700"), 0);
	check_int("mode", "set", fake_nfs_mode(f, "p"), 0700);
	check_int("mode", "same", create_with_mode(f, "v2", "p", "0777"), 0);
	check_int("mode", "same: stays", fake_nfs_mode(f, "p"), 0700);
	fake_nfs_put(f, "p/old", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_set(f, "p/old", &changed);
	check_int("mode", "in it", create_with_mode(f, "v3", "p/old", "0777"), 0);
	check_int("mode", "in it: stays", fake_nfs_mode(f, "p/old"), 0711);
	check_int("mode", "new in it", create_with_mode(f, "v4", "p/new", "0777"), 0);
	check_int("mode", "new in it: set", fake_nfs_mode(f, "p/new"), 0777);
	/* The only volume: a repeated call sets the mode again. */
	check_int("mode", "only", create_with_mode(f, "v5", "q", "0750"), 0);
	fake_nfs_set(f, "q", &changed);
	check_int("mode", "only, again", create_with_mode(f, "v5", "q", "0750"), 0);
	check_int("mode", "only: set", fake_nfs_mode(f, "q"), 0750);
	check_int("mode", "same class", create_with_mode(f, "v6", "q", "0750"), 0);
	check_int("mode", "same class: is right", fake_nfs_mode(f, "q"), 0750);
	fake_nfs_free(f);
}
END_TEST

/* Many volumes in one folder: a new one, and a deletion, take as many operations as with few. */
START_TEST(test_number_does_not_count)
{
	struct fake_nfs *f = fake_nfs_new();
	struct error err = { .code = ERROR_OK };
	unsigned int few[2] = { 0 }, many[2] = { 0 };
	unsigned int i;

	for (i = 0; i < 200; i++) {
		char key[32], dir[48];
		struct sample v = CLASS(key, dir);

		(void)snprintf(key, sizeof(key), "pvc-%u", i);
		(void)snprintf(dir, sizeof(dir), "team/claim-%u", i);
		fake_nfs_fail(f, NULL);
		check_int(key, "create", create(f, &v, &err), 0);
		if (i == 3)
			few[0] = fake_nfs_operations(f);
		if (i == 199)
			many[0] = fake_nfs_operations(f);
		if (i != 3 && i != 199)
			continue;
		fake_nfs_fail(f, NULL);
		check_int(key, "delete", delete (f, &v, &err), 0);
		if (i == 3)
			few[1] = fake_nfs_operations(f);
		else
			many[1] = fake_nfs_operations(f);
	}
	check_int("create", "operations", many[0], few[0]);
	check_int("delete", "operations", many[1], few[1]);
	fake_nfs_free(f);
}
END_TEST

/*
 * A volume named by default costs three looks more than its record and its directory: for a
 * snapshot there, for deletions before, and whether its record is still there after.
 */
START_TEST(test_plain_is_cheap)
{
	static const struct sample first = PLAIN("pvc-1"), second = PLAIN("pvc-2");
	static const struct sample claim = CLASS("pvc-3", "a/b");
	struct fake_nfs *f = fake_nfs_new();
	struct nfs_client *c = fake_nfs_connect(f);
	cleanup_record struct record rec = { .n = 0 }, other = { .n = 0 };
	struct error err = { .code = ERROR_OK };

	check_int("cheap", "claim", create(f, &claim, &err), 0);
	describe(&first, &rec);
	check_int("cheap", "first",
		  volume_create(c, first.key, &rec, &(struct volume_capacity){ 0 }, NULL, &err), 0);
	describe(&second, &other);
	fake_nfs_fail(f, NULL); /* the client knows the folders now */
	check_int("cheap", "second",
		  volume_create(c, second.key, &other, &(struct volume_capacity){ 0 }, NULL, &err),
		  0);
	check_int("cheap", "operations", fake_nfs_operations(f), 5);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* Expanding gives a volume of csi-driver-nfs a record: at no time is it overlooked by others. */
START_TEST(test_expanded_foreign)
{
	static const struct sample claim = CLASS("pvc-2", "ns/data");
	unsigned int n;

	for (n = 1;; n++) {
		const struct fake_failure failure = { .nth = n, .error = -ECONNABORTED };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		const struct volume_capacity capacity = { .required = 10 };
		cleanup_volume_id struct volume_id id = { .server = NULL };
		cleanup_record struct record rec = { .n = 0 };
		struct error err = { .code = ERROR_OK };
		bool recorded, cut;
		int64_t size;

		put_file(f, "ns/data");
		check_int("foreign", "id", volume_id_parse(&id, "fake#share#ns/data#pvc-1#"), 0);
		fake_nfs_fail(f, &failure);
		cut = volume_expand(c, &id, &rec, &capacity, &size, &err) < 0;
		fake_nfs_fail(f, NULL);
		recorded = has_record(f, "pvc-1");
		check_int("foreign", "a claim is refused", create(f, &claim, &err) < 0, recorded);
		check_that("foreign", "the data is there", has_file(f, "ns/data"));
		nfs_client_free(c);
		fake_nfs_free(f);
		if (!cut)
			break;
	}
	check_that("foreign", "there was something to cut off", n > 5);
}
END_TEST

/* -------- another file system -------- */

START_TEST(test_inner_file_system)
{
	static const struct nfs_attr other = { .mode = 0755, .fsid = 7 };
	static const struct sample rows[] = { CLASS("pvc-1", "inner/x"), CONSTANT("pvc-1", "inner"),
					      CONSTANT("pvc-1", "inner/deep/x") };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct error err = { .code = ERROR_OK };
		cleanup_free char *before = NULL, *after = NULL;

		fake_nfs_put(f, "inner/deep", NFS_TYPE_DIRECTORY, NULL);
		fake_nfs_set(f, "inner", &other);
		fake_nfs_set(f, "inner/deep", &other);
		before = fake_nfs_list(f, NULL);
		check_that(rows[i].dir, "create", create(f, &rows[i], &err) < 0);
		check_error(rows[i].dir, &err, ERROR_FAILED_PRECONDITION, "as the share");
		check_that(rows[i].dir, "no record", !has_record(f, "pvc-1"));
		after = fake_nfs_list(f, ".csi-nfs");
		check_str(rows[i].dir, "nothing was made", after, before);
		fake_nfs_free(f);
	}
}
END_TEST

CHECK_MAIN("owner", .tests = {
			    test_meeting,
			    test_unrecorded,
			    test_race,
			    test_policies,
			    test_refuse_is_not_forgotten,
			    test_require_is_not_forgotten,
			    test_require_again,
			    test_refused_claim_waits,
			    test_archive_spares_others,
			    test_archive_spares_archives,
			    test_archive_spares_restored_archives,
			    test_archive_is_not_adopted,
			    test_empty_archive_is_adopted,
			    test_parent_became_a_volume,
			    test_folded_directories,
			    test_folded_keys,
			    test_own_folder,
			    test_copied_record,
			    test_notes_are_gone,
			    test_notes_are_gone_and_another_leaves,
			    test_notes_are_gone_by_a_deletion,
			    test_damaged_record,
			    test_foreign_ids,
			    test_snapshot_is_being_deleted,
			    test_kept,
			    test_kept_ends,
			    test_kept_is_taken,
			    test_kept_is_claimed,
			    test_kept_crash,
			    test_kept_race,
			    test_kept_from_late_deletions,
			    test_kept_nothing,
			    test_kept_foreign,
			    test_mode_of_others,
			    test_number_does_not_count,
			    test_plain_is_cheap,
			    test_expanded_foreign,
			    test_inner_file_system,
		    })
