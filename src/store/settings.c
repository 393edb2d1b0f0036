/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/settings.h"

#include <errno.h>

#include "base/str.h"

static const char *const on_delete_names[] = {
	[ON_DELETE_DELETE] = "delete",
	[ON_DELETE_RETAIN] = "retain",
	[ON_DELETE_ARCHIVE] = "archive",
};

const char *on_delete_name(enum volume_on_delete value)
{
	return on_delete_names[value];
}

enum volume_on_delete on_delete_stricter(enum volume_on_delete a, enum volume_on_delete b)
{
	if (a == ON_DELETE_RETAIN || b == ON_DELETE_RETAIN)
		return ON_DELETE_RETAIN;
	return a == ON_DELETE_ARCHIVE ? a : b;
}

int on_delete_parse(const char *text, enum volume_on_delete *ret)
{
	size_t i;

	if (text[0] == '\0') {
		*ret = ON_DELETE_DELETE;
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(on_delete_names); i++) {
		if (str_eq_nocase(text, on_delete_names[i])) {
			*ret = (enum volume_on_delete)i;
			return 0;
		}
	}
	return -EINVAL;
}

static const char *const existing_names[] = {
	[EXISTING_ADOPT] = "adopt",
	[EXISTING_REQUIRE] = "require",
	[EXISTING_REFUSE] = "refuse",
};

const char *existing_name(enum volume_existing value)
{
	return existing_names[value];
}

int existing_parse(const char *text, enum volume_existing *ret)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(existing_names); i++) {
		if (str_eq_nocase(text, existing_names[i])) {
			*ret = (enum volume_existing)i;
			return 0;
		}
	}
	return -EINVAL;
}

bool capacity_is_compatible(int64_t size, const struct volume_capacity *capacity)
{
	return size >= capacity->required && (capacity->limit == 0 || size <= capacity->limit);
}
