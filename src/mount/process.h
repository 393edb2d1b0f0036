/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Run a helper process with a time limit: a request on its stdin, a reply of fixed size from its
 * stdout, diagnostics on its stderr. At the limit its whole process group gets SIGKILL. A group
 * that does not die at once, because a system call holds it in the kernel, is left lingering: a
 * later call or sweep reaps it. Any thread.
 *
 * Time in which the process is runnable does not count towards the limit: on a node that starts
 * many pods it may wait for a processor for seconds, which says nothing about a server.
 */
#ifndef MOUNT_PROCESS_H
#define MOUNT_PROCESS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MOUNT_LINGERING_MAX 256
#define MOUNT_LOG_SIZE 512
#define MOUNT_STARVED_MS 7500 /* longest time that does not count */

/* Process groups that were killed and had not yet died when last looked at, by their leaders. */
struct mount_reaper {
	pthread_mutex_t lock; /* guards the list; innermost */
	pid_t lingering[MOUNT_LINGERING_MAX];
	size_t n;
};

struct mount_process {
	const char *path; /* of the program */
	const char *argument; /* its only one */
	const void *request;
	size_t request_len; /* at most 64 KiB, which a pipe takes without a reader */
	void *reply;
	size_t reply_len;
	char log[MOUNT_LOG_SIZE]; /* beginning of its stderr, terminated */
};

void mount_reaper_init(struct mount_reaper *reaper);
void mount_reaper_done(struct mount_reaper *reaper);

/* Reap what has ended since it was killed. */
void mount_reaper_sweep(struct mount_reaper *reaper);

/*
 * Run the process until it has replied, for ms milliseconds as counted above. Returns 0; -ETIMEDOUT
 * if it was killed; -EPROTO if it ended without a whole reply; -EAGAIN if too many processes
 * linger; or another negative errno if it was not started.
 */
int mount_process_run(struct mount_reaper *reaper, struct mount_process *p, unsigned int ms);

#endif
