/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csi/claim.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "fake/nfs.h"
#include "store/holder.h"
#include "check_util.h"

#define OTHER "0123456789abcdef.1"

/* What claims need of a driver. */
struct bench {
	struct fake_nfs *nfs;
	struct nfs_client *client;
	struct csi_driver driver;
	struct nfs_export export;
};

static void bench_init(struct bench *b)
{
	struct error err = { .code = ERROR_OK };

	*b = (struct bench){ .nfs = fake_nfs_new() };
	fake_nfs_serve(b->nfs);
	b->client = fake_nfs_connect(b->nfs);
	ck_assert(nfs_pool_new(&b->driver.pool, fake_nfs_connect_fn, 0) == 0);
	ck_assert(known_exports_new(&b->driver.known) == 0);
	ck_assert(purger_new(&b->driver.purger, b->driver.pool, NULL) == 0);
	ck_assert(nfs_export_init(&b->export, "s", "/e", &err) == 0);
}

static void bench_done(struct bench *b)
{
	purger_free(b->driver.purger);
	nfs_client_free(b->client);
	nfs_pool_free(b->driver.pool);
	known_exports_free(b->driver.known);
	nfs_export_done(&b->export);
	fake_nfs_free(b->nfs);
}

static void put_note(struct bench *b, const char *name)
{
	char path[512];

	(void)snprintf(path, sizeof(path), ".csi-nfs/busy/%s", name);
	fake_nfs_put(b->nfs, path, NFS_TYPE_SYMLINK, "v=1");
}

static bool is_there(struct bench *b, const char *name)
{
	char path[512];

	(void)snprintf(path, sizeof(path), ".csi-nfs/busy/%s", name);
	return fake_nfs_type(b->nfs, path) != NFS_TYPE_UNKNOWN;
}

static void remove_notes(struct bench *b)
{
	static const char folder[] = ".csi-nfs/busy/";
	cleanup_free char *list = fake_nfs_list(b->nfs, NULL);
	char *line, *rest = list;

	while ((line = strsep(&rest, "\n")) != NULL)
		if (strncmp(line, folder, strlen(folder)) == 0 && line[strlen(folder)] != '\0')
			fake_nfs_remove(b->nfs, line);
}

START_TEST(test_overlap)
{
	cleanup_free char *long_name = check_repeat("n", 250);
	cleanup_free char *longer = check_repeat("n", 251);
	cleanup_free char *long_upper = check_repeat("N", 250);
	cleanup_free char *long_below = check_repeat("n", 254);
	const struct {
		const char *name;
		const char *noted, *dir;
		bool overlaps;
	} rows[] = {
		{ "the same", "a/b", "a/b", true },
		{ "above", "a", "a/b", true },
		{ "below", "a/b", "a", true },
		{ "beside", "a/b", "a/c", false },
		{ "the beginning of its name", "a/b", "a/bc", false },
		{ "a longer name", "a/bc", "a/b", false },
		{ "a name with a percent sign", "a%2Fb", "a", false },
		{ "a name with a tilde", "a~u~b", "a~u~b", true },
		{ "a long name", long_name, long_name, true },
		{ "another one", long_name, "n", false },
		{ "one that cannot be told from it by its name", long_name, longer, true },
		{ "another case", "a/B", "A/b", true },
		{ "another case, above", "P", "p/a", true },
		{ "another case, beside", "A/b", "a/c", false },
		{ "a long name of another case", long_upper, long_name, true },
		{ "below a long name", long_below, long_name, true },
		{ "another form of its characters", "a/\xc3\xa9", "a/e\xcc\x81", true },
		{ "beside a name with such characters", "\xc3\xa9/a", "\xc3\xa9/b", false },
		{ "above a name with such characters", "a", "a/\xc3\xa9", true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };
		char name[NFS_NAME_MAX + 1], *tag;
		struct bench b;

		bench_init(&b);
		busy_name(name, BUSY_USE, rows[i].noted);
		tag = strrchr(name, '~') + 1;
		memcpy(tag, "0123456789abcdef", STORE_HOLDER_LEN);
		put_note(&b, name);
		(void)busy_check_unused(b.client, rows[i].dir, &err);
		check_error(rows[i].name, &err, rows[i].overlaps ? ERROR_ABORTED : ERROR_OK, NULL);
		bench_done(&b);
	}
}
END_TEST

