/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Inline ephemeral volumes: a pod names server, share and subDir itself, so whoever may create a pod
 * may mount what the list of the administrator holds, and nothing else. Pure functions, any thread.
 */
#ifndef NODE_INLINE_H
#define NODE_INLINE_H

#include <stdbool.h>

#include "base/error.h"
#include "csi/map.h"

/* What is added to the mount options of such a volume: a pod may not choose these. */
#define INLINE_OPTIONS "nosuid,nodev"

/* "server:/path[,server:/path]...", an IPv6 address in brackets. 0, or -EINVAL with INVALID_ARGUMENT. */
int inline_list_check(const char *list, struct error *err);

/*
 * Whether the volume is one: kubelet says so in the attributes, but only where the CSIDriver object has
 * podInfoOnMount, and always gives it an id of its own making.
 */
bool inline_is_asked(const char *volume_id, const struct csi_map *context);

/*
 * The path of the list's entry that has the path on that server, or a directory above it: of several the
 * outermost one, since a pod that may mount that one may have written all below it. *ret is NULL where
 * none has, as with a list that is NULL. Returns 0 or -ENOMEM. The caller frees.
 */
int inline_top(const char *list, const char *server, const char *path, char **ret);

#endif
