/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Internals of tree_unpack() and tree_archive_check() in archive_read.c: an archive that is being
 * read. unpacker_file.c reads the file and decompresses gzip, and libarchive does the rest.
 * unpacker_entry.c hands entries to the builder.
 */
#ifndef TREE_UNPACKER_H
#define TREE_UNPACKER_H

#include "base/buf.h"
#include "tree/archive.h"
#include "tree/builder.h"
#include "tree/file.h"
#include "tree/gunzip.h"
#include "tree/libarchive.h"
#include "tree/zstd_frames.h"

struct unpacker {
	struct tree_work *work;
	struct tree_builder *builder; /* NULL: the archive is only checked */
	struct tree_sink *sink; /* of the builder */
	struct archive *archive;
	struct tree_file file;
	struct tree_chunk *chunk; /* in use by libarchive or zlib */
	struct tree_gunzip *gunzip; /* NULL: not gzip */
	bool is_zstd;
	struct tree_zstd_frames zstd;
	const char *rest; /* of the chunk, without gzip */
	size_t rest_len;
	struct tree_archive_sum read; /* of the file so far */
	uint64_t streamed; /* bytes given to libarchive so far, after gzip */
	uint64_t nonzero_end; /* end of the last byte among them that is not zero */
	bool in_header; /* libarchive reads the header of an entry */
	la_int64_t header_at; /* where that begins, in the tar */
	struct buf path; /* of the open directory */
	size_t depth; /* open directories, with the root */
	uint64_t entries, entries_max;
	uint64_t implied, implied_max; /* directories opened without an entry, also repeatedly */
	int error; /* of reading the file */
	struct error err;
};

/* -------- unpacker_file.c -------- */

/* Read the first piece, and see how the file is compressed. Errors are in u->err. */
int unpacker_read_first(struct unpacker *u);

/* Return the next piece for libarchive. Length 0: the end. Errors are in u->err. */
int unpacker_read_next(struct unpacker *u, const char **ret, size_t *ret_len);

/* For archive_read_open(): the next piece of an unpacker, which data is. */
la_ssize_t unpacker_read_block(struct archive *a, void *data, const void **ret);

/* Report that the archive is damaged. */
int unpacker_fail_damaged(const char *why, struct error *err);

/* Report why the file could not be read, or libarchive gave up. */
int unpacker_error(const struct unpacker *u, struct error *err);

/* -------- unpacker_entry.c -------- */

/* Refuse the archive because of the entry of that path. */
int unpacker_refuse_entry(const char *path, const char *why, struct error *err);

/* Return the name of the entry, borrowed; "?" if it cannot be converted. */
const char *unpacker_name_for_message(struct archive_entry *e);

/* Extract the entry, whose header was read. Returns 0 or a negative errno with the error set. */
int unpacker_extract_entry(struct unpacker *u, struct archive_entry *e, struct error *err);

/* Close all directories, after the last entry. */
int unpacker_close_folders(struct unpacker *u, struct error *err);

#endif
