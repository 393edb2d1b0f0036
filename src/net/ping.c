/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/ping.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "net/rpc.h"
#include "net/zdr.h"
/* After libnfs-zdr.h, whose types it uses. */
#include <nfsc/libnfs-raw-portmap.h>

#define NULL_PROCEDURE 0 /* RFC 5531, section 12.1 */

/* If a wait of this length takes longer, the process was kept from running. */
#define SLICE_MS 100

/* Anything that is not a reply to the call means that no RPC service is listening there. */
static int ping_errno(int error)
{
	switch (error) {
	case -ECONNABORTED:
	case -EREMOTEIO:
	case -EBADRQC:
	case -EOPNOTSUPP:
		return -ECONNRESET;
	default:
		return error;
	}
}

struct answer {
	unsigned int finished;
	int error;
};

static void ping_replied(void *data, int error, const void *results)
{
	struct answer *answer = data;

	(void)results;
	answer->finished++;
	answer->error = error;
}

static int await_answer(struct net_rpc *rpc, const struct answer *answer)
{
	const uint64_t slice_ns = SLICE_MS * CLOCK_NS_PER_MS, begun = clock_now_ns();
	uint64_t counted_ms = 0, limit_ms, now;
	int r;

	for (;;) {
		r = net_rpc_run(rpc, &answer->finished, clock_now_ns() + slice_ns);
		if (answer->finished > 0)
			return answer->error;
		if (r != -ETIMEDOUT)
			return r;
		counted_ms += SLICE_MS;
		limit_ms = net_rpc_is_taken(rpc) ? NET_PING_TAKEN_MS : NET_PING_TIMEOUT_MS;
		now = clock_now_ns();
		if (counted_ms >= limit_ms || now - begun >= NET_PING_MAX_MS * CLOCK_NS_PER_MS)
			return -ETIMEDOUT;
	}
}

static int ping_connected(int fd, uint32_t program, uint32_t version, uint32_t *ret_low,
			  uint32_t *ret_high)
{
	const struct net_rpc_procedure null =
		NET_RPC_PROCEDURE(program, version, NULL_PROCEDURE, zdr_void, zdr_void, uint32_t);
	struct answer answer = { .finished = 0 };
	struct net_rpc *rpc;
	int r;

	r = net_rpc_new(&rpc, fd, NULL);
	if (r < 0)
		return r;
	r = net_rpc_call(rpc, &null, NULL, ping_replied, &answer);
	if (r == 0)
		r = await_answer(rpc, &answer);
	if (r == -EPROTONOSUPPORT)
		net_rpc_versions(rpc, ret_low, ret_high);
	net_rpc_free(rpc, -ECONNABORTED);
	return ping_errno(r);
}

int net_ping_timed(const struct net_address *a, uint16_t port, uint32_t program, uint32_t version,
		   uint32_t *ret_low, uint32_t *ret_high, uint64_t *ret_ns)
{
	uint64_t begun;
	int fd, r;

	fd = net_connect(a, port);
	if (fd < 0)
		return fd;
	begun = clock_now_ns();
	r = ping_connected(fd, program, version, ret_low, ret_high);
	*ret_ns = clock_now_ns() - begun;
	return r;
}

int net_ping(const struct net_address *a, uint16_t port, uint32_t program, uint32_t version,
	     uint32_t *ret_low, uint32_t *ret_high)
{
	uint64_t ns;

	return net_ping_timed(a, port, program, version, ret_low, ret_high, &ns);
}

/*
 * Parse the port of a universal address, "192.0.2.1.8.1": the last two numbers are its bytes
 * (RFC 5665, section 5.2.3). Returns 0, -ENOENT for no port, or -ENOMEM.
 */
static int parse_uaddr_port(const char *uaddr, uint16_t *ret)
{
	const char *low = strrchr(uaddr, '.');
	const char *high;
	cleanup_free char *high_text = NULL;
	uint64_t h, l;

	if (low == NULL || low == uaddr)
		return -ENOENT;
	for (high = low - 1; high > uaddr && *high != '.'; high--)
		;
	if (*high != '.')
		return -ENOENT;
	high_text = strndup(high + 1, (size_t)(low - high - 1));
	if (high_text == NULL)
		return -ENOMEM;
	if (str_parse_u64(high_text, 10, 255, &h) < 0 || str_parse_u64(low + 1, 10, 255, &l) < 0 ||
	    h * 256 + l == 0)
		return -ENOENT;
	*ret = (uint16_t)(h * 256 + l);
	return 0;
}

static uint32_t take_address(ZDR *zdr, PMAP3GETADDRres *ret)
{
	return net_zdr_take_string(zdr, &ret->addr);
}

/* An empty address: the program is not registered. */
static int take_uaddr(void *data, const void *results)
{
	return parse_uaddr_port(((const PMAP3GETADDRres *)results)->addr, data);
}

int net_portmap(const struct net_address *a, uint32_t program, uint32_t version, uint16_t *ret)
{
	static const struct net_rpc_procedure getaddr =
		NET_RPC_PROCEDURE(PMAP_PROGRAM, PMAP_V3, PMAP3_GETADDR, zdr_PMAP3GETADDRargs,
				  take_address, PMAP3GETADDRres);
	char tcp[] = "tcp", tcp6[] = "tcp6", empty[] = "";
	PMAP3GETADDRargs args = {
		.prog = program,
		.vers = version,
		.netid = a->addr.ss_family == AF_INET6 ? tcp6 : tcp,
		.addr = empty,
		.owner = empty,
	};
	struct net_rpc *rpc;
	int fd, r;

	fd = net_connect(a, PMAP_PORT);
	if (fd < 0)
		return fd;
	r = net_rpc_new(&rpc, fd, NULL);
	if (r < 0)
		return r;
	r = net_rpc_ask(rpc, &getaddr, &args, take_uaddr, ret,
			clock_now_ns() + NET_PING_TIMEOUT_MS * CLOCK_NS_PER_MS);
	net_rpc_free(rpc, -ECONNABORTED);
	return ping_errno(r);
}
