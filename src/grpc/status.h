/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Encode a status for trailers. Any thread. */
#ifndef GRPC_STATUS_H
#define GRPC_STATUS_H

#include <stddef.h>

#include "base/error.h"
#include "base/log.h"
#include "grpc/limits.h"

#define GRPC_STATUS_CODE_SIZE 4
#define GRPC_STATUS_MESSAGE_SIZE (GRPC_STATUS_MESSAGE_MAX + 1)

/* Write grpc-status: decimal, without leading zeros; UNKNOWN for a code that gRPC lacks. */
void grpc_status_code(enum error_code code, char ret[GRPC_STATUS_CODE_SIZE]);

/*
 * Write grpc-message: percent-encode '%' and everything but printable ASCII; replace bytes that are
 * not UTF-8 by U+FFFD; drop an incomplete character at the end. Truncate between characters to fit
 * size, which includes the terminator and is at least 1. Return the length.
 */
size_t grpc_status_message(const char *message, char *ret, size_t size);

/* Return the level for logging a call's status: warn for a problem of the driver or server. */
enum log_level grpc_status_log_level(enum error_code code);

#endif
