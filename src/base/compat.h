/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Linux system calls that some C libraries have no functions for: musl, and glibc before 2.36.
 */
#ifndef BASE_COMPAT_H
#define BASE_COMPAT_H

#include <sys/mount.h>
#include <sys/syscall.h>

/* glibc 2.31 has no names of its own for these numbers; the kernel's headers have. */
#ifndef SYS_close_range
#define SYS_close_range __NR_close_range
#endif
#ifndef SYS_openat2
#define SYS_openat2 __NR_openat2
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

#ifndef HAVE_OPEN_TREE

#include <linux/mount.h>
#include <unistd.h>

static inline int open_tree(int dir, const char *path, unsigned int flags)
{
	return (int)syscall(SYS_open_tree, dir, path, flags);
}

static inline int move_mount(int from_dir, const char *from, int to_dir, const char *to,
			     unsigned int flags)
{
	return (int)syscall(SYS_move_mount, from_dir, from, to_dir, to, flags);
}

#endif

#endif