/* Whether a tombstone is for a record. */
START_TEST(test_meant)
{
	cleanup_free char *long_name = check_repeat("n", 250);
	char name[NFS_NAME_MAX + 1];

	busy_tombstone_name(name, BUSY_VOLUME_GONE, "a/b", 1);
	check_that("its record", "meant", busy_is_meant_for(name, 1));
	check_that("another record", "not meant", !busy_is_meant_for(name, 2));
	check_that("its directory", "found", busy_is_of(name, "a/b"));
	busy_tombstone_name(name, BUSY_SNAPSHOT_GONE, long_name, UINT64_MAX);
	check_that("a long name", "meant", busy_is_meant_for(name, UINT64_MAX));
	check_that("a long name, another record", "not meant", !busy_is_meant_for(name, 1));
	busy_tombstone_name(name, BUSY_VOLUME_GONE, "a", 0);
	check_that("not known", "meant for any", busy_is_meant_for(name, 1));
	check_that("no note", "meant for none", !busy_is_meant_for("a", 1));
}
END_TEST

/* The mark of a deletion that cannot be taken back. */
START_TEST(test_irrevocable)
{
	char name[NFS_NAME_MAX + 1], marked[NFS_NAME_MAX + 1];

	busy_tombstone_name(name, BUSY_VOLUME_GONE, "a/b", 1);
	check_that("a tombstone", "no mark", !busy_is_irrevocable(name));
	busy_irrevocable_name(marked, name);
	check_that("a tombstone", "mark", busy_is_irrevocable(marked));
	check_that("a tombstone", "meant", busy_is_meant_for(marked, 1));
	check_that("a tombstone, another record", "not meant", !busy_is_meant_for(marked, 2));
	check_that("its directory", "found", busy_is_of(marked, "a/b"));
	busy_tombstone_name(name, BUSY_VOLUME_GONE, "a", 0);
	check_that("not known", "no mark", !busy_is_irrevocable(name));
	busy_irrevocable_name(marked, name);
	check_that("not known", "mark", busy_is_irrevocable(marked));
	check_that("not known", "meant for any", busy_is_meant_for(marked, 1));
	check_that("no note", "no mark", !busy_is_irrevocable("xa"));
}
END_TEST

/* Which notes keep a directory, and what becomes of the others. */
START_TEST(test_unused)
{
	static const struct {
		const char *name;
		const char *kind;
		bool own, patient;
		bool refused, stays;
	} rows[] = {
		{ "used by another replica", "u", false, true, true, true },
		{ "made by another replica", "m", false, true, true, true },
		{ "used by a replica that is dead", "u", false, false, false, false },
		{ "used by the process before this one", "u", true, true, false, false },
		{ "a tombstone", "d", false, true, false, true },
		{ "something else", "x", false, true, false, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };
		char name[NFS_NAME_MAX + 1];
		struct bench b;

		bench_init(&b);
		store_holder_set_patience(rows[i].patient ? STORE_HOLDER_PATIENCE_S : 0);
		(void)snprintf(name, sizeof(name), "pvc-1~%s~%s.1", rows[i].kind,
			       rows[i].own ? store_holder() : "0123456789abcdef");
		put_note(&b, name);
		(void)busy_check_unused(b.client, "pvc-1", &err);
		check_error(rows[i].name, &err, rows[i].refused ? ERROR_ABORTED : ERROR_OK, NULL);
		check_int(rows[i].name, "stays", is_there(&b, name), rows[i].stays);
		store_holder_set_patience(STORE_HOLDER_PATIENCE_S);
		bench_done(&b);
	}
}
END_TEST

