/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/services.h"
#include "csi/unimplemented.h"

#define NO_GROUPS "NFS cannot snapshot several volumes at one point in time"
#define NO_BLOCKS "NFS volumes have files, not blocks"

/* Answer although the service is not advertised: csi-snapshotter asks and fails on an error. */
static void group_group_controller_get_capabilities(
	Csi__V1__GroupController_Service *service,
	const Csi__V1__GroupControllerGetCapabilitiesRequest *in,
	Csi__V1__GroupControllerGetCapabilitiesResponse_Closure closure, void *data)
{
	const Csi__V1__GroupControllerGetCapabilitiesResponse out =
		CSI__V1__GROUP_CONTROLLER_GET_CAPABILITIES_RESPONSE__INIT;

	(void)service;
	(void)in;
	closure(&out, data);
}

UNIMPLEMENTED(GroupController, group, create_volume_group_snapshot, CreateVolumeGroupSnapshot,
	      NO_GROUPS)
UNIMPLEMENTED(GroupController, group, delete_volume_group_snapshot, DeleteVolumeGroupSnapshot,
	      NO_GROUPS)
UNIMPLEMENTED(GroupController, group, get_volume_group_snapshot, GetVolumeGroupSnapshot, NO_GROUPS)

void csi_group_controller_init(Csi__V1__GroupController_Service *s)
{
	const Csi__V1__GroupController_Service methods = CSI__V1__GROUP_CONTROLLER__INIT(group_);

	*s = methods;
}

UNIMPLEMENTED(SnapshotMetadata, metadata, get_metadata_allocated, GetMetadataAllocated, NO_BLOCKS)
UNIMPLEMENTED(SnapshotMetadata, metadata, get_metadata_delta, GetMetadataDelta, NO_BLOCKS)

void csi_snapshot_metadata_init(Csi__V1__SnapshotMetadata_Service *s)
{
	const Csi__V1__SnapshotMetadata_Service methods =
		CSI__V1__SNAPSHOT_METADATA__INIT(metadata_);

	*s = methods;
}
