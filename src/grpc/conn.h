/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A client connection: a socket and the HTTP/2 session on it. Its states are in state.h. Never
 * close an idle connection or send it a GOAWAY: sidecars exit when they lose theirs. Loop thread
 * only.
 */
#ifndef GRPC_CONN_H
#define GRPC_CONN_H

#include "grpc/state.h"

/* Serve fd and send SETTINGS. Takes fd, on failure too. Return 0 or a negative errno. */
int grpc_conn_new(struct grpc_server *s, int fd);

/*
 * Send what nghttp2 has queued, as far as the socket takes it, and poll for the next event. Close
 * and free the connection if it has failed or is finished. Call it after submitting anything to the
 * session, but never from an nghttp2 callback.
 */
void grpc_conn_flush(struct grpc_conn *conn);

/* Mark the connection as failed, for the next flush to close. why is for the debug log. */
void grpc_conn_fail(struct grpc_conn *conn, const char *why);

/* Answer every open call UNAVAILABLE, as far as the socket takes the answers now, and close. */
void grpc_conn_abort(struct grpc_conn *conn);

/* Start a graceful close: a GOAWAY now, the final one a round trip later. May close. */
void grpc_conn_drain(struct grpc_conn *conn);

/* Note that a frame has arrived; pong: it answers our PING. For nghttp2 callbacks. */
void grpc_conn_on_frame(struct grpc_conn *conn, bool pong);

/* Act on deadlines that have passed. Return when to check again, or GRPC_NEVER. May close. */
uint64_t grpc_conn_check(struct grpc_conn *conn, uint64_t now_ns);

#endif