START_TEST(test_claims)
{
	static const struct {
		const char *name;
		const char *there; /* a note of another one */
		enum busy_kind kind;
		const char *dir;
		bool refused;
	} rows[] = {
		{ "used by two", "pvc-1~u~" OTHER, BUSY_USE, "pvc-1", false },
		{ "made by two", "pvc-1~m~" OTHER, BUSY_MAKE, "pvc-1", true },
		{ "made in one that is made", "pvc-1%2Fa~m~" OTHER, BUSY_MAKE, "pvc-1", false },
		{ "used while it is deleted", "pvc-1~d~" OTHER, BUSY_USE, "pvc-1", true },
		{ "used while what is around it is deleted", "pvc-1~s~" OTHER, BUSY_USE, "pvc-1/a",
		  true },
		{ "made after it was deleted", "pvc-1~d~" OTHER, BUSY_MAKE, "pvc-1", false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *list = NULL;
		struct error err = { .code = ERROR_OK };
		struct claim *claim;
		struct bench b;
		char want[128];
		int r;

		bench_init(&b);
		put_note(&b, rows[i].there);
		r = claim_take(&claim, &b.driver, &b.export, NULL, rows[i].kind, rows[i].dir, &err);
		check_int(rows[i].name, "refused", r < 0, rows[i].refused);
		check_error(rows[i].name, &err, rows[i].refused ? ERROR_ABORTED : ERROR_OK, NULL);
		claim_drop(claim);
		list = fake_nfs_list(b.nfs, NULL);
		(void)snprintf(want, sizeof(want), ".csi-nfs/\n.csi-nfs/busy/\n.csi-nfs/busy/%s\n",
			       rows[i].there);
		check_str(rows[i].name, "what is left", list, want);
		bench_done(&b);
	}
}
END_TEST

/* Who was taken for dead finds out, and has no way back. */
START_TEST(test_lost)
{
	struct error err = { .code = ERROR_OK };
	struct claim *claim;
	struct bench b;

	bench_init(&b);
	check_int("lost", "take",
		  claim_take(&claim, &b.driver, &b.export, NULL, BUSY_USE, "pvc-1", &err), 0);
	check_int("lost", "renew", claim_renew(claim, b.client, &err), 0);
	check_int("lost", "renew again", claim_renew(claim, b.client, &err), 0);
	/* Of this process, and at work: it keeps its directory however long it lasts. */
	store_holder_set_patience(0);
	check_that("lost", "kept", busy_check_unused(b.client, "pvc-1", &err) < 0);
	error_clear(&err);
	store_holder_set_patience(STORE_HOLDER_PATIENCE_S);
	remove_notes(&b);
	check_that("lost", "renewed", claim_renew(claim, b.client, &err) < 0);
	error_clear(&err);
	check_that("lost", "renewed later", claim_renew(claim, b.client, &err) < 0);
	check_error("lost", &err, ERROR_ABORTED, "presumed this one dead");
	claim_drop(claim);
	bench_done(&b);
}
END_TEST

/* Killed at any operation, a claim leaves at most a note, which the next process removes. */
START_TEST(test_killed)
{
	unsigned int n;

	for (n = 1; n <= 12; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = true, .all = true
		};
		cleanup_free char *list = NULL;
		struct error err = { .code = ERROR_OK };
		struct claim *claim;
		struct bench b;
		char row[32];

		(void)snprintf(row, sizeof(row), "operation %u", n);
		bench_init(&b);
		fake_nfs_fail(b.nfs, &failure);
		(void)claim_take(&claim, &b.driver, &b.export, NULL, BUSY_USE, "pvc-1", &err);
		claim_drop(claim);
		fake_nfs_fail(b.nfs, NULL);
		error_clear(&err);
		check_int(row, "check", busy_check_unused(b.client, "pvc-1", &err), 0);
		list = fake_nfs_list(b.nfs, NULL);
		check_that(row, "nothing is left", strstr(list, "~") == NULL);
		bench_done(&b);
	}
}
END_TEST

