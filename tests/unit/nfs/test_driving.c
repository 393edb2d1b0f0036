/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* nfs/connection.c: how long connections wait for a server, with a scripted peer. */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>

#include "base/clock.h"
#include "nfs/connection.h"
#include "check_util.h"
#include "nfs/error.h"

#define PROGRAM 400122
#define PROGRAM_VERSION 7
#define WORK 9 /* slow procedure */
#define LAST 0x80000000U
#define CALL_WORDS 18 /* without arguments, with its mark */
#define PING_WORDS 11 /* of a NULL call without a user */
#define STRETCH_MS 1500 /* in which the peer gets the processor, on a busy machine, too */

static const struct net_rpc_procedure null =
	NET_RPC_PROCEDURE(PROGRAM, PROGRAM_VERSION, 0, zdr_void, zdr_void, uint32_t);
static const struct net_rpc_procedure work =
	NET_RPC_PROCEDURE(PROGRAM, PROGRAM_VERSION, WORK, zdr_void, zdr_void, uint32_t);
static const struct net_rpc_user root = { .uid = 0 };
static const struct nfs_protocol protocol = { .version = 4, .null = &null };

/* Replaces the C library's, to skip hours. */
static _Atomic time_t ahead_s;

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = check_real_clock(id, ret);

	ret->tv_sec += ahead_s;
	return r;
}

enum manner {
	ANSWERS, /* answers NULL calls */
	LISTENS, /* reads, never answers */
	DEAF, /* does not even read */
	HALVES, /* sends half of the reply */
	DONE, /* answers everything */
};

struct peer {
	int fd;
	size_t call_words;
	enum manner manner;
	unsigned int pause_ms; /* before each answer */
	uint32_t nulls; /* NULL calls received */
};

static void *serve(void *data)
{
	struct peer *peer = data;
	uint32_t call[CALL_WORDS];

	while (peer->manner != DEAF && recv(peer->fd, call, peer->call_words * 4, MSG_WAITALL) ==
					       (ssize_t)peer->call_words * 4) {
		const uint32_t reply[] = { htonl(LAST | 24), call[1], htonl(1), 0, 0, 0, 0 };
		const bool is_null = ntohl(call[6]) == 0;

		clock_sleep_ms(peer->pause_ms);
		if (peer->manner == DONE || (peer->manner == ANSWERS && is_null))
			(void)!send(peer->fd, reply, sizeof(reply), MSG_NOSIGNAL);
		if (peer->manner == HALVES && !is_null)
			(void)!send(peer->fd, reply, sizeof(reply) / 2, MSG_NOSIGNAL);
		peer->nulls += is_null;
	}
	return NULL;
}

/* A connection and its peer. */
struct session {
	struct nfs_connection conn;
	struct peer peer;
	pthread_t thread;
};

/* Connect. Nobody serves the peer's end yet. */
static void session_open(struct session *s, enum manner manner)
{
	int fds[2];

	*s = (struct session){ .conn.protocol = &protocol,
			       .peer = { .manner = manner, .call_words = CALL_WORDS } };
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	s->peer.fd = fds[1];
	ck_assert_int_eq(net_rpc_new(&s->conn.rpc, fds[0], &root), 0);
}

static void session_serve(struct session *s)
{
	ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, &s->peer), 0);
}

static void session_close(struct session *s)
{
	nfs_connection_break(&s->conn, -ECONNABORTED);
	shutdown(s->peer.fd, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->peer.fd);
}

/* A port of the server, with one more connection. */
struct port {
	int listener;
	struct peer peer;
	pthread_t thread;
};

static void *serve_port(void *data)
{
	struct port *port = data;

	port->peer.fd = accept(port->listener, NULL, NULL);
	if (port->peer.fd < 0)
		return NULL; /* closed */
	serve(&port->peer);
	close(port->peer.fd);
	return NULL;
}

/* Let the connection be asked about at the port, which answers if it is open. */
static void port_open(struct port *port, struct nfs_connection *conn, bool is_open)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(address);

	*port = (struct port){
		.listener = socket(AF_INET, SOCK_STREAM, 0),
		.peer = { .manner = ANSWERS, .call_words = PING_WORDS },
	};
	ck_assert_int_eq(bind(port->listener, (struct sockaddr *)&address, len), 0);
	if (is_open)
		ck_assert_int_eq(listen(port->listener, 1), 0);
	ck_assert_int_eq(getsockname(port->listener, (struct sockaddr *)&address, &len), 0);
	memcpy(&conn->address.addr, &address, len);
	conn->address.len = len;
	conn->client.export.port = ntohs(address.sin_port);
	conn->client.ops = &nfs_connection_ops;
	ck_assert_int_eq(pthread_create(&port->thread, NULL, serve_port, port), 0);
}

