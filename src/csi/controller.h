/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The methods of the controller service, each in a file of its own. The closure_data of a method is
 * a struct request (base/request.h), which takes its error. Worker threads, except
 * controller_controller_get_capabilities(), which never blocks.
 */
#ifndef CSI_CONTROLLER_H
#define CSI_CONTROLLER_H

#include "base/request.h"
#include "csi.pb-c.h"
#include "csi/driver.h"

#define CONTROLLER_METHOD(method, Message)                                                         \
	void controller_##method(Csi__V1__Controller_Service *service,                             \
				 const Csi__V1__##Message##Request *in,                            \
				 Csi__V1__##Message##Response_Closure closure, void *data)

CONTROLLER_METHOD(create_volume, CreateVolume);
CONTROLLER_METHOD(delete_volume, DeleteVolume);
CONTROLLER_METHOD(validate_volume_capabilities, ValidateVolumeCapabilities);
CONTROLLER_METHOD(list_volumes, ListVolumes);
CONTROLLER_METHOD(get_capacity, GetCapacity);
CONTROLLER_METHOD(controller_get_volume, ControllerGetVolume);
CONTROLLER_METHOD(controller_expand_volume, ControllerExpandVolume);
CONTROLLER_METHOD(controller_modify_volume, ControllerModifyVolume);
CONTROLLER_METHOD(create_snapshot, CreateSnapshot);
CONTROLLER_METHOD(delete_snapshot, DeleteSnapshot);
CONTROLLER_METHOD(list_snapshots, ListSnapshots);
CONTROLLER_METHOD(get_snapshot, GetSnapshot);

#endif
