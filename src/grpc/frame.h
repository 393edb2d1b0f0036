/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Assemble the message of a unary call from the bytes of DATA frames, whose boundaries carry no
 * meaning: a flag, four bytes of length, the message. Memory grows with the bytes that arrive, not
 * with the length that the prefix claims. Not shared between threads.
 */
#ifndef GRPC_FRAME_H
#define GRPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define GRPC_FRAME_PREFIX_SIZE 5

/* Initialize to zero. */
struct grpc_frame {
	bool encoded; /* set by the caller: grpc-encoding is not identity */
	uint8_t prefix[GRPC_FRAME_PREFIX_SIZE];
	size_t n_prefix;
	uint8_t *data; /* NULL while the message is empty */
	size_t len;
	size_t cap;
};

/*
 * Add bytes. Return 0, or a negative errno with the status of the call: INTERNAL (unknown flag,
 * compressed without an encoding, more than one message), UNIMPLEMENTED (compressed, with an
 * encoding) or RESOURCE_EXHAUSTED (over GRPC_MESSAGE_MAX, or out of memory). After an error only
 * grpc_frame_done() may be called.
 */
int grpc_frame_feed(struct grpc_frame *f, const uint8_t *data, size_t n, struct error *err);

/* End the request. Return 0 if the message is complete, or a negative errno with INTERNAL. */
int grpc_frame_end(const struct grpc_frame *f, struct error *err);

/* Return the message, for the caller to free; NULL if it is empty. Empties the frame. */
uint8_t *grpc_frame_steal(struct grpc_frame *f, size_t *ret_len);

/* Free the bytes and empty the frame. */
void grpc_frame_done(struct grpc_frame *f);

/* Write the prefix of an uncompressed message of len bytes. */
void grpc_frame_prefix(uint8_t prefix[GRPC_FRAME_PREFIX_SIZE], uint32_t len);

#endif
