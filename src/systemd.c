/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * libsystemd has functions for this. They are not worth a library in the container image, where no
 * systemd is: the protocol is a handful of variables, which systemd documents as stable.
 */

#include "systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define FIRST_DESCRIPTOR 3 /* SD_LISTEN_FDS_START */
#define NOTIFY_WAIT_S 1

/* LISTEN_PIDFDID comes with newer versions of systemd, and says no more than LISTEN_PID. */
static const char *const variables[] = { "LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS",
					 "LISTEN_FDNAMES", "NOTIFY_SOCKET" };

static int read_number(const char *name, uint64_t *ret, struct error *err)
{
	const char *value = getenv(name);

	if (value == NULL || str_parse_u64(value, 10, INT_MAX, ret) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s must be a number, not '%s'", name,
				 value != NULL ? value : "");
	return 0;
}

/* Return 1 and set *ret_fd if one descriptor was passed to this process, else 0 or an error. */
static int find_socket(int *ret_fd, struct error *err)
{
	uint64_t pid, count;
	int r;

	if (str_is_empty(getenv("LISTEN_PID")))
		return 0;
	r = read_number("LISTEN_PID", &pid, err);
	if (r < 0)
		return r;
	if (pid != (uint64_t)getpid())
		return 0; /* left over in the environment of a parent */
	r = read_number("LISTEN_FDS", &count, err);
	if (r < 0)
		return r;
	if (count == 0)
		return 0;
	if (count > 1)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "%" PRIu64 " sockets were passed to this process (LISTEN_FDS), "
				 "csi-nfs serves one: the socket unit must have one ListenStream=",
				 count);
	if (fcntl(FIRST_DESCRIPTOR, F_SETFD, FD_CLOEXEC) < 0)
		return error_sys(err, ERROR_INVALID_ARGUMENT, errno,
				 "the socket that LISTEN_FDS announces");
	*ret_fd = FIRST_DESCRIPTOR;
	return 1;
}

/*
 * The directory of a passed socket is systemd's, which makes it as root. The service's own one is
 * the first in STATE_DIRECTORY (StateDirectory= in systemd.exec(5)).
 */
static int choose_holder(char **ret)
{
	const char *folders = getenv("STATE_DIRECTORY");

	if (str_is_empty(folders))
		return 0;
	if (asprintf(ret, "%.*s/csi-nfs", (int)strcspn(folders, ":"), folders) < 0) {
		*ret = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int fill(struct systemd *s, struct error *err)
{
	const char *notify = getenv("NOTIFY_SOCKET");
	int r;

	if (!str_is_empty(notify)) {
		s->notify = strdup(notify);
		if (s->notify == NULL)
			return error_oom(err);
	}
	r = find_socket(&s->socket, err);
	if (r <= 0)
		return r;
	return choose_holder(&s->holder) < 0 ? error_oom(err) : 0;
}

int systemd_init(struct systemd *ret, struct error *err)
{
	struct systemd s = { .socket = -EBADF };
	size_t i;
	int r;

	r = fill(&s, err);
	for (i = 0; i < ARRAY_SIZE(variables); i++)
		(void)unsetenv(variables[i]); /* cannot fail for a valid name */
	if (r < 0) {
		systemd_done(&s);
		return r;
	}
	*ret = s;
	return 0;
}

int systemd_notify(const struct systemd *s, const char *state)
{
	/* The manager reads notifications first; the bound is for one that hangs. */
	static const struct timeval wait = { .tv_sec = NOTIFY_WAIT_S };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int fd = -EBADF;
	size_t len;

	if (s->notify == NULL)
		return 0;
	len = strlen(s->notify);
	/* vsock: addresses are for the first process of a virtual machine. */
	if (s->notify[0] != '/' && s->notify[0] != '@')
		return -EAFNOSUPPORT;
	if (len >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, s->notify, len);
	if (s->notify[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
	    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		return -errno;
	return 0;
}

void systemd_done(struct systemd *s)
{
	cleanup_ptr_close(&s->socket);
	free(steal_ptr(&s->holder));
	free(steal_ptr(&s->notify));
}
