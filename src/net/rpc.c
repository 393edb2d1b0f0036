/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "net/zdr.h"

/* A record is a sequence of fragments. A mark before each has its length and a bit for the last. */
#define MARK_BYTES 4
#define MARK_LAST 0x80000000U
#define FRAGMENTS_MAX 64

#define MACHINE "csi-nfs" /* of AUTH_SYS */
#define MACHINE_BYTES 8 /* with its padding */
#define AUTH_SYS_BYTES (5 * 4 + MACHINE_BYTES)

#define READ_FIRST 4096 /* bytes that the first read asks for */
#define READ_MAX ((size_t)256 * 1024)
#define BUFFER_KEEP ((size_t)16 * 1024) /* bytes kept while nothing is in flight */
#define SEND_AT ((size_t)256 * 1024) /* send at once when so many bytes are queued */
#define CALLS_FIRST 16

/* Unsent or unread bytes are data[start..end). */
struct buffer {
	char *data;
	size_t size; /* allocated */
	size_t start, end;
};

struct call {
	const struct net_rpc_procedure *procedure; /* NULL: not in flight */
	uint32_t xid;
	uint64_t since_ns; /* when it was queued */
	net_rpc_replied *replied;
	void *data;
};

struct net_rpc {
	int fd;
	bool ending; /* net_rpc_free() is at work */
	bool has_user; /* AUTH_SYS, else AUTH_NONE */
	struct net_rpc_user user;
	uint32_t low, high; /* see net_rpc_versions() */
	struct call *calls; /* hash table: the call with some xid is at xid % n_calls */
	uint32_t n_calls; /* a power of two */
	uint32_t in_flight;
	uint32_t next_xid;
	struct buffer out, in;
	size_t read_size; /* bytes that the next read asks for */
};

/* -------- buffers -------- */

/* Make room for n bytes after the end. The data may move. */
static int buffer_reserve(struct buffer *b, size_t n)
{
	size_t cut = b->start & ~(size_t)3; /* keep XDR aligned */
	size_t size;
	char *data;

	if (b->data != NULL && b->size - b->end >= n)
		return 0;
	if (cut > 0) {
		memmove(b->data, b->data + cut, b->end - cut);
		b->start -= cut;
		b->end -= cut;
	}
	if (b->data != NULL && b->size - b->end >= n)
		return 0;
	/* Do not double: with many WRITEs queued this is megabytes. */
	size = b->size + b->size / 4;
	if (size < b->end + n)
		size = b->end + n;
	data = realloc(b->data, size);
	if (data == NULL)
		return -ENOMEM;
	b->data = data;
	b->size = size;
	return 0;
}

static void buffer_consume(struct buffer *b, size_t n)
{
	b->start += n;
	if (b->start == b->end)
		b->start = b->end = 0;
}

static void buffer_trim(struct buffer *b)
{
	if (b->start != b->end || b->size <= BUFFER_KEEP)
		return;
	free(b->data);
	*b = (struct buffer){ .data = NULL };
}

static uint32_t load_u32(const char *p)
{
	uint32_t be;

	memcpy(&be, p, sizeof(be));
	return ntohl(be);
}

static void store_u32(char *p, uint32_t value)
{
	uint32_t be = htonl(value);

	memcpy(p, &be, sizeof(be));
}

/* -------- calls in flight -------- */

static struct call *call_at(const struct net_rpc *rpc, uint32_t xid)
{
	return &rpc->calls[xid & (rpc->n_calls - 1)];
}

/* Entries cannot collide: xids that differ in the low bits still differ with one more bit. */
static int grow_calls(struct net_rpc *rpc)
{
	uint32_t i, n = rpc->n_calls;
	struct call *old = rpc->calls;
	struct call *calls = calloc(n != 0 ? 2 * n : CALLS_FIRST, sizeof(*calls));

	if (calls == NULL)
		return -ENOMEM;
	rpc->calls = calls;
	rpc->n_calls = n != 0 ? 2 * n : CALLS_FIRST;
	for (i = 0; i < n; i++)
		if (old[i].procedure != NULL)
			*call_at(rpc, old[i].xid) = old[i];
	free(old);
	return 0;
}

