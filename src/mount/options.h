/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * NFS mount options as users write them: check them, extract the few that decide how to mount, and
 * pass the rest on to the kernel. Pure functions, any thread.
 */
#ifndef MOUNT_OPTIONS_H
#define MOUNT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define MOUNT_OPTIONS_MAX 4096 /* bytes; the kernel accepts one page */

struct mount_options {
	unsigned int major; /* 3 or 4; 0: not given */
	int minor; /* of version 4; -1: not given */
	uint16_t port; /* 0: not given */
	bool no_lock; /* rest has "nolock" */
	bool no_ping; /* rdma or udp: a TCP ping tells nothing */
	char *rest; /* all but the version, comma-separated */
};

/*
 * Parse options. Refuse those that mount something other than NFS, or elsewhere, or run another
 * program (bind, move, remount, loop, propagation flags, helper=), and the addresses that we
 * resolve ourselves. Returns 0; -EINVAL with INVALID_ARGUMENT, which names the option's key but
 * never its value; or -ENOMEM.
 */
int mount_options_parse(struct mount_options *ret, const char *text, struct error *err);

void mount_options_done(struct mount_options *o);
#define cleanup_mount_options __attribute__((cleanup(mount_options_done)))

/* Check mount options without mounting. Returns 0, or -EINVAL with INVALID_ARGUMENT. Any thread. */
int mount_options_check(const char *options, struct error *err);

#endif
