/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Asks which servers can be reached, several at a time: one that is down takes seconds to ask, and
 * a call that goes over many servers would add them up. Worker threads; blocks.
 */
#ifndef CSI_REACH_H
#define CSI_REACH_H

#include <stdbool.h>
#include <stddef.h>

#include "nfs/pool.h"

/*
 * Servers that are asked at a time, by all calls together. Each takes a place of the breaker like a
 * call; these leave one busy server all of its own.
 */
#define REACH_AT_ONCE 24

struct reach {
	const struct nfs_export *export; /* borrowed */
	bool is_away; /* the server cannot be reached, for err */
	struct error err;
};

/*
 * Reach the exports of the list, each on a server of its own, and set is_away and err. Threads are
 * started for that; where they cannot be, it takes longer. Blocks as nfs_pool_lease(), once for
 * REACH_AT_ONCE servers.
 */
void reach_servers(struct nfs_pool *pool, struct reach *list, size_t n);

#endif
