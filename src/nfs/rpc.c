/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/rpc.h"

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

/* A record is made of fragments, each behind a mark: its length, and a bit in the last one. */
#define MARK_BYTES 4
#define MARK_LAST 0x80000000U
#define FRAGMENTS_MAX 64

#define MACHINE "csi-nfs" /* of AUTH_SYS */
#define MACHINE_BYTES 8 /* with its padding */
#define AUTH_SYS_BYTES (5 * 4 + MACHINE_BYTES)

#define ROOM_FIRST 4096 /* that is read at first */
#define ROOM_READ_MAX ((size_t)256 * 1024)
#define KEEP ((size_t)16 * 1024) /* of a buffer, while nothing is in flight */
#define SEND_AT ((size_t)256 * 1024) /* queued bytes that do not wait for the rest */
#define CALLS_FIRST 16

/* Bytes that wait in data[start..end). */
struct buffer {
	char *data;
	size_t size; /* allocated */
	size_t start, end;
};

struct call {
	const struct nfs_rpc_procedure *procedure; /* NULL: not in flight */
	uint32_t xid;
	uint64_t since_ns; /* when it was queued */
	nfs_rpc_replied *replied;
	void *data;
};

struct nfs_rpc {
	int fd;
	bool ending;
	uint32_t uid, gid;
	struct call *calls; /* the one with some xid is at xid % n_calls */
	uint32_t n_calls; /* a power of two */
	uint32_t in_flight;
	uint32_t next_xid;
	struct buffer out, in;
	size_t room; /* to read into */
};

/* -------- buffers -------- */

