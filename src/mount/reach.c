/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/reach.h"

#include <errno.h>

int mount_resolve(const char *server, const struct mount_options *o, struct net_address *ret,
		  size_t *ret_n, struct error *err)
{
	const sa_family_t family = o->family == 6 ? AF_INET6 : AF_INET;
	size_t n = 0, i;
	int r;

	r = net_resolve(server, ret, ret_n, err);
	if (r < 0 || o->family == 0)
		return r;
	for (i = 0; i < *ret_n; i++)
		if (ret[i].addr.ss_family == family)
			ret[n++] = ret[i];
	if (n > 0)
		*ret_n = n;
	return 0;
}

uint16_t mount_port_of(const struct mount_options *o)
{
	return o->port != 0 ? o->port : NET_NFS_PORT;
}

int mount_ping(const struct net_address *a, const struct mount_options *o, uint32_t *ret_low,
	       uint32_t *ret_high)
{
	const uint32_t version = o->major == 3 ? 3 : 4;
	uint16_t port;
	int r;

	if (o->no_ping)
		return 0;
	r = net_ping(a, mount_port_of(o), NET_NFS_PROGRAM, version, ret_low, ret_high);
	/* Without a port option, NFSv3 gets the port from rpcbind: it may be another one. */
	if (r == -ECONNREFUSED && o->major == 3 && o->port == 0 &&
	    net_portmap(a, NET_NFS_PROGRAM, 3, &port) == 0)
		return 0;
	return r;
}

bool mount_is_silence(int error)
{
	return error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -ENETUNREACH ||
	       error == -ECONNREFUSED;
}
