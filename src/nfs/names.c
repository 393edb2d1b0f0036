/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define CAP_FIRST 16

static uint64_t hash_of(const char *name)
{
	return str_hash(name, strlen(name));
}

int nfs_names_add(struct nfs_names *names, const char *name)
{
	if (names->n == names->cap) {
		size_t cap = names->cap > 0 ? names->cap * 2 : CAP_FIRST;
		uint64_t *hashes = reallocarray(names->hashes, cap, sizeof(*hashes));

		if (hashes == NULL)
			return -ENOMEM;
		names->hashes = hashes;
		names->cap = cap;
	}
	names->hashes[names->n++] = hash_of(name);
	return 0;
}

/* The first of those in the sorted part that is not less. */
static size_t find_sorted(const struct nfs_names *names, uint64_t hash)
{
	size_t from = 0, to = names->n_sorted;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (names->hashes[middle] < hash)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static void take_out(struct nfs_names *names, size_t i)
{
	names->n--;
	memmove(names->hashes + i, names->hashes + i + 1, (names->n - i) * sizeof(*names->hashes));
}

void nfs_names_forget(struct nfs_names *names, const char *name)
{
	uint64_t hash = hash_of(name);
	size_t i = names->n;

	while (i > names->n_sorted)
		if (names->hashes[--i] == hash) {
			take_out(names, i);
			return;
		}
	i = find_sorted(names, hash);
	if (i == names->n_sorted || names->hashes[i] != hash)
		return;
	names->n_sorted--;
	take_out(names, i);
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

void nfs_names_begin_again(struct nfs_names *names)
{
	if (names->n > 0)
		qsort(names->hashes, names->n, sizeof(*names->hashes), compare);
	names->n_sorted = names->n;
}

bool nfs_names_has(const struct nfs_names *names, const char *name)
{
	uint64_t hash;
	size_t i;

	if (names->n_sorted == 0)
		return false;
	hash = hash_of(name);
	i = find_sorted(names, hash);
	return i < names->n_sorted && names->hashes[i] == hash;
}

void nfs_names_done(struct nfs_names *names)
{
	free(names->hashes);
	*names = (struct nfs_names){ .n = 0 };
}
