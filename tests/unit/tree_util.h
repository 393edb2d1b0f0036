/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Shared by the tests of tree/: a tree with entries of every kind, on a share in memory. */
#ifndef TREE_UTIL_H
#define TREE_UTIL_H

#include <malloc.h>
#include <stdio.h>

#include "base/list.h"
#include "fake/nfs.h"
#include "tree/copy.h"
#include "tree/entry.h"
#include "check_util.h"

#define KIB 1024U
#define MIB (1024U * KIB)

/* Some tests are built once more for a server that makes and reads small files in one call. */
#ifdef TREE_WHOLE_MAX
__attribute__((constructor)) static void tree_make_whole_files(void)
{
	fake_nfs_whole_max = fake_nfs_lists_max = TREE_WHOLE_MAX;
}
#endif

/* Return the bytes in use; 0 if malloc() does not report them, as with AddressSanitizer or musl. */
static inline size_t tree_heap_in_use(void)
{
#ifdef HAVE_MALLINFO2
	const struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
#else
	return 0;
#endif
}

/* A sink that accepts everything and measures the memory in use. */
struct tree_meter {
	struct tree_sink sink;
	uint64_t begun, ended;
	size_t start, peak; /* of the heap; start is the test's to set */
};

static inline int tree_meter_begin(struct tree_sink *sink, const struct tree_entry *entry,
				   struct error *err)
{
	struct tree_meter *m = container_of(sink, struct tree_meter, sink);
	size_t used = m->begun % 64 == 0 ? tree_heap_in_use() : 0;

	(void)entry;
	(void)err;
	m->begun++;
	if (used > m->start && used - m->start > m->peak)
		m->peak = used - m->start;
	return 0;
}

static inline int tree_meter_data(struct tree_sink *sink, const struct tree_piece *piece,
				  struct error *err)
{
	(void)sink;
	(void)piece;
	(void)err;
	return 0;
}

static inline int tree_meter_end(struct tree_sink *sink, struct error *err)
{
	struct tree_meter *m = container_of(sink, struct tree_meter, sink);

	(void)err;
	m->ended++;
	return 0;
}

static inline int tree_meter_drop(struct tree_sink *sink, struct error *err)
{
	return tree_meter_end(sink, err);
}

#define TREE_METER                                                                                 \
	{                                                                                          \
		.sink = { tree_meter_begin, tree_meter_data, tree_meter_end, tree_meter_drop }     \
	}

/* Write data without zeros that differs from place to place. */
static inline void tree_fill_file(struct fake_nfs *f, const char *path, uint64_t offset, size_t len)
{
	enum { PERIOD = 251 };
	unsigned int n = (unsigned int)(offset * 7919 % PERIOD);
	char *data = malloc(len > 0 ? len : 1);
	size_t i, done;

	ck_assert(data != NULL);
	for (i = 0; i < len && i < PERIOD; i++) {
		data[i] = (char)(n + 1);
		n = (n + 7919) % PERIOD;
	}
	/* The rest repeats. Some tests write gigabytes of it: let memcpy() do the work. */
	for (done = i; done < len; done += i) {
		i = done < len - done ? done : len - done;
		memcpy(data + done, data, i);
	}
	fake_nfs_write(f, path, offset, data, len);
	free(data);
}

/* Set an owner, a mode and times that no new entry has. */
static inline void tree_mark(struct fake_nfs *f, const char *path, uint32_t mode, uint32_t n)
{
	const struct nfs_attr attr = {
		.mode = mode,
		.uid = 1000 + n,
		.gid = 2000 + n,
		.atime = { 1500000000 + n, 123456700 + n },
		.mtime = { 1600000000 + n, 987654300 + n },
		.device = { n % 7, n },
	};

	fake_nfs_set(f, path, &attr);
}

