/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One connection to one export. Many operations may be in flight; they make progress inside
 * nfs_client_run() and nfs_client_call(). After a transport failure the client is broken: every
 * operation in flight fails with -ECONNABORTED or -ETIMEDOUT, and the client can only be freed. A
 * reply to a change that cannot be right breaks the client, too: nobody knows what the change did,
 * and its operation fails with -EBADMSG.
 *
 * A client belongs to one thread at a time (nfs/pool.h leases it). Nothing here blocks for longer
 * than its deadline. Only libnfs's XDR is used (net/rpc.h): its own calls have no deadline, or
 * leave the stack exposed to late replies.
 */
#ifndef NFS_CLIENT_H
#define NFS_CLIENT_H

#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "nfs/export.h"
#include "nfs/op.h"

/*
 * A server that answers nothing for this long counts as dead. While an operation is in flight that
 * its disk may delay (nfs_op_is_slow()), the client sends a NULL call first, and waits as long as
 * the server answers that.
 */
#define NFS_CALL_TIMEOUT_MS 10000

/* How long to repeat an operation that the server refuses in its grace period. */
#define NFS_GRACE_TIMEOUT_MS 1000

/* Pause before a CSI call that failed in the grace period is retried. */
#define NFS_GRACE_RETRY_MS 2000

/*
 * Longest wait for one operation, whatever else the server answers. NFS_DATA_MAX_MS applies unless
 * an operation is in flight whose work on disk has no bound (nfs_op_is_unbounded()): a server that
 * takes longer for any other operation has lost it.
 */
#define NFS_OPERATION_MAX_MS 600000
#define NFS_DATA_MAX_MS 60000

/* A connection attempt starts no further step after this. */
#define NFS_CONNECT_MAX_MS 15000

/* A client is full if its socket has not taken this many bytes, see nfs_client_is_full(). */
#define NFS_UNSENT_MAX (512 * 1024)

/* Default number of operations that pipelining callers keep in flight on one client. */
#define NFS_WINDOW 64
#define NFS_WINDOW_MAX 256

/* Folders that store/layout.h defines. */
#define NFS_FOLDERS 8

struct nfs_client;

/*
 * The seam for tests. start() queues op, or fails without calling done(). run() drives the
 * operations in flight until one has finished or the deadline has passed (-ETIMEDOUT).
 */
struct nfs_client_ops {
	int (*start)(struct nfs_client *c, struct nfs_op *op);
	int (*run)(struct nfs_client *c, uint64_t deadline_ns);
	void (*free)(struct nfs_client *c);
};

/* Operations of version 4.2 (RFC 7862) that spare the network data. */
#define NFS_OFFLOAD_CLONE 1U
#define NFS_OFFLOAD_COPY 2U
#define NFS_OFFLOAD_SEEK 4U

/* Limits of a session as the server gave them (RFC 8881, section 18.36); zeros: there is none. */
struct nfs_session {
	uint32_t slots, operations; /* requests at a time, operations in each */
	uint32_t request_max, reply_max; /* bytes */
};

struct nfs_client {
	const struct nfs_client_ops *ops;
	struct nfs_export export; /* as requested: version 0 stays 0 */
	unsigned int version, minor; /* in use; minor: of version 4 */
	unsigned int slots; /* operations in flight that a session has room for; 0: no limit */
	unsigned int operations; /* in one compound of a session; 0: no limit is known */
	struct nfs_session session;
	uint32_t lease_s; /* version 4: how long the server keeps state; 0: not known */
	unsigned int window; /* see nfs_window() */
	uint32_t read_max; /* bytes that the server returns in one READ; 0: not known */
	uint32_t write_max; /* bytes that it takes in one WRITE; 0: not known */
	uint32_t whole_max; /* bytes that CREATE writes as well, see nfs_op.whole; 0: none */
	uint32_t lists_max; /* bytes of a READ that lists extended attributes, too; 0: none */
	unsigned int offload; /* NFS_OFFLOAD_ of what may work; callers clear what is refused */
	struct nfs_handle root;
	enum nfs_type root_type; /* UNKNOWN: the server did not say */
	struct nfs_handle folders[NFS_FOLDERS]; /* of store/layout.h; len 0: not known yet */
	bool refuses_links; /* the share takes files, but no symbolic links: store/text.h */
	bool broken;
	bool in_grace; /* of the last operation with -EAGAIN, see nfs_op; for nfs_error_set() */
	bool silent; /* broken because the server kept an operation waiting for too long */
	bool spare; /* the pool's: see nfs_pool_spare() */
	uint64_t connected_ns; /* the pool's: when it got the client */
	char address[64]; /* of the server, numeric, for messages */
};

