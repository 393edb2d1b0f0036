/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Finding a server: its address, and whether and what it answers, by NULL calls (net/query.h) on
 * sockets that we connected ourselves. Worker threads; each call blocks for its limits at most, whatever
 * the peer does: they are times on the clock, and no byte that arrives begins them anew.
 */
#ifndef NET_PROBE_H
#define NET_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"
#include "net/address.h"

#define NET_RESOLVE_TIMEOUT_MS 3000
#define NET_CONNECT_TIMEOUT_MS 3000
#define NET_PING_TIMEOUT_MS 2000

#define NET_NFS_PORT 2049 /* RFC 7530, section 3.1 */
#define NET_NFS_PROGRAM 100003 /* RFC 1813, section 3 */
#define NET_MOUNT_PROGRAM 100005 /* RFC 1813, section 5 */

struct net_address {
	struct sockaddr_storage addr; /* port 0 */
	socklen_t len;
};

#define NET_ADDRESSES_MAX 8

/*
 * Resolves a name or a literal. At most NET_ADDRESSES_MAX results, in the order that the resolver
 * prefers. Errors: UNAVAILABLE.
 */
int net_resolve(const char *server, struct net_address *ret, size_t *ret_n, struct error *err);

/* "192.0.2.1" or "fd00::1" into text. */
void net_address_text(const struct net_address *a, char *text, size_t size);

/* The address of ours that the system takes towards a, into text; "" where there is none. */
void net_source_text(const struct net_address *a, char *text, size_t size);

/*
 * Connects to a TCP port, from a reserved port where the process may have one (exports are
 * "secure" unless told otherwise). Returns a non-blocking socket, which the caller closes, or a
 * negative errno.
 */
int net_connect(const struct net_address *a, uint16_t port);

/* As net_connect(), from whatever port the system gives: above 1023. */
int net_connect_unreserved(const struct net_address *a, uint16_t port);

/* Whether this process may have a reserved source port towards such an address. */
bool net_may_reserve_port(const struct net_address *a);

/*
 * NULL call of a program. Returns 0; -EPROTONOSUPPORT when the server speaks other versions only,
 * which are then in *ret_low and *ret_high; -EPROTO when it does not have the program; another
 * negative errno when it could not be reached (-ETIMEDOUT: no answer).
 */
int net_ping(const struct net_address *a, uint16_t port, uint32_t program, uint32_t version,
	     uint32_t *ret_low, uint32_t *ret_high);

/* As net_ping(); *ret_ns is what the answer took once connected, where there was one. */
int net_ping_timed(const struct net_address *a, uint16_t port, uint32_t program, uint32_t version,
		   uint32_t *ret_low, uint32_t *ret_high, uint64_t *ret_ns);

/* Asks rpcbind for the TCP port of a program. -ENOENT: not registered; else as net_ping(). */
int net_portmap(const struct net_address *a, uint32_t program, uint32_t version, uint16_t *ret);

#endif
