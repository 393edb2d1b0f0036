/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A circuit breaker for each server, so that one that does not answer costs the others nothing:
 * at most NFS_SERVER_SHARE calls are at work on a server or wait for it; one that has been silent for
 * a while is asked by a NULL call before it gets more work; and one that did not answer that is not
 * asked again before its time, and until then every call is refused at once. Any thread.
 */
#ifndef NFS_BREAKER_H
#define NFS_BREAKER_H

#include <stdbool.h>

#include "nfs/export.h"

/* Calls at work on one server: half of the workers that main.c starts. */
#define NFS_SERVER_SHARE 16

/* A server that was heard of within this time is taken for alive. */
#define NFS_BREAKER_FRESH_MS 2000

/* Time between two tries of a server that is down: doubles from the first to the last. */
#define NFS_BREAKER_FIRST_MS 1000
#define NFS_BREAKER_LAST_MS 30000

struct nfs_breaker;

/* Returns 0 or -ENOMEM. The caller frees. */
int nfs_breaker_new(struct nfs_breaker **ret);
void nfs_breaker_free(struct nfs_breaker *b);

/*
 * Asks for one of the export's server's places. It may wait for one that is in use: for seconds
 * while the server answers others, else for a fraction of one. On success the caller owes
 * nfs_breaker_leave(), and where *ret_ask is set nfs_breaker_answered() or nfs_breaker_failed()
 * first: it has to find out whether the server is alive, while others wait for that. Errors:
 * UNAVAILABLE (down, with the time of the next try; or its places are taken), -ENOMEM.
 */
int nfs_breaker_enter(struct nfs_breaker *b, const struct nfs_export *e, bool *ret_ask,
		      struct error *err);

/* The server was heard of. */
void nfs_breaker_answered(struct nfs_breaker *b, const struct nfs_export *e);

/* Asked whether it is alive, the server did not answer; why is what callers are told until it does. */
void nfs_breaker_failed(struct nfs_breaker *b, const struct nfs_export *e, const struct error *why);

/* Gives the place back. silent: the server let a call wait for too long, so it is asked next time. */
void nfs_breaker_leave(struct nfs_breaker *b, const struct nfs_export *e, bool silent);

/* Forgets servers that nothing was asked of for long. */
void nfs_breaker_sweep(struct nfs_breaker *b);

#endif
