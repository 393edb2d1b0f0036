/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "net/address.h"
#include "net/breaker.h"
#include "net/connect.h"

#define LEAVE_MS 200 /* limit for telling servers that a batch of clients leaves */

struct idle_client {
	struct list link;
	struct nfs_client *client;
	uint64_t since_ns;
};

struct nfs_pool {
	nfs_connect_fn connect;
	unsigned int window; /* of clients */
	struct net_breaker *breaker;
	pthread_mutex_t lock; /* guards all below; innermost, never held with the breaker's */
	struct list idle; /* struct idle_client, longest unused first */
	size_t n_idle;
};

int nfs_pool_new(struct nfs_pool **ret, nfs_connect_fn connect, unsigned int window)
{
	struct nfs_pool *pool = calloc(1, sizeof(*pool));

	if (pool == NULL)
		return -ENOMEM;
	if (net_breaker_new(&pool->breaker, NFS_SERVER_PLACES, NET_BREAKER_OFTEN_MS) < 0) {
		free(pool);
		return -ENOMEM;
	}
	pool->connect = connect;
	pool->window = window;
	pthread_mutex_init(&pool->lock, NULL);
	list_init(&pool->idle);
	*ret = pool;
	return 0;
}

/*
 * Free one client of a batch that was started at begun. Freeing a client tells its server and waits
 * for the reply. Once the batch has taken LEAVE_MS, do without that: the server then forgets the
 * client when its lease ends.
 */
static void free_one_of_many(struct nfs_client *client, uint64_t begun)
{
	if (clock_now_ns() - begun > LEAVE_MS * CLOCK_NS_PER_MS)
		nfs_client_abort(client);
	nfs_client_free(client);
}

/* leave: tell the servers. */
static void free_idle_clients(struct list *chain, bool leave)
{
	const uint64_t begun = clock_now_ns();
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, chain) {
		struct idle_client *idle = container_of(pos, struct idle_client, link);

		if (!leave)
			nfs_client_abort(idle->client);
		free_one_of_many(idle->client, begun);
		free(idle);
	}
}

