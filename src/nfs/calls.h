/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The operations as blocking functions. Each returns 0 or a negative errno and sets no error: the
 * caller knows the context, and reports by nfs_error_set(). Same thread rules as nfs/client.h.
 */
#ifndef NFS_CALLS_H
#define NFS_CALLS_H

#include "nfs/client.h"
#include "nfs/error.h"

/*
 * libnfs has public functions of these names. A static libnfs that contains them would not link,
 * and a shared one would call ours in place of its own. So give ours other names for the linker.
 */
#define nfs_create csi_nfs_create
#define nfs_link csi_nfs_link
#define nfs_mkdir csi_nfs_mkdir
#define nfs_read csi_nfs_read
#define nfs_readdir csi_nfs_readdir
#define nfs_readlink csi_nfs_readlink
#define nfs_rename csi_nfs_rename
#define nfs_rmdir csi_nfs_rmdir
#define nfs_stat csi_nfs_stat
#define nfs_symlink csi_nfs_symlink
#define nfs_write csi_nfs_write

int nfs_lookup(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
	       struct nfs_handle *ret_handle, struct nfs_attr *ret_attr);

/* Like nfs_lookup(), and also find out whether the name is a mount point: nfs_attr.is_mount. */
int nfs_lookup_mount(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		     struct nfs_handle *ret_handle, struct nfs_attr *ret_attr);

/* Like nfs_lookup(), with all attributes and the owner; one call if the server sends them. */
int nfs_lookup_full(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    struct nfs_handle *ret_handle, struct nfs_attr *ret_attr);

/* Get attributes, without is_mount. */
int nfs_getattr(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *ret_attr);

/* Likewise all attributes; nfs_attr.is_full if the server has them all. */
int nfs_stat(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *ret_attr);

/* Get all attributes, unless LOOKUP returned them. Keeps is_mount, which LOOKUP has told. */
int nfs_complete_attr(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *attr);

/*
 * Change attributes in one step. Servers clear setuid and setgid when the owner changes; set the
 * mode again then. Returns -NFS_EOWNER if the server does not know the owner, or set another one.
 */
int nfs_setattr(struct nfs_client *c, const struct nfs_handle *handle,
		const struct nfs_change *change);
int nfs_setmode(struct nfs_client *c, const struct nfs_handle *handle, uint32_t mode);
int nfs_mkdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name, uint32_t mode,
	      struct nfs_handle *ret_handle, struct nfs_attr *ret_attr);
int nfs_symlink(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		const char *text);

/* Read the symbolic link name into link, NFS_LINK_MAX + 1 bytes. -EINVAL if it is not one. */
int nfs_readlink(struct nfs_client *c, const struct nfs_handle *dir, const char *name, char *link);

/* Create an empty file, exclusively: -EEXIST where the name is taken. */
int nfs_create(struct nfs_client *c, const struct nfs_handle *dir, const char *name, uint32_t mode,
	       struct nfs_handle *ret_handle);

/* Read up to *len bytes, which becomes what was read; fewer only at the end of the file. */
int nfs_read(struct nfs_client *c, const struct nfs_handle *file, uint64_t offset, char *data,
	     uint32_t *len);

/* Write all bytes to the server's disk. After an error, some may have been written. */
int nfs_write(struct nfs_client *c, const struct nfs_handle *file, uint64_t offset,
	      const char *data, uint32_t len);

int nfs_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name);

/* Remove an empty directory. -ENOTEMPTY or -EEXIST where it is full, whatever the server said. */
int nfs_rmdir(struct nfs_client *c, const struct nfs_handle *dir, const char *name);

int nfs_rename(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
	       const struct nfs_handle *to_dir, const char *to_name);

/*
 * Find out whether the object's file system has extended attributes that the client can reach. A
 * server that does not understand the question has none.
 */
int nfs_has_xattrs(struct nfs_client *c, const struct nfs_handle *handle, bool *ret);

/* Add a hardlink to file. */
int nfs_link(struct nfs_client *c, const struct nfs_handle *file, const struct nfs_handle *dir,
	     const char *name);

int nfs_fsstat(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_space *ret);

/*
 * Entries of one listing, far more than a directory has that is listed at once: the records and
 * notes of a share. Without a limit, a server that sends new names and cookies for ever would take
 * all memory.
 */
#define NFS_LISTING_MAX 4000000

/*
 * Call entry for each entry of the directory; a negative value from it ends the listing and is
 * returned. entry must not issue operations on c. Each name is passed once, even if the directory
 * changes and the server makes the listing start over; -ERESTART if that never ends. -EOVERFLOW:
 * more than NFS_LISTING_MAX. Never returns -ENOENT: if the directory is gone, the error is -ESTALE.
 */
int nfs_readdir(struct nfs_client *c, const struct nfs_handle *dir,
		int (*entry)(void *data, const struct nfs_entry *entry), void *data);

/* Return 1 if the directory has an entry, 0 if it has none, or a negative errno. */
int nfs_has_entry(struct nfs_client *c, const struct nfs_handle *dir);

#endif
