/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * NULL calls and rpcbind lookups, each on its own connection, which tell whether a server is up and
 * what it serves. Worker threads. A peer that trickles bytes cannot extend the time that a call
 * blocks: NET_CONNECT_TIMEOUT_MS to connect, and then, for an answer,
 *
 *  - NET_PING_TIMEOUT_MS if the server's system does not even acknowledge the call;
 *  - NET_PING_TAKEN_MS if it does: then the host is up, and its NFS service may just not get the
 *    processor;
 *  - more if this process does not get the processor either: only time in which it could run
 *    counts, up to NET_PING_MAX_MS on the clock. On a node that starts many pods, everything
 *    is late.
 */
#ifndef NET_PING_H
#define NET_PING_H

#include <stdint.h>

#include "net/address.h"
#include "net/connect.h"

#define NET_PING_TIMEOUT_MS 2000
#define NET_PING_TAKEN_MS 4000
#define NET_PING_MAX_MS 10000

#define NET_NFS_PROGRAM 100003 /* RFC 1813, section 3 */
#define NET_MOUNT_PROGRAM 100005 /* RFC 1813, section 5 */

/*
 * Send a NULL call to a program. Returns 0; -EPROTONOSUPPORT if the server has only other versions,
 * stored in *ret_low and *ret_high; -EPROTO if it does not have the program; -EACCES if it refuses
 * the call; -ECONNRESET if it closes the connection or does not speak RPC; -ETIMEDOUT if it does
 * not answer; or another negative errno if it cannot be reached.
 */
int net_ping(const struct net_address *a, uint16_t port, uint32_t program, uint32_t version,
	     uint32_t *ret_low, uint32_t *ret_high);

/* Like net_ping(); if connected, *ret_ns is the time from the call to its answer or failure. */
int net_ping_timed(const struct net_address *a, uint16_t port, uint32_t program, uint32_t version,
		   uint32_t *ret_low, uint32_t *ret_high, uint64_t *ret_ns);

/*
 * Ask rpcbind for the TCP port of a program. Returns 0, -ENOENT if it is not registered, or the
 * errors of net_ping().
 */
int net_portmap(const struct net_address *a, uint32_t program, uint32_t version, uint16_t *ret);

#endif
