/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Whose is it? Whatever is about to remove a directory of the share, to rename it or something over
 * it, to take it for a new volume or to change its mode and owner asks here first. The answer comes
 * from the records of volumes and snapshots and from the notes of store/users.h, with a few lookups,
 * however many volumes the share has.
 *
 * Names are compared by the server: it is asked for them, and a file system that does not tell "A"
 * from "a" finds the notes of both. What is found is then compared without regard to case, and with
 * bytes beyond ASCII taken for equal ones, so that all that can be wrong is to leave something alone.
 *
 * What has no record belongs to nobody: csi-driver-nfs leaves none. Worker threads; blocks.
 */
#ifndef STORE_OWNER_H
#define STORE_OWNER_H

#include "nfs/client.h"
#include "store/record.h"

enum owner_scope {
	OWNER_AT = 1 << 0, /* volumes of that very directory */
	OWNER_IN = 1 << 1, /* volumes somewhere in it */
	OWNER_AROUND = 1 << 2, /* volumes that it lies in */
	OWNER_VOLUMES = OWNER_AT | OWNER_IN | OWNER_AROUND,
	OWNER_SNAPSHOTS = 1 << 3, /* snapshots with that directory, or around it */
	OWNER_ARCHIVE = 1 << 4, /* it is named like archives, and holds something */
	OWNER_ALL = OWNER_VOLUMES | OWNER_SNAPSHOTS,
};

/* Who asks, and what for. What belongs to the one who asks is no other's. */
struct owner_question {
	const char *volume; /* its key; NULL: no volume */
	bool has_record; /* under that key: then nobody else's is there */
	const char *snapshot; /* its name; NULL: no snapshot */
	unsigned int scope; /* of enum owner_scope */
	bool finished; /* a volume whose creation is not over has no claim yet */
	bool exclusive; /* the volume was made where nobody was: who claims the same came too late */
};

enum owner_kind { OWNER_IS_NOBODY, OWNER_IS_VOLUME, OWNER_IS_SNAPSHOT, OWNER_IS_ARCHIVE };

struct owner {
	enum owner_kind kind;
	char key[RECORD_NAME_MAX + 1]; /* as the server spells it */
};

/*
 * Finds one of those whose directory overlaps with path. Returns 1, 0 for nobody, or a negative errno
 * with the error set: a record that cannot be read may be the owner's.
 */
int owner_find(struct nfs_client *c, const char *path, const struct owner_question *q,
	       struct owner *ret, struct error *err);

/* Refuses with FAILED_PRECONDITION, and both names: of the owner, and of who wants it. */
int owner_refuse(struct nfs_client *c, const char *path, const struct owner *owner,
		 const char *wanted_by, struct error *err);

/*
 * The key that a volume's record was made for, as the record says. On a share that folds case the
 * record of "A" is found under "a" too. Returns 1 where the record under key is another volume's
 * that only the server's folding leads to, 0 where it is the key's own, and FAILED_PRECONDITION
 * where somebody has copied it there.
 */
int owner_check_record(struct nfs_client *c, const char *key, const struct record *rec,
		       struct error *err);

/* -------- what a record says of its claim to a directory -------- */

/* Whether the creation of the volume is not over: its directory is not decided yet. */
bool owner_is_open(const struct record *rec);

/* Whether the volume does not share its directory with those that a class does not name it to. */
bool owner_is_exclusive(const char *key, const struct record *rec);

/* Whether it is exclusive, and known to have found nobody there. */
bool owner_has_decided(const char *key, const struct record *rec);

#endif
