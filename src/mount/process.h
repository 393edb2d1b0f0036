/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Running a helper process with a deadline: a request on its stdin, a reply of fixed size from its
 * stdout, what it says on stderr. Past the deadline its whole process group gets SIGKILL. A
 * process that the kernel does not let die yet is not waited for: it is reaped by a later call.
 */
#ifndef MOUNT_PROCESS_H
#define MOUNT_PROCESS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_LINGERING_MAX 256
#define PROCESS_LOG_SIZE 512

/* Processes that were killed and had not ended when that was last looked at. */
struct process_reaper {
	pthread_mutex_t lock; /* guards the list; innermost */
	pid_t lingering[PROCESS_LINGERING_MAX];
	size_t n;
};

struct process {
	const char *path; /* program, called with argument as its only one */
	const char *argument;
	const void *request;
	size_t request_len; /* at most what a pipe takes at once, 64 KiB */
	void *reply;
	size_t reply_len;
	char log[PROCESS_LOG_SIZE]; /* beginning of its stderr, terminated */
};

void process_reaper_init(struct process_reaper *reaper);
void process_reaper_done(struct process_reaper *reaper);

/*
 * Runs the process to its reply. Returns 0, -ETIMEDOUT (it was killed), -EPROTO (it ended without a
 * whole reply), -EAGAIN (too many are lingering), or another negative errno (it was not started).
 */
int process_run(struct process_reaper *reaper, struct process *p, uint64_t deadline_ns);

#endif
