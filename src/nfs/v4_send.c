/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_send.h"

#include <errno.h>

#include "nfs/v4_session.h"

int v4_send(struct nfs_connection *conn, struct v4_compound *c, net_rpc_replied *replied,
	    void *data)
{
	struct v4_message message = { .compound = c };

	if (conn->rpc == NULL)
		return -ECONNABORTED;
	if (conn->session != NULL)
		return v4_session_send(conn->session, c, replied, data);
	return net_rpc_call(conn->rpc, &v4_procedure, &message, replied, data);
}
