/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The purger: threads that empty .csi-nfs/trash/ on shares. DeleteVolume only renames a directory;
 * the purger removes it. It also finds what a killed process or another replica put into the trash,
 * because it looks at an idle trash again from time to time.
 *
 * It is fair. At most one thread works on a server, so that a slow server holds up no other. The
 * shares of a server take turns, and so do the directories in a trash. A directory that cannot be
 * removed is remembered and tried again at growing intervals, and holds up no other.
 *
 * A job is the trash of one share, as one identity. Its states, with purger.lock held for each
 * transition:
 *
 *   state    on                           goes to
 *   (none)   purger_add(), purger_note()  waiting, due in 0.1 s. Beyond PURGE_SHARES_MAX jobs, the
 *                                         waiting one asked for least recently is dropped
 *   waiting  purger_add()                 waiting, due in 0.1 s
 *            purger_note()                waiting, due as before; or earlier, if the server could
 *                                         not be reached: see PURGE_RETRY_REACHED_S
 *            due, and its server is free  running
 *   running  purger_add()                 running, to be repeated
 *            end of the turn              waiting: due in 0.1 s if it is to be repeated, else when
 *                                         purge_share_turn() says; or (none), if the last round
 *                                         did not go well and nobody has asked for a day
 *
 * store/purge_share.h says when purge_share_turn() makes a job due, by how its turn ended. One
 * thread without a job waits for the first job that is due; any other one ends.
 *
 * Lock order: purger.lock is taken alone, and never held across network traffic or a report.
 */
#ifndef STORE_PURGE_H
#define STORE_PURGE_H

#include "nfs/pool.h"

#define PURGE_WORKERS_MAX 8 /* threads: servers that are worked on at a time */
#define PURGE_SHARES_MAX 1024 /* jobs that are remembered */

/* Interval at which an empty trash is looked at again, give or take a fifth. */
#define PURGE_IDLE_S 300

/* Interval at which a failed removal is tried again: doubles from the first to the last. */
#define PURGE_RETRY_FIRST_S 5
#define PURGE_RETRY_LAST_S 600

/* Longest interval after an attempt that did not reach the server, once a call has reached it. */
#define PURGE_RETRY_REACHED_S 20

/* Likewise if another file system is mounted in the directory. */
#define PURGE_RETRY_BORDER_S 3600

struct purger;

enum purger_event {
	PURGE_GOES_ON, /* name is being removed */
	PURGE_LEFT, /* name stays; err tells why, once, and what to do */
	PURGE_FAILED, /* over for now; err tells why some of it, or all, could not be done */
	PURGE_DONE, /* over for now; what is left was reported before */
};

/* Progress of one attempt to empty the trash of a share. */
struct purger_report {
	enum purger_event event;
	const struct nfs_export *export;
	const char *name; /* in the trash */
	uint64_t files, directories; /* removed so far */
	uint64_t failed; /* entries of the trash that could not be removed in this attempt */
	uint64_t left; /* entries that stay for now: those, and earlier ones that are not due */
	uint64_t ms; /* since it began, never 0 */
	const struct error *err;
};

/*
 * Called on the purger's threads, several at a time: every TREE_REPORT_S seconds while an attempt
 * lasts, and after each one that did something or failed.
 */
typedef void (*purger_report_fn)(const struct purger_report *report);

/*
 * Create a purger. It starts no thread until the first purger_add() or purger_note(). The pool is
 * borrowed. Return 0 or -ENOMEM.
 */
int purger_new(struct purger **ret, struct nfs_pool *pool, purger_report_fn report);

/*
 * Ask for a share's trash to be emptied. Any thread, does not block. Return 0, -ENOMEM, -EAGAIN
 * without a thread, or -ENOSPC if PURGE_SHARES_MAX jobs are running.
 */
int purger_add(struct purger *p, const struct nfs_export *e);

/*
 * Tell the purger that a call has reached a share. If the purger does not know the trash yet, it
 * looks at it now, and again from time to time; if it could not reach the server, it waits for
 * PURGE_RETRY_REACHED_S at most. An identity that may not look is no failure, until
 * purger_add() is called for it. Threads and errors as for purger_add().
 */
int purger_note(struct purger *p, const struct nfs_export *e);

/*
 * Tell the threads to stop, wait up to ms milliseconds, and return whether they have. A thread that
 * waits for a server takes as long as nfs_client_run() does. Any thread, any number of times.
 */
bool purger_stop(struct purger *p, unsigned int ms);

/* Stop, however long that takes, and free. */
void purger_free(struct purger *p);

#endif
