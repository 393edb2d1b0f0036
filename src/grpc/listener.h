/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The listening unix socket and its file. Loop thread only. */
#ifndef GRPC_LISTENER_H
#define GRPC_LISTENER_H

#include <sys/types.h>

#include "base/error.h"

struct grpc_listener {
	int fd; /* non-blocking; negative: not listening */
	char *path; /* socket file that is ours to remove; NULL: abstract, or not ours */
	dev_t dev; /* with ino, identifies the file, so that no other one is removed */
	ino_t ino;
};

/*
 * Open the socket, see grpc_server_listen(). Wait up to two seconds for a process that serves it to
 * end. The caller closes the listener.
 */
int grpc_listener_open(struct grpc_listener *ret, const char *path, struct error *err);

/*
 * Take a socket that listens already, and leave its file alone. It becomes non-blocking, also for
 * the process that made it. Takes fd, on failure too. Return 0 or a negative errno.
 */
int grpc_listener_adopt(struct grpc_listener *ret, int fd, struct error *err);

/* Remove the file if it is still ours, and close the socket. May be called again. */
void grpc_listener_close(struct grpc_listener *l);

#endif
