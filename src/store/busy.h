/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What calls are at work on, for the other replicas of the controller: symbolic links in .csi-nfs/busy/,
 * one for each call, never more than there are calls.
 *
 *   busy/<directory, with %2F for a slash>~<kind>~<holder>.<number>[.<renewals>]
 *
 * Notes of use and of making are for calls that last: their holder renews them, by a RENAME to the next
 * name, and one that is renewed no more for as long as store_holder_is_dead() says is removed by whoever
 * it is in the way of. The holder, if it was only paused, learns that from its next RENAME, which fails:
 * it renews its notes once more before it puts its work into place.
 *
 * Tombstones (store/tombstone.h) are of deletions, and stand for as long as it takes: another replica does
 * not wait for them to end, it finishes the deletion. Worker threads; blocks.
 */
#ifndef STORE_BUSY_H
#define STORE_BUSY_H

#include "base/list.h"
#include "nfs/client.h"

enum busy_kind {
	BUSY_USE = 'u', /* is being copied, or archived, or restored from */
	BUSY_MAKE = 'm', /* is being made, by one attempt at a time */
	BUSY_VOLUME_GONE = 'd', /* tombstone of a volume */
	BUSY_SNAPSHOT_GONE = 's', /* tombstone of a snapshot */
};

/* A name for a new note of that directory. */
void busy_name(char ret[NFS_NAME_MAX + 1], enum busy_kind kind, const char *dir);

/*
 * What is noted about directories that overlap with dir, or about all where that is NULL, given to
 * found() one after the other; what is not 0 ends it and is returned.
 */
typedef int (*busy_fn)(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
		       struct error *err);
int busy_each(struct nfs_client *c, const char *dir, busy_fn found, void *data, struct error *err);

/* Whether a note is of exactly that directory. */
bool busy_is_of(const char *name, const char *dir);

/* Whether nobody who is alive holds a note that is not of this process any more. */
bool busy_is_left(struct nfs_client *c, const char *name);

/* Whether no other replica uses, or makes, an overlapping directory: 0, or ABORTED, which names it. */
int busy_check_unused(struct nfs_client *c, const char *dir, struct error *err);

/* Whether no overlapping directory is being deleted: 0, or ABORTED. */
int busy_check_kept(struct nfs_client *c, const char *dir, struct error *err);

/* -------- notes of calls that last -------- */

struct busy_note {
	struct list link; /* in the list of this process's notes */
	enum busy_kind kind;
	char *dir;
	char first[NFS_NAME_MAX + 1]; /* its name before any renewal */
	char name[NFS_NAME_MAX + 1]; /* its name now */
	unsigned int renewals;
	bool lost; /* another replica has removed it */
};

/* Register a note of this process; nothing is on the share yet. Return 0 or -ENOMEM. */
int busy_note_init(struct busy_note *note, enum busy_kind kind, const char *dir);

/* Unregister and free. Accepts a zeroed note. */
void busy_note_done(struct busy_note *note);

/*
 * Write the note, then look for others. ABORTED where another replica is deleting the directory, or
 * making it; then the note is removed again. Else as nfs_error_set().
 */
int busy_note_write(struct nfs_client *c, struct busy_note *note, struct error *err);

/* Rename the note to its next name. ABORTED where another replica has removed it. */
int busy_note_renew(struct nfs_client *c, struct busy_note *note, struct error *err);

/* Remove the note. A note that stays is taken for a dead replica's once it is in somebody's way. */
int busy_note_erase(struct nfs_client *c, struct busy_note *note, struct error *err);

#endif
