/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/copy_turn.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "tree/budget.h"

#define RETRY_MS 200

struct copy_turns {
	pthread_mutex_t lock; /* guards the list; innermost */
	struct list taken; /* struct copy_turn; COPY_TURNS_MAX at most */
};

int copy_turns_new(struct copy_turns **ret)
{
	struct copy_turns *turns = calloc(1, sizeof(*turns));

	if (turns == NULL)
		return -ENOMEM;
	pthread_mutex_init(&turns->lock, NULL);
	list_init(&turns->taken);
	*ret = turns;
	return 0;
}

void copy_turns_free(struct copy_turns *turns)
{
	if (turns == NULL)
		return;
	pthread_mutex_destroy(&turns->lock);
	free(turns);
}

static bool is_between_servers(const struct copy_turn *turn)
{
	return !nfs_export_is_same_server(turn->from, turn->to);
}

/* Whether the server of e can have this copy as well. With the lock held. */
static bool server_has_turn(const struct copy_turns *turns, const struct copy_turn *turn,
			    const struct nfs_export *e)
{
	unsigned int n = 0, n_between = 0;
	struct list *pos;

	list_for_each(pos, &turns->taken) {
		const struct copy_turn *other = container_of(pos, struct copy_turn, link);

		if (!nfs_export_is_same_server(other->from, e) &&
		    !nfs_export_is_same_server(other->to, e))
			continue;
		n++;
		n_between += is_between_servers(other);
	}
	return n < COPY_TURNS_OF_SERVER &&
	       (n_between < COPY_TURNS_BETWEEN || !is_between_servers(turn));
}

/* With the lock held. */
static int take(struct copy_turns *turns, struct copy_turn *turn, struct error *err)
{
	const struct nfs_export *busy = NULL;

	if (!server_has_turn(turns, turn, turn->from))
		busy = turn->from;
	else if (!server_has_turn(turns, turn, turn->to))
		busy = turn->to;
	if (busy != NULL)
		return error_set(err, ERROR_ABORTED,
				 "server '%s': enough copies and archives are already running; try again later",
				 busy->server);
	if (!tree_budget_enter(turn->driver->budget, COPY_TURNS_MAX))
		return error_set(err, ERROR_ABORTED,
				 "%d copies and archives are already running; try again later",
				 COPY_TURNS_MAX);
	list_add_tail(&turns->taken, &turn->link);
	turn->is_taken = true;
	return 0;
}

int copy_turn_begin(struct copy_turn *turn, const struct csi_driver *driver,
		    const struct nfs_export *from, const struct nfs_export *to,
		    const struct request *req, struct error *err)
{
	*turn = (struct copy_turn){ .driver = driver, .from = from, .to = to };
	return req->waited_for_turn && from != NULL ? copy_turn_take(turn, err) : 0;
}

int copy_turn_take(struct copy_turn *turn, struct error *err)
{
	struct copy_turns *turns = turn->driver->turns;
	int r;

	if (turn->is_taken)
		return 0;
	pthread_mutex_lock(&turns->lock);
	r = take(turns, turn, err);
	pthread_mutex_unlock(&turns->lock);
	if (r < 0) {
		err->retry_ms = RETRY_MS;
		err->wait = ERROR_WAIT_TURN;
	}
	return r;
}

void copy_turn_give(struct copy_turn *turn)
{
	struct copy_turns *turns;

	if (!turn->is_taken)
		return;
	turns = turn->driver->turns;
	pthread_mutex_lock(&turns->lock);
	list_remove(&turn->link);
	tree_budget_leave(turn->driver->budget);
	pthread_mutex_unlock(&turns->lock);
	turn->is_taken = false;
}
