/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* nfs/libnfs.c: this libnfs is one to start with. test_libraries.py has others. */

#include "check_util.h"
#include "nfs/libnfs.h"

START_TEST(test_this_one)
{
	struct error err = { .code = ERROR_OK };

	check_int("libnfs", "result", nfs_libnfs_check(&err), 0);
	check_error("libnfs", &err, ERROR_OK, NULL);
}
END_TEST

CHECK_MAIN("libnfs", .tests = { test_this_one })
