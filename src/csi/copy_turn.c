/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/copy_turn.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "net/address.h"
#include "tree/budget.h"

#define RETRY_MS 200
#define BETWEEN_WAIT_MS (10 * RETRY_MS) /* since it asked; it may have been answered meanwhile */

struct copy_turns {
	pthread_mutex_t lock; /* guards all; innermost */
	struct list taken; /* struct copy_turn; COPY_TURNS_MAX at most */
	uint64_t between_ns; /* when a copy between two servers found one of them full; 0: none */
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

/*
 * How many copies within one server may run there. While a copy between two servers waits, they
 * leave it a turn at each: it needs both at once, and would hardly ever find them free together.
 */
static unsigned int turns_within(const struct copy_turns *turns)
{
	const bool waits = turns->between_ns != 0 &&
			   clock_now_ns() - turns->between_ns < BETWEEN_WAIT_MS * CLOCK_NS_PER_MS;

	return waits ? COPY_TURNS_OF_SERVER - 1 : COPY_TURNS_OF_SERVER;
}

/* Whether the server of e can have this copy as well. With the lock held. */
static bool server_has_turn(struct copy_turns *turns, const struct copy_turn *turn,
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
	if (!is_between_servers(turn))
		return n < turns_within(turns);
	if (n_between == COPY_TURNS_BETWEEN)
		return false;
	if (n < COPY_TURNS_OF_SERVER)
		return true;
	turns->between_ns = clock_now_ns();
	return false;
}

/* With the lock held. On failure *ret_busy may be set to the server that has no turn. */
static int take(struct copy_turns *turns, struct copy_turn *turn,
		const struct nfs_export **ret_busy, struct error *err)
{
	const struct nfs_export *busy = NULL;

	if (!server_has_turn(turns, turn, turn->from))
		busy = turn->from;
	else if (!server_has_turn(turns, turn, turn->to))
		busy = turn->to;
	if (busy != NULL) {
		*ret_busy = busy;
		return error_set(err, ERROR_ABORTED,
				 "server '%s': enough copies and archives are already running; try again later",
				 busy->server);
	}
	if (!tree_budget_enter(turn->driver->budget, COPY_TURNS_MAX))
		return error_set(err, ERROR_ABORTED,
				 "%d copies and archives are already running; try again later",
				 COPY_TURNS_MAX);
	list_add_tail(&turns->taken, &turn->link);
	turn->is_taken = true;
	if (is_between_servers(turn))
		turns->between_ns = 0; /* another one that waits asks again soon */
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
	const struct nfs_export *busy = turn->to;
	int r;

	if (turn->is_taken)
		return 0;
	pthread_mutex_lock(&turns->lock);
	r = take(turns, turn, &busy, err);
	pthread_mutex_unlock(&turns->lock);
	if (r < 0) {
		err->retry_ms = RETRY_MS;
		err->wait = ERROR_WAIT_TURN;
		err->wait_for = net_server_number(busy->server, busy->port);
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
