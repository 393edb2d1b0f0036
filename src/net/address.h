/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Names of servers, as users write them. Pure functions, any thread.
 */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include "base/error.h"

#define NET_SERVER_MAX 255 /* bytes of a host name; RFC 1035, section 2.3.4 */

/*
 * Checks a server name: letters, digits, '-', '.', '_' or an IPv6 literal, with or without square
 * brackets. Returns 0 or -EINVAL with INVALID_ARGUMENT.
 */
int net_server_check(const char *server, struct error *err);

/*
 * A copy of the server without the square brackets that mount(8) wants around an IPv6 address.
 * NULL without memory. The caller frees.
 */
char *net_server_without_brackets(const char *server);

#endif
