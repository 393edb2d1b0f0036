/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* nfs/v4_session.h, with a scripted peer that answers wrong, too little, or nothing. */

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "nfs/error.h"
#include "nfs/v4_client.h"
#include "nfs/v4_send.h"
#include "nfs/v4_session.h"
#include "nfs/v4_session_parts.h"
#include "check_util.h"

#define LAST 0x80000000U
#define WORDS_MAX 4096
#define HEAD 11 /* words of a call without a user, with its mark */
#define CALLS 40
#define CHANGE_WORDS 5 /* of a change_info4 */

/* Where the words of a request are. */
#define MINOR (HEAD + 1)
#define OPERATION (HEAD + 3)
#define SEQUENCE_ID (OPERATION + 1) /* of a session, 4 words */
#define SEQUENCE_NUMBER (SEQUENCE_ID + 4)
#define SEQUENCE_SLOT (SEQUENCE_NUMBER + 1)

/* What the peer does wrong. */
struct faults {
	uint32_t exchange_status, create_status, reclaim_status;
	uint32_t liar; /* operation of the set-up whose result fails while its compound is OK */
	bool cut; /* answers end early */
	bool hangs_up; /* at the first compound after the set-up */
	bool silent; /* from that compound on */
	uint32_t sequence_status; /* of compounds after the set-up, once */
	bool other_session, other_slot, other_number, no_results, other_operation;
	bool no_second, other_second; /* result, behind that of SEQUENCE */
	uint32_t target; /* sr_target_highest_slotid */
	uint32_t flags;
	uint32_t second_status; /* of the first compound after the set-up */
};

struct peer {
	int fd;
	const struct faults *faults;
	struct v4_channel fore;
	uint32_t numbers[256]; /* next of each slot */
	uint32_t highest; /* slot used so far */
	unsigned int compounds; /* without the next ones */
	unsigned int reclaims; /* RECLAIM_COMPLETE */
	unsigned int to_cache; /* compounds with sa_cachethis */
	unsigned int sessions, clients; /* that are there */
	bool is_confused; /* a number or a slot was not as it has to be */
};

struct answer {
	uint32_t words[WORDS_MAX];
	size_t n;
};

static void put(struct answer *a, uint32_t word)
{
	a->words[a->n++] = htonl(word);
}

static void put_channel(struct answer *a, const struct v4_channel *c)
{
	put(a, 0);
	put(a, c->request_max);
	put(a, c->reply_max);
	put(a, c->cached_max);
	put(a, c->operations);
	put(a, c->slots);
	put(a, 0);
}

static void put_session(struct answer *a, uint32_t first)
{
	put(a, first);
	put(a, 2);
	put(a, 3);
	put(a, 4);
}

static void answer_exchange_id(struct answer *a)
{
	put(a, 0); /* client id */
	put(a, 77);
	put(a, 1); /* sequence */
	put(a, 0x10000);
	put(a, 0); /* SP4_NONE; what follows is not read */
}

static void answer_create_session(struct answer *a, const struct peer *peer)
{
	static const struct v4_channel back = { .slots = 1 };

	put_session(a, 1);
	put(a, 1);
	put(a, 0);
	put_channel(a, &peer->fore);
	put_channel(a, &back);
}

static void answer_sequence(struct answer *a, struct peer *peer, const uint32_t *call)
{
	const struct faults *f = peer->faults;
	const uint32_t number = ntohl(call[SEQUENCE_NUMBER]), slot = ntohl(call[SEQUENCE_SLOT]);

	put_session(a, f->other_session ? 9 : 1);
	put(a, number + f->other_number);
	put(a, slot + f->other_slot);
	put(a, peer->fore.slots - 1);
	put(a, f->target != 0 ? f->target : peer->fore.slots - 1);
	put(a, f->flags);
}

