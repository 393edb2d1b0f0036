/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The mounter: the seam between node/ and the kernel. Whatever may touch a server, or a path
 * mounted from one, runs in a helper process with a deadline: a system call that waits for a dead
 * NFS server ends only with its process. What is mounted where is read from mountinfo, never by
 * touching the path.
 *
 * Worker threads; every call blocks for its deadlines at most. Any number of calls may run at once,
 * but only one for each target path.
 */
#ifndef MOUNT_MOUNTER_H
#define MOUNT_MOUNTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

/* argv[1] that makes csi-nfs a helper process. */
#define MOUNT_HELPER_COMMAND "mount-helper"

#define MOUNT_TIMEOUT_MS 45000 /* kubelet waits for two minutes */
#define MOUNT_QUICK_TIMEOUT_MS                                                                     \
	1000 /* of the first umount: on a dead server NFSv4.1 never returns */
#define MOUNT_UMOUNT_TIMEOUT_MS 3500
#define MOUNT_FORCE_TIMEOUT_MS 1500 /* of umount with MNT_FORCE, and of that with MNT_DETACH */
#define MOUNT_COMPARE_TIMEOUT_MS 15000
#define MOUNT_STAT_TIMEOUT_MS 2500 /* of looking at a mount */

/* Calls that may be at work on one server, so that a dead one leaves workers to the others. */
#define MOUNT_SLOTS 8
#define MOUNT_UMOUNT_SLOTS 8
#define MOUNT_STAT_SLOTS 4

struct mounter;

/* A request to mount or to compare. Strings are borrowed during the call. */
struct mount_request {
	const char *server; /* host name or address, IPv6 without brackets */
	const char *path; /* absolute path on the server */
	/*
	 * The path, or a directory above it, that only the administrator can choose. The server is
	 * asked for this one; the rest of the path is walked without following symbolic links.
	 * NULL: the path.
	 */
	const char *top;
	const char *target; /* absolute path of an existing directory */
	const char *options; /* comma-separated, as in mount(8); may hold secrets */
	bool read_only;
	/*
	 * Set on the mounted directory if it has another one; 0: leave. A mode without special bits
	 * (07000) keeps those that the directory has, see base/mode.h.
	 */
	uint32_t mode;
};

/* The mount at a path: the topmost one if several are stacked. */
struct mount_info {
	char *source;
	char *fstype;
	char *address; /* of the server, numeric; NULL if mountinfo does not show it */
	uint16_t port; /* of the server; 0: the default */
	unsigned int major; /* NFS version, 3 or 4 */
	bool no_ping; /* a transport other than TCP, over which the server cannot be pinged */
	bool read_only; /* of this mount, not of the file system */
	unsigned int depth; /* number of mounts stacked there */
	bool shares_superblock; /* with a mount at another path */
};

/* Usage of the mounted file system, or of the quota that the server applies. */
struct mount_usage {
	uint64_t bytes_total, bytes_used, bytes_available;
	uint64_t inodes_total, inodes_used, inodes_available;
};

struct mounter_ops {
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
	 * would mount now, whatever mountinfo calls it. Ignores read_only and mode. Errors as
	 * mount().
	 */
	int (*compare)(struct mounter *m, const struct mount_request *request, bool *ret_same,
		       struct error *err);

	/*
	 * Unmount all NFS mounts at target; detach one that is in use. Use MNT_FORCE, which fails
	 * the calls of everybody who uses that file system, only if the server does not answer.
	 * Returns 0 if there is no mount.
	 */
	int (*unmount)(struct mounter *m, const char *target, struct error *err);

	/*
	 * Check that the mount at target works, and set mode there if it has another one; 0: leave.
	 * info is the result of find(). Errors: -ESTALE with UNAVAILABLE (it must be mounted anew),
	 * UNAVAILABLE (the server does not answer), PERMISSION_DENIED (mode).
	 */
	int (*verify)(struct mounter *m, const char *target, const struct mount_info *info,
		      uint32_t mode, struct error *err);

	/*
	 * Get the usage of the mount at target. Takes little more than MOUNT_STAT_TIMEOUT_MS, and
	 * fails at once if the server is known to be down. Errors: UNAVAILABLE (the server does not
	 * answer, or the mount is stale).
	 */
	int (*usage)(struct mounter *m, const char *target, const struct mount_info *info,
		     struct mount_usage *ret, struct error *err);

	/* Find what is mounted at target; *ret is NULL if nothing is. The caller frees. */
	int (*find)(struct mounter *m, const char *target, struct mount_info **ret,
		    struct error *err);
};

struct mounter {
	const struct mounter_ops *ops;
};

/*
 * Make the mounter that mounts. helper is the program to run as helper process, with
 * MOUNT_HELPER_COMMAND as argument; NULL: this program. Borrowed. The caller frees.
 */
int mounter_new(struct mounter **ret, const char *helper, struct error *err);

/* No call may be running. Accepts NULL. */
void mounter_free(struct mounter *m);

/* Forget servers that have not been used for long. */
void mounter_sweep(struct mounter *m);

void mount_info_free(struct mount_info *info);

DEFINE_CLEANUP(mount_info, struct mount_info *, mount_info_free)
#define cleanup_mount_info __attribute__((cleanup(cleanup_ptr_mount_info)))

bool mount_info_is_nfs(const struct mount_info *info);

/*
 * Whether the mount is of that path on that server. Mounts that share a superblock all show the
 * name by which the server was first known, so different names are compared by address; that lookup
 * may block for some seconds. Any thread.
 */
bool mount_info_is_of(const struct mount_info *info, const char *server, const char *path);

/* Whether the mount is of that server, by name or address. May block likewise. Any thread. */
bool mount_info_is_on(const struct mount_info *info, const char *server);

/* Check mount options without mounting. Returns 0, or -EINVAL with INVALID_ARGUMENT. Any thread. */
int mount_options_check(const char *options, struct error *err);

/* Be the helper process: read a request from stdin, reply on stdout. Returns the exit status. */
int mount_helper_main(void);

#endif
