/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Find the protobuf-c service method for a path, and run it: request bytes in, reply bytes out.
 * Works on descriptors, so it knows no service by name and nothing of HTTP/2.
 */
#ifndef GRPC_DISPATCH_H
#define GRPC_DISPATCH_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/request.h"

struct grpc_service {
	/*
	 * The generated vtable (FOO__INIT) with every method set. Borrowed until
	 * grpc_server_free(), or longer if a handler still runs then.
	 */
	ProtobufCService *service;
	/*
	 * Called for each call with the method's bare name ("Probe"). True: the handler never
	 * blocks and runs on the loop thread, even if all workers are stuck. NULL: false for all.
	 */
	bool (*is_quick)(const char *method);
	/*
	 * Called likewise: how many calls of the method may be held at a time (call.h). NULL: 0 for
	 * all. A held call runs the method more than once, so every method that is not quick must
	 * be idempotent.
	 */
	unsigned int (*hold_max)(const char *method);
};

struct grpc_method {
	ProtobufCService *service;
	unsigned int index;
	const ProtobufCMethodDescriptor *descriptor;
	bool quick; /* runs on the loop thread */
	unsigned int hold_max; /* calls held at a time */
};

/* A run of a method. Initialize to zero, except for the request's deadline. */
struct grpc_invocation {
	struct request request; /* err is the status if reply is NULL */
	const ProtobufCMessageDescriptor *output;
	uint8_t *reply; /* prefix and message; freed by the owner of the invocation */
	size_t reply_len;
};

/*
 * Find "/package.Service/Method". Return 0, or a negative errno with UNIMPLEMENTED if the path is
 * malformed or unknown. Any thread.
 */
int grpc_dispatch_find(const struct grpc_service *services, size_t n_services, const char *path,
		       struct grpc_method *ret, struct error *err);

/*
 * Check and unpack the len bytes at data, which it takes and frees before the handler runs; call
 * the method; pack its reply. Sets either inv->reply or inv->request.err: the handler's error, one
 * of grpc_scan(), RESOURCE_EXHAUSTED for a request that unpacks to more than GRPC_UNPACK_MAX or a
 * reply over GRPC_MESSAGE_MAX, or INTERNAL if the handler left neither reply nor error. The handler
 * runs in the calling thread: a worker, or the loop thread for quick methods.
 */
void grpc_dispatch_run(const struct grpc_method *method, uint8_t *data, size_t len,
		       struct grpc_invocation *inv);

#endif
