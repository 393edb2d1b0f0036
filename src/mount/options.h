/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * NFS mount options as users write them: checked, the few that decide how to mount taken out, the
 * rest passed on to the kernel. Pure functions, any thread.
 */
#ifndef MOUNT_OPTIONS_H
#define MOUNT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define MOUNT_OPTIONS_MAX 4096 /* bytes; the kernel takes a page */

struct mount_options {
	unsigned int major; /* 3 or 4; 0: not given */
	int minor; /* of version 4; -1: not given */
	uint16_t port; /* 0: not given */
	bool no_lock; /* "nolock" is among rest */
	bool no_ping; /* rdma or udp: a TCP ping would tell nothing */
	char *rest; /* all but the version, comma-separated */
};

/*
 * Parses options. Refuses what would mount something else than NFS, or elsewhere, or run another
 * program: bind, move, remount, loop, propagation flags, helper=, and addresses of our finding.
 * Returns 0, -EINVAL with INVALID_ARGUMENT that names the option's key but never its value, or
 * -ENOMEM.
 */
int mount_options_parse(struct mount_options *ret, const char *text, struct error *err);

void mount_options_done(struct mount_options *o);
#define cleanup_mount_options __attribute__((cleanup(mount_options_done)))

#endif
