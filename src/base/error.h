/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Errors travel upwards as a negative errno and, for people, as a struct error on the caller's
 * stack: nothing is allocated, so reporting an error cannot fail. The code has the meaning of the
 * sixteen gRPC status codes, because that is what every error becomes in the end; which code is
 * final and which is not decides what a CO does next (CSI specification, "Error Scheme").
 * The first error set wins; error_prefix() adds context on the way up. Any thread.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

/* Numbers as in the gRPC status code table; grpc/status.c asserts that they stay so. */
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

/* Long messages are cut: trailers must fit into 8 KiB even when every byte is percent-encoded. */
#define ERROR_MESSAGE_SIZE 512

struct error {
	enum error_code code;
	int sys; /* errno behind it, positive; 0 where there is none */
	char msg[ERROR_MESSAGE_SIZE];
};

/*
 * Sets *err, unless it is NULL or holds an error already. Returns a negative errno that stands for
 * the code, so that "return error_set(...)" reads as one statement.
 */
int error_set(struct error *err, enum error_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* As error_set(), for a system error: appends ": <text of sys>" and returns -sys. sys > 0. */
int error_sys(struct error *err, enum error_code code, int sys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* RESOURCE_EXHAUSTED for a failed allocation. Returns -ENOMEM. */
int error_oom(struct error *err);

/* Puts "<text>: " before the message. Does nothing where no error is set. */
void error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Forgets the error, so that another attempt may report its own. */
void error_clear(struct error *err);

/*
 * Whether a CO may forget what it asked for after this code, so that nothing of it may stay behind; the
 * others say that it has to ask again (CSI specification, "Error Scheme").
 */
bool error_is_final(enum error_code code);

/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number outside the table. Static storage. */
const char *error_code_name(enum error_code code);

#endif
