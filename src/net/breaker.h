/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A circuit breaker for each server, for NFS calls and for mounts alike, so that one that does not
 * answer costs the others nothing: each server has a number of places, and no more calls are at
 * work on it or wait for it; one that has been silent for a while is asked by a NULL call before it
 * gets more work; and one that did not answer that is not asked again before its time, and until
 * then every call is refused at once. Any thread.
 */
#ifndef NET_BREAKER_H
#define NET_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* A server that was heard of within this time is taken for alive. */
#define NET_BREAKER_FRESH_MS 2000

/* Time between two tries of a server that is down: doubles from the first to the last. */
#define NET_BREAKER_FIRST_MS 1000
#define NET_BREAKER_LAST_MS 30000

struct net_breaker;

/* places: of each server. Returns 0 or -ENOMEM. The caller frees. */
int net_breaker_new(struct net_breaker **ret, unsigned int places);
void net_breaker_free(struct net_breaker *b);

/*
 * Asks for one of a server's places; port tells servers on one host apart, and 0 is one as well. It
 * may wait for one that is in use: for seconds while the server answers others, else for a fraction
 * of one. On success the caller owes net_breaker_leave(), and where *ret_ask is set
 * net_breaker_answered(), _failed() or _gave_up() first: it has to find out whether the server is
 * alive, while others wait for that. Errors: UNAVAILABLE (down, with the time of the next try; or
 * its places are taken), -ENOMEM.
 */
int net_breaker_enter(struct net_breaker *b, const char *server, uint16_t port, bool *ret_ask,
		      struct error *err);

/*
 * As net_breaker_enter(), for what has to be tried whatever is known of the server: nobody is asked, and
 * it is not refused for being down.
 */
int net_breaker_take(struct net_breaker *b, const char *server, uint16_t port, struct error *err);

/* The server was heard of. */
void net_breaker_answered(struct net_breaker *b, const char *server, uint16_t port);

/* Asked whether it is alive, the server did not answer; why is what callers are told until it does. */
void net_breaker_failed(struct net_breaker *b, const char *server, uint16_t port,
			const struct error *why);

/* It could not be asked whether it is alive: the next one does. */
void net_breaker_gave_up(struct net_breaker *b, const char *server, uint16_t port);

/* Gives the place back. silent: the server let a call wait for too long, so it is asked next time. */
void net_breaker_leave(struct net_breaker *b, const char *server, uint16_t port, bool silent);

/* Forgets servers that nothing was asked of for long. */
void net_breaker_sweep(struct net_breaker *b);

#endif
