/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The purger: threads that empty .csi-nfs/trash/ on shares. A deleted volume is only a rename
 * for DeleteVolume; what is in it goes here, whether it was put there by this process, by one that
 * was killed, or by another one that serves the same shares: an idle trash is looked at again from time
 * to time.
 *
 * It is fair. One thread at most works on a server, so that a slow one holds up no other; shares of a server
 * take turns, and so do the directories in a trash. One that cannot be removed is remembered and tried
 * again ever more slowly, and keeps no other.
 */
#ifndef STORE_PURGE_H
#define STORE_PURGE_H

#include "nfs/pool.h"

#define PURGE_WORKERS_MAX 8 /* servers at a time */
#define PURGE_SHARES_MAX 1024 /* that are remembered, with each identity */

/* When an empty trash is looked at again, give or take a fifth. */
#define PURGE_IDLE_S 300

/* When what cannot be removed is tried again: doubles from the first to the last. */
#define PURGE_RETRY_FIRST_S 5
#define PURGE_RETRY_LAST_S 600

/* And where another file system is mounted in it. */
#define PURGE_RETRY_BORDER_S 3600

struct purger;

enum purger_event {
	PURGE_GOES_ON, /* name is being removed */
	PURGE_LEFT, /* name stays: err tells why, once, and what to do */
	PURGE_FAILED, /* it is over for now: err tells why some of it, or all, could not be done */
	PURGE_DONE, /* it is over for now; what is left has been told of before */
};

/* Of one attempt to empty the trash of a share. */
struct purger_report {
	enum purger_event event;
	const struct nfs_export *export;
	const char *name; /* in the trash */
	uint64_t files, directories; /* that are gone so far */
	uint64_t failed; /* entries of the trash that could not be removed in this attempt */
	uint64_t left; /* and all those that stay for now, with others tried before */
	uint64_t ms; /* since it began, never 0 */
	const struct error *err;
};

/*
 * Called on the purger's threads, on several at a time: every TREE_REPORT_S seconds while an attempt lasts,
 * and after each one that did or failed to do something.
 */
typedef void (*purger_report_fn)(const struct purger_report *report);

/* Starts no thread yet: the first purger_add() does. The pool is borrowed. 0 or -ENOMEM. */
int purger_new(struct purger **ret, struct nfs_pool *pool, purger_report_fn report);

/*
 * Asks for a share's trash to be emptied. Any thread, does not block. 0 or -ENOMEM, -EAGAIN; -ENOSPC where
 * PURGE_SHARES_MAX are at work.
 */
int purger_add(struct purger *p, const struct nfs_export *e);

/*
 * Tells of a share that is in use: its trash is looked at now where it was not known, and from then on
 * from time to time. Otherwise as purger_add().
 */
int purger_note(struct purger *p, const struct nfs_export *e);

/*
 * Tells the threads to stop, and waits up to so many milliseconds for that. Whether they have: one that
 * waits for a server takes as long as nfs_client_run() does. Any thread, any number of times.
 */
bool purger_stop(struct purger *p, unsigned int ms);

/* Stops, however long that takes, and frees. */
void purger_free(struct purger *p);

#endif
