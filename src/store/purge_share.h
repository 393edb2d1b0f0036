/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The trash of one share, as one identity: how far the purger has got in it, and what it could not
 * remove. For the files of tree/purge*.c only. On the thread whose turn it is.
 *
 * A round goes through all of the trash once, by the cookies of its listing, in turns of PURGE_TURN_S. So no
 * directory, however large, and no number of them that cannot be removed, keeps the others waiting.
 */
#ifndef STORE_PURGE_SHARE_H
#define STORE_PURGE_SHARE_H

#include "store/purge.h"
#include "tree/remove.h"

#define PURGE_TURN_S 60
#define PURGE_STUCK_MAX                                                                            \
	1024 /* entries of one trash that are remembered; others are tried in each round */

/* What could not be removed. */
struct purge_stuck {
	uint64_t name; /* hash */
	uint64_t due_ns; /* when it is tried again */
	uint32_t pause_s;
	bool is_border;
	bool tried, seen; /* in this round */
};

struct purge_share {
	struct nfs_export export;

	/* The round, which goes on where the last turn ended. */
	bool in_round;
	uint64_t cookie;
	char verifier[8];
	bool unfinished; /* something took longer than the turn: another round follows */
	uint64_t failed; /* entries of the trash */
	uint64_t untold; /* of these, those for which there was no room in stuck */
	struct tree_stats stats;
	uint64_t started_ns;
	struct error err; /* the first */

	struct purge_stuck *stuck;
	size_t n_stuck;
	bool has_work; /* as far as we know */
	unsigned int retry_s; /* 0: the last round went well */
};

/* What a turn needs from the purger. */
struct purge_turn {
	const atomic_bool *stop;
	purger_report_fn report; /* may be NULL */
	/* Tells of a trash that is another identity's. */
	int (*note)(void *data, const struct nfs_export *e);
	void *data;
};

/* Copies e. 0 or -ENOMEM. */
int purge_share_init(struct purge_share *s, const struct nfs_export *e);
void purge_share_done(struct purge_share *s);

/* Works on it for a turn. Returns when it is to have the next one: on clock_now_ns(). */
uint64_t purge_share_turn(struct purge_share *s, struct nfs_pool *pool,
			  const struct purge_turn *turn);

#endif
