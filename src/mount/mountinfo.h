/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What is mounted at a path, from the kernel's own list. The path itself is never looked at: on a
 * dead server that would wait for ever. Only the directory above it is resolved, which is local.
 */
#ifndef MOUNT_MOUNTINFO_H
#define MOUNT_MOUNTINFO_H

#include "mount/mounter.h"

/*
 * The path as mountinfo has it: the directory above with all symbolic links resolved. Returns 0,
 * -ENOENT where that directory does not exist, or another negative errno. The caller frees.
 */
int mountinfo_resolve(const char *target, char **ret);

/*
 * Looks a resolved path up in a mountinfo file, normally /proc/self/mountinfo. *ret is NULL where
 * nothing is mounted. Returns 0 or a negative errno. The caller frees.
 */
int mountinfo_find(const char *file, const char *path, struct mount_info **ret);

#endif
