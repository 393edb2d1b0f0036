/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/controller.h"

#include "base/str.h"
#include "csi/services.h"
#include "csi/unimplemented.h"

#define CAPABILITY(name) CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__##name

static const Csi__V1__ControllerServiceCapability__RPC__Type capabilities[] = {
	CAPABILITY(CREATE_DELETE_VOLUME),
	CAPABILITY(LIST_VOLUMES),
	CAPABILITY(GET_CAPACITY),
	CAPABILITY(EXPAND_VOLUME),
	CAPABILITY(GET_VOLUME),
	CAPABILITY(VOLUME_CONDITION),
	CAPABILITY(SINGLE_NODE_MULTI_WRITER),
	CAPABILITY(MODIFY_VOLUME),
	CAPABILITY(CLONE_VOLUME),
	CAPABILITY(CREATE_DELETE_SNAPSHOT),
	CAPABILITY(LIST_SNAPSHOTS),
	CAPABILITY(GET_SNAPSHOT), /* last: left out unless it is asked for */
};

static CONTROLLER_METHOD(controller_get_capabilities, ControllerGetCapabilities)
{
	Csi__V1__ControllerServiceCapability__RPC rpcs[ARRAY_SIZE(capabilities)];
	Csi__V1__ControllerServiceCapability entries[ARRAY_SIZE(capabilities)];
	Csi__V1__ControllerServiceCapability *list[ARRAY_SIZE(capabilities)];
	Csi__V1__ControllerGetCapabilitiesResponse out =
		CSI__V1__CONTROLLER_GET_CAPABILITIES_RESPONSE__INIT;
	size_t n = ARRAY_SIZE(capabilities), i;

	(void)in;
	if (!csi_driver_of(service)->get_snapshot)
		n--;
	for (i = 0; i < n; i++) {
		csi__v1__controller_service_capability__rpc__init(&rpcs[i]);
		csi__v1__controller_service_capability__init(&entries[i]);
		rpcs[i].type = capabilities[i];
		entries[i].type_case = CSI__V1__CONTROLLER_SERVICE_CAPABILITY__TYPE_RPC;
		entries[i].rpc = &rpcs[i];
		list[i] = &entries[i];
	}
	out.capabilities = list;
	out.n_capabilities = n;
	closure(&out, data);
}

#define NO_ATTACH "NFS volumes are not attached to nodes"

UNIMPLEMENTED(Controller, controller, controller_publish_volume, ControllerPublishVolume, NO_ATTACH)
UNIMPLEMENTED(Controller, controller, controller_unpublish_volume, ControllerUnpublishVolume,
	      NO_ATTACH)

void csi_controller_init(struct csi_controller *s, const struct csi_driver *driver)
{
	const Csi__V1__Controller_Service methods = CSI__V1__CONTROLLER__INIT(controller_);

	s->service = methods;
	s->driver = driver;
}
