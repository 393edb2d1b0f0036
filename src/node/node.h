/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The node service: publish volumes by mounting them, and report their usage. The methods follow
 * base/request.h: closure_data is a struct request, which receives the error. Methods for which
 * csi_is_quick() is true never block and may run on the loop thread; all others run on workers.
 */
#ifndef NODE_NODE_H
#define NODE_NODE_H

#include <stdint.h>

#include "base/list.h"
#include "csi.pb-c.h"
#include "csi/locks.h"
#include "mount/mounter.h"

struct node_stats;

/* Shared by all handlers. Filled in by main.c, then read-only; must outlive every call. */
struct node_driver {
	const char *node_id;
	const char *server; /* default if the volume attributes name none; may be NULL */
	const char *share; /* likewise */
	uint32_t mount_permissions; /* default; 0: keep the mode that the server reports */
	struct key_locks *key_locks;
	struct mounter *mounter;
	const char *state_dir; /* see node/published.h */
	struct node_stats *stats;
	const char *inline_volumes; /* see node/inline.h; NULL: none are allowed */
};

struct node_service {
	Csi__V1__Node_Service service;
	const struct node_driver *driver;
};

/* Fill in the service. It borrows the driver for as long as it is used. */
void node_service_init(struct node_service *s, const struct node_driver *driver);

static inline const struct node_driver *node_driver_of(Csi__V1__Node_Service *s)
{
	return container_of(s, struct node_service, service)->driver;
}

/* Handlers that have a file of their own. Workers only. */

void node_publish_volume(Csi__V1__Node_Service *s, const Csi__V1__NodePublishVolumeRequest *in,
			 Csi__V1__NodePublishVolumeResponse_Closure closure, void *data);

void node_unpublish_volume(Csi__V1__Node_Service *s, const Csi__V1__NodeUnpublishVolumeRequest *in,
			   Csi__V1__NodeUnpublishVolumeResponse_Closure closure, void *data);

void node_get_volume_stats(Csi__V1__Node_Service *s, const Csi__V1__NodeGetVolumeStatsRequest *in,
			   Csi__V1__NodeGetVolumeStatsResponse_Closure closure, void *data);

#endif
