/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Arguments and results of the mounter (mount/mounter.h), and its limits.
 */
#ifndef MOUNT_REQUEST_H
#define MOUNT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"

/* argv[1] that makes csi-nfs a helper process. */
#define MOUNT_HELPER_COMMAND "mount-helper"

#define MOUNT_TIMEOUT_MS 45000 /* kubelet waits for two minutes */
/*
 * Limit of a server's first mount, and of each mount after one that hung. Every fourth one gets
 * MOUNT_TIMEOUT_MS, and so does one that starts while that of another server is under way: the
 * kernel may make it wait for that one.
 */
#define MOUNT_TRIAL_TIMEOUT_MS 15000
/* The first umount is interrupted early: on a dead server NFSv4.1 never returns from it. */
#define MOUNT_QUICK_TIMEOUT_MS 1000
#define MOUNT_UMOUNT_TIMEOUT_MS 3500
#define MOUNT_FORCE_TIMEOUT_MS 1500 /* of umount with MNT_FORCE, and with MNT_DETACH */
#define MOUNT_COMPARE_TIMEOUT_MS 15000
#define MOUNT_STAT_TIMEOUT_MS 2500 /* of looking at a mount */

/* Limits of calls at work on one server, so that a dead server leaves workers to the others. */
#define MOUNT_SLOTS 8
#define MOUNT_UMOUNT_SLOTS 8
#define MOUNT_STAT_SLOTS 4

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
	 * Mode to set on the mounted directory if it has another one; 0: leave. Bits of the present
	 * mode may stay, see mode_for_mounted() in base/mode.h.
	 */
	uint32_t mode;
	/* Of a compare: another superblock is another directory, whatever its file handle is. */
	bool one_superblock;
};

/* The mount at a path: the topmost one if several are stacked. */
struct mount_info {
	char *source;
	char *fstype;
	char *address; /* of the server, numeric; NULL if mountinfo does not show it */
	uint16_t port; /* of the server; 0: the default */
	unsigned int major; /* NFS version, 3 or 4 */
	bool no_ping; /* a transport other than TCP, over which the server cannot be pinged */
	bool read_only, no_suid, no_dev; /* of this mount, not of the file system */
	unsigned int depth; /* number of mounts stacked there */
	bool shares_superblock; /* with a mount at another path */
};

/* Usage of the mounted file system, or of the quota that the server applies. */
struct mount_usage {
	uint64_t bytes_total, bytes_used, bytes_available;
	uint64_t inodes_total, inodes_used, inodes_available;
};

void mount_info_free(struct mount_info *info);

DEFINE_CLEANUP(mount_info, struct mount_info *, mount_info_free)
#define cleanup_mount_info __attribute__((cleanup(cleanup_ptr_mount_info)))

bool mount_info_is_nfs(const struct mount_info *info);

/*
 * Whether the mount is of that server. Mounts that share a superblock all show the name by which
 * the server was first known, so different names are compared by address; that lookup may block for
 * some seconds. Returns 1; 0 if mountinfo does not show that it is: over NFSv4 the kernel finds out
 * that two addresses are those of one server, and mounts then show one of them; or an error of
 * net_resolve(): then nobody knows. Any thread.
 */
int mount_info_is_on(const struct mount_info *info, const char *server, struct error *err);

/* Whether the mount shows that path of its server. Any thread. */
bool mount_info_has_path(const struct mount_info *info, const char *path);

#endif
