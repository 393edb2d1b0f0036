/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "grpc/server.h"

#define SUN_PATH_SIZE sizeof(((struct sockaddr_un *)NULL)->sun_path)

/* Return the part after the scheme, or NULL if the endpoint has another scheme. */
static const char *after_scheme(const char *endpoint, const char *scheme)
{
	size_t len = strlen(scheme);

	return strncasecmp(endpoint, scheme, len) == 0 ? endpoint + len : NULL;
}

/* Split the endpoint so that the path is prefix + rest. */
static int split_endpoint(const char *endpoint, const char **ret_prefix, const char **ret_rest,
			  struct error *err)
{
	const char *rest;

	*ret_prefix = "";
	rest = after_scheme(endpoint, "unix://");
	if (rest != NULL) {
		if (rest[0] != '/' && rest[0] != '\0')
			*ret_prefix = "/";
		*ret_rest = rest;
		return 0;
	}
	rest = after_scheme(endpoint, "unix:");
	if (rest != NULL) {
		if (rest[0] == '@') /* a file name, not an abstract socket */
			*ret_prefix = "./";
		*ret_rest = rest;
		return 0;
	}
	rest = after_scheme(endpoint, "unix-abstract:");
	if (rest != NULL && rest[0] != '\0') {
		*ret_prefix = "@";
		*ret_rest = rest;
		return 0;
	}
	if (endpoint[0] == '/' || (endpoint[0] == '@' && endpoint[1] != '\0')) {
		*ret_rest = endpoint;
		return 0;
	}
	if (after_scheme(endpoint, "tcp:") != NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "endpoint '%s' is refused: CSI over TCP has no authentication, "
				 "use unix:///path/csi.sock",
				 endpoint);
	return error_set(err, ERROR_INVALID_ARGUMENT,
			 "endpoint '%s' is not of the form unix:///path/csi.sock", endpoint);
}

int grpc_endpoint_parse(const char *endpoint, char **ret_path, struct error *err)
{
	cleanup_free char *path = NULL;
	const char *prefix = "", *rest = "";
	int r;

	r = split_endpoint(endpoint, &prefix, &rest, err);
	if (r < 0)
		return r;
	if (str_is_empty(rest) || strcmp(rest, "/") == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "endpoint '%s' names no socket",
				 endpoint);
	if (asprintf(&path, "%s%s", prefix, rest) < 0) {
		path = NULL;
		return error_oom(err);
	}
	if (strlen(path) >= SUN_PATH_SIZE)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "socket path '%s' has %zu bytes, unix sockets allow %zu", path,
				 strlen(path), SUN_PATH_SIZE - 1);
	*ret_path = steal_ptr(&path);
	return 0;
}
