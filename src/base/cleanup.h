/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Variables that release what they own at the end of their scope. Initialize a cleanup variable
 * where it is declared, and give it away only by steal_ptr() or steal_fd(), which empty it.
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Define cleanup_ptr_<name>() for the cleanup attribute. It calls free_function and keeps errno. */
#define DEFINE_CLEANUP(name, type, free_function)                                                  \
	static inline void cleanup_ptr_##name(type *p)                                             \
	{                                                                                          \
		int saved = errno;                                                                 \
		free_function(*p);                                                                 \
		errno = saved;                                                                     \
	}

static inline void cleanup_ptr_free(void *p)
{
	int saved = errno;

	free(*(void **)p);
	errno = saved;
}

/* Don't retry close(): on Linux the descriptor is closed even after EINTR. */
static inline void cleanup_ptr_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -EBADF;
	errno = saved;
}

#define cleanup_free __attribute__((cleanup(cleanup_ptr_free)))
#define cleanup_close __attribute__((cleanup(cleanup_ptr_close)))

#define steal_ptr(p)                                                                               \
	({                                                                                         \
		__typeof__(*(p)) steal_value = *(p);                                               \
		*(p) = NULL;                                                                       \
		steal_value;                                                                       \
	})

static inline int steal_fd(int *fd)
{
	int value = *fd;

	*fd = -EBADF;
	return value;
}

#endif
