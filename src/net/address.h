/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Server names as users write them, and the addresses that they resolve to. Any thread; only
 * net_resolve() blocks.
 */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

#define NET_SERVER_MAX 255 /* bytes in a server's name or address as text */
#define NET_NAME_MAX 253 /* bytes in a host name, as text; RFC 1035, section 2.3.4 */
#define NET_LABEL_MAX 63 /* bytes between two dots of it; likewise */
#define NET_ADDRESSES_MAX 8 /* kept per name */
#define NET_RESOLVE_TIMEOUT_MS 3000

#define NET_ENAME EADDRNOTAVAIL /* the name service knows no address for the name */

struct net_address {
	struct sockaddr_storage addr; /* port 0 */
	socklen_t len;
};

/*
 * Check a server name: letters, digits, '-', '.', '_', or an IPv6 literal with or without square
 * brackets. Refuses what can never be resolved, whatever the name service will say: an empty label,
 * a label or name that is too long, an IPv4 address with an impossible number. Returns 0 or -EINVAL
 * with INVALID_ARGUMENT.
 */
int net_server_check(const char *server, struct error *err);

/*
 * Return a copy of the server without the square brackets that mount(8) requires around an IPv6
 * address, or NULL if out of memory. The caller frees.
 */
char *net_server_without_brackets(const char *server);

/* A number for a server's name and port, for struct error's wait_for. */
unsigned int net_server_number(const char *server, uint16_t port);

/*
 * Resolve a name or a literal into at most NET_ADDRESSES_MAX addresses, in the resolver's order of
 * preference. Blocks for up to NET_RESOLVE_TIMEOUT_MS. Returns 0; -NET_ENAME with UNAVAILABLE if
 * the name has no address; -EHOSTDOWN with UNAVAILABLE if the name service does not tell; -ENOMEM.
 */
int net_resolve(const char *server, struct net_address *ret, size_t *ret_n, struct error *err);

/* Print the address as "192.0.2.1" or "fd00::1". */
void net_address_text(const struct net_address *a, char *text, size_t size);

#endif
