/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/unmount.h"

#include <errno.h>

#include "base/mount_options.h"
#include "mount/mountinfo.h"
#include "mount/reach.h"

/* Limit of stacked mounts that one call unmounts; a retry unmounts the next ones. */
#define STACK_MAX 32

/* Whether the server of a mount answers. If that cannot be found out, assume that it does. */
static bool unmount_server_answers(const struct mount_info *info)
{
	const struct mount_options how = {
		.major = info->major,
		.minor = -1,
		.port = info->port,
		.no_ping = info->no_ping,
	};
	struct net_address addresses[NET_ADDRESSES_MAX];
	uint32_t low, high;
	size_t n;

	if (info->address == NULL || net_resolve(info->address, addresses, &n, NULL) < 0)
		return true;
	return !mount_is_silence(mount_ping(&addresses[0], &how, &low, &high));
}

/* Attempts to unmount the topmost mount of a path. */
struct unmounting {
	struct mount_caller *caller;
	const char *path; /* resolved */
	const struct mount_info *info; /* the topmost mount */
	int reason; /* why the last attempt failed: a positive errno, or that of mount_call() */
	struct mount_answer answer; /* of the last attempt */
};

/*
 * Try one umount2(). Returns 0 once the mount is gone, 1 if it is still there, or a negative errno
 * with the error set. mountinfo alone tells whether it is gone: with a dead server, NFSv4.1
 * detaches the mount and does not return from the call.
 */
static int unmount_try(struct unmounting *u, enum mount_operation operation,
		       unsigned int timeout_ms, struct error *err)
{
	const struct mount_request request = { .target = u->path };
	cleanup_mount_info struct mount_info *now = NULL;
	int r;

	u->reason = mount_call(u->caller, operation, &request, timeout_ms, &u->answer);
	if (u->reason == 0)
		u->reason = u->answer.reply.error;
	r = mountinfo_find_mounted(u->path, &now, err);
	if (r < 0)
		return r;
	return now != NULL && now->depth >= u->info->depth;
}

/*
 * Unmount the topmost mount. A mount that is in use (EBUSY) is detached. MNT_FORCE fails the calls
 * in flight of everybody who uses the file system, in every mount namespace: use it if the server
 * is gone and they would wait forever, never if it is slow and they would lose data.
 */
static int unmount_top(struct mount_caller *caller, const char *path, const struct mount_info *info,
		       struct error *err)
{
	struct unmounting u = { .caller = caller, .path = path, .info = info };
	int r;

	r = unmount_try(&u, MOUNT_OP_UMOUNT, MOUNT_QUICK_TIMEOUT_MS, err);
	if (r <= 0)
		return r;
	if (u.reason == -ETIMEDOUT && unmount_server_answers(info))
		r = unmount_try(&u, MOUNT_OP_UMOUNT, MOUNT_UMOUNT_TIMEOUT_MS, err);
	else if (u.reason == -ETIMEDOUT && !info->shares_superblock)
		r = unmount_try(&u, MOUNT_OP_UMOUNT_FORCE, MOUNT_FORCE_TIMEOUT_MS, err);
	if (r <= 0)
		return r;
	r = unmount_try(&u, MOUNT_OP_UMOUNT_DETACH, MOUNT_FORCE_TIMEOUT_MS, err);
	if (r <= 0)
		return r;
	if (u.reason < 0)
		return mount_call_error("unmounting", u.reason, &u.answer, err);
	/* No path leads to a mount that mountinfo has. */
	if (u.reason == EINVAL || u.reason == ENOENT)
		return error_set(err, ERROR_ABORTED,
				 "cannot unmount '%s': something is mounted over a directory above it and hides it; unmount that first",
				 path);
	return error_sys(err, ERROR_ABORTED, u.reason != 0 ? u.reason : EBUSY,
			 "cannot unmount '%s'", path);
}

int mount_unmount(struct mount_caller *caller, struct net_breaker *servers, const char *target,
		  struct error *err)
{
	cleanup_free char *path = NULL;
	unsigned int i;
	int r;

	r = mountinfo_resolve_target(target, &path, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	for (i = 0; i < STACK_MAX; i++) {
		cleanup_mount_info struct mount_info *info = NULL;
		char server[NET_SERVER_MAX + 1];

		r = mountinfo_find_mounted(path, &info, err);
		if (r < 0 || info == NULL)
			return r;
		if (!mount_info_is_nfs(info))
			return error_set(err, ERROR_FAILED_PRECONDITION,
					 "'%s' has a %s file system mounted, not one of ours", path,
					 info->fstype);
		mount_info_server(info, server);
		r = net_breaker_take(servers, server, info->port, err);
		if (r < 0)
			return r;
		r = unmount_top(caller, path, info, err);
		net_breaker_leave(servers, server, info->port, r < 0);
		if (r < 0)
			return r;
	}
	return error_set(err, ERROR_ABORTED, "more than %d mounts are stacked at '%s'; try again",
			 STACK_MAX, path);
}
