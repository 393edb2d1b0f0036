/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/names.h"

#include <stdio.h>

#include "check_util.h"

#define NAMES 5000

static const char *name_of(unsigned int i)
{
	static char name[32];

	(void)snprintf(name, sizeof(name), "name %u", i);
	return name;
}

START_TEST(test_once)
{
	struct nfs_names names = { .n = 0 };
	unsigned int round, i;

	for (round = 0; round < 2; round++)
		for (i = 0; i < NAMES; i++)
			check_int(name_of(i), "new", nfs_names_add(&names, name_of(i)), round == 0);
	ck_assert_uint_eq(names.n, NAMES);
	nfs_names_done(&names);
	check_int("done", "new", nfs_names_add(&names, "name 1"), 1);
	nfs_names_done(&names);
}
END_TEST

/* Names can still be found after others were removed. */
START_TEST(test_forget)
{
	struct nfs_names names = { .n = 0 };
	unsigned int i;

	nfs_names_forget(&names, "in nothing");
	ck_assert(!nfs_names_has(&names, "in nothing"));
	for (i = 0; i < NAMES; i++)
		ck_assert_int_eq(nfs_names_add(&names, name_of(i)), 1);
	for (i = 0; i < NAMES; i += 3)
		nfs_names_forget(&names, name_of(i));
	nfs_names_forget(&names, "never there");
	ck_assert(!nfs_names_has(&names, "never there"));
	for (i = 0; i < NAMES; i++)
		check_int(name_of(i), "has", nfs_names_has(&names, name_of(i)), i % 3 != 0);
	ck_assert_uint_eq(names.n, NAMES - (NAMES + 2) / 3);
	for (i = 0; i < NAMES; i++)
		check_int(name_of(i), "new", nfs_names_add(&names, name_of(i)), i % 3 == 0);
	nfs_names_done(&names);
}
END_TEST

/* The vectors that the authors of SipHash publish: bytes 0, 1, 2 ..., and a key of 0 to 15. */
START_TEST(test_hash)
{
	static const uint64_t key[] = { UINT64_C(0x0706050403020100),
					UINT64_C(0x0f0e0d0c0b0a0908) };
	static const struct {
		size_t len;
		uint64_t hash;
	} rows[] = {
		{ 0, UINT64_C(0x726fdb47dd0e0e31) },  { 1, UINT64_C(0x74f839c593dc67fd) },
		{ 2, UINT64_C(0x0d6c8009d9a94f5a) },  { 3, UINT64_C(0x85676696d7fb7e2d) },
		{ 7, UINT64_C(0xab0200f58b01d137) },  { 8, UINT64_C(0x93f5f5799a932462) },
		{ 15, UINT64_C(0xa129ca6149be45e5) },
	};
	char bytes[16];
	size_t i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)i;
	for (i = 0; i < ARRAY_SIZE(rows); i++)
		ck_assert_uint_eq(nfs_names_hash(key, bytes, rows[i].len), rows[i].hash);
}
END_TEST

/* What collides under one key does not under the next: keys differ, and so do their hashes. */
START_TEST(test_keys_differ)
{
	struct nfs_names a = { .n = 0 }, b = { .n = 0 };

	check_int("first set", "new", nfs_names_add(&a, "name"), 1);
	check_int("second set", "new", nfs_names_add(&b, "name"), 1);
	check_that("keys", "all differ", a.key[0] != b.key[0] && a.key[1] != b.key[1]);
	nfs_names_done(&a);
	nfs_names_done(&b);
}
END_TEST

CHECK_MAIN("names", .tests = { test_once, test_forget, test_hash, test_keys_differ })
