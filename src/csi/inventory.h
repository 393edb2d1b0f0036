/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Controller methods about what is there: volumes, their condition, size and settings, and room for more. They
 * are part of the service that csi/controller.c makes. Worker threads; block.
 */
#ifndef CSI_INVENTORY_H
#define CSI_INVENTORY_H

#include "csi/services.h"

/* Free space of the share in the parameters, else of the default share; 0 where there is neither. */
void controller_get_capacity(Csi__V1__Controller_Service *service,
			     const Csi__V1__GetCapacityRequest *in,
			     Csi__V1__GetCapacityResponse_Closure closure, void *data);

/* One volume and its condition. A server that is not reached is a condition, not an error. */
void controller_controller_get_volume(Csi__V1__Controller_Service *service,
				      const Csi__V1__ControllerGetVolumeRequest *in,
				      Csi__V1__ControllerGetVolumeResponse_Closure closure,
				      void *data);

/* The recorded size, exact. NFS has nothing to grow: nodes need do nothing. */
void controller_controller_expand_volume(Csi__V1__Controller_Service *service,
					 const Csi__V1__ControllerExpandVolumeRequest *in,
					 Csi__V1__ControllerExpandVolumeResponse_Closure closure,
					 void *data);

/* Settings of a volume that may change during its life: all that are given, or none. */
void controller_controller_modify_volume(Csi__V1__Controller_Service *service,
					 const Csi__V1__ControllerModifyVolumeRequest *in,
					 Csi__V1__ControllerModifyVolumeResponse_Closure closure,
					 void *data);

#endif
