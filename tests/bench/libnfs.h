/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A client on libnfs's own RPC engine, driven as libnfs's headers say: poll(2) and rpc_service().
 * bare reports it as "bare libnfs". NFSv3 only, with the operations that bare needs; others fail
 * with -EOPNOTSUPP.
 */
#ifndef BENCH_LIBNFS_H
#define BENCH_LIBNFS_H

#include "nfs/client.h"

/*
 * As nfs_client_connect(), which finds the root of the export and the limits of the server for it.
 * FAILED_PRECONDITION where the export does not ask for version 3. The caller frees.
 */
int libnfs_client_connect(struct nfs_client **ret, const struct nfs_export *e, struct error *err);

#endif
