/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SIZE_FIRST 16

static uint64_t rotate(uint64_t x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] = rotate(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	sip_round(v);
	v[0] ^= word;
}

uint64_t nfs_names_hash(const uint64_t key[2], const char *name, size_t len)
{
	uint64_t v[4] = {
		UINT64_C(0x736f6d6570736575) ^ key[0],
		UINT64_C(0x646f72616e646f6d) ^ key[1],
		UINT64_C(0x6c7967656e657261) ^ key[0],
		UINT64_C(0x7465646279746573) ^ key[1],
	};
	uint64_t word = 0;
	size_t i;

	for (i = 0; i < len; i++) {
		word |= (uint64_t)(unsigned char)name[i] << i % 8 * 8;
		if (i % 8 == 7) {
			sip_word(v, word);
			word = 0;
		}
	}
	sip_word(v, word | (uint64_t)len << 56);
	v[2] ^= 0xff;
	for (i = 0; i < 4; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Never 0. */
static uint64_t hash_name(const struct nfs_names *names, const char *name)
{
	const uint64_t h = nfs_names_hash(names->key, name, strlen(name));

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
	struct nfs_names larger = { .n = names->n, .key = { names->key[0], names->key[1] } };
	size_t i;

	/*
	 * A random key, so that nobody can choose names that collide. getrandom() returns this few
	 * bytes in one call.
	 */
	if (names->size == 0 && getrandom(larger.key, sizeof(larger.key), 0) < 0)
		return -errno;
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
	int r;

	if (names->n >= names->size / 4 * 3) {
		r = grow_slots(names);
		if (r < 0)
			return r;
	}
	hash = hash_name(names, name);
	i = find_slot(names, hash);
	if (names->slots[i] == hash)
		return 0;
	names->slots[i] = hash;
	names->n++;
	return 1;
}

bool nfs_names_has(const struct nfs_names *names, const char *name)
{
	return names->n > 0 && names->slots[find_slot(names, hash_name(names, name))] != 0;
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
