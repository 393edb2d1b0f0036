/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* net/rpc.c and net/zdr.c, against a peer that sends byte by byte. */

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/rpc.h"
#include "net/zdr.h"
#include "nfs/v3_results.h"
#include "nfs/v4_compound.h"
#include "check_util.h"

#define PROGRAM 400122
#define PROGRAM_VERSION 7
#define PROCEDURE 9

#define WORDS_MAX 64
#define LAST 0x80000000U
#define CALL_WORDS 19 /* a call of number, with its mark */

/* A procedure with a number as argument and as result. */
static const struct net_rpc_procedure number =
	NET_RPC_PROCEDURE(PROGRAM, PROGRAM_VERSION, PROCEDURE, zdr_u_int, zdr_u_int, uint32_t);

struct text {
	char *data;
	uint32_t len;
};

static uint32_t encode_text(ZDR *zdr, struct text *t)
{
	return zdr_u_int(zdr, &t->len) && net_zdr_put_fixed(zdr, t->data, t->len);
}

static const struct net_rpc_procedure texts =
	NET_RPC_PROCEDURE(PROGRAM, PROGRAM_VERSION, PROCEDURE, encode_text, zdr_void, uint32_t);

struct call {
	unsigned int finished;
	int error;
	uint32_t result;
};

static struct net_rpc *rpc;
static int peer = -1;

static void set_up(void)
{
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	peer = fds[1];
	ck_assert_int_eq(net_rpc_new(&rpc, fds[0], &(struct net_rpc_user){ 1000, 2000 }), 0);
}

/* Called by tests too whose calls are on their stack. */
static void end(void)
{
	net_rpc_free(rpc, -ECONNABORTED);
	rpc = NULL;
}

static void tear_down(void)
{
	end();
	if (peer >= 0)
		close(peer);
	peer = -1;
}

static void replied(void *data, int error, const void *results)
{
	struct call *call = data;

	call->finished++;
	call->error = error;
	call->result = results != NULL ? *(const uint32_t *)results : 0;
}

static void start(struct call *call, uint32_t argument)
{
	*call = (struct call){ .error = 1 };
	check_int("start", "result", net_rpc_call(rpc, &number, &argument, replied, call), 0);
}

static void send_all(void)
{
	struct pollfd p;

	check_int("send", "result", net_rpc_send(rpc, &p), 0);
	check_int("send", "events", p.events, POLLIN);
}

/* Receive n words, in host byte order. */
static void hear(uint32_t *words, size_t n)
{
	size_t i;

	ck_assert_int_eq(recv(peer, words, n * 4, MSG_WAITALL), (ssize_t)n * 4);
	for (i = 0; i < n; i++)
		words[i] = ntohl(words[i]);
}

static uint32_t hear_xid(void)
{
	uint32_t words[CALL_WORDS];

	hear(words, CALL_WORDS);
	check_int("call", "mark", words[0], LAST | (CALL_WORDS - 1) * 4);
	return words[1];
}

static void say(const uint32_t *words, size_t n)
{
	uint32_t be[WORDS_MAX];
	size_t i;

	ck_assert(n <= WORDS_MAX);
	for (i = 0; i < n; i++)
		be[i] = htonl(words[i]);
	ck_assert_int_eq(send(peer, be, n * 4, 0), (ssize_t)n * 4);
}

/* Send a successful reply without a verifier. */
static void say_number(uint32_t xid, uint32_t result)
{
	const uint32_t words[] = { LAST | 28, xid, 1, 0, 0, 0, 0, result };

	say(words, ARRAY_SIZE(words));
}

static void receive(int want)
{
	check_int("receive", "result", net_rpc_receive(rpc), want);
}

/* RFC 5531, sections 9, 11 and appendix A. */
START_TEST(test_call)
{
	static const struct {
		const char *row;
		size_t at;
		uint32_t want;
	} rows[] = {
		{ "mark", 0, LAST | (CALL_WORDS - 1) * 4 },
		{ "a call", 2, 0 },
		{ "version of RPC", 3, 2 },
		{ "program", 4, PROGRAM },
		{ "version", 5, PROGRAM_VERSION },
		{ "procedure", 6, PROCEDURE },
		{ "AUTH_SYS", 7, 1 },
		{ "bytes of it", 8, 28 },
		{ "uid", 13, 1000 },
		{ "gid", 14, 2000 },
		{ "further groups", 15, 0 },
		{ "no verifier", 16, 0 },
		{ "bytes of it", 17, 0 },
		{ "argument", 18, 77 },
	};
	uint32_t words[CALL_WORDS];
	struct call call;
	size_t i;

	start(&call, 77);
	send_all();
	hear(words, CALL_WORDS);
	for (i = 0; i < ARRAY_SIZE(rows); i++)
		check_int(rows[i].row, "word", words[rows[i].at], rows[i].want);
	say_number(words[1], 78);
	receive(0);
	check_int("reply", "finished", call.finished, 1);
	check_int("reply", "error", call.error, 0);
	check_int("reply", "result", call.result, 78);
}
END_TEST

