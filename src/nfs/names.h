/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A set of names in a directory. A listing keeps those that it has returned, so that each is
 * returned once: servers repeat a name that was removed and created again during the listing, and
 * start over when they lose their place (-ERESTART of READDIR). Takes some 16 bytes a name, since
 * it stores 64-bit hashes with a random key: in a directory of 100,000 names, two collide with a
 * probability of about one in a billion. A name that collides would be missing from copies, and
 * pods choose names, so the hash is one for which nobody can find such names without the key. One
 * thread at a time.
 */
#ifndef NFS_NAMES_H
#define NFS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nfs_names {
	uint64_t *slots; /* hash table with open addressing; 0: free */
	size_t n, size; /* size is a power of two */
	uint64_t key[2];
};

/* SipHash-2-4 (Aumasson and Bernstein, 2012). */
uint64_t nfs_names_hash(const uint64_t key[2], const char *name, size_t len);

/* Add a name. Returns 1 if it is new, 0 if it was there already, or -ENOMEM or another errno. */
int nfs_names_add(struct nfs_names *names, const char *name);

bool nfs_names_has(const struct nfs_names *names, const char *name);

/* Remove a name that was not returned after all. */
void nfs_names_forget(struct nfs_names *names, const char *name);

void nfs_names_done(struct nfs_names *names);

#endif
