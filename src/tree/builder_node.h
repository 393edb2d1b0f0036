/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One entry of a tree that is being made, and the data that is written to it: what tree/builder.h consists
 * of, and of no use elsewhere. Replies move an entry on from one state to the next; builder.ready holds those
 * that have something to start.
 */
#ifndef TREE_BUILDER_NODE_H
#define TREE_BUILDER_NODE_H

#include "base/list.h"
#include "tree/builder.h"
#include "tree/builder_target.h"

#define BUILDER_SET_UID 04000
#define BUILDER_SET_GID 02000

#define BUILDER_BUCKETS 2048 /* of the nodes, which are a thousand or so at a time */

enum builder_node_state {
	NODE_MAKE,
	NODE_THERE, /* something is: the builder sees to it, not in a reply */
	NODE_FIND, /* its handle is not known */
	NODE_LOOK, /* what it is, or whose: attributes are optional in version 3 replies */
	NODE_FILL, /* open for children and data */
	NODE_COMMIT,
	NODE_VERIFY,
	NODE_ATTRIBUTES,
	NODE_MODE, /* after the owner, which takes setuid away on some servers */
	NODE_LINK, /* another name of something is to be made */
	NODE_DONE, /* and was */
};

struct builder_node {
	struct list link; /* in builder.ready, in parent->makes, or in parent->waiting */
	struct list all;
	struct builder_node *next_in_bucket;
	struct tree_builder *builder;
	struct builder_node *parent;
	enum builder_node_state state;
	bool busy; /* op is in flight */
	bool ended;
	bool plain; /* without attributes of its own: keeps what it has */
	bool was_there; /* before it was begun */
	bool is_link; /* another name of target */
	bool clamped; /* has a time that the server cannot be told */
	bool unstable; /* has data that is not yet on the disk */
	bool has_verifier;
	bool has_holes;
	char verifier[8];
	uint64_t size; /* of a file, as far as data has come */
	uint64_t committed; /* bytes before what is being committed */
	uint64_t verified; /* bytes before that piece */
	uint64_t sum, sum_again; /* checksums of what came, and of what was read again */
	char *again; /* a piece of VERIFY_BYTES that is read again */
	uint32_t n_again; /* bytes of it that have come */
	size_t pending; /* children or chunks that are not finished */
	struct list waiting; /* children, until the handle is known */
	struct list makes; /* children that are to be made */
	struct list turn; /* in builder.turns, while there are such */
	struct list chunks; /* to be written */
	struct nfs_op op;
	struct nfs_handle handle; /* len 0: it cannot be used yet */
	struct nfs_handle found; /* until it can */
	struct nfs_attr attr; /* wanted */
	struct nfs_attr made; /* as the server made it, as far as it said */
	char *text; /* of a symbolic link */
	struct builder_target *target; /* what it is to links, or a link to; NULL: neither */
	char name[];
};

struct builder_chunk {
	struct list link;
	struct builder_node *node;
	struct nfs_op op;
	uint64_t offset;
	size_t len;
	char *data; /* in the block */
	struct tree_block *block;
};

struct tree_builder {
	struct tree_sink sink;
	struct tree_work *work;
	const struct nfs_handle *parent;
	const struct tree_builder_options *options;
	struct builder_node *current; /* begun last, and not ended */
	struct list ready; /* nodes with something to start, that are made already */
	struct list turns; /* directories with something to be made in them */
	struct list all;
	size_t n_closing; /* nodes that have been ended and are not finished */
	struct builder_node *buckets[BUILDER_BUCKETS]; /* of all, by parent and name */
	size_t bytes; /* of chunks */
	uint64_t data; /* bytes taken */
	struct nfs_handle root;
	bool finished; /* the root is */
	bool owners; /* we are root on the server */
	struct nfs_attr me; /* whom the server takes us for: the owner of the root */
	struct builder_targets targets;
	int error; /* the first one; nothing is started after it */
	struct error err;
};

/* The first error is the one that is told; nothing is started after it. */
void builder_fail(struct tree_builder *b, int r, const char *verb, const char *name);

/* Below builder.current; NULL: no memory. */
struct builder_node *builder_node_new(struct tree_builder *b, const struct tree_entry *entry);

/* The one of that name below builder.current; NULL: there is none. */
struct builder_node *builder_node_find(struct tree_builder *b, const char *name);
void builder_node_free(struct builder_node *node);

void builder_node_ready(struct builder_node *node);

/*
 * The one to be started next, NULL where there is none. The directories that something is made in take
 * turns: in one directory a server makes one entry at a time, and where it has to be on the disk before the
 * answer (knfsd's "sync"), a write to the journal serves all that are made meanwhile.
 */
struct builder_node *builder_node_next(struct tree_builder *b);

/* Decides what comes next for a node that nothing is left to be done in. */
void builder_node_settle(struct builder_node *node);

/* It is complete: its parent may have waited for that. */
void builder_node_finish(struct builder_node *node);

/* Starts the next operation. A negative errno where that cannot be. */
int builder_node_start(struct builder_node *node);

/* The link that it is has been made. */
void builder_node_linked(struct builder_node *node);

/* The root tells who we are on the server. Fails where that takes away what a copy has to keep. */
int builder_owner_look(struct tree_builder *b, const struct nfs_attr *made);

/* The mode that a node may have: without set-id bits, where its owner is not kept. */
uint32_t builder_owner_mode(const struct builder_node *node);

/* Whether it was made with its owner. */
bool builder_owner_is_set(const struct builder_node *node);

/* Puts the owner into change where it has to be set. Fails, reported, where it cannot be. */
int builder_owner_put(const struct builder_node *node, struct nfs_change *change);

/* Whether the server did what change says: 0 or -NFS_EOWNER. */
int builder_owner_check(const struct builder_node *node);

/* Data to be written: a part of a piece. -ENOMEM, or 0. */
int builder_chunk_add(struct builder_node *node, const struct tree_piece *piece, size_t at,
		      size_t len);
int builder_chunk_start(struct builder_node *node);
void builder_chunk_free(struct builder_chunk *chunk);

#endif
