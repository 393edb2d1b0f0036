/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The deletion of a volume or a snapshot, where two replicas of the controller may be at work. The record
 * is renamed into .csi-nfs/busy/ first, and is then the tombstone: from here on there is no record, one
 * deletion has it, and everybody sees by it that the directory is on its way out. It goes last.
 *
 *   deletion   tombstone; who else uses the directory?; directory away; record of the same key again?;
 *              tombstone away
 *   creation   record (and who uses the directory); tombstones?; directory; is the record still there?
 *
 * Of the two at once each writes before it reads, so that one of them at least knows of the other.
 *
 * A tombstone may be that of a replica that is dead, or paused: who meets it does not wait, it finishes the
 * deletion. Whoever was only paused has then to see that the directory is not the one that it knew: it
 * is compared by handle after it was moved, and moved back. Worker threads; blocks.
 */
#ifndef STORE_TOMBSTONE_H
#define STORE_TOMBSTONE_H

#include "store/busy.h"
#include "store/directory.h"
#include "store/record.h"

struct tombstone {
	enum busy_kind kind;
	const char *key; /* of the record */
	const char *dir; /* of the volume or snapshot */
	char name[NFS_NAME_MAX + 1]; /* in .csi-nfs/busy/; "": none was set */
	bool no_room; /* for one: the share is full, and what is deleted makes room */
	struct record record; /* what it says */
};

/* Whether there was no record before, so that there is none to put back. */
bool tombstone_is_new(const struct tombstone *t);

/*
 * Sets the tombstone of a record, which is read again by it. -ENOENT, unreported, where there is no record.
 * Errors as record_bury(). tombstone_done() is due in either case.
 */
int tombstone_set(struct nfs_client *c, struct tombstone *t, struct error *err);

/* Sets one where there is no record: rec says what is deleted, and is taken. */
int tombstone_set_new(struct nfs_client *c, struct tombstone *t, struct record *rec,
		      struct error *err);

/* Takes one that was found for one's own. -ENOENT, unreported, where it has gone. */
int tombstone_adopt(struct nfs_client *c, struct tombstone *t, const char *name, struct error *err);

/*
 * Removes the directory at path, as directory_remove(), if it is still the one that the tombstone is about
 * when it goes. users() says whether somebody uses the path by now, 1, 0 or a negative errno: where the
 * directory was empty anybody, else only those who may have found it there and taken it as it was. NULL:
 * nobody does such a thing. 0 too where it is gone.
 */
typedef int (*tombstone_users_fn)(struct nfs_client *c, const struct tombstone *t, bool was_empty,
				  struct error *err);
int tombstone_remove_directory(struct nfs_client *c, const struct tombstone *t, const char *path,
			       const char *trash_key, tombstone_users_fn users, bool *ret_trashed,
			       struct error *err);

/* As directory_archive(), likewise. */
int tombstone_archive_directory(struct nfs_client *c, const struct tombstone *t, const char *path,
				bool replace, bool *ret_trashed, struct error *err);

/* Whether it is still there: 0, or ABORTED where another replica has finished the deletion. */
int tombstone_check(struct nfs_client *c, const struct tombstone *t, struct error *err);

/*
 * Removes the tombstone, when all else is gone. Returns 1 where meanwhile a change that was under way has
 * brought the record back, and the deletion has to be done again, or 0, or a negative errno.
 */
int tombstone_finish(struct nfs_client *c, struct tombstone *t, struct error *err);

/*
 * Puts the record back, after a failure: until the next attempt the volume is as it was. Where that fails
 * too, the next attempt finds the tombstone.
 */
void tombstone_restore(struct nfs_client *c, struct tombstone *t);

/* Frees what belongs to it. */
void tombstone_done(struct tombstone *t);
#define cleanup_tombstone __attribute__((cleanup(tombstone_done)))

#endif
