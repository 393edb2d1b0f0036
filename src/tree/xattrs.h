/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Extended attributes of a file or directory, on their way from the source of a tree to its sink. A
 * set is reference-counted, not atomically: all users are on one thread. An attribute that cannot
 * be kept is counted as lost, and the copy goes on.
 */
#ifndef TREE_XATTRS_H
#define TREE_XATTRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tree_work;

/*
 * Bytes of all names and values of one entry, names counted three times. libarchive refuses an
 * entry of a tar whose headers take more than 1 MiB, in which names may take three times their
 * length.
 */
#define TREE_XATTRS_MAX (512U * 1024)

/* Prefix of names on Linux and in archives. NFS has only this namespace, and omits the prefix. */
#define TREE_XATTR_USER "user."

struct tree_xattr {
	char *name; /* without the "user." of Linux */
	char *value; /* NULL: not read yet */
	uint32_t len; /* of the value */
};

struct tree_xattrs {
	unsigned int shares;
	size_t n;
	size_t bytes; /* of memory that names and values take */
	struct tree_xattr *items;
};

/* Create an empty set with one share, the caller's. NULL: no memory. */
struct tree_xattrs *tree_xattrs_new(void);
struct tree_xattrs *tree_xattrs_share(struct tree_xattrs *set);
void tree_xattrs_drop(struct tree_xattrs *set); /* accepts NULL */

/*
 * Add a name of len bytes. -E2BIG: the set is full. -EINVAL: no file system has such a name. Else 0
 * or -ENOMEM.
 */
int tree_xattrs_add(struct tree_xattrs *set, const char *name, size_t len);

/* Set the value of item i. Returns 0, -E2BIG if the set is full, or -ENOMEM. */
int tree_xattrs_set(struct tree_xattrs *set, size_t i, const void *value, size_t len);

/* Remove item i; the last one takes its place. */
void tree_xattrs_remove(struct tree_xattrs *set, size_t i);

/* Count n attributes that were lost because of this error. */
void tree_xattrs_lose(struct tree_work *work, uint64_t n, int error);

/*
 * Return whether an operation that failed with this error means the loss of an attribute: asking
 * again would not help. Other errors fail the file, as with its data. ENOSPC means either: the
 * builder asks for the space that is left.
 */
bool tree_xattrs_is_loss(int error);

#endif
