/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What driver and helper say to each other. Both are the same program, so the reply is a plain
 * structure; the request is the list of its fields as terminated strings.
 */
#ifndef MOUNT_HELPER_H
#define MOUNT_HELPER_H

#include <stdint.h>

#include "mount/mounter.h"

/* The fields of a request, in this order. Those that an operation does not use are empty. */
enum helper_field {
	HELPER_OPERATION, /* "mount", "compare", "umount", "verify" or "statvfs" */
	HELPER_DRIVER, /* process id of the driver, decimal */
	HELPER_TARGET,
	HELPER_FLAGS, /* umount: umount2() flags, decimal */
	HELPER_SERVER,
	HELPER_PATH, /* what the server is asked for */
	HELPER_BELOW, /* and what of it is mounted: walked without following links; "": all of it */
	HELPER_OPTIONS,
	HELPER_READ_ONLY, /* "1" or "" */
	HELPER_MODE, /* octal */
	HELPER_FIELDS,
};

#define HELPER_REQUEST_MAX 32768

/* A request as the helper has read it. */
struct helper_request {
	char data[HELPER_REQUEST_MAX];
	const char *fields[HELPER_FIELDS];
};

/* Where a mount failed. */
enum helper_step {
	HELPER_DONE,
	HELPER_REQUEST, /* the request was not understood */
	HELPER_RESOLVE,
	HELPER_REACH, /* the server does not answer */
	HELPER_VERSION, /* it answers, and does not speak the version */
	HELPER_MOUNT, /* mount(2) */
	HELPER_WALK, /* from HELPER_PATH to HELPER_BELOW */
	HELPER_OTHER, /* compare: something else is mounted there */
	HELPER_PROGRAM, /* mount.nfs, which has written why to stderr */
	HELPER_CHMOD,
	HELPER_UMOUNT,
	HELPER_STAT, /* the server has answered with an error */
};

#define HELPER_MAGIC UINT32_C(0x6373696e)

struct helper_reply {
	uint32_t magic;
	int32_t step; /* enum helper_step */
	int32_t error; /* positive errno; 0 where there is none */
	uint32_t low, high; /* HELPER_VERSION: versions that the server speaks */
	struct mount_usage usage; /* statvfs */
	char address[64]; /* of the server */
	char client[64]; /* our own, as the server sees it; HELPER_MOUNT and HELPER_PROGRAM */
	char text[256]; /* HELPER_RESOLVE: in words */
};

/* For the helper: notes where it failed, with an errno of either sign. Returns -1. */
static inline int helper_fail(struct helper_reply *reply, enum helper_step step, int error)
{
	reply->step = (int32_t)step;
	reply->error = error < 0 ? -error : error;
	return -1;
}

#endif
