/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/reach.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

struct asking {
	struct nfs_pool *pool;
	struct reach *list;
	size_t n;
	atomic_size_t next;
};

static atomic_uint threads; /* of all calls, and those that are about to start one */

static void reach_one(struct nfs_pool *pool, struct reach *reach)
{
	struct nfs_client *client = NULL;
	int r;

	reach->err = (struct error){ .code = ERROR_OK };
	r = nfs_pool_lease(pool, reach->export, &client, &reach->err);
	if (r == 0)
		nfs_pool_return(pool, client);
	/* Any other error, which may have the same code, is that of the share or of its version. */
	reach->is_away = r < 0 && r != -EUSERS && nfs_pool_is_down(pool, reach->export);
}

static void *reach_next(void *data)
{
	struct asking *asking = data;
	size_t i;

	while ((i = atomic_fetch_add(&asking->next, 1)) < asking->n)
		reach_one(asking->pool, &asking->list[i]);
	return NULL;
}

static bool start_thread(pthread_t *ret, struct asking *asking)
{
	if (atomic_fetch_add(&threads, 1) < REACH_AT_ONCE &&
	    pthread_create(ret, NULL, reach_next, asking) == 0)
		return true;
	atomic_fetch_sub(&threads, 1);
	return false;
}

void reach_servers(struct nfs_pool *pool, struct reach *list, size_t n)
{
	struct asking asking = { .pool = pool, .list = list, .n = n, .next = 0 };
	pthread_t helpers[REACH_AT_ONCE];
	size_t started = 0;

	/* This thread asks, too. */
	while (started + 1 < n && started + 1 < REACH_AT_ONCE &&
	       start_thread(&helpers[started], &asking))
		started++;
	(void)reach_next(&asking);
	while (started > 0) {
		(void)pthread_join(helpers[--started], NULL);
		atomic_fetch_sub(&threads, 1);
	}
}
