/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Check a message before protobuf-c unpacks it. protobuf-c returns strings as char * and checks
 * neither for UTF-8 nor for embedded NULs, which would silently truncate a name: "a\0b" would
 * delete "a". Any thread.
 */
#ifndef GRPC_SCAN_H
#define GRPC_SCAN_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/*
 * Walk the len bytes at data as a message of type desc, with its submessages. Return 0, or a
 * negative errno with INVALID_ARGUMENT for a NUL in a string field, or INTERNAL for a string that
 * is not UTF-8, malformed bytes, or messages nested too deeply. The error names the field, such as
 * "volume_capabilities.mount.fs_type", but never its value.
 */
int grpc_scan(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
	      struct error *err);

#endif
