/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The operations as plain functions that wait: each issues one nfs_op and returns 0 or its
 * negative errno, unreported (nfs_error_set() makes the message, where the caller knows the
 * context). Same thread rules as nfs/client.h.
 */
#ifndef NFS_CALLS_H
#define NFS_CALLS_H

#include "nfs/client.h"

int nfs_lookup(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
	       struct nfs_handle *ret_handle, struct nfs_attr *ret_attr);
int nfs_getattr(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *ret_attr);

/* All attributes: nfs_attr.is_full, if the server has them all. */
int nfs_stat(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *ret_attr);

/*
 * In one step. Where setting an owner has taken bits of the mode away, as servers do, they are set again.
 * -NFS_EOWNER where the server does not know the owner, or has set another one.
 */
int nfs_setattr(struct nfs_client *c, const struct nfs_handle *handle,
		const struct nfs_change *change);
int nfs_setmode(struct nfs_client *c, const struct nfs_handle *handle, uint32_t mode);
int nfs_mkdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name, uint32_t mode,
	      struct nfs_handle *ret_handle, struct nfs_attr *ret_attr);
int nfs_symlink(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		const char *text);

/* Looks name up and reads it; -EINVAL where it is no symbolic link. link: NFS_LINK_MAX + 1 bytes. */
int nfs_readlink(struct nfs_client *c, const struct nfs_handle *dir, const char *name, char *link);

int nfs_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name);
int nfs_rmdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name);
int nfs_rename(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
	       const struct nfs_handle *to_dir, const char *to_name);

/* Another name for what is at the handle. */
int nfs_link(struct nfs_client *c, const struct nfs_handle *file, const struct nfs_handle *dir,
	     const char *name);

int nfs_fsstat(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_space *ret);

/*
 * Calls entry for each entry of the directory; a negative value from it ends the walk and is
 * returned. No operation may be issued on c inside entry. Each name is given once, also where the server
 * has the listing begin again, as the directory changed: -ERESTART where it does so all the time. Never
 * -ENOENT: a directory that has gone is -ESTALE.
 */
int nfs_readdir(struct nfs_client *c, const struct nfs_handle *dir,
		int (*entry)(void *data, const struct nfs_entry *entry), void *data);

#endif
