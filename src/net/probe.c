/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rpc/rpc.h>
#include <rpc/rpcb_prot.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "net/address.h"
#include "net/query.h"

#define CONNECT_TRIES_MAX 5
#define RESOLUTIONS_MAX 64 /* at a time: those that nobody waits for any more still have a thread */

/*
 * A resolution in flight. getaddrinfo() cannot be given a deadline, so it runs on a thread of its
 * own; whichever of the two sides leaves last frees the object.
 */
struct resolution {
	pthread_mutex_t lock; /* guards what follows; never held across the look-up */
	pthread_cond_t changed;
	unsigned int users;
	bool finished;
	int status; /* of getaddrinfo() */
	struct addrinfo *list;
	char name[256];
};

static _Atomic unsigned int resolutions; /* that have a thread */

static const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };

static void resolution_unref(struct resolution *r)
{
	bool last;

	pthread_mutex_lock(&r->lock);
	last = --r->users == 0;
	pthread_mutex_unlock(&r->lock);
	if (!last)
		return;
	if (r->list != NULL)
		freeaddrinfo(r->list);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

static void *resolve_thread(void *data)
{
	struct resolution *r = data;
	struct addrinfo *list = NULL;
	int status = getaddrinfo(r->name, NULL, &hints, &list);

	pthread_mutex_lock(&r->lock);
	r->status = status;
	r->list = status == 0 ? list : NULL;
	r->finished = true;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
	resolution_unref(r);
	resolutions--;
	return NULL;
}

static struct resolution *resolution_new(const char *name)
{
	struct resolution *r = calloc(1, sizeof(*r));
	pthread_condattr_t attr;

	if (r == NULL)
		return NULL;
	(void)strncpy(r->name, name, sizeof(r->name) - 1); /* at most NET_SERVER_MAX bytes */
	r->users = 1;
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->changed, &attr);
	pthread_condattr_destroy(&attr);
	return r;
}

static int resolution_start(struct resolution *r)
{
	pthread_attr_t attr;
	pthread_t thread;
	int e;

	if (resolutions++ >= RESOLUTIONS_MAX) {
		resolutions--;
		return -EAGAIN;
	}
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r->users++;
	e = pthread_create(&thread, &attr, resolve_thread, r);
	pthread_attr_destroy(&attr);
	if (e != 0) {
		r->users--;
		resolutions--;
	}
	return -e;
}

static bool resolution_wait(struct resolution *r, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_S),
	};
	bool finished;

	pthread_mutex_lock(&r->lock);
	while (!r->finished && pthread_cond_timedwait(&r->changed, &r->lock, &until) == 0)
		;
	finished = r->finished;
	pthread_mutex_unlock(&r->lock);
	return finished;
}

static void copy_addresses(const struct addrinfo *list, struct net_address *ret, size_t *ret_n)
{
	size_t n = 0;

	for (; list != NULL && n < NET_ADDRESSES_MAX; list = list->ai_next) {
		if (list->ai_addrlen > sizeof(ret[n].addr))
			continue;
		memset(&ret[n], 0, sizeof(ret[n]));
		memcpy(&ret[n].addr, list->ai_addr, list->ai_addrlen);
		ret[n].len = list->ai_addrlen;
		n++;
	}
	*ret_n = n;
}

/* Literals need no thread, and no look-up that could fail. */
static bool resolve_literal(const char *server, struct net_address *ret, size_t *ret_n)
{
	struct addrinfo numeric = hints, *list;

	numeric.ai_flags = AI_NUMERICHOST;
	if (getaddrinfo(server, NULL, &numeric, &list) != 0)
		return false;
	copy_addresses(list, ret, ret_n);
	freeaddrinfo(list);
	return *ret_n > 0;
}

int net_resolve(const char *server, struct net_address *ret, size_t *ret_n, struct error *err)
{
	struct resolution *r;
	int status;

	if (resolve_literal(server, ret, ret_n))
		return 0;
	r = resolution_new(server);
	if (r == NULL)
		return error_oom(err);
	status = resolution_start(r);
	if (status < 0) {
		resolution_unref(r);
		return error_sys(err, ERROR_UNAVAILABLE, -status,
				 "server '%s': its name cannot be looked up now, as the name service has left too many look-ups unanswered",
				 server);
	}
	if (!resolution_wait(r, clock_now_ns() + NET_RESOLVE_TIMEOUT_MS * CLOCK_NS_PER_MS)) {
		resolution_unref(r);
		return error_set(err, ERROR_UNAVAILABLE,
				 "server '%s': the name service did not answer within %d s", server,
				 NET_RESOLVE_TIMEOUT_MS / 1000);
	}
	status = r->status;
	*ret_n = 0;
	if (status == 0)
		copy_addresses(r->list, ret, ret_n);
	resolution_unref(r);
	if (status != 0)
		return error_set(err, ERROR_UNAVAILABLE, "server '%s': cannot resolve the name: %s",
				 server, gai_strerror(status));
	if (*ret_n == 0)
		return error_set(err, ERROR_UNAVAILABLE, "server '%s': the name has no address",
				 server);
	return 0;
}

void net_address_text(const struct net_address *a, char *text, size_t size)
{
	if (getnameinfo((const struct sockaddr *)&a->addr, a->len, text, (socklen_t)size, NULL, 0,
			NI_NUMERICHOST) != 0 &&
	    size > 0)
		text[0] = '\0';
}

