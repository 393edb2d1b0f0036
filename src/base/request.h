/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One call as its handler sees it: the closure_data that a protobuf-c service method is given is
 * a struct request *. A handler either calls its closure once with the reply, or sets err and
 * calls the closure with NULL; both before it returns. The reply is borrowed during the closure
 * call only. Owned by whoever invokes the method (grpc/call.c, or a test).
 */
#ifndef BASE_REQUEST_H
#define BASE_REQUEST_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"

#define REQUEST_SUBJECT_SIZE 160

struct request {
	struct error err; /* the status, where the reply is NULL */
	uint64_t deadline_ns; /* clock_now_ns() at which the client gives up; 0: never */
	atomic_bool cancelled; /* the client went away or reset the stream */
	char subject[REQUEST_SUBJECT_SIZE]; /* volume id or name that it is about, for the log */
};

#endif
