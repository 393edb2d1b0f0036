/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Copies and archives take turns: COPY_JOBS_MAX are made at a time, so that workers and slots of
 * servers stay free for short calls.
 *
 * A call keeps its turn to its end, since it may copy once more: as another user, or after a lost
 * connection. A call that gets no turn is held and runs again from its start (grpc/call.h). If it
 * were answered at once, its client would wait longer before each try, and turns would go unused
 * meanwhile. A turn goes to the call that asks next, not to the one that has waited longest.
 *
 * Worker threads; none blocks.
 */
#ifndef CSI_COPY_TURN_H
#define CSI_COPY_TURN_H

#include "base/request.h"
#include "csi/driver.h"

#define COPY_JOBS_MAX 3

struct copy_turn {
	const struct csi_driver *driver;
	bool is_taken;
};

/*
 * Begin a call that may make a copy. copy_turn_give() is due, also after an error. A call that was
 * held for its turn takes it now, before it asks a server anything: all of its work is done again
 * each time it runs. Errors as copy_turn_take().
 */
int copy_turn_begin(struct copy_turn *turn, const struct csi_driver *driver,
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