void nfs_pool_free(struct nfs_pool *pool)
{
	if (pool == NULL)
		return;
	free_idle_clients(&pool->idle, true);
	net_breaker_free(pool->breaker);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static void move_idle_client(struct nfs_pool *pool, struct idle_client *idle, struct list *to)
{
	list_remove(&idle->link);
	list_add_tail(to, &idle->link);
	pool->n_idle--;
}

/* Take the most recently used client, so that spare ones grow old and are closed. */
static struct nfs_client *take_idle_client(struct nfs_pool *pool, const struct nfs_export *e)
{
	struct nfs_client *client = NULL;
	struct list *pos;

	pthread_mutex_lock(&pool->lock);
	for (pos = pool->idle.prev; pos != &pool->idle; pos = pos->prev) {
		struct idle_client *idle = container_of(pos, struct idle_client, link);

		if (!nfs_export_is_equal(&idle->client->export, e))
			continue;
		client = idle->client;
		nfs_export_copy_way(&client->export, e); /* equal but for preferences */
		list_remove(&idle->link);
		pool->n_idle--;
		free(idle);
		break;
	}
	pthread_mutex_unlock(&pool->lock);
	return client;
}

/* leave: see free_idle_clients(). */
static void drop_server(struct nfs_pool *pool, const struct nfs_export *e, bool leave)
{
	struct list *pos, *tmp;
	struct list dropped;

	list_init(&dropped);
	pthread_mutex_lock(&pool->lock);
	list_for_each_safe(pos, tmp, &pool->idle) {
		struct idle_client *idle = container_of(pos, struct idle_client, link);

		if (nfs_export_is_same_server(&idle->client->export, e))
			move_idle_client(pool, idle, &dropped);
	}
	pthread_mutex_unlock(&pool->lock);
	free_idle_clients(&dropped, leave);
}

void nfs_pool_drop(struct nfs_pool *pool, const struct nfs_export *e)
{
	drop_server(pool, e, true);
}

static int connect_client(struct nfs_pool *pool, const struct nfs_export *e,
			  struct nfs_client **ret, struct error *err)
{
	int r = pool->connect(ret, e, err);

	if (r == 0)
		(*ret)->connected_ns = clock_now_ns();
	return r;
}

static bool is_old(const struct nfs_client *client)
{
	return clock_now_ns() - client->connected_ns > NFS_POOL_AGE_S * CLOCK_NS_PER_S;
}

/*
 * Replace a client that is old. Return 0; 1 if it is to be used all the same, since the name
 * service or the new address does not answer, the server has no room for one more connection, or
 * we have no descriptors; or the error of the connection, if that says what the server is like.
 */
static int replace_old(struct nfs_pool *pool, const struct nfs_export *e, struct nfs_client *old,
		       struct nfs_client **ret, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	int r = connect_client(pool, e, ret, &why);

	if (r < 0 && (why.code == ERROR_UNAVAILABLE || net_is_own_failure(r))) {
		old->connected_ns = clock_now_ns();
		return 1;
	}
	nfs_client_free(old);
	if (r < 0 && err != NULL)
		*err = why;
	return r;
}

/* ask: ping the server before an idle client is used. A new connection begins with that anyway. */
static int take_or_connect(struct nfs_pool *pool, const struct nfs_export *e, bool ask,
			   struct nfs_client **ret, struct error *err)
{
	const uint64_t begun = clock_now_ns();
	struct nfs_client *client;
	int r;

	for (;;) {
		client = take_idle_client(pool, e);
		if (client == NULL)
			return connect_client(pool, e, ret, err);
		if (nfs_client_is_usable(client))
			break;
		free_one_of_many(client, begun);
	}
	if (is_old(client)) {
		r = replace_old(pool, e, client, ret, err);
		if (r <= 0)
			return r;
		ask = true;
	}
	r = ask ? nfs_client_ping(client, err) : 0;
	if (r < 0) {
		nfs_client_free(client);
		return r;
	}
	*ret = client;
	return 0;
}

/* As take_or_connect(), over any version if the preferred one is refused. */
static int take_preferred(struct nfs_pool *pool, const struct nfs_export *e, bool ask,
			  struct nfs_client **ret, struct error *err)
{
	struct nfs_export any = *e;
	int r;

	r = take_or_connect(pool, e, ask, ret, err);
	if (r != -EPROTONOSUPPORT || !e->prefers_version)
		return r;
	error_clear(err);
	nfs_export_prefer(&any, 0);
	return take_or_connect(pool, &any, ask, ret, err);
}

int nfs_pool_lease(struct nfs_pool *pool, const struct nfs_export *e, struct nfs_client **ret,
		   struct error *err)
{
	struct error why = { .code = ERROR_OK };
	bool ask, down, ours;
	int r;

	r = net_breaker_enter(pool->breaker, e->server, e->port, &ask, err);
	if (r < 0)
		return r;
	r = take_preferred(pool, e, ask, ret, &why);
	down = r == -EHOSTDOWN || r == -NET_ENAME;
	ours = net_is_own_failure(r);
	if (down)
		net_breaker_failed(pool->breaker, e->server, e->port, r, &why);
	else if (ask && ours)
		net_breaker_gave_up(pool->breaker, e->server, e->port);
	else if (ask)
		net_breaker_answered(pool->breaker, e->server, e->port);
	if (r == 0) {
		(*ret)->window = pool->window;
		return 0;
	}
	net_breaker_leave(pool->breaker, e->server, e->port, down || ours);
	/* The server may come back at another address. */
	if (down)
		drop_server(pool, e, false);
	if (err != NULL)
		*err = why;
	return r;
}

bool nfs_pool_is_down(struct nfs_pool *pool, const struct nfs_export *e)
{
	const int r = net_breaker_check(pool->breaker, e->server, e->port, NULL);

	return r < 0 && r != -EUSERS;
}

static void set_spare(struct nfs_pool *pool, struct nfs_client *c, bool spare)
{
	if (c->spare != spare)
		net_breaker_spare(pool->breaker, c->export.server, c->export.port, spare);
	c->spare = spare;
}

void nfs_pool_spare(struct nfs_pool *pool, struct nfs_client *c)
{
	set_spare(pool, c, true);
}

void nfs_pool_return(struct nfs_pool *pool, struct nfs_client *c)
{
	struct idle_client *idle;
	struct list extra;

	if (c == NULL)
		return;
	set_spare(pool, c, false);
	net_breaker_leave(pool->breaker, c->export.server, c->export.port, c->silent);
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
		move_idle_client(pool, container_of(pool->idle.next, struct idle_client, link),
				 &extra);
	pthread_mutex_unlock(&pool->lock);
	free_idle_clients(&extra, true);
}

void nfs_pool_sweep(struct nfs_pool *pool)
{
	struct list old;
	uint64_t now;

	list_init(&old);
	pthread_mutex_lock(&pool->lock);
	now = clock_now_ns(); /* not before since_ns of any */
	while (!list_is_empty(&pool->idle)) {
		struct idle_client *idle = container_of(pool->idle.next, struct idle_client, link);

		if (now - idle->since_ns < NFS_POOL_IDLE_S * CLOCK_NS_PER_S)
			break;
		move_idle_client(pool, idle, &old);
	}
	pthread_mutex_unlock(&pool->lock);
	free_idle_clients(&old, true);
	net_breaker_sweep(pool->breaker);
}
