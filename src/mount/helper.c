/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The helper process. It may hang at any call: nothing waits for it but its deadline, and it holds
 * nothing that anybody else needs.
 */

#include "mount/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/mode.h"
#include "base/str.h"
#include "mount/attempt.h"
#include "mount/mounter.h"
#include "mount/walk.h"

/* mount.nfs and rpc.statd make tables as large as the limit allows: 51 MB for half a million. */
#define FILES_MAX 1024

static int read_request(struct helper_request *q)
{
	size_t len = 0, i;
	char *p = q->data;
	ssize_t n;

	for (;;) {
		n = read(STDIN_FILENO, q->data + len, sizeof(q->data) - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
		if (len == sizeof(q->data))
			return -EMSGSIZE;
	}
	for (i = 0; i < HELPER_FIELDS; i++) {
		char *end = memchr(p, '\0', (size_t)(q->data + len - p));

		if (end == NULL)
			return -EPROTO;
		q->fields[i] = p;
		p = end + 1;
	}
	return 0;
}

/* Read-only: the mode is somebody else's to set. dir may have been opened with O_PATH. */
static int set_mode(const struct helper_request *q, int dir, struct helper_reply *reply)
{
	char path[64];
	uint64_t asked = 0;
	struct stat st;
	mode_t mode;

	if (str_parse_u64(q->fields[HELPER_MODE], 8, MODE_ALL, &asked) < 0)
		return helper_fail(reply, HELPER_REQUEST, EINVAL);
	if (asked == 0)
		return 0;
	if (fstat(dir, &st) < 0)
		return helper_fail(reply, HELPER_CHMOD, errno);
	mode = mode_for_existing((uint32_t)asked, st.st_mode);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", dir);
	if ((st.st_mode & MODE_ALL) == mode || chmod(path, mode) == 0 || errno == EROFS)
		return 0;
	return helper_fail(reply, HELPER_CHMOD, errno);
}

/*
 * Asks the server for the directory itself: it may be gone. stat() may answer from the cache, and so may
 * statvfs() for what it says of the directory; opening it never does (close-to-open consistency).
 */
static int open_target(const char *target)
{
	cleanup_close int fd = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	/* A directory that root may not read is there. */
	return fd < 0 && errno != EACCES && errno != EPERM ? -errno : 0;
}

/* What is mounted at the target may be stale, or lack its mode after a crash. */
static int do_verify(const struct helper_request *q, struct helper_reply *reply)
{
	const char *target = q->fields[HELPER_TARGET];
	cleanup_close int dir = -EBADF;
	struct stat st;
	int r;

	r = open_target(target);
	if (r < 0)
		return helper_fail(reply, HELPER_STAT, r);
	dir = walk_open(target, "");
	if (dir < 0)
		return helper_fail(reply, HELPER_STAT, dir);
	if (fstat(dir, &st) < 0)
		return helper_fail(reply, HELPER_STAT, errno);
	return set_mode(q, dir, reply);
}

static int do_statvfs(const struct helper_request *q, struct helper_reply *reply)
{
	struct mount_usage *u = &reply->usage;
	struct statvfs vfs;
	int r;

	r = open_target(q->fields[HELPER_TARGET]);
	if (r < 0)
		return helper_fail(reply, HELPER_STAT, r);
	if (statvfs(q->fields[HELPER_TARGET], &vfs) < 0)
		return helper_fail(reply, HELPER_STAT, errno);
	u->bytes_total = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	u->bytes_used = (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
	u->bytes_available = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	u->inodes_total = vfs.f_files;
	u->inodes_used = vfs.f_files - vfs.f_ffree;
	u->inodes_available = vfs.f_favail;
	return 0;
}

/* The server is asked for the whole path. */
static int mount_whole(const struct helper_request *q, struct helper_reply *reply)
{
	const char *target = q->fields[HELPER_TARGET];
	cleanup_close int dir = -EBADF;
	struct stat st;
	int r;

	/* mount(2) would follow a link, and mountinfo then show another path than the one asked for. */
	if (lstat(target, &st) < 0)
		return helper_fail(reply, HELPER_MOUNT, errno);
	if (!S_ISDIR(st.st_mode))
		return helper_fail(reply, HELPER_MOUNT, ENOTDIR);
	r = mount_attempt(q, NULL, reply);
	if (r < 0)
		return r;
	/* The mount is there, so its directory answers: only now may the path be touched. */
	dir = walk_open(target, "");
	r = dir < 0 ? helper_fail(reply, HELPER_CHMOD, dir) : set_mode(q, dir, reply);
	if (r < 0)
		/* The request has failed as a whole. */
		(void)umount2(target, MNT_DETACH | UMOUNT_NOFOLLOW);
	return r;
}

/* Nothing is at the target before the directory has been found, and has its mode. */
static int mount_below(const struct helper_request *q, struct helper_reply *reply)
{
	const char *target = q->fields[HELPER_TARGET];
	cleanup_walk struct walk w = WALK_NONE;
	cleanup_close int dir = -EBADF;
	int r;

	r = walk_begin(&w, target);
	if (r < 0)
		return helper_fail(reply, HELPER_WALK, r);
	r = mount_attempt(q, &w, reply);
	if (r < 0)
		return r;
	dir = walk_open(target, q->fields[HELPER_BELOW]);
	if (dir < 0)
		return helper_fail(reply, HELPER_WALK, dir);
	r = set_mode(q, dir, reply);
	if (r < 0)
		return r;
	r = walk_finish(&w, target, dir);
	return r < 0 ? helper_fail(reply, HELPER_WALK, r) : 0;
}

static int do_mount(const struct helper_request *q, struct helper_reply *reply)
{
	return q->fields[HELPER_BELOW][0] != '\0' ? mount_below(q, reply) : mount_whole(q, reply);
}

/*
 * Whether what is mounted at the target is what a mount of the request would be now. It is made once
 * more, where nobody else sees it: names do not tell, since a server resolves symbolic links in them.
 */
static int do_compare(const struct helper_request *q, struct helper_reply *reply)
{
	const char *target = q->fields[HELPER_TARGET];
	cleanup_walk struct walk w = WALK_NONE;
	cleanup_close int dir = -EBADF;
	int r;

	r = walk_begin(&w, target);
	if (r == 0)
		r = walk_clear(target);
	if (r < 0)
		return helper_fail(reply, HELPER_WALK, r);
	r = mount_attempt(q, &w, reply);
	if (r < 0)
		return r;
	dir = walk_open(target, q->fields[HELPER_BELOW]);
	if (dir < 0)
		return helper_fail(reply, HELPER_WALK, dir);
	r = walk_is_same(dir, w.place) ? 0 : helper_fail(reply, HELPER_OTHER, 0);
	(void)walk_clear(target); /* it goes with the namespace, where that goes */
	return r;
}

/*
 * umount2() itself: libmount would look at the path before, which is what must not be done where
 * the server is dead.
 */
static int do_umount(const struct helper_request *q, struct helper_reply *reply)
{
	uint64_t flags;

	if (str_parse_u64(q->fields[HELPER_FLAGS], 10, INT32_MAX, &flags) < 0)
		return helper_fail(reply, HELPER_REQUEST, EINVAL);
	if (umount2(q->fields[HELPER_TARGET], (int)flags | UMOUNT_NOFOLLOW) < 0)
		return helper_fail(reply, HELPER_UMOUNT, errno);
	return 0;
}

static void prepare_process(void)
{
	const struct rlimit files = { .rlim_cur = FILES_MAX, .rlim_max = FILES_MAX };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail for a valid signal */
	(void)setrlimit(RLIMIT_NOFILE, &files); /* without it mount.nfs only takes more memory */
	(void)umask(0022);
}

/* Nobody reads the reply of a helper whose driver died before it could ask to die with it. */
static bool is_orphan(const struct helper_request *q)
{
	uint64_t driver;

	return str_parse_u64(q->fields[HELPER_DRIVER], 10, INT32_MAX, &driver) < 0 ||
	       (uint64_t)getppid() != driver;
}

static const struct {
	const char *name;
	int (*run)(const struct helper_request *q, struct helper_reply *reply);
} operations[] = {
	{ "mount", do_mount },   { "compare", do_compare }, { "umount", do_umount },
	{ "verify", do_verify }, { "statvfs", do_statvfs },
};

static int run_operation(const struct helper_request *q, struct helper_reply *reply)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(operations); i++)
		if (strcmp(q->fields[HELPER_OPERATION], operations[i].name) == 0)
			return operations[i].run(q, reply);
	return helper_fail(reply, HELPER_REQUEST, EINVAL);
}

int mount_helper_main(void)
{
	static struct helper_request q;
	struct helper_reply reply = { .magic = HELPER_MAGIC, .step = HELPER_DONE };
	int out;

	prepare_process();
	/* What mount.nfs prints is no part of the reply, and what it starts must not hold the pipe. */
	out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return EXIT_FAILURE;
	if (read_request(&q) < 0)
		(void)helper_fail(&reply, HELPER_REQUEST, EPROTO);
	else if (is_orphan(&q))
		return EXIT_FAILURE;
	else
		(void)run_operation(&q, &reply); /* its failure is in the reply */
	return write(out, &reply, sizeof(reply)) == sizeof(reply) ? EXIT_SUCCESS : EXIT_FAILURE;
}
