/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* What nghttp2 is told once for all sessions, and its events handed to calls. Loop thread only. */
#ifndef GRPC_SESSION_H
#define GRPC_SESSION_H

#include "grpc/state.h"

/* Makes what the sessions of a server share. Returns 0 or -ENOMEM; the caller deletes both. */
int grpc_session_setup(nghttp2_session_callbacks **ret_callbacks, nghttp2_option **ret_options);

/* Makes conn->session and submits SETTINGS. Returns 0 or -ENOMEM. */
int grpc_session_new(struct grpc_conn *conn);

#endif
