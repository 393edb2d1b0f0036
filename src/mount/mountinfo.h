/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Find what is mounted at a path in the kernel's own list. The path itself is never opened, since
 * that hangs on a dead server. Only the directory above it is resolved, which is local. The list is
 * read again if it has changed meanwhile. If it cannot be read to its end (ENAMETOOLONG), statx()
 * tells whether what was read is enough, without asking the server. Any thread.
 */
#ifndef MOUNT_MOUNTINFO_H
#define MOUNT_MOUNTINFO_H

#include "mount/request.h"
#include "net/address.h"

/*
 * Resolve all symbolic links in the directory above target, as in mountinfo. Returns 0, -ENOENT if
 * that directory does not exist, or another negative errno. The caller frees.
 */
int mountinfo_resolve(const char *target, char **ret);

/* As mountinfo_resolve(), with ABORTED for every error but -ENOENT. */
int mountinfo_resolve_target(const char *target, char **ret, struct error *err);

/*
 * Look up a resolved path in a mountinfo file. *ret is NULL if nothing is mounted there. Returns 0
 * or a negative errno. The caller frees.
 */
int mountinfo_find(const char *file, const char *path, struct mount_info **ret);

/* As mountinfo_find(), in the list of this process. Errors: ABORTED. */
int mountinfo_find_mounted(const char *path, struct mount_info **ret, struct error *err);

/* The server of a mount: its address, or its name if mountinfo does not show the address. */
void mount_info_server(const struct mount_info *info, char server[NET_SERVER_MAX + 1]);

#endif
