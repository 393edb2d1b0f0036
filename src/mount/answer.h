/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What a helper's reply to "mount" or "compare" means in words and as an error code. Pure functions, any
 * thread.
 */
#ifndef MOUNT_ANSWER_H
#define MOUNT_ANSWER_H

#include "mount/helper.h"

/* What is mounted, in words: "server:/path". */
struct mount_sources {
	char *whole;
	char *top; /* what the server was asked for */
};

/* A server that was not reached, by this errno. Returns a negative errno with UNAVAILABLE. */
int mount_reach_error(const struct mount_request *q, const char *address, int e, struct error *err);

/*
 * A reply that is a failure. log is what the helper wrote to stderr. Returns a negative errno with one of
 * the codes of mounter_ops.mount.
 */
int mount_reply_error(const struct mount_request *q, const struct mount_sources *s,
		      const struct helper_reply *reply, const char *log, struct error *err);

#endif
