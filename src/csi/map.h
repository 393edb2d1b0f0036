/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Map fields of a message. protobuf-c has them as arrays of entries, each a message type of its
 * own, possibly with the same key several times, of which the last counts. Borrowed from the message.
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

/* Never NULL; "" where an entry has none. */
const char *csi_map_key(const struct csi_map *map, size_t i);
const char *csi_map_value(const struct csi_map *map, size_t i);

/* Whether a later entry has the same key, and so replaces entry i. */
bool csi_map_is_replaced(const struct csi_map *map, size_t i);

/* The value of a key, compared without regard to ASCII case as csi-driver-nfs does; or NULL. */
const char *csi_map_get(const struct csi_map *map, const char *key);

#endif
