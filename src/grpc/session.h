/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* nghttp2 set-up, and callbacks that pass its events to calls. Loop thread only. */
#ifndef GRPC_SESSION_H
#define GRPC_SESSION_H

#include "grpc/state.h"

/* Make the callbacks and options that all sessions share. Return 0 or -ENOMEM; caller deletes. */
int grpc_session_setup(nghttp2_session_callbacks **ret_callbacks, nghttp2_option **ret_options);

/* Make conn->session and submit SETTINGS. Return 0 or -ENOMEM. */
int grpc_session_new(struct grpc_conn *conn);

#endif
