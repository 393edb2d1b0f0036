/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* nfs/connect.c and nfs/pool.c, with a server on the loopback that answers NULL calls. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "nfs/connection.h"
#include "nfs/pool.h"
#include "nfs/v4_compound.h"
#include "check_util.h"

#define LAST 0x80000000U
#define CALL_WORDS_MAX 1024
#define REPLY_WORDS_MAX 16
#define LOST_S (NFS_CONNECT_MAX_MS / 1000) /* more than any call may take */

/* Replaces the C library's, to skip the time that a client waits. */
static _Atomic time_t ahead_s;

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = check_real_clock(id, ret);

	ret->tv_sec += ahead_s;
	return r;
}

/* What the server does with a call that is not a NULL call; it answers MNT unless MNT_HANGS. */
enum manner {
	HANGS, /* never answers */
	HANGS_UP,
	MNT_HANGS,
	DELAYS, /* at first; then it fails */
	IS_IN_GRACE,
	IS_OLD, /* has only version 2, also according to NULL calls */
};

static struct {
	enum manner manner;
	atomic_uint nulls, calls;
	uint16_t port;
} server;

#define DELAYED 3 /* calls of DELAYS */

static void reply(int fd, uint32_t xid, const uint32_t *words, size_t n)
{
	uint32_t be[7 + REPLY_WORDS_MAX] = { htonl(LAST | (uint32_t)(6 + n) * 4), xid, htonl(1) };
	size_t i;

	for (i = 0; i < n; i++)
		be[7 + i] = htonl(words[i]);
	(void)!send(fd, be, (7 + n) * 4, MSG_NOSIGNAL);
}

/* Refuse the version of a call: PROG_MISMATCH. */
static void refuse_version(int fd, uint32_t xid)
{
	const uint32_t be[] = { htonl(LAST | 32), xid,      htonl(1), 0, 0, 0,
				htonl(2),         htonl(2), htonl(2) };

	(void)!send(fd, be, sizeof(be), MSG_NOSIGNAL);
}

/* Refuse a compound of version 4 as a whole. */
static void refuse(int fd, uint32_t xid, uint32_t status)
{
	reply(fd, xid, (const uint32_t[]){ status, 0, 0 }, 3);
}

/* Returns false to end the connection. */
static bool answer_call(int fd, const uint32_t *call)
{
	static const uint32_t mounted[] = { 0, 4, 1, 0 }; /* a handle of 4 bytes, any flavor */
	const uint32_t mark = htonl(LAST | 4);

	if (ntohl(call[3]) == NET_MOUNT_PROGRAM && server.manner != MNT_HANGS) {
		reply(fd, call[0], mounted, ARRAY_SIZE(mounted));
		return true;
	}
	server.calls++;
	switch (server.manner) {
	case HANGS:
	case MNT_HANGS:
		/* Wakes the client, which sees that it has waited for too long. */
		ahead_s += LOST_S;
		(void)!send(fd, &mark, sizeof(mark), MSG_NOSIGNAL);
		return true;
	case DELAYS:
		refuse(fd, call[0], server.calls <= DELAYED ? NFS4ERR_DELAY : NFS4ERR_SERVERFAULT);
		return true;
	case IS_IN_GRACE:
		refuse(fd, call[0], NFS4ERR_GRACE);
		return true;
	default:
		return false;
	}
}

static void *serve_one(void *data)
{
	const int fd = (int)(intptr_t)data;
	uint32_t mark, call[CALL_WORDS_MAX];
	bool goes_on = true;

	while (goes_on && recv(fd, &mark, sizeof(mark), MSG_WAITALL) == sizeof(mark)) {
		const size_t len = ntohl(mark) & ~LAST;

		if (len > sizeof(call) || recv(fd, call, len, MSG_WAITALL) != (ssize_t)len)
			break;
		if (call[5] == 0) {
			server.nulls++;
			if (server.manner == IS_OLD)
				refuse_version(fd, call[0]);
			else
				reply(fd, call[0], NULL, 0);
		} else {
			goes_on = answer_call(fd, call);
		}
	}
	close(fd);
	return NULL;
}

static void *serve(void *data)
{
	const int listener = (int)(intptr_t)data;
	pthread_t thread;

	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		ck_assert_int_eq(pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd), 0);
		pthread_detach(thread);
	}
	return NULL;
}

