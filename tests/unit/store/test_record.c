/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "fake/nfs.h"
#include "store/holder.h"
#include "store/record.h"
#include "check_util.h"

START_TEST(test_encode)
{
	static const struct {
		const char *name;
		const char *key, *value;
		const char *text;
	} rows[] = {
		{ "plain", "name", "pvc-1", "v=1;name=pvc-1" },
		{ "what needs no escape", "k", "aZ09-_.,:/+@", "v=1;k=aZ09-_.,:/+@" },
		{ "empty value", "k", "", "v=1;k=" },
		{ "its own signs", "k", "a=b;c%d", "v=1;k=a%3Db%3Bc%25d" },
		{ "signs in the key", "a=b;c", "1", "v=1;a%3Db%3Bc=1" },
		{ "space and controls", "k", " \n\x7f", "v=1;k=%20%0A%7F" },
		{ "UTF-8", "k", "\xc3\xa4", "v=1;k=%C3%A4" },
		{ "any byte", "k", "\xff", "v=1;k=%FF" },
		{ "key like the version", "v", "2", "v=1;v=2" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_record struct record rec = { .n = 0 }, back = { .n = 0 };
		cleanup_free char *text = NULL;

		check_int(rows[i].name, "set", record_set(&rec, rows[i].key, rows[i].value), 0);
		check_int(rows[i].name, "encode", record_encode(&rec, &text), 0);
		check_str(rows[i].name, "text", text, rows[i].text);
		check_int(rows[i].name, "decode", record_decode(&back, text), 0);
		check_int(rows[i].name, "pairs", back.n, 1);
		check_str(rows[i].name, "value", record_get(&back, rows[i].key), rows[i].value);
	}
}
END_TEST

START_TEST(test_decode)
{
	static const struct {
		const char *name;
		const char *text;
		int result;
		size_t n;
		const char *value; /* of the key "k" */
	} rows[] = {
		{ "only the version", "v=1", 0, 0, NULL },
		{ "one pair", "v=1;k=1", 0, 1, "1" },
		{ "unknown keys are kept", "v=1;future=x;k=1;p.later=%41", 0, 3, "1" },
		{ "small hexadecimal", "v=1;k=%c3%a4", 0, 1, "\xc3\xa4" },
		{ "escaped though plain", "v=1;%6B=%61", 0, 1, "a" },
		{ "empty value", "v=1;k=", 0, 1, "" },
		{ "empty", "", -EINVAL, 0, NULL },
		{ "somebody's link", "/etc/passwd", -EINVAL, 0, NULL },
		{ "no version", "k=1", -EINVAL, 0, NULL },
		{ "version later on", "k=1;v=1", -EINVAL, 0, NULL },
		{ "empty version", "v=", -EINVAL, 0, NULL },
		{ "version 0", "v=0;k=1", -EINVAL, 0, NULL },
		{ "negative version", "v=-1;k=1", -EINVAL, 0, NULL },
		{ "version in letters", "v=x;k=1", -EINVAL, 0, NULL },
		{ "version with a tail", "v=1x;k=1", -EINVAL, 0, NULL },
		{ "huge version", "v=99999999999999999999;k=1", -EINVAL, 0, NULL },
		{ "later version", "v=2;k=1", -ENOTSUP, 0, NULL },
		{ "later version of another form", "v=2;{\"k\":1}", -ENOTSUP, 0, NULL },
		{ "no value", "v=1;k", -EINVAL, 0, NULL },
		{ "no key", "v=1;=1", -EINVAL, 0, NULL },
		{ "empty pair", "v=1;;k=1", -EINVAL, 0, NULL },
		{ "separator at the end", "v=1;k=1;", -EINVAL, 0, NULL },
		{ "two values", "v=1;k=1=2", -EINVAL, 0, NULL },
		{ "twice the same", "v=1;k=1;k=1", -EINVAL, 0, NULL },
		{ "twice, escaped", "v=1;k=1;%6B=2", -EINVAL, 0, NULL },
		{ "space", "v=1;k=a b", -EINVAL, 0, NULL },
		{ "line feed", "v=1;k=a\n", -EINVAL, 0, NULL },
		{ "raw UTF-8", "v=1;k=\xc3\xa4", -EINVAL, 0, NULL },
		{ "escaped NUL", "v=1;k=a%00b", -EINVAL, 0, NULL },
		{ "half an escape", "v=1;k=a%4", -EINVAL, 0, NULL },
		{ "no escape at all", "v=1;k=a%", -EINVAL, 0, NULL },
		{ "escape of no digits", "v=1;k=%zz", -EINVAL, 0, NULL },
		{ "escape with a sign", "v=1;k=%+1", -EINVAL, 0, NULL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_record struct record rec = { .n = 0 };

		check_int(rows[i].name, "result", record_decode(&rec, rows[i].text),
			  rows[i].result);
		check_int(rows[i].name, "pairs", rec.n, rows[i].n);
		check_str(rows[i].name, "value", record_get(&rec, "k"), rows[i].value);
	}
}
END_TEST

START_TEST(test_set)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_free char *text = NULL;

	check_str("empty", "value", record_get(&rec, "a"), NULL);
	check_int("first", "result", record_set(&rec, "a", "1"), 0);
	check_int("second", "result", record_set(&rec, "b", "2"), 0);
	check_int("replaced", "result", record_set(&rec, "a", "3"), 0);
	check_int("replaced by itself", "result", record_set(&rec, "b", record_get(&rec, "b")), 0);
	check_int("case", "result", record_set(&rec, "A", "4"), 0);
	check_int("all", "encode", record_encode(&rec, &text), 0);
	check_str("all", "text", text, "v=1;a=3;b=2;A=4");
	record_unset(&rec, "c");
	check_int("unset what is not there", "pairs", rec.n, 3);
	record_unset(&rec, "b");
	check_str("unset", "value", record_get(&rec, "b"), NULL);
	check_str("unset", "the next one", record_get(&rec, "A"), "4");
	record_unset(&rec, "A");
	record_unset(&rec, "a");
	check_int("unset all", "pairs", rec.n, 0);
}
END_TEST

/*
 * Cut anywhere, a text is refused, or gives the pairs that are whole and, of the last one, a
 * beginning: never a value that was not there. The hash of split records finds the rest.
 */
START_TEST(test_truncated)
{
	static const char text[] = "v=1;name=pvc%2F1;dir=a/b;size=10;p.subDir=%C3%A4";
	static const char *const keys[] = { "name", "dir", "size", "p.subDir" };
	cleanup_record struct record whole = { .n = 0 };
	size_t n, i;

	check_int("whole", "decode", record_decode(&whole, text), 0);
	for (n = 0; n < sizeof(text) - 1; n++) {
		cleanup_record struct record rec = { .n = 0 };
		cleanup_free char *cut = strndup(text, n);
		int r = record_decode(&rec, cut);

		check_that(cut, "refused or taken", r == 0 || r == -EINVAL);
		check_that(cut, "no more pairs than there were", rec.n <= whole.n);
		for (i = 0; i < rec.n; i++) {
			check_str(cut, "key", rec.pairs[i].key, keys[i]);
			if (i + 1 < rec.n)
				check_str(cut, "value", rec.pairs[i].value, whole.pairs[i].value);
			check_that(cut, "the last value is a beginning",
				   str_has_prefix(whole.pairs[i].value, rec.pairs[i].value));
		}
	}
}
END_TEST

START_TEST(test_limit)
{
	static const struct {
		const char *name;
		size_t plain, escaped; /* bytes of the value */
		int result;
	} rows[] = {
		{ "at the limit", RECORD_BYTES_MAX - 6, 0, 0 },
		{ "one more", RECORD_BYTES_MAX - 5, 0, -EMSGSIZE },
		{ "escapes count three times", 0, RECORD_BYTES_MAX / 3 - 2, 0 },
		{ "too many escapes", 0, RECORD_BYTES_MAX / 3, -EMSGSIZE },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *plain = check_repeat("x", rows[i].plain), *text = NULL;
		cleanup_free char *escaped = check_repeat(" ", rows[i].escaped);
		cleanup_record struct record rec = { .n = 0 };

		check_int(rows[i].name, "set",
			  record_set(&rec, "k", rows[i].plain > 0 ? plain : escaped), 0);
		check_int(rows[i].name, "encode", record_encode(&rec, &text), rows[i].result);
	}
}
END_TEST

/* A record whose text has about that many bytes. */
static void fill(struct record *rec, size_t bytes)
{
	cleanup_free char *value = check_repeat("x", bytes);

	*rec = (struct record){ .n = 0 };
	ck_assert(record_set(rec, "name", "a b") == 0);
	ck_assert(record_set(rec, "long", value) == 0);
}

/* A share, by the index of a loop: 0 takes symbolic links, 1 refuses them. */
#define KINDS 2
static struct fake_nfs *share_new(int kind)
{
	const struct fake_habits no_links = { .no_links = -EPERM };
	struct fake_nfs *f = fake_nfs_new();

	if (kind == 0)
		return f;
	fake_nfs_habits(f, &no_links);
	store_holder_set_patience(0); /* with texts that were cut short */
	return f;
}

static const size_t sizes[] = { 0, 974, 975, 976, 977, 978, 1000, 1990, 2000, 10000, 31900 };

START_TEST(test_share)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		cleanup_record struct record rec = { .n = 0 }, back = { .n = 0 }, none = { .n = 0 };
		struct fake_nfs *f = share_new(_i);
		cleanup_free char *before = NULL, *after = NULL;
		struct error err = { .code = ERROR_OK };
		struct nfs_client *c = fake_nfs_connect(f);
		char row[64];

		(void)snprintf(row, sizeof(row), "%zu bytes", sizes[i]);
		fill(&rec, sizes[i]);
		check_int(row, "read before", record_read(c, &c->root, "k", &none, &err), -ENOENT);
		check_int(row, "remove before", record_remove(c, &c->root, "k", NULL, &err), 0);
		check_int(row, "create", record_create(c, &c->root, "k", &rec, &err), 0);
		before = fake_nfs_list(f, NFS_STATE_DIR);
		check_int(row, "create again", record_create(c, &c->root, "k", &rec, &err),
			  -EEXIST);
		check_error(row, &err, ERROR_OK, NULL);
		check_int(row, "read", record_read(c, &c->root, "k", &back, &err), 0);
		check_int(row, "pairs", back.n, rec.n);
		check_str(row, "name", record_get(&back, "name"), "a b");
		check_str(row, "long value", record_get(&back, "long"), record_get(&rec, "long"));
		after = fake_nfs_list(f, NFS_STATE_DIR);
		check_str(row, "links", after, before);
		check_int(row, "remove", record_remove(c, &c->root, "k", &back, &err), 0);
		check_int(row, "remove again", record_remove(c, &c->root, "k", &back, &err), 0);
		free(after);
		after = fake_nfs_list(f, NFS_STATE_DIR);
		check_str(row, "links afterwards", after, "");
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* Two writers of one name: the second leaves nothing, and the first one's record stays whole. */
START_TEST(test_share_taken)
{
	cleanup_record struct record first = { .n = 0 }, second = { .n = 0 }, back = { .n = 0 };
	struct fake_nfs *f = share_new(_i);
	struct nfs_client *c = fake_nfs_connect(f);
	struct error err = { .code = ERROR_OK };
	cleanup_free char *before = NULL, *after = NULL;

	fill(&first, 3000);
	fill(&second, 3001);
	check_int("first", "create", record_create(c, &c->root, "k", &first, &err), 0);
	before = fake_nfs_list(f, NFS_STATE_DIR);
	check_int("second", "create", record_create(c, &c->root, "k", &second, &err), -EEXIST);
	check_int("first", "read", record_read(c, &c->root, "k", &back, &err), 0);
	check_str("first", "value", record_get(&back, "long"), record_get(&first, "long"));
	after = fake_nfs_list(f, NFS_STATE_DIR);
	check_str("second", "links", after, before);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

static void note_part(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	bool *seen = data;

	(void)f;
	*seen = *seen || (op->name != NULL && strchr(op->name, '~') != NULL);
}

/* What is no record, or no longer a whole one, is reported and named, and never taken for one. */
START_TEST(test_share_damaged)
{
	static const struct {
		const char *name;
		enum nfs_type type;
		const char *text;
		bool looks; /* for parts */
	} rows[] = {
		{ "directory", NFS_TYPE_DIRECTORY, NULL, false },
		{ "file", NFS_TYPE_FILE, NULL, false },
		{ "somebody's link", NFS_TYPE_SYMLINK, "../volume", false },
		{ "later version", NFS_TYPE_SYMLINK, "v=2;x", false },
		{ "parts without a hash", NFS_TYPE_SYMLINK, "v=1;parts=1", false },
		{ "no parts", NFS_TYPE_SYMLINK, "v=1;parts=0;hash=0", false },
		{ "parts that are missing", NFS_TYPE_SYMLINK, "v=1;parts=1;hash=1", true },
		{ "too many parts", NFS_TYPE_SYMLINK, "v=1;parts=1000000;hash=1", false },
		{ "parts in letters", NFS_TYPE_SYMLINK, "v=1;parts=x;hash=1", false },
		{ "hash in letters", NFS_TYPE_SYMLINK, "v=1;parts=1;hash=xyz", false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct error err = { .code = ERROR_OK };
		struct record rec = { .n = 0 };
		bool looked = false;
		int r;

		fake_nfs_put(f, "k", rows[i].type, rows[i].text);
		fake_nfs_watch(f, note_part, &looked);
		r = record_read(c, &c->root, "k", &rec, &err);
		/* The message is the same, whether the head was refused or its parts. */
		check_int(rows[i].name, "looked for parts", looked, rows[i].looks);
		check_that(rows[i].name, "refused", r < 0 && r != -ENOENT);
		check_error(rows[i].name, &err, ERROR_FAILED_PRECONDITION, "'k'");
		check_that(rows[i].name, "nothing returned", rec.n == 0 && rec.pairs == NULL);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* Each part in turn is lost, cut, or replaced by another one. */
START_TEST(test_share_parts)
{
	static const char *const how[] = { "lost", "cut", "of another text" };
	cleanup_record struct record rec = { .n = 0 };
	size_t i, k;

	fill(&rec, 2500);
	for (i = 0; i < ARRAY_SIZE(how); i++) {
		for (k = 0; k < 3; k++) {
			struct fake_nfs *f = fake_nfs_new();
			struct nfs_client *c = fake_nfs_connect(f);
			struct error err = { .code = ERROR_OK };
			struct record back = { .n = 0 };
			struct strv paths;
			cleanup_free char *list = NULL;
			char row[64];

			(void)snprintf(row, sizeof(row), "part %zu %s", k, how[i]);
			check_int(row, "create", record_create(c, &c->root, "k", &rec, &err), 0);
			list = fake_nfs_list(f, NULL);
			check_int(row, "split", strv_split(&paths, list, '\n'), 0);
			check_int(row, "links and the end", paths.n, 5);
			fake_nfs_remove(f, paths.items[1 + k]);
			if (i > 0)
				fake_nfs_put(f, paths.items[1 + k], NFS_TYPE_SYMLINK,
					     i == 1 ? "v=1" : "v=1;name=b;long=y");
			check_that(row, "refused", record_read(c, &c->root, "k", &back, &err) < 0);
			check_error(row, &err, ERROR_FAILED_PRECONDITION, "'k'");
			check_int(row, "pairs", back.n, 0);
			strv_done(&paths);
			nfs_client_free(c);
			fake_nfs_free(f);
		}
	}
}
END_TEST

/* Refused by the server before it is there, a record does not leave a part of itself. */
START_TEST(test_share_refused)
{
	bool there = false;
	unsigned int n;

	for (n = 1; !there; n++) {
		const struct fake_failure failure = { .nth = n, .error = -ENOSPC };
		cleanup_record struct record rec = { .n = 0 };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);
		struct error err = { .code = ERROR_OK };
		cleanup_free char *list = NULL;
		char row[64];

		(void)snprintf(row, sizeof(row), "operation %u", n);
		fill(&rec, 3500);
		fake_nfs_fail(f, &failure);
		check_int(row, "create", record_create(c, &c->root, "k", &rec, &err), -ENOSPC);
		there = fake_nfs_type(f, "k") != NFS_TYPE_UNKNOWN;
		check_error(row, &err, there ? ERROR_ABORTED : ERROR_RESOURCE_EXHAUSTED, "'k");
		list = fake_nfs_list(f, NULL);
		if (!there)
			check_str(row, "links", list, "");
		nfs_client_free(c);
		fake_nfs_free(f);
	}
	check_that("refused", "the RENAME came last", n > 10);
}
END_TEST

/*
 * What is there under names of k, without its draft, grave and parts of no record: "k", and its
 * parts.
 */
static void check_links(const char *row, struct fake_nfs *f, struct nfs_client *c)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_free char *list = fake_nfs_list(f, NFS_STATE_DIR);
	struct error err = { .code = ERROR_OK };
	size_t lines = 0, want = 0;
	const char *p;
	int r = record_read(c, &c->root, "k", &rec, &err);

	for (p = list; *p != '\0'; p++)
		lines += *p == '\n';
	check_that(row, "whole, or gone", r == 0 || r == -ENOENT);
	if (r == 0)
		want = 1 + (size_t)rec.parts;
	ck_assert_msg(lines == want, "%s: there should be %zu links: %s", row, want, list);
}

/*
 * A process is killed while it creates a record of several links. The next attempt's text may
 * differ, where a client sends its maps in any order, and so do the names of its parts.
 */
START_TEST(test_parts_of_a_killed_creation)
{
	unsigned int n, way;

	for (n = 1; n <= 30; n++) {
		for (way = 0; way < 2; way++) {
			const struct fake_failure failure = {
				.nth = n, .error = -ECONNABORTED, .after = true, .all = true
			};
			cleanup_record struct record first = { .n = 0 }, second = { .n = 0 };
			struct fake_nfs *f = share_new(_i);
			struct nfs_client *c = fake_nfs_connect(f);
			struct error err = { .code = ERROR_OK };
			char row[64];
			int r;

			(void)snprintf(row, sizeof(row), "killed at %u, %s", n,
				       way == 0 ? "created again" : "deleted");
			fill(&first, 2500);
			fill(&second, 2501);
			fake_nfs_fail(f, &failure);
			(void)record_create(c, &c->root, "k", &first, &err);
			fake_nfs_fail(f, NULL);
			nfs_client_free(c);
			c = fake_nfs_connect(f);
			error_clear(&err);
			if (way == 0) {
				r = record_create(c, &c->root, "k", &second, &err);
				check_that(row, "created or there", r == 0 || r == -EEXIST);
			} else {
				cleanup_record struct record back = { .n = 0 };

				r = record_read(c, &c->root, "k", &back, &err);
				check_that(row, "read", r == 0 || r == -ENOENT);
				check_int(row, "remove",
					  record_remove(c, &c->root, "k", &back, &err), 0);
				check_int(row, "draft", record_forget_draft(c, &c->root, "k", &err),
					  0);
				check_int(row, "grave", record_forget(c, &c->root, "k", NULL, &err),
					  0);
			}
			check_links(row, f, c);
			nfs_client_free(c);
			fake_nfs_free(f);
		}
	}
}
END_TEST

/* -------- replacing -------- */

/* A share with a record of that many bytes, which is read. */
static struct fake_nfs *with_record(int kind, size_t extra, struct nfs_client **ret_c,
				    struct record *ret)
{
	cleanup_record struct record rec = { .n = 0 };
	struct fake_nfs *f = share_new(kind);
	struct error err = { .code = ERROR_OK };

	*ret_c = fake_nfs_connect(f);
	fill(&rec, extra);
	check_int("before", "create", record_create(*ret_c, &(*ret_c)->root, "k", &rec, &err), 0);
	check_int("before", "read", record_read(*ret_c, &(*ret_c)->root, "k", ret, &err), 0);
	ck_assert(record_set(ret, "size", "2") == 0);
	return f;
}

static void check_value(const char *row, struct nfs_client *c, const char *key, const char *want)
{
	cleanup_record struct record back = { .n = 0 };
	struct error err = { .code = ERROR_OK };
	int r = record_read(c, &c->root, "k", &back, &err);

	check_int(row, "read", r, 0);
	check_str(row, key, record_get(&back, key), want);
}

/* The draft of another one that is there: whose it is decides. */
START_TEST(test_replace_draft)
{
	static const struct {
		const char *name;
		const char *by; /* NULL: our own tag */
		const char *text; /* in place of a record by that one */
		bool refused;
	} rows[] = {
		{ "of this process", NULL, NULL, false },
		{ "of another replica", "0123456789abcdef.1", NULL, true },
		{ "of an older version", "", "v=1;name=x", false },
		{ "damaged", "", "v=1;na", false },
	};
	static const size_t lengths[] = { 10, 2500 };
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (k = 0; k < ARRAY_SIZE(lengths); k++) {
			cleanup_record struct record rec = { .n = 0 };
			struct error err = { .code = ERROR_OK };
			char tag[STORE_HOLDER_TAG_MAX], text[128];
			struct nfs_client *c;
			struct fake_nfs *f = with_record(0, lengths[k], &c, &rec);
			int r;

			store_holder_tag(tag);
			(void)snprintf(text, sizeof(text), "v=1;name=x;by=%s",
				       rows[i].by != NULL ? rows[i].by : tag);
			fake_nfs_put(f, "k~new", NFS_TYPE_SYMLINK,
				     rows[i].text != NULL ? rows[i].text : text);
			r = record_replace(c, &c->root, "k", &rec, &err);
			check_int(rows[i].name, "refused", r < 0, rows[i].refused);
			check_error(rows[i].name, &err, rows[i].refused ? ERROR_ABORTED : ERROR_OK,
				    NULL);
			check_value(rows[i].name, c, "size", rows[i].refused ? NULL : "2");
			check_int(rows[i].name, "draft", fake_nfs_type(f, "k~new"),
				  rows[i].refused ? NFS_TYPE_SYMLINK : NFS_TYPE_UNKNOWN);
			nfs_client_free(c);
			fake_nfs_free(f);
		}
	}
}
END_TEST

/* Another replica that has done nothing for the time of our patience is dead. */
START_TEST(test_replace_patience)
{
	cleanup_record struct record rec = { .n = 0 };
	struct error err = { .code = ERROR_OK };
	struct nfs_client *c;
	struct fake_nfs *f = with_record(0, 10, &c, &rec);

	fake_nfs_put(f, "k~new", NFS_TYPE_SYMLINK, "v=1;by=0123456789abcdef.1");
	check_that("alive", "refused", record_replace(c, &c->root, "k", &rec, &err) < 0);
	store_holder_set_patience(0);
	error_clear(&err);
	check_int("dead", "result", record_replace(c, &c->root, "k", &rec, &err), 0);
	check_value("dead", c, "size", "2");
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

struct change {
	enum nfs_op_type before;
	void (*act)(struct fake_nfs *f);
};

static void change_once(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct change *change = data;

	if (change->act != NULL && op->type == change->before) {
		change->act(f);
		change->act = NULL;
	}
}

static void change_it(struct fake_nfs *f)
{
	fake_nfs_remove(f, "k");
	fake_nfs_put(f, "k", NFS_TYPE_SYMLINK, "v=1;name=x;size=3");
}

static void delete_it(struct fake_nfs *f)
{
	fake_nfs_remove(f, "k");
	fake_nfs_remove(f, "k~new");
}

/*
 * The record of another replica's is not overwritten, and one that was deleted does not come back.
 */
START_TEST(test_replace_changed)
{
	static const struct {
		const char *name;
		struct change change;
		enum nfs_type left;
	} rows[] = {
		{ "changed before the draft", { NFS_OP_SYMLINK, change_it }, NFS_TYPE_SYMLINK },
		{ "changed after the draft", { NFS_OP_LOOKUP, change_it }, NFS_TYPE_SYMLINK },
		{ "deleted before the draft", { NFS_OP_SYMLINK, delete_it }, NFS_TYPE_UNKNOWN },
		{ "deleted after the draft", { NFS_OP_LOOKUP, delete_it }, NFS_TYPE_UNKNOWN },
		{ "deleted at the last moment", { NFS_OP_RENAME, delete_it }, NFS_TYPE_UNKNOWN },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_record struct record rec = { .n = 0 };
		struct error err = { .code = ERROR_OK };
		struct change change = rows[i].change;
		struct nfs_client *c;
		struct fake_nfs *f = with_record(0, 10, &c, &rec);

		fake_nfs_watch(f, change_once, &change);
		check_that(rows[i].name, "refused",
			   record_replace(c, &c->root, "k", &rec, &err) < 0);
		check_error(rows[i].name, &err, ERROR_ABORTED, "'k'");
		check_that(rows[i].name, "it happened", change.act == NULL);
		check_int(rows[i].name, "record", fake_nfs_type(f, "k"), rows[i].left);
		check_int(rows[i].name, "draft", fake_nfs_type(f, "k~new"), NFS_TYPE_UNKNOWN);
		if (rows[i].left == NFS_TYPE_SYMLINK)
			check_value(rows[i].name, c, "size", "3");
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/*
 * Refused at any operation, a replacement leaves neither parts nor a draft, or says that it has to
 * be repeated.
 */
START_TEST(test_parts_of_a_refused_replacement)
{
	static const size_t lengths[] = { 10, 2500 };
	static const int errors[] = { -ENOSPC, -EACCES, -EIO };
	size_t k, i;
	unsigned int n;

	for (k = 0; k < ARRAY_SIZE(lengths); k++) {
		for (i = 0; i < ARRAY_SIZE(errors); i++) {
			for (n = 1; n <= 20; n++) {
				const struct fake_failure failure = { .nth = n,
								      .error = errors[i] };
				cleanup_record struct record rec = { .n = 0 };
				struct error err = { .code = ERROR_OK };
				struct nfs_client *c;
				struct fake_nfs *f = with_record(0, lengths[k], &c, &rec);
				char row[64];
				int r;

				(void)snprintf(row, sizeof(row), "%zu bytes, operation %u: %d",
					       lengths[k], n, errors[i]);
				fake_nfs_fail(f, &failure);
				r = record_replace(c, &c->root, "k", &rec, &err);
				fake_nfs_fail(f, NULL);
				if (r == 0 || error_is_final(err.code))
					check_links(row, f, c);
				nfs_client_free(c);
				fake_nfs_free(f);
			}
		}
	}
}
END_TEST

/* Killed at any operation, and then deleted. */
START_TEST(test_parts_of_a_killed_replacement)
{
	unsigned int n;

	for (n = 1; n <= 24; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = true, .all = true
		};
		cleanup_record struct record rec = { .n = 0 }, back = { .n = 0 };
		struct error err = { .code = ERROR_OK };
		struct nfs_client *c;
		struct fake_nfs *f = with_record(_i, 2500, &c, &rec);
		char row[64];

		(void)snprintf(row, sizeof(row), "killed at %u", n);
		fake_nfs_fail(f, &failure);
		(void)record_replace(c, &c->root, "k", &rec, &err);
		fake_nfs_fail(f, NULL);
		nfs_client_free(c);
		c = fake_nfs_connect(f);
		error_clear(&err);
		check_int(row, "read", record_read(c, &c->root, "k", &back, &err), 0);
		check_int(row, "remove", record_remove(c, &c->root, "k", &back, &err), 0);
		check_int(row, "draft", record_forget_draft(c, &c->root, "k", &err), 0);
		check_links(row, f, c);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/*
 * Killed at each operation, a replacement is the old record or the new one, and the next one works.
 */
START_TEST(test_replace_killed)
{
	static const size_t lengths[] = { 10, 2500 };
	size_t k;
	unsigned int n;

	for (k = 0; k < ARRAY_SIZE(lengths); k++) {
		for (n = 1; n <= 24; n++) {
			const struct fake_failure failure = {
				.nth = n, .error = -ECONNABORTED, .after = true, .all = true
			};
			cleanup_record struct record rec = { .n = 0 }, again = { .n = 0 };
			struct error err = { .code = ERROR_OK };
			struct nfs_client *c, *next;
			struct fake_nfs *f = with_record(_i, lengths[k], &c, &rec);
			char row[32];

			(void)snprintf(row, sizeof(row), "%zu bytes, operation %u", lengths[k], n);
			fake_nfs_fail(f, &failure);
			(void)record_replace(c, &c->root, "k", &rec, &err);
			fake_nfs_fail(f, NULL);
			error_clear(&err);
			next = fake_nfs_connect(f);
			check_int(row, "read", record_read(next, &next->root, "k", &again, &err),
				  0);
			ck_assert(record_set(&again, "size", "4") == 0);
			check_int(row, "again",
				  record_replace(next, &next->root, "k", &again, &err), 0);
			check_value(row, next, "size", "4");
			check_int(row, "draft", fake_nfs_type(f, "k~new"), NFS_TYPE_UNKNOWN);
			nfs_client_free(c);
			nfs_client_free(next);
			fake_nfs_free(f);
		}
	}
}
END_TEST

CHECK_MAIN("record",
	   .tests = { test_encode, test_decode, test_set, test_truncated, test_limit,
		      test_share_damaged, test_share_parts, test_share_refused, test_replace_draft,
		      test_replace_patience, test_replace_changed,
		      test_parts_of_a_refused_replacement },
	   .loops = { { test_share, KINDS },
		      { test_share_taken, KINDS },
		      { test_replace_killed, KINDS },
		      { test_parts_of_a_killed_creation, KINDS },
		      { test_parts_of_a_killed_replacement, KINDS } })
