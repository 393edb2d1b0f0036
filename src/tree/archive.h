/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Archives of trees on an export: pax tar made and read by libarchive, optionally compressed. Names
 * are relative to the root, which is ".". Owners, modes, times to the nanosecond, hard links,
 * FIFOs, devices and holes are kept; tar has no sockets, so they are left out.
 *
 * libarchive converts names by the thread's locale. tree_pack() switches its thread to UTF-8.
 * tree_unpack() needs the locale that processes start with, which leaves names alone: with UTF-8
 * they would be normalized.
 */
#ifndef TREE_ARCHIVE_H
#define TREE_ARCHIVE_H

#include "tree/entry.h"
#include "tree/work.h"

/*
 * Load libarchive now instead of in tree_pack() or tree_unpack(), to find out early whether it is
 * missing: FAILED_PRECONDITION. A later call tries again.
 */
int tree_archive_prepare(struct error *err);

enum tree_compression { TREE_COMPRESSION_NONE, TREE_COMPRESSION_GZIP, TREE_COMPRESSION_ZSTD };

/* Parse "none", "gzip" or "zstd", in any case. Returns 0 or -EINVAL. */
int tree_compression_parse(const char *text, enum tree_compression *ret);

/* Return the suffix of such an archive's name: ".tar", ".tar.gz" or ".tar.zst". */
const char *tree_compression_suffix(enum tree_compression compression);

/* Limit of tree_pack(): tar repeats the whole path before each entry. */
#define TREE_ARCHIVE_DEPTH_MAX 1024

/*
 * Identifies the bytes of an archive file, as stored: the compressed ones. The length shows
 * truncation. CRC-32 detects every run of up to 32 wrong bits, and misses one in 4 billion of other
 * changes. Detects accidents, not malice. zlib's crc32() does 2 GB/s, three times as much as
 * str_hash().
 */
struct tree_archive_sum {
	uint64_t bytes;
	uint32_t crc32;
};

/*
 * Archive the tree at the handle into a new file in a new directory named folder in parent. Returns
 * 0 and the sum of the file, or a negative errno with the error set; then parts of the archive may
 * be left behind. -ERESTART: an entry changed after it was written to the archive, and a new
 * attempt may work.
 */
int tree_pack(struct tree_work *work, const struct nfs_handle *tree, const struct nfs_attr *attr,
	      const struct nfs_handle *parent, const char *folder, const char *file,
	      enum tree_compression compression, struct tree_archive_sum *ret_sum,
	      struct error *err);

/*
 * Extract the archive at the handle, of size bytes, as root in parent. sum is what tree_pack()
 * returned; NULL: unknown, as for archives of other tools. Then only damage that the format shows
 * is found: gzip has a checksum, and a tar ends with zeros.
 *
 * FAILED_PRECONDITION: names that lead out of the tree, without a sum more entries or data than an
 * archive of that size should hold, something that takes too much memory to read, or contents that
 * are compressed twice. DATA_LOSS: truncated or damaged. Otherwise as tree_pack().
 */
int tree_unpack(struct tree_work *work, const struct nfs_handle *archive, uint64_t size,
		const struct tree_archive_sum *sum, const struct nfs_handle *parent,
		const char *root, struct error *err);

/*
 * Read the archive at the handle, of size bytes, to its end, and check what tree_unpack() would of
 * the file itself, not whether the entries can be extracted. Errors as tree_unpack() without a sum.
 */
int tree_archive_check(struct tree_work *work, const struct nfs_handle *archive, uint64_t size,
		       struct error *err);

#endif
