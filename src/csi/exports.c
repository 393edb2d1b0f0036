/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/exports.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/*
 * An export that cannot be read for so long is not listed any more. Lists must have tried all the
 * time: two outages do not make a day.
 */
#define FORGET_S 86400
#define TRIED_S 3600 /* longest time between two lists */

/* Of several StorageClasses of a share with other mount options each; the oldest is forgotten. */
#define WAYS_MAX 8

/* How a call has reached an export. */
struct way {
	unsigned int version, minor;
	bool has_minor;
	uint16_t port, mount_port;
};

struct known_export {
	struct nfs_export export;
	struct records_place place;
	bool has_worked; /* a call has succeeded on it; else one has reached it */
	bool is_gone; /* lists have not reached it for long, and no call has succeeded since */
	uint64_t failing_ns; /* since when it could not be listed; 0: no list has failed */
	uint64_t failed_ns; /* when the last list has failed */
	struct way ways[WAYS_MAX]; /* a ring */
	unsigned int n_ways;
};

struct known_exports {
	pthread_mutex_t lock; /* guards all fields below; innermost */
	struct known_export *list; /* sorted by server and share */
	size_t n, cap;
};

int known_exports_new(struct known_exports **ret)
{
	struct known_exports *k = calloc(1, sizeof(*k));

	if (k == NULL)
		return -ENOMEM;
	pthread_mutex_init(&k->lock, NULL);
	*ret = k;
	return 0;
}

void known_exports_list_free(struct nfs_export *list, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		nfs_export_done(&list[i]);
	free(list);
}

