/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SIZE_FIRST 16

/* FNV-1a with a random start, then a mix of the bits. Never 0. */
static uint64_t hash_name(const struct nfs_names *names, const char *name)
{
	uint64_t h = names->key;

	for (; *name != '\0'; name++) {
		h ^= (unsigned char)*name;
		h *= UINT64_C(1099511628211);
	}
	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	return h != 0 ? h : 1;
}

/* Find the slot of the hash, or the free slot for it. */
static size_t find_slot(const struct nfs_names *names, uint64_t hash)
{
	size_t i = (size_t)(hash & (names->size - 1));

	while (names->slots[i] != 0 && names->slots[i] != hash)
		i = (i + 1) & (names->size - 1);
	return i;
}

static int grow_slots(struct nfs_names *names)
{
	struct nfs_names larger = { .n = names->n, .key = names->key };
	size_t i;

	/* Without random bytes the hash still works, but names that collide can be chosen. */
	if (names->size == 0 && getrandom(&larger.key, sizeof(larger.key), GRND_NONBLOCK) < 0)
		larger.key = UINT64_C(14695981039346656037);
	larger.size = names->size > 0 ? names->size * 2 : SIZE_FIRST;
	larger.slots = calloc(larger.size, sizeof(*larger.slots));
	if (larger.slots == NULL)
		return -ENOMEM;
	for (i = 0; i < names->size; i++)
		if (names->slots[i] != 0)
			larger.slots[find_slot(&larger, names->slots[i])] = names->slots[i];
	free(names->slots);
	*names = larger;
	return 0;
}

int nfs_names_add(struct nfs_names *names, const char *name)
{
	uint64_t hash;
	size_t i;

	if (names->n >= names->size / 4 * 3 && grow_slots(names) < 0)
		return -ENOMEM;
	hash = hash_name(names, name);
	i = find_slot(names, hash);
	if (names->slots[i] == hash)
		return 0;
	names->slots[i] = hash;
	names->n++;
	return 1;
}

/* Free a slot. Hashes after it that were displaced by it move up. */
static void close_gap(struct nfs_names *names, size_t gap)
{
	const size_t mask = names->size - 1;
	size_t i;

	for (i = (gap + 1) & mask; names->slots[i] != 0; i = (i + 1) & mask) {
		size_t wanted = (size_t)(names->slots[i] & mask);

		if (((i - wanted) & mask) < ((i - gap) & mask))
			continue;
		names->slots[gap] = names->slots[i];
		gap = i;
	}
	names->slots[gap] = 0;
}

void nfs_names_forget(struct nfs_names *names, const char *name)
{
	uint64_t hash;
	size_t i;

	if (names->n == 0)
		return;
	hash = hash_name(names, name);
	i = find_slot(names, hash);
	if (names->slots[i] != hash)
		return;
	close_gap(names, i);
	names->n--;
}

void nfs_names_done(struct nfs_names *names)
{
	free(names->slots);
	*names = (struct nfs_names){ .n = 0 };
}
