/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A test of the libnfs that the loader found, at start. The decoders of net/zdr.h stand on a few of
 * libnfs's functions and on the fields of its ZDR; requests stand on its encoders and on the
 * structs of its headers. A libnfs in which they differ, or whose reads do not stop at the end of a
 * message, would go unnoticed until a broken or hostile server finds out.
 */
#ifndef NFS_LIBNFS_H
#define NFS_LIBNFS_H

#include "base/error.h"

/*
 * Encode and decode known messages, whole and too short ones. Any thread; takes microseconds, but a
 * wrong libnfs may crash: library_try() keeps that from the process. Returns 0, or -EPROTO with
 * INTERNAL, and what is wrong.
 */
int nfs_libnfs_check(struct error *err);

#endif
