/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Volumes on a share: their records, and the calls that create, change and delete them, step by
 * step and by handle. A crash may follow any step. The record is written before the directory is
 * made and removed after the directory is gone, so a retry always finds what is left to do.
 *
 * volume.c knows the keys of the record, and snapshot.c those that snapshots share; everybody else
 * uses struct volume and the setters. volume_create.c, volume_expand.c, volume_modify.c and
 * volume_delete.c each do the work of one call. Worker threads; blocks, except for the functions
 * that take only records and views.
 */
#ifndef STORE_VOLUME_H
#define STORE_VOLUME_H

#include <stdint.h>

#include "nfs/client.h"
#include "store/record.h"
#include "store/settings.h"
#include "store/staging.h"
#include "store/volume_id.h"

/* Key of the secret that holds mount options, as in csi-driver-nfs. */
#define SECRET_MOUNT_OPTIONS "mountOptions"

/* -------- the record -------- */

#define VOLUME_KEY_NAME "name"
#define VOLUME_KEY_ID "id"
#define VOLUME_KEY_DIR "dir"
#define VOLUME_KEY_SIZE "size"
#define VOLUME_KEY_MODE "mode"
#define VOLUME_KEY_ON_DELETE "ondelete"
#define VOLUME_KEY_EXISTING "existing" /* only where the class has existingDirectory */
#define VOLUME_KEY_CLAIM "claim"
#define VOLUME_CLAIM_EXCLUSIVE "exclusive"
#define VOLUME_CLAIM_SHARED "shared"
#define VOLUME_KEY_UID "uid" /* only where a uid was given; decimal */
#define VOLUME_KEY_GID "gid"
#define VOLUME_KEY_VERSION "vers" /* NFS version that created the volume: "3" or "4" */
#define VOLUME_KEY_PORT "port" /* only where the mount options named one */
#define VOLUME_KEY_MOUNT_PORT "mountport"
#define VOLUME_KEY_SEC "sec"
/*
 * Source of the contents: "volume " or "snapshot " and its id. Comes with the keys of
 * store/staging.h.
 */
#define VOLUME_KEY_SOURCE "src"
#define VOLUME_SOURCE_VOLUME "volume "
#define VOLUME_SOURCE_SNAPSHOT "snapshot "
/* Before a key: its value since ControllerModifyVolume. The key itself keeps its first value. */
#define VOLUME_MODIFIED_PREFIX "m."
/* Before a key: an entry of the volume_context. */
#define VOLUME_CONTEXT_PREFIX "p."

/*
 * How a volume stands to its directory. One with a claim is a volume of a class with
 * existingDirectory, or with variables in its subDir: its directory is not decided until the record
 * says "ready".
 */
enum volume_claim {
	CLAIM_NONE,
	CLAIM_SHARED,
	CLAIM_EXCLUSIVE, /* no other volume may have the directory, or part of it */
};

/*
 * A record, decoded. Strings are borrowed from the record and NULL where it has none; setters and
 * record_set() invalidate them. Settings are those since the last ControllerModifyVolume.
 */
struct volume {
	const char *name; /* as CreateVolume was given it */
	const char *id;
	const char *dir; /* not checked; see volume_directory() */
	int64_t size; /* bytes; 0: not recorded */
	uint32_t mode; /* 0: leave the directory's alone */
	struct volume_owner owner;
	unsigned int version; /* NFS version that created the volume; 0: not recorded */
	const char *on_delete; /* text: a value that cannot be parsed means the caller's default */
	bool has_existing;
	enum volume_existing existing; /* EXISTING_ADOPT where the record has none */
	enum volume_claim claim;
	const char *source;
	struct staging_state staging;

	/* For volume_describe() only: an administrator may read them, nothing reads them back. */
	unsigned int port, mount_port; /* 0: none was named */
	const char *sec;
};

/* Decode a record. An empty one gives an empty view. */
struct volume volume_of(const struct record *rec);

