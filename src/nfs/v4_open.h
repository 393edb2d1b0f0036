/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Creation of files over version 4. In a session, one compound opens, creates and closes, and
 * writes the data and sets the attributes of a small file: nfs_op.whole. Where that fails, the
 * caller does it again, and gets the error if it stays. Version 4.0 takes OPEN, OPEN_CONFIRM if the
 * server asks for it, and CLOSE, with a client id and with open-owners, whose requests must come
 * one at a time (RFC 7530, section 9.1.7): a connection has several, and creations wait here for a
 * free one. Both are made when first needed. The lease is never renewed: it only matters between
 * OPEN and CLOSE, and if it is lost, we request another client id.
 *
 * Part of a connection, on its thread.
 *
 *   a creation   event                              next
 *   WAITING      an owner is free                   OPENING: OPEN sent
 *   OPENING      OK, but no handle                  done with an error; the owner is discarded
 *                OK, the server wants a confirm     CONFIRMING: OPEN_CONFIRM sent
 *                OK, closed in a session            done, created
 *                OK                                 CLOSING: CLOSE sent
 *                STALE_CLIENTID, EXPIRED            WAITING, first, with a new client id
 *                BAD_SEQID                          WAITING, first, with a new owner
 *                another error, or TRIES_MAX        done with the error
 *   CONFIRMING   OK                                 CLOSING: CLOSE sent
 *                an error of the server             done, created; the owner is discarded
 *   CLOSING      OK                                 done, created
 *                an error of the server             done, created; the owner is discarded
 *   any          an RPC error                       done with the error; the owner is discarded
 */
#ifndef NFS_V4_OPEN_H
#define NFS_V4_OPEN_H

#include "nfs/connection.h"

/* Start op, an NFS_OP_CREATE. Copies its dir and name. Returns 0 or a negative errno. */
int v4_open_start(struct nfs_connection *conn, struct nfs_op *op);

/* The connection is gone: end the waiting creations with failure, and free everything. */
void v4_open_broken(struct nfs_connection *conn, int failure);

#endif
