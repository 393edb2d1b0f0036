/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/gunzip.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

#define PIECE_BYTES (64 * 1024)
#define GZIP_ONLY (16 + MAX_WBITS) /* zlib: expect a gzip header and trailer */
#define MAGIC_1 '\x1f'
#define MAGIC_2 '\x8b'

struct tree_gunzip {
	z_stream z;
	bool in_member;
	bool padding; /* the last member has ended; only zeros follow */
	char piece[PIECE_BYTES];
};

bool tree_gunzip_matches(const char *data, size_t len)
{
	return len >= 2 && data[0] == MAGIC_1 && data[1] == MAGIC_2;
}

int tree_gunzip_new(struct tree_gunzip **ret)
{
	struct tree_gunzip *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return -ENOMEM;
	if (inflateInit2(&g->z, GZIP_ONLY) != Z_OK) {
		free(g);
		return -ENOMEM;
	}
	*ret = g;
	return 0;
}

void tree_gunzip_free(struct tree_gunzip *g)
{
	if (g == NULL)
		return;
	(void)inflateEnd(&g->z); /* fails only for unused data */
	free(g);
}

void tree_gunzip_feed(struct tree_gunzip *g, const char *data, size_t len)
{
	g->z.next_in = (Bytef *)(uintptr_t)data; /* only read */
	g->z.avail_in = (uInt)len;
}

/* Return whether the input belongs to a member, the current or a new one. */
static bool begin_member(struct tree_gunzip *g)
{
	if (g->in_member)
		return true;
	g->padding = g->padding || (char)g->z.next_in[0] != MAGIC_1;
	g->in_member = !g->padding && inflateReset(&g->z) == Z_OK;
	return g->in_member;
}

/* Use up input behind the last member: 0, or -EBADMSG if it is not zeros. */
static int skip_padding(struct tree_gunzip *g)
{
	for (; g->z.avail_in > 0; g->z.next_in++, g->z.avail_in--)
		if (g->z.next_in[0] != 0)
			return -EBADMSG;
	return 0;
}

int tree_gunzip_next(struct tree_gunzip *g, const char **ret, size_t *ret_len)
{
	*ret = g->piece;
	*ret_len = 0;
	while (*ret_len == 0 && g->z.avail_in > 0) {
		int r;

		if (!begin_member(g))
			return skip_padding(g);
		g->z.next_out = (Bytef *)g->piece;
		g->z.avail_out = PIECE_BYTES;
		r = inflate(&g->z, Z_NO_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			return r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
		if (r == Z_STREAM_END)
			g->in_member = false;
		*ret_len = PIECE_BYTES - g->z.avail_out;
	}
	return 0;
}

bool tree_gunzip_is_complete(const struct tree_gunzip *g)
{
	return !g->in_member;
}
