/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Whether the server of a mount answers, by a NULL call as the mount options would have it. Blocks
 * for the limits of net/ping.h. Worker threads and the helper process.
 */
#ifndef MOUNT_REACH_H
#define MOUNT_REACH_H

#include "mount/options.h"
#include "net/ping.h"

/* The port of the NFS service. */
uint16_t mount_port_of(const struct mount_options *o);

/*
 * Asks one address with a version that is wanted. Returns 0, also where the options name a transport
 * that cannot be asked; -EPROTONOSUPPORT where the server answers and does not have that version, with
 * those that it has; or another negative errno.
 */
int mount_ping(const struct net_address *a, const struct mount_options *o, uint32_t *ret_low,
	       uint32_t *ret_high);

#endif
