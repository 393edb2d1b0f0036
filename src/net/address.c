/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"

/* Resolutions at a time, counting those whose callers gave up but whose threads still run. */
#define RESOLUTIONS_MAX 64

/*
 * After that time another lookup of the same name begins beside the first one, and after twice the
 * time before, each further one: a lookup may never end. The C library sets no limit to a name
 * service that it has connected to by TCP, as it does if an answer is too long for UDP.
 */
#define RESOLUTION_AGAIN_S 30

static bool is_host_name(const char *s)
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
	/* A zone may follow the address: fe80::1%eth0. */
	if (s[len] == '%' && !is_host_name(s + len + 1))
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

/* Check for four numbers: no host name has this form, so it can only be an address. */
static bool is_dotted_quad(const char *s)
{
	unsigned int dots = 0;
	const char *p;

	for (p = s; *p != '\0'; p++) {
		if (*p != '.' && !isdigit((unsigned char)*p))
			return false;
		dots += *p == '.';
	}
	return dots == 3;
}

/* Check the labels of a host name, between its dots. One dot may end the name. */
static int check_labels(const char *name, struct error *err)
{
	const char *label = name;
	size_t len;

	for (;;) {
		len = strcspn(label, ".");
		if (len == 0)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "server: the name has an empty label");
		if (len > NET_LABEL_MAX)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "server: a label has %zu bytes, the limit is %d", len,
					 NET_LABEL_MAX);
		label += len;
		if (label[0] == '\0' || label[1] == '\0')
			break;
		label++;
	}
	len = (size_t)(label - name);
	if (len > NET_NAME_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "server: has %zu bytes, the limit is %d", len, NET_NAME_MAX);
	return 0;
}

int net_server_check(const char *server, struct error *err)
{
	struct in_addr unused;
	size_t len = strlen(server);

	if (len == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "server: must not be empty");
	if (len > NET_SERVER_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "server: has %zu bytes, the limit is %d", len, NET_NAME_MAX);
	if (server[0] == '-' || server[0] == '.')
		return error_set(err, ERROR_INVALID_ARGUMENT, "server: must not start with '%c'",
				 server[0]);
	if (is_ipv6(server) || is_bracketed(server))
		return 0;
	if (!is_host_name(server))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "server: must be a host name or an IP address, without port or path");
	/* The resolver also takes numbers that C writes in octal and hexadecimal. */
	if (is_dotted_quad(server) && inet_aton(server, &unused) == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "server: looks like an IPv4 address but is not a valid one");
	return check_labels(server, err);
}

unsigned int net_server_number(const char *server, uint16_t port)
{
	return (unsigned int)(str_hash(server, strlen(server)) + port);
}

/* -------- resolution -------- */

/*
 * A resolution in flight. getaddrinfo() takes no deadline, so it runs on a thread of its own, and
 * all that ask for the name meanwhile wait for that one: a name whose name service is silent for
 * minutes takes few threads, and leaves the others to other names. Whoever leaves last frees it.
 */
struct resolution {
	struct list link; /* in resolutions, until it has finished */
	uint64_t begun_ns;
	unsigned int users;
	bool finished;
	int status; /* of getaddrinfo() */
	struct addrinfo *list;
	char name[NET_SERVER_MAX + 1];
};

/* guards what follows, and all resolutions; innermost, not held during a lookup */
static pthread_mutex_t resolution_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list resolutions = { &resolutions, &resolutions };
static unsigned int resolution_threads;
static pthread_cond_t resolution_finished;
static pthread_once_t resolution_once = PTHREAD_ONCE_INIT;

static const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };

static void resolution_init(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&resolution_finished, &attr);
	pthread_condattr_destroy(&attr);
}

/* With the lock held, as all below, unless they say otherwise. */
static void resolution_unref(struct resolution *res)
{
	if (--res->users > 0)
		return;
	list_remove(&res->link);
	if (res->list != NULL)
		freeaddrinfo(res->list);
	free(res);
}

/* Without the lock. */
static void *resolution_thread(void *data)
{
	struct resolution *res = data;
	struct addrinfo *list = NULL;
	int status = getaddrinfo(res->name, NULL, &hints, &list);

	pthread_mutex_lock(&resolution_lock);
	res->status = status;
	res->list = status == 0 ? list : NULL;
	res->finished = true;
	list_remove(&res->link);
	pthread_cond_broadcast(&resolution_finished);
	resolution_unref(res);
	resolution_threads--;
	pthread_mutex_unlock(&resolution_lock);
	return NULL;
}

