/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The deletion of a volume or a snapshot, where two replicas of the controller may be at work. The
 * record is renamed into .csi-nfs/busy/ first and is the tombstone from then on: the record is
 * gone, one deletion has the tombstone, and all replicas see that the directory is being deleted.
 * The tombstone is removed last.
 *
 * The replica that has set a tombstone may be dead or paused, so a call that meets one does not
 * wait but finishes the deletion. doc/design.md has the steps of deletions and creations ("busy/:
 * what calls are working on") and the numbered rules to which comments refer ("Calls at once").
 *
 * tombstone.c sets, adopts and removes tombstones; tombstone_directory.c removes and archives the
 * directory. Worker threads; blocks.
 */
#ifndef STORE_TOMBSTONE_H
#define STORE_TOMBSTONE_H

#include "store/busy.h"
#include "store/directory_change.h"
#include "store/record.h"

struct tombstone {
	enum busy_kind kind;
	const char *key; /* of the record; borrowed */
	const char *dir; /* of the volume or snapshot; borrowed */
	uint64_t identity; /* of the record that is to be buried; 0: not known */
	char name[NFS_NAME_MAX + 1]; /* in .csi-nfs/busy/; "": not set */
	bool is_adopted; /* an earlier call or another replica has set it */
	bool is_moved; /* tombstone_remove_directory() has moved the directory to the trash */
	bool is_emptied; /* it may have begun to empty the directory in place */
	bool no_room; /* the share is too full for one: delete without, which makes room */
	struct record record; /* its content */
};

/* Whether the tombstone never was a record, so that there is none to put back. */
bool tombstone_is_new(const struct tombstone *t);

/* Whether the volume or snapshot had a record, which is the tombstone now. */
bool tombstone_had_record(const struct tombstone *t);

/*
 * Set the tombstone of a record, and read it. -ENOENT, unreported, if there is no record. Errors
 * as record_bury(). The caller calls tombstone_done() in each case.
 */
int tombstone_set(struct nfs_client *c, struct tombstone *t, struct error *err);

/* Set a tombstone where there is no record. rec says what is deleted; its contents move to t. */
int tombstone_set_new(struct nfs_client *c, struct tombstone *t, struct record *rec,
		      struct error *err);

/*
 * As tombstone_set_new(), for a deletion that found no record. Then look for a record again (rule
 * 1): ABORTED if there is one by now, because the directory then belongs to its volume. The caller
 * calls tombstone_restore() after a failure.
 */
int tombstone_set_unrecorded(struct nfs_client *c, struct tombstone *t, struct record *rec,
			     struct error *err);

/* Report ABORTED: a deletion has the directory. Return -EAGAIN. */
int tombstone_refuse(const char *dir, struct error *err);

/* Report the result r of an operation that failed. Return a negative errno. */
int tombstone_failed(struct nfs_client *c, int r, const struct tombstone *t, struct error *err);

/* Read the tombstone of that name, and change nothing. -ENOENT, unreported, if it is gone. */
int tombstone_peek(struct nfs_client *c, struct tombstone *t, const char *name, struct error *err);

/* Take over the tombstone of that name. -ENOENT, unreported, if it is gone. */
int tombstone_adopt(struct nfs_client *c, struct tombstone *t, const char *name, struct error *err);

/*
 * Find the identity that owns what a killed deletion has left of a record in that folder, after its
 * tombstone has gone: only that one may remove it where the export squashes root. *ret is left
 * alone if there is nothing.
 */
int tombstone_find_remains_owner(struct nfs_client *c, enum store_place folder, const char *key,
				 struct volume_owner *ret, struct error *err);

/*
 * Whether another call has begun to use the path: 1, 0 or a negative errno. If the directory was
 * empty, every user counts; else only those that may have found and adopted it (rule 5).
 */
typedef int (*tombstone_users_fn)(struct nfs_client *c, const struct tombstone *t, bool was_empty,
				  struct error *err);

/*
 * As staging_is_in_place() for the record of the tombstone. A directory that is not in place cannot
 * come back later (rule 6). *ret_trashed is set if there is something to purge.
 */
int tombstone_is_in_place(struct nfs_client *c, const struct tombstone *t, bool *ret_trashed,
			  struct error *err);

/*
 * Remove the directory, as directory_remove_known(), provided that it is still the one that the
 * tombstone is about when it is moved. A NULL users() means that nobody can have begun to use it.
 * Return 0 also if the directory is gone. *ret_trashed is set if there is something to purge.
 */
int tombstone_remove_directory(struct nfs_client *c, struct tombstone *t, tombstone_users_fn users,
			       bool *ret_trashed, struct error *err);

/*
 * Release what other deletions have moved from path into the trash, as
 * directory_trash_release_all(), so that it cannot come back (rule 6). ABORTED if the tombstone has
 * gone or, without a tombstone, if a volume or snapshot may have had it there by now, or may have
 * left it to be kept.
 */
int tombstone_release_trash(struct nfs_client *c, const struct tombstone *t, const char *path,
			    bool *ret_trashed, struct error *err);

/* Purge what such removals have moved into the trash, as directory_purge(). */
int tombstone_purge_directory(struct nfs_client *c, const struct tombstone *t, struct error *err);

/* Archive it likewise, as directory_archive(). */
int tombstone_archive_directory(struct nfs_client *c, const struct tombstone *t, bool replace,
				tombstone_users_fn users, bool *ret_trashed, struct error *err);

/*
 * A directory that is to be kept was not found. ABORTED if it may come back: a paused deletion of
 * an earlier volume has moved it (rule 6). If it may be in the trash and cannot come back, because
 * another directory is in its place, write policy notes, so that it is not purged.
 */
int tombstone_keep_moved(struct nfs_client *c, const struct tombstone *t,
			 enum volume_on_delete policy, struct error *err);

/*
 * Check that the tombstone is still there: 0, or ABORTED if another replica has finished the
 * deletion.
 */
int tombstone_check(struct nfs_client *c, const struct tombstone *t, struct error *err);

/*
 * Remove the tombstones that the record rec has replaced, of deletions that were interrupted just
 * when a change brought the record back. Call this before
 * tombstone_set(), and before the record is changed.
 */
int tombstone_forget_replaced(struct nfs_client *c, struct tombstone *t, const struct record *rec,
			      struct error *err);

/*
 * Remove the tombstone, and nothing else, if it is of an earlier creation of the volume or snapshot
 * with the record rec, and this one is finished. A creation finishes the deletions in its way
 * first, so somebody has put the tombstone there since: it came with a backup. Carrying it out
 * would remove newer data. Return 1 if it was removed, 0 if it is not such a one, or a negative
 * errno.
 */
int tombstone_forget_earlier(struct nfs_client *c, struct tombstone *t, const struct record *rec,
			     struct error *err);

/*
 * Remove the tombstone, after everything else. Return 0 or a negative errno; or 1 if a change that
 * was under way has brought the record back, so that the deletion has to be repeated (rule 8).
 */
int tombstone_finish(struct nfs_client *c, struct tombstone *t, struct error *err);

/*
 * Put the record back after a failure: the volume is as it was until the next attempt. If that
 * fails too, or there is a new record, the next attempt finds the tombstone. A tombstone that never
 * was a record stays if the directory may be in the trash: without it, the next attempt would not
 * know. So does one whose directory may have been emptied in part (rule 9).
 */
void tombstone_restore(struct nfs_client *c, struct tombstone *t);

/* Free the contents. */
void tombstone_done(struct tombstone *t);
#define cleanup_tombstone __attribute__((cleanup(tombstone_done)))

#endif
