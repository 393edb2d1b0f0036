/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Sparse files. NFSv3 and NFSv4.0 do not report holes, only that a file uses less space than its
 * size. In such a file, blocks of zeros are taken for holes.
 */
#ifndef TREE_SPARSE_H
#define TREE_SPARSE_H

#include "tree/entry.h"

struct tree_segments {
	struct tree_segment *items; /* ascending, with holes between them */
	size_t n, cap;
	uint64_t gap; /* shorter holes count as data; 0: nothing was added yet */
};

static inline bool tree_has_holes(const struct nfs_attr *attr)
{
	return attr->type == NFS_TYPE_FILE && attr->size > 0 && attr->used < attr->size;
}

/*
 * Add a range of data behind those that were added. If there are too many, those with the shortest
 * holes between them are merged. Returns 0 or -ENOMEM.
 */
int tree_segments_append(struct tree_segments *s, uint64_t offset, uint64_t len);

/*
 * Add the data ranges of a piece of the file. Pieces come in ascending order. If there are too many
 * segments, those with the shortest holes between them are merged. Returns 0 or -ENOMEM.
 */
int tree_segments_add(struct tree_segments *s, uint64_t offset, const char *data, size_t len);

void tree_segments_done(struct tree_segments *s);

/* Pass a piece of a file to the sink; skip_zeros: without its blocks of zeros. */
int tree_sparse_send(struct tree_sink *sink, const struct tree_piece *piece, bool skip_zeros,
		     struct error *err);

#endif