static void set_port(struct net_address *a, uint16_t port)
{
	if (a->addr.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&a->addr)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&a->addr)->sin_port = htons(port);
}

void net_source_text(const struct net_address *a, char *text, size_t size)
{
	struct net_address to = *a, own = { .len = sizeof(own.addr) };
	cleanup_close int fd = socket(a->addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	text[0] = '\0';
	set_port(&to, NET_NFS_PORT); /* nothing is sent */
	if (fd < 0 || connect(fd, (struct sockaddr *)&to.addr, to.len) < 0 ||
	    getsockname(fd, (struct sockaddr *)&own.addr, &own.len) < 0)
		return;
	net_address_text(&own, text, size);
}

/*
 * Ports below 1024 are what "secure" exports ask for. Without the right to have one, or when all are
 * taken, any port has to do: the server says so if it minds.
 */
static void bind_reserved(int fd, sa_family_t family)
{
	struct sockaddr_storage any = { .ss_family = family };
	int saved = errno;

	(void)bindresvport_sa(fd, (struct sockaddr *)&any);
	errno = saved;
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
	struct net_address to = *a;
	cleanup_close int fd = -EBADF;
	const int on = 1;
	int r;

	fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (reserved)
		bind_reserved(fd, a->addr.ss_family);
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	set_port(&to, port);
	if (connect(fd, (struct sockaddr *)&to.addr, to.len) < 0) {
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

/* A reserved port may still be in use towards this very server: the next one will do. */
int net_connect(const struct net_address *a, uint16_t port)
{
	const uint64_t deadline = connect_deadline();
	int attempt, r = -EADDRINUSE;

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

/* Connects and calls. *ret_ns is what the answer took once connected. */
static int ask(const struct net_address *a, uint16_t port, const struct net_query *query,
	       uint32_t *ret_low, uint32_t *ret_high, uint64_t *ret_ns)
{
	cleanup_close int fd = net_connect(a, port);
	uint64_t begun;
	int r;

	if (fd < 0)
		return fd;
	begun = clock_now_ns();
	r = net_query(fd, query, begun + NET_PING_TIMEOUT_MS * CLOCK_NS_PER_MS, ret_low, ret_high);
	*ret_ns = clock_now_ns() - begun;
	return r;
}

int net_ping_timed(const struct net_address *a, uint16_t port, uint32_t program, uint32_t version,
		   uint32_t *ret_low, uint32_t *ret_high, uint64_t *ret_ns)
{
	const struct net_query null = { .program = program, .version = version, .procedure = NULLPROC };

	return ask(a, port, &null, ret_low, ret_high, ret_ns);
}

int net_ping(const struct net_address *a, uint16_t port, uint32_t program, uint32_t version,
	     uint32_t *ret_low, uint32_t *ret_high)
{
	uint64_t took;

	return net_ping_timed(a, port, program, version, ret_low, ret_high, &took);
}

#define UADDR_MAX 128

/* Universal address, "192.0.2.1.8.1": the last two numbers are the port (RFC 5665, section 5.2.3). */
static int port_of_uaddr(const char *uaddr, uint16_t *ret)
{
	const char *lo = strrchr(uaddr, '.');
	const char *hi;
	cleanup_free char *high = NULL;
	uint64_t h, l;

	if (lo == NULL || lo == uaddr)
		return -ENOENT;
	for (hi = lo - 1; hi > uaddr && *hi != '.'; hi--)
		;
	if (*hi != '.')
		return -ENOENT;
	high = strndup(hi + 1, (size_t)(lo - hi - 1));
	if (high == NULL)
		return -ENOMEM;
	if (str_parse_u64(high, 10, 255, &h) < 0 || str_parse_u64(lo + 1, 10, 255, &l) < 0 ||
	    h * 256 + l == 0)
		return -ENOENT;
	*ret = (uint16_t)(h * 256 + l);
	return 0;
}

/* A length that a peer makes up must not be allocated. */
static bool_t decode_uaddr(XDR *xdrs, char **uaddr)
{
	return xdr_string(xdrs, uaddr, UADDR_MAX);
}

int net_portmap(const struct net_address *a, uint32_t program, uint32_t version, uint16_t *ret)
{
	bool v6 = a->addr.ss_family == AF_INET6;
	char tcp[] = "tcp", tcp6[] = "tcp6", empty[] = "";
	RPCB query = { .r_prog = program,
		       .r_vers = version,
		       .r_netid = v6 ? tcp6 : tcp,
		       .r_addr = empty,
		       .r_owner = empty };
	char *uaddr = NULL;
	const struct net_query getaddr = { .program = RPCBPROG,
					   .version = RPCBVERS,
					   .procedure = RPCBPROC_GETADDR,
					   .encode = (xdrproc_t)xdr_rpcb,
					   .args = &query,
					   .decode = (xdrproc_t)decode_uaddr,
					   .results = &uaddr };
	uint32_t low, high;
	uint64_t took;
	int r;

	r = ask(a, PMAPPORT, &getaddr, &low, &high, &took);
	if (r == 0)
		r = uaddr != NULL && uaddr[0] != '\0' ? port_of_uaddr(uaddr, ret) : -ENOENT;
	free(uaddr);
	return r;
}
