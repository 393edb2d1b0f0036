/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/path_key.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"

#define CUT_KNOWN (RECORD_NAME_MAX - 17) /* bytes of the path in a key that was cut */

void path_key(char key[RECORD_NAME_MAX + 1], const char *path, size_t len)
{
	size_t n = 0, i;

	for (i = 0; i < len && n + 3 < RECORD_NAME_MAX; i++) {
		if (path[i] != '/' && path[i] != '%') {
			key[n++] = path[i];
			continue;
		}
		memcpy(key + n, path[i] == '/' ? "%2F" : "%25", 3);
		n += 3;
	}
	key[n] = '\0';
	if (i < len)
		(void)snprintf(key + CUT_KNOWN, RECORD_NAME_MAX + 1 - CUT_KNOWN, "-%016" PRIx64,
			       path_hash(path, len));
}

bool path_of_key(const char *key, size_t len, char path[RECORD_NAME_MAX + 1])
{
	size_t n = 0, i;

	if (len >= RECORD_NAME_MAX)
		return false;
	for (i = 0; i < len; i++) {
		if (key[i] != '%') {
			path[n++] = key[i];
			continue;
		}
		if (len - i < 3 ||
		    (memcmp(key + i, "%2F", 3) != 0 && memcmp(key + i, "%25", 3) != 0))
			return false;
		path[n++] = key[i + 2] == 'F' ? '/' : '%';
		i += 2;
	}
	path[n] = '\0';
	return path_check_relative(path, "path", NULL) == 0;
}

/* The rest of a key that is being compared. */
struct key_rest {
	const char *at;
	size_t len;
	bool is_cut;
};

/* The length of the path in a key that was cut, without a "%2F" or "%25" that the cut split. */
static size_t known_len(const char *key)
{
	if (key[CUT_KNOWN - 1] == '%')
		return CUT_KNOWN - 1;
	return key[CUT_KNOWN - 2] == '%' ? CUT_KNOWN - 2 : CUT_KNOWN;
}

static struct key_rest rest_of_key(const char *key, size_t len)
{
	const bool is_cut = len >= RECORD_NAME_MAX;

	return (struct key_rest){ .at = key,
				  .len = is_cut ? known_len(key) : len,
				  .is_cut = is_cut };
}

static size_t component_len(const struct key_rest *rest)
{
	size_t i;

	for (i = 0; i + 3 <= rest->len; i++)
		if (memcmp(rest->at + i, "%2F", 3) == 0)
			return i;
	return rest->len;
}

static bool is_last(const struct key_rest *rest, size_t n)
{
	return n == rest->len;
}

/* Whether the components may be the same. Compare only the beginning of one that was cut. */
static bool may_be_same(const struct key_rest *a, size_t n, const struct key_rest *b, size_t m)
{
	if (n < m && a->is_cut && is_last(a, n))
		m = n;
	else if (m < n && b->is_cut && is_last(b, m))
		n = m;
	return path_may_be_same_name(a->at, n, b->at, m);
}

static void skip_component(struct key_rest *rest, size_t n)
{
	rest->at += n + 3;
	rest->len -= n + 3;
}

enum path_relation path_key_compare(const char *key, size_t len, const char *other,
				    size_t other_len)
{
	struct key_rest a = rest_of_key(key, len), b = rest_of_key(other, other_len);

	for (;;) {
		const size_t n = component_len(&a), m = component_len(&b);

		if (!may_be_same(&a, n, &b, m))
			return PATH_IS_APART;
		if ((a.is_cut && is_last(&a, n)) || (b.is_cut && is_last(&b, m)))
			return PATH_IS_SAME;
		if (is_last(&a, n))
			return is_last(&b, m) ? PATH_IS_SAME : PATH_IS_AROUND;
		if (is_last(&b, m))
			return PATH_IS_IN;
		skip_component(&a, n);
		skip_component(&b, m);
	}
}
