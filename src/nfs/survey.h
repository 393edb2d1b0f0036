/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What a server offers, beyond what a client of one export has to know: for people who look for
 * what is wrong. Each call makes a connection of its own and blocks for NFS_SURVEY_TIMEOUT_MS and
 * the time to connect.
 */
#ifndef NFS_SURVEY_H
#define NFS_SURVEY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "net/ping.h"
#include "nfs/export.h"

#define NFS_SURVEY_TIMEOUT_MS 3000
#define NFS_MINORS 3 /* 4.0, 4.1 and 4.2 */

/* More than that are counted, not kept. */
#define NFS_LISTED_MAX 512

/* One line of what showmount -e prints. */
struct nfs_listed {
	char *path;
	struct strv clients; /* as the server writes them; none: everybody */
};

struct nfs_listing {
	struct nfs_listed *items;
	size_t n;
	size_t more; /* that were not kept */
};

/* Which minor versions of NFSv4 the server has, at its NFS port. Returns 0 or a negative errno. */
int nfs_survey_minors(const struct net_address *address, uint16_t port, const struct nfs_export *e,
		      bool ret[NFS_MINORS]);

/* The exports that the mount service at port tells of. Returns 0 or a negative errno. */
int nfs_survey_exports(const struct net_address *address, uint16_t port, const struct nfs_export *e,
		       struct nfs_listing *ret);

void nfs_listing_done(struct nfs_listing *l);
#define cleanup_nfs_listing __attribute__((cleanup(nfs_listing_done)))

#endif