static void set_up(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	const int listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;

	ck_assert(bind(listener, (struct sockaddr *)&address, len) == 0);
	ck_assert(listen(listener, 16) == 0);
	ck_assert(getsockname(listener, (struct sockaddr *)&address, &len) == 0);
	server.port = ntohs(address.sin_port);
	server.nulls = server.calls = 0;
	ck_assert_int_eq(pthread_create(&thread, NULL, serve, (void *)(intptr_t)listener), 0);
	pthread_detach(thread);
}

static char name[] = "127.0.0.1", share[] = "/share";

static const struct {
	const char *row;
	unsigned int version;
	bool has_minor;
	unsigned int minor;
} versions[] = {
	{ "version 3", 3 },
	{ "version 4.0", 4, true, 0 },
	{ "version 4.1", 4, true, 1 },
	{ "version 4.2", 4, true, 2 },
	{ "version 4", 4 },
	{ "any version", 0 },
};

static struct nfs_export export_of(int i)
{
	return (struct nfs_export){
		.server = name,
		.share = share,
		.port = server.port,
		.mount_port = server.port,
		.version = versions[i].version,
		.has_minor = versions[i].has_minor,
		.minor = versions[i].minor,
		.any_port = true,
	};
}

/* A server that answers NULL calls and nothing else is down, and its callers are not kept. */
START_TEST(test_hangs)
{
	const struct nfs_export e = export_of(_i);
	struct nfs_client *c = NULL;
	struct nfs_pool *pool;
	unsigned int calls, i;

	server.manner = HANGS;
	ck_assert_int_eq(nfs_pool_new(&pool, nfs_client_connect, 0), 0);
	check_int(versions[_i].row, "result", nfs_client_connect(&c, &e, NULL), -EHOSTDOWN);
	calls = server.calls;
	for (i = 0; i < 3; i++) {
		struct error err = { .code = ERROR_OK };

		check_that(versions[_i].row, "refused", nfs_pool_lease(pool, &e, &c, &err) < 0);
		check_error(versions[_i].row, &err, ERROR_UNAVAILABLE, "does not answer");
	}
	check_int(versions[_i].row, "asked", server.calls - calls, 1);
	nfs_pool_free(pool);
}
END_TEST

/* The mount service is another one: the NFS service may be well. */
START_TEST(test_mnt_hangs)
{
	const struct nfs_export e = export_of(0);
	struct error err = { .code = ERROR_OK };
	struct nfs_client *c = NULL;

	server.manner = MNT_HANGS;
	check_int("mount service", "result", nfs_client_connect(&c, &e, &err), -ETIMEDOUT);
	check_error("mount service", &err, ERROR_UNAVAILABLE, "does not answer");
}
END_TEST

