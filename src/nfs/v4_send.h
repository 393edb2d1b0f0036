/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Sending compounds, with a session or without. Internal to version 4. */
#ifndef NFS_V4_SEND_H
#define NFS_V4_SEND_H

#include "nfs/v4_compound.h"

/*
 * Queue the compound, in a session if the connection has one. The results are a COMPOUND4res and
 * those of its operations, in their order, up to the first that failed; in a session, that of
 * SEQUENCE comes first. A reply with others, or that cannot be read, breaks the connection and is
 * -EBADMSG. Errors as net_rpc_call().
 */
int v4_send(struct nfs_connection *conn, struct v4_compound *c, net_rpc_replied *replied,
	    void *data);

#endif
