/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* net/ping.c: a NULL call to a peer that answers byte by byte, or not at all. */

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
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
#define DEADLINE_MS 400
#define PAUSE_MS 60

struct peer {
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

static int ask(struct peer *peer, uint32_t *ret_low, uint32_t *ret_high)
{
	pthread_t thread;
	int fds[2], r;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	peer->fd = fds[1];
	ck_assert_int_eq(pthread_create(&thread, NULL, answer, peer), 0);
	r = net_ping_socket(fds[0], PROGRAM, PROGRAM_VERSION,
			    clock_now_ns() + DEADLINE_MS * CLOCK_NS_PER_MS, ret_low, ret_high);
	peer->stopped = true;
	pthread_join(thread, NULL);
	close(fds[1]);
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
	check_that("trickle", "waited", clock_now_ns() - begun >= DEADLINE_MS * CLOCK_NS_PER_MS);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("ping");

	tcase_add_loop_test(tcase, test_answer, 0, ARRAY_SIZE(answers));
	tcase_add_test(tcase, test_trickle);
	return check_run_case("ping", tcase);
}
