/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Turn a helper's reply to a mount or a compare into an error. Pure functions, any thread.
 */
#ifndef MOUNT_ANSWER_H
#define MOUNT_ANSWER_H

#include "mount/call.h"

/* Names for messages: "server:/path". */
struct mount_sources {
	char *whole; /* the volume */
	char *top; /* the path that the server is asked for */
};

/* Set the error for a server that was not reached; e: positive errno. Returns a negative errno. */
int mount_reach_error(const struct mount_request *request, int e, struct error *err);

/* As above, for a reply that is a failure, with a code of mounter_ops.mount. */
int mount_reply_error(const struct mount_request *request, const struct mount_sources *sources,
		      const struct mount_answer *answer, struct error *err);

#endif
