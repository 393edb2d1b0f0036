/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Private to the files of store/directory.h. path[0..len) is what messages name. */
#ifndef STORE_DIRECTORY_PARTS_H
#define STORE_DIRECTORY_PARTS_H

#include "store/directory.h"

#define PARENT_KEY_DIR "dir" /* in records of .csi-nfs/parents/: the path */

/*
 * Note that a directory above a volume is the driver's. Return 1, 0 where there was a note already,
 * or a negative errno.
 */
int directory_note_parent(struct nfs_client *c, const char *path, size_t len, struct error *err);

/* Report something that is no directory: FAILED_PRECONDITION. */
int directory_is_none(struct nfs_client *c, const char *path, size_t len,
		      const struct nfs_attr *attr, struct error *err);

/* Refuse the driver's own folder. A server may fold names in unknown ways, so compare handles. */
int directory_check_not_own(struct nfs_client *c, const struct nfs_handle *handle, const char *path,
			    size_t len, struct error *err);

/* Fetch all attributes, which a LOOKUP of version 4 does not bring, unless attr has them. */
int directory_complete_attr(struct nfs_client *c, const struct nfs_handle *handle,
			    struct nfs_attr *attr);

/* True also where the server does not tell one of them. */
bool directory_is_same_file_system(const struct nfs_attr *a, const struct nfs_attr *b);

/* Check that the object is on the file system of the driver's folder: 0, or -EXDEV, reported. */
int directory_check_same_file_system(struct nfs_client *c, const char *path,
				     const struct nfs_handle *handle, struct nfs_attr *attr,
				     struct error *err);

#endif
