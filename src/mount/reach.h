/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Ask the server of a mount whether it answers, by a NULL call over the transport and port that the
 * mount options name. Blocks within the limits of net/ping.h. Worker threads and the helper
 * process.
 */
#ifndef MOUNT_REACH_H
#define MOUNT_REACH_H

#include <stdbool.h>

#include "base/mount_options.h"
#include "net/ping.h"

/*
 * Look up the addresses of a server. If the options name a transport of IPv4 or of IPv6, leave out
 * addresses of the other one, unless there are no others. Returns 0 or an error of net_resolve().
 */
int mount_resolve(const char *server, const struct mount_options *o, struct net_address *ret,
		  size_t *ret_n, struct error *err);

/* The port of the NFS service. */
uint16_t mount_port_of(const struct mount_options *o);

/*
 * Ask one address, with a version that the options allow. Returns 0, also for a transport that
 * cannot be pinged; -EPROTONOSUPPORT, with the versions that the server has, if it answers but does
 * not have this one; or another negative errno.
 */
int mount_ping(const struct net_address *a, const struct mount_options *o, uint32_t *ret_low,
	       uint32_t *ret_high);

/*
 * Whether that error means that nobody answers there. The others are answers, such as -EACCES, or
 * say nothing about the server, such as those for want of memory or ports.
 */
bool mount_is_silence(int error);

#endif
