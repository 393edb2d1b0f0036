/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Walks below a tmpfs, in a mount namespace of the test's own. Passes where none can be made. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_util.h"
#include "mount/walk.h"

#define CANNOT 77 /* exit status */

static char folder[CHECK_FOLDER];

static void *thread_wait(void *data)
{
	(void)data;
	for (;;)
		pause();
	return NULL;
}

/* Make folder a tmpfs with an empty directory "target", seen by this process only. */
static int namespace_enter(void)
{
	if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	if (mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) < 0 ||
	    mount("none", folder, "tmpfs", 0, NULL) < 0 || chdir(folder) < 0 ||
	    mkdir("target", 0755) < 0)
		return -errno;
	return 0;
}

/* Mount a tmpfs with the file "below/file" at the target. */
static int top_mount(const char *target)
{
	int fd;

	if (mount("none", target, "tmpfs", 0, NULL) < 0 || chdir(target) < 0 ||
	    mkdir("below", 0755) < 0)
		return -errno;
	fd = open("below/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	close(fd);
	return chdir("/") < 0 ? -errno : 0;
}

/* Returns the exit status. */
static int walk_beside_a_thread(void)
{
	struct mount_walk w = MOUNT_WALK_NONE;
	pthread_t thread;
	char target[CHECK_FOLDER + 16];
	int dir, r;

	if (namespace_enter() < 0)
		return CANNOT;
	(void)snprintf(target, sizeof(target), "%s/target", folder);
	r = mount_walk_begin(&w, target);
	if (r == 0)
		r = top_mount(target);
	if (r < 0 || pthread_create(&thread, NULL, thread_wait, NULL) != 0)
		return 1;
	dir = mount_walk_open(target, "below");
	if (dir == -ENOSYS)
		return CANNOT;
	if (dir < 0)
		return 2;
	r = mount_walk_finish(&w, target, dir);
	if (r == -ENOSYS)
		return CANNOT;
	if (r < 0)
		return 3;
	(void)snprintf(target, sizeof(target), "%s/target/file", folder);
	return access(target, F_OK) == 0 ? 0 : 4;
}

/*
 * The thread that looks a name up may not have ended yet. setns() to a mount namespace fails with
 * EINVAL for a process that shares its working directory and root with another one.
 */
START_TEST(test_beside_a_thread)
{
	int status;
	pid_t pid;

	check_make_folder(folder);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(walk_beside_a_thread());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(rmdir(folder), 0);
	ck_assert_msg(WIFEXITED(status), "the child died: %d", status);
	if (WEXITSTATUS(status) != CANNOT)
		ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

CHECK_MAIN("walk", .tests = { test_beside_a_thread })
