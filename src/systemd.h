/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What a service manager passes to a service that it starts: a listening socket
 * (sd_listen_fds(3)) and the address of a datagram socket that hears when the service is ready
 * (sd_notify(3)). Both are a few environment variables, which is all that this module reads.
 *
 * One thread, before there are others; notifications come from the loop thread.
 */
#ifndef SYSTEMD_H
#define SYSTEMD_H

#include "base/error.h"

struct systemd {
	int socket; /* negative: none was passed. Take it with steal_fd() */
	char *holder; /* path for store_holder_init(); NULL: take that of the socket */
	char *notify; /* address for notifications, '@' first: abstract; NULL: none */
};

/*
 * Read the variables, and remove them from the environment so that no child takes them for its own.
 * Makes a passed descriptor close-on-exec; whether it is a socket that can be served is for
 * grpc_endpoint_of_socket() to say. Variables for another process (LISTEN_PID) count as not set.
 * Return 0, -ENOMEM, or a negative errno with INVALID_ARGUMENT: malformed variables, a descriptor
 * that is not open, more than one. On failure, ret holds nothing.
 */
int systemd_init(struct systemd *ret, struct error *err);

/*
 * Tell the service manager, for example "READY=1". Without one, do nothing. Waits at most a second.
 * Return 0 or a negative errno.
 */
int systemd_notify(const struct systemd *s, const char *state);

/* Close the socket if nobody took it, and forget the rest. */
void systemd_done(struct systemd *s);

#endif
