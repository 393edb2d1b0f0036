/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Creates files over NFSv4.0, where nothing but OPEN does: OPEN, OPEN_CONFIRM where the server asks
 * for it, CLOSE. That needs a client id, and owners whose requests the server wants one by one
 * (RFC 7530, section 9.1.7): a connection has several, and what they cannot take on waits here.
 * Both are made when they are first needed. A lease is never renewed: it only matters between an
 * OPEN and its CLOSE, and who has lost it asks for another client id.
 *
 * Belongs to a connection, on its thread.
 */
#ifndef NFS_V4_OPEN_H
#define NFS_V4_OPEN_H

#include "nfs/connection.h"

/* Starts op, an NFS_OP_CREATE. Copies what its pointers point to. 0 or a negative errno. */
int v4_open_start(struct nfs_connection *conn, struct nfs_op *op);

/* The connection is gone: ends what still waits with failure, and frees everything. */
void v4_open_broken(struct nfs_connection *conn, int failure);

#endif
