/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Mounting, the seam between node/node.c and the kernel. Whatever may touch a server, or a path that
 * is mounted from one, runs in a helper process with a deadline, since a system call that waits for
 * a dead NFS server can only be ended by ending its process. What is mounted where is read from
 * mountinfo, never by looking at the path.
 *
 * Worker threads; every call blocks for its deadlines at most. Any number of calls at once, but
 * for one target path only one at a time.
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
/* The first umount: NFSv4.1 does not return from it where the server is dead. */
#define MOUNT_QUICK_TIMEOUT_MS 1000
#define MOUNT_UMOUNT_TIMEOUT_MS 3500
#define MOUNT_FORCE_TIMEOUT_MS 1500 /* of umount with MNT_FORCE, and then with MNT_DETACH */
#define MOUNT_COMPARE_TIMEOUT_MS 15000
#define MOUNT_STAT_TIMEOUT_MS 2500 /* of looking at a mount */

/* Calls at work on one server, so that a dead one leaves workers to others. */
#define MOUNT_PLACES 8
#define UMOUNT_PLACES 8
#define STAT_PLACES 4

struct mounter;

/* Strings are borrowed during the call. */
struct mount_request {
	const char *server; /* host name or address, IPv6 without brackets */
	const char *path; /* absolute path on the server */
	/*
	 * The path or a directory above it that nobody but the administrator chooses: the server is asked for
	 * this one, and what comes after it is walked without following symbolic links. NULL: the path itself.
	 */
	const char *top;
	const char *target; /* an existing directory */
	const char *options; /* comma-separated, as in mount(8); may hold secrets */
	bool read_only;
	/*
	 * For the mounted directory, where it has another one; 0: leave. Without special bits (07000) it
	 * leaves those that the directory has, see base/mode.h.
	 */
	uint32_t mode;
};

/* What is mounted at a path: the topmost mount, if several are stacked there. */
struct mount_info {
	char *source;
	char *fstype;
	char *address; /* of the server, numeric; NULL where mountinfo does not tell */
	uint16_t port; /* of the server; 0: the usual one */
	unsigned int major; /* version of NFS, 3 or 4 */
	bool no_ping; /* a transport other than TCP: the server cannot be asked whether it is there */
	bool read_only; /* of this mount, not of the file system below it */
	unsigned int depth; /* mounts that are stacked there */
	bool shares_superblock; /* with a mount elsewhere */
};

/* Of the file system that a mount shows, or of the quota that the server applies to it. */
struct mount_usage {
	uint64_t bytes_total, bytes_used, bytes_available;
	uint64_t inodes_total, inodes_used, inodes_available;
};

struct mounter_ops {
	/*
	 * Mounts the request. Errors: UNAVAILABLE (server unknown or not answering), NOT_FOUND (no
	 * such path on it), PERMISSION_DENIED, INVALID_ARGUMENT (options), FAILED_PRECONDITION (the
	 * node or the server lacks something, or a symbolic link is below top), DEADLINE_EXCEEDED
	 * (unknown whether it is mounted). With every other code nothing is mounted.
	 */
	int (*mount)(struct mounter *m, const struct mount_request *request, struct error *err);

	/*
	 * Whether what is mounted at the request's target is the directory that the request would mount
	 * now, whatever mountinfo calls it. Read-only or not is no part of that, nor is the mode. Errors
	 * as mount().
	 */
	int (*compare)(struct mounter *m, const struct mount_request *request, bool *ret_same,
		       struct error *err);

	/*
	 * Unmounts all NFS mounts at target; one that is in use is detached. MNT_FORCE, which breaks the
	 * calls of whoever uses that file system, only where the server does not answer. 0 where there is
	 * none.
	 */
	int (*unmount)(struct mounter *m, const char *target, struct error *err);

	/*
	 * Looks whether what is mounted at target works, and sets mode there, where it is another one;
	 * 0: leave. info is what find() told. Errors: -ESTALE with UNAVAILABLE (it has to be mounted
	 * anew), UNAVAILABLE (the server does not answer), PERMISSION_DENIED (mode).
	 */
	int (*verify)(struct mounter *m, const char *target, const struct mount_info *info,
		      uint32_t mode, struct error *err);

	/*
	 * How full it is. Errors: UNAVAILABLE (the server does not answer, or the mount is stale).
	 * At most MOUNT_STAT_TIMEOUT_MS and a little more, at once where the server is known to be
	 * down.
	 */
	int (*usage)(struct mounter *m, const char *target, const struct mount_info *info,
		     struct mount_usage *ret, struct error *err);

	/* What is mounted at target; *ret is NULL for nothing. The caller frees. */
	int (*find)(struct mounter *m, const char *target, struct mount_info **ret,
		    struct error *err);
};

struct mounter {
	const struct mounter_ops *ops;
};

/*
 * The real one. helper is the program that serves as helper process, called with
 * MOUNT_HELPER_COMMAND; NULL: this one. Borrowed. The caller frees.
 */
int mounter_new(struct mounter **ret, const char *helper, struct error *err);

/* No call may be under way. Accepts NULL. */
void mounter_free(struct mounter *m);

/* Forgets servers that nothing was asked of for long. */
void mounter_sweep(struct mounter *m);

void mount_info_free(struct mount_info *info);

DEFINE_CLEANUP(mount_info, struct mount_info *, mount_info_free)
#define cleanup_mount_info __attribute__((cleanup(cleanup_ptr_mount_info)))

bool mount_info_is_nfs(const struct mount_info *info);

/*
 * Whether the mount is of that path on that server. Mounts that share a superblock all show the name
 * under which the server was first known, so where the names differ the addresses decide; that
 * look-up may block for some seconds. Any thread.
 */
bool mount_info_is_of(const struct mount_info *info, const char *server, const char *path);

/* Whether the mount is of that server, by name or address. May block likewise. Any thread. */
bool mount_info_is_on(const struct mount_info *info, const char *server);

/* Checks mount options without mounting: 0, or -EINVAL with INVALID_ARGUMENT. Any thread. */
int mount_options_check(const char *options, struct error *err);

/* The helper process: reads a request from stdin, writes the reply to stdout. Returns its exit status. */
int mount_helper_main(void);

#endif
