/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Results of NFSv3 and of MOUNT (RFC 1813), decoded into libnfs's types; see net/zdr.h. Failed
 * results are decoded in full, too, so that a reply is either read as a whole or refused. Decoders
 * are given zeroed results. Internal to version 3, but for the list of exports.
 */
#ifndef NFS_V3_RESULTS_H
#define NFS_V3_RESULTS_H

#include <nfsc/libnfs-zdr.h>
/* After libnfs-zdr.h, whose types they use. */
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

bool_t v3_take_GETATTR3res(ZDR *zdr, GETATTR3res *ret);
bool_t v3_take_SETATTR3res(ZDR *zdr, SETATTR3res *ret);
bool_t v3_take_LOOKUP3res(ZDR *zdr, LOOKUP3res *ret);
bool_t v3_take_READLINK3res(ZDR *zdr, READLINK3res *ret);
bool_t v3_take_READ3res(ZDR *zdr, READ3res *ret);
bool_t v3_take_WRITE3res(ZDR *zdr, WRITE3res *ret);
bool_t v3_take_CREATE3res(ZDR *zdr, CREATE3res *ret);
bool_t v3_take_MKDIR3res(ZDR *zdr, MKDIR3res *ret);
bool_t v3_take_SYMLINK3res(ZDR *zdr, SYMLINK3res *ret);
bool_t v3_take_MKNOD3res(ZDR *zdr, MKNOD3res *ret);
bool_t v3_take_REMOVE3res(ZDR *zdr, REMOVE3res *ret);
bool_t v3_take_RMDIR3res(ZDR *zdr, RMDIR3res *ret);
bool_t v3_take_RENAME3res(ZDR *zdr, RENAME3res *ret);
bool_t v3_take_LINK3res(ZDR *zdr, LINK3res *ret);
bool_t v3_take_READDIR3res(ZDR *zdr, READDIR3res *ret);
bool_t v3_take_READDIRPLUS3res(ZDR *zdr, READDIRPLUS3res *ret);
bool_t v3_take_FSSTAT3res(ZDR *zdr, FSSTAT3res *ret);
bool_t v3_take_FSINFO3res(ZDR *zdr, FSINFO3res *ret);
bool_t v3_take_COMMIT3res(ZDR *zdr, COMMIT3res *ret);

bool_t v3_take_mountres3(ZDR *zdr, mountres3 *ret);
bool_t v3_take_exports(ZDR *zdr, exports *ret);

#endif
