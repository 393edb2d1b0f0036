/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * ListVolumes: what has a record on the default share and on every share that this process has worked
 * on, ordered by server, share and key. A page ends with a token that names the last volume on it, so
 * the next one goes on behind that place, whatever was deleted or made meanwhile. Worker threads;
 * blocks. A server that is not reached is left out, and the log says so, unless all are.
 */
#ifndef CSI_LIST_VOLUMES_H
#define CSI_LIST_VOLUMES_H

#include "csi/services.h"

void controller_list_volumes(Csi__V1__Controller_Service *service,
			     const Csi__V1__ListVolumesRequest *in,
			     Csi__V1__ListVolumesResponse_Closure closure, void *data);

#endif
