/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Features of a server that only "csi-nfs check" needs, for its diagnosis. Each call makes its own
 * connection, and blocks for the time to connect and NFS_SURVEY_TIMEOUT_MS per question. Any
 * thread.
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

/* Exports beyond this are counted, not kept. */
#define NFS_LISTED_MAX 512

/* A line of showmount -e. */
struct nfs_listed {
	char *path;
	struct strv clients; /* as the server writes them; none: everyone */
};

struct nfs_listing {
	struct nfs_listed *items;
	size_t n;
	size_t more; /* exports that were not kept */
};

/* Find out which minor versions of NFSv4 the server has. Returns 0 or a negative errno. */
int nfs_survey_minors(const struct net_address *address, uint16_t port, const struct nfs_export *e,
		      bool ret[NFS_MINORS]);

/* List the exports from the mount service at port. Returns 0 or a negative errno. */
int nfs_survey_exports(const struct net_address *address, uint16_t port, const struct nfs_export *e,
		       struct nfs_listing *ret);

void nfs_listing_done(struct nfs_listing *l);
#define cleanup_nfs_listing __attribute__((cleanup(nfs_listing_done)))

#endif
