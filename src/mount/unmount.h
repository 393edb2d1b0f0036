/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Unmount an NFS mount, on a dead server too. Worker threads; blocks for its deadlines. */
#ifndef MOUNT_UNMOUNT_H
#define MOUNT_UNMOUNT_H

#include "mount/call.h"
#include "net/breaker.h"

/* mounter_ops.unmount. servers limits the calls at work on one server. */
int mount_unmount(struct mount_caller *caller, struct net_breaker *servers, const char *target,
		  struct error *err);

#endif
