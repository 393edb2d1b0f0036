/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Inline ephemeral volumes. The pod itself names server, share and subDir, so anybody who may
 * create a pod could mount anything: only what the administrator has listed is allowed. Pure
 * functions, any thread.
 */
#ifndef NODE_INLINE_H
#define NODE_INLINE_H

#include <stdbool.h>

#include "base/error.h"
#include "csi/map.h"

/* Appended to the mount options of an inline volume, so that a pod cannot override them. */
#define NODE_INLINE_OPTIONS "nosuid,nodev"

/*
 * Look in a pod's mount options, which may be NULL, for one that would lead to another service of a
 * host than its NFS service, which may be anybody's. *ret is its key in static storage, NULL if
 * there is none. Returns 0 or -ENOMEM.
 */
int node_inline_find_refused(const char *options, const char **ret);

/*
 * Check a list "server:/path[,server:/path]...", with brackets around an IPv6 address. Returns 0,
 * or -EINVAL with INVALID_ARGUMENT.
 */
int node_inline_list_check(const char *list, struct error *err);

/*
 * Whether the volume is inline. kubelet sets an attribute that says so, but only if the CSIDriver
 * object has podInfoOnMount; the form of the volume id, which kubelet chooses, always shows it.
 */
bool node_inline_is_asked(const char *volume_id, const struct csi_map *context);

/*
 * Find the entry of the list that is the path on that server, or a directory above it, and return
 * its path. If several match, the outermost one is returned: a pod that may mount that one may have
 * written everything below it. *ret is NULL if none matches or list is NULL. Returns 0 or -ENOMEM.
 * The caller frees.
 */
int node_inline_top(const char *list, const char *server, const char *path, char **ret);

#endif