static void port_close(struct port *port)
{
	shutdown(port->listener, SHUT_RDWR);
	pthread_join(port->thread, NULL);
	close(port->listener);
}

static void worked(void *data, int error, const void *results)
{
	struct nfs_connection *conn = data;

	(void)results;
	(void)error;
	conn->finished++;
}

static const struct row {
	const char *name;
	enum manner manner;
	bool slow, unbounded;
	time_t pause_s; /* during which nobody drives the connection, before one more stretch */
	int want; /* of the last stretch */
	bool closed; /* the server's port is */
} rows[] = {
	{ "done", DONE, true, false, 0, 0 },
	{ "done long ago", DONE, true, false, NFS_OPERATION_MAX_MS / 1000 + 1, 0 },
	{ "at work", ANSWERS, true, false, 0, 0 },
	{ "a piece of data for long", ANSWERS, true, false, NFS_DATA_MAX_MS / 1000 - 20, 0 },
	{ "a piece of data for too long", ANSWERS, true, false, NFS_DATA_MAX_MS / 1000 + 1,
	  -ETIMEDOUT },
	{ "at work for long", ANSWERS, true, true, NFS_OPERATION_MAX_MS / 1000 - 60, 0 },
	{ "at work for too long", ANSWERS, true, true, NFS_OPERATION_MAX_MS / 1000 + 1,
	  -ETIMEDOUT },
	{ "nothing that takes long", ANSWERS, false, false, 0, -ETIMEDOUT },
	{ "alive on another connection", LISTENS, true, false, 0, 0 },
	{ "refused on another connection", LISTENS, true, false, 0, -ETIMEDOUT, .closed = true },
	{ "gone", DEAF, true, false, 0, -ETIMEDOUT },
	{ "half a reply", HALVES, true, false, 0, -ETIMEDOUT },
};

static int stretch(struct session *s)
{
	struct nfs_connection *const conns[] = { &s->conn };

	return nfs_connection_drive(conns, 1, clock_now_ns() + STRETCH_MS * CLOCK_NS_PER_MS,
				    UINT64_MAX);
}

START_TEST(test_stretch)
{
	const struct row *row = &rows[_i];
	struct pollfd unused;
	struct session s;
	struct port port;

	session_open(&s, row->manner);
	port_open(&port, &s.conn, !row->closed);
	session_serve(&s);
	check_int(row->name, "call", net_rpc_call(s.conn.rpc, &work, NULL, worked, &s.conn), 0);
	s.conn.slow = row->slow;
	s.conn.unbounded = row->unbounded;
	if (row->pause_s > 0) {
		check_int(row->name, "sent", net_rpc_send(s.conn.rpc, &unused), 0);
		ahead_s += row->pause_s;
		/* An answer that has arrived meanwhile counts. */
		check_int(row->name, "first result", stretch(&s), 0);
	}
	if (s.conn.finished == 0)
		check_int(row->name, "result", stretch(&s), row->want);
	check_int(row->name, "broken", s.conn.client.broken, row->want < 0);
	check_int(row->name, "finished", s.conn.finished, row->manner == DONE || row->want < 0);
	session_close(&s);
	port_close(&port);
	/* Data that is not taken, or half of a reply, leaves nothing to ask about. */
	check_int(row->name, "NULL calls at the port", port.peer.nulls,
		  row->manner == LISTENS && !row->closed);
}
END_TEST

/* A connection that was full comes back without a reply, so that more is sent. */
START_TEST(test_full)
{
	struct session s;
	struct nfs_connection *const conns[] = { &s.conn };

	session_open(&s, LISTENS);
	s.conn.slow = 1;
	while (!nfs_connection_is_full(&s.conn))
		ck_assert_int_eq(net_rpc_call(s.conn.rpc, &work, NULL, worked, &s.conn), 0);
	session_serve(&s);
	/* The server answers no NULL call, so a stretch would end in an error. */
	check_int("full", "result",
		  nfs_connection_drive(conns, 1, clock_now_ns() + 60 * CLOCK_NS_PER_S, UINT64_MAX),
		  0);
	check_int("full", "finished", s.conn.finished, 0);
	check_that("full", "there is room again", !nfs_connection_is_full(&s.conn));
	session_close(&s);
}
END_TEST

