/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What a server's refusal means: an errno for callers, a code and advice for people. Any thread.
 */
#ifndef NFS_ERROR_H
#define NFS_ERROR_H

#include "base/error.h"

struct nfs_client;
struct nfs_export;

/* Advice for servers that send owners by name. */
#define NFS_OWNER_HINT                                                                             \
	"have it number owners (nfs-ganesha: Only_Numeric_Owners = true; Linux: nfs4_disable_idmapping of nfsd), or use vers=3"

/* Map an nfsstat3 or nfsstat4, which share their numbers, to a negative errno; 0: success. */
int nfs_status_errno(unsigned int status);

/* Map an operation's errno to the code for the CO. */
enum error_code nfs_error_code(int error);

/* Report that the server does not answer. Returns -EHOSTDOWN. */
int nfs_silent_error(struct error *err, const struct nfs_export *e);

/*
 * Report a failed operation as "<what> on <server>:<share>: <reason and what to do>", where fmt
 * gives what, like "mkdir 'pvc-1'". Returns error.
 */
int nfs_error_set(struct error *err, const struct nfs_client *c, int error, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
