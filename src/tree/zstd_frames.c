/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/zstd_frames.h"

#include <errno.h>

#define MAGIC 0xFD2FB528U
#define MAGIC_BYTES 4
#define MAGIC_SKIPPABLE 0x184D2A50U
#define MAGIC_SKIPPABLE_MASK 0xFFFFFFF0U
#define SINGLE_SEGMENT 0x20 /* in the descriptor: no window, all of the content is kept */
#define HAS_CHECKSUM 0x04
#define CHECKSUM_BYTES 4
#define WINDOW_LOG_MIN 10
#define WINDOW_MAX ((uint64_t)TREE_ZSTD_WINDOW_MIB_MAX << 20)
#define BLOCK_MAX (128U * 1024) /* of content */
#define IS_LAST 0x1 /* in the header of a block */

enum block_type {
	BLOCK_RAW,
	BLOCK_REPEATED, /* one byte */
	BLOCK_COMPRESSED,
	BLOCK_RESERVED,
};

static uint64_t get_number(const unsigned char *bytes, size_t n)
{
	uint64_t number = 0;

	while (n > 0)
		number = number << 8 | bytes[--n];
	return number;
}

static bool is_skippable(uint64_t magic)
{
	return (magic & MAGIC_SKIPPABLE_MASK) == MAGIC_SKIPPABLE;
}

bool tree_zstd_matches(const char *data, size_t len)
{
	const uint64_t magic =
		len < MAGIC_BYTES ? 0 : get_number((const unsigned char *)data, MAGIC_BYTES);

	return magic == MAGIC || is_skippable(magic);
}

static bool has_window(const struct tree_zstd_frames *z)
{
	return (z->descriptor & SINGLE_SEGMENT) == 0;
}

/* Bytes of the content's size in the header. */
static size_t content_bytes(const struct tree_zstd_frames *z)
{
	static const size_t bytes[] = { 0, 2, 4, 8 };
	const size_t n = bytes[z->descriptor >> 6];

	return n == 0 && !has_window(z) ? 1 : n;
}

static size_t header_bytes(const struct tree_zstd_frames *z)
{
	static const size_t dictionary[] = { 0, 1, 2, 4 };

	return has_window(z) + dictionary[z->descriptor & 3] + content_bytes(z);
}

/* Bytes of the part that is to be understood next. */
static size_t part_bytes(const struct tree_zstd_frames *z)
{
	switch (z->part) {
	case TREE_ZSTD_MAGIC:
		return MAGIC_BYTES;
	case TREE_ZSTD_HEADER:
		return header_bytes(z);
	case TREE_ZSTD_BLOCK:
		return 3;
	case TREE_ZSTD_SKIPPABLE:
		return 4;
	default:
		return 1;
	}
}

static uint64_t window_size(const struct tree_zstd_frames *z)
{
	const size_t n = content_bytes(z);
	const uint64_t base = UINT64_C(1) << (WINDOW_LOG_MIN + (z->head[0] >> 3));

	if (has_window(z))
		return base + base / 8 * (z->head[0] & 7);
	/* Two bytes count from 256. */
	return get_number(z->head + header_bytes(z) - n, n) + (n == 2 ? 256 : 0);
}

static void take_magic(struct tree_zstd_frames *z)
{
	const uint64_t magic = get_number(z->head, MAGIC_BYTES);

	if (magic == MAGIC)
		z->part = TREE_ZSTD_DESCRIPTOR;
	else
		z->part = is_skippable(magic) ? TREE_ZSTD_SKIPPABLE : TREE_ZSTD_UNKNOWN;
}

/* Return how much the block can become. */
static size_t take_block(struct tree_zstd_frames *z)
{
	const uint64_t header = get_number(z->head, 3);
	const enum block_type type = (header >> 1) & 3;
	const size_t size = (size_t)(header >> 3);

	if (type == BLOCK_RESERVED) {
		z->part = TREE_ZSTD_UNKNOWN;
		return 0;
	}
	z->skip = type == BLOCK_REPEATED ? 1 : size;
	if ((header & IS_LAST) != 0) {
		z->skip += (z->descriptor & HAS_CHECKSUM) != 0 ? CHECKSUM_BYTES : 0;
		z->part = TREE_ZSTD_MAGIC;
	}
	return type == BLOCK_COMPRESSED ? BLOCK_MAX : size;
}

/* Take the part in head; add to *becomes what it can become. */
static int take_part(struct tree_zstd_frames *z, size_t *becomes)
{
	switch (z->part) {
	case TREE_ZSTD_MAGIC:
		take_magic(z);
		return 0;
	case TREE_ZSTD_DESCRIPTOR:
		z->descriptor = z->head[0];
		z->part = TREE_ZSTD_HEADER;
		return 0;
	case TREE_ZSTD_HEADER:
		z->part = TREE_ZSTD_BLOCK;
		return window_size(z) <= WINDOW_MAX ? 0 : -EFBIG;
	case TREE_ZSTD_BLOCK:
		*becomes += take_block(z);
		return 0;
	case TREE_ZSTD_SKIPPABLE:
		z->skip = get_number(z->head, 4);
		z->part = TREE_ZSTD_MAGIC;
		return 0;
	default:
		return -EBADMSG;
	}
}

int tree_zstd_next(struct tree_zstd_frames *z, const char *data, size_t len, size_t *ret)
{
	size_t at = 0, becomes = 0;
	int r;

	while (at < len && becomes < BLOCK_MAX) {
		if (z->skip > 0) {
			const size_t n = z->skip < len - at ? (size_t)z->skip : len - at;

			z->skip -= n;
			at += n;
			continue;
		}
		/* Return what precedes it first: that may be all that the caller needs. */
		if (z->part == TREE_ZSTD_UNKNOWN && at > 0)
			break;
		z->head[z->n_head++] = (unsigned char)data[at++];
		if (z->n_head < part_bytes(z))
			continue;
		z->n_head = 0;
		r = take_part(z, &becomes);
		if (r < 0)
			return r;
	}
	*ret = at;
	return 0;
}
