/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Send a request to a helper process and get its answer. Worker threads; blocks for its timeout. */
#ifndef MOUNT_CALL_H
#define MOUNT_CALL_H

#include "mount/frame.h"
#include "mount/process.h"

/* The callers of one mounter share it. */
struct mount_caller {
	const char *helper; /* program to run, borrowed */
	struct mount_reaper reaper;
};

struct mount_answer {
	struct mount_reply reply; /* only after success */
	char log[MOUNT_LOG_SIZE]; /* beginning of the helper's stderr, terminated */
};

/*
 * Run a request in a helper. Returns 0 once the helper has replied, also if the reply is a failure;
 * an error of mount_process_run(); -EPROTO also for a malformed reply; -ENAMETOOLONG or -ENOMEM.
 */
int mount_call(struct mount_caller *caller, enum mount_operation operation,
	       const struct mount_request *request, unsigned int ms, struct mount_answer *answer);

/*
 * Set the error for a mount_call() that returned r < 0; what: "mounting". Returns a negative errno.
 */
int mount_call_error(const char *what, int r, const struct mount_answer *answer, struct error *err);

#endif