/* The notes of a dead replica all go together, and not one after the other's time. */
START_TEST(test_many_of_the_dead)
{
	static const char *const notes[] = { "pvc-1~u~0123456789abcdef.1",
					     "pvc-1~u~0123456789abcdef.2",
					     "pvc-1~m~0123456789abcdef.3" };
	struct error err = { .code = ERROR_OK };
	struct busy_note note;
	struct bench b;
	size_t i;

	bench_init(&b);
	store_holder_set_patience(1);
	for (i = 0; i < ARRAY_SIZE(notes); i++)
		put_note(&b, notes[i]);
	check_int("at first", "result", busy_check_unused(b.client, "pvc-1", &err), -EAGAIN);
	check_error("at first", &err, ERROR_ABORTED, "pvc-1");
	sleep(2);
	error_clear(&err);
	check_int("later", "result", busy_check_unused(b.client, "pvc-1", &err), 0);
	for (i = 0; i < ARRAY_SIZE(notes); i++)
		check_that(notes[i], "gone", !is_there(&b, notes[i]));
	/* Likewise those of creations, for a creation. */
	put_note(&b, "pvc-1~m~0123456789abcdef.4");
	put_note(&b, "pvc-1~m~0123456789abcdef.5");
	check_int("note", "init", busy_note_init(&note, BUSY_MAKE, "pvc-1"), 0);
	check_int("creation", "result", busy_note_write(b.client, &note, &err), -EAGAIN);
	sleep(2);
	error_clear(&err);
	check_int("creation, later", "result", busy_note_write(b.client, &note, &err), 0);
	busy_note_done(&note);
	store_holder_set_patience(STORE_HOLDER_PATIENCE_S);
	bench_done(&b);
}
END_TEST

/* Nobody repeats a deletion that a backup has brought back: a person has to know what to do. */
START_TEST(test_deletion_of_the_dead)
{
	static const struct {
		const char *note, *word;
	} rows[] = {
		{ "pvc-1~d~0123456789abcdef.1", "'pvc-1~d~...'" },
		{ "pvc-1~s~0123456789abcdef.1", "'pvc-1~s~...'" },
		{ "pvc-1%2Fa~d~0123456789abcdef.1x.00112233445566778", "'pvc-1%2Fa~d~...'" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };
		struct busy_note note;
		struct bench b;

		bench_init(&b);
		put_note(&b, rows[i].note);
		check_that(rows[i].note, "is in the way",
			   busy_check_not_deleted(b.client, "pvc-1", &err) < 0);
		check_error(rows[i].note, &err, ERROR_ABORTED, "another controller");
		store_holder_set_patience(0);
		error_clear(&err);
		check_that(rows[i].note, "is in the way later",
			   busy_check_not_deleted(b.client, "pvc-1", &err) < 0);
		check_error(rows[i].note, &err, ERROR_ABORTED, rows[i].word);
		error_clear(&err);
		check_int(rows[i].note, "note", busy_note_init(&note, BUSY_USE, "pvc-1"), 0);
		check_that(rows[i].note, "is in the way of a copy",
			   busy_note_write(b.client, &note, &err) < 0);
		check_error(rows[i].note, &err, ERROR_ABORTED, rows[i].word);
		busy_note_done(&note);
		check_that(rows[i].note, "stays", is_there(&b, rows[i].note));
		store_holder_set_patience(STORE_HOLDER_PATIENCE_S);
		bench_done(&b);
	}
}
END_TEST

/* The server's answer is told, such as that it has a grace period, and not another controller. */
START_TEST(test_note_that_cannot_be_removed)
{
	const struct fake_failure failure = {
		.nth = 1, .error = -EIO, .all = true, .types = 1 << NFS_OP_REMOVE
	};
	struct error err = { .code = ERROR_OK };
	char name[NFS_NAME_MAX + 1];
	struct bench b;

	bench_init(&b);
	(void)snprintf(name, sizeof(name), "pvc-1~u~%s.1", store_holder());
	put_note(&b, name);
	fake_nfs_fail(b.nfs, &failure);
	check_int("own", "result", busy_check_unused(b.client, "pvc-1", &err), -EIO);
	check_that("own", "the message is the server's",
		   strstr(err.msg, "removing a note") != NULL);
	check_that("own", "code", err.code != ERROR_ABORTED);
	bench_done(&b);
}
END_TEST

