/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Mount a directory that lies below directories which pods can write. A server, or a kernel that is
 * given the whole path, follows symbolic links on the way, so a pod could plant one and have any
 * directory of the server mounted. Instead, mount the directory that the administrator has named
 * (the top) in a mount namespace of this process, where nobody else sees it; walk the rest of the
 * path there, component by component, without following anything; and attach the directory that was
 * found to the target path outside.
 *
 * Only for the helper process: its namespace goes when it ends. One thread makes all of these
 * calls, and only that one changes its namespace; the thread of a name lookup, which may not have
 * ended yet, stays where it was started. Needs Linux 5.6; -ENOSYS before that.
 */
#ifndef MOUNT_WALK_H
#define MOUNT_WALK_H

#include <stdbool.h>

struct mount_walk {
	int home; /* the mount namespace that the process came from */
	int place; /* the target path, opened at home */
};

/* Initial value, before mount_walk_begin(). */
#define MOUNT_WALK_NONE ((struct mount_walk){ .home = -EBADF, .place = -EBADF })

/*
 * Open the target, which must be a directory and no symbolic link, and enter a new namespace. From
 * here on, mounts are seen only by this process and its children. Returns 0, -ENOTDIR if it is
 * something else, or another negative errno; the caller calls mount_walk_done() in either case.
 */
int mount_walk_begin(struct mount_walk *w, const char *target);

/* Likewise, without opening the target, which may be a stale mount. mount_walk_finish() fails. */
int mount_walk_begin_apart(struct mount_walk *w);

/* Unmount everything at the target, in the current namespace. Returns 0 or a negative errno. */
int mount_walk_clear(const char *target);

/*
 * Open the directory "below", a relative path that may be empty, under what is mounted at target.
 * Returns an O_PATH descriptor, which the caller closes; -ELOOP if a symbolic link is on the way;
 * -ENOENT, -ENOTDIR or another negative errno.
 */
int mount_walk_open(const char *target, const char *below);

/*
 * Return to the home namespace and mount dir at the target path there. dir was opened in the other
 * namespace; the flags of its mount are kept. Returns 0 or a negative errno.
 */
int mount_walk_finish(struct mount_walk *w, const char *target, int dir);

/* Run a program without arguments in the home namespace, and wait for it. */
void mount_walk_run_at_home(const struct mount_walk *w, const char *program);

/*
 * Whether two descriptors are of the same directory, even if through two mounts of it. Directories
 * of two superblocks of one server are compared by file handle; with one_superblock, they differ.
 */
bool mount_walk_is_same(int a, int b, bool one_superblock);

void mount_walk_done(struct mount_walk *w);
#define cleanup_mount_walk __attribute__((cleanup(mount_walk_done)))

#endif
