/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Parse the grpc-timeout header. Any thread. */
#ifndef GRPC_TIMEOUT_H
#define GRPC_TIMEOUT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Parse one to eight digits and a unit, one of H M S m u n. A value too large for nanoseconds
 * becomes UINT64_MAX. Return 0, or -EINVAL with *ret_ns untouched.
 */
int grpc_timeout_parse(const char *s, size_t len, uint64_t *ret_ns);

/* Return the deadline, as in request.h: now plus timeout, but never 0, which means none. */
uint64_t grpc_timeout_deadline(uint64_t now_ns, uint64_t timeout_ns);

#endif
