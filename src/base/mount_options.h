/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * NFS mount options as users write them, comma-separated. The controller, which mounts nothing,
 * nodes and csi-nfs check all parse them here. The last option of a kind wins, as in mount(8).
 * Options may be secret: a message names an option's key but never its value. Pure functions, any
 * thread.
 */
#ifndef BASE_MOUNT_OPTIONS_H
#define BASE_MOUNT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

#define MOUNT_OPTIONS_MAX 4096 /* bytes; the kernel accepts one page */

struct mount_options {
	unsigned int major; /* 3 or 4; 0: not given */
	int minor; /* of version 4, by whichever option names it last; -1: not given */
	uint16_t port; /* 0: not given, or an RDMA port in mount_options_read() */
	uint16_t mount_port; /* mount_options_read() only; 0: not given */
	char *sec; /* security flavor; NULL: not given */
	bool rdma; /* nodes use RDMA */
	/* mount_options_parse() only: */
	bool read_only, no_suid, no_dev;
	bool no_lock; /* rest has "nolock" */
	bool no_ping; /* rdma or udp: a TCP ping tells nothing */
	unsigned int family; /* of addresses that the transport allows: 4, 6 or, for both, 0 */
	char *rest; /* all but the version, comma-separated */
};

/*
 * Read how to reach the server by TCP: version, port, mountport and sec. The caller initializes o;
 * fields that text does not name stay as they are. With RDMA, in this text or an earlier one, port
 * becomes 0: the option names the port for RDMA, and the server has another one for TCP. All other
 * options are skipped, also those that nodes refuse. text may be NULL. Returns 0; -EINVAL with
 * INVALID_ARGUMENT; or -ENOMEM. The caller calls mount_options_done() in each case.
 */
int mount_options_read(struct mount_options *o, const char *text, struct error *err);

/*
 * Parse the options of a mount. Refuse those that mount something other than NFS, or elsewhere, or
 * run another program (bind, move, remount, loop, propagation flags, helper=), and the addresses
 * that we resolve ourselves. Refuse quotation marks but for SELinux contexts, and backslashes:
 * libmount takes a comma in quotes as text, and drops all that follows a quotation mark without
 * another one, including what is appended here, such as nosuid. Returns 0, -EINVAL with
 * INVALID_ARGUMENT, or -ENOMEM.
 */
int mount_options_parse(struct mount_options *ret, const char *text, struct error *err);

void mount_options_done(struct mount_options *o);
#define cleanup_mount_options __attribute__((cleanup(mount_options_done)))

/* Check that nodes would accept the options, which may be NULL. Errors as mount_options_parse(). */
int mount_options_check(const char *text, struct error *err);

/*
 * Look for an option with one of these keys, which end with NULL; a key that ends in '-' stands for
 * all that begin with it. *ret is the key of the first one, or NULL if there is none. text may be
 * NULL. Returns 0 or -ENOMEM.
 */
int mount_options_find(const char *text, const char *const *keys, const char **ret);

/* Append options, which may be NULL or empty, to a list. Returns 0 or -ENOMEM. */
int mount_options_append(struct buf *list, const char *options);

#endif
