/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Methods that csi-nfs does not implement. For the files that define services. */
#ifndef CSI_UNIMPLEMENTED_H
#define CSI_UNIMPLEMENTED_H

#include "base/request.h"

/*
 * Define <prefix>_<method>() for a method of a service: it answers UNIMPLEMENTED with the reason. A
 * CO does not call it again (CSI specification, "Error Scheme").
 */
#define UNIMPLEMENTED(Service, prefix, method, Message, why)                                       \
	static void prefix##_##method(Csi__V1__##Service##_Service *service,                       \
				      const Csi__V1__##Message##Request *in,                       \
				      Csi__V1__##Message##Response_Closure closure, void *data)    \
	{                                                                                          \
		struct request *req = data;                                                        \
                                                                                                   \
		(void)service;                                                                     \
		(void)in;                                                                          \
		(void)error_set(&req->err, ERROR_UNIMPLEMENTED, #Message ": " why);                \
		closure(NULL, data);                                                               \
	}

#endif
