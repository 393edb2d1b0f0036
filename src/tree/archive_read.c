/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <inttypes.h>
#include <string.h>

#include "nfs/calls.h"
#include "tree/unpacker.h"

/*
 * Limits on the contents by the size of the archive, with an allowance for small ones. Data and
 * entries have none if the sum is known: zstd expands what tree_pack() writes up to 32,768 times.
 * CRC-32 stops nobody who can replace that archive. But they can write where the share keeps
 * snapshots, so they need no archive to fill it, and 32,768 times its size remains the limit.
 */
#define EXPANSION_MAX 1100 /* gzip expands at most 1,032 times; blocks of zeros do not count */
#define EXPANSION_FREE (UINT64_C(1) << 30)
#define ENTRIES_FREE UINT64_C(1000000)
#define IMPLIED_FREE UINT64_C(100000) /* directories without an entry, each time one is opened */
#define ENTRY_BYTES 4 /* of the archive, for each additional entry or such directory */
#define TAR_BLOCK 512
#define PADDING_MAX (UINT64_C(64) << 20) /* after the end of a tar; GNU tar writes up to 32 MiB */

/* -------- entries -------- */

/*
 * Read the next header, and nothing else: data that is left is skipped before, because it may be
 * longer than any header.
 */
static int next_header(struct unpacker *u, struct archive_entry **ret)
{
	int status;

	u->header_at = archive_filter_bytes(u->archive, 0);
	u->in_header = true;
	status = archive_read_next_header(u->archive, ret);
	u->in_header = false;
	return status;
}

static int fail_compressed_twice(struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "the archive is refused: it is compressed twice");
}

static int fail_no_tar(struct unpacker *u, struct error *err)
{
	const void *data;
	la_int64_t offset;
	size_t len;
	int status = archive_read_data_block(u->archive, &data, &len, &offset);

	if (u->error < 0 || status != ARCHIVE_OK)
		return unpacker_error(u, err);
	if (tree_zstd_matches(data, len) || tree_gunzip_matches(data, len))
		return fail_compressed_twice(err);
	return unpacker_fail_damaged("Unrecognized archive format", err);
}

/* Read all entries; extract them if there is a builder. */
static int read_entries(struct unpacker *u, struct error *err)
{
	int r = 0;

	for (;;) {
		struct archive_entry *e;
		int status = next_header(u, &e);

		if (status == ARCHIVE_EOF)
			break;
		if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
			return unpacker_error(u, err);
		if (archive_format(u->archive) == ARCHIVE_FORMAT_RAW)
			return fail_no_tar(u, err);
		/*
		 * A warning with a message is about the encoding of a name. libarchive 3.8 and
		 * later warns without one about a number in a pax header that it cannot parse, and
		 * uses another: 0 for an owner, which is root.
		 */
		if (status == ARCHIVE_WARN && archive_error_string(u->archive) == NULL)
			return unpacker_refuse_entry(unpacker_name_for_message(e),
						     "has a number that cannot be read", err);
		if (u->builder != NULL)
			r = unpacker_extract_entry(u, e, err);
		if (r < 0)
			return r;
		if (archive_read_data_skip(u->archive) == ARCHIVE_FATAL)
			return unpacker_error(u, err);
	}
	/*
	 * libarchive accepts a tar without an end: it may have been truncated before compression.
	 */
	if (archive_filter_bytes(u->archive, 0) <= archive_read_header_position(u->archive))
		return unpacker_fail_damaged("its end is missing", err);
	return 0;
}

/* -------- the whole archive -------- */

/* Check that an uncompressed tar ends with zeros: libarchive accepts one that was truncated. */
static int check_end(struct unpacker *u, uint64_t size, struct error *err)
{
	char tail[TAR_BLOCK], zeros[TAR_BLOCK] = { 0 };
	const uint64_t offset = size >= sizeof(tail) ? size - sizeof(tail) : 0;
	uint32_t len = sizeof(tail);
	int r;

	if (u->gunzip != NULL || archive_filter_code(u->archive, 0) != ARCHIVE_FILTER_NONE)
		return 0; /* compressed data marks its end */
	r = nfs_read(u->work->from, u->file.handle, offset, tail, &len);
	if (r < 0)
		return nfs_error_set(err, u->work->from, r, "reading the archive");
	if (len < sizeof(tail) || memcmp(tail, zeros, sizeof(tail)) != 0)
		return unpacker_fail_damaged("its end is missing", err);
	return 0;
}

/*
 * Read the rest of the file, which libarchive does not need, for the checksums. Only zeros may
 * follow the end of a tar: with other data, that end is damage in the middle, or the first of
 * several archives was extracted.
 */
