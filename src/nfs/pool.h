/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Clients kept for the next call to the same export: connecting costs ten times as much as a call.
 * A lease belongs to the thread that took it until it is returned. Idle clients are closed after a
 * while, broken ones at once. A circuit breaker (net/breaker.h) refuses calls to servers that do
 * not answer. Any thread; no lock is held across network traffic.
 */
#ifndef NFS_POOL_H
#define NFS_POOL_H

#include "nfs/client.h"

/* Leases per server: a third of the workers that main.c starts. */
#define NFS_SERVER_PLACES 16

#define NFS_POOL_IDLE_MAX 64 /* idle clients of all exports together */
#define NFS_POOL_IDLE_S 60 /* before an idle client is closed */

/*
 * An older client is replaced by a new one before it is used again: the server's name may lead to
 * another address by now, though the machine at the former one still answers. What a client knows
 * of its server is no older, either. If the name leads nowhere, the client stays.
 */
#define NFS_POOL_AGE_S 300

struct nfs_pool;

/* Creates clients; tests pass a fake. */
typedef int (*nfs_connect_fn)(struct nfs_client **ret, const struct nfs_export *e,
			      struct error *err);

/* window: see nfs_window(); 0: the default. Returns 0 or -ENOMEM. The caller frees. */
int nfs_pool_new(struct nfs_pool **ret, nfs_connect_fn connect, unsigned int window);

/* Free the pool. All leases must have been returned. */
void nfs_pool_free(struct nfs_pool *pool);

/*
 * Lease a client for the export, idle or new. Blocks for seconds at most. Errors:
 * nfs_client_connect() and net_breaker_enter().
 */
int nfs_pool_lease(struct nfs_pool *pool, const struct nfs_export *e, struct nfs_client **ret,
		   struct error *err);

/* Whether the export's server is known to be down, so that a lease would be refused at once. */
bool nfs_pool_is_down(struct nfs_pool *pool, const struct nfs_export *e);

/*
 * Note that a lease, until it is returned, occupies no worker: its thread has another lease as
 * well, or is not a worker. It has a place on the server, but keeps no others from taking one.
 */
void nfs_pool_spare(struct nfs_pool *pool, struct nfs_client *c);

/* Return a lease. Accepts NULL. */
void nfs_pool_return(struct nfs_pool *pool, struct nfs_client *c);

/*
 * Close idle clients of the export's server: after -ESTALE, others may hold the handle too. May
 * block for half a second.
 */
void nfs_pool_drop(struct nfs_pool *pool, const struct nfs_export *e);

/* Close clients that have been idle for too long. May block for half a second. */
void nfs_pool_sweep(struct nfs_pool *pool);

#endif
