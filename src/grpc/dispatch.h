/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * From a path to a method of a protobuf-c service, and from request bytes to reply bytes. Knows
 * descriptors only, no service by name, and nothing of HTTP/2.
 */
#ifndef GRPC_DISPATCH_H
#define GRPC_DISPATCH_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/request.h"
#include "grpc/server.h"

struct grpc_method {
	ProtobufCService *service;
	unsigned int index;
	const ProtobufCMethodDescriptor *descriptor;
	bool quick; /* runs on the loop thread */
};

/* One run of a method. All zero to begin with, save for the request's deadline. */
struct grpc_invocation {
	struct request request; /* err is the status where reply is NULL */
	const ProtobufCMessageDescriptor *output;
	uint8_t *reply; /* prefix and message; whoever owns the invocation frees it */
	size_t reply_len;
};

/*
 * Finds "/package.Service/Method". Returns 0, or a negative errno and UNIMPLEMENTED for a path
 * that is malformed or names nothing. Pure, any thread.
 */
int grpc_dispatch_find(const struct grpc_service *services, size_t n_services, const char *path,
		       struct grpc_method *ret, struct error *err);

/*
 * Checks and unpacks the len bytes at data (which it takes, and frees as early as it can), calls
 * the method, packs its reply. Afterwards either inv->reply is there or inv->request.err is set;
 * besides the handler's own errors INTERNAL and INVALID_ARGUMENT as grpc_scan() has them,
 * RESOURCE_EXHAUSTED for a request that unpacks to more than GRPC_UNPACK_MAX or a reply over
 * GRPC_MESSAGE_MAX, INTERNAL for a handler that left neither reply nor error. Runs the handler in
 * the calling thread: worker, may block; the loop thread for quick methods.
 */
void grpc_dispatch_run(const struct grpc_method *method, uint8_t *data, size_t len,
		       struct grpc_invocation *inv);

#endif
