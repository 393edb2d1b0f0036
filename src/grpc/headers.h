/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The request's header block. nghttp2's own check of HTTP messaging is switched off, because it
 * resets calls of kubelets before 1.26, whose ":authority" is the path of the socket; so what
 * HTTP/2 and gRPC ask of a request is checked here. Pure, not shared between threads.
 */
#ifndef GRPC_HEADERS_H
#define GRPC_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "grpc/limits.h"

/* All zero before the first field. */
struct grpc_headers {
	size_t list_size; /* as SETTINGS_MAX_HEADER_LIST_SIZE counts */
	unsigned int seen; /* which of the fields that may come once only */
	bool has_regular; /* no pseudo field may follow */
	bool malformed; /* in a way that HTTP/2 answers with PROTOCOL_ERROR */
	bool is_post;
	bool is_grpc; /* content-type */
	bool encoded; /* grpc-encoding names something other than identity */
	bool has_timeout;
	const char *bad; /* what earns a 400; static text */
	uint64_t timeout_ns;
	char path[GRPC_PATH_MAX + 1]; /* cut where it is longer */
};

/* Takes in one field. Names and values need no terminator. Beyond the list's limit only counts. */
void grpc_headers_add(struct grpc_headers *h, const char *name, size_t name_len, const char *value,
		      size_t value_len);

/*
 * Judges the whole block. Returns 0 where the request may go on; -EPROTO, with no error set, where
 * the stream is to be reset with PROTOCOL_ERROR; another negative errno with the status and the
 * HTTP status to answer with (431, 415, 400, 405). The path is not judged.
 */
int grpc_headers_check(const struct grpc_headers *h, int *ret_http_status, struct error *err);

#endif
