/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * TCP connections to NFS servers, from reserved ports. Any thread; connecting blocks for up to
 * NET_CONNECT_TIMEOUT_MS.
 */
#ifndef NET_CONNECT_H
#define NET_CONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "net/address.h"

#define NET_NFS_PORT 2049 /* RFC 7530, section 3.1 */
#define NET_CONNECT_TIMEOUT_MS 3000

/*
 * Connect to a TCP port, from a reserved port if the process may bind one (exports are "secure"
 * unless told otherwise). Returns a non-blocking socket, which the caller closes, or a negative
 * errno.
 */
int net_connect(const struct net_address *a, uint16_t port);

/* Like net_connect(), but from an ephemeral port, above 1023. */
int net_connect_unreserved(const struct net_address *a, uint16_t port);

/* Check whether this process may bind a reserved port for connections to such an address. */
bool net_may_reserve_port(const struct net_address *a);

/*
 * Check whether reserved ports fail for want of libtirpc: FAILED_PRECONDITION if this process may
 * bind them and the library is missing. Then connections come from other ports. Loads it.
 */
int net_reserve_prepare(struct error *err);

/*
 * Check whether an errno is that of this process or its machine, such as too many open files: it
 * tells nothing about the server.
 */
bool net_is_own_failure(int error);

/* Print our own address on the route to a; "" if there is no route. Sends nothing. */
void net_source_text(const struct net_address *a, char *text, size_t size);

#endif
