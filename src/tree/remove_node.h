/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What tree/remove.h works with: a node for each directory that is being emptied, and a call for each
 * operation in flight. For the files of tree/remove*.c only. On the client's thread.
 *
 * Memory is bounded whatever the tree looks like. A directory that is TREE_LEVELS deep is moved up into the
 * root of the tree before it is entered, so that few levels are open at a time; and where there are
 * TREE_NODES_MAX nodes, the rest of a page of a directory is left for later.
 */
#ifndef TREE_REMOVE_NODE_H
#define TREE_REMOVE_NODE_H

#include "base/list.h"
#include "tree/remove.h"

#define TREE_LEVELS 64 /* between two tries to move a directory up */
#define TREE_LEVELS_LAST 16384 /* how deep it goes where the server refuses that */
#define TREE_NODES_MAX 4096

enum node_state {
	NODE_LOOKUP, /* its handle or type is not known */
	NODE_GETATTR, /* nor its file system */
	NODE_CHMOD, /* its mode kept us from reading it, or from removing what is in it */
	NODE_LIFT, /* it is to be moved up */
	NODE_READ,
	NODE_BUSY, /* entries are being removed */
	NODE_RMDIR,
	NODE_REMOVE, /* it turned out to be no directory */
};

/* A directory that is being emptied; what it holds is removed before itself. */
struct node {
	struct list all;
	struct list queue; /* in a list of the engine: ready, held or waiting */
	struct node *parent; /* NULL: the root of the tree */
	const struct node *held_by; /* whose new mode it waits for */
	enum node_state state, after_chmod;
	unsigned int depth;
	struct nfs_handle handle;
	uint64_t cookie; /* where reading goes on */
	char verifier[8];
	uint64_t checked_ns; /* when it was last seen under its name */
	struct list names; /* entries of the page that was read, to be removed */
	size_t outstanding; /* entries and subdirectories that are not finished */
	size_t removed; /* since the last reading */
	unsigned int idle_passes;
	unsigned int rmdir_tries, lift_tries;
	bool eof;
	bool active; /* an operation of its own is in flight */
	bool checking; /* and one that looks for it under its name */
	bool over; /* finished but for that */
	bool lost; /* it is no longer there */
	bool seen_entry, seen_directory; /* of the page */
	bool is_cut; /* the rest of the page has to be read again */
	bool chmod_tried;
	bool chmod_done; /* answered, well or not: who is refused from now on stays refused */
	bool failed;
	char *name;
};

/* An entry that is not a directory. */
struct name {
	struct list link;
	char name[];
};

/* An operation in flight. */
struct call {
	struct nfs_op op;
	struct node *node;
	bool opened; /* it was started when the directory that it is in had its new mode */
	bool root_opened; /* and the root had */
	struct list names; /* that it removes: one, or several over version 4 */
	const char *texts[NFS_REMOVE_MAX];
	char *to_name; /* of a directory that is moved up */
	uint64_t before; /* READDIR: the cookie that it began with */
	uint64_t started_ns; /* of a look for the node under its name */
};

struct engine {
	struct nfs_client *client;
	const struct nfs_handle *dir; /* of the root */
	const char *name; /* of the root */
	struct nfs_attr fs; /* of dir: what is on another file system stays */
	const atomic_bool *cancel;
	struct tree_stats *stats;
	struct node *root;
	struct list all; /* every node */
	struct list ready; /* last in, first out: depth before breadth bounds the memory */
	struct list held; /* nodes that wait for the new mode of another */
	struct list waiting; /* nodes that wait until others have been looked for */
	size_t n_nodes;
	size_t in_flight;
	uint64_t slowest_check_ns; /* that a look for a node took */
	unsigned int patience; /* how often the server asked to try later, and nothing else came */
	bool wait; /* the server asked to try later */
	bool moved; /* something else was answered */
	bool finished; /* the root is */
	int ending; /* -ECANCELED or -ETIME: nothing more is started */
	uint64_t borders; /* directories on other file systems */
	char border[256]; /* path of the first */
	int error; /* the first one */
	struct error *err;
};

/* A child of parent, or the root. Takes nothing. NULL without memory. */
struct node *node_new(struct engine *e, struct node *parent, const char *name);
void node_free(struct engine *e, struct node *node);

/* The directory that holds it. */
const struct nfs_handle *node_parent_handle(const struct engine *e, const struct node *node);

/* Puts it in front of all that can be started. */
void node_make_ready(struct engine *e, struct node *node);

/* To be tried again, but not before dir has its new mode. */
void node_hold(struct engine *e, struct node *node, const struct node *dir);

/* What waited for the new mode of dir goes on. */
void node_release(struct engine *e, const struct node *dir);

/* Entries that are to be removed from it. */
int node_add_name(struct node *node, const char *text);
void node_drop_name(struct name *name);
void node_drop_names(struct node *node);

/* Whether there is room for one more node. */
bool node_is_room(const struct engine *e);

/* The path of a node from the root of the tree on, its end where it is too long. */
void node_path(const struct node *node, char *ret, size_t size);

/* Notes what could not be removed; the first error is the one that is reported. */
void engine_fail(struct engine *e, int r, const char *verb, const char *name);

/* The node is gone, or has to stay. All above it that only waited for it is finished, too, or goes on. */
void node_finish(struct engine *e, struct node *node);

/* Decides what comes next for a node of which nothing may be left to start or to wait for. */
void node_settle(struct engine *e, struct node *node);

/*
 * Whether the node and all above it were still under their names a moment ago. Otherwise they are looked
 * for, and the node waits for that; or it is given up, and may be freed. Nothing that somebody has moved
 * out of the tree is touched from then on. Returns 1, 0 or a negative errno.
 */
int node_check(struct engine *e, struct node *node);

/* Starts what is next for the node. A failure is one of the connection, or of memory: nothing goes on. */
int node_start(struct engine *e, struct node *node);

/* The callback of READDIR. */
void node_entry_found(struct nfs_op *op, const struct nfs_entry *entry);

/* The callback of an operation that node_start() has started. */
void node_replied(struct nfs_op *op);

/* A call for the node, zeroed but for what every call has. NULL without memory. */
struct call *call_new(struct engine *e, struct node *node, void (*done)(struct nfs_op *op));
void call_free(struct call *call);

/* Starts it, or frees it. */
int call_start(struct engine *e, struct call *call);

/* In each callback, first: whether the operation is to be tried again after a while. */
bool call_is_back(struct engine *e, const struct nfs_op *op, bool did_something);

#endif
