/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/copy_turn.h"

#include "tree/budget.h"

#define RETRY_MS 200

int copy_turn_begin(struct copy_turn *turn, const struct csi_driver *driver,
		    const struct request *req, struct error *err)
{
	*turn = (struct copy_turn){ .driver = driver };
	return req->waited_for_turn ? copy_turn_take(turn, err) : 0;
}

int copy_turn_take(struct copy_turn *turn, struct error *err)
{
	int r;

	if (turn->is_taken || tree_budget_enter(turn->driver->budget, COPY_JOBS_MAX)) {
		turn->is_taken = true;
		return 0;
	}
	r = error_set(err, ERROR_ABORTED,
		      "%d copies and archives are already running; try again later", COPY_JOBS_MAX);
	err->retry_ms = RETRY_MS;
	err->wait = ERROR_WAIT_TURN;
	return r;
}

void copy_turn_give(struct copy_turn *turn)
{
	if (turn->is_taken)
		tree_budget_leave(turn->driver->budget);
	turn->is_taken = false;
}
