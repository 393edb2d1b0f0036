/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The helper process. Any call here may hang forever: the driver waits for this process only until
 * its deadline, and the process holds nothing that others need.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mode.h"
#include "mount/attempt.h"
#include "mount/frame.h"
#include "mount/mounter.h"
#include "mount/walk.h"

/* mount.nfs and rpc.statd allocate tables as large as the limit: 51 MB for half a million. */
#define FILES_MAX 1024

/* Read stdin to its end and decode it. The additional byte detects a request that is too long. */
static int helper_read(struct mount_frame *ret)
{
	static char data[sizeof(*ret) + 1];
	size_t len = 0;
	ssize_t n;

	do {
		n = read(STDIN_FILENO, data + len, sizeof(data) - len);
		if (n > 0)
			len += (size_t)n;
	} while ((n > 0 && len < sizeof(data)) || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : mount_frame_decode(ret, data, len);
}

/*
 * Give the directory the mode of the request. A read-only file system is left as it is. dir may be
 * an O_PATH descriptor, for which fchmod() fails.
 */
static int helper_set_mode(const struct mount_frame *frame, int dir, struct mount_reply *reply)
{
	char path[64];
	struct stat st;
	mode_t mode;

	if (frame->mode == 0)
		return 0;
	if (fstat(dir, &st) < 0)
		return mount_reply_fail(reply, MOUNT_STEP_CHMOD, errno);
	mode = mode_for_mounted(frame->mode, st.st_mode);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", dir);
	if ((st.st_mode & MODE_ALL) == mode || chmod(path, mode) == 0 || errno == EROFS)
		return 0;
	return mount_reply_fail(reply, MOUNT_STEP_CHMOD, errno);
}

/* A server of another kind has taken the place of the one that made the handle. */
#define KERNEL_EBADHANDLE 521

/*
 * Find out why a mounted directory cannot be opened. Linux reports ESTALE for every failure to
 * revalidate it (nfs_weak_revalidate()). Looking up a name in it may fail with the server's own
 * error; ENOENT says nothing, since the directory may be gone as well. No other call has used that
 * name, so it is not in the cache. Returns a negative errno.
 */
static int helper_why_stale(const char *target)
{
	char path[sizeof(((struct mount_frame *)NULL)->target) + 64];

	(void)snprintf(path, sizeof(path), "%s/.csi-nfs-%d-%" PRIu64, target, (int)getpid(),
		       clock_now_ns());
	if (faccessat(AT_FDCWD, path, F_OK, 0) < 0 && errno != ENOENT && errno != ENAMETOOLONG &&
	    errno != KERNEL_EBADHANDLE)
		return -errno;
	return -ESTALE;
}

/*
 * Ask the server whether the mounted directory still exists. stat() may answer from the cache, and
 * so may statvfs() about the existence of the directory; open() never does (close-to-open
 * consistency).
 */
static int helper_open_target(const char *target)
{
	cleanup_close int fd = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 && errno == ESTALE)
		return helper_why_stale(target);
	/* If root may not read it, it exists. */
	return fd < 0 && errno != EACCES && errno != EPERM ? -errno : 0;
}

/*
 * Open the mount at the target. If it was unmounted since the driver has found it, a directory of
 * the node's own file system is there. Returns a descriptor, which the caller closes, or -1.
 */
static int helper_open_mount(const char *target, struct mount_reply *reply)
{
	cleanup_close int dir = mount_walk_open(target, "");
	struct statfs fs;

	if (dir < 0)
		return mount_reply_fail(reply, MOUNT_STEP_STAT, dir);
	if (fstatfs(dir, &fs) < 0)
		return mount_reply_fail(reply, MOUNT_STEP_STAT, errno);
	if (fs.f_type != NFS_SUPER_MAGIC)
		return mount_reply_fail(reply, MOUNT_STEP_OTHER, 0);
	return steal_fd(&dir);
}

/* Check that the mount is not stale, and set the mode of the request. */
static int do_verify(const struct mount_frame *frame, struct mount_reply *reply)
{
	const char *target = frame->target;
	cleanup_close int dir = -EBADF;
	struct stat st;
	int r;

	r = helper_open_target(target);
	if (r < 0)
		return mount_reply_fail(reply, MOUNT_STEP_STAT, r);
	dir = helper_open_mount(target, reply);
	if (dir < 0)
		return -1;
	if (fstat(dir, &st) < 0)
		return mount_reply_fail(reply, MOUNT_STEP_STAT, errno);
	return helper_set_mode(frame, dir, reply);
}

