/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Targets of hard links in a tree that is being built: files by path, each with its handle once it
 * is finished, so that a link needs no walk and waits for nothing else. The least recently used are
 * forgotten when memory is short; a link to one of those needs a walk. On the builder's thread.
 */
#ifndef TREE_BUILDER_TARGET_H
#define TREE_BUILDER_TARGET_H

#include "base/list.h"
#include "nfs/op.h"

#define BUILDER_TARGET_BYTES (4U * 1024 * 1024) /* of all targets, if the builder waits for room */
#define BUILDER_TARGET_BUCKETS 4096

struct builder_target {
	struct list age;
	struct builder_target *next_in_bucket;
	struct list waiting; /* nodes to be linked to it */
	struct nfs_handle handle; /* len 0: not finished yet */
	unsigned int users; /* nodes: the file itself and links */
	bool forgotten; /* not in the buckets; freed by its last user */
	char path[];
};

struct builder_targets {
	struct list age; /* least recently used first */
	size_t bytes; /* also of forgotten ones that have users */
	struct builder_target *buckets[BUILDER_TARGET_BUCKETS];
};

void builder_targets_init(struct builder_targets *targets);

/* Free the targets. All users must be gone. */
void builder_targets_done(struct builder_targets *targets);

/* Return the target at path, or NULL. */
struct builder_target *builder_target_find(struct builder_targets *targets, const char *path);

/*
 * Forget targets until one at path fits into BUILDER_TARGET_BYTES. Returns false if those with
 * users take up too much: wait until nodes are finished.
 */
bool builder_targets_make_room(struct builder_targets *targets, const char *path);

/*
 * Add a target with one user in place of the one at path, if any, after
 * builder_targets_make_room(). NULL: no memory.
 */
struct builder_target *builder_target_add(struct builder_targets *targets, const char *path);

/* Forget the target at path, because something else takes its place. */
void builder_target_forget(struct builder_targets *targets, const char *path);

void builder_target_use(struct builder_target *target);

/* Accepts NULL. */
void builder_target_release(struct builder_targets *targets, struct builder_target *target);

#endif
