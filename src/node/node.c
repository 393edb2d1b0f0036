/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "node/node.h"

#include "base/str.h"
#include "csi/unimplemented.h"

static void node_get_info(Csi__V1__Node_Service *s, const Csi__V1__NodeGetInfoRequest *in,
			  Csi__V1__NodeGetInfoResponse_Closure closure, void *data)
{
	Csi__V1__NodeGetInfoResponse out = CSI__V1__NODE_GET_INFO_RESPONSE__INIT;

	(void)in;
	out.node_id = (char *)(uintptr_t)node_driver_of(s)->node_id; /* packed, not changed */
	closure(&out, data);
}

#define CAPABILITY(name) CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__##name

static const Csi__V1__NodeServiceCapability__RPC__Type capabilities[] = {
	CAPABILITY(GET_VOLUME_STATS),
	CAPABILITY(VOLUME_CONDITION),
	CAPABILITY(SINGLE_NODE_MULTI_WRITER),
};

static void node_get_capabilities(Csi__V1__Node_Service *s,
				  const Csi__V1__NodeGetCapabilitiesRequest *in,
				  Csi__V1__NodeGetCapabilitiesResponse_Closure closure, void *data)
{
	Csi__V1__NodeServiceCapability__RPC rpcs[ARRAY_SIZE(capabilities)];
	Csi__V1__NodeServiceCapability entries[ARRAY_SIZE(capabilities)];
	Csi__V1__NodeServiceCapability *list[ARRAY_SIZE(capabilities)];
	Csi__V1__NodeGetCapabilitiesResponse out = CSI__V1__NODE_GET_CAPABILITIES_RESPONSE__INIT;
	size_t i;

	(void)s;
	(void)in;
	for (i = 0; i < ARRAY_SIZE(capabilities); i++) {
		csi__v1__node_service_capability__rpc__init(&rpcs[i]);
		csi__v1__node_service_capability__init(&entries[i]);
		rpcs[i].type = capabilities[i];
		entries[i].type_case = CSI__V1__NODE_SERVICE_CAPABILITY__TYPE_RPC;
		entries[i].rpc = &rpcs[i];
		list[i] = &entries[i];
	}
	out.capabilities = list;
	out.n_capabilities = ARRAY_SIZE(list);
	closure(&out, data);
}

#define NO_STAGE "NFS volumes are mounted by NodePublishVolume"
#define NO_EXPAND "an NFS volume grows without any work on the node"

UNIMPLEMENTED(Node, node, stage_volume, NodeStageVolume, NO_STAGE)
UNIMPLEMENTED(Node, node, unstage_volume, NodeUnstageVolume, NO_STAGE)
UNIMPLEMENTED(Node, node, expand_volume, NodeExpandVolume, NO_EXPAND)

void node_service_init(struct node_service *s, const struct node_driver *driver)
{
	/* The macro's method names start with "node_": they need no prefix. */
	const Csi__V1__Node_Service methods = CSI__V1__NODE__INIT();

	s->service = methods;
	s->driver = driver;
}