/* Each stretch has its own NULL call. */
START_TEST(test_stretches)
{
	struct session s;
	unsigned int i;

	session_open(&s, ANSWERS);
	s.conn.slow = 1;
	session_serve(&s);
	check_int("stretches", "call", net_rpc_call(s.conn.rpc, &work, NULL, worked, &s.conn), 0);
	for (i = 0; i < 5; i++)
		check_int("stretches", "result", stretch(&s), 0);
	session_close(&s);
	check_int("stretches", "NULL calls", s.peer.nulls, 5);
}
END_TEST

/* A caller that has something to do at a time gets there, and a silent server is still noticed. */
START_TEST(test_wake)
{
	struct session s;
	struct nfs_connection *const conns[] = { &s.conn };
	uint64_t begun, end;

	session_open(&s, LISTENS);
	session_serve(&s);
	check_int("wake", "call", net_rpc_call(s.conn.rpc, &work, NULL, worked, &s.conn), 0);
	begun = clock_now_ns();
	end = begun + STRETCH_MS * CLOCK_NS_PER_MS;
	check_int("wake", "before the end",
		  nfs_connection_drive(conns, 1, end, begun + 20 * CLOCK_NS_PER_MS), 0);
	check_that("wake", "not too early", clock_now_ns() >= begun + 20 * CLOCK_NS_PER_MS);
	check_int("wake", "finished", s.conn.finished, 0);
	check_that("wake", "not broken", !s.conn.client.broken);
	check_int("wake", "behind the end",
		  nfs_connection_drive(conns, 1, end, end + CLOCK_NS_PER_S), -ETIMEDOUT);
	check_that("wake", "broken", s.conn.client.broken);
	session_close(&s);
}
END_TEST

static atomic_bool passes;

/* Time passes several times as fast. */
static void *pass_time(void *unused)
{
	(void)unused;
	while (passes) {
		clock_sleep_ms(250);
		ahead_s++;
	}
	return NULL;
}

static const struct {
	const char *name;
	enum manner manner;
	unsigned int slow;
	int want; /* in a bit more than two stretches */
	uint32_t nulls;
} wakings[] = {
	{ "silent", LISTENS, 0, -ETIMEDOUT, 0 },
	{ "no NULL reply", LISTENS, 1, -ETIMEDOUT, 1 },
	{ "at work", ANSWERS, 1, 0, 2 },
};

/* A caller that wakes often gives a silent server no more time, and asks one that is at work. */
START_TEST(test_wakes)
{
	const uint64_t stretch_ns = NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
	const char *row = wakings[_i].name;
	uint64_t begun, took_ns;
	struct session s;
	pthread_t clock;
	int r;

	session_open(&s, wakings[_i].manner);
	s.conn.client.ops = &nfs_connection_ops;
	s.conn.in_flight = 1;
	s.conn.slow = wakings[_i].slow;
	session_serve(&s);
	check_int(row, "call", net_rpc_call(s.conn.rpc, &work, NULL, worked, &s.conn), 0);
	begun = clock_now_ns();
	passes = true;
	ck_assert_int_eq(pthread_create(&clock, NULL, pass_time, NULL), 0);
	do {
		r = nfs_client_run_pair(&s.conn.client, NULL,
					clock_now_ns() + 50 * CLOCK_NS_PER_MS);
		took_ns = clock_now_ns() - begun;
	} while (r == 0 && took_ns < 9 * stretch_ns / 4);
	passes = false;
	pthread_join(clock, NULL);
	check_int(row, "result", r, wakings[_i].want);
	check_that(row, "not too early", took_ns >= stretch_ns);
	session_close(&s);
	check_int(row, "NULL calls", s.peer.nulls, wakings[_i].nulls);
}
END_TEST

/* -------- a server that wants the call later -------- */

struct later {
	struct nfs_client client;
	bool in_grace;
};

static int start_later(struct nfs_client *c, struct nfs_op *op)
{
	op->error = -EAGAIN;
	op->finished = true;
	op->in_grace = c->in_grace = ((struct later *)c)->in_grace;
	return 0;
}

static const struct nfs_client_ops later_ops = { .start = start_later };

