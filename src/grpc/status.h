/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* How a status is written into trailers. Pure functions, any thread. */
#ifndef GRPC_STATUS_H
#define GRPC_STATUS_H

#include <stddef.h>

#include "base/error.h"
#include "base/log.h"
#include "grpc/limits.h"

#define GRPC_STATUS_CODE_SIZE 4
#define GRPC_STATUS_MESSAGE_SIZE (GRPC_STATUS_MESSAGE_MAX + 1)

/* The value of grpc-status: decimal, no leading zeros; UNKNOWN for a number outside the table. */
void grpc_status_code(enum error_code code, char ret[GRPC_STATUS_CODE_SIZE]);

/*
 * The value of grpc-message: what is not printable ASCII, and '%', percent-encoded; bytes that are
 * not UTF-8 as U+FFFD, save for a character that was cut off at the end, which is dropped. What
 * does not fit into size bytes (at least 1, the terminator counts) is cut between characters.
 * Returns the length.
 */
size_t grpc_status_message(const char *message, char *ret, size_t size);

/* How loud a call that ended so is logged: warn where the driver or the server is in trouble. */
enum log_level grpc_status_log_level(enum error_code code);

#endif
