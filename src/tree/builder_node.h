/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Internals of tree/builder.h: a node for each entry that is being created, and a chunk for each
 * piece of data that is being written. Replies move a node from state to state; builder_node_next()
 * returns nodes that have an operation to start.
 *
 * State    Operation             Next state
 * CREATE   MKDIR, CREATE, ...    FILL; as after SETATTR for a small file with data and attributes;
 *                                LOOKUP if the reply has no handle; GETATTR if it is the root
 *                                and the reply has no owner; EXISTS if the name is taken (LOOKUP
 *                                for a directory that is known to be of this build)
 * XATTRS   SETXATTR              XATTRS for the next one; FILL; ROOM after ENOSPC
 * ROOM     FSSTAT                XATTRS for the same one again, or the next one; FILL
 * EXISTS   (calls in builder.c)  CREATE after the old entry was removed; LOOKUP to merge
 *                                directories; LINKED
 * LOOKUP   LOOKUP                FILL; GETATTR if the reply has no attributes
 * GETATTR  GETATTR               FILL
 * FILL     WRITE, by chunk       once ended and nothing is pending: COMMIT if data is not on the
 *                                disk, else VERIFY or SETATTR
 * COMMIT   COMMIT                COMMIT for the next part; VERIFY or SETATTR
 * VERIFY   READ                  VERIFY for the next part; SETATTR
 * SETATTR  SETATTR               OWNER if the owner that was set is not proved; else CHMOD if the
 *                                mode is not as wanted; else finished
 * OWNER    GETATTR               CHMOD if the mode is not as wanted; else finished
 * CHMOD    SETATTR               finished
 * LINK     LINK                  LINKED; EXISTS if the name is taken
 * LINKED   none                  finished, once ended
 *
 * Entries with extended attributes pass XATTRS before FILL: the owner can still write to them then,
 * whatever mode they get.
 *
 * Entries begin in CREATE, additional names of a file in LINK. A small file without extended
 * attributes enters CREATE only when it has ended, if its data came in one chunk and one call can
 * create and write it. Any other error ends the build, see builder_fail(). Children and data wait
 * for FILL. A node is freed when it is finished.
 */
#ifndef TREE_BUILDER_NODE_H
#define TREE_BUILDER_NODE_H

#include "base/list.h"
#include "tree/builder.h"
#include "tree/builder_target.h"

#define BUILDER_SET_UID 04000
#define BUILDER_SET_GID 02000

#define BUILDER_COPIES_MAX 4 /* COPY in flight per file: each occupies a thread of the server */

#define BUILDER_CREATES 4 /* in flight per directory, while there is other work */

#define BUILDER_BUCKETS 2048 /* for about a thousand nodes at a time */

enum builder_node_state {
	BUILD_CREATE,
	BUILD_EXISTS,
	BUILD_LOOKUP,
	BUILD_GETATTR,
	BUILD_XATTRS,
	BUILD_ROOM, /* whether the file system is full, or an attribute too large */
	BUILD_FILL,
	BUILD_COMMIT,
	BUILD_VERIFY, /* before SETATTR, because reading changes the access time */
	BUILD_SETATTR,
	BUILD_OWNER,
	BUILD_CHMOD, /* some servers clear setuid and setgid when the owner is set */
	BUILD_LINK,
	BUILD_LINKED,
};