static const struct {
	const char *row;
	bool in_grace;
	unsigned int min_ms, max_ms;
	unsigned int retry_ms;
	const char *word;
} laters[] = {
	{ "grace period", true, 0, 2 * NFS_GRACE_TIMEOUT_MS, NFS_GRACE_RETRY_MS, "grace period" },
	{ "delay", false, NFS_CALL_TIMEOUT_MS / 2, NFS_CALL_TIMEOUT_MS, 0, "retry later" },
};

START_TEST(test_later)
{
	char server[] = "nas", share[] = "/";
	struct later later = {
		.client = { .ops = &later_ops, .export = { .server = server, .share = share } },
		.in_grace = laters[_i].in_grace,
	};
	struct nfs_op op = { .type = NFS_OP_RENAME };
	struct error err = { .code = ERROR_OK };
	uint64_t begun = clock_now_ns(), took_ms;
	int r = nfs_client_call(&later.client, &op);

	took_ms = (clock_now_ns() - begun) / CLOCK_NS_PER_MS;
	check_int(laters[_i].row, "result", r, -EAGAIN);
	check_that(laters[_i].row, "not too early", took_ms >= laters[_i].min_ms);
	check_that(laters[_i].row, "not too late", took_ms <= laters[_i].max_ms);
	(void)nfs_error_set(&err, &later.client, r, "renaming 'a'");
	check_error(laters[_i].row, &err, ERROR_UNAVAILABLE, laters[_i].word);
	check_int(laters[_i].row, "retry", err.retry_ms, laters[_i].retry_ms);
}
END_TEST

static bool is_in_grace;

static void wanted_later(void *data, int error, const void *results)
{
	struct nfs_op *op = data;

	(void)results;
	op->in_grace = is_in_grace;
	nfs_op_finish(op, error < 0 ? error : -EAGAIN);
}

static int start_work(struct nfs_connection *conn, struct nfs_op *op)
{
	return net_rpc_call(conn->rpc, &work, NULL, wanted_later, op);
}

static const struct {
	const char *row;
	bool in_grace;
	unsigned int pause_ms;
} pauses[] = {
	{ "grace period, slow answers", true, 300 },
	{ "grace period, fast answers", true, 1 },
	{ "delay, slow answers", false, 420 },
	{ "delay, fast answers", false, 1 },
};

/* The last attempt is answered when the caller's patience is over: the server is not silent. */
START_TEST(test_patience)
{
	static const struct nfs_protocol later_protocol = { .null = &null, .start = start_work };
	struct nfs_op op = { .type = NFS_OP_RENAME };
	struct session s;

	session_open(&s, DONE);
	is_in_grace = pauses[_i].in_grace;
	s.peer.pause_ms = pauses[_i].pause_ms;
	s.conn.client.ops = &nfs_connection_ops;
	s.conn.protocol = &later_protocol;
	session_serve(&s);
	check_int(pauses[_i].row, "result", nfs_client_call(&s.conn.client, &op), -EAGAIN);
	check_int(pauses[_i].row, "broken", s.conn.client.broken, false);
	session_close(&s);
}
END_TEST

/* An operation that succeeds behind it does not change what the refusal was. */
START_TEST(test_grace_of_one)
{
	struct nfs_op refused = { .type = NFS_OP_RENAME, .in_grace = true };
	struct nfs_op done = { .type = NFS_OP_LOOKUP };
	struct error err = { .code = ERROR_OK };
	char server[] = "nas", share[] = "/";
	struct session s;

	session_open(&s, DONE);
	session_serve(&s);
	s.conn.client.export.server = server;
	s.conn.client.export.share = share;
	refused.client = done.client = &s.conn.client;
	s.conn.in_flight = 2;
	nfs_op_finish(&refused, -EAGAIN);
	nfs_op_finish(&done, 0);
	(void)nfs_error_set(&err, &s.conn.client, refused.error, "renaming 'a'");
	check_error("grace period of one", &err, ERROR_UNAVAILABLE, "grace period");
	check_int("grace period of one", "retry", err.retry_ms, NFS_GRACE_RETRY_MS);
	session_close(&s);
}
END_TEST

CHECK_MAIN("driving", .tests = { test_stretches, test_full, test_wake, test_grace_of_one },
	   .loops = { { test_stretch, ARRAY_SIZE(rows) },
		      { test_wakes, ARRAY_SIZE(wakings) },
		      { test_later, ARRAY_SIZE(laters) },
		      { test_patience, ARRAY_SIZE(pauses) } })
