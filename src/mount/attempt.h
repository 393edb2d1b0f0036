/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Mounting what a request names, with the versions and addresses that there are, by the kernel itself or by
 * mount.nfs. Only for the helper process: it may wait for as long as the kernel likes.
 */
#ifndef MOUNT_ATTEMPT_H
#define MOUNT_ATTEMPT_H

#include "mount/helper.h"
#include "mount/walk.h"

/*
 * Mounts HELPER_PATH at the target path, where it is seen from the namespace that the process is in: its own,
 * with w, or that which it came from, where w is NULL. Returns 0, or -1 with the reason in the reply.
 */
int mount_attempt(const struct helper_request *q, const struct walk *w, struct helper_reply *reply);

#endif
