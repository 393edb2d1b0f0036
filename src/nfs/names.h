/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The names that a listing of a directory has given, so that each is given once: servers list a name again
 * that was removed and made meanwhile, and begin again where they have lost their place (-ERESTART of
 * READDIR). Kept as hashes of 64 bits with a key of chance: two of a hundred thousand names are taken for one
 * in one of a billion directories, and nobody can choose such names. One thread at a time.
 */
#ifndef NFS_NAMES_H
#define NFS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nfs_names {
	uint64_t *slots; /* an open table of hashes; 0: free */
	size_t n, size; /* size is a power of two */
	uint64_t key;
};

/* 1: it is new; 0: it was there already; or -ENOMEM. */
int nfs_names_add(struct nfs_names *names, const char *name);

/* It has not been given after all. */
void nfs_names_forget(struct nfs_names *names, const char *name);

void nfs_names_done(struct nfs_names *names);

#endif
