/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Replaces pthread_mutex_lock() in the test that includes this: a thread that waits for a lock
 * finds that another one has done something in the meantime.
 */
#ifndef MEANWHILE_H
#define MEANWHILE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

static void (*_Atomic meanwhile)(void); /* done once, before the next lock is taken; any thread */

int pthread_mutex_lock(pthread_mutex_t *lock)
{
	void (*other)(void) = atomic_exchange(&meanwhile, NULL);

	if (other != NULL)
		other();
	while (pthread_mutex_trylock(lock) != 0)
		(void)sched_yield();
	return 0;
}

#endif