/* A compound in the session: SEQUENCE, then PUTROOTFH, REMOVE or RECLAIM_COMPLETE. */
static void answer_compound(struct answer *a, struct peer *peer, const uint32_t *call)
{
	const struct faults *f = peer->faults;
	const uint32_t number = ntohl(call[SEQUENCE_NUMBER]), slot = ntohl(call[SEQUENCE_SLOT]);
	const uint32_t second = ntohl(call[SEQUENCE_SLOT + 3]);
	const bool is_reclaim = second == V4_OP_RECLAIM_COMPLETE;
	uint32_t status = is_reclaim ? f->reclaim_status : 0;
	unsigned int i;

	if (!is_reclaim && peer->compounds == 0 && f->second_status != 0)
		status = f->second_status;
	peer->reclaims += is_reclaim;
	peer->to_cache += call[SEQUENCE_SLOT + 2] != 0;
	if (!is_reclaim && peer->compounds++ == 0 && f->sequence_status != 0) {
		put(a, f->sequence_status);
		put(a, 0);
		put(a, 1);
		put(a, V4_OP_SEQUENCE);
		put(a, f->sequence_status);
		return;
	}
	if (slot >= peer->fore.slots || number != peer->numbers[slot] + 1)
		peer->is_confused = true;
	else
		peer->numbers[slot]++;
	if (!is_reclaim && slot > peer->highest)
		peer->highest = slot;
	put(a, status);
	put(a, 0); /* tag */
	if (!is_reclaim && f->no_results) {
		put(a, 0);
		return;
	}
	put(a, f->no_second && !is_reclaim ? 1 : 2);
	put(a, !is_reclaim && f->other_operation ? V4_OP_DESTROY_SESSION : V4_OP_SEQUENCE);
	put(a, 0);
	if (is_reclaim || !f->other_operation)
		answer_sequence(a, peer, call);
	if (f->no_second && !is_reclaim)
		return;
	put(a, f->other_second && !is_reclaim ? (uint32_t)OP_SAVEFH : second);
	put(a, status);
	for (i = 0; second == OP_REMOVE && status == 0 && i < CHANGE_WORDS; i++)
		put(a, 0);
}

static void answer_call(struct answer *a, struct peer *peer, const uint32_t *call)
{
	const uint32_t opnum = ntohl(call[OPERATION]);
	const uint32_t status = opnum == V4_OP_EXCHANGE_ID      ? peer->faults->exchange_status
				: opnum == V4_OP_CREATE_SESSION ? peer->faults->create_status
								: 0;

	if (opnum == V4_OP_SEQUENCE) {
		answer_compound(a, peer, call);
		return;
	}
	put(a, status);
	put(a, 0); /* tag */
	put(a, 1);
	put(a, opnum);
	put(a, peer->faults->liar == opnum ? (uint32_t)NFS4ERR_SERVERFAULT : status);
	if (peer->faults->liar == opnum)
		return;
	peer->clients -= opnum == V4_OP_DESTROY_CLIENTID;
	peer->sessions -= opnum == V4_OP_DESTROY_SESSION;
	if (status == 0 && opnum == V4_OP_EXCHANGE_ID) {
		answer_exchange_id(a);
		peer->clients++;
	} else if (status == 0 && opnum == V4_OP_CREATE_SESSION) {
		answer_create_session(a, peer);
		peer->sessions++;
	}
}

static void *serve(void *data)
{
	struct peer *peer = data;
	uint32_t call[WORDS_MAX] = { 0 };

	while (recv(peer->fd, call, 4, MSG_WAITALL) == 4) {
		const size_t len = ntohl(call[0]) & ~LAST;
		struct answer a = { .n = 1 };

		if (recv(peer->fd, call + 1, len, MSG_WAITALL) != (ssize_t)len)
			break;
		a.words[a.n++] = call[1]; /* xid */
		put(&a, 1);
		put(&a, 0);
		put(&a, 0);
		put(&a, 0);
		put(&a, 0);
		answer_call(&a, peer, call);
		if (peer->faults->hangs_up && peer->compounds > 0)
			break;
		if (peer->faults->silent && peer->compounds > 0)
			continue;
		if (peer->faults->cut)
			a.n -= 2;
		a.words[0] = htonl(LAST | (uint32_t)((a.n - 1) * 4));
		(void)!send(peer->fd, a.words, a.n * 4, MSG_NOSIGNAL);
	}
	close(peer->fd);
	return NULL;
}

/* -------- the client -------- */

struct bench {
	struct nfs_connection conn;
	struct peer peer;
	pthread_t thread;
	unsigned int replies;
	int errors[CALLS];
	nfsstat4 statuses[CALLS]; /* of compounds without an error */
};

static const struct nfs_protocol protocol = { .version = 4, .broken = v4_session_broken };

static void bench_init(struct bench *b, const struct faults *faults, const struct v4_channel *fore)
{
	int fds[2];

	*b = (struct bench){ .conn = { .protocol = &protocol } };
	ck_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	b->peer = (struct peer){ .fd = fds[1], .faults = faults, .fore = *fore };
	b->conn.client.version = 4;
	b->conn.deadline_ns = clock_now_ns() + 30 * CLOCK_NS_PER_S;
	ck_assert(net_rpc_new(&b->conn.rpc, fds[0], NULL) == 0);
	ck_assert(pthread_create(&b->thread, NULL, serve, &b->peer) == 0);
}

static void bench_done(struct bench *b)
{
	nfs_connection_break(&b->conn, -ETIMEDOUT);
	pthread_join(b->thread, NULL);
}