static inline void tree_put_nodes(struct fake_nfs *f)
{
	fake_nfs_put(f, "tree/nodes/fifo", NFS_TYPE_FIFO, NULL);
	fake_nfs_put(f, "tree/nodes/block", NFS_TYPE_BLOCK, NULL);
	fake_nfs_put(f, "tree/nodes/character", NFS_TYPE_CHARACTER, NULL);
	fake_nfs_put(f, "tree/nodes/link", NFS_TYPE_SYMLINK, "../outside/\303\244");
	fake_nfs_link(f, "tree/nodes/link", "tree/nodes/other link");
	tree_mark(f, "tree/nodes/block", 0640, 3);
	tree_mark(f, "tree/nodes/character", 0666, 4);
}

/* Create "tree" with entries of each kind but sockets, which archives do not keep. */
static inline void tree_put(struct fake_nfs *f)
{
	static const char zeros[8 * KIB];
	static const char *const marked[] = {
		"tree/empty",
		"tree/small",
		"tree/deep/er/setuid",
		"tree/holes",
		"tree/all hole",
		"tree/end",
		"tree/nodes/fifo",
		"tree/nodes/link",
		"tree/deep/er/\303\274",
		"tree/nodes",
		"tree/deep/er",
		"tree/deep",
		"tree/a directory",
		"tree",
	};
	uint32_t i;

	fake_nfs_put(f, "tree/a directory", NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_write(f, "tree/empty", 0, "", 0);
	tree_fill_file(f, "tree/small", 0, 5);
	fake_nfs_write(f, "tree/zeros", 0, zeros, sizeof(zeros));
	tree_fill_file(f, "tree/deep/er/setuid", 0, 600 * KIB + 17);
	tree_fill_file(f, "tree/holes", 128 * KIB, 4 * KIB);
	tree_fill_file(f, "tree/holes", 900 * KIB, 8 * KIB);
	fake_nfs_truncate(f, "tree/holes", 2 * MIB);
	fake_nfs_write(f, "tree/all hole", 0, "", 0);
	fake_nfs_truncate(f, "tree/all hole", MIB);
	tree_fill_file(f, "tree/end", 0, 100);
	fake_nfs_link(f, "tree/small", "tree/deep/er/again");
	fake_nfs_link(f, "tree/small", "tree/zz");
	fake_nfs_write(f, "tree/deep/er/\303\274", 0, "x", 1);
	tree_put_nodes(f);
	for (i = 0; i < ARRAY_SIZE(marked); i++)
		tree_mark(f, marked[i], i % 3 == 2 ? 04755 : 0640 + i % 7, i);
	tree_mark(f, "tree/deep", 01777, 70);
	tree_mark(f, "tree/nodes/link", 0777, 71);
}

/* Compare the trees at the paths and report the first line that differs. */
static inline void tree_check_same(const char *row, struct fake_nfs *f, const char *a,
				   struct fake_nfs *g, const char *b)
{
	char *x = fake_nfs_dump(f, a), *y = fake_nfs_dump(g, b);
	const char *p = x, *q = y;

	while (*p != '\0' && strcspn(p, "\n") == strcspn(q, "\n") &&
	       memcmp(p, q, strcspn(p, "\n") + 1) == 0) {
		p += strcspn(p, "\n") + 1;
		q += strcspn(q, "\n") + 1;
	}
	ck_assert_msg(*p == '\0' && *q == '\0', "%s: '%.*s' became '%.*s'", row,
		      (int)strcspn(p, "\n"), p, (int)strcspn(q, "\n"), q);
	free(x);
	free(y);
}

/* Copy "tree" of f to "copy" by the work's clients, and check that nothing is left in flight. */
static inline int tree_copy_checked(struct tree_work *work, struct fake_nfs *f, bool verify,
				    struct error *err)
{
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	ck_assert(fake_nfs_get(f, "tree", &handle, &attr));
	r = tree_copy(work, &handle, &attr, &work->to->root, "copy", verify, err);
	check_int("copy", "operations left in flight", work->reading + work->writing, 0);
	check_int("copy", "bytes left", work->ahead.held + work->unwritten.held, 0);
	check_that("copy", "an error is reported", (r < 0) == (err->code != ERROR_OK));
	return r;
}

#endif
