/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/query.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/clock.h"

/* A record is made of fragments, each behind a mark: its length, and a bit in the last one. */
#define MARK_BYTES 4
#define MARK_LAST 0x80000000U
#define FRAGMENTS_MAX 16
#define CALL_MAX 1024

/* libtirpc declares xdr_void() without the arguments that an xdrproc_t has. */
static bool_t nothing(XDR *xdrs, ...)
{
	(void)xdrs;
	return TRUE;
}

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	/* A peer that is always ready for one more byte shall not get past the deadline, either. */
	if (clock_now_ns() >= deadline_ns)
		return -ETIMEDOUT;
	do
		n = poll(&p, 1, clock_left_ms(deadline_ns));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == 0 ? -ETIMEDOUT : 0;
}

static int send_all(int fd, const char *data, size_t len, uint64_t deadline_ns)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		int r = 0;

		if (n > 0) {
			data += n;
			len -= (size_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			r = wait_for(fd, POLLOUT, deadline_ns);
		} else if (n < 0 && errno != EINTR) {
			r = -ECONNRESET;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int receive_all(int fd, char *data, size_t len, uint64_t deadline_ns)
{
	while (len > 0) {
		ssize_t n;
		int r = wait_for(fd, POLLIN, deadline_ns);

		if (r < 0)
			return r;
		n = recv(fd, data, len, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return -ECONNRESET;
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int send_call(int fd, const struct net_query *query, uint32_t xid, uint64_t deadline_ns)
{
	struct rpc_msg msg = { .rm_xid = xid, .rm_direction = CALL };
	char record[CALL_MAX];
	uint32_t mark;
	bool fits;
	XDR xdrs;

	msg.rm_call.cb_rpcvers = RPC_MSG_VERSION;
	msg.rm_call.cb_prog = query->program;
	msg.rm_call.cb_vers = query->version;
	msg.rm_call.cb_proc = query->procedure;
	msg.rm_call.cb_cred = msg.rm_call.cb_verf = (struct opaque_auth){ .oa_flavor = AUTH_NONE };
	xdrmem_create(&xdrs, record + MARK_BYTES, sizeof(record) - MARK_BYTES, XDR_ENCODE);
	fits = xdr_callmsg(&xdrs, &msg) &&
	       (query->encode == NULL || query->encode(&xdrs, query->args));
	mark = htonl(MARK_LAST | xdr_getpos(&xdrs));
	memcpy(record, &mark, sizeof(mark));
	if (!fits)
		return -EMSGSIZE;
	return send_all(fd, record, MARK_BYTES + xdr_getpos(&xdrs), deadline_ns);
}

static int receive_record(int fd, char *data, size_t size, size_t *ret_len, uint64_t deadline_ns)
{
	unsigned int fragments = 0;
	size_t len = 0;
	uint32_t mark;
	int r;

	do {
		r = receive_all(fd, (char *)&mark, sizeof(mark), deadline_ns);
		if (r < 0)
			return r;
		mark = ntohl(mark);
		if ((mark & ~MARK_LAST) > size - len || ++fragments > FRAGMENTS_MAX)
			return -ECONNRESET;
		r = receive_all(fd, data + len, mark & ~MARK_LAST, deadline_ns);
		if (r < 0)
			return r;
		len += mark & ~MARK_LAST;
	} while (!(mark & MARK_LAST));
	*ret_len = len;
	return 0;
}

static int error_of(const struct rpc_msg *msg, uint32_t *ret_low, uint32_t *ret_high)
{
	struct rpc_err e;

	_seterr_reply((struct rpc_msg *)(uintptr_t)msg, &e); /* only read */
	switch (e.re_status) {
	case RPC_SUCCESS:
		return 0;
	case RPC_PROGVERSMISMATCH:
		*ret_low = (uint32_t)e.re_vers.low;
		*ret_high = (uint32_t)e.re_vers.high;
		return -EPROTONOSUPPORT;
	case RPC_PROGUNAVAIL:
		return -EPROTO;
	case RPC_AUTHERROR:
		return -EACCES;
	default:
		return -ECONNRESET;
	}
}

static int take_reply(const struct net_query *query, uint32_t xid, char *data, size_t len,
		      uint32_t *ret_low, uint32_t *ret_high)
{
	struct rpc_msg msg = { .rm_xid = 0 };
	char verifier[MAX_AUTH_BYTES];
	XDR xdrs;

	msg.acpted_rply.ar_verf.oa_base = verifier; /* a place for it: none is allocated */
	msg.acpted_rply.ar_results.where = query->results;
	msg.acpted_rply.ar_results.proc = query->decode != NULL ? query->decode : nothing;
	xdrmem_create(&xdrs, data, (u_int)len, XDR_DECODE);
	if (!xdr_replymsg(&xdrs, &msg) || msg.rm_xid != xid)
		return -ECONNRESET;
	return error_of(&msg, ret_low, ret_high);
}

int net_query(int fd, const struct net_query *query, uint64_t deadline_ns, uint32_t *ret_low,
	      uint32_t *ret_high)
{
	_Alignas(4) char reply[NET_QUERY_REPLY_MAX];
	uint32_t xid = (uint32_t)clock_now_ns();
	size_t len = 0;
	int r;

	/* So few bytes come at once and whole, and without them the time is left. */
	(void)!getrandom(&xid, sizeof(xid), 0);
	r = send_call(fd, query, xid, deadline_ns);
	if (r == 0)
		r = receive_record(fd, reply, sizeof(reply), &len, deadline_ns);
	return r < 0 ? r : take_reply(query, xid, reply, len, ret_low, ret_high);
}