static int resolution_start(struct resolution *res)
{
	pthread_attr_t attr;
	pthread_t thread;
	int e;

	if (resolution_threads >= RESOLUTIONS_MAX)
		return -EAGAIN;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	e = pthread_create(&thread, &attr, resolution_thread, res);
	pthread_attr_destroy(&attr);
	if (e != 0)
		return -e;
	resolution_threads++;
	res->users++;
	return 0;
}

/* The one that has begun last, or NULL; and whether another one is due. */
static struct resolution *find_resolution(const char *name, bool *ret_is_due)
{
	uint64_t limit_ns = RESOLUTION_AGAIN_S * CLOCK_NS_PER_S;
	struct resolution *last = NULL;
	struct list *pos;

	list_for_each(pos, &resolutions) {
		struct resolution *res = container_of(pos, struct resolution, link);

		if (strcmp(res->name, name) != 0)
			continue;
		if (last != NULL)
			limit_ns *= 2;
		last = res;
	}
	*ret_is_due = last == NULL || clock_now_ns() - last->begun_ns > limit_ns;
	return last;
}

static int begin_resolution(const char *name, struct resolution **ret)
{
	struct resolution *res = calloc(1, sizeof(*res));
	int r;

	if (res == NULL)
		return -ENOMEM;
	/* At most NET_SERVER_MAX bytes. */
	(void)strncpy(res->name, name, sizeof(res->name) - 1);
	res->begun_ns = clock_now_ns();
	list_init(&res->link);
	r = resolution_start(res);
	if (r < 0) {
		free(res);
		return r;
	}
	list_add_tail(&resolutions, &res->link);
	*ret = res;
	return 0;
}

/* Join the resolution of the name, or start one. The caller owes resolution_unref(). */
static int join_resolution(const char *name, struct resolution **ret)
{
	bool is_due;
	struct resolution *res = find_resolution(name, &is_due);
	const int r = is_due ? begin_resolution(name, &res) : 0;

	if (res == NULL)
		return r;
	res->users++;
	*ret = res;
	return 0;
}

static bool resolution_wait(const struct resolution *res, uint64_t deadline_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_S),
	};

	while (!res->finished &&
	       pthread_cond_timedwait(&resolution_finished, &resolution_lock, &until) == 0)
		;
	return res->finished;
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

/* Literals need neither a thread nor a lookup that could fail. */
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

/*
 * Report late answers and refusals with one text, because a CO reports each new text again and a
 * failing name service gives both in turn. The code is UNAVAILABLE in both cases: an earlier
 * attempt may have been successful and its answer lost, so a name that is unknown today must not
 * end the operation.
 */
static int no_name_service(const char *server, struct error *err)
{
	(void)error_set(err, ERROR_UNAVAILABLE,
			"server '%s': the name service does not answer; check the DNS where csi-nfs runs",
			server);
	return -EHOSTDOWN;
}

static int errno_of_status(int status)
{
	switch (status) {
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_AGAIN:
	case EAI_SYSTEM:
	case EAI_FAIL:
		return -EHOSTDOWN;
	default:
		return 0;
	}
}

/* Return 0, also for a name without an address; -ENOMEM; or another errno if nobody tells. */
static int look_up(const char *name, struct net_address *ret, size_t *ret_n)
{
	const uint64_t deadline = clock_now_ns() + NET_RESOLVE_TIMEOUT_MS * CLOCK_NS_PER_MS;
	struct resolution *res;
	int r;

	(void)pthread_once(&resolution_once, resolution_init);
	pthread_mutex_lock(&resolution_lock);
	r = join_resolution(name, &res);
	if (r == 0) {
		r = resolution_wait(res, deadline) ? errno_of_status(res->status) : -EHOSTDOWN;
		*ret_n = 0;
		if (res->finished && res->list != NULL)
			copy_addresses(res->list, ret, ret_n);
		resolution_unref(res);
	}
	pthread_mutex_unlock(&resolution_lock);
	return r;
}

int net_resolve(const char *server, struct net_address *ret, size_t *ret_n, struct error *err)
{
	int r;

	if (resolve_literal(server, ret, ret_n))
		return 0;
	r = look_up(server, ret, ret_n);
	if (r == -ENOMEM)
		return error_oom(err);
	if (r < 0)
		return no_name_service(server, err);
	if (*ret_n > 0)
		return 0;
	(void)error_set(err, ERROR_UNAVAILABLE,
			"server '%s': cannot resolve the name: it has no address where csi-nfs runs; correct the name, or add it to the DNS",
			server);
	return -NET_ENAME;
}

void net_address_text(const struct net_address *a, char *text, size_t size)
{
	if (size > 0 && getnameinfo((const struct sockaddr *)&a->addr, a->len, text,
				    (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
		text[0] = '\0';
}
