/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/map.h"

#include <string.h>

#include "base/str.h"

struct csi_map csi_map_of_entries(const void *entries, size_t n)
{
	struct csi_map map = { .entries = entries, .n = n };

	return map;
}

/* An entry is a message with the fields key (1) and value (2); its descriptor has their offsets. */
static const char *string_field(const ProtobufCMessage *entry, unsigned int number)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field(entry->descriptor, number);
	const char *value;

	memcpy(&value, (const char *)entry + field->offset, sizeof(value));
	return value != NULL ? value : "";
}

const char *csi_map_key(const struct csi_map *map, size_t i)
{
	return string_field(map->entries[i], 1);
}

const char *csi_map_value(const struct csi_map *map, size_t i)
{
	return string_field(map->entries[i], 2);
}

bool csi_map_is_replaced(const struct csi_map *map, size_t i)
{
	const char *key = csi_map_key(map, i);
	size_t j;

	for (j = i + 1; j < map->n; j++)
		if (strcmp(csi_map_key(map, j), key) == 0)
			return true;
	return false;
}

const char *csi_map_get(const struct csi_map *map, const char *key)
{
	size_t i;

	for (i = map->n; i-- > 0;)
		if (str_eq_nocase(csi_map_key(map, i), key))
			return csi_map_value(map, i);
	return NULL;
}
