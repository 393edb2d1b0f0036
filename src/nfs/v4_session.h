/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Sessions of NFSv4.1 and 4.2 (RFC 8881, section 2.10). Each compound occupies a slot from its
 * sending to its reply. The server keeps the last reply of each slot, so a change (MKDIR, RENAME,
 * REMOVE ...) whose reply was lost with the connection is sent again on a new one, with the same
 * slot and number, and gets its first answer.
 *
 *   session   event                                      next
 *   (none)    v4_session_open(), each answer OK          UP
 *   UP        a compound, and a slot is free             UP, it is in flight
 *   UP        a compound, and no slot is free            UP, it waits
 *   UP        the server no longer has the session       LOST, the connection is to be broken
 *   UP        a restart of the server in the flags       STALE: UP, but not for a later call
 *   UP        the connection is gone, -ECONNABORTED      ENDED; changes in flight are sent again,
 *                                                        and again while the server says
 *                                                        DELAY; everything else fails
 *   any       the connection is gone otherwise, or was   ENDED, everything fails
 *             aborted
 *
 * A connection has one session, and the session one connection: each with its own client id, so
 * that neither replicas nor restarts share state. The lease is not renewed: a client that is idle
 * for longer is not used again (nfs_client_is_usable()). Part of a connection, on its thread.
 */
#ifndef NFS_V4_SESSION_H
#define NFS_V4_SESSION_H

#include "nfs/v4_compound.h"

struct v4_session;

/*
 * Open a session for the minor version and set conn->session. Blocks for the time that
 * nfs_connection_deadline() gives. Returns 0; -EPROTONOSUPPORT if the server does not have the
 * minor version, or its limits are too low, which sets err; or another negative errno. On failure
 * the server keeps nothing.
 */
int v4_session_open(struct nfs_connection *conn, unsigned int minor, struct error *err);

/* See v4_send(). */
int v4_session_send(struct v4_session *s, struct v4_compound *c, net_rpc_replied *replied,
		    void *data);

/* The server has taken RECLAIM_COMPLETE. Returns the client id, for OPEN. */
uint64_t v4_session_opens(struct v4_session *s);

/* Lower read_max and write_max of the client to what fits into a message of the session. */
void v4_session_cap(const struct v4_session *s);

/* Bytes of data that fit into a request beside what every call has. */
uint32_t v4_session_room(const struct v4_session *s);

/* Check that an idle session may still be used: the server keeps it until the lease ends. */
bool v4_session_is_fresh(const struct v4_session *s);

/*
 * Tell the server that nothing more follows. Waits for V4_SESSION_LEAVE_MS at most; a server that
 * does not hear it forgets the session when the lease ends.
 */
#define V4_SESSION_LEAVE_MS 250
void v4_session_leave(struct v4_session *s);

/* The connection is gone: settle what was in flight, then free the session. */
void v4_session_broken(struct nfs_connection *conn, int failure);

#endif
