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
	for (i = 0; i < NAMES; i++)
		ck_assert_int_eq(nfs_names_add(&names, name_of(i)), 1);
	for (i = 0; i < NAMES; i += 3)
		nfs_names_forget(&names, name_of(i));
	nfs_names_forget(&names, "never there");
	ck_assert_uint_eq(names.n, NAMES - (NAMES + 2) / 3);
	for (i = 0; i < NAMES; i++)
		check_int(name_of(i), "new", nfs_names_add(&names, name_of(i)), i % 3 == 0);
	nfs_names_done(&names);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("names");

	tcase_add_test(tcase, test_once);
	tcase_add_test(tcase, test_forget);
	return check_run_case("names", tcase);
}