/* More calls than slots at first; answered in reverse order. */
START_TEST(test_many)
{
	static struct call calls[1000];
	static uint32_t xids[ARRAY_SIZE(calls)];
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		start(&calls[i], (uint32_t)i);
	send_all();
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		xids[i] = hear_xid();
		for (j = 0; j < i; j++)
			ck_assert(xids[i] != xids[j]);
	}
	for (i = ARRAY_SIZE(calls); i-- > 0;) {
		say_number(xids[i], (uint32_t)i * 3);
		receive(0);
	}
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		check_int("many", "finished", calls[i].finished, 1);
		check_int("many", "result", calls[i].result, i * 3);
	}
}
END_TEST

/* Whole replies are taken at once, wherever the bytes are cut. */
START_TEST(test_cut)
{
	struct call calls[3];
	uint32_t xids[3], be[24];
	size_t cut, i;

	for (cut = 1; cut < sizeof(be); cut++) {
		for (i = 0; i < 3; i++)
			start(&calls[i], 0);
		send_all();
		for (i = 0; i < 3; i++) {
			xids[i] = hear_xid();
			memcpy(be + i * 8,
			       (uint32_t[]){ htonl(LAST | 28), htonl(xids[i]), htonl(1), 0, 0, 0, 0,
					     htonl(xids[i] + 1) },
			       32);
		}
		ck_assert_int_eq(send(peer, be, cut, 0), (ssize_t)cut);
		receive(0);
		for (i = 0; i < 3; i++)
			check_int("first part", "finished", calls[i].finished, cut >= (i + 1) * 32);
		ck_assert_int_eq(send(peer, (char *)be + cut, sizeof(be) - cut, 0),
				 (ssize_t)(sizeof(be) - cut));
		receive(0);
		for (i = 0; i < 3; i++)
			check_int("second part", "result", calls[i].result, xids[i] + 1);
	}
}
END_TEST

START_TEST(test_fragments)
{
	struct call call;
	uint32_t xid;

	start(&call, 0);
	send_all();
	xid = hear_xid();
	say((uint32_t[]){ 4, xid, 0, 20, 1, 0, 0, 0, 0 }, 9);
	receive(0);
	check_int("without the last", "finished", call.finished, 0);
	say((uint32_t[]){ LAST | 4 }, 1);
	receive(0);
	check_int("its mark", "finished", call.finished, 0);
	say((uint32_t[]){ 5 }, 1);
	receive(0);
	check_int("all", "finished", call.finished, 1);
	check_int("all", "result", call.result, 5);
	check_that("all", "nothing left", net_rpc_is_quiet(rpc));
}
END_TEST