/* Find a free slot and its xid. Half of the slots are free, so few xids are skipped. */
static int next_call(struct net_rpc *rpc, struct call **ret)
{
	if (2 * rpc->in_flight >= rpc->n_calls) {
		int r = grow_calls(rpc);

		if (r < 0)
			return r;
	}
	while (call_at(rpc, rpc->next_xid)->procedure != NULL)
		rpc->next_xid++;
	*ret = call_at(rpc, rpc->next_xid);
	(*ret)->xid = rpc->next_xid++;
	return 0;
}

static void end_call(struct net_rpc *rpc, struct call *call, int error, const void *results)
{
	struct call ended = *call;

	/* Free the slot first: the callback may start other calls. */
	call->procedure = NULL;
	rpc->in_flight--;
	ended.replied(ended.data, error, results);
}

/* -------- out -------- */

static bool put_words(ZDR *zdr, uint32_t *words, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!zdr_u_int(zdr, &words[i]))
			return false;
	return true;
}

static bool put_header(const struct net_rpc *rpc, ZDR *zdr,
		       const struct net_rpc_procedure *procedure, uint32_t xid)
{
	uint32_t call[] = { xid,
			    CALL,
			    RPC_MSG_VERSION,
			    procedure->program,
			    procedure->version,
			    procedure->number };
	uint32_t none[] = { AUTH_NONE, 0, AUTH_NONE, 0 };
	uint32_t sys[] = { AUTH_UNIX, AUTH_SYS_BYTES, 0, strlen(MACHINE) };
	uint32_t user[] = { rpc->user.uid, rpc->user.gid, 0, AUTH_NONE, 0 };
	char machine[MACHINE_BYTES] = MACHINE;

	if (!put_words(zdr, call, ARRAY_SIZE(call)))
		return false;
	if (!rpc->has_user)
		return put_words(zdr, none, ARRAY_SIZE(none));
	return put_words(zdr, sys, ARRAY_SIZE(sys)) &&
	       net_zdr_put_fixed(zdr, machine, sizeof(machine)) &&
	       put_words(zdr, user, ARRAY_SIZE(user));
}

static bool encode_into(struct net_rpc *rpc, const struct net_rpc_procedure *procedure,
			uint32_t xid, void *args, size_t room)
{
	struct buffer *out = &rpc->out;
	char *mark = out->data + out->end;
	bool fits;
	ZDR zdr;

	zdrmem_create(&zdr, mark + MARK_BYTES, (uint32_t)(room - MARK_BYTES), ZDR_ENCODE);
	fits = put_header(rpc, &zdr, procedure, xid) && procedure->encode(&zdr, args);
	if (fits) {
		store_u32(mark, MARK_LAST | zdr_getpos(&zdr));
		out->end += MARK_BYTES + zdr_getpos(&zdr);
	}
	zdr_destroy(&zdr);
	return fits;
}

static int encode_call(struct net_rpc *rpc, const struct net_rpc_procedure *procedure, uint32_t xid,
		       void *args)
{
	/* Most calls are short, and WRITEs have one length. */
	static const size_t rooms[] = { 4096, 32768, NET_RPC_DATA_MAX + 4096, NET_RPC_RECORD_MAX };
	size_t i;
	int r;

	for (i = 0; i < ARRAY_SIZE(rooms); i++) {
		r = buffer_reserve(&rpc->out, rooms[i] + NET_ZDR_ENCODE_SPARE);
		if (r < 0)
			return r;
		if (encode_into(rpc, procedure, xid, args, rooms[i]))
			return 0;
	}
	return -EMSGSIZE;
}

static int send_queued(struct net_rpc *rpc)
{
	struct buffer *out = &rpc->out;
	ssize_t n;

	while (out->start < out->end) {
		n = send(rpc->fd, out->data + out->start, out->end - out->start,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0 && errno != EINTR)
			return -ECONNABORTED;
		if (n > 0)
			buffer_consume(out, (size_t)n);
	}
	return 0;
}

