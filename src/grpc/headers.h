/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Check a request's headers against HTTP/2 and gRPC. nghttp2's own check is off because it resets
 * the calls of kubelets before 1.26, whose ":authority" is the socket's path. Not shared between
 * threads.
 */
#ifndef GRPC_HEADERS_H
#define GRPC_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "grpc/limits.h"

/* Initialize to zero. */
struct grpc_headers {
	size_t list_size; /* as SETTINGS_MAX_HEADER_LIST_SIZE counts */
	unsigned int seen; /* SEEN_* bits of fields that may occur only once */
	bool has_regular; /* no pseudo-header may follow */
	bool malformed; /* reset with PROTOCOL_ERROR, as HTTP/2 demands */
	bool is_post;
	bool is_grpc; /* content-type */
	bool encoded; /* grpc-encoding is not identity */
	bool has_timeout;
	const char *bad; /* reason to answer 400, static text; NULL: none */
	uint64_t timeout_ns;
	char path[GRPC_PATH_MAX + 1]; /* truncated if longer */
};

/* Add a field. Name and value need no terminator. Above the list's limit only count it. */
void grpc_headers_add(struct grpc_headers *h, const char *name, size_t name_len, const char *value,
		      size_t value_len);

/*
 * Check the complete headers, except for the path. Return 0 to go on; -EPROTO, without an error
 * set, to reset the stream with PROTOCOL_ERROR; or another negative errno with the gRPC and the
 * HTTP status (431, 415, 400, 405) to answer.
 */
int grpc_headers_check(const struct grpc_headers *h, int *ret_http_status, struct error *err);

#endif
