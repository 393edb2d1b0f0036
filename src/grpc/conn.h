/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One client: a socket and the HTTP/2 session on it. An idle connection is never closed and never
 * sent a GOAWAY, because sidecars exit when they lose theirs. Loop thread only.
 */
#ifndef GRPC_CONN_H
#define GRPC_CONN_H

#include "grpc/state.h"

/* Begins to serve fd, which it takes, and sends SETTINGS. Returns 0 or a negative errno. */
int grpc_conn_new(struct grpc_server *s, int fd);

/*
 * Sends what nghttp2 has to say, as far as the socket takes it, and waits for what comes next.
 * Closes and frees the connection where it has failed or is finished. Call it after anything was
 * submitted to the session, never from within a callback of nghttp2.
 */
void grpc_conn_flush(struct grpc_conn *conn);

/* Closes at once: calls that are running are told that they are cancelled. Not within nghttp2. */
void grpc_conn_close(struct grpc_conn *conn);

/* Answers every open call UNAVAILABLE, as far as the socket takes it now, and closes. */
void grpc_conn_abort(struct grpc_conn *conn);

/* Begins to close gracefully: GOAWAY now, the final one a round trip later. May close. */
void grpc_conn_drain(struct grpc_conn *conn);

/* The client has answered a PING. Within nghttp2. */
void grpc_conn_on_pong(struct grpc_conn *conn);

/* Acts on what is due. Returns when it wants to be called next, or GRPC_NEVER. May close. */
uint64_t grpc_conn_check(struct grpc_conn *conn, uint64_t now_ns);

#endif