int net_rpc_call(struct net_rpc *rpc, const struct net_rpc_procedure *procedure, void *args,
		 net_rpc_replied *replied, void *data)
{
	struct call *call;
	int r;

	if (rpc->ending)
		return -ECONNABORTED;
	r = next_call(rpc, &call);
	if (r < 0)
		return r;
	r = encode_call(rpc, procedure, call->xid, args);
	if (r < 0)
		return r;
	call->procedure = procedure;
	call->since_ns = clock_now_ns();
	call->replied = replied;
	call->data = data;
	rpc->in_flight++;
	/* An error shows up again in net_rpc_send(). */
	if (rpc->out.end - rpc->out.start >= SEND_AT)
		(void)send_queued(rpc);
	return 0;
}

/* -------- in -------- */

/* Find the call of a reply. NULL: no NFS server sent this. */
static struct call *find_call(const struct net_rpc *rpc, ZDR *zdr)
{
	uint32_t xid, direction;
	struct call *call;

	if (rpc->n_calls == 0 || !zdr_u_int(zdr, &xid) || !zdr_u_int(zdr, &direction) ||
	    direction != REPLY)
		return NULL;
	call = call_at(rpc, xid);
	return call->procedure != NULL && call->xid == xid ? call : NULL;
}

/* Decode the rest of the reply header. Returns 0 if results follow. */
static int take_header(struct net_rpc *rpc, ZDR *zdr)
{
	uint32_t stat, why, flavor, verifier_len;
	char *verifier;

	if (!zdr_u_int(zdr, &stat))
		return -EREMOTEIO;
	if (stat == MSG_DENIED && zdr_u_int(zdr, &why) && why == AUTH_ERROR)
		return -EACCES;
	if (stat != MSG_ACCEPTED || !zdr_u_int(zdr, &flavor) ||
	    !net_zdr_take_bytes(zdr, &verifier, &verifier_len) || !zdr_u_int(zdr, &stat))
		return -EREMOTEIO;
	switch (stat) {
	case SUCCESS:
		return 0;
	case PROG_UNAVAIL:
		return -EPROTO;
	case PROG_MISMATCH:
		if (!zdr_u_int(zdr, &rpc->low) || !zdr_u_int(zdr, &rpc->high))
			return -EREMOTEIO;
		return -EPROTONOSUPPORT;
	case PROC_UNAVAIL:
		return -EOPNOTSUPP;
	case GARBAGE_ARGS:
		return -EBADRQC;
	default:
		return -EREMOTEIO;
	}
}

static bool has_trailing_bytes(const struct net_rpc_procedure *procedure, const ZDR *zdr,
			       const void *results)
{
	uint32_t status;

	memcpy(&status, results, sizeof(status));
	return procedure->is_whole && status == 0 && zdr->pos != zdr->size;
}

static int take_reply(struct net_rpc *rpc, char *text, size_t len)
{
	_Alignas(max_align_t) char results[NET_RPC_RESULTS_MAX];
	struct call *call;
	int error;
	ZDR zdr;

	zdrmem_create(&zdr, text, (uint32_t)len, ZDR_DECODE);
	call = find_call(rpc, &zdr);
	if (call == NULL)
		return -ECONNABORTED;
	memset(results, 0, call->procedure->size);
	error = take_header(rpc, &zdr);
	if (error == 0 && (!call->procedure->decode(&zdr, results) ||
			   has_trailing_bytes(call->procedure, &zdr, results)))
		error = -EREMOTEIO;
	end_call(rpc, call, error, error == 0 ? results : NULL);
	zdr_destroy(&zdr);
	return 0;
}

/* Join the fragments of a record in place: its text begins after the first mark. */
static void join_fragments(char *first, unsigned int fragments)
{
	char *to = first + MARK_BYTES, *from = first;

	while (fragments-- > 0) {
		size_t size = load_u32(from) & ~MARK_LAST;

		memmove(to, from + MARK_BYTES, size);
		to += size;
		from += MARK_BYTES + size;
	}
}