/* Too many open files say nothing about the server: the next caller asks it. */
START_TEST(test_no_descriptors)
{
	const struct nfs_export e = export_of(_i);
	struct error err = { .code = ERROR_OK };
	struct nfs_client *c = NULL;
	struct rlimit usual, none;
	struct nfs_pool *pool;
	unsigned int nulls;

	server.manner = HANGS_UP;
	ck_assert_int_eq(nfs_pool_new(&pool, nfs_client_connect, 0), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = usual.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	check_int(versions[_i].row, "result", nfs_pool_lease(pool, &e, &c, &err), -EMFILE);
	check_error(versions[_i].row, &err, ERROR_UNAVAILABLE, "Too many open files");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
	nulls = server.nulls;
	error_clear(&err);
	check_that(versions[_i].row, "fails", nfs_pool_lease(pool, &e, &c, &err) < 0);
	check_error(versions[_i].row, &err, ERROR_UNAVAILABLE, "the connection broke");
	check_that(versions[_i].row, "asked", server.nulls > nulls);
	nfs_pool_free(pool);
}
END_TEST

/* What the server refuses has an errno: a share that was reached before may have something. */
START_TEST(test_old)
{
	const struct nfs_export e = export_of(_i);
	struct error err = { .code = ERROR_OK };
	struct nfs_client *c = NULL;

	server.manner = IS_OLD;
	check_int(versions[_i].row, "result", nfs_client_connect(&c, &e, &err), -EPROTONOSUPPORT);
	check_error(versions[_i].row, &err, ERROR_FAILED_PRECONDITION, "does not serve");
	check_int(versions[_i].row, "errno", err.sys, EPROTONOSUPPORT);
}
END_TEST

/* A server that is busy is asked again, also before there is a session. */
START_TEST(test_delays)
{
	const struct nfs_export e = export_of(_i);
	struct error err = { .code = ERROR_OK };
	struct nfs_client *c = NULL;

	if (e.version != 4 || !e.has_minor)
		return;
	server.manner = DELAYS;
	check_int(versions[_i].row, "result", nfs_client_connect(&c, &e, &err), -EREMOTEIO);
	check_error(versions[_i].row, &err, ERROR_UNAVAILABLE, "looking up the export");
	check_int(versions[_i].row, "calls", server.calls, DELAYED + 1);
	check_int(versions[_i].row, "errno", err.sys, EREMOTEIO);
}
END_TEST

/* The caller learns when another try is worth it. */
START_TEST(test_grace)
{
	const struct nfs_export e = export_of(1);
	struct error err = { .code = ERROR_OK };
	struct nfs_client *c = NULL;

	server.manner = IS_IN_GRACE;
	check_int("grace period", "result", nfs_client_connect(&c, &e, &err), -EAGAIN);
	check_error("grace period", &err, ERROR_UNAVAILABLE, "grace period");
	check_int("grace period", "retry", err.retry_ms, NFS_GRACE_RETRY_MS);
}
END_TEST

static unsigned int connections;
static int connect_error; /* 0: none */

static void free_bare_client(struct nfs_client *c)
{
	nfs_export_done(&c->export);
	free(c);
}

static int connect_bare_client(struct nfs_client **ret, const struct nfs_export *e,
			       struct error *err)
{
	static const struct nfs_client_ops ops = { .free = free_bare_client };
	struct nfs_client *c = calloc(1, sizeof(*c));

	ck_assert(c != NULL);
	if (connect_error < 0) {
		free(c);
		(void)error_set(err, connect_error == -ENOENT ? ERROR_NOT_FOUND : ERROR_UNAVAILABLE,
				"nothing there");
		return connect_error;
	}
	ck_assert(nfs_export_copy(&c->export, e) == 0);
	c->ops = &ops;
	connections++;
	*ret = c;
	return 0;
}

/* Make calls for longer than a client is used, and return what the last one gets. */
static int lease_for_long(struct nfs_pool *pool, const struct nfs_export *e)
{
	unsigned int s;
	int r = 0;

	for (s = 0; r == 0 && s <= 2 * NFS_POOL_AGE_S; s += NFS_POOL_IDLE_S / 2) {
		struct nfs_client *c = NULL;

		r = nfs_pool_lease(pool, e, &c, NULL);
		nfs_pool_return(pool, c);
		nfs_pool_sweep(pool);
		ahead_s += NFS_POOL_IDLE_S / 2;
	}
	return r;
}

/*
 * A server's name leads to another address, and the machine at the former one still answers. Calls
 * that come all the time do not go there for ever.
 */
START_TEST(test_age)
{
	const struct nfs_export e = export_of(0);
	struct nfs_pool *pool;

	connections = 0;
	connect_error = 0;
	ck_assert_int_eq(nfs_pool_new(&pool, connect_bare_client, 0), 0);
	check_int("age", "result", lease_for_long(pool, &e), 0);
	check_that("age", "not always the same", connections >= 2);
	check_that("age", "not one for each call", connections <= 3);
	nfs_pool_free(pool);
}
END_TEST

/* A client that works is better than none. What the new address answers counts. */
START_TEST(test_age_without_another)
{
	static const int nowhere[] = { -EHOSTDOWN, -NET_ENAME, -EMFILE, -ECONNABORTED, -EREMOTEIO };
	const struct nfs_export e = export_of(0);
	struct nfs_client *c = NULL;
	struct nfs_pool *pool;
	size_t i;

	connect_error = 0;
	ck_assert_int_eq(nfs_pool_new(&pool, connect_bare_client, 0), 0);
	ck_assert_int_eq(nfs_pool_lease(pool, &e, &c, NULL), 0);
	nfs_pool_return(pool, c);
	for (i = 0; i < ARRAY_SIZE(nowhere); i++) {
		connect_error = nowhere[i];
		check_int("nowhere", "result", lease_for_long(pool, &e), 0);
	}
	connect_error = -ENOENT;
	check_int("moved", "result", lease_for_long(pool, &e), -ENOENT);
	nfs_pool_free(pool);
	ahead_s = 0; /* or the framework finds that the test has lasted for too long */
}
END_TEST

CHECK_MAIN("connect", .setup = set_up,
	   .tests = { test_mnt_hangs, test_grace, test_age, test_age_without_another },
	   .loops = { { test_hangs, ARRAY_SIZE(versions) },
		      { test_old, ARRAY_SIZE(versions) },
		      { test_no_descriptors, ARRAY_SIZE(versions) },
		      { test_delays, ARRAY_SIZE(versions) } })