struct builder_node {
	struct list link; /* in builder.ready, or creates or waiting of the parent or the target */
	struct list all;
	struct builder_node *next_in_bucket;
	struct tree_builder *builder;
	struct builder_node *parent; /* NULL: the root */
	enum builder_node_state state;
	bool busy; /* op is in flight */
	bool ended; /* by the sink's end() */
	bool no_attr; /* came without attributes: the entry on the server keeps its own */
	bool existed; /* the name was taken */
	bool known; /* a directory of this path came before */
	bool is_link; /* an additional name of target */
	bool deferred; /* created once it has ended, with data and attributes in one call */
	bool clamped; /* its time is out of range for the server, and counted as such */
	bool unstable; /* has data that is not yet on the disk */
	bool has_verifier;
	bool has_holes;
	bool had_room; /* there was room for the attribute before it was sent */
	int lost; /* why the server cannot continue: -ERESTART, make the file again; -ESTALE */
	char verifier[8]; /* of the first unstable WRITE */
	uint64_t size; /* end of the data so far */
	uint64_t written; /* bytes written, or copied piece by piece */
	uint64_t committed; /* offset of the next COMMIT */
	uint64_t verified; /* offset of the part in reread */
	uint64_t sum, sum_reread; /* checksums of the data taken, and of the data read back */
	char *reread; /* part of the file that is read back, of VERIFY_BYTES */
	uint32_t n_reread; /* bytes in it */
	char copies[BUILDER_COPIES_MAX][NFS_COPY_ID_BYTES]; /* asynchronous; may still run */
	unsigned int n_copies; /* one, or after an error one for each COPY that was in flight */
	size_t pending; /* unfinished children or chunks */
	struct list waiting; /* children, until the handle is known */
	struct list creates; /* children to be created or linked */
	unsigned int creating; /* children whose CREATE or LINK is in flight */
	struct list turn; /* in builder.turns or crowded while creates is not empty */
	struct list chunks; /* to be written */
	struct nfs_op op;
	struct nfs_handle handle; /* len 0 before FILL */
	struct nfs_handle source; /* of data that the server copies; the reader's goes earlier */
	struct nfs_handle found; /* handle of the new entry before FILL */
	struct nfs_attr attr; /* wanted */
	struct nfs_attr made; /* as created; what the server reported */
	char *text; /* of a symbolic link */
	struct tree_xattrs *xattrs; /* to be set; NULL: none, or done */
	size_t xattrs_set; /* items that are done with */
	uint64_t xattrs_lost; /* of them, or all; counted in the progress */
	struct builder_target *target; /* itself, for later links; or what it links to; or NULL */
	char name[];
};

/* A range of a file that is to be written, or copied by the server. */
struct builder_chunk {
	struct list link;
	struct builder_node *node;
	struct nfs_op op;
	uint64_t offset;
	size_t len;
	char *data; /* in the block */
	struct tree_block *block; /* NULL: the server copies */
};

struct tree_builder {
	struct tree_sink sink;
	struct tree_work *work;
	const struct nfs_handle *parent;
	const struct tree_builder_options *options;
	struct builder_node *current; /* begun last and not ended */
	struct list ready; /* nodes with an operation to start, but for creates and links */
	struct list turns; /* directories with nodes in creates, and few in flight */
	struct list crowded; /* directories with nodes in creates, and BUILDER_CREATES in flight */
	struct list all;
	size_t n_closing; /* nodes that are ended and not finished */
	struct builder_node *buckets[BUILDER_BUCKETS]; /* all nodes by parent and name */
	uint64_t data; /* bytes taken so far */
	unsigned int clones_refused, copies_refused; /* in a row */
	struct nfs_handle root;
	bool finished; /* the root is finished */
	bool owners; /* we are root on the server and set owners */
	bool owners_kept; /* a reply has shown that the server does so */
	struct nfs_attr me; /* owner of the new root: who we are to the server */
	struct builder_targets targets;
	uint64_t *known; /* hashes of directories' paths, KNOWN_MAX; NULL: none are remembered */
	int error; /* the first one; nothing is started after it */
	struct error err;
};

/* Record the first error. Nothing is started after it. */
void builder_fail(struct tree_builder *b, int r, const char *verb, const char *name);

/* Likewise, for a write verifier that has changed. Returns the error of the build. */
int builder_fail_lost(struct builder_node *node);

/* Create a node below builder.current. NULL: no memory. */
struct builder_node *builder_node_new(struct tree_builder *b, const struct tree_entry *entry);

/* Return the node of that name below builder.current, or NULL. */
struct builder_node *builder_node_find(struct tree_builder *b, const char *name);
void builder_node_free(struct builder_node *node);

/* Drop the extended attributes, and give back their memory. */
void builder_node_drop_xattrs(struct builder_node *node);

/* Count extended attributes that the target does not take. */
void builder_node_lose_xattrs(struct builder_node *node, uint64_t n, int error);

/* Queue a directory by what is to be created in it, and in flight. */
void builder_folder_queue(struct builder_node *folder);

/* Queue the node for the operation of its state. */
void builder_node_ready(struct builder_node *node);

/* Queue a new node, or let it wait for the handle of its parent. */
void builder_node_queue(struct builder_node *node);

/* Stop deferring the node: create it now, before its data is complete. */
void builder_node_split(struct builder_node *node);

/*
 * Return the node to start next, or NULL. Directories with entries to create take turns: a server
 * creates one entry at a time in a directory, and if each must be on the disk before the reply
 * (knfsd's "sync"), one write to the journal serves all creates that wait for it. Likewise a
 * directory with BUILDER_CREATES in flight waits, unless crowd: more of them would only keep the
 * server's threads from the directories that follow.
 */
struct builder_node *builder_node_next(struct tree_builder *b, bool crowd);

