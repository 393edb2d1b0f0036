/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The trash of one share, as one identity: how far the purger has got in it, and what it could not
 * remove. Private to the purger. Runs on the thread whose turn it is.
 *
 * A round goes through all of the trash once, by the cookies of its listing, in turns of
 * PURGE_TURN_S. So neither a huge directory nor many that cannot be removed keep others waiting.
 *
 *   a turn ends with     the round    next turn is due
 *   time is up, or stop  goes on      now
 *   the server fails     is dropped   after retry_s, which doubles each time; if the server could
 *                                     not be reached, earlier once a call has reached it
 *   end of the trash     is over      now, if something took longer than its turn (another
 *                                     round); else after PURGE_IDLE_S, or earlier when something
 *                                     stuck is due
 */
#ifndef STORE_PURGE_SHARE_H
#define STORE_PURGE_SHARE_H

#include "store/purge.h"
#include "tree/remove.h"

#define PURGE_TURN_S 60
#define PURGE_STUCK_MAX 1024 /* stuck entries remembered; any others are tried in each round */

/* An entry that could not be removed. */
struct purge_stuck {
	uint64_t name; /* its hash */
	uint64_t due_ns; /* when it is tried again */
	uint32_t pause_s;
	bool is_border; /* another file system is mounted in it */
	bool tried, seen; /* in this round */
};

struct purge_share {
	struct nfs_export export;

	/* The round, which continues where the last turn ended. */
	bool in_round;
	uint64_t cookie;
	char verifier[8];
	bool unfinished; /* something took longer than the turn: another round follows */
	uint64_t failed; /* entries that could not be removed */
	uint64_t untold; /* entries that could not be removed and had no room in stuck */
	struct tree_stats stats;
	uint64_t started_ns;
	struct error err; /* the first */

	struct purge_stuck *stuck;
	size_t n_stuck;
	bool has_work; /* something was put into the trash, or could not be removed */
	unsigned int retry_s; /* 0: the last round went well */
	bool is_away; /* the server could not be reached in the last turn */
};

/* The purger, as a turn sees it. */
struct purge_turn {
	const atomic_bool *stop;
	purger_report_fn report; /* may be NULL */
	/* Called for an entry that only another identity can remove. */
	int (*note)(void *data, const struct nfs_export *e);
	void *data;
};

/* Copy e. Return 0 or -ENOMEM. */
int purge_share_init(struct purge_share *s, const struct nfs_export *e);
void purge_share_done(struct purge_share *s);

/* Work for one turn. Return when the next one is due, by clock_now_ns(). */
uint64_t purge_share_turn(struct purge_share *s, struct nfs_pool *pool,
			  const struct purge_turn *turn);

#endif