/* Makes room for n bytes behind the end. What waits may move. */
static int buffer_reserve(struct buffer *b, size_t n)
{
	size_t cut = b->start & ~(size_t)3; /* XDR stays aligned */
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
	/* Not twice as much: with many WRITEs that wait it comes to megabytes. */
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
	if (b->start != b->end || b->size <= KEEP)
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

static struct call *call_at(const struct nfs_rpc *rpc, uint32_t xid)
{
	return &rpc->calls[xid & (rpc->n_calls - 1)];
}

/* Two that differ in the lower bits of their xids still do with one bit more. */
static int grow_calls(struct nfs_rpc *rpc)
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

/* A place for another call: half of them are free, so that few xids are passed over. */
static int next_call(struct nfs_rpc *rpc, struct call **ret)
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

static void end_call(struct nfs_rpc *rpc, struct call *call, int error, const void *results)
{
	struct call ended = *call;

	/* Whoever hears of it may start others. */
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

static bool put_header(const struct nfs_rpc *rpc, ZDR *zdr,
		       const struct nfs_rpc_procedure *procedure, uint32_t xid)
{
	uint32_t before[] = { xid,
			      CALL,
			      RPC_MSG_VERSION,
			      procedure->program,
			      procedure->version,
			      procedure->number,
			      AUTH_UNIX,
			      AUTH_SYS_BYTES,
			      0,
			      strlen(MACHINE) };
	uint32_t after[] = { rpc->uid, rpc->gid, 0, AUTH_NONE, 0 }; /* no further groups, no verifier */
	char machine[MACHINE_BYTES] = MACHINE;

	return put_words(zdr, before, ARRAY_SIZE(before)) &&
	       zdr_opaque(zdr, machine, sizeof(machine)) && put_words(zdr, after, ARRAY_SIZE(after));
}

static bool encode_into(struct nfs_rpc *rpc, const struct nfs_rpc_procedure *procedure,
			uint32_t xid, void *args, size_t room, size_t *ret_len)
{
	struct buffer *out = &rpc->out;
	bool fits;
	ZDR zdr;

	zdrmem_create(&zdr, out->data + out->end + MARK_BYTES, (uint32_t)(room - MARK_BYTES),
		      ZDR_ENCODE);
	fits = put_header(rpc, &zdr, procedure, xid) && procedure->encode(&zdr, args);
	*ret_len = zdr_getpos(&zdr);
	zdr_destroy(&zdr);
	return fits;
}

/* The next one is tried where it does not fit: most calls are short, and WRITEs of one length. */
static const size_t rooms[] = { 4096, 32768, NFS_TRANSFER_MAX + 4096, NFS_RPC_RECORD_MAX };

static int encode(struct nfs_rpc *rpc, const struct nfs_rpc_procedure *procedure, uint32_t xid,
		  void *args)
{
	struct buffer *out = &rpc->out;
	size_t i, len;
	int r;

	for (i = 0; i < ARRAY_SIZE(rooms); i++) {
		r = buffer_reserve(out, rooms[i]);
		if (r < 0)
			return r;
		if (encode_into(rpc, procedure, xid, args, rooms[i], &len)) {
			store_u32(out->data + out->end, MARK_LAST | (uint32_t)len);
			out->end += MARK_BYTES + len;
			return 0;
		}
	}
	return -EMSGSIZE;
}

static int send_some(struct nfs_rpc *rpc)
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

int nfs_rpc_call(struct nfs_rpc *rpc, const struct nfs_rpc_procedure *procedure, void *args,
		 nfs_rpc_replied *replied, void *data)
{
	struct call *call;
	int r;

	if (rpc->ending)
		return -ECONNABORTED;
	r = next_call(rpc, &call);
	if (r < 0)
		return r;
	r = encode(rpc, procedure, call->xid, args);
	if (r < 0)
		return r;
	call->procedure = procedure;
	call->since_ns = clock_now_ns();
	call->replied = replied;
	call->data = data;
	rpc->in_flight++;
	/* An error comes back when the rest is sent. */
	if (rpc->out.end - rpc->out.start >= SEND_AT)
		(void)send_some(rpc);
	return 0;
}

/* -------- in -------- */

/* What is not the reply to a call in flight was not sent by an NFS server. */
static struct call *find_call(const struct nfs_rpc *rpc, ZDR *zdr)
{
	uint32_t xid, direction;
	struct call *call;

	if (rpc->n_calls == 0 || !zdr_u_int(zdr, &xid) || !zdr_u_int(zdr, &direction) ||
	    direction != REPLY)
		return NULL;
	call = call_at(rpc, xid);
	return call->procedure != NULL && call->xid == xid ? call : NULL;
}

/* The rest of the header. 0 where results follow. */
static int take_header(ZDR *zdr)
{
	struct opaque_auth verifier = { .oa_base = NULL };
	uint32_t stat, why;

	if (!zdr_u_int(zdr, &stat))
		return -EREMOTEIO;
	if (stat == MSG_DENIED && zdr_u_int(zdr, &why) && why == AUTH_ERROR)
		return -EACCES;
	if (stat != MSG_ACCEPTED || !zdr_u_int(zdr, &verifier.oa_flavor) ||
	    !zdr_bytes(zdr, &verifier.oa_base, &verifier.oa_length, UINT32_MAX) ||
	    !zdr_u_int(zdr, &stat))
		return -EREMOTEIO;
	if (stat == PROC_UNAVAIL)
		return -EOPNOTSUPP;
	return stat == SUCCESS ? 0 : -EREMOTEIO;
}

static int take_reply(struct nfs_rpc *rpc, char *text, size_t len)
{
	_Alignas(max_align_t) char results[NFS_RPC_RESULTS_MAX];
	struct call *call;
	int error;
	ZDR zdr;

	zdrmem_create(&zdr, text, (uint32_t)len, ZDR_DECODE);
	call = find_call(rpc, &zdr);
	if (call == NULL)
		return -ECONNABORTED;
	memset(results, 0, call->procedure->size);
	error = take_header(&zdr);
	if (error == 0 && !call->procedure->decode(&zdr, results))
		error = -EREMOTEIO;
	end_call(rpc, call, error, error == 0 ? results : NULL);
	zdr_destroy(&zdr);
	return 0;
}

/* The text of a record of several fragments, put together from the first mark on. */
static void join(char *first, unsigned int fragments)
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
 * Finds the record at the start. Returns 1 with its text and how many bytes it takes of the buffer, 0
 * if there is more to come, or -ECONNABORTED.
 */
static int find_record(struct nfs_rpc *rpc, size_t *ret_len, size_t *ret_taken)
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
		if (size > NFS_RPC_RECORD_MAX - len || ++fragments > FRAGMENTS_MAX)
			return -ECONNABORTED;
		at += MARK_BYTES;
		if (in->end - at < size) {
			/* All of it by the next read, and what follows with it. */
			if (rpc->room < size)
				rpc->room = size;
			return 0;
		}
		at += size;
		len += size;
	} while (!(mark & MARK_LAST));
	if (len % 4 != 0)
		return -ECONNABORTED; /* no XDR */
	if (fragments > 1)
		join(in->data + in->start, fragments);
	*ret_len = len;
	*ret_taken = at - in->start;
	return 1;
}

static int take_records(struct nfs_rpc *rpc)
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

