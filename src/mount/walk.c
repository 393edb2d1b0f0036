/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/compat.h"

#define OWN_NAMESPACE "/proc/self/ns/mnt"
#define STACK_MAX 32 /* mounts at the target */

void mount_walk_done(struct mount_walk *w)
{
	cleanup_ptr_close(&w->home);
	cleanup_ptr_close(&w->place);
}

int mount_walk_begin(struct mount_walk *w, const char *target)
{
	w->place = open(target, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return w->place < 0 ? -errno : mount_walk_begin_apart(w);
}

int mount_walk_begin_apart(struct mount_walk *w)
{
	w->home = open(OWN_NAMESPACE, O_RDONLY | O_CLOEXEC);
	if (w->home < 0 || unshare(CLONE_NEWNS) < 0)
		return -errno;
	/* Slave mounts: unmounts at home take effect here too, mounts here are not seen at home. */
	return mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0 ? -errno : 0;
}

int mount_walk_clear(const char *target)
{
	int i;

	for (i = 0; i < STACK_MAX; i++)
		if (umount2(target, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
			return errno == EINVAL ? 0 : -errno;
	return -EBUSY;
}

int mount_walk_open(const char *target, const char *below)
{
	const struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	cleanup_close int top = open(target, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	long fd;

	if (top < 0)
		return -errno;
	if (below[0] == '\0')
		return steal_fd(&top);
	fd = syscall(SYS_openat2, top, below, &how, sizeof(how));
	return fd < 0 ? -errno : (int)fd;
}

int mount_walk_finish(struct mount_walk *w, const char *target, int dir)
{
	cleanup_close int tree =
		open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	int r;

	if (tree < 0)
		return -errno;
	/* The namespace outlives this process if mount.nfs has left another one in it. */
	r = mount_walk_clear(target);
	if (r < 0)
		return r;
	/* setns() is refused while root and working directory are shared with another thread. */
	if (unshare(CLONE_FS) < 0 || setns(w->home, CLONE_NEWNS) < 0 ||
	    move_mount(tree, "", w->place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) <
		    0)
		return -errno;
	return 0;
}

void mount_walk_run_at_home(const struct mount_walk *w, const char *program)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (setns(w->home, CLONE_NEWNS) == 0)
			(void)execl(program, program, (char *)NULL);
		_exit(EXIT_FAILURE);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Compare the server's file handles, which are the same in every superblock of that server. */
static bool walk_has_same_handle(int a, int b)
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} one, two;
	int id;

	one.handle.handle_bytes = two.handle.handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(a, "", &one.handle, &id, AT_EMPTY_PATH) < 0 ||
	    name_to_handle_at(b, "", &two.handle, &id, AT_EMPTY_PATH) < 0)
		return false;
	return one.handle.handle_type == two.handle.handle_type &&
	       one.handle.handle_bytes == two.handle.handle_bytes &&
	       memcmp(one.handle.f_handle, two.handle.f_handle, one.handle.handle_bytes) == 0;
}

bool mount_walk_is_same(int a, int b, bool one_superblock)
{
	struct stat one, two;

	if (fstat(a, &one) < 0 || fstat(b, &two) < 0)
		return false;
	if (one.st_dev == two.st_dev)
		return one.st_ino == two.st_ino;
	return !one_superblock && walk_has_same_handle(a, b);
}