static int read_to_end(struct unpacker *u, const struct tree_archive_sum *sum, struct error *err)
{
	const bool is_plain = archive_filter_code(u->archive, 0) == ARCHIVE_FILTER_NONE;
	const uint64_t end = (uint64_t)archive_filter_bytes(u->archive, 0);
	const char *data;
	size_t len;

	/* libarchive does not return what follows the tar in zstd: only the sum covers that. */
	if (!is_plain && sum == NULL)
		return 0;
	do {
		u->error = unpacker_read_next(u, &data, &len);
		if (u->error < 0)
			return unpacker_error(u, err);
		if (is_plain && u->nonzero_end > end)
			return unpacker_fail_damaged("more data follows its end", err);
		if (is_plain && sum == NULL && u->streamed - end > PADDING_MAX)
			return unpacker_fail_damaged("too many zeros follow its end", err);
	} while (len > 0);
	return 0;
}

static int check_length(uint64_t bytes, const struct tree_archive_sum *sum, struct error *err)
{
	if (sum == NULL || bytes == sum->bytes)
		return 0;
	return error_set(err, ERROR_DATA_LOSS,
			 "the archive is damaged: it has %" PRIu64
			 " bytes, and was made with %" PRIu64,
			 bytes, sum->bytes);
}

static int check_sum(const struct unpacker *u, const struct tree_archive_sum *sum,
		     struct error *err)
{
	int r = check_length(u->read.bytes, sum, err);

	if (r < 0 || sum == NULL || u->read.crc32 == sum->crc32)
		return r;
	return unpacker_fail_damaged("its checksum is not the one with which it was made", err);
}

/*
 * Do not let libarchive detect filters itself: it would decompress an archive that is compressed
 * twice, with a window of any size, while it opens the archive. The format "raw" matches everything
 * that is not a tar.
 */
static int unpacker_open(struct unpacker *u, struct error *err)
{
	struct archive *a = archive_read_new();

	u->archive = a;
	if (a == NULL)
		return error_oom(err);
	u->error = unpacker_read_first(u);
	if (u->error < 0 ||
	    (u->is_zstd && archive_read_append_filter(a, ARCHIVE_FILTER_ZSTD) < ARCHIVE_WARN) ||
	    archive_read_support_format_tar(a) < ARCHIVE_WARN ||
	    archive_read_support_format_raw(a) < ARCHIVE_WARN ||
	    archive_read_open(a, u, NULL, unpacker_read_block, NULL) != ARCHIVE_OK)
		return unpacker_error(u, err);
	if (archive_filter_code(a, u->is_zstd) != ARCHIVE_FILTER_NONE)
		return fail_compressed_twice(err);
	return 0;
}

/* Read the archive, of size bytes, to its end; extract it if there is a builder. */
static int read_archive(struct unpacker *u, const struct nfs_handle *archive, uint64_t size,
			const struct tree_archive_sum *sum, struct error *err)
{
	int r;

	u->work->progress.total = size;
	tree_file_init(&u->file, u->work, archive, size);
	r = check_length(size, sum, err);
	if (r < 0)
		return r;
	r = unpacker_open(u, err);
	if (r < 0)
		return r;
	r = check_end(u, size, err);
	if (r < 0)
		return r;
	r = read_entries(u, err);
	if (r < 0)
		return r;
	if (u->builder != NULL) {
		r = unpacker_close_folders(u, err);
		if (r < 0)
			return r;
	}
	r = read_to_end(u, sum, err);
	if (r < 0)
		return r;
	return check_sum(u, sum, err);
}

static void unpacker_done(struct unpacker *u)
{
	tree_builder_free(u->builder);
	tree_drain(u->work);
	tree_file_done(&u->file);
	tree_gunzip_free(u->gunzip);
	(void)archive_read_free(u->archive);
	buf_done(&u->path);
}

/* 0: no limit. */
static uint64_t data_max(uint64_t size, const struct tree_archive_sum *sum)
{
	if (sum != NULL || size >= UINT64_MAX / EXPANSION_MAX / 2)
		return 0;
	return size * EXPANSION_MAX + EXPANSION_FREE;
}

int tree_unpack(struct tree_work *work, const struct nfs_handle *archive, uint64_t size,
		const struct tree_archive_sum *sum, const struct nfs_handle *parent,
		const char *root, struct error *err)
{
	const struct tree_builder_options options = {
		.root = root,
		.repeats = true,
		.data_max = data_max(size, sum),
	};
	struct unpacker u = {
		.work = work,
		.entries_max = sum != NULL ? UINT64_MAX : ENTRIES_FREE + size / ENTRY_BYTES,
		.implied_max = IMPLIED_FREE + size / ENTRY_BYTES,
	};
	int r;

	r = libarchive_load(err);
	if (r < 0)
		return r;
	if (tree_builder_new(&u.builder, work, parent, &options) < 0)
		return error_oom(err);
	u.sink = tree_builder_sink(u.builder);
	r = read_archive(&u, archive, size, sum, err);
	if (r == 0)
		r = tree_builder_finish(u.builder, err);
	unpacker_done(&u);
	return r;
}

int tree_archive_check(struct tree_work *work, const struct nfs_handle *archive, uint64_t size,
		       struct error *err)
{
	struct unpacker u = { .work = work };
	int r = libarchive_load(err);

	if (r < 0)
		return r;
	r = read_archive(&u, archive, size, NULL, err);
	unpacker_done(&u);
	return r;
}
