/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Mounting a directory that lies below others which pods may write. A server, or a kernel that is given
 * the whole path, follows symbolic links on the way: a pod could make one and have any directory of the
 * server mounted. So the directory that the administrator has named is mounted where nobody else sees it,
 * in a mount namespace of this process, and the rest is walked there, component by component, without
 * following anything. What was found is then put at the target path.
 *
 * Only for the helper process: it has one thread, and what is in its namespace goes when it ends. Linux
 * 5.6 and later; -ENOSYS before that.
 */
#ifndef MOUNT_WALK_H
#define MOUNT_WALK_H

#include <stdbool.h>

struct walk {
	int home; /* the mount namespace that the process came from */
	int place; /* the target path there */
};

/* Before walk_begin(). */
#define WALK_NONE ((struct walk){ .home = -EBADF, .place = -EBADF })

/*
 * Opens the target, an existing directory and no symbolic link, and enters a namespace of its own.
 * Mounts that are made from here on are seen by this process and its children only. Returns 0 or a
 * negative errno; the caller calls walk_done() in either case.
 */
int walk_begin(struct walk *w, const char *target);

/* Takes what is mounted at the target away, in the namespace of the walk. 0 or a negative errno. */
int walk_clear(const char *target);

/*
 * Opens the directory "below", a relative path that may be empty, from what is mounted at target. Returns a
 * descriptor made with O_PATH, which the caller closes; -ELOOP where a symbolic link is on the way,
 * -ENOENT, -ENOTDIR, or another negative errno.
 */
int walk_open(const char *target, const char *below);

/*
 * Leaves the namespace, with all that is mounted in it, and mounts dir, which was opened in it, at the
 * target path, with the flags that its mount has. Returns 0 or a negative errno.
 */
int walk_finish(struct walk *w, const char *target, int dir);

/* Runs a program without arguments where the process came from, and waits for it. */
void walk_run_at_home(const struct walk *w, const char *program);

/* Whether two descriptors are of one directory, also where it is mounted twice. */
bool walk_is_same(int a, int b);

void walk_done(struct walk *w);
#define cleanup_walk __attribute__((cleanup(walk_done)))

#endif
