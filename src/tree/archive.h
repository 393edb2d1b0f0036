/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Archives of trees on an export: pax tar by libarchive, as it is or compressed. Names are relative to
 * the root, which is ".". Owners, modes, times to the nanosecond, hard links, FIFOs, devices and holes
 * are kept; sockets have no place in tar and are left out. libarchive
 * converts names by the thread's locale: tree_pack() makes it UTF-8 meanwhile, tree_unpack() needs the one
 * that processes start with, in which names stay as they are; with UTF-8 they would be normalized.
 */
#ifndef TREE_ARCHIVE_H
#define TREE_ARCHIVE_H

#include "tree/entry.h"

enum tree_compression { TREE_COMPRESSION_NONE, TREE_COMPRESSION_GZIP, TREE_COMPRESSION_ZSTD };

/* "none", "gzip" or "zstd", in any case. Returns 0 or -EINVAL. */
int tree_compression_parse(const char *text, enum tree_compression *ret);

/* What a file of that kind ends with: ".tar", ".tar.gz" or ".tar.zst". */
const char *tree_compression_suffix(enum tree_compression compression);

/* Of what is archived: all of an entry's path stands before it. */
#define TREE_ARCHIVE_DEPTH_MAX 1024
#define TREE_ARCHIVE_PATH_MAX 16384

/*
 * Writes the tree at the handle into a new file of that name in a new directory named folder in
 * parent. Returns 0, or a negative errno with the error set; then something of it may be left. -ERESTART: what
 * has changed meanwhile cannot be taken out of it, and another attempt may do.
 */
int tree_pack(struct tree_work *work, const struct nfs_handle *tree, const struct nfs_attr *attr,
	      const struct nfs_handle *parent, const char *folder, const char *file,
	      enum tree_compression compression, struct error *err);

/*
 * Makes the tree that the archive at the handle (of size bytes) holds, as root in parent. What an
 * archive must not do is FAILED_PRECONDITION: names that lead out of the tree, more entries or data
 * than an archive of its size has; one that is cut or damaged is DATA_LOSS. Errors as tree_pack().
 */
int tree_unpack(struct tree_work *work, const struct nfs_handle *archive, uint64_t size,
		const struct nfs_handle *parent, const char *root, struct nfs_handle *ret_root,
		struct error *err);

#endif
