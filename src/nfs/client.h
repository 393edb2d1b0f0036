/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One connection to one export. Many operations may be in flight; they make progress while
 * somebody is inside nfs_client_run() or nfs_client_call(). After any failure of the transport the
 * client is broken: every operation in flight fails with -ECONNABORTED or -ETIMEDOUT, and it can
 * only be freed.
 *
 * A client belongs to one thread at a time (nfs/pool.h leases it). Nothing here blocks for longer
 * than its deadline. Of libnfs only the XDR of its protocols is used (net/rpc.h): its calls have
 * no deadline, or leave the stack exposed to late replies.
 */
#ifndef NFS_CLIENT_H
#define NFS_CLIENT_H

#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "nfs/export.h"
#include "nfs/op.h"

/*
 * A server that answers nothing for so long is treated as not answering; but one that is at work on a READ,
 * WRITE, COMMIT or REMOVE, or on a change of a file's size, is asked by a NULL call, and waited for as long
 * as it answers that.
 */
#define NFS_CALL_TIMEOUT_MS 10000

/*
 * No operation is waited for longer, whatever else the server answers; and where none is under way but
 * those that move a piece of data, not so long: a server that has lost such a call is not at work on it.
 */
#define NFS_OPERATION_MAX_MS 600000
#define NFS_DATA_MAX_MS 60000

/* Nothing more is begun for a connection after this. */
#define NFS_CONNECT_MAX_MS 15000

/* Operations in flight on one client, for those who pipeline, where nothing else is asked for. */
#define NFS_WINDOW 64
#define NFS_WINDOW_MAX 256

/* How many folders store/layout.h knows. */
#define NFS_FOLDERS 8

/* What to do where a server names owners. */
#define NFS_OWNER_HINT                                                                             \
	"have it number owners (nfs-ganesha: Only_Numeric_Owners = true; Linux: nfs4_disable_idmapping of nfsd), or use vers=3"

struct nfs_client;

/*
 * The seam for tests, and what the protocol versions implement. start() queues op, or fails
 * without having called done(). run() drives the operations in flight until one of them has
 * finished or the deadline has passed (-ETIMEDOUT).
 */
struct nfs_client_ops {
	int (*start)(struct nfs_client *c, struct nfs_op *op);
	int (*run)(struct nfs_client *c, uint64_t deadline_ns);
	void (*free)(struct nfs_client *c);
};

struct nfs_client {
	const struct nfs_client_ops *ops;
	struct nfs_export export; /* as asked for: version 0 stays 0 */
	unsigned int version; /* spoken */
	unsigned int window; /* see nfs_window() */
	uint32_t read_max; /* bytes that the server gives in one READ; 0: not known */
	uint32_t write_max; /* and takes in one WRITE */
	struct nfs_handle root;
	struct nfs_handle folders[NFS_FOLDERS]; /* of store/layout.h, once known; len 0: not yet */
	bool broken;
	bool silent; /* broken, since the server let an operation wait for too long */
	char address[64]; /* of the server, numeric, for messages */
};

/*
 * Connects to the export: resolves the name, asks the server by a NULL call whether it is alive
 * and which versions it speaks, and gets the root handle. Blocks for some seconds at most.
 * Errors: UNAVAILABLE (server not reachable, not answering, name not resolvable), NOT_FOUND (no
 * such share), PERMISSION_DENIED (the export refuses us), FAILED_PRECONDITION (version not
 * served). Returns -EHOSTDOWN where the server itself did not answer. The caller frees.
 */
int nfs_client_connect(struct nfs_client **ret, const struct nfs_export *e, struct error *err);

void nfs_client_free(struct nfs_client *c);

bool nfs_handle_is_equal(const struct nfs_handle *a, const struct nfs_handle *b);

/* How many operations may be in flight on it: what the pool was told, or NFS_WINDOW. */
unsigned int nfs_window(const struct nfs_client *c);

/* Asks the server by a NULL call whether it is alive. -EHOSTDOWN with UNAVAILABLE where it is not. */
int nfs_client_ping(struct nfs_client *c, struct error *err);

/* Whether an idle client may still be used: not broken and nothing arrived on its socket. */
bool nfs_client_is_usable(struct nfs_client *c);

/*
 * Queues op; it must stay in place until finished. Returns 0, -ENOMEM, -EMSGSIZE or
 * -ECONNABORTED.
 */
int nfs_client_start(struct nfs_client *c, struct nfs_op *op);

/*
 * Drives the operations in flight until one has finished; it may also return without, while the server is
 * at work. -ETIMEDOUT and -ECONNABORTED break c.
 */
int nfs_client_run(struct nfs_client *c);

/*
 * As nfs_client_run(), for two clients that one thread drives: until an operation of either has
 * finished. The same client twice, and NULL for the second, are fine. The client that broke says so.
 */
int nfs_client_run_pair(struct nfs_client *a, struct nfs_client *b);

/* Ends all operations in flight with -ECONNABORTED, and the connection: for who cannot wait for them. */
void nfs_client_abort(struct nfs_client *c);

/* Whether the server can be told such a time: version 3 has those from 1970 to 2106. */
bool nfs_time_fits(const struct nfs_client *c, const struct nfs_time *time);

/* The most bytes that one READ on c gives, and that one WRITE takes. */
uint32_t nfs_read_max(const struct nfs_client *c);
uint32_t nfs_write_max(const struct nfs_client *c);

/*
 * Starts op and runs until it has finished, trying again while the server asks for patience
 * (NFS3ERR_JUKEBOX, NFS4ERR_DELAY, NFS4ERR_GRACE), for NFS_CALL_TIMEOUT_MS in all. Returns op->error.
 * Where the server is at work on something slow, see NFS_CALL_TIMEOUT_MS, it takes as long as that.
 */
int nfs_client_call(struct nfs_client *c, struct nfs_op *op);

/* The code that an operation's errno means to a CO. */
enum error_code nfs_error_code(int error);

/*
 * Reports a failed operation as "<what> on <server>:<share>: <reason and what to do>". what is
 * like "mkdir 'pvc-1'". Returns error.
 */
int nfs_error_set(struct error *err, const struct nfs_client *c, int error, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

DEFINE_CLEANUP(nfs_client, struct nfs_client *, nfs_client_free)
#define cleanup_nfs_client __attribute__((cleanup(cleanup_ptr_nfs_client)))

#endif
