/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/dispatch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "grpc/frame.h"
#include "grpc/limits.h"
#include "grpc/scan.h"

/* ---- Finding a method ---- */

static const struct grpc_service *find_service(const struct grpc_service *services, size_t n,
					       const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < n; i++) {
		const char *candidate = services[i].service->descriptor->name;

		if (strlen(candidate) == len && memcmp(candidate, name, len) == 0)
			return &services[i];
	}
	return NULL;
}

int grpc_dispatch_find(const struct grpc_service *services, size_t n_services, const char *path,
		       struct grpc_method *ret, struct error *err)
{
	const char *slash = strrchr(path, '/');
	const struct grpc_service *service;
	const ProtobufCMethodDescriptor *method;

	if (path[0] != '/' || slash == path || slash[1] == '\0')
		return error_set(err, ERROR_UNIMPLEMENTED, "malformed method name \"%s\"", path);
	service = find_service(services, n_services, path + 1, (size_t)(slash - path - 1));
	if (service == NULL)
		return error_set(err, ERROR_UNIMPLEMENTED, "unknown service %.*s",
				 (int)(slash - path - 1), path + 1);
	method = protobuf_c_service_descriptor_get_method_by_name(service->service->descriptor,
								  slash + 1);
	if (method == NULL)
		return error_set(err, ERROR_UNIMPLEMENTED, "unknown method %s of service %.*s",
				 slash + 1, (int)(slash - path - 1), path + 1);
	*ret = (struct grpc_method){
		.service = service->service,
		.index = (unsigned int)(method - service->service->descriptor->methods),
		.descriptor = method,
		.quick = service->is_quick != NULL && service->is_quick(method->name),
		.hold_max = service->hold_max != NULL ? service->hold_max(method->name) : 0,
	};
	return 0;
}

/* ---- Unpacking within a budget ---- */

struct budget {
	size_t left;
	bool exceeded; /* an allocation failed: over budget, or out of memory */
};

static void *budget_alloc(void *data, size_t size)
{
	struct budget *budget = data;
	void *p = NULL;

	if (size <= budget->left) {
		budget->left -= size;
		p = malloc(size > 0 ? size : 1);
	}
	if (p == NULL)
		budget->exceeded = true;
	return p;
}

static void budget_free(void *data, void *p)
{
	(void)data; /* the budget limits the sum of all allocations, not the peak: return nothing */
	free(p);
}

static ProtobufCAllocator budget_allocator(struct budget *budget)
{
	return (ProtobufCAllocator){
		.alloc = budget_alloc,
		.free = budget_free,
		.allocator_data = budget,
	};
}

static ProtobufCMessage *unpack_request(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
					size_t len, struct budget *budget, struct error *err)
{
	ProtobufCAllocator allocator = budget_allocator(budget);
	ProtobufCMessage *message;
	int r;

	r = grpc_scan(desc, data, len, err);
	if (r < 0)
		return NULL;
	message = protobuf_c_message_unpack(desc, &allocator, len,
					    data != NULL ? data : (const uint8_t *)"");
	if (message == NULL && budget->exceeded)
		(void)error_set(err, ERROR_RESOURCE_EXHAUSTED,
				"request takes more than %u bytes to unpack", GRPC_UNPACK_MAX);
	else if (message == NULL)
		(void)error_set(err, ERROR_INTERNAL, "request is not a valid %s", desc->name);
	return message;
}

/* ---- Running it ---- */

static void pack_reply(struct grpc_invocation *inv, const ProtobufCMessage *message)
{
	struct error *err = &inv->request.err;
	size_t len = protobuf_c_message_get_packed_size(message);

	if (len > GRPC_MESSAGE_MAX) {
		(void)error_set(err, ERROR_RESOURCE_EXHAUSTED,
				"reply of %zu bytes is larger than the limit of %u", len,
				GRPC_MESSAGE_MAX);
		return;
	}
	inv->reply = malloc(GRPC_FRAME_PREFIX_SIZE + len);
	if (inv->reply == NULL) {
		(void)error_oom(err);
		return;
	}
	grpc_frame_prefix(inv->reply, (uint32_t)len);
	(void)protobuf_c_message_pack(message, inv->reply + GRPC_FRAME_PREFIX_SIZE);
	inv->reply_len = GRPC_FRAME_PREFIX_SIZE + len;
}

/* The handler's closure; data is its struct request. */
static void on_reply(const ProtobufCMessage *message, void *data)
{
	struct request *request = data;
	struct grpc_invocation *inv = container_of(request, struct grpc_invocation, request);

	assert(inv->reply == NULL);
	if (message == NULL || request->err.code != ERROR_OK)
		return;
	assert(message->descriptor == inv->output);
	pack_reply(inv, message);
}

void grpc_dispatch_run(const struct grpc_method *method, uint8_t *data, size_t len,
		       struct grpc_invocation *inv)
{
	struct budget budget = { .left = GRPC_UNPACK_MAX, .exceeded = false };
	ProtobufCAllocator allocator = budget_allocator(&budget);
	ProtobufCMessage *message;

	message = unpack_request(method->descriptor->input, data, len, &budget, &inv->request.err);
	free(data);
	if (message == NULL)
		return;
	inv->output = method->descriptor->output;
	method->service->invoke(method->service, method->index, message, on_reply, &inv->request);
	protobuf_c_message_free_unpacked(message, &allocator);
	if (inv->reply == NULL && inv->request.err.code == ERROR_OK)
		(void)error_set(&inv->request.err, ERROR_INTERNAL,
				"%s ended without reply or error", method->descriptor->name);
}