/*
 * Find a whole record at the start of the buffer. Returns 1, with the length of its text and the
 * bytes that it takes in the buffer; 0 if more has to come; or -ECONNABORTED.
 */
static int find_record(struct net_rpc *rpc, size_t *ret_len, size_t *ret_taken)
{
	const struct buffer *in = &rpc->in;
	unsigned int fragments = 0;
	size_t at = in->start, len = 0;
	uint32_t mark, size;

	do {
		if (in->end - at < MARK_BYTES)
			return 0;
		mark = load_u32(in->data + at);
		size = mark & ~MARK_LAST;
		if (size > NET_RPC_RECORD_MAX - len || ++fragments > FRAGMENTS_MAX)
			return -ECONNABORTED;
		at += MARK_BYTES;
		if (in->end - at < size) {
			/* Get all of it with the next read. */
			if (rpc->read_size < size)
				rpc->read_size = size;
			return 0;
		}
		at += size;
		len += size;
	} while (!(mark & MARK_LAST));
	if (len % 4 != 0)
		return -ECONNABORTED; /* XDR comes in words */
	if (fragments > 1)
		join_fragments(in->data + in->start, fragments);
	*ret_len = len;
	*ret_taken = at - in->start;
	return 1;
}

static int take_records(struct net_rpc *rpc)
{
	size_t len, taken;
	int r;

	while ((r = find_record(rpc, &len, &taken)) == 1) {
		r = take_reply(rpc, rpc->in.data + rpc->in.start + MARK_BYTES, len);
		if (r < 0)
			return r;
		buffer_consume(&rpc->in, taken);
	}
	return r;
}

int net_rpc_receive(struct net_rpc *rpc)
{
	struct buffer *in = &rpc->in;
	size_t asked;
	ssize_t n;
	int r;

	do {
		if (buffer_reserve(in, rpc->read_size) < 0)
			return -ECONNABORTED;
		asked = in->size - in->end;
		n = recv(rpc->fd, in->data + in->end, asked, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0)
			return -ECONNABORTED;
		in->end += (size_t)n;
		/* The read was filled: more is waiting. */
		if ((size_t)n == asked && rpc->read_size < READ_MAX)
			rpc->read_size *= 2;
		r = take_records(rpc);
		if (r < 0)
			return r;
	} while ((size_t)n == asked);
	if (rpc->in_flight == 0) {
		rpc->read_size = READ_FIRST;
		buffer_trim(in);
		buffer_trim(&rpc->out);
	}
	return 0;
}

/* -------- driving -------- */

int net_rpc_send(struct net_rpc *rpc, struct pollfd *ret)
{
	int r = send_queued(rpc);

	*ret = (struct pollfd){ .fd = rpc->fd, .events = POLLIN };
	if (rpc->out.start < rpc->out.end)
		ret->events |= POLLOUT;
	return r;
}

int net_rpc_wait(struct pollfd *p, nfds_t n, uint64_t deadline_ns)
{
	int found;

	do {
		found = poll(p, n, clock_left_ms(deadline_ns));
	} while (found < 0 && errno == EINTR);
	if (found < 0)
		return -ECONNABORTED;
	return found == 0 ? -ETIMEDOUT : 0;
}

