/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * RPC over TCP (RFC 5531) with many calls in flight: the one engine for NFS, MOUNT, rpcbind and
 * NULL calls. libnfs only encodes arguments; net/zdr.h decodes results, and the bytes move here.
 * libnfs 4.0 would spend seven system calls on each call (record mark, text and clock separately,
 * in each direction); here all queued calls leave in one, and all replies that have arrived come in
 * another.
 *
 * Calls make progress inside net_rpc_run() and net_rpc_ask(), or between net_rpc_send() and
 * net_rpc_receive(). Deadlines are absolute: a peer that trickles bytes cannot extend them. One
 * thread at a time.
 */
#ifndef NET_RPC_H
#define NET_RPC_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nfsc/libnfs-zdr.h>

/* A longer record, of a call or of a reply, ends the connection. */
#define NET_RPC_RECORD_MAX (1024 * 1024)

/* File data in one call; buffers are sized for it. */
#define NET_RPC_DATA_MAX (256 * 1024)

struct net_rpc;

struct net_rpc_procedure {
	uint32_t program, version, number;
	zdrproc_t encode; /* arguments */
	zdrproc_t decode; /* results */
	size_t size; /* decoded results: NET_RPC_RESULTS_MAX at most */
	/* Results begin with a status; bytes behind a success make the reply unreadable. */
	bool is_whole;
};

#define NET_RPC_RESULTS_MAX 512
#define NET_RPC_CHECKED_SIZE(TYPE)                                                                 \
	(sizeof(TYPE) / (sizeof(TYPE) <= NET_RPC_RESULTS_MAX)) /* larger types do not compile */

/* A procedure of a protocol that rpcgen made. The casts are libnfs's own calling convention. */
#define NET_RPC_MEMBERS(PROGRAM, VERSION, NUMBER, ENCODE, DECODE, RESULTS)                         \
	.program = (PROGRAM), .version = (VERSION), .number = (NUMBER),                            \
	.encode = (zdrproc_t)(ENCODE), .decode = (zdrproc_t)(DECODE),                              \
	.size = NET_RPC_CHECKED_SIZE(RESULTS)
#define NET_RPC_PROCEDURE(...)                                                                     \
	{                                                                                          \
		NET_RPC_MEMBERS(__VA_ARGS__)                                                       \
	}
#define NET_RPC_WHOLE_PROCEDURE(...)                                                               \
	{                                                                                          \
		NET_RPC_MEMBERS(__VA_ARGS__), .is_whole = true                                     \
	}

/* AUTH_SYS identity, without supplementary groups. */
struct net_rpc_user {
	uint32_t uid, gid;
};

/*
 * Called once per call. error 0: results are borrowed for the call. Otherwise results is NULL, and
 * error is -EACCES (the server refuses the credential or our source port), -EPROTONOSUPPORT (it has
 * other versions of the program, see net_rpc_versions()), -EPROTO (it does not have the program),
 * -EOPNOTSUPP (it does not have the procedure), -EBADRQC (it cannot read the call; Linux says so of
 * names of over 255 bytes in version 3), -EREMOTEIO (its reply cannot be read), or the error that
 * ended the connection. May queue calls.
 */
typedef void net_rpc_replied(void *data, int error, const void *results);

/*
 * Speak RPC on a connected socket. Takes fd, on failure too. user is copied; NULL: AUTH_NONE.
 * Returns 0 or -ENOMEM.
 */
int net_rpc_new(struct net_rpc **ret, int fd, const struct net_rpc_user *user);

/* Queue calls from now on without an identity: AUTH_NONE. */
void net_rpc_drop_user(struct net_rpc *rpc);

/* End all calls in flight with error and free. Calls queued by their callbacks are refused. */
void net_rpc_free(struct net_rpc *rpc, int error);

/*
 * Queue a call and encode its arguments now. Returns 0; or -ENOMEM, -EMSGSIZE (longer than a
 * record) or -ECONNABORTED (being freed), and replied is not called.
 */
int net_rpc_call(struct net_rpc *rpc, const struct net_rpc_procedure *procedure, void *args,
		 net_rpc_replied *replied, void *data);

/*
 * Make one call and wait for its reply. take, if not NULL, gets the results of a successful call
 * and returns 0 or a negative errno. Returns that, the error of the call, or the errors of
 * net_rpc_call() and net_rpc_run().
 */
int net_rpc_ask(struct net_rpc *rpc, const struct net_rpc_procedure *procedure, void *args,
		int (*take)(void *data, const void *results), void *data, uint64_t deadline_ns);

/* The versions that the server named in its last -EPROTONOSUPPORT; 0 and 0 before. */
void net_rpc_versions(const struct net_rpc *rpc, uint32_t *ret_low, uint32_t *ret_high);

/*
 * Drive rpc until *counter, which a callback changes, has a new value. Returns 0, or -ETIMEDOUT or
 * -ECONNABORTED, after which rpc can only be freed.
 */
int net_rpc_run(struct net_rpc *rpc, const unsigned int *counter, uint64_t deadline_ns);

/* Send what the socket takes and set up ret for poll(2). Returns 0 or -ECONNABORTED. */
int net_rpc_send(struct net_rpc *rpc, struct pollfd *ret);

/*
 * Read all bytes that have arrived, if any, and call back for each whole reply. Returns 0, or
 * -ECONNABORTED, after which rpc can only be freed.
 */
int net_rpc_receive(struct net_rpc *rpc);

/* poll(2) until the deadline, at least once. Returns 0, -ETIMEDOUT or -ECONNABORTED. */
int net_rpc_wait(struct pollfd *p, nfds_t n, uint64_t deadline_ns);

/* Time on the clock when the oldest call in flight was queued; 0: there is none. */
uint64_t net_rpc_oldest_ns(const struct net_rpc *rpc);

/* Bytes that are queued and that the socket has not taken. */
size_t net_rpc_unsent(const struct net_rpc *rpc);

/* Check whether part of a record has arrived, and not yet its end. */
bool net_rpc_is_midway(const struct net_rpc *rpc);

/* Check whether the peer's system has acknowledged all that was queued. */
bool net_rpc_is_taken(const struct net_rpc *rpc);

/* Check that nothing unread has arrived: no bytes, no end, no reset. */
bool net_rpc_is_quiet(const struct net_rpc *rpc);

#endif