/* Enter the state, and queue the node for its operation. */
void builder_node_enter_state(struct builder_node *node, enum builder_node_state state);

/* Enter FILL with the handle that was found. Returns 0 or a negative errno. */
int builder_node_enter_fill(struct builder_node *node);

/* Leave FILL if nothing more is to be done in the node. */
void builder_node_settle(struct builder_node *node);

/* Nothing is left to write or commit: enter VERIFY or SETATTR. */
void builder_node_leave_data_states(struct builder_node *node);

/* Free a complete node; its parent may have waited for it. */
void builder_node_finish(struct builder_node *node);

/* Enter LINKED, and finish the node if it has ended. */
void builder_node_linked(struct builder_node *node);

/* -------- builder_step.c -------- */

/* Start the operation of the node's state, and count it. Returns 0 or a negative errno. */
int builder_node_start(struct builder_node *node);

/* -------- builder.c -------- */

/* Start what can be started, and wait for a reply. Returns 0 or a negative errno with err set. */
int builder_wait(struct tree_builder *b, struct error *err);

/* Set err to the error of the build and return it. */
int builder_error(const struct tree_builder *b, struct error *err);

/* -------- builder_offload.c -------- */

/* The copy() of the builder's sink: CLONE, else COPY. */
int builder_copy(struct tree_sink *sink, const struct tree_entry *entry,
		 const struct nfs_handle *from, struct error *err);

/*
 * Run node->op and nothing else of the node. Returns 0 with the operation's error in *ret, or a
 * negative errno with err set.
 */
int builder_offload_run(struct builder_node *node, int *ret, struct error *err);

/* Whether the server refused a CLONE or COPY, so that the file is read and written. */
bool builder_offload_is_refused(int error);

/* Fail the build because of the node's copy; returns its error. */
int builder_offload_fail(struct builder_node *node, int r, struct error *err);

/* -------- builder_async.c -------- */

/* Remember the asynchronous copy that op has started. */
void builder_async_note(struct builder_node *node, const struct nfs_op *op);

/* Ask the server to cancel the node's asynchronous copies. Blocks; ignores refusals. */
void builder_async_cancel(struct builder_node *node);

/*
 * Wait for the node's only asynchronous copy, of len bytes. Returns 0 and the bytes copied; without
 * err set, the error of the copy, or -ERESTART if the file has to be made again; or another
 * negative errno with err set.
 */
int builder_async_wait(struct builder_node *node, uint64_t len, uint64_t *ret_len,
		       struct error *err);

/* -------- builder_owner.c -------- */

/* Derive our identity on the server from the new root. Fails if the copy could not keep owners. */
int builder_owner_learn(struct tree_builder *b, const struct nfs_attr *made);

/* Return the wanted mode, without setuid and setgid bits if the owner is not kept. */
uint32_t builder_owner_mode(const struct builder_node *node);

/* Return whether the server created the node with the wanted owner. */
bool builder_owner_is_set(const struct builder_node *node);

/* Add the owner to change if it must be set. Fails, with builder.err set, if it cannot be. */
int builder_owner_put(const struct builder_node *node, struct nfs_change *change);

/* Compare the attributes in the node's reply with the change. Returns 0 or -NFS_EOWNER. */
int builder_owner_check(const struct builder_node *node, const struct nfs_change *change);

/* Return whether the reply does not show which owner was set, and a GETATTR must find out. */
bool builder_owner_is_unproved(const struct builder_node *node, const struct nfs_change *change);

/* -------- builder_chunk.c -------- */

/* Return the memory that a chunk of len bytes takes. */
size_t builder_chunk_size(size_t len);

/*
 * Queue len bytes at offset at of a piece for writing. Takes over the memory that the caller took
 * from the purse, and gives it back in any case, at the latest when the chunk is freed. Returns 0
 * or -ENOMEM.
 */
int builder_chunk_add(struct builder_node *node, const struct tree_piece *piece, size_t at,
		      size_t len);

/* Queue a range that the server copies from the file; from is borrowed. Returns 0 or -ENOMEM. */
int builder_chunk_add_copy(struct builder_node *node, const struct nfs_handle *from,
			   uint64_t offset, size_t len);

/* Account for data on the server: remember that it needs a COMMIT, and with which verifier. */
int builder_chunk_check_verifier(struct builder_node *node, const struct nfs_op *op);

/* Start to write the first chunk of the node. Returns 0 or a negative errno. */
int builder_chunk_start(struct builder_node *node);
void builder_chunk_free(struct builder_chunk *chunk);

#endif
