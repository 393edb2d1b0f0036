/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define IN_USE_MS 2000
#define IN_USE_PAUSE_MS 100

/* A leading '@' stands for the NUL byte of an abstract address. */
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

static int set_in_use(const char *path, struct error *err)
{
	(void)error_set(err, ERROR_FAILED_PRECONDITION, "another process is serving '%s'", path);
	return -EADDRINUSE;
}

/* Return 0 if nobody listens on the socket or it is gone. */
static int check_stale(const char *path, const struct sockaddr_un *address, socklen_t len,
		       struct error *err)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return error_sys(err, ERROR_INTERNAL, errno, "socket");
	if (connect(fd, (const struct sockaddr *)address, len) == 0 || errno == EAGAIN)
		return set_in_use(path, err); /* EAGAIN: the backlog is full */
	if (errno == ECONNREFUSED || errno == ENOENT)
		return 0;
	return error_sys(err, ERROR_FAILED_PRECONDITION, errno,
			 "cannot tell whether another process is serving '%s'", path);
}

/*
 * Remove a socket file that nobody serves; a killed container leaves one in the host's directory.
 * Compare the file again before removing it: another instance may have just replaced it.
 */
static int remove_stale(const char *path, const struct sockaddr_un *address, socklen_t len,
			struct error *err)
{
	struct stat before, now;
	int r;

	if (lstat(path, &before) < 0)
		return 0; /* bind() reports other errors */
	if (!S_ISSOCK(before.st_mode)) {
		(void)error_set(err, ERROR_FAILED_PRECONDITION,
				"'%s' exists and is not a socket: not touching it", path);
		return -ENOTSOCK;
	}
	r = check_stale(path, address, len, err);
	if (r < 0)
		return r;
	if (lstat(path, &now) < 0)
		return 0;
	if (now.st_dev != before.st_dev || now.st_ino != before.st_ino)
		return set_in_use(path, err);
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
		return set_in_use(path, err);
	if (sys == ENOENT)
		return error_sys(err, ERROR_FAILED_PRECONDITION, sys,
				 "cannot create socket '%s': its directory does not exist", path);
	return error_sys(err, ERROR_FAILED_PRECONDITION, sys, "cannot create socket '%s'", path);
}

static int note_file(struct grpc_listener *l, const char *path, struct error *err)
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

static int try_open(struct grpc_listener *ret, const char *path, struct error *err)
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
		r = note_file(&l, path, err);
	if (r == 0 && listen(l.fd, SOMAXCONN) < 0)
		r = error_sys(err, ERROR_FAILED_PRECONDITION, errno, "listen on '%s'", path);
	if (r < 0) {
		grpc_listener_close(&l);
		return r;
	}
	*ret = l;
	return 0;
}

/*
 * A driver that was killed may leave a child that is about to become another program, or to end,
 * and has the socket until then.
 */
int grpc_listener_open(struct grpc_listener *ret, const char *path, struct error *err)
{
	const uint64_t deadline = clock_now_ns() + IN_USE_MS * CLOCK_NS_PER_MS;
	int r;

	for (;;) {
		r = try_open(ret, path, err);
		if (r != -EADDRINUSE || clock_now_ns() >= deadline)
			return r;
		error_clear(err);
		clock_sleep_ms(IN_USE_PAUSE_MS);
	}
}

int grpc_listener_adopt(struct grpc_listener *ret, int fd, struct error *err)
{
	cleanup_close int taken = fd;
	const int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return error_sys(err, ERROR_INTERNAL, errno, "cannot set up the passed socket");
	*ret = (struct grpc_listener){ .fd = steal_fd(&taken) };
	return 0;
}

void grpc_listener_close(struct grpc_listener *l)
{
	struct stat st;
	bool ours = l->path != NULL && lstat(l->path, &st) == 0 && st.st_dev == l->dev &&
		    st.st_ino == l->ino;

	if (ours)
		(void)unlink(l->path); /* a file that stays is removed at the next start */
	free(steal_ptr(&l->path));
	if (l->fd >= 0)
		(void)close(steal_fd(&l->fd));
}
