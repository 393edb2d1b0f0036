/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* net/ping.c: a NULL call to a peer that answers byte by byte, or not at all. */

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/ping.h"
#include "net/rpc.h"
#include "check_util.h"

#define PROGRAM 400122
#define PROGRAM_VERSION 7
#define LAST 0x80000000U
#define CALL_BYTES 44 /* without arguments, with its mark */
#define X 0x58585858 /* stands for the xid */
#define WORDS_MAX 12
#define PAUSE_MS 200 /* all bytes of a reply take longer than NET_PING_TAKEN_MS */

struct peer {
	int listener;
	int fd;
	const uint32_t *words;
	size_t n;
	bool trickles;
	atomic_bool stopped;
};

static void *answer(void *data)
{
	struct peer *peer = data;
	uint32_t call[CALL_BYTES / 4], be[WORDS_MAX];
	size_t i;

	if (recv(peer->fd, call, sizeof(call), MSG_WAITALL) != sizeof(call))
		return NULL;
	for (i = 0; i < peer->n; i++)
		be[i] = peer->words[i] == X ? call[1] : htonl(peer->words[i]);
	for (i = 0; i < peer->n * 4 && !peer->stopped; i++) {
		if (peer->trickles)
			clock_sleep_ms(PAUSE_MS);
		if (send(peer->fd, (char *)be + i, 1, MSG_NOSIGNAL) != 1)
			break;
	}
	return NULL;
}

static int listen_somewhere(uint16_t *ret_port)
{
	struct sockaddr_in own = { .sin_family = AF_INET };
	socklen_t len = sizeof(own);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&own, &len), 0);
	*ret_port = ntohs(own.sin_port);
	return fd;
}

static void *accept_and_answer(void *data)
{
	struct peer *peer = data;

	peer->fd = accept(peer->listener, NULL, NULL);
	ck_assert_int_ge(peer->fd, 0);
	return answer(peer);
}

static int ask(struct peer *peer, uint32_t *ret_low, uint32_t *ret_high)
{
	struct net_address address;
	pthread_t thread;
	uint16_t port;
	size_t n;
	int r;

	ck_assert_int_eq(net_resolve("127.0.0.1", &address, &n, NULL), 0);
	peer->listener = listen_somewhere(&port);
	ck_assert_int_eq(pthread_create(&thread, NULL, accept_and_answer, peer), 0);
	r = net_ping(&address, port, PROGRAM, PROGRAM_VERSION, ret_low, ret_high);
	peer->stopped = true;
	pthread_join(thread, NULL);
	close(peer->fd);
	close(peer->listener);
	return r;
}

static const struct {
	const char *row;
	uint32_t words[WORDS_MAX];
	size_t n;
	int want;
} answers[] = {
	{ "accepted", { LAST | 24, X, 1, 0, 0, 0, 0 }, 7, 0 },
	{ "in two fragments", { 8, X, 1, LAST | 16, 0, 0, 0, 0 }, 8, 0 },
	{ "other versions", { LAST | 32, X, 1, 0, 0, 0, 2, 3, 4 }, 9, -EPROTONOSUPPORT },
	{ "no such program", { LAST | 24, X, 1, 0, 0, 0, 1 }, 7, -EPROTO },
	{ "no such procedure", { LAST | 24, X, 1, 0, 0, 0, 3 }, 7, -ECONNRESET },
	{ "refused", { LAST | 20, X, 1, 1, 1, 1 }, 6, -EACCES },
	{ "another call's", { LAST | 24, X + 1, 1, 0, 0, 0, 0 }, 7, -ECONNRESET },
	{ "cut", { LAST | 12, X, 1, 0 }, 4, -ECONNRESET },
	{ "too long", { LAST | (NET_RPC_RECORD_MAX + 4), X, 1, 0, 0, 0, 0 }, 7, -ECONNRESET },
	{ "half of it", { LAST | 24, X, 1, 0 }, 4, -ETIMEDOUT },
	{ "nothing", { 0 }, 0, -ETIMEDOUT },
};

START_TEST(test_answer)
{
	struct peer peer = { .words = answers[_i].words, .n = answers[_i].n };
	uint32_t low = 0, high = 0;

	check_int(answers[_i].row, "result", ask(&peer, &low, &high), answers[_i].want);
	check_int(answers[_i].row, "low", low, answers[_i].want == -EPROTONOSUPPORT ? 3 : 0);
	check_int(answers[_i].row, "high", high, answers[_i].want == -EPROTONOSUPPORT ? 4 : 0);
}
END_TEST

/* Each byte comes well before the deadline, the last one far after it. */
START_TEST(test_trickle)
{
	struct peer peer = { .words = answers[0].words, .n = answers[0].n, .trickles = true };
	uint64_t begun = clock_now_ns();
	uint32_t low, high;

	check_int("trickle", "result", ask(&peer, &low, &high), -ETIMEDOUT);
	check_that("trickle", "waited",
		   clock_now_ns() - begun >= NET_PING_TAKEN_MS * CLOCK_NS_PER_MS);
}
END_TEST

/* -------- a server that gets too little of the processor -------- */

#define LATE_MS 3000 /* between NET_PING_TIMEOUT_MS and NET_PING_TAKEN_MS */
#define STOPPED_MS 5000 /* longer than NET_PING_TAKEN_MS */

static void sleep_long_ms(unsigned int ms)
{
	for (; ms > 0; ms -= ms < 500 ? ms : 500)
		clock_sleep_ms(ms < 500 ? ms : 500);
}

/* Ping from a process of its own, which exits with 0 if it was answered. */
static pid_t start_ping(uint16_t port)
{
	struct net_address address;
	uint32_t low, high;
	size_t n;
	pid_t pid;

	ck_assert_int_eq(net_resolve("127.0.0.1", &address, &n, NULL), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(-net_ping(&address, port, PROGRAM, PROGRAM_VERSION, &low, &high));
	return pid;
}

static int end_of_ping(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static const struct {
	const char *row;
	unsigned int stopped_ms; /* the client */
	unsigned int late_ms; /* the server, after that */
	int want;
} delays[] = {
	{ "the server is late", 0, LATE_MS, 0 },
	{ "the client could not run", STOPPED_MS, 1000, 0 },
	{ "nobody answers", 0, NET_PING_MAX_MS, ETIMEDOUT },
};

START_TEST(test_late)
{
	struct peer peer = { .words = answers[0].words, .n = answers[0].n };
	uint16_t port;
	int listener = listen_somewhere(&port);
	pid_t pid = start_ping(port);

	peer.fd = accept(listener, NULL, NULL);
	ck_assert_int_ge(peer.fd, 0);
	if (delays[_i].stopped_ms > 0) {
		ck_assert_int_eq(kill(pid, SIGSTOP), 0);
		sleep_long_ms(delays[_i].stopped_ms);
		ck_assert_int_eq(kill(pid, SIGCONT), 0);
	}
	if (delays[_i].want == 0) {
		sleep_long_ms(delays[_i].late_ms);
		(void)answer(&peer);
	}
	check_int(delays[_i].row, "result", end_of_ping(pid), delays[_i].want);
	close(peer.fd);
	close(listener);
}
END_TEST

CHECK_MAIN("ping", .tests = { test_trickle },
	   .loops = { { test_answer, ARRAY_SIZE(answers) }, { test_late, ARRAY_SIZE(delays) } })
