/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/path_key.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/path.h"
#include "base/str.h"

/* Names that a server may treat as equal have the same hash. */
static uint64_t folded_hash(const char *path, size_t len)
{
	char lower[PATH_LENGTH_MAX];
	size_t i;

	for (i = 0; i < len && i < sizeof(lower); i++)
		lower[i] = path[i] >= 'A' && path[i] <= 'Z' ? (char)(path[i] - 'A' + 'a') : path[i];
	return str_hash(lower, i);
}

void path_key(char key[RECORD_NAME_MAX + 1], const char *path, size_t len)
{
	size_t n = 0, i;

	for (i = 0; i < len && n + 3 < RECORD_NAME_MAX; i++)
		n += (size_t)snprintf(key + n, RECORD_NAME_MAX + 1 - n,
				      path[i] == '/' || path[i] == '%' ? "%%%02X" : "%c",
				      (unsigned int)(unsigned char)path[i]);
	if (i < len)
		(void)snprintf(key + RECORD_NAME_MAX - 17, 18, "-%016" PRIx64,
			       folded_hash(path, len));
}