/* Replies; X stands for the xid. */
#define X 0x58585858
static const struct {
	const char *row;
	uint32_t words[10];
	size_t n;
	int want; /* error of the call */
	bool ends; /* ends the connection */
} answers[] = {
	{ "no such program", { LAST | 24, X, 1, 0, 0, 0, 1 }, 7, -EPROTO, false },
	{ "other versions", { LAST | 32, X, 1, 0, 0, 0, 2, 3, 4 }, 9, -EPROTONOSUPPORT, false },
	{ "other versions, cut", { LAST | 28, X, 1, 0, 0, 0, 2, 3 }, 8, -EREMOTEIO, false },
	{ "no such procedure", { LAST | 24, X, 1, 0, 0, 0, 3 }, 7, -EOPNOTSUPP, false },
	{ "garbage arguments", { LAST | 24, X, 1, 0, 0, 0, 4 }, 7, -EBADRQC, false },
	{ "system error", { LAST | 24, X, 1, 0, 0, 0, 5 }, 7, -EREMOTEIO, false },
	{ "credential refused", { LAST | 20, X, 1, 1, 1, 1 }, 6, -EACCES, false },
	{ "credential too weak", { LAST | 20, X, 1, 1, 1, 5 }, 6, -EACCES, false },
	{ "other version of RPC", { LAST | 24, X, 1, 1, 0, 3, 3 }, 7, -EREMOTEIO, false },
	{ "with a verifier", { LAST | 32, X, 1, 0, 1, 4, 0xabcd, 0, 9 }, 9, 0, false },
	{ "results cut", { LAST | 24, X, 1, 0, 0, 0, 0 }, 7, -EREMOTEIO, false },
	{ "header cut", { LAST | 12, X, 1, 0 }, 4, -EREMOTEIO, false },
	{ "no XDR", { LAST | 27, X, 1, 0, 0, 0, 0, 0 }, 8, -ECONNABORTED, true },
	{ "neither accepted nor denied", { LAST | 28, X, 1, 7, 0, 0, 0, 0 }, 8, -EREMOTEIO, false },
	{ "another xid", { LAST | 28, X + 16, 1, 0, 0, 0, 0, 9 }, 8, -ECONNABORTED, true },
	{ "a call", { LAST | 28, X, 0, 2, 0, 0, 0, 9 }, 8, -ECONNABORTED, true },
	{ "xid only", { LAST | 4, X }, 2, -ECONNABORTED, true },
	{ "empty", { LAST }, 1, -ECONNABORTED, true },
	{ "too long", { LAST | (NET_RPC_RECORD_MAX + 4), X }, 2, -ECONNABORTED, true },
	{ "too long in all", { 4, X, LAST | NET_RPC_RECORD_MAX }, 3, -ECONNABORTED, true },
};

START_TEST(test_answer)
{
	uint32_t words[ARRAY_SIZE(answers[0].words)];
	const char *row = answers[_i].row;
	struct call call;
	uint32_t xid;
	size_t i;

	start(&call, 0);
	send_all();
	xid = hear_xid();
	for (i = 0; i < answers[_i].n; i++)
		words[i] = answers[_i].words[i] - X <= 16 ? xid + answers[_i].words[i] - X
							  : answers[_i].words[i];
	say(words, answers[_i].n);
	check_int(row, "receive", net_rpc_receive(rpc), answers[_i].ends ? -ECONNABORTED : 0);
	check_int(row, "finished", call.finished, !answers[_i].ends);
	end();
	check_int(row, "finished at last", call.finished, 1);
	check_int(row, "error", call.error, answers[_i].want);
}
END_TEST

/* -------- hostile results -------- */

static const struct net_rpc_procedure mnt =
	NET_RPC_PROCEDURE(MOUNT_PROGRAM, MOUNT_V3, MOUNT3_MNT, zdr_void, v3_take_mountres3,
			  mountres3);
static const struct net_rpc_procedure compound =
	NET_RPC_PROCEDURE(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND, zdr_void, v4_decode_results,
			  COMPOUND4res);
static const struct net_rpc_procedure export_list =
	NET_RPC_PROCEDURE(MOUNT_PROGRAM, MOUNT_V3, MOUNT3_EXPORT, zdr_void, v3_take_exports,
			  exports);

#define TIMES 0x54494d45 /* followed by: count, n, and n words to repeat */
#define MANY_WORDS (NET_RPC_RECORD_MAX / 4)

/* Results on which libnfs 4.0 reads or writes out of bounds. */
static const struct {
	const char *row;
	const struct net_rpc_procedure *procedure;
	uint32_t words[16];
	size_t n;
	int want;
} lies[] = {
	{ "length of a handle", &mnt, { 0, 0x80000000, 0 }, 3, -EREMOTEIO },
	{ "it is padded beyond all", &mnt, { 0, 0xffffffff, 0 }, 3, -EREMOTEIO },
	{ "number of flavours",
	  &mnt,
	  { 0, 4, 0, 0x40000001, TIMES, 200, 1, 0x41414141 },
	  8,
	  -EREMOTEIO },
	{ "number of results", &compound, { 0, 0, 0x80000000 }, 3, -EREMOTEIO },
	{ "less by one", &compound, { 0, 0, 0x7fffffff, TIMES, 10, 1, 0 }, 7, -EREMOTEIO },
	{ "memory of results", &compound, { 0, 0, 10000000, TIMES, 10, 1, 0 }, 7, -EREMOTEIO },
	{ "words of a mask",
	  &compound,
	  { 0, 0, 1, OP_GETATTR, 0, 0x40000001, TIMES, 200, 1, 0x41414141 },
	  10,
	  -EREMOTEIO },
	{ "no verifier", &compound, { 0, 0, 1, OP_WRITE, 0, 4096, 2 }, 7, -EREMOTEIO },
	{ "name", &export_list, { 1, 0xfffffffc, 0, 0 }, 4, -EREMOTEIO },
	{ "name that is too long by one", &export_list, { 1, 5, 0x41414141, 0 }, 4, -EREMOTEIO },
	{ "name and no more", &export_list, { 1, 4, 0x41414141 }, 3, -EREMOTEIO },
	{ "exports", &export_list, { TIMES, 80000, 3, 1, 0, 0, 0 }, 7, -EREMOTEIO },
	{ "groups", &export_list, { 1, 0, TIMES, 100000, 2, 1, 0, 0, 0 }, 9, -EREMOTEIO },
	{ "as many exports as are believed", &export_list, { TIMES, 4096, 3, 1, 0, 0, 0 }, 7, 0 },
};

