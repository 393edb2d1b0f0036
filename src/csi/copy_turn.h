/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Copies and archives take turns, so that workers and slots of servers stay free for short calls,
 * and so that a server that is slow or dead leaves turns to others: its copies may keep theirs for
 * minutes. COPY_TURNS_OF_SERVER are made at a time on each server, and COPY_TURNS_MAX in all. A
 * copy between two servers counts at both, and whichever of them is slow, it leaves turns at the
 * other: COPY_TURNS_BETWEEN of a server's copies may be of this kind. It needs both turns at once,
 * so while one waits, copies within one server take one turn less each. A server is a name and a
 * port, as in net/breaker.h.
 *
 * A call keeps its turn until all of its copying is over, since it may copy once more: as another
 * user, or after a lost connection. A call that gets no turn is held and runs again from its start
 * (grpc/call.h). If it were answered at once, its client would wait longer before each try, and
 * turns would go unused meanwhile. A turn goes to the call that asks next, not to the one that has
 * waited longest.
 *
 * Worker threads; none blocks.
 */
#ifndef CSI_COPY_TURN_H
#define CSI_COPY_TURN_H

#include "base/list.h"
#include "base/request.h"
#include "csi/driver.h"

#define COPY_TURNS_OF_SERVER 3
#define COPY_TURNS_BETWEEN 2
#define COPY_TURNS_MAX (2 * COPY_TURNS_OF_SERVER) /* one server leaves others as many as it has */

struct copy_turns;

/* Return 0 or -ENOMEM. The caller frees, after all turns were given back. */
int copy_turns_new(struct copy_turns **ret);
void copy_turns_free(struct copy_turns *turns);

struct copy_turn {
	struct list link; /* in the driver's turns, if is_taken */
	const struct csi_driver *driver;
	const struct nfs_export *from, *to;
	bool is_taken;
};

/*
 * Begin a call that may make a copy from one export to another. The turn borrows them, and looks at
 * their servers only; from is NULL if there is nothing to copy. copy_turn_give() is due, also after
 * an error. A call that was held for its turn takes it now, before it asks a server anything: all
 * of its work is done again each time it runs. Errors as copy_turn_take().
 */
int copy_turn_begin(struct copy_turn *turn, const struct csi_driver *driver,
		    const struct nfs_export *from, const struct nfs_export *to,
		    const struct request *req, struct error *err);

/*
 * Take a turn, unless the call has one. Call it before leasing a second client: calls that hold one
 * place of a server while they wait for the next could take all of them, and then wait for each
 * other. *err holds no error yet. Errors: ABORTED if there is none, with ERROR_WAIT_TURN.
 */
int copy_turn_take(struct copy_turn *turn, struct error *err);

/* Give the turn back, if the call has one. */
void copy_turn_give(struct copy_turn *turn);
#define cleanup_copy_turn __attribute__((cleanup(copy_turn_give)))

#endif
