/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The names that a listing of a directory has given, for when a server has it begin again (-ERESTART of
 * READDIR): each is then given once. Kept as hashes of 64 bits: two of a hundred thousand names are the
 * same to it once in a billion directories, and only in one that is begun again. Any thread.
 */
#ifndef NFS_NAMES_H
#define NFS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nfs_names {
	uint64_t *hashes;
	size_t n, cap;
	size_t n_sorted; /* of them, from the start: those that has() knows */
};

/* 0 or -ENOMEM. */
int nfs_names_add(struct nfs_names *names, const char *name);

/* Of one that was added, most likely last. */
void nfs_names_forget(struct nfs_names *names, const char *name);

/* The directory begins again: has() knows those that were added until now. */
void nfs_names_begin_again(struct nfs_names *names);
bool nfs_names_has(const struct nfs_names *names, const char *name);

void nfs_names_done(struct nfs_names *names);

#endif
