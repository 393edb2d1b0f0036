/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Internals of tree/remove.h: a node for each directory that is being emptied, and a call for each
 * operation in flight. On the client's thread.
 *
 * Memory is bounded for any tree. A directory at a depth of TREE_LEVELS is moved up into the root
 * of the tree before it is entered, so few levels are open at a time. Beyond TREE_NODES_MAX nodes,
 * the rest of a directory's page is left for later.
 *
 * State    Operation            Next state
 * LOOKUP   LOOKUP in parent     as "enter" below; GETATTR if the type is unknown; UNLINK if it is
 *                               not a directory
 * GETATTR  GETATTR              as "enter"; UNLINK if not a directory; RMDIR if stale
 *  enter                        GETATTR if the file system is unknown; finished, and stays, on
 *                               another one or at a mount point; LIFT every TREE_LEVELS levels;
 *                               else READ
 * LIFT     RENAME into root     READ, also if refused; CHMOD if its own mode may be in the way
 * READ     READDIR              EMPTY; CHMOD if not permitted; RMDIR if gone or to be read from the
 *                               start
 * EMPTY    REMOVE in batches,   once all is finished: RMDIR at the end of the directory; else READ;
 *          children             finished, and stays, at the end after a failure; CHMOD if an
 *                               entry may not be removed
 * CHMOD    SETATTR mode 0700    EMPTY if entries are unfinished, else node->after_chmod
 * RMDIR    RMDIR in parent      finished; READ from the start if it is not empty
 * UNLINK   REMOVE in parent     finished
 *
 * Names found by READDIR begin in LOOKUP, or in "enter" if the reply has all that is needed. A node
 * is also finished if its name is gone or an operation fails. Finished nodes are freed. STALE
 * counts as gone, since another purge may be at work, but sends the root back to LOOKUP a few
 * times.
 */
#ifndef TREE_REMOVE_NODE_H
#define TREE_REMOVE_NODE_H

#include "base/list.h"
#include "nfs/cookies.h"
#include "tree/remove.h"

#define TREE_LEVELS 64 /* between two attempts to move a directory up */
#define TREE_LEVELS_LAST 16384 /* depth limit if the server refuses that */
#define TREE_NODES_MAX 4096
#define REMOVE_STALE_TRIES_MAX 5 /* operations on the root's name that fail with STALE */

enum remove_state {
	REMOVE_LOOKUP,
	REMOVE_GETATTR,
	REMOVE_CHMOD,
	REMOVE_LIFT,
	REMOVE_READ,
	REMOVE_EMPTY,
	REMOVE_RMDIR,
	REMOVE_UNLINK,
};

struct remove_node {
	struct list all;
	struct list queue; /* in remover.ready, held or waiting */
	struct remove_node *parent; /* NULL: the root of the tree */
	const struct remove_node *held_by; /* held until that node has its new mode */
	enum remove_state state, after_chmod;
	unsigned int depth;
	struct nfs_handle handle;
	uint64_t listed; /* its file id in READDIR; 0: not known */
	uint64_t cookie; /* of the next page */
	struct nfs_cookies cookies; /* since the listing began */
	char verifier[8];
	uint64_t checked_ns; /* when it was last seen under its name */
	uint64_t path_checked_ns; /* the earliest such time of it and those above */
	unsigned int path_epoch; /* remover.epoch when that was found; any other voids it */
	struct list names; /* struct remove_name: entries of the page, to be removed */
	size_t outstanding; /* unfinished entries and children */
	size_t removed; /* entries and children removed since the last READDIR */
	unsigned int idle_passes; /* consecutive listings of which nothing was removed */
	unsigned int rmdir_tries, lift_tries, stale_tries;
	int read_error; /* of the last READDIR; RMDIR shows whether it matters */
	bool eof;
	bool active; /* the operation of its state is in flight */
	bool checking; /* a lookup of its name is in flight, see remove_node_check() */
	bool over; /* finished, except that checking is set */
	bool lost; /* it is no longer under its name */
	bool seen_entry, seen_directory; /* in the page */
	bool is_cut; /* the rest of the page must be read again */
	bool chmod_tried;
	bool chmod_done; /* whatever the reply: a later refusal is final */
	bool failed;
	char *name;
};

