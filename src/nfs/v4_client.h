/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The client id of a connection, which a version 4 server wants to know of whoever opens files
 * (RFC 7530, section 9.1.1). It is asked for when it is first needed, and anew once it was lost.
 *
 * Belongs to a connection, on its thread; must stay in place.
 */
#ifndef NFS_V4_CLIENT_H
#define NFS_V4_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "nfs/connection.h"

#define V4_CLIENT_NAME_MAX 192

struct v4_client {
	uint64_t id; /* valid once v4_client_get() returns 1; 0: none */
	bool asked; /* the answer is not there yet */
	struct nfs_connection *conn;
	void (*answered)(struct v4_client *client, int error);
	char name[V4_CLIENT_NAME_MAX];
};

/* answered() tells once what came of asking: 0 or a negative errno, also when the connection breaks. */
void v4_client_init(struct v4_client *client, struct nfs_connection *conn,
		    void (*answered)(struct v4_client *client, int error));

/* 1: there is one. 0: it is being asked for, answered() tells. Or a negative errno. */
int v4_client_get(struct v4_client *client);

/* The server no longer knows id. Those that were sent meanwhile will all be told so. */
void v4_client_lost(struct v4_client *client, uint64_t id);

#endif