void known_exports_free(struct known_exports *k)
{
	size_t i;

	if (k == NULL)
		return;
	for (i = 0; i < k->n; i++)
		nfs_export_done(&k->list[i].export);
	free(k->list);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

static int compare_exports(const struct nfs_export *a, const struct nfs_export *b)
{
	int r = strcmp(a->server, b->server);

	return r != 0 ? r : strcmp(a->share, b->share);
}

/* The index of e, or where it belongs. Called with the lock held. */
static size_t find_position(const struct known_exports *k, const struct nfs_export *e,
			    bool *ret_found)
{
	size_t low = 0, high = k->n;

	*ret_found = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int r = compare_exports(&k->list[middle].export, e);

		if (r == 0) {
			*ret_found = true;
			return middle;
		}
		if (r < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Called with the lock held. Return NULL, and do not remember it, without memory or room. */
static struct known_export *insert_export(struct known_exports *k, size_t at,
					  const struct nfs_export *e)
{
	struct known_export *list;
	struct nfs_export copy;

	if (k->n == KNOWN_EXPORTS_MAX)
		return NULL;
	if (k->n == k->cap) {
		size_t cap = k->cap == 0 ? 8 : k->cap * 2;

		list = reallocarray(k->list, cap, sizeof(*list));
		if (list == NULL)
			return NULL;
		k->list = list;
		k->cap = cap;
	}
	if (nfs_export_copy(&copy, e) < 0)
		return NULL;
	nfs_export_set_own(&copy); /* the owner belongs to one volume, not to the export */
	memmove(&k->list[at + 1], &k->list[at], (k->n - at) * sizeof(*k->list));
	k->list[at] = (struct known_export){ .export = copy };
	k->n++;
	return &k->list[at];
}

/* Called with the lock held. Return NULL if it is not remembered. */
static struct known_export *find_or_insert(struct known_exports *k, const struct nfs_export *e)
{
	bool found;
	size_t at = find_position(k, e, &found);

	return found ? &k->list[at] : insert_export(k, at, e);
}

static bool works(const struct known_export *known)
{
	return known->has_worked && !known->is_gone;
}

/* Called with the lock held. Make room for an export on which calls succeed. */
static void forget_one_that_does_not_work(struct known_exports *k)
{
	size_t i;

	for (i = 0; i < k->n; i++) {
		if (works(&k->list[i]))
			continue;
		nfs_export_done(&k->list[i].export);
		k->n--;
		memmove(&k->list[i], &k->list[i + 1], (k->n - i) * sizeof(*k->list));
		return;
	}
}

void known_exports_remember(struct known_exports *k, const struct nfs_export *e)
{
	struct known_export *known;

	pthread_mutex_lock(&k->lock);
	known = find_or_insert(k, e);
	if (known == NULL && k->n == KNOWN_EXPORTS_MAX) {
		forget_one_that_does_not_work(k);
		known = find_or_insert(k, e);
	}
	if (known != NULL) {
		nfs_export_copy_way(&known->export, e);
		known->export.prefers_version = e->version != 0;
		known->has_worked = true;
		known->is_gone = false;
	}
	pthread_mutex_unlock(&k->lock);
}

static struct way way_of(const struct nfs_export *e)
{
	return (struct way){ .version = e->version,
			     .minor = e->minor,
			     .has_minor = e->has_minor,
			     .port = e->port,
			     .mount_port = e->mount_port };
}

static bool has_way(const struct known_export *known, const struct way *way)
{
	unsigned int i;

	for (i = 0; i < WAYS_MAX && i < known->n_ways; i++) {
		const struct way *other = &known->ways[i];

		if (other->version == way->version && other->minor == way->minor &&
		    other->has_minor == way->has_minor && other->port == way->port &&
		    other->mount_port == way->mount_port)
			return true;
	}
	return false;
}

void known_exports_reach(struct known_exports *k, const struct nfs_export *e)
{
	const struct way way = way_of(e);
	struct known_export *known;

	pthread_mutex_lock(&k->lock);
	known = find_or_insert(k, e);
	if (known != NULL) {
		known->failing_ns = 0;
		if (!has_way(known, &way))
			known->ways[known->n_ways++ % WAYS_MAX] = way;
	}
	pthread_mutex_unlock(&k->lock);
}

void known_exports_fail(struct known_exports *k, const struct nfs_export *e)
{
	struct known_export *known;
	bool found;
	uint64_t now;
	size_t at;

	pthread_mutex_lock(&k->lock);
	now = clock_now_ns(); /* not before failed_ns */
	at = find_position(k, e, &found);
	if (found) {
		known = &k->list[at];
		if (known->failing_ns == 0 || now - known->failed_ns > TRIED_S * CLOCK_NS_PER_S)
			known->failing_ns = now;
		known->failed_ns = now;
		if (now - known->failing_ns > FORGET_S * CLOCK_NS_PER_S)
			known->is_gone = true;
	}
	pthread_mutex_unlock(&k->lock);
}

bool known_exports_have(struct known_exports *k, const struct nfs_export *e)
{
	const struct way way = way_of(e);
	bool found;
	size_t at;

	pthread_mutex_lock(&k->lock);
	at = find_position(k, e, &found);
	found = found && has_way(&k->list[at], &way);
	pthread_mutex_unlock(&k->lock);
	return found;
}

void known_exports_apply(struct known_exports *k, struct nfs_export *e)
{
	bool found;
	size_t at;

	if (e->version != 0 || e->port != 0 || e->mount_port != 0)
		return;
	pthread_mutex_lock(&k->lock);
	at = find_position(k, e, &found);
	if (found && k->list[at].has_worked)
		nfs_export_copy_way(e, &k->list[at].export);
	pthread_mutex_unlock(&k->lock);
}

static bool places_are_equal(const struct records_place *a, const struct records_place *b)
{
	return a->address[0] != '\0' && strcmp(a->address, b->address) == 0 && a->port == b->port &&
	       a->version == b->version && a->fsid == b->fsid && a->fsid_minor == b->fsid_minor &&
	       a->fileid == b->fileid && nfs_time_is_equal(&a->ctime, &b->ctime);
}

bool known_exports_place(struct known_exports *k, const struct nfs_export *e,
			 const struct records_place *place)
{
	bool found, is_second = false;
	size_t at, i;

	pthread_mutex_lock(&k->lock);
	at = find_position(k, e, &found);
	if (found)
		k->list[at].place = *place;
	for (i = 0; i < at && !is_second; i++)
		is_second = places_are_equal(&k->list[i].place, place);
	pthread_mutex_unlock(&k->lock);
	return is_second;
}

int known_exports_list(struct known_exports *k, struct nfs_export **ret, size_t *ret_n)
{
	struct nfs_export *list;
	size_t n = 0, i;
	int r = 0;

	pthread_mutex_lock(&k->lock);
	list = calloc(k->n + 1, sizeof(*list));
	if (list == NULL)
		r = -ENOMEM;
	for (i = 0; r == 0 && i < k->n; i++) {
		if (!works(&k->list[i]))
			continue;
		r = nfs_export_copy(&list[n], &k->list[i].export);
		if (r == 0)
			n++;
	}
	pthread_mutex_unlock(&k->lock);
	if (r < 0) {
		if (list != NULL)
			known_exports_list_free(list, n);
		return r;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}