/* Expand TIMES. Returns the number of words. */
static size_t spell(const uint32_t *from, size_t n, uint32_t *to)
{
	size_t i, j, at = 0;

	for (i = 0; i < n; i++) {
		if (from[i] != TIMES) {
			to[at++] = htonl(from[i]);
			continue;
		}
		for (j = 0; j < from[i + 1] * from[i + 2]; j++)
			to[at++] = htonl(from[i + 3 + j % from[i + 2]]);
		i += 2 + from[i + 2];
	}
	return at;
}

START_TEST(test_lie)
{
	static uint32_t reply[MANY_WORDS];
	const char *row = lies[_i].row;
	struct call call = { .error = 1 };
	size_t n, sent = 0;

	check_int(row, "call", net_rpc_call(rpc, lies[_i].procedure, NULL, replied, &call), 0);
	send_all();
	{
		uint32_t words[CALL_WORDS - 1];

		hear(words, ARRAY_SIZE(words));
		memcpy(reply + 1, (uint32_t[]){ htonl(words[1]), htonl(1), 0, 0, 0, 0 }, 24);
	}
	n = 7 + spell(lies[_i].words, lies[_i].n, reply + 7);
	reply[0] = htonl(LAST | (uint32_t)(n - 1) * 4);
	while (sent < n * 4) {
		ssize_t part = send(peer, (char *)reply + sent, n * 4 - sent, MSG_DONTWAIT);

		if (part > 0)
			sent += (size_t)part;
		check_int(row, "receive", net_rpc_receive(rpc), 0);
	}
	check_int(row, "finished", call.finished, 1);
	check_int(row, "error", call.error, lies[_i].want);
	/* The connection still works. */
	start(&call, 1);
	send_all();
	say_number(hear_xid(), 2);
	receive(0);
	check_int(row, "the next", call.result, 2);
}
END_TEST

/* A call that timed out is forgotten: a late reply must not write to the stack. */
START_TEST(test_ask)
{
	uint32_t argument = 1;
	int r;

	r = net_rpc_ask(rpc, &number, &argument, NULL, NULL, clock_now_ns() + 20 * CLOCK_NS_PER_MS);
	check_int("silence", "result", r, -ETIMEDOUT);
	check_int("silence", "in flight", net_rpc_oldest_ns(rpc), 0);
	say_number(hear_xid(), 2);
	receive(-ECONNABORTED);
	end();
}
END_TEST

/* Endless fragments without data end the connection. */
START_TEST(test_endless_fragments)
{
	const uint32_t fragment[] = { 4, 0 };
	struct call call;
	int i, r = 0;

	start(&call, 0);
	for (i = 0; i < 1000 && r == 0; i++) {
		say(fragment, 2);
		r = net_rpc_receive(rpc);
	}
	check_int("fragments", "result", r, -ECONNABORTED);
	check_that("fragments", "early", i < 100);
	end();
}
END_TEST

START_TEST(test_deadline)
{
	uint64_t begun = clock_now_ns();
	struct call call;

	start(&call, 0);
	/* There is something to read, but never a whole reply. */
	say((uint32_t[]){ LAST | 1000 }, 1);
	check_int("deadline", "result",
		  net_rpc_run(rpc, &call.finished, begun + 50 * CLOCK_NS_PER_MS), -ETIMEDOUT);
	check_that("deadline", "waited for", clock_now_ns() - begun >= 50 * CLOCK_NS_PER_MS);
	say((uint32_t[]){ 0 }, 1);
	check_int("over", "result", net_rpc_run(rpc, &call.finished, begun), -ETIMEDOUT);
	check_int("over", "finished", call.finished, 0);
	end();
}
END_TEST

