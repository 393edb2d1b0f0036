/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/exports.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct known_exports {
	pthread_mutex_t lock; /* guards all fields below; innermost */
	struct nfs_export *list; /* sorted by server and share */
	struct records_place *places; /* one for each */
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
	if (k == NULL)
		return;
	known_exports_list_free(k->list, k->n);
	free(k->places);
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
		int r = compare_exports(&k->list[middle], e);

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

/* Called with the lock held. Without memory the export is not remembered. */
static void insert_export(struct known_exports *k, size_t at, const struct nfs_export *e)
{
	struct records_place *places;
	struct nfs_export copy, *list;

	if (k->n == KNOWN_EXPORTS_MAX)
		return;
	if (k->n == k->cap) {
		size_t cap = k->cap == 0 ? 8 : k->cap * 2;

		list = reallocarray(k->list, cap, sizeof(*list));
		if (list == NULL)
			return;
		k->list = list;
		places = reallocarray(k->places, cap, sizeof(*places));
		if (places == NULL)
			return;
		k->places = places;
		k->cap = cap;
	}
	if (nfs_export_copy(&copy, e) < 0)
		return;
	copy.prefers_version = e->version != 0;
	nfs_export_set_own(&copy); /* the owner belongs to one volume, not to the export */
	memmove(&k->list[at + 1], &k->list[at], (k->n - at) * sizeof(*k->list));
	memmove(&k->places[at + 1], &k->places[at], (k->n - at) * sizeof(*k->places));
	k->list[at] = copy;
	k->places[at] = (struct records_place){ .port = 0 };
	k->n++;
}

void known_exports_remember(struct known_exports *k, const struct nfs_export *e)
{
	bool found;
	size_t at;

	pthread_mutex_lock(&k->lock);
	at = find_position(k, e, &found);
	if (found) {
		nfs_export_copy_way(&k->list[at], e);
		k->list[at].prefers_version = e->version != 0;
	} else {
		insert_export(k, at, e);
	}
	pthread_mutex_unlock(&k->lock);
}

void known_exports_apply(struct known_exports *k, struct nfs_export *e)
{
	bool found;
	size_t at;

	if (e->version != 0 || e->port != 0 || e->mount_port != 0)
		return;
	pthread_mutex_lock(&k->lock);
	at = find_position(k, e, &found);
	if (found)
		nfs_export_copy_way(e, &k->list[at]);
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
		k->places[at] = *place;
	for (i = 0; i < at && !is_second; i++)
		is_second = places_are_equal(&k->places[i], place);
	pthread_mutex_unlock(&k->lock);
	return is_second;
}

int known_exports_list(struct known_exports *k, struct nfs_export **ret, size_t *ret_n)
{
	struct nfs_export *list;
	size_t n = 0;
	int r = 0;

	pthread_mutex_lock(&k->lock);
	list = calloc(k->n + 1, sizeof(*list));
	if (list == NULL)
		r = -ENOMEM;
	while (r == 0 && n < k->n) {
		r = nfs_export_copy(&list[n], &k->list[n]);
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
