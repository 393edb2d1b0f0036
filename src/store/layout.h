/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The driver's own folder on a share:
 *
 *   .csi-nfs/
 *     volumes/           one record per volume, see store/record.h
 *     parents/           one symbolic link per parent directory that csi-nfs made for a subDir
 *     users/             which volumes use which directory, where that is not plain; store/users.h
 *     snapshots/         one record per snapshot
 *     work/              copies and archives that are being made, store/staging.h
 *     trash/             deleted directories that are being purged
 *     busy/              what calls are at work on, for other replicas to see; store/busy.h
 *
 * The folders have mode 0700 where the driver is root on the share. Elsewhere (the export squashes
 * root, or the driver is not root) volumes may be made with several identities, and each has to write
 * here: mode 1777, as /tmp has, so that nobody removes what is another's.
 *
 * Handles of the folders are kept in the client, since every call needs them; one that the server
 * no longer knows (-ESTALE) is looked up anew by the next call. Same thread rules as
 * nfs/client.h.
 */
#ifndef STORE_LAYOUT_H
#define STORE_LAYOUT_H

#include "base/str.h"
#include "nfs/client.h"

enum store_place {
	STORE_TOP, /* .csi-nfs itself */
	STORE_VOLUMES,
	STORE_PARENTS,
	STORE_USERS,
	STORE_SNAPSHOTS,
	STORE_WORK,
	STORE_TRASH,
	STORE_BUSY,
};

/*
 * The handle of a folder, borrowed from the client. Without create, -ENOENT where it does not
 * exist; with it, it is made. Errors are reported, but for -ENOENT without create.
 */
int store_folder(struct nfs_client *c, enum store_place folder, bool create,
		 const struct nfs_handle **ret, struct error *err);

/* Forgets the handles, after -ESTALE. */
void store_forget(struct nfs_client *c);

/* As a folder of the state directory, with the mode that such folders have. Errors as store_folder(). */
int store_open(struct nfs_client *c, const struct nfs_handle *dir, const char *name, bool create,
	       struct nfs_handle *ret, struct error *err);

/*
 * Append the names in a directory that match() accepts to names; a NULL match accepts all. Return 0;
 * -ECANCELED where there are more than max, with the first max in names; or the errno of nfs_readdir(),
 * with what was read until then. Errors are not reported.
 */
typedef bool (*store_match_fn)(const char *name, const void *data);
int store_list(struct nfs_client *c, const struct nfs_handle *dir, store_match_fn match,
	       const void *data, size_t max, struct strv *names);

#define STORE_TRASH_KEY_MAX 150 /* what stands behind it in the trash has less than 100 bytes */

/* The key as it begins a name in the trash. */
void store_trash_key(char ret[STORE_TRASH_KEY_MAX + 1], const char *key);

/*
 * A name for the trash, unique among everything that is there at one time: it begins with key, cut
 * when too long, and tells the identity of the client where that is not the process's own.
 */
void store_trash_name(char name[NFS_NAME_MAX + 1], const struct nfs_client *c, const char *key);

/* Whether a name was made of that key: so that what is left of earlier attempts is found. */
bool store_trash_name_is_of(const char *name, const char *key);

/* The identity that a name in the trash tells, or the process's own, into e. */
void store_trash_identity(const char *name, struct nfs_export *e);

#endif
