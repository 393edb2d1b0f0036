/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/listener.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cleanup.h"

/* Leading '@' is how people write an abstract name; the kernel wants a NUL there. */
static int make_address(const char *path, struct sockaddr_un *ret, socklen_t *ret_len,
			struct error *err)
{
	size_t len = strlen(path);

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (len == 0 || len >= sizeof(ret->sun_path)) {
		(void)error_set(err, ERROR_INVALID_ARGUMENT,
				"socket path '%s' has %zu bytes, unix sockets allow 1 to %zu", path,
				len, sizeof(ret->sun_path) - 1);
		return -ENAMETOOLONG;
	}
	memcpy(ret->sun_path, path, len);
	if (path[0] == '@')
		ret->sun_path[0] = '\0';
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (path[0] != '@')
		*ret_len += 1;
	return 0;
}

static int in_use(const char *path, struct error *err)
{
	(void)error_set(err, ERROR_FAILED_PRECONDITION, "another process is serving '%s'", path);
	return -EADDRINUSE;
}

/* 0: nobody answers there, or nothing is there any more. */
static int check_dead(const char *path, const struct sockaddr_un *address, socklen_t len,
		      struct error *err)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return error_sys(err, ERROR_INTERNAL, errno, "socket");
	if (connect(fd, (const struct sockaddr *)address, len) == 0 || errno == EAGAIN)
		return in_use(path, err); /* EAGAIN: its backlog is full */
	if (errno == ECONNREFUSED || errno == ENOENT)
		return 0;
	return error_sys(err, ERROR_FAILED_PRECONDITION, errno,
			 "cannot tell whether another process is serving '%s'", path);
}

/*
 * A container that was killed leaves its socket in the host's directory: the common case. The file
 * is compared once more before it goes, in case another instance has just put its own there.
 */
static int remove_stale(const char *path, const struct sockaddr_un *address, socklen_t len,
			struct error *err)
{
	struct stat before, now;
	int r;

	if (lstat(path, &before) < 0)
		return 0; /* bind() has the better message for whatever is wrong */
	if (!S_ISSOCK(before.st_mode)) {
		(void)error_set(err, ERROR_FAILED_PRECONDITION,
				"'%s' exists and is not a socket: not touching it", path);
		return -ENOTSOCK;
	}
	r = check_dead(path, address, len, err);
	if (r < 0)
		return r;
	if (lstat(path, &now) < 0)
		return 0;
	if (now.st_dev != before.st_dev || now.st_ino != before.st_ino)
		return in_use(path, err);
	if (unlink(path) < 0 && errno != ENOENT)
		return error_sys(err, ERROR_FAILED_PRECONDITION, errno,
				 "cannot remove the stale socket '%s'", path);
	return 0;
}

static int bind_address(int fd, const char *path, const struct sockaddr_un *address, socklen_t len,
			struct error *err)
{
	mode_t saved = umask(0177);
	int r = bind(fd, (const struct sockaddr *)address, len);
	int sys = errno;

	(void)umask(saved);
	if (r == 0)
		return 0;
	if (sys == EADDRINUSE)
		return in_use(path, err);
	if (sys == ENOENT)
		return error_sys(err, ERROR_FAILED_PRECONDITION, sys,
				 "cannot create socket '%s': its directory does not exist", path);
	return error_sys(err, ERROR_FAILED_PRECONDITION, sys, "cannot create socket '%s'", path);
}

/* Notes which file it is. */
static int remember_file(struct grpc_listener *l, const char *path, struct error *err)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return error_sys(err, ERROR_FAILED_PRECONDITION, errno, "socket '%s'", path);
	l->path = strdup(path);
	if (l->path == NULL)
		return error_oom(err);
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	return 0;
}

int grpc_listener_open(struct grpc_listener *ret, const char *path, struct error *err)
{
	struct grpc_listener l = { .fd = -EBADF };
	struct sockaddr_un address;
	socklen_t len;
	bool abstract = path[0] == '@';
	int r;

	r = make_address(path, &address, &len, err);
	if (r < 0)
		return r;
	if (!abstract) {
		r = remove_stale(path, &address, len, err);
		if (r < 0)
			return r;
	}
	l.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l.fd < 0)
		return error_sys(err, ERROR_INTERNAL, errno, "socket");
	r = bind_address(l.fd, path, &address, len, err);
	if (r == 0 && !abstract)
		r = remember_file(&l, path, err);
	if (r == 0 && listen(l.fd, SOMAXCONN) < 0)
		r = error_sys(err, ERROR_FAILED_PRECONDITION, errno, "listen on '%s'", path);
	if (r < 0) {
		grpc_listener_close(&l);
		return r;
	}
	*ret = l;
	return 0;
}

void grpc_listener_close(struct grpc_listener *l)
{
	struct stat st;

	if (l->path != NULL && lstat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
		(void)unlink(l->path); /* nothing to be done about it while going down */
	free(l->path);
	l->path = NULL;
	if (l->fd >= 0)
		(void)close(steal_fd(&l->fd));
}
