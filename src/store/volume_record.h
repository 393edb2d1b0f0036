/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The record of a volume: its keys, a decoded view, and setters. Only volume_record.c, and
 * snapshot.c for the keys that snapshots share, know the keys; everybody else uses struct volume
 * and the setters. Any thread; nothing blocks.
 */
#ifndef STORE_VOLUME_RECORD_H
#define STORE_VOLUME_RECORD_H

#include <stdint.h>

#include "store/record.h"
#include "store/settings.h"
#include "store/staging_state.h"
#include "store/volume_id.h"

#define VOLUME_KEY_NAME "name"
#define VOLUME_KEY_ID "id"
#define VOLUME_KEY_DIR "dir"
#define VOLUME_KEY_SIZE "size"
#define VOLUME_KEY_MODE "mode"
#define VOLUME_KEY_ON_DELETE "ondelete"
#define VOLUME_KEY_EXISTING "existing" /* only if the class has existingDirectory */
#define VOLUME_KEY_CLAIM "claim"
#define VOLUME_CLAIM_EXCLUSIVE "exclusive"
#define VOLUME_CLAIM_SHARED "shared"
#define VOLUME_KEY_FOUND "found" /* only if an exclusive claim got a directory with contents */
#define VOLUME_KEY_UID "uid" /* only if a uid was given; decimal */
#define VOLUME_KEY_GID "gid"
#define VOLUME_KEY_VERSION "vers" /* NFS version that created the volume: "3" or "4" */
#define VOLUME_KEY_PORT "port" /* only if the mount options named one */
#define VOLUME_KEY_MOUNT_PORT "mountport"
#define VOLUME_KEY_SEC "sec"
/*
 * Source of the contents: "volume " or "snapshot " and its id. Comes with the keys of
 * store/staging_state.h.
 */
#define VOLUME_KEY_SOURCE "src"
#define VOLUME_SOURCE_VOLUME "volume "
#define VOLUME_SOURCE_SNAPSHOT "snapshot "
/* Prefix of a key: its value since ControllerModifyVolume. The key itself keeps its first value. */
#define VOLUME_MODIFIED_PREFIX "m."
/* Prefix of a key: an entry of the volume_context. */
#define VOLUME_CONTEXT_PREFIX "p."

/*
 * The claim of a volume to its directory. With existingDirectory=adopt there is none. Otherwise a
 * volume has one if its class has existingDirectory, or variables in its subDir; or if there is no
 * subDir, and the name does not end with a UUID or is an archive's. Until the record says "ready",
 * it is not decided whether such a volume gets the directory.
 */
enum volume_claim {
	CLAIM_NONE,
	CLAIM_SHARED,
	CLAIM_EXCLUSIVE, /* no other volume may have the directory, or part of it */
};

/*
 * A record, decoded. Strings are borrowed from the record and NULL if it has none; setters and
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
	const char *on_delete; /* text, unparsed; see volume_policy() */
	bool has_existing;
	enum volume_existing existing; /* EXISTING_ADOPT if the record has none */
	enum volume_claim claim;
	bool found; /* the directory had contents when the claim was decided */
	const char *source;
	struct staging_state staging;

	/* For volume_describe() only: an administrator may read them, nothing reads them back. */
	unsigned int port, mount_port; /* 0: none was named */
	const char *sec;
};

/* Decode a record. An empty one gives an empty view. */
struct volume volume_of(const struct record *rec);

/*
 * Return a hash of what no replacement of the record of a volume or snapshot changes: its id and
 * the tag of its creation. It tells the record from a later one of the same id. 0: without an id.
 */
uint64_t volume_record_identity(const struct record *rec);

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

/* Likewise, and its directory was new or empty then: no volume without a record had it before. */
bool volume_was_alone(const struct volume *v, const char *key);

/* Whether both volumes want the same mode and owner for their directory. */
bool volume_wants_same_settings(const struct volume *a, const struct volume *b);

/*
 * The key in the recorded id; the caller frees. NULL without memory, or if the record has no
 * valid id.
 */
char *volume_recorded_key(const struct volume *v);

/*
 * Whether a record may have that name. Ids made by csi-driver-nfs may hold names that no record can
 * have.
 */
bool volume_key_can_have_record(const char *key);

/* Setters return 0 or -ENOMEM. */
int volume_set_version(struct record *rec, unsigned int version);
int volume_set_size(struct record *rec, int64_t size);
int volume_set_source(struct record *rec, const char *source);
int volume_set_changes(struct record *rec, const struct volume_settings *changes);

/*
 * Replace server and share in the id and the volume_context of a record, in memory, if the id names
 * others: where the share was found, instead of where it was when the record was written. Return 0
 * or -ENOMEM.
 */
int volume_set_address(struct record *rec, const char *server, const char *share);

/* Describe a volume without a record, as csi-driver-nfs makes them, by its id. */
int volume_describe_foreign(struct record *rec, const struct volume_id *id);

/* Write a tombstone for a volume without a record. id may be NULL. */
int volume_describe_deleted(struct record *rec, const char *id, const char *dir,
			    enum volume_on_delete policy);

/*
 * Whether the record was written by ControllerExpandVolume or ControllerModifyVolume, for a
 * directory that had none: csi-driver-nfs makes such volumes.
 */
bool volume_is_foreign(const struct record *rec);

/*
 * Add to a foreign record what CreateVolume wants. It keeps a larger size, and settings that were
 * modified. Errors: ALREADY_EXISTS for another directory, or a size that does not fit.
 */
int volume_complete_foreign(struct record *have, const struct record *want,
			    const struct volume_capacity *capacity, struct error *err);

/* Check that both records describe the same volume and that its size fits: 0, or ALREADY_EXISTS. */
int volume_check_same(const struct record *have, const struct record *want,
		      const struct volume_capacity *capacity, struct error *err);

/*
 * Whether the directory is built elsewhere and renamed into place. The record then identifies it.
 */
bool volume_is_built(const struct volume *v);

/*
 * Whether the volume uses, or waits for, a directory that is in its place. One that is still being
 * built elsewhere replaces an empty directory, and needs none unless existingDirectory is require.
 */
bool volume_needs_its_place(const struct volume *v);

/* Return the policy as it is written: in the record, else in the id; borrowed. */
const char *volume_policy_text(const struct volume *v, const struct volume_id *id);

/*
 * Return the policy for the directory: the record's, else the id's, else the default. A policy that
 * is not known may have been cut or misspelled: retain.
 */
enum volume_on_delete volume_policy(const struct volume *v, const struct volume_id *id,
				    enum volume_on_delete default_policy);

/*
 * The same for the tombstone of a deletion. The default counts only for foreign volumes: csi-nfs
 * records another default than to delete before it sets the tombstone.
 */
enum volume_on_delete volume_buried_policy(const struct record *rec, const struct volume_id *id,
					   enum volume_on_delete default_policy);

#endif
