/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Owners by name: a version 4 server may send "alice@example.org" where another one sends "1000", and
 * takes the same text back. What number it stands for, only the server knows, so the text is kept. As
 * attributes are copied a lot, they have a small number for it: its place in a table of the process, which
 * only grows, to a limit. Any thread.
 */
#ifndef NFS_OWNER_H
#define NFS_OWNER_H

#include "nfs/op.h"

#define NFS_OWNERS_MAX 16384
#define NFS_OWNER_BYTES_MAX (1024 * 1024) /* of all of them */

/*
 * The number of a name; it is never 0. -EINVAL for what is no name: empty, longer than
 * NFS_OWNER_MAX, or with control characters. -EOVERFLOW when the table is full, -ENOMEM.
 */
int nfs_owner_intern(const char *name, size_t len, uint32_t *ret);

/* The text of a number that is not 0; it stays. */
const char *nfs_owner_name(uint32_t number);

/* Whether both stand for the same owner: name is 0 where there is only id, see struct nfs_attr. */
bool nfs_owner_is_same(uint32_t name, uint32_t id, uint32_t other_name, uint32_t other_id);

/*
 * Whether owners were set to somebody else than change says, as servers do with those that they don't
 * know: attr is what the server answered afterwards.
 */
bool nfs_owner_is_other(const struct nfs_change *change, const struct nfs_attr *attr);

#endif
