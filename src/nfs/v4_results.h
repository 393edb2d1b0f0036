/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Results of NFSv4.0 (RFC 7530), decoded into libnfs's types; see net/zdr.h. Only of the operations
 * that are used. Internal to version 4.
 */
#ifndef NFS_V4_RESULTS_H
#define NFS_V4_RESULTS_H

#include <nfsc/libnfs-zdr.h>
/* After libnfs-zdr.h, whose types it uses. */
#include <nfsc/libnfs-raw-nfs4.h>

/* Decode one result, its number first, into zeroed memory. */
bool_t v4_take_nfs_resop4(ZDR *zdr, nfs_resop4 *ret);

#endif
