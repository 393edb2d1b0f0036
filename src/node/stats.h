/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * NodeGetVolumeStats, and what it remembers: how full each volume was when it was last looked at. For a
 * few seconds that is the answer itself; after that it is what is told of a mount that does not
 * answer, beside a condition that says so. Any thread; node_stats_reply() blocks for some seconds at
 * most.
 */
#ifndef NODE_STATS_H
#define NODE_STATS_H

#include "node/node.h"

#define STATS_FRESH_MS 5000
#define STATS_FORGET_S 900 /* kubelet asks every minute */
#define STATS_MAX                                                                                  \
	4096 /* volumes that are remembered; further ones are looked at and not remembered */

struct node_stats;

/* Returns 0 or -ENOMEM. The caller frees. */
int node_stats_new(struct node_stats **ret);
void node_stats_free(struct node_stats *s);

/* Forgets volumes that nobody asks about any more. */
void node_stats_sweep(struct node_stats *s);

void node_node_get_volume_stats(Csi__V1__Node_Service *service,
				const Csi__V1__NodeGetVolumeStatsRequest *in,
				Csi__V1__NodeGetVolumeStatsResponse_Closure closure, void *data);

#endif
