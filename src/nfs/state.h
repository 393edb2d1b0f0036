/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The driver's own folder on a share:
 *
 *   .csi-nfs/            mode 0700
 *     volumes/           one record per volume, see nfs/record.h
 *     parents/           one symbolic link per parent directory that csi-nfs made for a subDir
 *     trash/             deleted directories that are being purged
 *
 * Handles of the folders are kept in the client, since every call needs them; one that the server
 * no longer knows (-ESTALE) is looked up anew by the next call. Same thread rules as
 * nfs/client.h.
 */
#ifndef NFS_STATE_H
#define NFS_STATE_H

#include "nfs/client.h"

enum nfs_folder {
	NFS_FOLDER_VOLUMES,
	NFS_FOLDER_PARENTS,
	NFS_FOLDER_TRASH,
};

/*
 * The handle of a folder, borrowed from the client. Without create, -ENOENT where it does not
 * exist; with it, it is made. Errors are reported, but for -ENOENT without create.
 */
int nfs_state_folder(struct nfs_client *c, enum nfs_folder folder, bool create,
		     const struct nfs_handle **ret, struct error *err);

/* Forgets the handles, after -ESTALE. */
void nfs_state_forget(struct nfs_client *c);

#endif
