/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/sparse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096 /* smallest allocation of common file systems */
#define SEGMENTS_MAX 65536 /* 1 MiB of memory */

static bool is_zero(const char *data, size_t len)
{
	return data[0] == '\0' && memcmp(data, data + 1, len - 1) == 0;
}

/* Return the bytes of the block that begins at offset; blocks are aligned in the file. */
static size_t block_length(uint64_t offset, size_t len)
{
	const size_t block = BLOCK - (size_t)(offset % BLOCK);

	return block < len ? block : len;
}

/* Return the length of the run of blocks at data that are all zero, or all nonzero. */
static size_t run_length(uint64_t offset, const char *data, size_t len, bool *ret_zero)
{
	size_t end = block_length(offset, len), block;
	const bool zero = is_zero(data, end);

	for (; end < len; end += block) {
		block = block_length(offset + end, len - end);
		if (is_zero(data + end, block) != zero)
			break;
	}
	*ret_zero = zero;
	return end;
}

/* Double the length of the shortest hole kept until half of the segments are gone. */
static void segments_merge(struct tree_segments *s)
{
	while (s->n > SEGMENTS_MAX / 2) {
		size_t i, kept = 0;

		s->gap *= 2;
		for (i = 1; i < s->n; i++) {
			struct tree_segment *last = &s->items[kept];

			if (s->items[i].offset - (last->offset + last->len) < s->gap)
				last->len = s->items[i].offset + s->items[i].len - last->offset;
			else
				s->items[++kept] = s->items[i];
		}
		s->n = kept + 1;
	}
}

int tree_segments_append(struct tree_segments *s, uint64_t offset, uint64_t len)
{
	struct tree_segment *last = s->n > 0 ? &s->items[s->n - 1] : NULL;
	struct tree_segment *items;

	if (s->gap == 0)
		s->gap = BLOCK;
	if (last != NULL && offset - (last->offset + last->len) < s->gap) {
		last->len = offset + len - last->offset;
		return 0;
	}
	if (s->n == SEGMENTS_MAX)
		segments_merge(s);
	if (s->n == s->cap) {
		items = reallocarray(s->items, s->cap > 0 ? s->cap * 2 : 64, sizeof(*items));
		if (items == NULL)
			return -ENOMEM;
		s->items = items;
		s->cap = s->cap > 0 ? s->cap * 2 : 64;
	}
	s->items[s->n++] = (struct tree_segment){ offset, len };
	return 0;
}

int tree_segments_add(struct tree_segments *s, uint64_t offset, const char *data, size_t len)
{
	while (len > 0) {
		bool zero;
		size_t n = run_length(offset, data, len, &zero);
		int r = zero ? 0 : tree_segments_append(s, offset, n);

		if (r < 0)
			return r;
		offset += n;
		data += n;
		len -= n;
	}
	return 0;
}

void tree_segments_done(struct tree_segments *s)
{
	free(s->items);
	*s = (struct tree_segments){ .n = 0 };
}

int tree_sparse_send(struct tree_sink *sink, const struct tree_piece *piece, bool skip_zeros,
		     struct error *err)
{
	size_t at = 0;

	while (at < piece->len) {
		struct tree_piece part = {
			.offset = piece->offset + at,
			.data = piece->data + at,
			.len = piece->len - at,
		};
		bool zero = false;
		int r;

		if (skip_zeros)
			part.len = run_length(part.offset, part.data, part.len, &zero);
		/* Don't pin the full block for a part of it. */
		if (part.len == piece->len)
			part.block = piece->block;
		r = zero ? 0 : sink->data(sink, &part, err);
		if (r < 0)
			return r;
		at += part.len;
	}
	return 0;
}