static void replied(void *data, int error, const void *results)
{
	struct bench *b = data;

	if (error == 0)
		b->statuses[b->replies] = ((const COMPOUND4res *)results)->status;
	b->errors[b->replies++] = error;
}

/* Send n compounds of this operation at once and wait for their replies. */
static void send_operations(struct bench *b, unsigned int n, nfs_opnum4 opnum)
{
	const uint64_t deadline = clock_now_ns() + 30 * CLOCK_NS_PER_S;
	unsigned int i;

	b->replies = 0;
	for (i = 0; i < n; i++) {
		struct v4_compound c = { .n = 0 };

		if (v4_add(&c, opnum)->argop == OP_REMOVE)
			c.ops[0].nfs_argop4_u.opremove.target = v4_text("name");
		check_int("send", "result", v4_send(&b->conn, &c, replied, b), 0);
	}
	while (b->replies < n && !b->conn.doomed)
		ck_assert(net_rpc_run(b->conn.rpc, &b->replies, deadline) == 0);
}

static void send_all(struct bench *b, unsigned int n)
{
	send_operations(b, n, OP_PUTROOTFH);
}

static const struct v4_channel usual = {
	.request_max = 1 << 20,
	.reply_max = 1 << 20,
	.cached_max = 4096,
	.operations = 50,
	.slots = 8,
};

START_TEST(test_slots)
{
	static const uint32_t slots[] = { 1, 3, 8, 200 };
	static const struct faults none;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(slots); i++) {
		struct v4_channel fore = usual;
		struct bench b;
		unsigned int n;

		fore.slots = slots[i];
		bench_init(&b, &none, &fore);
		check_int("slots", "open", v4_session_open(&b.conn, 2, NULL), 0);
		send_all(&b, CALLS);
		check_int("slots", "replies", b.replies, CALLS);
		for (n = 0; n < CALLS; n++)
			check_int("slots", "error", b.errors[n], 0);
		send_all(&b, 1);
		check_that("slots", "numbers are right", !b.peer.is_confused);
		check_that("slots", "many are used",
			   b.peer.highest + 1 == slots[i] || slots[i] > CALLS);
		check_int("slots", "callers see how many", b.conn.client.slots,
			  slots[i] < V4_SLOTS_MAX ? slots[i] : V4_SLOTS_MAX);
		bench_done(&b);
	}
}
END_TEST

/* Compounds in the order of their replies. */
struct turn {
	struct bench *bench;
	struct turn *starts; /* when it is answered; NULL: none */
	unsigned int place; /* out */
};

static void start_turn(struct turn *t);

static void turn_replied(void *data, int error, const void *results)
{
	struct turn *t = data;

	(void)results;
	check_int("turn", "error", error, 0);
	t->place = ++t->bench->replies;
	if (t->starts != NULL)
		start_turn(t->starts);
}

static void start_turn(struct turn *t)
{
	struct v4_compound c = { .n = 0 };

	v4_add(&c, OP_PUTROOTFH);
	check_int("turn", "send", v4_send(&t->bench->conn, &c, turn_replied, t), 0);
}

/* What a callback starts goes behind those that wait for a slot. */
START_TEST(test_turns)
{
	static const struct faults none;
	const uint64_t deadline = clock_now_ns() + 30 * CLOCK_NS_PER_S;
	struct v4_channel fore = usual;
	struct turn turns[3];
	struct bench b;

	fore.slots = 1;
	bench_init(&b, &none, &fore);
	turns[0] = (struct turn){ .bench = &b, .starts = &turns[2] };
	turns[1] = turns[2] = (struct turn){ .bench = &b };
	check_int("turns", "open", v4_session_open(&b.conn, 1, NULL), 0);
	start_turn(&turns[0]);
	start_turn(&turns[1]);
	while (b.replies < 3)
		ck_assert(net_rpc_run(b.conn.rpc, &b.replies, deadline) == 0);
	check_int("turns", "first", turns[0].place, 1);
	check_int("turns", "second", turns[1].place, 2);
	check_int("turns", "third", turns[2].place, 3);
	bench_done(&b);
}
END_TEST

/* The server wants fewer slots used. */
START_TEST(test_target)
{
	static const struct faults fewer = { .target = 2 };
	struct bench b;

	bench_init(&b, &fewer, &usual);
	check_int("target", "open", v4_session_open(&b.conn, 1, NULL), 0);
	send_all(&b, 1);
	b.peer.highest = 0;
	send_all(&b, CALLS);
	check_int("target", "highest", b.peer.highest, 2);
	check_int("target", "slots", b.conn.client.slots, 3);
	check_that("target", "numbers are right", !b.peer.is_confused);
	bench_done(&b);
}
END_TEST

