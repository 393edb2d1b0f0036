/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* tree/sparse.c and tree/hardlinks.c: holes, and files with several names. */

#include <stdio.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "tree/hardlinks.h"
#include "tree/sparse.h"
#include "check_util.h"

#define BLOCK 4096U
#define SEGMENTS_MAX 65536U

/* "x": a block of data; ".": of zeros; "-": of zeros except for the last byte. */
static char *blocks_of(const char *map, size_t *ret_len)
{
	size_t n = strlen(map), i;
	char *data = calloc(n, BLOCK);

	ck_assert(data != NULL);
	for (i = 0; i < n; i++) {
		if (map[i] == 'x')
			memset(data + i * BLOCK, 'x', BLOCK);
		else if (map[i] == '-')
			data[i * BLOCK + BLOCK - 1] = 'x';
	}
	*ret_len = n * BLOCK;
	return data;
}

/* Add the data in pieces, as short reads deliver it. */
static void add_all(struct tree_segments *s, const char *data, size_t len, size_t piece)
{
	size_t at;

	for (at = 0; at < len; at += piece)
		check_int("add", "result",
			  tree_segments_add(s, at, data + at, piece < len - at ? piece : len - at),
			  0);
}

START_TEST(test_segments)
{
	static const struct {
		const char *map;
		const char *want; /* offset+length, in blocks */
	} rows[] = {
		{ "x", "0+1 " },
		{ ".", "" },
		{ "....", "" },
		{ "xxxx", "0+4 " },
		{ "x.x", "0+1 2+1 " },
		{ "..xx", "2+2 " },
		{ "xx..", "0+2 " },
		{ ".-.-x.", "1+1 3+2 " },
		{ "-.................................................................-",
		  "0+1 66+1 " },
	};
	static const size_t pieces[] = { 1024 * 1024, 3 * BLOCK, BLOCK, BLOCK / 4 };
	size_t i, k, n, len;

	for (i = 0; i < ARRAY_SIZE(rows) * ARRAY_SIZE(pieces); i++) {
		const char *map = rows[i / ARRAY_SIZE(pieces)].map;
		cleanup_free char *data = blocks_of(map, &len);
		struct tree_segments s = { .n = 0 };
		char got[128] = "";

		add_all(&s, data, len, pieces[i % ARRAY_SIZE(pieces)]);
		for (k = n = 0; k < s.n; k++)
			n += (size_t)snprintf(got + n, sizeof(got) - n, "%u+%u ",
					      (unsigned int)(s.items[k].offset / BLOCK),
					      (unsigned int)((s.items[k].len + BLOCK - 1) / BLOCK));
		check_str(map, "segments", got, rows[i / ARRAY_SIZE(pieces)].want);
		tree_segments_done(&s);
	}
}
END_TEST

/* Too many segments: they are merged, no data is lost and memory is bounded. */
START_TEST(test_many_segments)
{
	cleanup_free char *block = check_repeat("x", BLOCK);
	struct tree_segments s = { .n = 0 };
	const uint64_t count = 5 * SEGMENTS_MAX + 17;
	uint64_t i, k = 0;

	for (i = 0; i < count; i++)
		check_int("many", "add", tree_segments_add(&s, i * 2 * BLOCK, block, BLOCK), 0);
	check_that("many", "bounded", s.n <= SEGMENTS_MAX && s.cap <= SEGMENTS_MAX);
	for (i = 0; i < count; i++) {
		while (k < s.n && s.items[k].offset + s.items[k].len <= i * 2 * BLOCK)
			k++;
		check_that("many", "the block is in it",
			   k < s.n && s.items[k].offset <= i * 2 * BLOCK &&
				   s.items[k].offset + s.items[k].len >= (i * 2 + 1) * BLOCK);
	}
	for (k = 1; k < s.n; k++)
		check_that("many", "ascending",
			   s.items[k].offset > s.items[k - 1].offset + s.items[k - 1].len);
	tree_segments_done(&s);
}
END_TEST

struct catcher {
	struct tree_sink sink;
	char got[64]; /* a letter for each block */
	bool shared; /* it could be, once */
};

static int catch_data(struct tree_sink *sink, const struct tree_piece *piece, struct error *err)
{
	struct catcher *c = container_of(sink, struct catcher, sink);
	size_t i;

	(void)err;
	for (i = 0; i < piece->len; i += BLOCK)
		c->got[(piece->offset + i) / BLOCK] = piece->data[i] == 'x' ? 'x' : '0';
	c->shared = c->shared || piece->block != NULL;
	return 0;
}

