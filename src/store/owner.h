/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The owners of a directory. Call owner_find() before removing a directory of the share, renaming
 * it or something over it, adopting it for a new volume, or changing its mode and owner. The answer
 * comes from the records of volumes and snapshots and the notes of store/users.h, with a few
 * lookups however many volumes the share has.
 *
 * Lookups use the server's idea of equal names: a file system that folds case finds the notes of
 * both "A" and "a". owner_find() compares what it found again, ignoring case and treating all
 * non-ASCII names as equal, so that a wrong answer can only leave a directory alone.
 *
 * A directory without a record has no owner: csi-driver-nfs leaves no record. Worker threads;
 * blocks.
 */
#ifndef STORE_OWNER_H
#define STORE_OWNER_H

#include "nfs/client.h"
#include "store/record.h"
#include "store/settings.h"

struct volume;

enum owner_scope {
	OWNER_AT = 1 << 0, /* volumes with that very directory */
	OWNER_IN = 1 << 1, /* volumes somewhere in it */
	OWNER_AROUND = 1 << 2, /* volumes that it lies in */
	OWNER_VOLUMES = OWNER_AT | OWNER_IN | OWNER_AROUND,
	OWNER_SNAPSHOTS = 1 << 3, /* snapshots with that directory, or around it */
	OWNER_ARCHIVE = 1 << 4, /* it is named like an archive, and is not empty */
	OWNER_ALL = OWNER_VOLUMES | OWNER_SNAPSHOTS,
};

/* Which of the volumes in scope count as owners. */
enum owner_count {
	OWNER_COUNT_ALL, /* those with a record */
	OWNER_COUNT_NOTED, /* also those with notes only: a deletion may be under way, or fail */
	OWNER_COUNT_FINISHED, /* those that are finished: others have no right to it yet */
	OWNER_COUNT_ALONE, /* volume_was_alone(), and those that may come to it yet */
	OWNER_COUNT_SHARING, /* finished, not exclusive: the asker's own claim came first */
	OWNER_COUNT_DIFFERING, /* those that want another mode or owner than settings_of */
};

/* The asker, and what is asked for. The asker's own directories do not count. */
struct owner_question {
	const char *volume; /* key of the asking volume; NULL: none */
	bool has_record; /* the record under that key is the asker's, not another volume's */
	const char *snapshot; /* name of the asking snapshot; NULL: none */
	unsigned int scope; /* of enum owner_scope */
	enum owner_count count;
	const struct volume *settings_of; /* with OWNER_COUNT_DIFFERING */
	bool policies; /* gather the policies of earlier volumes, see store/users.h */
	const struct nfs_handle *moved; /* the directory that was at path; NULL: it is there */
	bool expects_notes; /* the path is the volume's directory, about which it has left notes */
};

enum owner_kind { OWNER_IS_NOBODY, OWNER_IS_VOLUME, OWNER_IS_SNAPSHOT, OWNER_IS_ARCHIVE };

struct owner {
	enum owner_kind kind;
	char key[RECORD_NAME_MAX + 1]; /* as the server spells it */
	bool may_retain; /* it is a volume whose policy is retain or unknown, or a foreign one's */

	/* Strictest policies of earlier volumes. Complete only if nobody was found. */
	enum volume_on_delete policy; /* of those with the directory, or one in it */
	enum volume_on_delete policy_around; /* of those with a directory that it lies in */
	bool was_shared; /* a deleted volume left it, or one in or around it, to others */
	bool has_notes; /* of such deletions, at or in it, even about directories that are gone */
	bool is_noted; /* one of these notes is about that very directory */
};

/* Whether nobody was found, but a policy of an earlier volume keeps the directory. */
static inline bool owner_is_only_kept(const struct owner *owner)
{
	return owner->kind == OWNER_IS_NOBODY &&
	       (owner->policy != ON_DELETE_DELETE || owner->policy_around != ON_DELETE_DELETE);
}

/*
 * Find one owner whose directory overlaps with path. Return 1, 0 for nobody, or a negative errno
 * with the error set: a record that cannot be read may be the owner's.
 */
int owner_find(struct nfs_client *c, const char *path, const struct owner_question *q,
	       struct owner *ret, struct error *err);

/*
 * As owner_find(), with OWNER_COUNT_NOTED, for a deletion that has only an id, or for what it may
 * find in the trash. It may be a late repetition, so the directory may belong to another volume by
 * now, which is being deleted and is to be archived or retained: its notes count without its
 * record. A volume whose directory is its name has no notes. ABORTED if it has a tombstone.
 */
int owner_find_late(struct nfs_client *c, const char *path, const struct owner_question *q,
		    struct owner *ret, struct error *err);

/* Refuse with FAILED_PRECONDITION, naming the owner and who wants the directory. */
int owner_refuse(struct nfs_client *c, const char *path, const struct owner *owner,
		 const char *wanted_by, struct error *err);

/*
 * Check by the record itself that it belongs under the key it was found by. On a share that folds
 * case the record of "A" is found as "a" too. Return 0 if it belongs there, 1 if the server's
 * folding has led to another volume's record, and FAILED_PRECONDITION if somebody has copied it
 * there.
 */
int owner_check_record(struct nfs_client *c, const char *key, const struct record *rec,
		       struct error *err);

#endif
