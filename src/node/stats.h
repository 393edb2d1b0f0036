/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The memory of NodeGetVolumeStats: the last known usage of each volume. For a few seconds it is
 * the answer itself. Later it is reported for a mount that does not answer, together with a
 * condition that says so. Any thread; none of these functions blocks.
 */
#ifndef NODE_STATS_H
#define NODE_STATS_H

#define NODE_STATS_FRESH_MS 5000
#define NODE_STATS_FORGET_S 900 /* kubelet asks every minute */
#define NODE_STATS_MAX 4096 /* volumes that are remembered; the rest are looked at each time */

struct node_stats;

/* Returns 0 or -ENOMEM. The caller frees. */
int node_stats_new(struct node_stats **ret);
void node_stats_free(struct node_stats *s);

/* Drop volumes that have not been asked about for NODE_STATS_FORGET_S. */
void node_stats_sweep(struct node_stats *s);

#endif
