/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Which volume is published where on this node, for the access mode SINGLE_NODE_SINGLE_WRITER: mountinfo
 * tells what is mounted, but not as which volume, and several volumes may be one directory. One
 * file for each target path, in a folder that outlives the driver and not the node (its mounts end with
 * it): written before the mount and removed after the unmount. A file without a mount is of a call that
 * was cut off, and counts for nothing. Any thread; files are local.
 */
#ifndef NODE_PUBLISHED_H
#define NODE_PUBLISHED_H

#include <stdbool.h>

#include "base/error.h"
#include "mount/mounter.h"

struct publications;

/* folder is made where it is missing, when it is first needed; borrowed. 0 or -ENOMEM. */
int publications_new(struct publications **ret, const char *folder);
void publications_free(struct publications *p);

/*
 * Notes that volume is to be published at target, to it alone where exclusive. Errors: FAILED_PRECONDITION
 * where it is mounted at another target, and this publication or that one is exclusive; or where an
 * exclusive one cannot be noted. Others are published without a note where the folder cannot be written,
 * and the log says so.
 */
int publications_add(struct publications *p, struct mounter *m, const char *volume,
		     const char *target, bool exclusive, struct error *err);

/* Nothing is mounted at target any more. */
void publications_remove(struct publications *p, const char *target);

#endif
