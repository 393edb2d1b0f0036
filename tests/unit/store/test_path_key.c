/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* store/path_key.c: keys of long paths, which are cut and end with a hash. */

#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "store/path_key.h"
#include "check_util.h"

#define LONGEST 260

static void fill(char *path, char c, size_t n)
{
	memset(path, c, n);
	path[n] = '\0';
}

static enum path_relation compare(const char *path, const char *other)
{
	char a[RECORD_NAME_MAX + 1], b[RECORD_NAME_MAX + 1];

	path_key(a, path, strlen(path));
	path_key(b, other, strlen(other));
	return path_key_compare(a, strlen(a), b, strlen(b));
}

/* Wherever the key is cut, a directory is not apart from one that is in it. */
START_TEST(test_cut)
{
	static const char *const ends[] = { "", "%", "%%", "x%", "/y", "/%", "%/%" };
	static const char *const insides[] = { "/b", "/%", "/b/c", "/%2F", "//" };
	char dir[2 * LONGEST], in[3 * LONGEST], tail[LONGEST];
	size_t i, j, n;

	for (n = 1; n < LONGEST; n++) {
		for (i = 0; i < ARRAY_SIZE(ends); i++) {
			for (j = 0; j < ARRAY_SIZE(insides); j++) {
				fill(dir, 'a', n);
				strcat(dir, ends[i]);
				fill(tail, 'b', n % 50);
				(void)snprintf(in, sizeof(in), "%s%s%s", dir, insides[j], tail);
				ck_assert_msg(compare(dir, in) != PATH_IS_APART, "%zu '%s' '%s'", n,
					      dir, in);
				ck_assert_msg(compare(in, dir) != PATH_IS_APART, "%zu '%s' '%s'", n,
					      in, dir);
				ck_assert_msg(compare(in, in) == PATH_IS_SAME, "'%s'", in);
			}
		}
	}
}
END_TEST

/* Long paths that differ early are still told apart. */
START_TEST(test_apart)
{
	char a[LONGEST], b[LONGEST];
	size_t n;

	for (n = 3; n < LONGEST; n++) {
		fill(a, 'a', n);
		fill(b, 'a', n);
		b[0] = 'b';
		check_int(a, "relation", compare(a, b), PATH_IS_APART);
		a[1] = '/';
		b[0] = 'a';
		b[1] = '%';
		check_int(a, "relation", compare(a, b), PATH_IS_APART);
	}
}
END_TEST

CHECK_MAIN("path_key", .tests = { test_cut, test_apart })
