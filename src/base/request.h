/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A call as its handler sees it: the closure_data of a protobuf-c service method is a struct
 * request *. Before it returns, a handler calls its closure once, either with the reply or, after
 * setting err, with NULL. The reply is borrowed during the closure only. The caller of the method
 * owns the request (grpc/call.c or a test).
 */
#ifndef BASE_REQUEST_H
#define BASE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"

#define REQUEST_SUBJECT_SIZE 160

struct request {
	struct error err; /* status if the reply is NULL */
	uint64_t deadline_ns; /* time by clock_now_ns() when the client gives up; 0: never */
	atomic_bool cancelled; /* the client disconnected or reset the stream */
	bool waited_for_turn; /* the call was held with ERROR_WAIT_TURN, and runs again */
	char subject[REQUEST_SUBJECT_SIZE]; /* volume id or name, for the log */
};

static inline bool request_is_past_deadline(const struct request *req)
{
	return req->deadline_ns != 0 && req->deadline_ns <= clock_now_ns();
}

#endif
