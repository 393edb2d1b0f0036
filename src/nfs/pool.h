/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Clients kept for the next call to the same export: connecting costs ten times what a call does.
 * A lease belongs to the thread that took it until it is given back. Idle clients are closed after
 * a while, broken ones at once. Servers that do not answer are kept off by a circuit breaker
 * (net/breaker.h). Any thread; no lock is held across network traffic.
 */
#ifndef NFS_POOL_H
#define NFS_POOL_H

#include "nfs/client.h"

#define NFS_SERVER_PLACES                                                                          \
	16 /* calls at work on one server: a third of the workers that main.c starts */
#define NFS_POOL_IDLE_MAX 64 /* clients kept, over all exports */
#define NFS_POOL_IDLE_S 60 /* for how long an unused one is kept */

struct nfs_pool;

/* How clients are made; tests hand in a fake. */
typedef int (*nfs_connect_fn)(struct nfs_client **ret, const struct nfs_export *e, struct error *err);

/* window: of the clients, see nfs_window(); 0: the usual one. Returns 0 or -ENOMEM. The caller frees. */
int nfs_pool_new(struct nfs_pool **ret, nfs_connect_fn connect, unsigned int window);

/* All leases must have been given back. */
void nfs_pool_free(struct nfs_pool *pool);

/*
 * A client for the export, idle or new. Errors as nfs_client_connect() and net_breaker_enter(). May
 * block for seconds.
 */
int nfs_pool_lease(struct nfs_pool *pool, const struct nfs_export *e, struct nfs_client **ret,
		   struct error *err);

/* Gives a lease back. Accepts NULL. */
void nfs_pool_return(struct nfs_pool *pool, struct nfs_client *c);

/* Closes what is idle of the export's server: after -ESTALE, as others may hold that handle too. */
void nfs_pool_drop(struct nfs_pool *pool, const struct nfs_export *e);

/* Closes what has been idle for too long. */
void nfs_pool_sweep(struct nfs_pool *pool);

#endif
