/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Follows the frames of a zstd file (RFC 8878) without decompressing them: a frame says how much
 * memory it takes to decompress it, and a block how much it can become. Any piece of the file may
 * end anywhere.
 */
#ifndef TREE_ZSTD_FRAMES_H
#define TREE_ZSTD_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * RFC 8878 asks every decompressor to support this window, and zstd exceeds it only with --ultra or
 * --long. Three restores at a time have room for it in the memory that the manifests allow.
 */
#define TREE_ZSTD_WINDOW_MIB_MAX 8

#define TREE_ZSTD_HEAD_MAX 13 /* bytes: window, dictionary and content size */

enum tree_zstd_part {
	TREE_ZSTD_MAGIC,
	TREE_ZSTD_DESCRIPTOR,
	TREE_ZSTD_HEADER, /* the rest of it */
	TREE_ZSTD_BLOCK, /* its header */
	TREE_ZSTD_SKIPPABLE, /* the size of a skippable frame */
	TREE_ZSTD_UNKNOWN, /* no zstd */
};

/* All zeros is the beginning of a file. */
struct tree_zstd_frames {
	enum tree_zstd_part part; /* the next one to be understood */
	uint64_t skip; /* bytes in front of it */
	unsigned char head[TREE_ZSTD_HEAD_MAX]; /* of it so far */
	size_t n_head;
	unsigned char descriptor; /* of the frame */
};

/* Return whether data begins like zstd. */
bool tree_zstd_matches(const char *data, size_t len);

/*
 * Return how much of data may be decompressed in *ret: a part of at least one byte that becomes
 * some 100 KiB at most. Go on with the rest. Returns 0; -EFBIG if a frame has too large a window;
 * or -EBADMSG if data is no zstd.
 */
int tree_zstd_next(struct tree_zstd_frames *z, const char *data, size_t len, size_t *ret);

#endif