/*
 * Connect to the export: resolve the name, ask by a NULL call whether the server is alive and
 * which versions it has, and get the root handle. Tries the addresses of the name in turn, until
 * one answers and neither refuses us nor lacks the share; the first refusal is the error. Blocks
 * for NFS_CONNECT_MAX_MS and the step under way. Errors: UNAVAILABLE (server not reachable, not
 * answering, name not resolvable), NOT_FOUND (no such share), PERMISSION_DENIED (the export
 * refuses us), FAILED_PRECONDITION (version not served). Returns -EHOSTDOWN if the server itself
 * did not answer, or not all calls, or the name service did not; -NET_ENAME if the server's name
 * has no address; and an own failure (net_is_own_failure()) as it is. The caller frees.
 */
int nfs_client_connect(struct nfs_client **ret, const struct nfs_export *e, struct error *err);

void nfs_client_free(struct nfs_client *c);

bool nfs_handle_is_equal(const struct nfs_handle *a, const struct nfs_handle *b);

/* The number of operations to keep in flight: the pool's setting, or NFS_WINDOW, or fewer. */
unsigned int nfs_window(const struct nfs_client *c);

/*
 * Ask by a NULL call whether the server is alive. Returns -EHOSTDOWN with UNAVAILABLE if not, or an
 * own failure (net_is_own_failure()).
 */
int nfs_client_ping(struct nfs_client *c, struct error *err);

/* Check that an idle client may still be used: not broken, nothing arrived on its socket. */
bool nfs_client_is_usable(struct nfs_client *c);

/* Queue op, which must stay in place. Returns 0, -ENOMEM, -EMSGSIZE or -ECONNABORTED. */
int nfs_client_start(struct nfs_client *c, struct nfs_op *op);

/*
 * Drive the operations in flight until one has finished. May return early; call in a loop. Returns
 * 0, or -ETIMEDOUT or -ECONNABORTED, which break c.
 */
int nfs_client_run(struct nfs_client *c);

/*
 * Like nfs_client_run(), for two clients of one thread, until an operation of either has finished.
 * b may be a or NULL. Returns 0 at wake_ns (CLOCK_MONOTONIC), too, which does not give the server
 * more time. UINT64_MAX: no wake. After an error, see which of them is broken.
 */
int nfs_client_run_pair(struct nfs_client *a, struct nfs_client *b, uint64_t wake_ns);

/*
 * Check whether so much is queued that the server cannot take more for now. Starting further
 * operations then only uses memory. nfs_client_run() returns once the client is no longer full.
 */
bool nfs_client_is_full(struct nfs_client *c);

/* End all operations in flight with -ECONNABORTED, and the connection, without waiting. */
void nfs_client_abort(struct nfs_client *c);

/* "3", "4.0", "4.1" or "4.2". */
const char *nfs_version_text(const struct nfs_client *c);

/* Names that one NFS_OP_REMOVE takes: NFS_REMOVE_MAX at most. */
size_t nfs_remove_max(const struct nfs_client *c);

/* Handles that one NFS_OP_GETATTR takes: NFS_GETATTR_MAX at most. 1: it takes dir. */
size_t nfs_getattr_max(const struct nfs_client *c);

/* Check whether the protocol can carry such a time: version 3 has 1970 to 2106. */
bool nfs_time_fits(const struct nfs_client *c, const struct nfs_time *time);

/* Bytes that one READ returns, and that one WRITE takes, at most. */
uint32_t nfs_read_max(const struct nfs_client *c);
uint32_t nfs_write_max(const struct nfs_client *c);

/* Bytes that a READ asks for: no more than the server returns. */
uint32_t nfs_read_count(const struct nfs_op *op);

/*
 * Start op and run until it has finished. While the server asks for patience (NFS3ERR_JUKEBOX,
 * NFS4ERR_DELAY), starts another attempt, for NFS_CALL_TIMEOUT_MS; each attempt has its own
 * NFS_CALL_TIMEOUT_MS to be answered in. A server that has just started refuses some operations
 * with NFS4ERR_GRACE for longer than a caller should keep a connection: these are attempted for
 * NFS_GRACE_TIMEOUT_MS only. Returns op->error.
 */
int nfs_client_call(struct nfs_client *c, struct nfs_op *op);

DEFINE_CLEANUP(nfs_client, struct nfs_client *, nfs_client_free)
#define cleanup_nfs_client __attribute__((cleanup(cleanup_ptr_nfs_client)))

#endif
