/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The exports that this process has worked on, and the options that reached them. A call without
 * mount options (CSI gives ControllerGetVolume and ListVolumes no secrets) uses those of the last
 * call that had some, its version as a preference. ListVolumes and ListSnapshots go over all
 * exports. Any thread.
 */
#ifndef CSI_EXPORTS_H
#define CSI_EXPORTS_H

#include <stddef.h>

#include "nfs/client.h"
#include "nfs/export.h"

#define KNOWN_EXPORTS_MAX 1024 /* further exports are served but not remembered */

struct known_exports;

/*
 * Identifies a folder of records. One on another server may have the same address and file ids, but
 * not the same ctime.
 */
struct records_place {
	char address[64]; /* of the server, numeric; empty: not known */
	uint16_t port;
	unsigned int version; /* versions number file systems in their own ways */
	uint64_t fsid, fsid_minor, fileid;
	struct nfs_time ctime;
};

/* Return 0 or -ENOMEM. The caller frees. */
int known_exports_new(struct known_exports **ret);
void known_exports_free(struct known_exports *k);

/* Remember the options of an export on which a call succeeded, in place of earlier ones. */
void known_exports_remember(struct known_exports *k, const struct nfs_export *e);

/*
 * Remember that a call has reached an export, whatever becomes of it. Of exports on which no call
 * has succeeded, only known_exports_have() tells.
 */
void known_exports_reach(struct known_exports *k, const struct nfs_export *e);

/*
 * Note that an export could not be listed. After a day of such notes, an hour apart at most, in
 * which no call has reached it, it is gone for good: it is not listed any more, unless a call
 * succeeds on it. Its options are kept: without them, such a call may not find the server.
 */
void known_exports_fail(struct known_exports *k, const struct nfs_export *e);

/* Whether a call has reached the export, over the version and ports that e has. */
bool known_exports_have(struct known_exports *k, const struct nfs_export *e);

/* Fill in version and ports if e has none of them. */
void known_exports_apply(struct known_exports *k, struct nfs_export *e);

/*
 * Remember where an export keeps its records. Return whether an export that comes before it in the
 * list has them at the same place: two names of a server or of a directory.
 */
bool known_exports_place(struct known_exports *k, const struct nfs_export *e,
			 const struct records_place *place);

/*
 * Copy all exports, with the identity of the process, ordered by server and share. Return 0 or
 * -ENOMEM. The caller frees with known_exports_list_free().
 */
int known_exports_list(struct known_exports *k, struct nfs_export **ret, size_t *ret_n);
void known_exports_list_free(struct nfs_export *list, size_t n);

#endif
