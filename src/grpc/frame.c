/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/frame.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "grpc/limits.h"

#define FIRST_ALLOCATION 512U

static uint32_t message_len(const struct grpc_frame *f)
{
	return (uint32_t)f->prefix[1] << 24 | (uint32_t)f->prefix[2] << 16 |
	       (uint32_t)f->prefix[3] << 8 | f->prefix[4];
}

/* Status codes as in gRPC's compression document and grpc-go. */
static int check_flag(const struct grpc_frame *f, struct error *err)
{
	if (f->prefix[0] == 0)
		return 0;
	if (f->prefix[0] > 1)
		return error_set(err, ERROR_INTERNAL, "gRPC frame has the unknown flag %u",
				 f->prefix[0]);
	if (f->encoded)
		return error_set(err, ERROR_UNIMPLEMENTED, "compressed requests are not supported");
	return error_set(err, ERROR_INTERNAL, "compressed request without a grpc-encoding");
}

static int check_prefix(const struct grpc_frame *f, struct error *err)
{
	int r = check_flag(f, err);

	if (r < 0)
		return r;
	if (message_len(f) > GRPC_MESSAGE_MAX)
		return error_set(err, ERROR_RESOURCE_EXHAUSTED,
				 "request of %u bytes is larger than the limit of %u",
				 message_len(f), GRPC_MESSAGE_MAX);
	return 0;
}

/* f->len + n must not exceed the message's length. */
static int append_message(struct grpc_frame *f, const uint8_t *data, size_t n, struct error *err)
{
	size_t cap = f->cap < FIRST_ALLOCATION ? FIRST_ALLOCATION : 2 * f->cap;
	uint8_t *p;

	if (f->cap < f->len + n) {
		if (cap < f->len + n)
			cap = f->len + n;
		if (cap > message_len(f))
			cap = message_len(f);
		p = realloc(f->data, cap);
		if (p == NULL)
			return error_oom(err);
		f->data = p;
		f->cap = cap;
	}
	memcpy(f->data + f->len, data, n);
	f->len += n;
	return 0;
}

int grpc_frame_feed(struct grpc_frame *f, const uint8_t *data, size_t n, struct error *err)
{
	size_t want;
	int r;

	if (f->n_prefix < GRPC_FRAME_PREFIX_SIZE) {
		want = GRPC_FRAME_PREFIX_SIZE - f->n_prefix;
		if (want > n)
			want = n;
		if (want > 0)
			memcpy(f->prefix + f->n_prefix, data, want);
		f->n_prefix += want;
		if (f->n_prefix < GRPC_FRAME_PREFIX_SIZE)
			return 0;
		r = check_prefix(f, err);
		if (r < 0)
			return r;
		data += want;
		n -= want;
	}
	if (n > message_len(f) - f->len)
		return error_set(err, ERROR_INTERNAL,
				 "more than one message in the request of a unary call");
	return n > 0 ? append_message(f, data, n, err) : 0;
}

int grpc_frame_end(const struct grpc_frame *f, struct error *err)
{
	if (f->n_prefix == 0)
		return error_set(err, ERROR_INTERNAL, "no message in the request of a unary call");
	if (f->n_prefix < GRPC_FRAME_PREFIX_SIZE)
		return error_set(err, ERROR_INTERNAL, "request ended within the message's prefix");
	if (f->len < message_len(f))
		return error_set(err, ERROR_INTERNAL, "request ended after %zu of %u bytes", f->len,
				 message_len(f));
	return 0;
}

uint8_t *grpc_frame_steal(struct grpc_frame *f, size_t *ret_len)
{
	*ret_len = f->len;
	f->len = 0;
	f->cap = 0;
	f->n_prefix = 0;
	return steal_ptr(&f->data);
}

void grpc_frame_done(struct grpc_frame *f)
{
	free(f->data);
	*f = (struct grpc_frame){ .encoded = f->encoded };
}

void grpc_frame_prefix(uint8_t prefix[GRPC_FRAME_PREFIX_SIZE], uint32_t len)
{
	prefix[0] = 0;
	prefix[1] = (uint8_t)(len >> 24);
	prefix[2] = (uint8_t)(len >> 16);
	prefix[3] = (uint8_t)(len >> 8);
	prefix[4] = (uint8_t)len;
}