START_TEST(test_set_up)
{
	static const struct {
		const char *name;
		struct faults faults;
		struct v4_channel fore;
		int want;
		const char *word; /* of the message */
	} rows[] = {
		{ "no such minor version",
		  { .exchange_status = NFS4ERR_MINOR_VERS_MISMATCH },
		  { 1 << 20, 1 << 20, 4096, 50, 8 },
		  -EPROTONOSUPPORT },
		{ "no sessions",
		  { .create_status = NFS4ERR_SERVERFAULT },
		  { 1 << 20, 1 << 20, 4096, 50, 8 },
		  -EREMOTEIO },
		{ "messages too short",
		  { .create_status = NFS4ERR_TOOSMALL },
		  { 1 << 20, 1 << 20, 4096, 50, 8 },
		  -EREMOTEIO },
		{ "a compound that is OK, and a client id that is not",
		  { .liar = V4_OP_EXCHANGE_ID },
		  { 1 << 20, 1 << 20, 4096, 50, 8 },
		  -EBADMSG },
		{ "a compound that is OK, and a session that is not",
		  { .liar = V4_OP_CREATE_SESSION },
		  { 1 << 20, 1 << 20, 4096, 50, 8 },
		  -EBADMSG },
		{ "cut", { .cut = true }, { 1 << 20, 1 << 20, 4096, 50, 8 }, -EREMOTEIO },
		{ "no slots",
		  { .cut = false },
		  { 1 << 20, 1 << 20, 4096, 50, 0 },
		  -EPROTONOSUPPORT,
		  "0 requests at a time" },
		{ "few operations",
		  { .cut = false },
		  { 1 << 20, 1 << 20, 4096, 7, 8 },
		  -EPROTONOSUPPORT,
		  "7 operations in a request over NFSv4.2, and 8 are needed" },
		{ "small requests",
		  { .cut = false },
		  { 8192, 1 << 20, 4096, 50, 8 },
		  -EPROTONOSUPPORT,
		  "8192 bytes in a request" },
		{ "small replies",
		  { .cut = false },
		  { 1 << 20, 8192, 4096, 50, 8 },
		  -EPROTONOSUPPORT,
		  "8192 bytes in a reply" },
		{ "nothing is cached", { .cut = false }, { 1 << 20, 1 << 20, 0, 50, 8 }, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };
		struct bench b;

		bench_init(&b, &rows[i].faults, &rows[i].fore);
		b.conn.client.minor = 2;
		check_int(rows[i].name, "open", v4_session_open(&b.conn, 2, &err), rows[i].want);
		check_that(rows[i].name, "session",
			   (b.conn.session != NULL) == (rows[i].want == 0));
		check_error(rows[i].name, &err,
			    rows[i].word != NULL ? ERROR_FAILED_PRECONDITION : ERROR_OK,
			    rows[i].word);
		bench_done(&b);
		check_int(rows[i].name, "sessions left", b.peer.sessions, rows[i].want == 0);
		check_int(rows[i].name, "clients left", b.peer.clients,
			  rows[i].want == 0 || rows[i].faults.cut);
	}
}
END_TEST

