/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

static bool is_name(const char *s)
{
	const char *p;

	for (p = s; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && strchr("-._", *p) == NULL)
			return false;
	return p != s;
}

static bool is_ipv6(const char *s)
{
	struct in6_addr addr;
	char copy[NET_SERVER_MAX + 1];
	size_t len = strcspn(s, "%");

	if (len >= sizeof(copy))
		return false;
	/* A zone may follow: fe80::1%eth0. */
	if (s[len] == '%' && !is_name(s + len + 1))
		return false;
	memcpy(copy, s, len);
	copy[len] = '\0';
	return inet_pton(AF_INET6, copy, &addr) == 1;
}

char *net_server_without_brackets(const char *server)
{
	size_t len = strlen(server);
	cleanup_free char *inner = NULL;

	if (len <= 2 || server[0] != '[' || server[len - 1] != ']')
		return strdup(server);
	inner = strndup(server + 1, len - 2);
	if (inner == NULL)
		return NULL;
	return is_ipv6(inner) ? steal_ptr(&inner) : strdup(server);
}

static bool is_bracketed(const char *s)
{
	cleanup_free char *inner = net_server_without_brackets(s);

	return inner != NULL && strcmp(inner, s) != 0 && is_ipv6(inner);
}

int net_server_check(const char *server, struct error *err)
{
	size_t len = strlen(server);

	if (len == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "server: must not be empty");
	if (len > NET_SERVER_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "server: has %zu bytes, the limit is %d", len, NET_SERVER_MAX);
	if (server[0] == '-' || server[0] == '.')
		return error_set(err, ERROR_INVALID_ARGUMENT, "server: must not start with '%c'",
				 server[0]);
	if (is_ipv6(server) || is_bracketed(server))
		return 0;
	if (!is_name(server))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "server: must be a host name or an IP address, without port or path");
	return 0;
}
