/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What CreateVolume and DeleteVolume do on a share, step by step and by handle. Each step may be
 * the last one before a crash: the record is written before the directory is made and removed after
 * it is gone, so a retry always finds what is left to do. Worker threads; blocks.
 */
#ifndef STORE_VOLUME_H
#define STORE_VOLUME_H

#include <stdint.h>

#include "nfs/client.h"
#include "store/record.h"
#include "store/settings.h"
#include "store/volume_id.h"

/* Key of the secret that holds mount options, as csi-driver-nfs has it. */
#define SECRET_MOUNT_OPTIONS "mountOptions"

/* Keys of a volume's record. What starts with the prefix is an entry of its volume_context. */
#define VOLUME_KEY_NAME "name"
#define VOLUME_KEY_ID "id"
#define VOLUME_KEY_DIR "dir"
#define VOLUME_KEY_SIZE "size"
#define VOLUME_KEY_MODE "mode"
#define VOLUME_KEY_ON_DELETE "ondelete"
#define VOLUME_KEY_EXISTING "existing" /* where the class has it */
/*
 * A volume whose directory has to be decided on, and is only when the record also is "ready" (store/staging.h):
 * one of a class with existingDirectory, or with variables in its subDir.
 */
#define VOLUME_KEY_CLAIM "claim"
#define VOLUME_CLAIM_EXCLUSIVE "exclusive" /* not with other volumes */
#define VOLUME_CLAIM_SHARED "shared"
#define VOLUME_KEY_UID "uid" /* where a uid was given; decimal */
#define VOLUME_KEY_GID "gid"
#define VOLUME_KEY_VERSION "vers" /* of NFS, that it was created over: "3" or "4" */
#define VOLUME_KEY_PORT "port" /* where the mount options named one */
#define VOLUME_KEY_MOUNT_PORT "mountport"
#define VOLUME_KEY_SEC "sec"
/* What it was made of: "volume " or "snapshot " and the id; then also the keys of store/staging.h. */
#define VOLUME_KEY_SOURCE "src"
#define VOLUME_SOURCE_VOLUME "volume "
#define VOLUME_SOURCE_SNAPSHOT "snapshot "
/* Before a key: what ControllerModifyVolume made of it. The key itself keeps what it was created with. */
#define VOLUME_MODIFIED_PREFIX "m."
#define VOLUME_CONTEXT_PREFIX "p."

/* Who puts into a volume what it is made of; as in store/staging.h. */
struct volume_filler {
	/* NULL: it begins empty */
	int (*fill)(struct nfs_client *c, const char *name, void *data, struct error *err);
	void *data;
	bool *ret_trashed; /* becomes true when there is something to purge */
	bool replace_archive; /* where a deletion that was cut short is finished, as volume_disposal has it */
};

/*
 * Makes the volume that rec describes, or finishes one that was begun, or finds that it is there
 * already; then rec becomes the record on the share. filler may be NULL for one that begins empty. Errors: ALREADY_EXISTS (same name, other
 * parameters, or a size that capacity does not take), otherwise as nfs_error_set(); nothing is left
 * behind after a final code.
 */
int volume_create(struct nfs_client *c, const char *key, struct record *rec,
		  const struct volume_capacity *capacity, const struct volume_filler *filler,
		  struct error *err);

/* Whether a record may have that name. Ids of volumes that csi-driver-nfs made may hold what may not. */
bool volume_key_can_have_record(const char *key);

/* The volume's record; ret stays empty where it has none. */
int volume_read(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		struct error *err);

/* The volume's directory, of its record or its id, borrowed. rec is what volume_read() found. */
int volume_directory(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		     const char **ret, struct error *err);

/* What becomes of a directory. */
struct volume_disposal {
	enum volume_on_delete policy; /* where neither record nor id tell */
	bool purge_now; /* what is deleted, before the answer; else that is the purger's */
	bool replace_archive; /* one of the same name; else the new one gets a dated name */
};

/*
 * Deletes, archives or lets go of the volume, as its record says, or its id, or how. A directory that
 * other volumes use stays. 0 too where it is gone already. *ret_trashed tells whether there is
 * something to purge now.
 */
int volume_delete(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		  const struct volume_disposal *how, bool *ret_trashed, struct error *err);

/* Whether the volume's directory is there. */
int volume_look(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		bool *ret_has_directory, struct error *err);

/* As volume_look(), with -ENOENT and NOT_FOUND where it is not, or is not finished. */
int volume_find(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		struct error *err);

/* The size in a volume's record, in bytes; 0 where it tells none. */
int64_t volume_size(const struct record *rec);

/* The owner in a volume's record, and the version of NFS that it was created over; 0 where it tells none. */
struct volume_owner volume_owner_of(const struct record *rec);
unsigned int volume_version_of(const struct record *rec);

#endif
