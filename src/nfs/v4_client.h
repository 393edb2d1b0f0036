/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The client id of a connection, with which a version 4 server lets it open files (RFC 7530,
 * section 9.1.1). Requested when first needed, and again if the server has lost it. A session has
 * one; there, RECLAIM_COMPLETE comes before the first OPEN (RFC 8881, section 18.51). Part of a
 * connection, on its thread; must stay in place.
 *
 *   state           v4_client_get()        reply                    v4_client_lost(id)
 *   none            SETCLIENTID, asked     -                        -
 *   none, session   RECLAIM_COMPLETE,      -                        -
 *                   asked
 *   asked           -                      CONFIRM, then ready;     -
 *                                          none if either fails
 *   asked, session  -                      ready; none if it fails  -
 *   ready           returns 1              -                        none, if id is current
 *   ready, session  returns 1              -                        -
 */
#ifndef NFS_V4_CLIENT_H
#define NFS_V4_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "nfs/connection.h"
#include "nfs/v4_name.h"

struct v4_client {
	uint64_t id; /* valid once v4_client_get() returns 1; 0: none */
	bool asked; /* the reply is outstanding */
	struct nfs_connection *conn;
	void (*answered)(struct v4_client *client, int error);
	char name[V4_NAME_MAX];
};

/* answered() is called once per request: 0 or a negative errno, also if the connection breaks. */
void v4_client_init(struct v4_client *client, struct nfs_connection *conn,
		    void (*answered)(struct v4_client *client, int error));

/* Returns 1 if id is valid, 0 if it was requested and answered() follows, or a negative errno. */
int v4_client_get(struct v4_client *client);

/* The server no longer knows id. May be called for several requests that used it. */
void v4_client_lost(struct v4_client *client, uint64_t id);

#endif
