/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <pthread.h>

#include "tree/budget.h"
#include "check_util.h"

#define KIB ((size_t)1024)
#define PIECE (256 * KIB)
#define JOBS 3
#define PURSES (2 * JOBS)
#define MOST (PURSES * TREE_PURSE_OWN + TREE_POOL_BYTES)

static size_t take_all(struct tree_purse *purse)
{
	size_t taken = 0;

	while (tree_purse_take(purse, PIECE))
		taken += PIECE;
	return taken;
}

static void give_all(struct tree_purse *purse)
{
	while (purse->held > 0)
		tree_purse_give(purse, purse->held < PIECE ? purse->held : PIECE);
}

/* One job gets what a purse without a budget gets. */
START_TEST(test_alone)
{
	struct tree_budget budget = { .jobs = 0 };
	struct tree_purse none = { .budget = NULL };
	struct tree_purse purses[2] = { { .budget = &budget }, { .budget = &budget } };
	size_t i;

	check_int("none", "taken", take_all(&none), TREE_PURSE_MAX);
	give_all(&none);
	check_that("enter", "there is room", tree_budget_enter(&budget, 1));
	check_that("enter", "there is no more", !tree_budget_enter(&budget, 1));
	for (i = 0; i < 2; i++)
		check_int("alone", "taken", take_all(&purses[i]), TREE_PURSE_MAX);
	check_int("alone", "pooled", atomic_load(&budget.pooled), TREE_POOL_BYTES);
	for (i = 0; i < 2; i++)
		give_all(&purses[i]);
	check_int("given back", "pooled", atomic_load(&budget.pooled), 0);
	tree_budget_leave(&budget);
	check_that("left", "there is room again", tree_budget_enter(&budget, 1));
}
END_TEST

/* The one that came first keeps what it holds, and gets less once it has given it back. */
START_TEST(test_shared)
{
	struct tree_budget budget = { .jobs = 0 };
	struct tree_purse purses[PURSES];
	size_t i, all = 0;

	for (i = 0; i < PURSES; i++)
		purses[i] = (struct tree_purse){ .budget = &budget };
	(void)tree_budget_enter(&budget, JOBS);
	all += take_all(&purses[0]);
	all += take_all(&purses[1]);
	(void)tree_budget_enter(&budget, JOBS);
	(void)tree_budget_enter(&budget, JOBS);
	for (i = 2; i < PURSES; i++) {
		check_int("late", "has its own", take_all(&purses[i]), TREE_PURSE_OWN);
		all += TREE_PURSE_OWN;
	}
	check_int("late", "all", all, MOST);
	check_that("first", "has too much", !tree_purse_take(&purses[0], PIECE));
	give_all(&purses[0]);
	give_all(&purses[1]);
	for (i = 0; i < PURSES; i++)
		(void)take_all(&purses[i]);
	for (all = 0, i = 0; i < PURSES; i++) {
		check_int("equal", "held", purses[i].held,
			  TREE_PURSE_OWN + TREE_POOL_BYTES / 2 / JOBS);
		all += purses[i].held;
	}
	check_int("equal", "all", all, MOST);
	for (i = 0; i < PURSES; i++)
		give_all(&purses[i]);
	check_int("given back", "pooled", atomic_load(&budget.pooled), 0);
}
END_TEST

START_TEST(test_forced)
{
	struct tree_budget budget = { .jobs = 1 };
	struct tree_purse purse = { .budget = &budget };

	check_that("large", "does not fit", !tree_purse_take(&purse, 2 * TREE_PURSE_MAX));
	check_int("large", "held", purse.held, 0);
	tree_purse_force(&purse, 2 * TREE_PURSE_MAX);
	check_int("forced", "held", purse.held, 2 * TREE_PURSE_MAX);
	check_int("forced", "pooled", atomic_load(&budget.pooled), 0);
	check_that("forced", "no more", !tree_purse_take(&purse, 1));
	tree_purse_give(&purse, 2 * TREE_PURSE_MAX);
	check_int("given back", "held", purse.held, 0);
	check_int("given back", "pooled", atomic_load(&budget.pooled), 0);
	tree_purse_force(&purse, PIECE); /* within the limits */
	tree_purse_force(&purse, TREE_PURSE_OWN);
	check_int("both", "pooled", atomic_load(&budget.pooled), PIECE);
	tree_purse_give(&purse, TREE_PURSE_OWN + PIECE);
	check_int("both", "pooled", atomic_load(&budget.pooled), 0);
}
END_TEST

struct racer {
	struct tree_budget *budget;
	size_t most; /* pooled at any time */
	unsigned int refused;
};

static void *race(void *data)
{
	struct racer *racer = data;
	struct tree_purse purse = { .budget = racer->budget };
	unsigned int i;

	for (i = 0; i < 20000; i++) {
		const size_t n = (i * 7919 % 9 + 1) * 64 * KIB;
		size_t pooled;

		if (!tree_purse_take(&purse, n) && purse.held > 0)
			tree_purse_give(&purse, purse.held / 2 + 1);
		else if (purse.held == 0)
			racer->refused++; /* it would starve */
		pooled = atomic_load(&racer->budget->pooled);
		if (pooled > racer->most)
			racer->most = pooled;
	}
	tree_purse_give(&purse, purse.held);
	return NULL;
}

START_TEST(test_threads)
{
	struct tree_budget budget = { .jobs = JOBS };
	struct racer racers[PURSES];
	pthread_t threads[PURSES];
	size_t i;

	for (i = 0; i < PURSES; i++) {
		racers[i] = (struct racer){ .budget = &budget };
		ck_assert(pthread_create(&threads[i], NULL, race, &racers[i]) == 0);
	}
	for (i = 0; i < PURSES; i++)
		ck_assert(pthread_join(threads[i], NULL) == 0);
	for (i = 0; i < PURSES; i++) {
		check_that("race", "the pool has an end", racers[i].most <= TREE_POOL_BYTES);
		check_int("race", "refused with nothing held", racers[i].refused, 0);
	}
	check_int("race", "pooled", atomic_load(&budget.pooled), 0);
}
END_TEST

CHECK_MAIN("budget", .tests = { test_alone, test_shared, test_forced, test_threads })
