/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Server names as users write them, and the addresses that they resolve to. Any thread; only
 * net_resolve() blocks.
 */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>

#include "base/error.h"

#define NET_SERVER_MAX 255 /* bytes in a host name; RFC 1035, section 2.3.4 */
#define NET_ADDRESSES_MAX 8 /* kept per name */
#define NET_RESOLVE_TIMEOUT_MS 3000

struct net_address {
	struct sockaddr_storage addr; /* port 0 */
	socklen_t len;
};

/*
 * Check a server name: letters, digits, '-', '.', '_', or an IPv6 literal with or without square
 * brackets. Returns 0 or -EINVAL with INVALID_ARGUMENT.
 */
int net_server_check(const char *server, struct error *err);

/*
 * Return a copy of the server without the square brackets that mount(8) requires around an IPv6
 * address, or NULL if out of memory. The caller frees.
 */
char *net_server_without_brackets(const char *server);

/*
 * Resolve a name or a literal into at most NET_ADDRESSES_MAX addresses, in the resolver's order of
 * preference. Blocks for up to NET_RESOLVE_TIMEOUT_MS. Errors: UNAVAILABLE.
 */
int net_resolve(const char *server, struct net_address *ret, size_t *ret_n, struct error *err);

/* Print the address as "192.0.2.1" or "fd00::1". */
void net_address_text(const struct net_address *a, char *text, size_t size);

#endif
