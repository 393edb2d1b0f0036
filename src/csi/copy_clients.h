/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The clients of a copy job, and the version of NFS that they speak. If the mount options name a
 * minor version, that one. If not, version 4.2 where the server shares the blocks of files, or
 * where extended attributes may be in the tree, which no other version carries; else version 3 if
 * the server offers the same export over it, and the same directory to read, since small files take
 * the fewest calls there. Worker threads; blocks.
 */
#ifndef CSI_COPY_CLIENTS_H
#define CSI_COPY_CLIENTS_H

#include "csi/driver.h"
#include "tree/work.h"

enum copy_kind {
	COPY_CLONE, /* a tree to a tree */
	COPY_CLONE_PLAIN, /* likewise, without extended attributes */
	COPY_ARCHIVE, /* a tree to an archive */
	COPY_RESTORE, /* an archive to a tree */
	COPY_CHECK, /* an archive is read, and nothing made */
};

/* Whether both reach one server, by its address and port: it may have several names. */
bool copy_clients_share_server(const struct nfs_client *a, const struct nfs_client *b);

/*
 * Whether the server can clone the files of a tree (CLONE), or with copy, copy them by itself
 * (COPY): 1, 0, or a negative errno if nobody can tell at present. tree: its attributes on from.
 * Whether it can depends on the file system of to, and only a trial shows it: two files are made in
 * the trash.
 */
int copy_clients_can_offload(const struct csi_driver *driver, const struct nfs_client *from,
			     const struct nfs_attr *tree, struct nfs_client *to, bool copy,
			     struct error *err);

/*
 * Find out which ends of the copy have extended attributes, and set from_xattrs and to_xattrs of
 * work. An export may have file systems below its own (Linux: crossmnt), so the question goes to
 * the tree on from (NULL: an archive) and to the folder on to in which the copy is made.
 */
int copy_clients_find_xattrs(struct nfs_client *from, const struct nfs_handle *tree,
			     struct nfs_client *to, enum copy_kind kind, struct tree_work *work,
			     struct error *err);

/*
 * Lease clients like from and to, as from_xattrs and to_xattrs of work need them, and set from, to
 * and offload of work. path: what is read on from, which has to be the same directory over another
 * version. same_version: over that of from and to. Errors as nfs_pool_lease(), but ABORTED if the
 * share is gone for now, or if a client that has to speak the version of from or to does not;
 * copy_clients_return() is due in either case.
 */
int copy_clients_lease(const struct csi_driver *driver, struct nfs_client *from,
		       struct nfs_client *to, const char *path, bool same_version,
		       struct tree_work *work, struct error *err);

/* Give the clients of work back, if it has any. */
void copy_clients_return(const struct csi_driver *driver, struct tree_work *work);

#endif
