/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One RPC call over TCP (RFC 5531) and its reply, with a deadline for all of it: libtirpc's own
 * calls begin their time anew with each piece of a reply, so that a peer which sends a byte now and then
 * holds the caller for hours. libtirpc encodes and decodes here, and nothing else. Any thread; blocks
 * until the deadline at most.
 */
#ifndef NET_QUERY_H
#define NET_QUERY_H

#include <stdint.h>

#include <rpc/rpc.h>

/* A reply that is longer is refused: NULL calls have none, and rpcbind's is an address. */
#define NET_QUERY_REPLY_MAX 4096

struct net_query {
	uint32_t program, version, procedure;
	xdrproc_t encode; /* the arguments; NULL: there are none */
	void *args;
	xdrproc_t decode; /* the results; NULL: there are none */
	void *results; /* zeros; what is decoded into it is the caller's to free, also after an error */
};

/*
 * Calls on a connected non-blocking socket, which can't be used for another call after an error. Returns
 * 0; -EPROTONOSUPPORT when the peer has other versions only, which are then in *ret_low and *ret_high;
 * -EPROTO when it does not have the program; -EACCES when it refuses the call; -ETIMEDOUT; or
 * -ECONNRESET for a peer that closes the connection or does not speak RPC.
 */
int net_query(int fd, const struct net_query *query, uint64_t deadline_ns, uint32_t *ret_low,
	      uint32_t *ret_high);

#endif
