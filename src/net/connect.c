/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "net/tirpc.h"

#define CONNECT_TRIES_MAX 5

bool net_is_own_failure(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS;
}

static struct net_address address_with_port(const struct net_address *a, uint16_t port)
{
	struct net_address to = *a;

	if (a->addr.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&to.addr)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&to.addr)->sin_port = htons(port);
	return to;
}

void net_source_text(const struct net_address *a, char *text, size_t size)
{
	struct net_address to = address_with_port(a, NET_NFS_PORT);
	struct net_address own = { .len = sizeof(own.addr) };
	/* Connecting a datagram socket chooses the route and sends nothing. */
	cleanup_close int fd = socket(a->addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	text[0] = '\0';
	if (fd < 0 || connect(fd, (struct sockaddr *)&to.addr, to.len) < 0 ||
	    getsockname(fd, (struct sockaddr *)&own.addr, &own.len) < 0)
		return;
	net_address_text(&own, text, size);
}

static int finish_connect(int fd, uint64_t deadline_ns)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int n, e = 0;

	do
		n = poll(&p, 1, clock_left_ms(deadline_ns));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
		return -errno;
	return -e;
}

/*
 * Whether the kernel lets this process bind a reserved port. An unprivileged process has no use for
 * libtirpc, and need not load it.
 */
static bool may_bind_reserved(sa_family_t family)
{
	const struct net_address any = { .addr.ss_family = family };
	const struct net_address last = address_with_port(&any, IPPORT_RESERVED - 1);
	const socklen_t len =
		family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	cleanup_close int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 &&
	       (bind(fd, (const struct sockaddr *)&last.addr, len) == 0 || errno == EADDRINUSE);
}

/* Return whether the socket has a reserved port now. */
static bool bind_reserved(int fd, sa_family_t family)
{
	struct sockaddr_storage any = { .ss_family = family };

	return may_bind_reserved(family) && libtirpc_load(NULL) == 0 &&
	       bindresvport_sa(fd, (struct sockaddr *)&any) == 0;
}

static int connect_once(const struct net_address *a, uint16_t port, bool reserved,
			uint64_t deadline_ns)
{
	/* A reset at close keeps the few reserved ports out of TIME_WAIT. */
	const struct linger linger = { .l_onoff = 1, .l_linger = 0 };
	const struct net_address to = address_with_port(a, port);
	cleanup_close int fd = -EBADF;
	const int on = 1;
	int r;

	fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/*
	 * "secure" exports require a port below 1024. If we may not bind one, all are taken or
	 * libtirpc is missing, use any port; the server refuses it if it minds.
	 */
	if (reserved)
		(void)bind_reserved(fd, a->addr.ss_family);
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (const struct sockaddr *)&to.addr, to.len) < 0) {
		if (errno != EINPROGRESS)
			return -errno;
		r = finish_connect(fd, deadline_ns);
		if (r < 0)
			return r;
	}
	return steal_fd(&fd);
}

static uint64_t connect_deadline(void)
{
	return clock_now_ns() + NET_CONNECT_TIMEOUT_MS * CLOCK_NS_PER_MS;
}

int net_connect(const struct net_address *a, uint16_t port)
{
	const uint64_t deadline = connect_deadline();
	int attempt, r = -EADDRINUSE;

	/*
	 * A reserved port may still be connected to this very server; the next bind picks another.
	 */
	for (attempt = 0; attempt < CONNECT_TRIES_MAX; attempt++) {
		r = connect_once(a, port, true, deadline);
		if (r != -EADDRINUSE && r != -EADDRNOTAVAIL)
			break;
	}
	return r;
}

int net_connect_unreserved(const struct net_address *a, uint16_t port)
{
	return connect_once(a, port, false, connect_deadline());
}

bool net_may_reserve_port(const struct net_address *a)
{
	cleanup_close int fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && bind_reserved(fd, a->addr.ss_family);
}

int net_reserve_prepare(struct error *err)
{
	return may_bind_reserved(AF_INET) ? libtirpc_load(err) : 0;
}
