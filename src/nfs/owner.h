/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Owners by name: a version 4 server may send "alice@example.org" instead of "1000", and takes the
 * same text back. Only the server knows the uid behind it, so keep the text. Attributes are copied
 * often, so they hold a small number instead: the name's index in a table of the process, which
 * only grows, up to NFS_OWNERS_MAX names and NFS_OWNER_BYTES_MAX. A server can fill a quarter of
 * it, so that the others have room, and cannot choose names that make it slow. Any thread.
 */
#ifndef NFS_OWNER_H
#define NFS_OWNER_H

#include "nfs/op.h"

#define NFS_OWNERS_MAX 16384
#define NFS_OWNER_BYTES_MAX (1024 * 1024) /* all names together */

/*
 * Get the number of a name, which is never 0. server sent it; NULL: an archive has it, and all
 * archives count as one server. Returns 0; -EINVAL for a bad name: empty, longer than
 * NFS_OWNER_MAX, or with control characters; -EOVERFLOW if the table is full or the server has its
 * quarter; -ENOMEM; or an error of getrandom(2).
 */
int nfs_owner_intern_of(const char *server, const char *name, size_t len, uint32_t *ret);

static inline int nfs_owner_intern(const char *name, size_t len, uint32_t *ret)
{
	return nfs_owner_intern_of(NULL, name, len, ret);
}

/* Get the name of a number that is not 0. It lives as long as the process. */
const char *nfs_owner_name(uint32_t number);

/* Check whether both are the same owner. name 0: known by id only, see struct nfs_attr. */
bool nfs_owner_is_same(uint32_t name, uint32_t id, uint32_t other_name, uint32_t other_id);

/*
 * Check whether the server set another owner than change asks for, as servers do with owners that
 * they do not know or cannot keep. attr: the attributes after the change; without an owner in them,
 * nothing is known and the result is false.
 */
bool nfs_owner_is_other(const struct nfs_change *change, const struct nfs_attr *attr);

#endif
