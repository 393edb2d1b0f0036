/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The mounter: the seam between node/ and the kernel. Whatever may touch a server, or a path
 * mounted from one, runs in a helper process with a deadline: a system call that waits for a dead
 * NFS server ends only with its process. Mounts are looked up in mountinfo, never by touching the
 * path.
 *
 * Worker threads; every call blocks for its deadlines at most. Any number of calls may run at once,
 * but only one for each target path.
 */
#ifndef MOUNT_MOUNTER_H
#define MOUNT_MOUNTER_H

#include <stdbool.h>
#include <stdint.h>

#include "mount/request.h"

struct mounter;

struct mounter_ops {
	/*
	 * Refuse a request that mount() would refuse at once: its server is known to be down, or
	 * too many calls wait for it. Such calls are repeated often, so they ask before they change
	 * anything. Does not block. Errors: UNAVAILABLE, INVALID_ARGUMENT (options).
	 */
	int (*check)(struct mounter *m, const struct mount_request *request, struct error *err);

	/*
	 * Mount what the request names. Errors: UNAVAILABLE (server unknown or not answering),
	 * NOT_FOUND (no such path on it), PERMISSION_DENIED, INVALID_ARGUMENT (options),
	 * FAILED_PRECONDITION (the node or the server lacks something, or a symbolic link is below
	 * top), DEADLINE_EXCEEDED (it may or may not be mounted). With every other code nothing is
	 * mounted.
	 */
	int (*mount)(struct mounter *m, const struct mount_request *request, struct error *err);

	/*
	 * Find out whether the mount at the request's target shows the directory that the request
	 * would mount now, whatever mountinfo calls it. If the servers may be two, set
	 * one_superblock: their file handles may be the same. Ignores read_only and mode. Errors as
	 * mount().
	 */
	int (*compare)(struct mounter *m, const struct mount_request *request, bool *ret_same,
		       struct error *err);

	/*
	 * Find out whether mount() would succeed: mount in a private place, and unmount. What is
	 * at the target does not matter. Ignores mode. Returns 1 if the target path leads to no
	 * directory: something hides the mount. Errors as mount().
	 */
	int (*try)(struct mounter *m, const struct mount_request *request, struct error *err);

	/*
	 * Unmount all NFS mounts at target; detach one that is in use. Use MNT_FORCE, which fails
	 * the calls of everybody who uses that file system, only if the server does not answer.
	 * Returns 0 if there is no mount.
	 */
	int (*unmount)(struct mounter *m, const char *target, struct error *err);

	/*
	 * Check that the mount at target works, and set mode there if it has another one; 0: leave.
	 * info is the result of find(). Errors: -ESTALE with UNAVAILABLE (its directory is gone, or
	 * cannot be looked at), UNAVAILABLE (the server does not answer), PERMISSION_DENIED (it
	 * refuses the mode).
	 */
	int (*verify)(struct mounter *m, const char *target, const struct mount_info *info,
		      uint32_t mode, struct error *err);

	/*
	 * Get the usage of the mount at target. Takes little more than MOUNT_STAT_TIMEOUT_MS, and
	 * fails at once if the server is known to be down. Errors: UNAVAILABLE (the server does not
	 * answer, or the mount is stale). -ENXIO with NOT_FOUND: it was unmounted meanwhile.
	 * -EUSERS with UNAVAILABLE or ABORTED: nobody has looked at the mount, since too many calls
	 * wait for the server or there was no helper process.
	 */
	int (*usage)(struct mounter *m, const char *target, const struct mount_info *info,
		     struct mount_usage *ret, struct error *err);

	/*
	 * Find what is mounted at target; *ret is NULL if nothing is. The caller frees. Errors:
	 * ABORTED.
	 */
	int (*find)(struct mounter *m, const char *target, struct mount_info **ret,
		    struct error *err);
};

struct mounter {
	const struct mounter_ops *ops;
};

/*
 * Make the real mounter. helper is the program to run as helper process, with MOUNT_HELPER_COMMAND
 * as argument; NULL: this program. Borrows helper. The caller frees.
 */
int mounter_new(struct mounter **ret, const char *helper, struct error *err);

/* No call may be running. Accepts NULL. */
void mounter_free(struct mounter *m);

/* Forget servers that have not been used for long. */
void mounter_sweep(struct mounter *m);

/* Be the helper process: read a request from stdin, reply on stdout. Returns the exit status. */
int mount_helper_main(void);

#endif
