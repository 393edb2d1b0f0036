/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Errors are returned as a negative errno and, for people, as a struct error on the caller's stack.
 * Nothing is allocated, so reporting an error cannot fail. Codes are the gRPC status codes that
 * errors become in the end; a CO decides by the code what to do next (CSI specification, "Error
 * Scheme"). The first error that is set stays; error_prefix() adds context on the way up. Any
 * thread.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

/* Numbers as in gRPC's table of status codes, which grpc/status.c asserts. */
enum error_code {
	ERROR_OK = 0,
	ERROR_CANCELLED = 1,
	ERROR_UNKNOWN = 2,
	ERROR_INVALID_ARGUMENT = 3,
	ERROR_DEADLINE_EXCEEDED = 4,
	ERROR_NOT_FOUND = 5,
	ERROR_ALREADY_EXISTS = 6,
	ERROR_PERMISSION_DENIED = 7,
	ERROR_RESOURCE_EXHAUSTED = 8,
	ERROR_FAILED_PRECONDITION = 9,
	ERROR_ABORTED = 10,
	ERROR_OUT_OF_RANGE = 11,
	ERROR_UNIMPLEMENTED = 12,
	ERROR_INTERNAL = 13,
	ERROR_UNAVAILABLE = 14,
	ERROR_DATA_LOSS = 15,
	ERROR_UNAUTHENTICATED = 16,
};

#define ERROR_CODE_LAST ERROR_UNAUTHENTICATED

/* Longer messages are truncated: trailers must fit into 8 KiB with every byte percent-encoded. */
#define ERROR_MESSAGE_SIZE 512

/*
 * The same cause gives the same text each time, because Kubernetes makes an event of each new text.
 * Details that change from call to call (times, counters, ids that csi-nfs makes up) go to the log.
 */

/* What the caller could wait for, if another try is worth it. */
enum error_wait {
	ERROR_WAIT_SERVER, /* until a server answers */
	ERROR_WAIT_PLACE, /* until fewer calls wait for a server, which may be well */
	ERROR_WAIT_TURN, /* until fewer copies are made */
};

struct error {
	enum error_code code;
	int sys; /* positive errno of the cause; 0: none */
	unsigned int retry_ms; /* wait before the same call is worth another try; 0: not soon */
	enum error_wait wait; /* if retry_ms > 0 */
	unsigned int wait_for; /* likewise: the server, as a number that two may share */
	char msg[ERROR_MESSAGE_SIZE]; /* UTF-8, whatever was put into it */
};

/*
 * Set *err unless it is NULL or already holds an error. Return a negative errno that stands for the
 * code, for "return error_set(...)".
 */
int error_set(struct error *err, enum error_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Like error_set() for a system error, sys > 0: append ": " and its text, and return -sys. */
int error_sys(struct error *err, enum error_code code, int sys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Set RESOURCE_EXHAUSTED for a failed allocation. Return -ENOMEM. */
int error_oom(struct error *err);

/* Insert "<text>: " before the message, if an error is set. */
void error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Clear the error, so that another attempt can set its own. */
void error_clear(struct error *err);

/*
 * Check whether the code ends an operation: a CO need not retry after it, so nothing of the
 * operation may be left behind. After other codes a CO must retry (CSI specification, "Error
 * Scheme").
 */
bool error_is_final(enum error_code code);

/* Return "INVALID_ARGUMENT" etc., or "UNKNOWN" for other numbers. Static storage. */
const char *error_code_name(enum error_code code);

#endif