int net_rpc_run(struct net_rpc *rpc, const unsigned int *counter, uint64_t deadline_ns)
{
	unsigned int before = *counter;
	struct pollfd p;
	int r;

	for (;;) {
		r = net_rpc_send(rpc, &p);
		if (r == 0)
			r = net_rpc_wait(&p, 1, deadline_ns);
		if (r == 0)
			r = net_rpc_receive(rpc);
		if (r < 0 || *counter != before)
			return r;
		/* Bytes that trickle in are no answer. */
		if (clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
	}
}

struct question {
	unsigned int finished;
	int error;
	int (*take)(void *data, const void *results);
	void *data;
};

static void question_replied(void *data, int error, const void *results)
{
	struct question *question = data;

	question->finished++;
	question->error = error;
	if (error == 0 && question->take != NULL)
		question->error = question->take(question->data, results);
}

/* Drop a call without its callback: a reply would then end the connection. */
static void forget_call(struct net_rpc *rpc, const void *data)
{
	uint32_t i;

	for (i = 0; i < rpc->n_calls; i++) {
		if (rpc->calls[i].procedure == NULL || rpc->calls[i].data != data)
			continue;
		rpc->calls[i].procedure = NULL;
		rpc->in_flight--;
	}
}

int net_rpc_ask(struct net_rpc *rpc, const struct net_rpc_procedure *procedure, void *args,
		int (*take)(void *data, const void *results), void *data, uint64_t deadline_ns)
{
	struct question question = { .take = take, .data = data };
	int r;

	r = net_rpc_call(rpc, procedure, args, question_replied, &question);
	if (r < 0)
		return r;
	r = net_rpc_run(rpc, &question.finished, deadline_ns);
	if (question.finished == 0)
		forget_call(rpc, &question); /* it is on our stack */
	else
		r = question.error;
	return r;
}

void net_rpc_versions(const struct net_rpc *rpc, uint32_t *ret_low, uint32_t *ret_high)
{
	*ret_low = rpc->low;
	*ret_high = rpc->high;
}

uint64_t net_rpc_oldest_ns(const struct net_rpc *rpc)
{
	uint64_t oldest = 0;
	uint32_t i;

	for (i = 0; i < rpc->n_calls; i++)
		if (rpc->calls[i].procedure != NULL &&
		    (oldest == 0 || rpc->calls[i].since_ns < oldest))
			oldest = rpc->calls[i].since_ns;
	return oldest;
}

size_t net_rpc_unsent(const struct net_rpc *rpc)
{
	return rpc->out.end - rpc->out.start;
}

bool net_rpc_is_midway(const struct net_rpc *rpc)
{
	return rpc->in.start != rpc->in.end;
}

bool net_rpc_is_taken(const struct net_rpc *rpc)
{
	int unsent = 0;

	return rpc->out.start == rpc->out.end && ioctl(rpc->fd, SIOCOUTQ, &unsent) == 0 &&
	       unsent == 0;
}

bool net_rpc_is_quiet(const struct net_rpc *rpc)
{
	struct pollfd p = { .fd = rpc->fd, .events = POLLIN | POLLRDHUP };

	return rpc->in.start == rpc->in.end && poll(&p, 1, 0) == 0;
}

/* -------- lifetime -------- */

void net_rpc_drop_user(struct net_rpc *rpc)
{
	rpc->has_user = false;
}

int net_rpc_new(struct net_rpc **ret, int fd, const struct net_rpc_user *user)
{
	struct net_rpc *rpc;

	rpc = calloc(1, sizeof(*rpc));
	if (rpc == NULL) {
		close(fd);
		return -ENOMEM;
	}
	rpc->fd = fd;
	rpc->has_user = user != NULL;
	if (user != NULL)
		rpc->user = *user;
	rpc->read_size = READ_FIRST;
	/*
	 * Servers cache replies by client, port and xid: do not repeat the xids of an earlier
	 * connection. getrandom() returns this few bytes in one call; if it fails, the time has to
	 * do.
	 */
	rpc->next_xid = (uint32_t)clock_now_ns();
	(void)!getrandom(&rpc->next_xid, sizeof(rpc->next_xid), 0);
	*ret = rpc;
	return 0;
}

void net_rpc_free(struct net_rpc *rpc, int error)
{
	uint32_t i;

	if (rpc == NULL)
		return;
	rpc->ending = true;
	for (i = 0; i < rpc->n_calls; i++)
		if (rpc->calls[i].procedure != NULL)
			end_call(rpc, &rpc->calls[i], error, NULL);
	close(rpc->fd);
	free(rpc->calls);
	free(rpc->out.data);
	free(rpc->in.data);
	free(rpc);
}