static int do_usage(const struct mount_frame *frame, struct mount_reply *reply)
{
	struct mount_usage *u = &reply->usage;
	cleanup_close int dir = -EBADF;
	struct statvfs vfs;
	int r;

	r = helper_open_target(frame->target);
	if (r < 0)
		return mount_reply_fail(reply, MOUNT_STEP_STAT, r);
	dir = helper_open_mount(frame->target, reply);
	if (dir < 0)
		return -1;
	if (fstatvfs(dir, &vfs) < 0)
		return mount_reply_fail(reply, MOUNT_STEP_STAT, errno);
	u->bytes_total = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	/* A server may report more that is free than there is. */
	if (vfs.f_blocks > vfs.f_bfree)
		u->bytes_used = (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
	u->bytes_available = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	u->inodes_total = vfs.f_files;
	u->inodes_used = vfs.f_files > vfs.f_ffree ? vfs.f_files - vfs.f_ffree : 0;
	u->inodes_available = vfs.f_favail;
	return 0;
}

/* Mount the whole path as the server resolves it. */
static int do_mount_whole(const struct mount_frame *frame, struct mount_reply *reply)
{
	const char *target = frame->target;
	cleanup_close int dir = -EBADF;
	struct stat st;
	int r;

	/* mount(2) would follow a link, and mountinfo would show the path that it leads to. */
	if (lstat(target, &st) < 0)
		return mount_reply_fail(reply, MOUNT_STEP_MOUNT, errno);
	if (!S_ISDIR(st.st_mode))
		return mount_reply_fail(reply, MOUNT_STEP_TARGET, ENOTDIR);
	r = mount_attempt(frame, NULL, reply);
	if (r < 0)
		return r;
	/* The path may be touched from here on: a fresh mount has a server that answers. */
	dir = mount_walk_open(target, "");
	r = dir < 0 ? mount_reply_fail(reply, MOUNT_STEP_CHMOD, dir)
		    : helper_set_mode(frame, dir, reply);
	/* A request that failed leaves nothing mounted. */
	if (r < 0)
		(void)umount2(target, MNT_DETACH | UMOUNT_NOFOLLOW);
	return r;
}

/* Mount the top over the target, in the private namespace of w, and open the directory below it. */
static int helper_open_below(const struct mount_frame *frame, const struct mount_walk *w,
			     int *ret_dir, struct mount_reply *reply)
{
	int r = mount_attempt(frame, w, reply);

	if (r < 0)
		return r;
	*ret_dir = mount_walk_open(frame->target, frame->below);
	return *ret_dir < 0 ? mount_reply_fail(reply, MOUNT_STEP_WALK, *ret_dir) : 0;
}

/* Nothing appears at the target before the directory is found and has its mode. */
static int do_mount_below(const struct mount_frame *frame, struct mount_reply *reply)
{
	const char *target = frame->target;
	cleanup_mount_walk struct mount_walk w = MOUNT_WALK_NONE;
	cleanup_close int dir = -EBADF;
	int r;

	r = mount_walk_begin(&w, target);
	if (r < 0)
		return mount_reply_fail(reply, r == -ENOTDIR ? MOUNT_STEP_TARGET : MOUNT_STEP_WALK,
					r);
	r = helper_open_below(frame, &w, &dir, reply);
	if (r == 0)
		r = helper_set_mode(frame, dir, reply);
	if (r < 0)
		return r;
	r = mount_walk_finish(&w, target, dir);
	return r < 0 ? mount_reply_fail(reply, MOUNT_STEP_WALK, r) : 0;
}

static int do_mount(const struct mount_frame *frame, struct mount_reply *reply)
{
	if (frame->below[0] == '\0')
		return do_mount_whole(frame, reply);
	return do_mount_below(frame, reply);
}

/*
 * Compare the directory mounted at the target with the one that the request names now. Mount the
 * latter once more, in a private namespace: comparing paths is not enough, since a server resolves
 * symbolic links in them.
 */
static int do_compare(const struct mount_frame *frame, struct mount_reply *reply)
{
	const char *target = frame->target;
	cleanup_mount_walk struct mount_walk w = MOUNT_WALK_NONE;
	cleanup_close int dir = -EBADF;
	int r;

	r = mount_walk_begin(&w, target);
	if (r == 0)
		r = mount_walk_clear(target);
	if (r < 0)
		return mount_reply_fail(reply, MOUNT_STEP_WALK, r);
	r = helper_open_below(frame, &w, &dir, reply);
	if (r < 0)
		return r;
	if (!mount_walk_is_same(dir, w.place, frame->one_superblock != 0))
		r = mount_reply_fail(reply, MOUNT_STEP_OTHER, 0);
	/* Otherwise the mount would stay if mount.nfs has left a process in the namespace. */
	(void)mount_walk_clear(target);
	return r;
}

/* Mount what the request names in a private namespace. What is at the target may be stale. */
static int do_try(const struct mount_frame *frame, struct mount_reply *reply)
{
	cleanup_mount_walk struct mount_walk w = MOUNT_WALK_NONE;
	cleanup_close int dir = -EBADF, fd = -EBADF;
	int r;

	r = mount_walk_begin_apart(&w);
	if (r == 0)
		r = mount_walk_clear(frame->target);
	/* Something is mounted over a directory above. */
	if (r == -ENOENT)
		return mount_reply_fail(reply, MOUNT_STEP_OTHER, 0);
	if (r < 0)
		return mount_reply_fail(reply, MOUNT_STEP_WALK, r);
	r = helper_open_below(frame, &w, &dir, reply);
	/* The client may have mounted from its cache. Ask as helper_open_target() does. */
	if (r == 0) {
		fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 && errno != EACCES && errno != EPERM)
			r = mount_reply_fail(reply, MOUNT_STEP_WALK, errno);
	}
	(void)mount_walk_clear(frame->target);
	return r;
}

