/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The file of an archive that is read: its pieces, decompressed, as libarchive wants them. */

#include <errno.h>
#include <zlib.h>

#include "nfs/error.h"
#include "tree/unpacker.h"

/*
 * Limit of what libarchive reads of one entry before its data: headers and map of holes. It keeps
 * 48 bytes for each range of a map, which may take 4 in the archive. The longest map that
 * tree_pack() writes has 65,536 ranges of 36 bytes, beside 512 KiB of extended attributes.
 */
#define HEADER_MIB_MAX 3

int unpacker_fail_damaged(const char *why, struct error *err)
{
	return error_set(err, ERROR_DATA_LOSS, "the archive is damaged: %s", why);
}

/* Return the next piece of the file. Length 0: its end. */
static int read_raw(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r;

	if (u->chunk != NULL)
		tree_file_release(u->chunk);
	r = tree_file_next(&u->file, &u->chunk, &u->err);
	if (r < 0) {
		u->chunk = NULL;
		return nfs_error_set(&u->err, u->work->from, r, "reading the archive");
	}
	*ret_len = 0;
	if (u->chunk == NULL)
		return 0;
	*ret = u->chunk->block->data;
	*ret_len = u->chunk->got;
	u->work->progress.done += u->chunk->got;
	u->read.bytes += u->chunk->got;
	u->read.crc32 = (uint32_t)crc32_z(u->read.crc32, (const Bytef *)*ret, *ret_len);
	return 0;
}

static int read_gzip(struct unpacker *u, const char **ret, size_t *ret_len)
{
	const char *packed = NULL;
	size_t len = 0;
	int r;

	for (;;) {
		r = tree_gunzip_next(u->gunzip, ret, ret_len);
		if (r == -ENOMEM)
			return error_oom(&u->err);
		if (r < 0)
			return unpacker_fail_damaged("its gzip data or checksum is wrong", &u->err);
		if (*ret_len > 0)
			return 0;
		r = read_raw(u, &packed, &len);
		if (r < 0)
			return r;
		if (len == 0)
			break;
		tree_gunzip_feed(u->gunzip, packed, len);
	}
	if (tree_gunzip_is_complete(u->gunzip))
		return 0;
	return unpacker_fail_damaged("it was truncated", &u->err);
}

/*
 * Return the next piece of zstd, which libarchive decompresses. Pieces are small, so that
 * check_header() runs often: libarchive may ask for the next piece only after it has used all the
 * output of the last one.
 */
static int read_zstd(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r = u->rest_len > 0 ? 0 : read_raw(u, &u->rest, &u->rest_len);

	if (r < 0)
		return r;
	*ret = u->rest;
	*ret_len = 0;
	if (u->rest_len == 0)
		return 0;
	r = tree_zstd_next(&u->zstd, u->rest, u->rest_len, ret_len);
	if (r == -EFBIG)
		return error_set(&u->err, ERROR_FAILED_PRECONDITION,
				 "the archive is refused: its zstd window is larger than %d MiB; recompress it without --long and --ultra",
				 TREE_ZSTD_WINDOW_MIB_MAX);
	if (r < 0)
		return unpacker_fail_damaged("its zstd data is wrong", &u->err);
	u->rest += *ret_len;
	u->rest_len -= *ret_len;
	return 0;
}

static int read_unpacked(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r;

	if (u->gunzip != NULL)
		return read_gzip(u, ret, ret_len);
	if (u->is_zstd)
		return read_zstd(u, ret, ret_len);
	r = u->rest_len > 0 ? 0 : read_raw(u, &u->rest, &u->rest_len);
	*ret = u->rest;
	*ret_len = u->rest_len;
	u->rest_len = 0;
	return r;
}

/* Read the first piece, and see how the file is compressed. */
int unpacker_read_first(struct unpacker *u)
{
	int r = read_raw(u, &u->rest, &u->rest_len);

	if (r < 0)
		return r;
	u->is_zstd = tree_zstd_matches(u->rest, u->rest_len);
	if (!tree_gunzip_matches(u->rest, u->rest_len))
		return 0;
	if (tree_gunzip_new(&u->gunzip) < 0)
		return error_oom(&u->err);
	tree_gunzip_feed(u->gunzip, u->rest, u->rest_len);
	return 0;
}

/* Return the next piece for libarchive. Length 0: the end. */
int unpacker_read_next(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r = read_unpacked(u, ret, ret_len);
	size_t len;

	if (r < 0)
		return r;
	for (len = *ret_len; len > 0 && (*ret)[len - 1] == '\0';)
		len--;
	if (len > 0)
		u->nonzero_end = u->streamed + len;
	u->streamed += *ret_len;
	return 0;
}

/*
 * libarchive limits the size of a header, but not of a map of holes, which is the beginning of a
 * file's data. Count the bytes that it has used, after decompression, not those that it was given.
 */
static int check_header(struct unpacker *u)
{
	if (!u->in_header ||
	    archive_filter_bytes(u->archive, 0) - u->header_at <= (la_int64_t)HEADER_MIB_MAX << 20)
		return 0;
	return error_set(&u->err, ERROR_FAILED_PRECONDITION,
			 "the archive is refused: an entry has more than %d MiB of headers and map of holes; make the archive without such maps, as tar does without --sparse",
			 HEADER_MIB_MAX);
}

la_ssize_t unpacker_read_block(struct archive *a, void *data, const void **ret)
{
	struct unpacker *u = data;
	const char *block = NULL;
	size_t len = 0;

	u->error = check_header(u);
	if (u->error == 0)
		u->error = unpacker_read_next(u, &block, &len);
	if (u->error < 0) {
		archive_set_error(a, -u->error, "the archive cannot be read");
		return -1;
	}
	*ret = block;
	return (la_ssize_t)len;
}

int unpacker_error(const struct unpacker *u, struct error *err)
{
	const char *why = archive_error_string(u->archive);

	if (u->error == 0 && archive_errno(u->archive) == ENOMEM)
		return error_oom(err);
	if (u->error == 0)
		return unpacker_fail_damaged(why != NULL ? why : "unknown error", err);
	(void)error_set(err, u->err.code, "%s", u->err.msg);
	return u->error;
}
