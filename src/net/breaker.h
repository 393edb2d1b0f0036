/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A circuit breaker per server, for NFS calls and for mounts, so that a server that does not answer
 * does not delay calls for other servers. A server has a number of places, one for each caller at
 * work; a caller holds one from enter or take to leave. The server's state says who may enter:
 *
 *   SILENT   not heard from for NET_BREAKER_FRESH_MS, or ever: the next caller asks it (NULL call)
 *   ASKED    that caller is asking; the others wait for the result
 *   ALIVE    heard from within NET_BREAKER_FRESH_MS
 *   DOWN     did not answer, and it is too early for the next try
 *
 *                    SILENT            ASKED             ALIVE             DOWN
 *   enter            ASKED, *ret_ask   wait for change*  -                 refuse
 *   take             -                 -                 -                 -
 *   answered         ALIVE             ALIVE             -                 ALIVE
 *   failed           DOWN              DOWN              DOWN              -
 *   gave_up          -                 SILENT            -                 -
 *   leave            ALIVE             ALIVE             -                 -
 *   leave, silent    -                 -                 SILENT            -
 *   time             -                 -                 SILENT            SILENT
 *
 * "-": no change. *: refuse if the server was DOWN and has not been heard from since. A server that
 * leaves ALIVE while a caller is still asking is ASKED, not SILENT. If a caller leaves in DOWN, the
 * server counts as heard from once DOWN is over.
 * The time in DOWN doubles with each failure, from NET_BREAKER_FIRST_MS to a limit, and starts over
 * once the server has answered.
 *
 * Refusals carry the text of the last failure, the same one each time. err->retry_ms is the time
 * after which the caller would not be refused again, or would at least learn more; it is 0 for an
 * unknown name and for a server that has never answered. If many are refused since all places are
 * taken, it is a different one for each, and grows with their number.
 * err->wait_for is net_server_number().
 *
 * Any thread. One lock per breaker, innermost: no other lock is taken and no call made under it.
 */
#ifndef NET_BREAKER_H
#define NET_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define NET_BREAKER_FRESH_MS 2000
#define NET_BREAKER_FIRST_MS 1000

/*
 * The longest time in DOWN. With OFTEN, calls that wait for a server are answered soon after it is
 * back; asking costs one worker and a NULL call. RARELY is for tries that cost a process each.
 */
#define NET_BREAKER_OFTEN_MS 2000
#define NET_BREAKER_RARELY_MS 30000
#define NET_BREAKER_NAME_LAST_MS 120000 /* of a name without an address */
#define NET_BREAKER_HUNG_LAST_MS 300000 /* of a server that answers NULL calls and nothing else */

struct net_breaker;

/*
 * places: per server; main.c starts three times as many workers for those that enter or take. A
 * node has three breakers and fewer workers than for all of them at once.
 * last_ms: longest time in DOWN. Returns 0 or -ENOMEM. The caller frees.
 */
int net_breaker_new(struct net_breaker **ret, unsigned int places, unsigned int last_ms);
void net_breaker_free(struct net_breaker *b);

/*
 * Get one of the server's places. Each port is a separate entry; port 0 is a separate entry too.
 * Waits for a free place: seconds if the server is ALIVE, else a fraction of a second. Those that
 * are at work on one server or wait for it are twice as many as all servers leave to others, at
 * most, so that slow servers leave a worker for one more, however many they are. On success the
 * caller owes net_breaker_leave(). If *ret_ask is set, the caller must find out whether the server
 * is alive, while others wait, and report it before anything else: by net_breaker_answered(),
 * _failed() or _gave_up().
 * Errors: UNAVAILABLE (DOWN), -EUSERS with UNAVAILABLE (nobody knows: all places are taken, or
 * another caller is still asking), -ENOMEM.
 */
int net_breaker_enter(struct net_breaker *b, const char *server, uint16_t port, bool *ret_ask,
		      struct error *err);

/*
 * Refuse a caller that net_breaker_enter() would refuse at once, so that it need not begin what it
 * does before. Takes no place. Returns 0 or the errors of net_breaker_enter().
 */
int net_breaker_check(struct net_breaker *b, const char *server, uint16_t port, struct error *err);

/*
 * Like net_breaker_enter(), for work that must be tried in any state: does not ask, and is not
 * refused because the server is DOWN. -EUSERS if all places are taken.
 */
int net_breaker_take(struct net_breaker *b, const char *server, uint16_t port, struct error *err);

/* The server was heard from. */
void net_breaker_answered(struct net_breaker *b, const char *server, uint16_t port);

/*
 * As net_breaker_answered(), and the server has done what it was asked. A server may answer NULL
 * calls and hang on all others.
 */
void net_breaker_proved(struct net_breaker *b, const char *server, uint16_t port);

/*
 * Whether net_breaker_proved() was called since the server last hung. If not, an answered NULL call
 * should not let the others in. *ret_hangs: how often it hung since it was last proven. The caller
 * has a place.
 */
bool net_breaker_is_proven(struct net_breaker *b, const char *server, uint16_t port,
			   unsigned int *ret_hangs);

/*
 * The server did not answer, has no address (error is -NET_ENAME), or answers NULL calls and hung
 * on the work itself (-ETIMEDOUT), which makes it no longer proven. why is the message for callers
 * that are refused until the server answers; sets why->retry_ms.
 */
void net_breaker_failed(struct net_breaker *b, const char *server, uint16_t port, int error,
			struct error *why);

/* The server could not be asked, through no fault of its own: the next caller asks. */
void net_breaker_gave_up(struct net_breaker *b, const char *server, uint16_t port);

/*
 * Count a place as one that occupies no worker, so that it does not keep others from the server:
 * the caller's worker has another place, or the caller is none. Or count it again, which is due
 * before net_breaker_leave().
 */
void net_breaker_spare(struct net_breaker *b, const char *server, uint16_t port, bool spare);

/* Give the place back. silent: the server kept a call waiting for too long. */
void net_breaker_leave(struct net_breaker *b, const char *server, uint16_t port, bool silent);

/*
 * Forget servers that have been unused for ten minutes and have not answered, and all that have
 * been unused for a day.
 */
void net_breaker_sweep(struct net_breaker *b);

#endif
