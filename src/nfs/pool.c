/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"

struct idle_client {
	struct list link;
	struct nfs_client *client;
	uint64_t since_ns;
};

struct nfs_pool {
	nfs_connect_fn connect;
	pthread_mutex_t lock; /* guards what follows; innermost */
	struct list idle; /* of struct idle_client, the longest unused first */
	size_t n_idle;
};

int nfs_pool_new(struct nfs_pool **ret, nfs_connect_fn connect)
{
	struct nfs_pool *pool = calloc(1, sizeof(*pool));

	if (pool == NULL)
		return -ENOMEM;
	pool->connect = connect;
	pthread_mutex_init(&pool->lock, NULL);
	list_init(&pool->idle);
	*ret = pool;
	return 0;
}

static void idle_free(struct list *chain)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, chain) {
		struct idle_client *idle = container_of(pos, struct idle_client, link);

		nfs_client_free(idle->client);
		free(idle);
	}
}

void nfs_pool_free(struct nfs_pool *pool)
{
	if (pool == NULL)
		return;
	idle_free(&pool->idle);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static void move(struct nfs_pool *pool, struct idle_client *idle, struct list *to)
{
	list_remove(&idle->link);
	list_add_tail(to, &idle->link);
	pool->n_idle--;
}

/* The most recently used one: what is not needed may grow old and be closed. */
static struct nfs_client *take_idle(struct nfs_pool *pool, const struct nfs_export *e)
{
	struct nfs_client *client = NULL;
	struct list *pos;

	pthread_mutex_lock(&pool->lock);
	for (pos = pool->idle.prev; pos != &pool->idle; pos = pos->prev) {
		struct idle_client *idle = container_of(pos, struct idle_client, link);

		if (!nfs_export_is_equal(&idle->client->export, e))
			continue;
		client = idle->client;
		list_remove(&idle->link);
		pool->n_idle--;
		free(idle);
		break;
	}
	pthread_mutex_unlock(&pool->lock);
	return client;
}

int nfs_pool_lease(struct nfs_pool *pool, const struct nfs_export *e, struct nfs_client **ret,
		   struct error *err)
{
	struct nfs_client *client;

	for (;;) {
		client = take_idle(pool, e);
		if (client == NULL)
			return pool->connect(ret, e, err);
		if (nfs_client_is_usable(client))
			break;
		nfs_client_free(client);
	}
	*ret = client;
	return 0;
}

void nfs_pool_return(struct nfs_pool *pool, struct nfs_client *c)
{
	struct idle_client *idle;
	struct list extra;

	if (c == NULL)
		return;
	idle = c->broken ? NULL : calloc(1, sizeof(*idle));
	if (idle == NULL) {
		nfs_client_free(c);
		return;
	}
	idle->client = c;
	idle->since_ns = clock_now_ns();
	list_init(&extra);
	pthread_mutex_lock(&pool->lock);
	list_add_tail(&pool->idle, &idle->link);
	pool->n_idle++;
	if (pool->n_idle > NFS_POOL_IDLE_MAX)
		move(pool, container_of(pool->idle.next, struct idle_client, link), &extra);
	pthread_mutex_unlock(&pool->lock);
	idle_free(&extra);
}

void nfs_pool_sweep(struct nfs_pool *pool)
{
	uint64_t now = clock_now_ns();
	struct list old;

	list_init(&old);
	pthread_mutex_lock(&pool->lock);
	while (!list_is_empty(&pool->idle)) {
		struct idle_client *idle = container_of(pool->idle.next, struct idle_client, link);

		if (now - idle->since_ns < NFS_POOL_IDLE_S * CLOCK_NS_PER_S)
			break;
		move(pool, idle, &old);
	}
	pthread_mutex_unlock(&pool->lock);
	idle_free(&old);
}
