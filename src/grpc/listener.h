/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The listening unix socket and its file. Loop thread only. */
#ifndef GRPC_LISTENER_H
#define GRPC_LISTENER_H

#include <sys/types.h>

#include "base/error.h"

struct grpc_listener {
	int fd; /* non-blocking; negative: not listening */
	char *path; /* the file that was bound, NULL: abstract */
	dev_t dev; /* of that file, so that nobody else's is removed */
	ino_t ino;
};

/* Contract and errors as grpc_server_listen(). The caller closes. */
int grpc_listener_open(struct grpc_listener *ret, const char *path, struct error *err);

/* Removes the file if it is still the one bound here, closes the socket. May be called again. */
void grpc_listener_close(struct grpc_listener *l);

#endif
