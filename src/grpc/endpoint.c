/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* ---- A socket that another process made ---- */

/* Return the value of an option, 0 or more, or a negative errno. */
static int socket_option(int fd, int name)
{
	socklen_t len = sizeof(int);
	int value = 0;

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) < 0 ? -errno : value;
}

static int check_socket(int fd, struct error *err)
{
	const int domain = socket_option(fd, SO_DOMAIN);

	if (domain < 0)
		return error_sys(err, ERROR_INVALID_ARGUMENT, -domain,
				 "the passed descriptor is not a socket");
	if (domain == AF_INET || domain == AF_INET6)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "the passed socket is refused: CSI over TCP has no authentication, "
				 "pass a unix socket (ListenStream=/path/csi.sock)");
	if (domain != AF_UNIX || socket_option(fd, SO_TYPE) != SOCK_STREAM)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "the passed socket is not a unix stream socket "
				 "(ListenStream=/path/csi.sock)");
	if (socket_option(fd, SO_ACCEPTCONN) != 1)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "the passed socket does not listen: the socket unit must have "
				 "Accept=no");
	return 0;
}

/* A socket that listens has a name. */
static int socket_path(int fd, char **ret_path, struct error *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(address);
	size_t n;

	if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
		return error_sys(err, ERROR_INTERNAL, errno, "cannot find out the socket's name");
	/* The kernel's length may count a final NUL, and an abstract name begins with one. */
	n = len - offsetof(struct sockaddr_un, sun_path);
	if (n > 0 && address.sun_path[0] == '\0')
		address.sun_path[0] = '@';
	*ret_path = strndup(address.sun_path, n < SUN_PATH_SIZE ? n : SUN_PATH_SIZE);
	return *ret_path == NULL ? error_oom(err) : 0;
}

/* Two spellings, as through the symbolic link /var/run, can name one file. */
static bool is_same_path(const char *a, const char *b)
{
	struct stat one, other;

	if (strcmp(a, b) == 0)
		return true;
	return a[0] != '@' && b[0] != '@' && stat(a, &one) == 0 && stat(b, &other) == 0 &&
	       one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

int grpc_endpoint_of_socket(int fd, const char *endpoint, char **ret_path, struct error *err)
{
	cleanup_free char *path = NULL, *wanted = NULL;
	int r;

	r = check_socket(fd, err);
	if (r < 0)
		return r;
	r = socket_path(fd, &path, err);
	if (r < 0)
		return r;
	if (endpoint != NULL) {
		r = grpc_endpoint_parse(endpoint, &wanted, err);
		if (r < 0)
			return r;
		if (!is_same_path(path, wanted))
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "endpoint '%s' is not the passed socket, '%s': leave the "
					 "endpoint out, or change ListenStream= of the socket unit",
					 endpoint, path);
	}
	*ret_path = steal_ptr(&path);
	return 0;
}
