/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The table of names of owners. */

#include <errno.h>
#include <stdio.h>

#include "nfs/owner.h"
#include "check_util.h"

#define SERVERS 8

/* Add names of len bytes or a little more, up to the first that is refused. Returns how many. */
static unsigned int fill(const char *server, size_t len)
{
	char name[NFS_OWNER_MAX + 1];
	uint32_t number;
	unsigned int i;

	for (i = 0;; i++) {
		const int n = snprintf(name, sizeof(name), "%0*u@%s", (int)len, i, server);
		int r = nfs_owner_intern_of(server, name, (size_t)n, &number);

		if (r == -EOVERFLOW)
			return i;
		check_int(name, "result", r, 0);
		check_str(name, "name", nfs_owner_name(number), name);
	}
}

/* Names keep their numbers, whoever sends them. */
START_TEST(test_names)
{
	uint32_t alice, bob, again;

	check_int("alice", "result", nfs_owner_intern_of("nas", "alice@a", 7, &alice), 0);
	check_int("bob", "result", nfs_owner_intern("bob@a", 5, &bob), 0);
	check_that("bob", "another number", alice != 0 && bob != 0 && alice != bob);
	check_int("alice", "result", nfs_owner_intern_of("other", "alice@a, cut", 7, &again), 0);
	check_int("alice", "number", again, alice);
	check_int("empty", "result", nfs_owner_intern("", 0, &again), -EINVAL);
	check_int("control", "result", nfs_owner_intern("a\nb", 3, &again), -EINVAL);
}
END_TEST

/*
 * Likewise from the first server that has room: with CK_FORK=no, earlier tests have filled the
 * quarters of others.
 */
static unsigned int fill_a_quarter(size_t len)
{
	unsigned int i, n = 0;

	for (i = 0; i < SERVERS && n == 0; i++) {
		char server[16];

		(void)snprintf(server, sizeof(server), "evil%u", i);
		n = fill(server, len);
	}
	return n;
}

/* A server that sends names without end leaves room for those of others. */
START_TEST(test_shares)
{
	static const size_t lengths[] = { 8, 200 };
	const unsigned int n = fill_a_quarter(lengths[_i]);
	unsigned int i, have_room = 0;
	uint32_t number, again;

	check_that("evil", "some names", n > 1000);
	check_that("evil", "no more than a quarter",
		   n <= NFS_OWNERS_MAX / 4 && n * lengths[_i] <= NFS_OWNER_BYTES_MAX / 4);
	for (i = 0; i < SERVERS; i++) {
		char server[16], name[32];
		const int len = snprintf(name, sizeof(name), "alice@nas%u", i);

		(void)snprintf(server, sizeof(server), "nas%u", i);
		if (nfs_owner_intern_of(server, name, (size_t)len, &number) < 0)
			continue;
		have_room++;
		check_int(name, "known", nfs_owner_intern_of("evil", name, (size_t)len, &again), 0);
		check_int(name, "number", again, number);
	}
	/* One or another may share the quarter of the first server by chance. */
	check_that("others", "have room", have_room >= SERVERS / 2);
}
END_TEST

CHECK_MAIN("owner", .tests = { test_names }, .loops = { { test_shares, 2 } })