/* The reply was there in time; only we were late. */
START_TEST(test_late)
{
	struct call call;

	start(&call, 0);
	send_all();
	say_number(hear_xid(), 6);
	check_int("late", "result", net_rpc_run(rpc, &call.finished, clock_now_ns() - 1), 0);
	check_int("late", "result", call.result, 6);
}
END_TEST

START_TEST(test_end)
{
	struct call call;

	start(&call, 0);
	close(peer);
	peer = -1;
	check_int("end", "result",
		  net_rpc_run(rpc, &call.finished, clock_now_ns() + CLOCK_NS_PER_S), -ECONNABORTED);
	check_that("end", "heard of", !net_rpc_is_quiet(rpc));
	end();
}
END_TEST

/* A callback at the end may queue another call, which is refused. */
static void try_again(void *data, int error, const void *results)
{
	struct call *call = data;
	uint32_t argument = 1;

	check_int("end", "again", net_rpc_call(rpc, &number, &argument, try_again, data),
		  -ECONNABORTED);
	replied(call, error, results);
}

START_TEST(test_free)
{
	struct call calls[40];
	uint32_t argument = 1;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		calls[i] = (struct call){ .error = 1 };
		check_int("start", "result",
			  net_rpc_call(rpc, &number, &argument, try_again, &calls[i]), 0);
	}
	net_rpc_free(rpc, -ETIMEDOUT);
	rpc = NULL;
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		check_int("end", "finished", calls[i].finished, 1);
		check_int("end", "error", calls[i].error, -ETIMEDOUT);
	}
}
END_TEST

/* Calls longer than the socket takes at once, mixed with short ones. */
START_TEST(test_long)
{
	static const uint32_t lengths[] = { 0, 1, 3, 4, 100, 4000, 4096, 65536, 300001, 1000000 };
	char *data = check_repeat("0123456", 150000), *got = malloc(2000000);
	struct call calls[ARRAY_SIZE(lengths)];
	size_t i, at = 0, have = 0;
	struct pollfd p;
	ssize_t n;

	ck_assert(got != NULL);
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct text text = { lengths[i] > 0 ? data : NULL, lengths[i] };

		calls[i] = (struct call){ .error = 1 };
		check_int("long", "result", net_rpc_call(rpc, &texts, &text, replied, &calls[i]),
			  0);
	}
	do {
		check_int("long", "send", net_rpc_send(rpc, &p), 0);
		while ((n = recv(peer, got + have, 2000000 - have, MSG_DONTWAIT)) > 0)
			have += (size_t)n;
	} while (p.events & POLLOUT);
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		uint32_t mark, len, padded = (lengths[i] + 3) & ~3U;

		memcpy(&mark, got + at, 4);
		check_int("long", "mark", ntohl(mark), LAST | ((CALL_WORDS - 1) * 4 + padded));
		memcpy(&len, got + at + (CALL_WORDS - 1) * 4, 4);
		check_int("long", "length", ntohl(len), lengths[i]);
		ck_assert(memcmp(got + at + CALL_WORDS * 4, data, lengths[i]) == 0);
		at += (size_t)CALL_WORDS * 4 + padded;
	}
	check_int("long", "bytes", have, at);
	end();
	free(data);
	free(got);
}
END_TEST

START_TEST(test_too_long)
{
	char *data = check_repeat("x", NET_RPC_RECORD_MAX);
	struct text text = { data, NET_RPC_RECORD_MAX };
	struct call call;
	uint32_t xid;

	check_int("too long", "result", net_rpc_call(rpc, &texts, &text, replied, &call),
		  -EMSGSIZE);
	start(&call, 0);
	send_all();
	xid = hear_xid();
	say_number(xid, 3);
	receive(0);
	check_int("the next", "result", call.result, 3);
	free(data);
}
END_TEST

/* clang-format off */
CHECK_MAIN("rpc", .setup = set_up, .teardown = tear_down,
	   .tests = {
		   test_call, test_many, test_cut, test_fragments, test_endless_fragments,
		   test_deadline, test_late, test_end, test_free, test_long, test_too_long,
		   test_ask,
	   },
	   .loops = {
		   { test_answer, ARRAY_SIZE(answers) },
		   { test_lie, ARRAY_SIZE(lies) },
	   })
