/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/reach.h"

#include <errno.h>

uint16_t mount_port_of(const struct mount_options *o)
{
	return o->port != 0 ? o->port : NET_NFS_PORT;
}

int mount_ping(const struct net_address *a, const struct mount_options *o, uint32_t *ret_low,
	       uint32_t *ret_high)
{
	uint16_t port;
	int r;

	if (o->no_ping)
		return 0;
	r = net_ping(a, mount_port_of(o), NET_NFS_PROGRAM, o->major == 3 ? 3 : 4, ret_low, ret_high);
	/* Without a port, version 3 asks rpcbind for it: the server may be elsewhere. */
	if (r == -ECONNREFUSED && o->major == 3 && o->port == 0 &&
	    net_portmap(a, NET_NFS_PROGRAM, 3, &port) == 0)
		return 0;
	return r;
}
