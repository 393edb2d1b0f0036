/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Mount what a request names: try its versions and addresses in turn, through the kernel alone or
 * through mount.nfs. Only for the helper process: it may wait for as long as the kernel likes.
 */
#ifndef MOUNT_ATTEMPT_H
#define MOUNT_ATTEMPT_H

#include "mount/frame.h"
#include "mount/walk.h"

/*
 * Mount the top of the request at its target path, in the current mount namespace: the private one
 * of w, or that of the driver if w is NULL. Returns 0, or -1 with the reason in the reply.
 */
int mount_attempt(const struct mount_frame *frame, const struct mount_walk *w,
		  struct mount_reply *reply);

#endif
