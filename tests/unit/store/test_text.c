/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "fake/nfs.h"
#include "nfs/calls.h"
#include "store/directory_change.h"
#include "store/holder.h"
#include "store/text.h"
#include "check_util.h"

#define TEXT "v=1;name=pvc-1;dir=pvc-1"

static const struct fake_habits refusing = { .no_links = -EPERM };

static struct fake_nfs *share_without_links(struct nfs_client **ret)
{
	struct fake_nfs *f = fake_nfs_new();

	fake_nfs_habits(f, &refusing);
	*ret = fake_nfs_connect(f);
	return f;
}

static uint32_t size_of(struct fake_nfs *f, const char *path)
{
	struct nfs_handle handle;
	struct nfs_attr attr;

	ck_assert(fake_nfs_get(f, path, &handle, &attr));
	return (uint32_t)attr.size;
}

static void check_reads(const char *row, struct fake_nfs *f, const char *want)
{
	struct nfs_client *c = fake_nfs_connect(f);
	char text[NFS_LINK_MAX + 1] = "";

	check_int(row, "read", store_text_read(c, &c->root, "k", text), 0);
	check_str(row, "text", text, want);
	nfs_client_free(c);
}

/* How the server answers SYMLINK decides what a text is made of. */
START_TEST(test_kind)
{
	static const struct {
		const char *name;
		int answer, result;
		enum nfs_type type;
	} rows[] = {
		{ "taken", 0, 0, NFS_TYPE_SYMLINK },
		{ "not supported", -EOPNOTSUPP, 0, NFS_TYPE_FILE },
		{ "vfat", -EPERM, 0, NFS_TYPE_FILE },
		{ "go-nfs", -EACCES, 0, NFS_TYPE_FILE },
		{ "invalid", -EINVAL, 0, NFS_TYPE_FILE },
		{ "full", -ENOSPC, -ENOSPC, NFS_TYPE_UNKNOWN },
		{ "a fault", -EIO, -EIO, NFS_TYPE_UNKNOWN },
		{ "read-only", -EROFS, -EROFS, NFS_TYPE_UNKNOWN },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct fake_habits habits = { .no_links = rows[i].answer };
		const char *row = rows[i].name;
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);

		fake_nfs_habits(f, &habits);
		check_int(row, "create", store_text_create(c, &c->root, "k", TEXT), rows[i].result);
		check_int(row, "type", fake_nfs_type(f, "k"), rows[i].type);
		if (rows[i].result == 0) {
			check_int(row, "again", store_text_create(c, &c->root, "k", "v=1"),
				  -EEXIST);
			check_reads(row, f, TEXT);
		}
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* The file is readable by itself, too: "cat" shows it. */
START_TEST(test_file)
{
	static const char want[] = TEXT "\n";
	struct nfs_client *c;
	struct fake_nfs *f = share_without_links(&c);
	char data[sizeof(want)] = "";

	check_int("file", "create", store_text_create(c, &c->root, "k", TEXT), 0);
	check_int("file", "mode", fake_nfs_mode(f, "k"), 0644);
	check_int("file", "size", size_of(f, "k"), strlen(TEXT) + 18);
	fake_nfs_read(f, "k", 0, data, sizeof(want) - 1);
	check_str("file", "data", data, want);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* A share that has links keeps them, whatever the server answers later on. */
START_TEST(test_links_stay)
{
	static const int answers[] = { -EACCES, -EPERM };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		const struct fake_habits habits = { .no_links = answers[i] };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);

		fake_nfs_put(f, "k", NFS_TYPE_SYMLINK, TEXT);
		fake_nfs_habits(f, &habits);
		check_int("link", "create", store_text_create(c, &c->root, "k", "v=1"), -EEXIST);
		check_int("other", "create", store_text_create(c, &c->root, "other", "v=1"), 0);
		check_int("link", "again", store_text_create(c, &c->root, "k", "v=1"), -EEXIST);
		check_int("link", "type", fake_nfs_type(f, "k"), NFS_TYPE_SYMLINK);
		check_reads("link", f, TEXT);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* A directory that refuses files as well refuses us: the first answer is returned. */
START_TEST(test_refused)
{
	const struct fake_failure failure = { .nth = 1,
					      .error = -EACCES,
					      .types = 1U << NFS_OP_CREATE };
	struct nfs_client *c;
	struct fake_nfs *f = share_without_links(&c);

	fake_nfs_fail(f, &failure);
	check_int("refused", "create", store_text_create(c, &c->root, "k", TEXT), -EPERM);
	check_that("refused", "not decided", !c->refuses_links);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* One refusal where links can be made is about that link: no file is written instead. */
START_TEST(test_refused_once)
{
	static const int answers[] = { -EACCES, -EPERM, -EINVAL, -EOPNOTSUPP };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		const struct fake_failure failure = { .nth = 1,
						      .error = answers[i],
						      .types = 1U << NFS_OP_SYMLINK };
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);

		fake_nfs_fail(f, &failure);
		check_int("once", "create", store_text_create(c, &c->root, "k", TEXT), answers[i]);
		check_int("once", "type", fake_nfs_type(f, "k"), NFS_TYPE_UNKNOWN);
		check_int("once", "again", store_text_create(c, &c->root, "k", TEXT), 0);
		check_int("once", "type", fake_nfs_type(f, "k"), NFS_TYPE_SYMLINK);
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* No room for the data: nothing stays. */
START_TEST(test_full)
{
	const struct fake_failure failure = { .nth = 1,
					      .error = -ENOSPC,
					      .types = 1U << NFS_OP_WRITE };
	struct nfs_client *c;
	struct fake_nfs *f = share_without_links(&c);

	fake_nfs_fail(f, &failure);
	check_int("full", "create", store_text_create(c, &c->root, "k", TEXT), -ENOSPC);
	check_int("full", "type", fake_nfs_type(f, "k"), NFS_TYPE_UNKNOWN);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* Make the file as a crash may leave it: cut, or with zeros from there on. */
static struct fake_nfs *with_cut_file(uint32_t len, bool zeros, struct nfs_client **ret)
{
	struct fake_nfs *f = share_without_links(ret);
	struct nfs_client *c = *ret;
	uint32_t size;

	check_int("before", "create", store_text_create(c, &c->root, "k", TEXT), 0);
	size = size_of(f, "k");
	fake_nfs_truncate(f, "k", len);
	if (zeros)
		fake_nfs_truncate(f, "k", size);
	return f;
}

/* Cut short at any byte, a text holds its name while its writer may live, and is then not there. */
START_TEST(test_cut_short)
{
	const uint32_t size = strlen(TEXT) + 18;
	uint32_t len;

	for (len = 0; len < size; len++) {
		char row[32], text[NFS_LINK_MAX + 1];
		struct nfs_client *c;
		struct fake_nfs *f = with_cut_file(len, _i == 1, &c);

		(void)snprintf(row, sizeof(row), "%u bytes", (unsigned int)len);
		store_holder_set_patience(1000);
		if (len % 20 == 0) { /* each waits for a live writer */
			check_int(row, "young", store_text_read(c, &c->root, "k", text),
				  -EINPROGRESS);
			check_int(row, "create", store_text_create(c, &c->root, "k", TEXT),
				  -EINPROGRESS);
			check_int(row, "type", fake_nfs_type(f, "k"), NFS_TYPE_FILE);
		}
		store_holder_set_patience(0);
		if (len % 2 == 0) {
			check_int(row, "old", store_text_read(c, &c->root, "k", text), -ENOENT);
			check_int(row, "type", fake_nfs_type(f, "k"), NFS_TYPE_UNKNOWN);
		}
		check_int(row, "create", store_text_create(c, &c->root, "k", "v=1;x=2"), 0);
		check_reads(row, f, "v=1;x=2");
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* Where links can be made, nobody of ours writes files: what looks like one stays. */
START_TEST(test_foreign)
{
	static const struct {
		const char *name, *data;
		bool no_links;
	} rows[] = {
		{ "empty, beside links", "", false },
		{ "a text that was cut, beside links", "v=1;na", false },
		{ "somebody's", "hello", true },
	};
	char text[NFS_LINK_MAX + 1];
	size_t i;

	store_holder_set_patience(0);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_nfs *f = fake_nfs_new();
		struct nfs_client *c = fake_nfs_connect(f);

		if (rows[i].no_links)
			fake_nfs_habits(f, &refusing);
		fake_nfs_write(f, "k", 0, rows[i].data, strlen(rows[i].data));
		check_int(rows[i].name, "read", store_text_read(c, &c->root, "k", text), -EINVAL);
		check_int(rows[i].name, "create", store_text_create(c, &c->root, "k", TEXT),
			  -EEXIST);
		check_int(rows[i].name, "type", fake_nfs_type(f, "k"), NFS_TYPE_FILE);
		check_int(rows[i].name, "size", size_of(f, "k"), strlen(rows[i].data));
		nfs_client_free(c);
		fake_nfs_free(f);
	}
}
END_TEST

/* Killed at each operation, a creation leaves nothing, or a text that another one recognizes. */
START_TEST(test_killed)
{
	unsigned int n;

	store_holder_set_patience(0);
	for (n = 1; n <= 10; n++) {
		const struct fake_failure failure = {
			.nth = n, .error = -ECONNABORTED, .after = _i == 1, .all = true
		};
		struct nfs_client *c, *next;
		struct fake_nfs *f = share_without_links(&c);
		char row[32];
		int r;

		(void)snprintf(row, sizeof(row), "operation %u", n);
		fake_nfs_fail(f, &failure);
		(void)store_text_create(c, &c->root, "k", TEXT);
		fake_nfs_fail(f, NULL);
		next = fake_nfs_connect(f);
		r = store_text_create(next, &next->root, "k", TEXT);
		check_that(row, "made or there", r == 0 || r == -EEXIST);
		check_reads(row, f, TEXT);
		nfs_client_free(c);
		nfs_client_free(next);
		fake_nfs_free(f);
	}
}
END_TEST

/* What another replica does before an operation of ours. */
struct rival {
	enum nfs_op_type type;
	bool done;
};

/* It removes the same unfinished file and writes its own. */
static void write_anew(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	static const char other[] = "v=1;name=other";
	struct rival *rival = data;
	char checksum[32];
	int n;

	if (rival->done || op->type != rival->type)
		return;
	rival->done = true;
	n = snprintf(checksum, sizeof(checksum), "\n%016llx\n",
		     (unsigned long long)str_hash(other, strlen(other)));
	fake_nfs_remove(f, "k");
	fake_nfs_write(f, "k", 0, other, strlen(other));
	fake_nfs_write(f, "k", strlen(other), checksum, (size_t)n);
}

START_TEST(test_two_removers)
{
	struct nfs_client *c;
	struct fake_nfs *f = with_cut_file(3, false, &c);
	struct rival rival = { .type = NFS_OP_RENAME };

	store_holder_set_patience(0);
	fake_nfs_watch(f, write_anew, &rival);
	check_int("second", "create", store_text_create(c, &c->root, "k", TEXT), -EINPROGRESS);
	check_that("first", "written", rival.done);
	check_reads("first", f, "v=1;name=other");
	check_int("second", "again", store_text_create(c, &c->root, "k", TEXT), -EEXIST);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* A writer that was taken for dead between CREATE and WRITE leaves the file of that name alone. */
START_TEST(test_late_writer)
{
	struct nfs_client *c;
	struct fake_nfs *f = share_without_links(&c);
	struct rival rival = { .type = NFS_OP_WRITE };

	fake_nfs_watch(f, write_anew, &rival);
	check_int("late", "create", store_text_create(c, &c->root, "k", TEXT), -ESTALE);
	check_reads("late", f, "v=1;name=other");
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

/* In the trash, where it is looked at again, a text is not the directory of a volume. */
START_TEST(test_in_trash)
{
	unsigned int n, found = 0;

	store_holder_set_patience(0);
	for (n = 1; n <= 12; n++) {
		const struct fake_failure failure = { .nth = n,
						      .error = -ECONNABORTED,
						      .all = true };
		cleanup_free char *before = NULL, *after = NULL;
		char row[32], text[NFS_LINK_MAX + 1];
		struct error err = { .code = ERROR_OK };
		struct nfs_client *c, *next;
		struct fake_nfs *f = with_cut_file(3, false, &c);
		bool trashed = false;

		(void)snprintf(row, sizeof(row), "killed at operation %u", n);
		fake_nfs_fail(f, &failure);
		(void)store_text_read(c, &c->root, "k", text);
		fake_nfs_fail(f, NULL);
		next = fake_nfs_connect(f);
		before = fake_nfs_list(f, NULL);
		found += strstr(before, "unfinished.") != NULL;
		check_int(row, "is a directory's",
			  directory_may_come_back(next, "unfinished", &err), 0);
		check_int(row, "release",
			  directory_trash_release_all(next, "unfinished", NULL, NULL, &trashed,
						      &err),
			  0);
		after = fake_nfs_list(f, NULL);
		check_str(row, "what is there", after, before);
		nfs_client_free(c);
		nfs_client_free(next);
		fake_nfs_free(f);
	}
	check_that("in the trash", "there was one", found > 0);
}
END_TEST

CHECK_MAIN("text",
	   .tests = { test_kind, test_file, test_links_stay, test_refused, test_refused_once,
		      test_full, test_foreign, test_two_removers, test_late_writer, test_in_trash },
	   .loops = { { test_cut_short, 2 }, { test_killed, 2 } })