START_TEST(test_send)
{
	static const struct {
		const char *map;
		bool skip;
		const char *want;
		bool shared; /* nothing is left out: a part shall not keep all of it */
	} rows[] = {
		{ "xx..x", false, "xx00x", true }, { "xx..x", true, "xx..x", false },
		{ "..", true, "..", false },       { "..", false, "00", true },
		{ "x", true, "x", true },
	};
	size_t i, len;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *data = blocks_of(rows[i].map, &len);
		struct catcher c = { .sink = { .data = catch_data } };
		struct tree_block block = { .shares = 1 };
		const struct tree_piece piece = { 0, data, len, &block };

		memset(c.got, '.', len / BLOCK);
		check_int(rows[i].map, "send",
			  tree_sparse_send(&c.sink, &piece, rows[i].skip, NULL), 0);
		check_str(rows[i].map, "sent", c.got, rows[i].want);
		check_int(rows[i].map, "shared", c.shared, rows[i].shared);
	}
}
END_TEST

#define LINK_ID(n, of_handle, of_state)                                                            \
	((struct tree_hardlink_id){ .fileid = (n), .handle = (of_handle), .state = (of_state) })

static void check_link_id(struct tree_hardlinks *l, const struct tree_hardlink_id *id,
			  uint32_t names, const char *path, const char *want)
{
	const char *got = "unset";

	check_int(path, "find", tree_hardlinks_find(l, id, names, path, &got), 0);
	check_str(path, "first path", got, want);
}

static void check_link(struct tree_hardlinks *l, uint64_t id, uint32_t names, const char *path,
		       const char *want)
{
	check_link_id(l, &LINK_ID(id, id, id), names, path, want);
}

START_TEST(test_links_of_another)
{
	struct tree_hardlinks *l;

	check_int("new", "result", tree_hardlinks_new(&l, 2), 0);
	check_link_id(l, &LINK_ID(1, 10, 20), 4, "a", NULL);
	check_link_id(l, &LINK_ID(1, 11, 20), 4, "handle for each name", "a");
	check_link_id(l, &LINK_ID(1, 10, 21), 4, "written to", "a");
	check_link_id(l, &LINK_ID(1, 12, 22), 2, "b", NULL);
	check_link_id(l, &LINK_ID(1, 12, 22), 2, "c", "b");
	tree_hardlinks_free(l);
}
END_TEST

START_TEST(test_links)
{
	struct tree_hardlinks *l;

	check_int("new", "result", tree_hardlinks_new(&l, 2), 0);
	check_link(l, 1, 3, "a", NULL);
	check_link(l, 4097, 2, "b", NULL);
	check_link(l, 1, 3, "c", "a");
	/* There is no room for a third file until one is complete. */
	check_link(l, 3, 2, "d", NULL);
	check_link(l, 3, 2, "e", NULL);
	check_link(l, 4097, 2, "f", "b");
	check_link(l, 3, 2, "g", NULL);
	check_link(l, 3, 2, "h", "g");
	check_link(l, 1, 3, "i", "a");
	/* More names than it was said to have: the server's count was old. */
	check_link(l, 1, 3, "j", "a");
	check_link(l, 1, 3, "k", "a");
	tree_hardlinks_forget(l, &LINK_ID(1, 1, 1));
	tree_hardlinks_forget(l, &LINK_ID(1, 1, 1));
	check_link(l, 1, 3, "l", NULL);
	check_link(l, 1, 3, "m", "l");
	tree_hardlinks_free(l);
	tree_hardlinks_free(NULL);
}
END_TEST

static int find_number(struct tree_hardlinks *l, uint64_t i, const char *path, const char **ret)
{
	return tree_hardlinks_find(l, &LINK_ID(i, i, i), 2, path, ret);
}

/* Long paths are remembered up to some megabytes; files beyond become copies. */
START_TEST(test_links_bytes)
{
	cleanup_free char *path = check_repeat("p", 4095);
	struct tree_hardlinks *l;
	const char *first;
	uint64_t i, known = 0;

	check_int("new", "result", tree_hardlinks_new(&l, 65536), 0);
	for (i = 0; i < 65536; i++)
		check_int("bytes", "find", find_number(l, i, path, &first), 0);
	for (i = 0; i < 65536; i++) {
		check_int("bytes", "find again", find_number(l, i, "q", &first), 0);
		known += first != NULL && strcmp(first, path) == 0;
	}
	check_that("bytes", "bounded", known > 1000 && known * 4096 < 8U * 1024 * 1024);
	tree_hardlinks_free(l);
}
END_TEST

CHECK_MAIN("segments", .tests = {
			       test_segments,
			       test_many_segments,
			       test_send,
			       test_links,
			       test_links_of_another,
			       test_links_bytes,
		       })
