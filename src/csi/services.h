/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The services of CSI except the node's (node/node.h), as protobuf-c service vtables. The
 * closure_data of a method is a struct request (base/request.h), which takes its error. Methods for
 * which csi_is_quick() is true never block and may run on the loop thread; all others run on
 * workers.
 */
#ifndef CSI_SERVICES_H
#define CSI_SERVICES_H

#include <stdbool.h>

#include "csi.pb-c.h"
#include "csi/driver.h"

struct csi_identity {
	Csi__V1__Identity_Service service;
	const char *name; /* of the driver */
	const char *version;
};

/* Fill in a service. The other arguments are borrowed for as long as the service is used. */
void csi_identity_init(struct csi_identity *s, const char *name, const char *version);
void csi_controller_init(struct csi_controller *s, const struct csi_driver *driver);

/* Services that NFS cannot offer: methods answer UNIMPLEMENTED, or an empty list. */
void csi_group_controller_init(Csi__V1__GroupController_Service *s);
void csi_snapshot_metadata_init(Csi__V1__SnapshotMetadata_Service *s);

bool csi_is_quick(const char *method);

/* Return the number of calls of a method that may be held at a time; see grpc/call.h. */
unsigned int csi_hold_max(const char *method);

#endif