int nfs_rpc_receive(struct nfs_rpc *rpc)
{
	struct buffer *in = &rpc->in;
	size_t asked;
	ssize_t n;
	int r;

	do {
		if (buffer_reserve(in, rpc->room) < 0)
			return -ECONNABORTED;
		asked = in->size - in->end;
		n = recv(rpc->fd, in->data + in->end, asked, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0)
			return -ECONNABORTED;
		in->end += (size_t)n;
		/* There is more than was asked for. */
		if ((size_t)n == asked && rpc->room < ROOM_READ_MAX)
			rpc->room *= 2;
		r = take_records(rpc);
		if (r < 0)
			return r;
	} while ((size_t)n == asked);
	if (rpc->in_flight == 0) {
		rpc->room = ROOM_FIRST;
		buffer_trim(in);
		buffer_trim(&rpc->out);
	}
	return 0;
}

/* -------- driving -------- */

int nfs_rpc_send(struct nfs_rpc *rpc, struct pollfd *ret)
{
	int r = send_some(rpc);

	*ret = (struct pollfd){ .fd = rpc->fd, .events = POLLIN };
	if (rpc->out.start < rpc->out.end)
		ret->events |= POLLOUT;
	return r;
}

int nfs_rpc_wait(struct pollfd *p, nfds_t n, uint64_t deadline_ns)
{
	int found;

	do {
		found = poll(p, n, clock_left_ms(deadline_ns));
	} while (found < 0 && errno == EINTR);
	if (found < 0)
		return -ECONNABORTED;
	return found == 0 ? -ETIMEDOUT : 0;
}

int nfs_rpc_run(struct nfs_rpc *rpc, const unsigned int *counter, uint64_t deadline_ns)
{
	unsigned int before = *counter;
	struct pollfd p;
	int r;

	for (;;) {
		r = nfs_rpc_send(rpc, &p);
		if (r == 0)
			r = nfs_rpc_wait(&p, 1, deadline_ns);
		if (r == 0)
			r = nfs_rpc_receive(rpc);
		if (r < 0 || *counter != before)
			return r;
		/* Who only sends a byte now and then does not answer, either. */
		if (clock_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
	}
}

uint64_t nfs_rpc_oldest_ns(const struct nfs_rpc *rpc)
{
	uint64_t oldest = 0;
	uint32_t i;

	for (i = 0; i < rpc->n_calls; i++)
		if (rpc->calls[i].procedure != NULL &&
		    (oldest == 0 || rpc->calls[i].since_ns < oldest))
			oldest = rpc->calls[i].since_ns;
	return oldest;
}

bool nfs_rpc_is_midway(const struct nfs_rpc *rpc)
{
	return rpc->in.start != rpc->in.end;
}

bool nfs_rpc_is_taken(const struct nfs_rpc *rpc)
{
	int unsent = 0;

	return rpc->out.start == rpc->out.end && ioctl(rpc->fd, SIOCOUTQ, &unsent) == 0 &&
	       unsent == 0;
}

bool nfs_rpc_is_quiet(const struct nfs_rpc *rpc)
{
	struct pollfd p = { .fd = rpc->fd, .events = POLLIN | POLLRDHUP };

	return rpc->in.start == rpc->in.end && poll(&p, 1, 0) == 0;
}

/* -------- its life -------- */

int nfs_rpc_new(struct nfs_rpc **ret, int fd, uint32_t uid, uint32_t gid)
{
	struct nfs_rpc *rpc = calloc(1, sizeof(*rpc));

	if (rpc == NULL) {
		close(fd);
		return -ENOMEM;
	}
	rpc->fd = fd;
	rpc->uid = uid;
	rpc->gid = gid;
	rpc->room = ROOM_FIRST;
	/*
	 * A server remembers replies by client, port and xid: not what it had of us before. So few bytes
	 * come at once and whole, and without them the time is left.
	 */
	rpc->next_xid = (uint32_t)clock_now_ns();
	(void)!getrandom(&rpc->next_xid, sizeof(rpc->next_xid), 0);
	*ret = rpc;
	return 0;
}

int nfs_rpc_connect(struct nfs_rpc **ret, const struct net_address *address, uint16_t port,
		    const struct nfs_export *e)
{
	int fd = e->any_port ? net_connect_unreserved(address, port) : net_connect(address, port);

	return fd < 0 ? fd : nfs_rpc_new(ret, fd, e->uid, e->gid);
}

void nfs_rpc_free(struct nfs_rpc *rpc, int error)
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
