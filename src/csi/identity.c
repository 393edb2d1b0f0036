/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <string.h>

#include "base/list.h"
#include "base/str.h"
#include "csi/services.h"

static void identity_get_plugin_info(Csi__V1__Identity_Service *service,
				     const Csi__V1__GetPluginInfoRequest *in,
				     Csi__V1__GetPluginInfoResponse_Closure closure, void *data)
{
	Csi__V1__GetPluginInfoResponse out = CSI__V1__GET_PLUGIN_INFO_RESPONSE__INIT;
	const struct csi_identity *s = container_of(service, struct csi_identity, service);

	(void)in;
	out.name = (char *)(uintptr_t)s->name; /* only read while it is packed */
	out.vendor_version = (char *)(uintptr_t)s->version;
	closure(&out, data);
}

/* Don't depend on the mode: all instances of a version must agree (CSI specification). */
static void identity_get_plugin_capabilities(Csi__V1__Identity_Service *service,
					     const Csi__V1__GetPluginCapabilitiesRequest *in,
					     Csi__V1__GetPluginCapabilitiesResponse_Closure closure,
					     void *data)
{
	Csi__V1__PluginCapability__Service controller = CSI__V1__PLUGIN_CAPABILITY__SERVICE__INIT;
	Csi__V1__PluginCapability__VolumeExpansion expansion =
		CSI__V1__PLUGIN_CAPABILITY__VOLUME_EXPANSION__INIT;
	Csi__V1__PluginCapability first = CSI__V1__PLUGIN_CAPABILITY__INIT, second = first;
	Csi__V1__PluginCapability *list[] = { &first, &second };
	Csi__V1__GetPluginCapabilitiesResponse out =
		CSI__V1__GET_PLUGIN_CAPABILITIES_RESPONSE__INIT;

	(void)service;
	(void)in;
	controller.type = CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE;
	first.type_case = CSI__V1__PLUGIN_CAPABILITY__TYPE_SERVICE;
	first.service = &controller;
	expansion.type = CSI__V1__PLUGIN_CAPABILITY__VOLUME_EXPANSION__TYPE__ONLINE;
	second.type_case = CSI__V1__PLUGIN_CAPABILITY__TYPE_VOLUME_EXPANSION;
	second.volume_expansion = &expansion;
	out.capabilities = list;
	out.n_capabilities = ARRAY_SIZE(list);
	closure(&out, data);
}

/* Always ready: if it depended on a server, an outage would restart every pod of the driver. */
static void identity_probe(Csi__V1__Identity_Service *service, const Csi__V1__ProbeRequest *in,
			   Csi__V1__ProbeResponse_Closure closure, void *data)
{
	Google__Protobuf__BoolValue ready = GOOGLE__PROTOBUF__BOOL_VALUE__INIT;
	Csi__V1__ProbeResponse out = CSI__V1__PROBE_RESPONSE__INIT;

	(void)service;
	(void)in;
	ready.value = 1;
	out.ready = &ready;
	closure(&out, data);
}

void csi_identity_init(struct csi_identity *s, const char *name, const char *version)
{
	const Csi__V1__Identity_Service methods = CSI__V1__IDENTITY__INIT(identity_);

	s->service = methods;
	s->name = name;
	s->version = version;
}

bool csi_is_quick(const char *method)
{
	static const char *const quick[] = {
		"GetPluginInfo",
		"GetPluginCapabilities",
		"Probe",
		"ControllerGetCapabilities",
		"NodeGetCapabilities",
		"NodeGetInfo",
		"GroupControllerGetCapabilities",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(quick); i++)
		if (strcmp(method, quick[i]) == 0)
			return true;
	return false;
}

/*
 * Hold fewer calls than the sidecars make at a time, so that some stay for calls that need not
 * wait: csi-provisioner has 100 workers each for creations and deletions, csi-resizer 10 each for
 * two methods, and csi-snapshotter 10 for creations and deletions together. Calls that only report
 * are not held for a server that is down: their caller wants to know now. Nor is NodePublishVolume:
 * kubelet runs one operation on a volume at a time, so the deletion of a pod would wait for it.
 */
unsigned int csi_hold_max(const char *method)
{
	static const struct {
		const char *method;
		unsigned int max;
	} held[] = {
		{ "CreateVolume", 80 },          { "DeleteVolume", 80 },
		{ "ControllerExpandVolume", 6 }, { "ControllerModifyVolume", 6 },
		{ "CreateSnapshot", 4 },         { "DeleteSnapshot", 4 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(held); i++)
		if (strcmp(method, held[i].method) == 0)
			return held[i].max;
	return 0;
}