/* An entry that is not a directory. */
struct remove_name {
	struct list link;
	char name[];
};

/* An operation in flight. */
struct remove_call {
	struct nfs_op op;
	struct remove_node *node;
	bool opened; /* the directory of the names had its new mode when the call was started */
	bool root_opened; /* so had the root */
	struct list names; /* of a batch: one, or several with version 4 */
	const char *texts[NFS_REMOVE_MAX];
	char *to_name; /* LIFT */
	uint64_t started_ns; /* of a lookup by remove_node_check() */
};

struct remover {
	struct tree_work work; /* from and to are the client; all operations count as writing */
	const struct nfs_handle *dir; /* holds the root */
	const char *name; /* of the root */
	const struct nfs_handle *known; /* the root has to be this directory; NULL: any */
	bool replaced; /* the root's name has another directory by now */
	struct nfs_attr fs; /* attributes of dir: other file systems stay */
	struct tree_stats *stats;
	struct remove_node *root;
	struct list all; /* every node */
	struct list ready; /* last in, first out: depth before breadth bounds the memory */
	struct list held; /* nodes that wait for the new mode of another node */
	struct list waiting; /* nodes that wait for lookups by remove_node_check() */
	size_t n_nodes;
	uint64_t slowest_check_ns, slowest_at_ns; /* the slowest recent check, and its reply */
	unsigned int epoch; /* never 0; changes when a node is lost, or is to be checked at once */
	bool finished; /* the root is */
	uint64_t borders; /* mount points */
	char border[256]; /* path of the first of them */
	int error; /* the first one */
	struct error *err;
};

/* Record what could not be removed. The first error is returned by tree_remove(). */
void remover_fail(struct remover *rm, int r, const char *verb, const char *name);

/* -------- remove_node.c -------- */

/* Create a child of parent, or the root, in LOOKUP. NULL: no memory. */
struct remove_node *remove_node_new(struct remover *rm, struct remove_node *parent,
				    const char *name);
void remove_node_free(struct remover *rm, struct remove_node *node);

/* Return the handle of the directory that holds the node. */
const struct nfs_handle *remove_node_dir(const struct remover *rm, const struct remove_node *node);

/* Queue the node, to be started next. */
void remove_node_ready(struct remover *rm, struct remove_node *node);

/* Queue the node, but start it only when dir has its new mode. */
void remove_node_hold(struct remover *rm, struct remove_node *node, const struct remove_node *dir);

/* Queue the nodes that are held by dir. */
void remove_node_release(struct remover *rm, const struct remove_node *dir);

/* Read the directory from its first page next time. */
void remove_node_rewind(struct remove_node *node);

/* Add an entry to be removed. Returns 0 or -ENOMEM. */
int remove_node_add_name(struct remove_node *node, const char *text);
void remove_name_free(struct remove_name *name);
void remove_node_drop_names(struct remove_node *node);

/* Write the path of a node from the root of the tree; the end of it, if it is too long. */
void remove_node_path(const struct remove_node *node, char *ret, size_t size);

/* Finish a node that is removed or has to stay, and the nodes above that waited only for it. */
void remove_node_finish(struct remover *rm, struct remove_node *node);

/* Decide what comes next for a node in EMPTY if nothing in it is unfinished. */
void remove_node_settle(struct remover *rm, struct remove_node *node);

/* Create a call. NULL: no memory. */
struct remove_call *remove_call_new(struct remover *rm, struct remove_node *node,
				    void (*done)(struct nfs_op *op));
void remove_call_free(struct remove_call *call);

/* Start the call, or free it and return a negative errno. */
int remove_call_start(struct remover *rm, struct remove_call *call);

/* -------- remove_check.c -------- */

/*
 * Returns 1 if the node and all above it were under their names a moment ago; 0 if the node waits
 * for lookups of those names, or was given up and perhaps freed, because somebody has moved it or a
 * node above it out of the tree; or a negative errno.
 */
int remove_node_check(struct remover *rm, struct remove_node *node);

/* -------- remove_op.c -------- */

/* Start the operation of the node's state. Errors are of the connection or of memory, and final. */
int remove_node_start(struct remover *rm, struct remove_node *node);

#endif
