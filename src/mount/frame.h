/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The two messages between the driver and a helper process: a request on the helper's stdin, a
 * reply on its stdout. Both ends are the same program, so each message is one plain structure, and
 * its size is its version. The receiver checks every field all the same and refuses anything
 * malformed. Mount options may hold secrets: they travel in the request, never in the helper's argv
 * or environment or in a log. mount.nfs, which is run for NFSv3 with locks, has them in its argv.
 */
#ifndef MOUNT_FRAME_H
#define MOUNT_FRAME_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/mount_options.h"
#include "mount/request.h"
#include "net/address.h"

#define MOUNT_FRAME_MAGIC UINT32_C(0x6373696d)
#define MOUNT_REPLY_MAGIC UINT32_C(0x6373696e)

/* Comments name the fields that the helper reads. */
enum mount_operation {
	MOUNT_OP_MOUNT = 1, /* all */
	MOUNT_OP_COMPARE, /* all but mode */
	MOUNT_OP_VERIFY, /* target, mode */
	MOUNT_OP_USAGE, /* target */
	MOUNT_OP_UMOUNT, /* target */
	MOUNT_OP_UMOUNT_FORCE, /* target */
	MOUNT_OP_UMOUNT_DETACH, /* target */
	MOUNT_OP_TRY, /* all but mode */
	MOUNT_OP_END,
};

/* A request. Strings are terminated and padded with zeros, "" if not given. */
struct mount_frame {
	uint32_t magic;
	uint32_t size; /* of this structure */
	uint32_t operation; /* enum mount_operation */
	int32_t driver; /* process id of the driver */
	uint32_t mode; /* 0: leave */
	uint32_t read_only; /* 0 or 1 */
	uint32_t one_superblock; /* 0 or 1 */
	char server[NET_SERVER_MAX + 1];
	char top[PATH_MAX]; /* the path that the server is asked for */
	char below[PATH_MAX]; /* the rest, relative to top and walked without following links */
	char target[PATH_MAX];
	char options[MOUNT_OPTIONS_MAX + 1]; /* may hold secrets */
};

/* A pipe takes this much without a reader, so that the driver never waits in write(). */
_Static_assert(sizeof(struct mount_frame) <= 65536, "a request must fit into a pipe");

/*
 * Encode a request. Returns 0, -ENAMETOOLONG if a string is too long for its field, or -ENOMEM. The
 * caller frees.
 */
int mount_frame_new(struct mount_frame **ret, enum mount_operation operation,
		    const struct mount_request *request);

/* Decode a request. Returns 0, or -EPROTO for anything that mount_frame_new() cannot have made. */
int mount_frame_decode(struct mount_frame *ret, const void *data, size_t len);

/* The path that the server is asked for. Borrowed from the request. */
const char *mount_request_top(const struct mount_request *request);

/* The step at which a helper failed. */
enum mount_step {
	MOUNT_STEP_DONE, /* nowhere */
	MOUNT_STEP_REQUEST, /* the request is malformed */
	MOUNT_STEP_RESOLVE, /* the server's name */
	MOUNT_STEP_REACH, /* the server does not answer */
	MOUNT_STEP_MOUNTD, /* its mount service does not, which NFSv3 needs */
	MOUNT_STEP_VERSION, /* it answers, but does not have the version */
	MOUNT_STEP_TARGET, /* the target path is not a directory */
	MOUNT_STEP_MOUNT, /* mount(2) */
	MOUNT_STEP_WALK, /* from top to below */
	MOUNT_STEP_OTHER, /* another directory is there */
	MOUNT_STEP_PROGRAM, /* mount.nfs, which has written the reason to stderr */
	MOUNT_STEP_CHMOD,
	MOUNT_STEP_UMOUNT,
	MOUNT_STEP_STAT, /* the server has answered with an error */
};

struct mount_reply {
	uint32_t magic;
	int32_t step; /* enum mount_step */
	int32_t error; /* positive errno; 0 if there is none */
	uint32_t low, high; /* MOUNT_STEP_VERSION: the versions that the server has */
	struct mount_usage usage; /* MOUNT_OP_USAGE */
	char address[64]; /* of the server */
	char client[64]; /* our own, as the server sees it; MOUNT_STEP_MOUNT and _PROGRAM */
	char text[256]; /* MOUNT_STEP_RESOLVE: the reason in words */
};

/* For the helper: record where it failed, with an errno of either sign. Returns -1. */
static inline int mount_reply_fail(struct mount_reply *reply, enum mount_step step, int error)
{
	reply->step = (int32_t)step;
	reply->error = error < 0 ? -error : error;
	return -1;
}

/* Check a reply. Returns 0 or -EPROTO. Accepts an unknown step, which the caller must refuse. */
int mount_reply_check(const struct mount_reply *reply);

#endif
