/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Files of a tree that is being made which may get further names: by path, with the handle as soon as
 * there is one, so that a link needs no walk and waits for nothing else. Those that were used longest ago
 * are forgotten where they take too much; a link to one of them walks. On the builder's thread.
 */
#ifndef TREE_BUILDER_TARGET_H
#define TREE_BUILDER_TARGET_H

#include "base/list.h"
#include "nfs/op.h"

#define BUILDER_TARGET_BYTES (4U * 1024 * 1024) /* of all */
#define BUILDER_TARGET_BUCKETS 4096

struct builder_target {
	struct list age; /* the one used last is last */
	struct builder_target *next_in_bucket; /* NULL also for one that was forgotten */
	struct list waiting; /* nodes that are to be links to it */
	struct nfs_handle handle; /* len 0: it is not made yet */
	unsigned int users; /* nodes: the file itself, and links */
	bool forgotten; /* freed by its last user */
	char path[];
};

struct builder_targets {
	struct list age;
	size_t bytes;
	struct builder_target *buckets[BUILDER_TARGET_BUCKETS];
};

void builder_targets_init(struct builder_targets *targets);

/* Nodes are gone. */
void builder_targets_done(struct builder_targets *targets);

/* NULL: there is none. */
struct builder_target *builder_target_find(struct builder_targets *targets, const char *path);

/* In place of the one at path, if there is one. With one user. NULL: no memory. */
struct builder_target *builder_target_add(struct builder_targets *targets, const char *path);

/* Something else comes to be at path. */
void builder_target_forget(struct builder_targets *targets, const char *path);

void builder_target_use(struct builder_target *target);
void builder_target_release(struct builder_target *target); /* accepts NULL */

#endif
