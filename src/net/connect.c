/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rpc/rpc.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define CONNECT_TRIES_MAX 5

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

static int connect_once(const struct net_address *a, uint16_t port, bool reserved,
			uint64_t deadline_ns)
{
	/* A reset at close keeps the few reserved ports out of TIME_WAIT. */
	const struct linger linger = { .l_onoff = 1, .l_linger = 0 };
	const struct net_address to = address_with_port(a, port);
	struct sockaddr_storage any = { .ss_family = a->addr.ss_family };
	cleanup_close int fd = -EBADF;
	const int on = 1;
	int r;

	fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/*
	 * "secure" exports require a port below 1024. If we may not bind one, or all are taken, use
	 * any port; the server refuses it if it minds.
	 */
	if (reserved)
		(void)bindresvport_sa(fd, (struct sockaddr *)&any);
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
	struct sockaddr_storage any = { .ss_family = a->addr.ss_family };

	return fd >= 0 && bindresvport_sa(fd, (struct sockaddr *)&any) == 0;
}
