/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * libtirpc, which brings the libraries of Kerberos: loaded when the first reserved port is bound.
 * Include this in place of its headers.
 */
#ifndef NET_TIRPC_H
#define NET_TIRPC_H

#include <rpc/rpc.h>

#include "base/library.h"

/* Needed before any other function. Errors as library_load(). Any thread. */
int libtirpc_load(struct error *err);

#ifdef WITH_DLOPEN

#define LIBTIRPC_FUNCTIONS(each) each(bindresvport_sa)

struct libtirpc {
	LIBTIRPC_FUNCTIONS(LIBRARY_POINTER)
};

extern struct libtirpc libtirpc;

#define bindresvport_sa libtirpc.bindresvport_sa

#endif

#endif