/*
 * Write the record of a new volume; the version is added by volume_create(). Setters copy what they
 * are given. Return 0 or -ENOMEM.
 */
int volume_describe(struct record *rec, const struct volume *v);
int volume_set_context(struct record *rec, const char *key, const char *value);

/* The key of a volume_context entry, borrowed from the pair; NULL for any other pair. */
const char *volume_context_key(const struct record_pair *pair);

/* Whether the creation has not finished: the directory is not decided yet. */
bool volume_is_unfinished(const struct volume *v);

/* Whether the volume shares its directory only with volumes whose class names that directory. */
bool volume_is_exclusive(const struct volume *v, const char *key);

/* Whether it is exclusive by a claim, and was alone in its directory when that was decided. */
bool volume_is_proven_exclusive(const struct volume *v, const char *key);

/*
 * The key in the recorded id; the caller frees. NULL without memory, or where the record has no
 * valid id.
 */
char *volume_recorded_key(const struct volume *v);

/*
 * Whether a record may have that name. Ids made by csi-driver-nfs may hold names that no record can
 * have.
 */
bool volume_key_can_have_record(const char *key);

/* Read the volume's record. ret stays empty where it has none. */
int volume_read(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		struct error *err);

/* The directory that the record names, else the id. Borrowed; not checked: for locks and notes. */
const char *volume_named_directory(const struct record *rec, const struct volume_id *id);

/*
 * Likewise, checked: FAILED_PRECONDITION for a record without a valid directory. rec is what
 * volume_read() found.
 */
int volume_directory(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		     const char **ret, struct error *err);

/* -------- the calls -------- */

/* How the contents of a new volume are made; as in store/staging.h. */
struct volume_filler {
	/* NULL: the volume begins empty */
	int (*fill)(struct nfs_client *c, const char *name, void *data, struct error *err);
	void *data;
	bool *ret_trashed; /* set where there is something to purge */
	bool replace_archive; /* as in volume_disposal, for deletions that are finished first */
};

/*
 * Create the volume that rec describes, finish one that was begun, or find it there already; rec
 * becomes the record on the share. filler may be NULL for a volume that begins empty. Errors:
 * ALREADY_EXISTS for the same name with other parameters, or with a size that does not fit
 * capacity; else as nfs_error_set(). Nothing is left behind after a final code.
 */
int volume_create(struct nfs_client *c, const char *key, struct record *rec,
		  const struct volume_capacity *capacity, const struct volume_filler *filler,
		  struct error *err);

/*
 * Record a larger size. *ret_size becomes what is required, or the present size if that is larger.
 * rec is what volume_read() found, and becomes the record on the share: a volume without one, as
 * csi-driver-nfs makes them, gets one. Errors: NOT_FOUND; OUT_OF_RANGE where the limit is below the
 * present size, or a quota of the server below the new one; else as nfs_error_set().
 */
int volume_expand(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_capacity *capacity, int64_t *ret_size, struct error *err);

/*
 * Apply the settings in changes->given to the directory and the record: all of them or none. rec as
 * for volume_expand(). Errors: NOT_FOUND, else as nfs_error_set().
 */
int volume_modify(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_settings *changes, struct error *err);

/* How a directory is disposed of. */
struct volume_disposal {
	enum volume_on_delete policy; /* where neither the record nor the id has one */
	bool purge_now; /* purge deleted directories before the answer, not by the purger */
	bool replace_archive; /* of the same name; else the new one gets a dated name */
};

/*
 * Delete, archive or retain the volume's directory, by the policy of its record, else of its id,
 * else of how, and remove the record. A directory that other volumes use stays. Return 0 also where
 * the volume is gone already. *ret_trashed tells whether there is something to purge.
 */
int volume_delete(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		  const struct volume_disposal *how, bool *ret_trashed, struct error *err);

/* Look whether the volume's directory is there. */
int volume_look(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		bool *ret_has_directory, struct error *err);

/* Check that the directory is there and the volume is finished: 0, or -ENOENT with NOT_FOUND. */
int volume_find(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		struct error *err);

#endif
