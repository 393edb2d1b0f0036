/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The memory for file data of all copies and archives of the process. Each has two purses: data
 * that was read ahead, and data that waits to be written. A purse always may hold TREE_PURSE_OWN
 * bytes. More than that comes from a shared pool, of which each job gets at most an equal part.
 * Nobody waits for the pool: a job that gets nothing from it has less in flight and goes on, so
 * jobs can neither deadlock nor starve.
 *
 * Without a budget, a purse is only limited by TREE_PURSE_MAX.
 */
#ifndef TREE_BUDGET_H
#define TREE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define TREE_PURSE_OWN ((size_t)1024 * 1024)
#define TREE_PURSE_MAX ((size_t)4 * 1024 * 1024)

/* Enough to let both purses of a single job reach their maximum. */
#define TREE_POOL_BYTES (2 * (TREE_PURSE_MAX - TREE_PURSE_OWN))

/* Any thread. All zeros is an unused budget. */
struct tree_budget {
	atomic_uint jobs; /* running */
	atomic_size_t pooled; /* bytes taken from the pool */
};

/* Used by a single thread. */
struct tree_purse {
	struct tree_budget *budget; /* NULL: none */
	size_t held; /* bytes */
	size_t pooled; /* part of held that came from the pool */
};

/* Add a job, unless there are max already. Call tree_budget_leave() if it returns true. */
bool tree_budget_enter(struct tree_budget *budget, unsigned int max);
void tree_budget_leave(struct tree_budget *budget);

/* Take n bytes. Returns false, and takes none, if the limits don't allow it. */
bool tree_purse_take(struct tree_purse *purse, size_t n);

/*
 * Take n bytes regardless of the limits. For one piece that the job needs to go on: call it only if
 * nothing in flight will give back what the piece needs.
 */
void tree_purse_force(struct tree_purse *purse, size_t n);

/* Give n bytes back. */
void tree_purse_give(struct tree_purse *purse, size_t n);

#endif