/* Answers that cannot be right end the connection; nobody takes them for a result. */
START_TEST(test_wrong_answers)
{
	static const struct {
		const char *name;
		struct faults faults;
		int want;
		bool doomed;
	} rows[] = {
		{ "another session", { .other_session = true }, -EBADMSG, true },
		{ "another slot", { .other_slot = true }, -EBADMSG, true },
		{ "another number", { .other_number = true }, -EBADMSG, true },
		{ "another operation", { .other_operation = true }, -EBADMSG, true },
		{ "no results", { .no_results = true }, -EBADMSG, true },
		{ "one result of two", { .no_second = true }, -EBADMSG, true },
		{ "another second operation", { .other_second = true }, -EBADMSG, true },
		{ "bad session", { .sequence_status = 10052 }, -ECONNABORTED, true },
		{ "bad slot", { .sequence_status = 10053 }, -ECONNABORTED, true },
		{ "not bound", { .sequence_status = 10055 }, -ECONNABORTED, true },
		{ "misordered", { .sequence_status = 10063 }, -ECONNABORTED, true },
		{ "uncached", { .sequence_status = 10068 }, -ECONNABORTED, true },
		{ "dead session", { .sequence_status = 10078 }, -ECONNABORTED, true },
		{ "too big", { .sequence_status = 10065 }, -EMSGSIZE, false },
		{ "delay", { .sequence_status = NFS4ERR_DELAY }, -EAGAIN, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct faults faults = { .cut = false };
		struct bench b;

		bench_init(&b, &faults, &usual);
		check_int(rows[i].name, "open", v4_session_open(&b.conn, 2, NULL), 0);
		faults = rows[i].faults;
		send_all(&b, 1);
		check_int(rows[i].name, "error", b.errors[0], rows[i].want);
		check_int(rows[i].name, "doomed", b.conn.doomed, rows[i].doomed);
		if (!rows[i].doomed) {
			send_all(&b, 3);
			check_int(rows[i].name, "goes on", b.errors[2], 0);
			check_that(rows[i].name, "numbers are right", !b.peer.is_confused);
		}
		bench_done(&b);
	}
}
END_TEST

struct opening {
	struct v4_client client;
	unsigned int answers;
	int error; /* of the last answer */
};

static void opening_answered(struct v4_client *client, int error)
{
	struct opening *o = container_of(client, struct opening, client);

	o->answers++;
	o->error = error;
}

/* Ask for the right to open files, and wait for the answer. */
static void ask_to_open(struct bench *b, struct opening *o, const char *name)
{
	const uint64_t deadline = clock_now_ns() + 30 * CLOCK_NS_PER_S;

	o->answers = 0;
	check_int(name, "asked", v4_client_get(&o->client), 0);
	check_int(name, "asked once", v4_client_get(&o->client), 0);
	while (o->answers == 0)
		ck_assert(net_rpc_run(b->conn.rpc, &o->answers, deadline) == 0);
}

/* RECLAIM_COMPLETE comes before the first OPEN, and not before other operations. */
START_TEST(test_open)
{
	static const struct {
		const char *name;
		uint32_t status;
		int want;
	} rows[] = {
		{ "complete", 0, 0 },
		{ "complete already", 10054, 0 },
		{ "busy", NFS4ERR_DELAY, -EAGAIN },
		{ "not permitted", NFS4ERR_PERM, -EPERM },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct faults faults = { .reclaim_status = rows[i].status };
		struct opening o;
		struct bench b;

		bench_init(&b, &faults, &usual);
		check_int(rows[i].name, "session", v4_session_open(&b.conn, 2, NULL), 0);
		v4_client_init(&o.client, &b.conn, opening_answered);
		send_all(&b, 3);
		check_int(rows[i].name, "asked before", (int)b.peer.reclaims, 0);
		ask_to_open(&b, &o, rows[i].name);
		check_int(rows[i].name, "answer", o.error, rows[i].want);
		check_int(rows[i].name, "times", (int)b.peer.reclaims, 1);
		if (rows[i].want < 0) {
			faults.reclaim_status = 0;
			ask_to_open(&b, &o, rows[i].name);
			check_int(rows[i].name, "answer to the next", o.error, 0);
		}
		check_int(rows[i].name, "ready", v4_client_get(&o.client), 1);
		check_that(rows[i].name, "client id", o.client.id != 0);
		check_that(rows[i].name, "numbers are right", !b.peer.is_confused);
		bench_done(&b);
	}
}
END_TEST

/* A session that the server may have lost is not used for a later call. */
START_TEST(test_fresh)
{
	static const struct faults restarted = { .flags = 0x100 };
	struct opening o;
	struct bench b;

	bench_init(&b, &restarted, &usual);
	check_int("fresh", "open", v4_session_open(&b.conn, 2, NULL), 0);
	b.conn.client.lease_s = 90;
	check_that("fresh", "new", v4_session_is_fresh(b.conn.session));
	b.conn.client.lease_s = 0;
	check_that("fresh", "lease not known", v4_session_is_fresh(b.conn.session));
	send_all(&b, 1);
	check_int("fresh", "result", b.errors[0], 0);
	check_that("fresh", "nothing to reclaim", v4_session_is_fresh(b.conn.session));
	v4_client_init(&o.client, &b.conn, opening_answered);
	ask_to_open(&b, &o, "fresh");
	check_that("fresh", "until RECLAIM_COMPLETE", v4_session_is_fresh(b.conn.session));
	send_all(&b, 1);
	check_that("fresh", "restarted", !v4_session_is_fresh(b.conn.session));
	bench_done(&b);
}
END_TEST

/* What each bit of sr_status_flags says of the session (RFC 8881, section 18.46). */
START_TEST(test_status_flags)
{
	static const struct {
		const char *name;
		uint32_t flags;
		bool ends;
	} rows[] = {
		{ "CB_PATH_DOWN", 0x1, false },
		{ "CB_GSS_CONTEXTS_EXPIRING", 0x2, false },
		{ "CB_GSS_CONTEXTS_EXPIRED", 0x4, false },
		{ "EXPIRED_ALL_STATE_REVOKED", 0x8, true },
		{ "EXPIRED_SOME_STATE_REVOKED", 0x10, true },
		{ "ADMIN_STATE_REVOKED", 0x20, true },
		{ "RECALLABLE_STATE_REVOKED", 0x40, false },
		{ "LEASE_MOVED", 0x80, false },
		{ "CB_PATH_DOWN_SESSION", 0x200, false },
		{ "BACKCHANNEL_FAULT", 0x400, false },
		{ "DEVID_CHANGED", 0x800, false },
		{ "DEVID_DELETED", 0x1000, false },
		{ "one of several", 0x1 | 0x20 | 0x400, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct faults faults = { .flags = rows[i].flags };
		struct bench b;

		bench_init(&b, &faults, &usual);
		check_int(rows[i].name, "open", v4_session_open(&b.conn, 2, NULL), 0);
		b.conn.client.lease_s = 90;
		send_all(&b, 1);
		check_int(rows[i].name, "the call itself", b.errors[0], 0);
		check_int(rows[i].name, "used again", v4_session_is_fresh(b.conn.session),
			  !rows[i].ends);
		bench_done(&b);
	}
}
END_TEST

/* A server whose cache takes less than it said: the change is sent again and not cached. */
START_TEST(test_cache)
{
	static const struct {
		const char *name;
		struct faults faults;
		int want;
		nfsstat4 want_status;
	} rows[] = {
		{ "no fault", { .flags = 0 }, 0, NFS4_OK },
		{ "refused by SEQUENCE",
		  { .sequence_status = V4_ERR_REP_TOO_BIG_TO_CACHE },
		  -EAGAIN,
		  NFS4_OK },
		{ "refused by the operation",
		  { .second_status = V4_ERR_REP_TOO_BIG_TO_CACHE },
		  0,
		  (nfsstat4)V4_ERR_REP_TOO_BIG_TO_CACHE },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const bool is_refused = i > 0;
		struct bench b;
		unsigned int n;

		bench_init(&b, &rows[i].faults, &usual);
		check_int(rows[i].name, "open", v4_session_open(&b.conn, 2, NULL), 0);
		for (n = 0; n < 2; n++) {
			send_operations(&b, 1, OP_REMOVE);
			check_int(rows[i].name, "error", b.errors[0], n == 0 ? rows[i].want : 0);
			if (n == 0 && rows[i].want == 0)
				check_int(rows[i].name, "status", b.statuses[0],
					  rows[i].want_status);
		}
		check_int(rows[i].name, "to cache", b.peer.to_cache, is_refused ? 1 : 2);
		check_that(rows[i].name, "the session goes on",
			   v4_session_is_fresh(b.conn.session) && !b.peer.is_confused);
		bench_done(&b);
	}
	check_int("status", "errno", nfs_status_errno(V4_ERR_REP_TOO_BIG_TO_CACHE), -EAGAIN);
}
END_TEST

/* -------- changes whose replies were lost -------- */

#define USER_WORDS 7 /* of AUTH_SYS, in front of the operations */
#define ANSWERS_MAX 5

/* What the server says on the second connection. */
struct resumption {
	const char *name;
	unsigned int removes; /* in the compound */
	struct {
		uint32_t sequence_status, remove_status; /* of the last REMOVE */
		uint32_t number; /* that it is asked with */
	} answers[ANSWERS_MAX];
	unsigned int n;
	int want; /* of the compound, then its status */
	uint32_t want_status;
	unsigned int cuts; /* connections that end in place of an answer, before the others */
	bool is_denied; /* by RPC, in place of the answer */
	bool hangs_up, ignores; /* BIND_CONN_TO_SESSION */
	unsigned int ends; /* that are sent if want is not 0; else both */
};

static const struct resumption resumptions[] = {
	{ "at once", 1, { { 0, 0, 1 } }, 1, 0, 0 },
	{ "refused", 1, { { 0, NFS4ERR_NOENT, 1 } }, 1, 0, NFS4ERR_NOENT },
	{ "the first one is under way",
	  1,
	  { { NFS4ERR_DELAY, 0, 1 }, { NFS4ERR_DELAY, 0, 1 }, { 0, 0, 1 } },
	  3,
	  0,
	  0 },
	{ "nothing is removed yet", 1, { { 0, NFS4ERR_DELAY, 1 }, { 0, 0, 2 } }, 2, 0, 0 },
	{ "both",
	  1,
	  { { NFS4ERR_DELAY, 0, 1 },
	    { 0, NFS4ERR_DELAY, 1 },
	    { NFS4ERR_DELAY, 0, 2 },
	    { 0, NFS4ERR_DELAY, 2 },
	    { 0, 0, 3 } },
	  5,
	  0,
	  0 },
	/* Sent again, it would find the first name gone. */
	{ "one of two is removed", 2, { { 0, NFS4ERR_DELAY, 1 } }, 1, 0, NFS4ERR_DELAY },
	{ "the reply was not kept", 1, { { 0, 10068, 1 } }, 1, -ECONNABORTED, 0, .ends = 2 },
	{ "the session is gone", 1, { { V4_ERR_BADSESSION, 0, 1 } }, 1, -ECONNABORTED, 0 },
	{ "this reply is lost, too", 1, { { 0, 0, 1 } }, 1, 0, 0, .cuts = 1 },
	{ "two more are lost", 1, { { NFS4ERR_DELAY, 0, 1 }, { 0, 0, 1 } }, 2, 0, 0, .cuts = 2 },
	{ "all are lost", 1, { { 0, 0, 0 } }, 0, -ECONNABORTED, 0, .cuts = 3 },
	{ "no binding", 1, { { 0, 0, 1 } }, 1, 0, 0, .hangs_up = true },
	{ "silence about binding", 1, { { 0, 0, 1 } }, 1, 0, 0, .ignores = true },
	/* Which says nothing of the first request. */
	{ "denied", 1, { { 0, 0, 1 } }, 1, -ECONNABORTED, 0, .is_denied = true },
};

struct second {
	int listener;
	const struct resumption *resumption;
	unsigned int calls; /* in the session */
	unsigned int binds, ends; /* BIND_CONN_TO_SESSION; DESTROY_SESSION and DESTROY_CLIENTID */
	uint32_t numbers[ANSWERS_MAX];
};

static void answer_resumed(struct answer *a, const struct resumption *r, unsigned int at,
			   const uint32_t *call)
{
	static const struct faults none;
	const uint32_t sequence = r->answers[at].sequence_status;
	const uint32_t last = r->answers[at].remove_status;
	struct peer peer = { .faults = &none, .fore = usual };
	unsigned int i, j;

	put(a, sequence != 0 ? sequence : last);
	put(a, 0);
	put(a, sequence != 0 ? 1 : 2 + r->removes);
	put(a, V4_OP_SEQUENCE);
	put(a, sequence);
	if (sequence != 0)
		return;
	answer_sequence(a, &peer, call);
	put(a, OP_PUTROOTFH);
	put(a, 0);
	for (i = 1; i <= r->removes; i++) {
		put(a, OP_REMOVE);
		put(a, i < r->removes ? 0 : last);
		for (j = 0; j < 5 && (i < r->removes || last == 0); j++)
			put(a, 1);
	}
}

/* Answer a compound that is not in the session. Return false for one that is. */
static bool answer_outside(struct answer *a, struct second *second, uint32_t opnum)
{
	const bool is_bind = opnum == V4_OP_BIND_CONN_TO_SESSION;

	if (opnum == V4_OP_SEQUENCE)
		return false;
	second->binds += is_bind;
	second->ends += !is_bind;
	put(a, 0);
	put(a, 0);
	put(a, 1);
	put(a, opnum);
	put(a, 0);
	if (is_bind) {
		put_session(a, 1);
		put(a, 1);
		put(a, 0);
	}
	return true;
}

static void *serve_second(void *data)
{
	struct second *second = data;
	uint32_t call[WORDS_MAX] = { 0 }, opnum;
	const struct resumption *r = second->resumption;
	unsigned int cuts = r->cuts;
	int fd = accept(second->listener, NULL, NULL);

	ck_assert(fd >= 0);
	while (recv(fd, call, 4, MSG_WAITALL) == 4) {
		const size_t len = ntohl(call[0]) & ~LAST;
		struct answer a = { .n = 1 };
		bool is_bind, is_cut;

		if (recv(fd, call + 1, len, MSG_WAITALL) != (ssize_t)len)
			break;
		opnum = ntohl(call[USER_WORDS + OPERATION]);
		is_bind = opnum == V4_OP_BIND_CONN_TO_SESSION;
		is_cut = opnum == V4_OP_SEQUENCE && cuts > 0;
		if (is_bind && r->ignores)
			(void)!recv(fd, call, 4, MSG_WAITALL); /* until it is closed */
		if (is_cut || (is_bind && (r->ignores || r->hangs_up))) {
			second->binds += is_bind;
			cuts -= is_cut;
			close(fd);
			if (is_cut && cuts == 0 && r->n == 0)
				return NULL;
			fd = accept(second->listener, NULL, NULL);
			continue;
		}
		if (opnum == V4_OP_SEQUENCE && second->calls == r->n)
			break;
		a.words[a.n++] = call[1]; /* xid */
		put(&a, 1);
		put(&a, r->is_denied ? 1 : 0);
		put(&a, r->is_denied ? 1 : 0); /* AUTH_ERROR: */
		put(&a, r->is_denied ? 1 : 0); /* AUTH_BADCRED */
		put(&a, 0);
		if (!answer_outside(&a, second, opnum)) {
			second->numbers[second->calls] = ntohl(call[USER_WORDS + SEQUENCE_NUMBER]);
			answer_resumed(&a, r, second->calls++, call + USER_WORDS);
		}
		a.words[0] = htonl(LAST | (uint32_t)((a.n - 1) * 4));
		(void)!send(fd, a.words, a.n * 4, MSG_NOSIGNAL);
	}
	close(fd);
	return NULL;
}

static int listen_for(struct bench *b)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert(bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, 1) == 0);
	ck_assert(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
	memcpy(&b->conn.address.addr, &address, len);
	b->conn.address.len = len;
	b->conn.client.export.port = ntohs(address.sin_port);
	b->conn.client.export.any_port = true;
	return fd;
}

START_TEST(test_lost_reply)
{
	static const struct faults hangs_up = { .hangs_up = true };
	const struct resumption *row = &resumptions[_i];
	struct second second = { .resumption = row };
	struct pollfd more = { .events = POLLIN };
	struct v4_compound c = { .n = 0 };
	struct bench b;
	pthread_t thread;
	unsigned int i;

	bench_init(&b, &hangs_up, &usual);
	second.listener = listen_for(&b);
	ck_assert(pthread_create(&thread, NULL, serve_second, &second) == 0);
	check_int(row->name, "open", v4_session_open(&b.conn, 1, NULL), 0);
	v4_add(&c, OP_PUTROOTFH);
	for (i = 0; i < row->removes; i++)
		v4_add(&c, OP_REMOVE)->nfs_argop4_u.opremove.target = v4_text("name");
	check_int(row->name, "send", v4_send(&b.conn, &c, replied, &b), 0);
	check_int(row->name, "the reply is lost",
		  net_rpc_run(b.conn.rpc, &b.replies, clock_now_ns() + 30 * CLOCK_NS_PER_S),
		  -ECONNABORTED);
	nfs_connection_break(&b.conn, -ECONNABORTED);
	pthread_join(thread, NULL);
	pthread_join(b.thread, NULL);
	more.fd = second.listener;
	check_int(row->name, "more connections", poll(&more, 1, 0), 0);
	close(second.listener);
	check_int(row->name, "replies", b.replies, 1);
	check_int(row->name, "error", b.errors[0], row->want);
	if (row->want == 0)
		check_int(row->name, "status", b.statuses[0], row->want_status);
	check_int(row->name, "calls", second.calls, row->n);
	check_int(row->name, "binds", second.binds, row->cuts + (row->n > 0));
	/* Nothing is given back that the server says it has not, or that nobody answers for. */
	check_int(row->name, "ends", second.ends, row->want == 0 ? 2 : row->ends);
	for (i = 0; i < row->n; i++)
		check_int(row->name, "number", second.numbers[i], row->answers[i].number);
}
END_TEST

/* Whoever aborts does not wait for the answer to a change, and sends it nowhere else. */
START_TEST(test_abort)
{
	static const struct faults silent = { .silent = true };
	struct pollfd p = { .events = POLLIN };
	struct v4_compound c = { .n = 0 };
	struct bench b;
	uint64_t begun;

	bench_init(&b, &silent, &usual);
	b.conn.client.ops = &nfs_connection_ops;
	p.fd = listen_for(&b);
	check_int("abort", "open", v4_session_open(&b.conn, 1, NULL), 0);
	v4_add(&c, OP_PUTROOTFH);
	v4_add(&c, OP_REMOVE)->nfs_argop4_u.opremove.target = v4_text("name");
	check_int("abort", "send", v4_send(&b.conn, &c, replied, &b), 0);
	begun = clock_now_ns();
	check_int("abort", "sent",
		  net_rpc_run(b.conn.rpc, &b.replies, begun + 50 * CLOCK_NS_PER_MS), -ETIMEDOUT);
	nfs_client_abort(&b.conn.client);
	check_that("abort", "at once", clock_now_ns() - begun < 4 * CLOCK_NS_PER_S);
	check_int("abort", "connections", poll(&p, 1, 0), 0);
	check_int("abort", "replies", b.replies, 1);
	check_int("abort", "error", b.errors[0], -ECONNABORTED);
	check_that("abort", "broken", b.conn.client.broken && b.conn.session == NULL);
	pthread_join(b.thread, NULL);
	close(p.fd);
}
END_TEST

CHECK_MAIN("session",
	   .tests = { test_slots, test_turns, test_target, test_set_up, test_wrong_answers,
		      test_open, test_fresh, test_status_flags, test_cache, test_abort },
	   .loops = { { test_lost_reply, ARRAY_SIZE(resumptions) } })
