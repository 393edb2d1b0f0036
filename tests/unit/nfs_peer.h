/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Shared by tests of nfs/: a connection whose server answers a call or two from a script. */
#ifndef NFS_PEER_H
#define NFS_PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "nfs/connection.h"
#include "check_util.h"

#define PEER_LAST 0x80000000U /* in a record mark */
#define PEER_WORDS_MAX 64
#define PEER_CALL_MAX 4096

struct nfs_peer {
	const uint32_t *words; /* of the reply, behind the header of RPC */
	size_t n;
	const uint32_t *then; /* of the reply to a second call; NULL: there is none */
	size_t n_then;
	uint32_t call[PEER_CALL_MAX / 4]; /* out, with its record mark */
	size_t call_words; /* out */
	int fd;
};

static inline void nfs_peer_answer_one(struct nfs_peer *peer, const uint32_t *words, size_t words_n)
{
	uint32_t reply[7 + PEER_WORDS_MAX];
	size_t len, n = 0, i;

	ck_assert(recv(peer->fd, peer->call, 4, MSG_WAITALL) == 4);
	len = ntohl(peer->call[0]) & ~PEER_LAST;
	ck_assert(len < sizeof(peer->call) - 4);
	ck_assert(recv(peer->fd, peer->call + 1, len, MSG_WAITALL) == (ssize_t)len);
	peer->call_words = 1 + len / 4;
	reply[n++] = htonl(PEER_LAST | (uint32_t)(6 + words_n) * 4);
	reply[n++] = peer->call[1];
	reply[n++] = htonl(1);
	while (n < 7)
		reply[n++] = 0;
	for (i = 0; i < words_n; i++)
		reply[n++] = htonl(words[i]);
	ck_assert(send(peer->fd, reply, n * 4, MSG_NOSIGNAL) == (ssize_t)(n * 4));
}

static inline void *nfs_peer_answer(void *data)
{
	struct nfs_peer *peer = data;

	nfs_peer_answer_one(peer, peer->words, peer->n);
	if (peer->then != NULL)
		nfs_peer_answer_one(peer, peer->then, peer->n_then);
	return NULL;
}

/* Run one operation on the connection, which the caller breaks. */
static inline void nfs_peer_run(const char *row, struct nfs_peer *peer, struct nfs_connection *conn,
				struct nfs_op *op)
{
	pthread_t thread;
	int fds[2];

	op->client = &conn->client;
	conn->in_flight = 1;
	conn->slow = conn->unbounded = 1;
	ck_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	peer->fd = fds[1];
	ck_assert(net_rpc_new(&conn->rpc, fds[0], NULL) == 0);
	ck_assert(pthread_create(&thread, NULL, nfs_peer_answer, peer) == 0);
	check_int(row, "start", conn->protocol->start(conn, op), 0);
	check_int(row, "run",
		  net_rpc_run(conn->rpc, &conn->finished, clock_now_ns() + 30 * CLOCK_NS_PER_S), 0);
	pthread_join(thread, NULL);
	close(fds[1]);
}

#endif
