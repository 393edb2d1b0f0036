/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Holes of files. NFSv3 and NFSv4.0 do not tell where they are, only that a file takes less room than
 * its size: blocks of zeros in such a file are taken for holes.
 */
#ifndef TREE_SEGMENTS_H
#define TREE_SEGMENTS_H

#include "tree/entry.h"

struct tree_segments {
	struct tree_segment *items; /* ascending, not touching */
	size_t n, cap;
	uint64_t gap; /* holes shorter than this count as data; 0: nothing was added yet */
};

static inline bool tree_has_holes(const struct nfs_attr *attr)
{
	return attr->type == NFS_TYPE_FILE && attr->size > 0 && attr->used < attr->size;
}

/*
 * Notes what is not zero in a piece of a file; pieces come in ascending order. Very many segments
 * are joined over the shorter holes. 0 or -ENOMEM.
 */
int tree_segments_add(struct tree_segments *s, uint64_t offset, const char *data, size_t len);

void tree_segments_done(struct tree_segments *s);

/* Hands a piece of a file to the sink; skip: without its blocks of zeros. */
int tree_send(struct tree_sink *sink, const struct tree_piece *piece, bool skip, struct error *err);

#endif
