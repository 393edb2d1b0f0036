/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The grpc-timeout header. Pure functions, any thread. */
#ifndef GRPC_TIMEOUT_H
#define GRPC_TIMEOUT_H

#include <stddef.h>
#include <stdint.h>

/*
 * One to eight digits and one of H M S m u n, nothing else. A value that nanoseconds cannot hold
 * becomes UINT64_MAX. Returns 0, or -EINVAL with *ret_ns untouched.
 */
int grpc_timeout_parse(const char *s, size_t len, uint64_t *ret_ns);

/* The point in time, as in request.h, that lies timeout after now: never 0, which means none. */
uint64_t grpc_timeout_deadline(uint64_t now_ns, uint64_t timeout_ns);

#endif
