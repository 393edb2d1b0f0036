/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/timeout.h"

#include <errno.h>

#include "base/clock.h"

#define DIGITS_MAX 8

/* Return the nanoseconds in a unit, 0 for an unknown unit. */
static uint64_t unit_ns(char unit)
{
	switch (unit) {
	case 'H':
		return 3600 * CLOCK_NS_PER_S;
	case 'M':
		return 60 * CLOCK_NS_PER_S;
	case 'S':
		return CLOCK_NS_PER_S;
	case 'm':
		return CLOCK_NS_PER_MS;
	case 'u':
		return 1000;
	case 'n':
		return 1;
	default:
		return 0;
	}
}

int grpc_timeout_parse(const char *s, size_t len, uint64_t *ret_ns)
{
	uint64_t value = 0;
	uint64_t unit;
	size_t i;

	if (len < 2 || len > DIGITS_MAX + 1)
		return -EINVAL;
	for (i = 0; i < len - 1; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		value = value * 10 + (uint64_t)(s[i] - '0');
	}
	unit = unit_ns(s[len - 1]);
	if (unit == 0)
		return -EINVAL;
	*ret_ns = value > UINT64_MAX / unit ? UINT64_MAX : value * unit;
	return 0;
}

uint64_t grpc_timeout_deadline(uint64_t now_ns, uint64_t timeout_ns)
{
	uint64_t deadline;

	if (__builtin_add_overflow(now_ns, timeout_ns, &deadline))
		return UINT64_MAX;
	return deadline > 0 ? deadline : 1;
}