/* Call umount2() directly: libmount looks at the path first, which hangs on a dead server. */
static int do_umount(const struct mount_frame *frame, struct mount_reply *reply)
{
	int flags = UMOUNT_NOFOLLOW;

	if (frame->operation == MOUNT_OP_UMOUNT_FORCE)
		flags |= MNT_FORCE;
	if (frame->operation == MOUNT_OP_UMOUNT_DETACH)
		flags |= MNT_DETACH;
	return umount2(frame->target, flags) < 0 ? mount_reply_fail(reply, MOUNT_STEP_UMOUNT, errno)
						 : 0;
}

static int (*const helper_operations[MOUNT_OP_END])(const struct mount_frame *frame,
						    struct mount_reply *reply) = {
	[MOUNT_OP_MOUNT] = do_mount,
	[MOUNT_OP_COMPARE] = do_compare,
	[MOUNT_OP_TRY] = do_try,
	[MOUNT_OP_VERIFY] = do_verify,
	[MOUNT_OP_USAGE] = do_usage,
	[MOUNT_OP_UMOUNT] = do_umount,
	[MOUNT_OP_UMOUNT_FORCE] = do_umount,
	[MOUNT_OP_UMOUNT_DETACH] = do_umount,
};

int mount_helper_main(void)
{
	static struct mount_frame frame;
	const struct rlimit files = { .rlim_cur = FILES_MAX, .rlim_max = FILES_MAX };
	struct mount_reply reply = { .magic = MOUNT_REPLY_MAGIC, .step = MOUNT_STEP_DONE };
	int out;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail for a valid signal */
	(void)setrlimit(RLIMIT_NOFILE, &files); /* if it fails, mount.nfs only needs more memory */
	(void)umask(0022);
	/* Keep the reply's pipe from mount.nfs and its children: they write to stderr instead. */
	out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return EXIT_FAILURE;
	if (helper_read(&frame) < 0)
		(void)mount_reply_fail(&reply, MOUNT_STEP_REQUEST, EPROTO);
	else if (getppid() != frame.driver)
		return EXIT_FAILURE; /* the driver died before PR_SET_PDEATHSIG was in force */
	else
		(void)helper_operations[frame.operation](&frame, &reply);
	return write(out, &reply, sizeof(reply)) == sizeof(reply) ? EXIT_SUCCESS : EXIT_FAILURE;
}
