/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Map fields of a message. protobuf-c stores them as arrays of entries, with one message type per
 * field. A key may occur several times; its last entry counts. All strings are borrowed from the
 * message.
 */
#ifndef CSI_MAP_H
#define CSI_MAP_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

#include "base/error.h"

struct csi_map {
	const ProtobufCMessage *const *entries;
	size_t n;
};

/* csi_map_of(in, parameters) for a field of any message type. */
#define csi_map_of(message, field)                                                                 \
	csi_map_of_entries((const void *)(message)->field, (message)->n_##field)

struct csi_map csi_map_of_entries(const void *entries, size_t n);

/* Key and value of entry i. Never NULL; "" where the entry has none. */
const char *csi_map_key(const struct csi_map *map, size_t i);
const char *csi_map_value(const struct csi_map *map, size_t i);

/* Whether a later entry has the same key and overrides entry i. */
bool csi_map_is_replaced(const struct csi_map *map, size_t i);

/* The value of a key, or NULL. ASCII case is ignored, as in csi-driver-nfs. */
const char *csi_map_get(const struct csi_map *map, const char *key);

#endif