/* After a renewal without a reply, a note has the old name or the new one, or is gone. */
START_TEST(test_erase_after_a_failed_renewal)
{
	static const struct {
		const char *name;
		bool renamed; /* only the reply was lost */
		bool removed; /* an administrator removes the driver's folder then */
	} rows[] = {
		{ "not renamed" },
		{ "renamed", .renamed = true },
		{ "the folder is removed", .removed = true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_failure failure = { .nth = 1,
						      .error = -EIO,
						      .after = rows[i].renamed,
						      .types = 1 << NFS_OP_RENAME };
		cleanup_free char *list = NULL;
		struct nfs_client *later;
		struct error err = { .code = ERROR_OK };
		struct busy_note note;
		struct bench b;

		bench_init(&b);
		check_int(rows[i].name, "init", busy_note_init(&note, BUSY_USE, "pvc-1"), 0);
		check_int(rows[i].name, "write", busy_note_write(b.client, &note, &err), 0);
		fake_nfs_fail(b.nfs, &failure);
		check_int(rows[i].name, "renewal", busy_note_renew(b.client, &note, &err), -EIO);
		error_clear(&err);
		if (rows[i].removed) {
			remove_notes(&b);
			fake_nfs_remove(b.nfs, ".csi-nfs/busy");
		}
		later = fake_nfs_connect(b.nfs); /* with no handle of the folder */
		check_int(rows[i].name, "erase", busy_note_erase(later, &note, &err), 0);
		list = fake_nfs_list(b.nfs, NULL);
		check_that(rows[i].name, "nothing is left", strstr(list, "~") == NULL);
		busy_note_done(&note);
		nfs_client_free(later);
		bench_done(&b);
	}
}
END_TEST

/* The server carries out the first of two RENAMEs without a reply after both. */
START_TEST(test_late_renewal)
{
	static const unsigned int failures[] = { 1, 2, 5 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(failures); i++) {
		const struct fake_failure failure = {
			.nth = 1, .error = -EIO, .all = true, .types = 1 << NFS_OP_RENAME
		};
		char name[NFS_NAME_MAX + 1], first[NFS_NAME_MAX + 1], row[32];
		const struct nfs_handle *folder;
		cleanup_free char *list = NULL;
		struct error err = { .code = ERROR_OK };
		struct busy_note note;
		unsigned int n;
		struct bench b;

		(void)snprintf(row, sizeof(row), "%u failures", failures[i]);
		bench_init(&b);
		check_int(row, "init", busy_note_init(&note, BUSY_USE, "pvc-1"), 0);
		check_int(row, "write", busy_note_write(b.client, &note, &err), 0);
		fake_nfs_fail(b.nfs, &failure);
		for (n = 0; n < failures[i]; n++) {
			check_int(row, "renewal", busy_note_renew(b.client, &note, &err), -EIO);
			error_clear(&err);
			if (n == 0) {
				memcpy(name, note.name, sizeof(name));
				memcpy(first, note.tried, sizeof(first));
			}
		}
		fake_nfs_fail(b.nfs, NULL);
		check_int(row, "folder", store_folder(b.client, STORE_BUSY, false, &folder, &err),
			  0);
		check_int(row, "late", nfs_rename(b.client, folder, name, folder, first), 0);
		check_int(row, "next renewal", busy_note_renew(b.client, &note, &err), 0);
		check_that(row, "the name is new", strcmp(note.name, first) != 0);
		check_that(row, "the note is there", is_there(&b, note.name));
		check_int(row, "erase", busy_note_erase(b.client, &note, &err), 0);
		list = fake_nfs_list(b.nfs, NULL);
		check_that(row, "nothing is left", strstr(list, "~") == NULL);
		busy_note_done(&note);
		bench_done(&b);
	}
}
END_TEST

CHECK_MAIN("note", .tests = {
			   test_overlap,
			   test_meant,
			   test_irrevocable,
			   test_unused,
			   test_claims,
			   test_lost,
			   test_killed,
			   test_many_of_the_dead,
			   test_deletion_of_the_dead,
			   test_note_that_cannot_be_removed,
			   test_erase_after_a_failed_renewal,
			   test_late_renewal,
		   })
