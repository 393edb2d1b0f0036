/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/budget.h"

bool tree_budget_enter(struct tree_budget *budget, unsigned int max)
{
	if (atomic_fetch_add(&budget->jobs, 1) < max)
		return true;
	atomic_fetch_sub(&budget->jobs, 1);
	return false;
}

void tree_budget_leave(struct tree_budget *budget)
{
	atomic_fetch_sub(&budget->jobs, 1);
}

static bool pool_take(struct tree_budget *budget, size_t n)
{
	size_t pooled = atomic_load(&budget->pooled);

	do {
		if (n > TREE_POOL_BYTES - pooled)
			return false;
	} while (!atomic_compare_exchange_weak(&budget->pooled, &pooled, pooled + n));
	return true;
}

bool tree_purse_take(struct tree_purse *purse, size_t n)
{
	const unsigned int jobs = purse->budget != NULL ? atomic_load(&purse->budget->jobs) : 1;
	/* It shrinks as jobs join. A purse above it takes nothing until it is below. */
	const size_t max = TREE_PURSE_OWN + TREE_POOL_BYTES / 2 / (jobs > 0 ? jobs : 1);
	const size_t held = purse->held + n;
	size_t more;

	if (held > max)
		return false;
	if (purse->budget != NULL && held > TREE_PURSE_OWN + purse->pooled) {
		more = held - TREE_PURSE_OWN - purse->pooled;
		if (!pool_take(purse->budget, more))
			return false;
		purse->pooled += more;
	}
	purse->held = held;
	return true;
}

void tree_purse_force(struct tree_purse *purse, size_t n)
{
	if (!tree_purse_take(purse, n))
		purse->held += n;
}

void tree_purse_give(struct tree_purse *purse, size_t n)
{
	size_t above, spare;

	purse->held -= n;
	above = purse->held > TREE_PURSE_OWN ? purse->held - TREE_PURSE_OWN : 0;
	if (purse->pooled <= above)
		return;
	spare = purse->pooled - above;
	purse->pooled = above;
	atomic_fetch_sub(&purse->budget->pooled, spare);
}
