/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Looks through a message before protobuf-c unpacks it. protobuf-c hands out char * and checks
 * neither UTF-8 nor embedded NULs, which would silently cut a name short: "a\0b" would delete "a".
 * Pure, any thread.
 */
#ifndef GRPC_SCAN_H
#define GRPC_SCAN_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * Walks the len bytes at data as a message of type desc, and the messages within. Returns 0, or a
 * negative errno and INVALID_ARGUMENT for a NUL in a string field, INTERNAL for one that is not
 * UTF-8, for malformed bytes and for messages nested too deep. The text names the field, as in
 * "volume_capabilities.mount.fs_type", and never shows a value.
 */
int grpc_scan(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
	      struct error *err);

#endif
