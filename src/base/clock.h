/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Monotonic time in nanoseconds, for deadlines. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_MS UINT64_C(1000000)
#define CLOCK_NS_PER_S UINT64_C(1000000000)

static inline uint64_t clock_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail for this clock */
	return (uint64_t)ts.tv_sec * CLOCK_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Sleep for less than a second. May return early on a signal: for delays between retries only. */
static inline void clock_sleep_ms(unsigned int ms)
{
	const struct timespec ts = { .tv_nsec = (long)(ms * CLOCK_NS_PER_MS) };

	(void)nanosleep(&ts, NULL);
}

/* Return the milliseconds until the deadline, rounded up for poll(); 0 once it has passed. */
static inline int clock_left_ms(uint64_t deadline_ns)
{
	uint64_t now = clock_now_ns();
	uint64_t left;

	if (deadline_ns <= now)
		return 0;
	left = (deadline_ns - now + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS;
	return left > INT32_MAX ? INT32_MAX : (int)left;
}

#endif
