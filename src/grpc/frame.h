/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Puts the one message of a unary call together from the bytes of DATA frames, whose borders mean
 * nothing: a flag, four bytes of length, the message. Memory grows as bytes arrive, not by what
 * the length claims. Pure: knows no socket and no stream. Not shared between threads.
 */
#ifndef GRPC_FRAME_H
#define GRPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define GRPC_FRAME_PREFIX_SIZE 5

/* All zero is an empty one. */
struct grpc_frame {
	bool encoded; /* set by the caller: grpc-encoding names something other than identity */
	uint8_t prefix[GRPC_FRAME_PREFIX_SIZE];
	size_t n_prefix;
	uint8_t *data; /* NULL while the message is empty */
	size_t len;
	size_t cap;
};

/*
 * Adds bytes. Returns 0, or a negative errno with the status that the call has earned: INTERNAL
 * (unknown flag, compressed without an encoding, more than one message), UNIMPLEMENTED (compressed
 * in a way that is not supported) or RESOURCE_EXHAUSTED (over GRPC_MESSAGE_MAX, or no memory).
 * After an error the frame is good for grpc_frame_done() only.
 */
int grpc_frame_feed(struct grpc_frame *f, const uint8_t *data, size_t n, struct error *err);

/* The peer is through. Returns 0 if exactly one message is there, otherwise as above: INTERNAL. */
int grpc_frame_end(const struct grpc_frame *f, struct error *err);

/* Hands the message over: the caller frees it. NULL where it is empty. */
uint8_t *grpc_frame_steal(struct grpc_frame *f, size_t *ret_len);

/* Frees the bytes; f is empty afterwards. */
void grpc_frame_done(struct grpc_frame *f);

/* Writes the prefix of an uncompressed message. */
void grpc_frame_prefix(uint8_t prefix[GRPC_FRAME_PREFIX_SIZE], uint32_t len);

#endif
