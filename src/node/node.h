/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The node service: publishes volumes by mounting them, and tells how full they are. Its methods get their
 * reply or their error through a struct request (base/request.h) as closure_data. Methods of which
 * csi_is_quick() is true never block and may run on the loop thread; all others run on workers.
 */
#ifndef NODE_NODE_H
#define NODE_NODE_H

#include <stdint.h>

#include "csi.pb-c.h"
#include "csi/locks.h"
#include "mount/mounter.h"
#include "node/published.h"

struct node_stats;

/* What the node's calls work with. Made by main.c, read-only afterwards, outlives every call. */
struct node_driver {
	const char *node_id;
	const char *server; /* default where the volume attributes give none; NULL: none */
	const char *share;
	uint32_t mount_permissions; /* default; 0: leave what the server gives */
	struct inflight *inflight;
	struct mounter *mounter;
	struct publications *publications;
	struct node_stats *stats;
	const char *inline_volumes; /* see node/inline.h; NULL: none */
};

struct node_service {
	Csi__V1__Node_Service service;
	const struct node_driver *driver;
};

/* Fills in the service; the driver is borrowed for as long as the service is used. */
void node_service_init(struct node_service *s, const struct node_driver *driver);

#endif
