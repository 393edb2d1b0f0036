/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Notes about what calls are doing, for the other replicas of the controller: symbolic links in
 * .csi-nfs/busy/, one for each call.
 *
 *   busy/<directory, with %2F for a slash>~<kind>~<holder>.<number>[x][.<renewals or hash>]
 *
 * Notes of use and of making belong to long calls. The holder renews a note by renaming it to the
 * next name. A replica that is blocked by a note removes it once store_holder_is_dead() says so. A
 * holder that was only paused notices when its next RENAME fails, at the latest before it puts its
 * work into place.
 *
 * Tombstones (store/tombstone.h) belong to deletions and stay until these are finished. Another
 * replica does not wait for one to go; it finishes the deletion. Worker threads; blocks.
 */
#ifndef STORE_BUSY_H
#define STORE_BUSY_H

#include "base/list.h"
#include "nfs/client.h"
#include "store/record.h"

enum busy_kind {
	BUSY_USE = 'u', /* is being copied, archived or restored from */
	BUSY_MAKE = 'm', /* is being made; by one attempt at a time */
	BUSY_VOLUME_GONE = 'd', /* tombstone of a volume */
	BUSY_SNAPSHOT_GONE = 's', /* tombstone of a snapshot */
};

/* Format a name for a new note about a directory. */
void busy_name(char ret[NFS_NAME_MAX + 1], enum busy_kind kind, const char *dir);

/*
 * Likewise for a tombstone. The name contains the identity of the record that is buried
 * (volume_record_identity()), unless that is 0: RENAME takes whatever record has the key by then.
 */
void busy_tombstone_name(char ret[NFS_NAME_MAX + 1], enum busy_kind kind, const char *dir,
			 uint64_t identity);

/* Whether a tombstone was set for that identity. True for one that contains none. */
bool busy_is_meant_for(const char *name, uint64_t identity);

/*
 * Whether a tombstone has the mark of a deletion that removes the directory in place, so that
 * whoever takes it over has to finish that (rule 9 in doc/design.md).
 */
bool busy_is_irrevocable(const char *name);

/* Format the name of a tombstone with that mark. */
void busy_irrevocable_name(char ret[NFS_NAME_MAX + 1], const char *name);

/*
 * Call found() for each note about a directory that overlaps with dir, or might on a server that
 * folds names, or for all notes if dir is NULL. A result other than 0 ends the walk and is
 * returned.
 */
typedef int (*busy_fn)(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
		       struct error *err);
int busy_each(struct nfs_client *c, const char *dir, busy_fn found, void *data, struct error *err);

/*
 * As busy_each(), and also call found() for each tombstone of a volume whose archive may overlap
 * with dir: that volume's deletion looks for users of its archive's place, too.
 */
int busy_each_in_way(struct nfs_client *c, const char *dir, busy_fn found, void *data,
		     struct error *err);

/* Whether a note is about exactly that directory. */
bool busy_is_of(const char *name, const char *dir);

/* Likewise, or about one that a server which folds names might treat as the same. */
bool busy_may_be_of(const char *name, const char *dir);

/* Get the key (store/path_key.h) of the directory that a note is about; "" if name is no note's. */
void busy_key(const char *name, char ret[RECORD_NAME_MAX + 1]);

/* Get the directory that a note is about. Return false if its path was cut. */
bool busy_directory(const char *name, char ret[RECORD_NAME_MAX + 1]);

/*
 * Whether a note or tombstone is abandoned: it has this process's id but belongs to no running
 * call, or its replica counts as dead.
 */
bool busy_is_abandoned(struct nfs_client *c, const char *name);

/*
 * Check that nobody uses or makes an overlapping directory: 0, or ABORTED. Abandoned notes are
 * removed.
 */
int busy_check_unused(struct nfs_client *c, const char *dir, struct error *err);

/* As busy_check_unused(), but ignore notes of making: the caller may be the maker. */
int busy_check_unread(struct nfs_client *c, const char *dir, struct error *err);

/*
 * Check that no overlapping directory is being deleted: 0, or ABORTED, which tells what to do once
 * the replica counts as dead.
 */
int busy_check_not_deleted(struct nfs_client *c, const char *dir, struct error *err);

/* As busy_check_not_deleted(), but only for volumes that had a record. */
int busy_check_recorded_not_deleted(struct nfs_client *c, const char *dir, struct error *err);

/* -------- notes of long calls -------- */

struct busy_note {
	struct list link; /* in the list of this process's notes */
	enum busy_kind kind;
	char *dir;
	char first[NFS_NAME_MAX + 1]; /* its name before any renewal */
	char name[NFS_NAME_MAX + 1]; /* its name now */
	char tried[NFS_NAME_MAX + 1]; /* a RENAME to it got no reply; else empty */
	unsigned int renewals;
	bool lost; /* another replica has removed it */
};

/* Register a note of this process; nothing is on the share yet. Return 0 or -ENOMEM. */
int busy_note_init(struct busy_note *note, enum busy_kind kind, const char *dir);

/* Unregister the note and free what it holds. Accepts a zeroed note. */
void busy_note_done(struct busy_note *note);

/*
 * Write the note, then look at the others. ABORTED for a note of making if somebody else makes
 * the same directory, and for a note of use if an overlapping directory is being deleted; other
 * errors as nfs_error_set(). After any error but -ESTALE the note is removed again.
 */
int busy_note_write(struct nfs_client *c, struct busy_note *note, struct error *err);

/* Rename the note to its next name. ABORTED if another replica has removed it. */
int busy_note_renew(struct nfs_client *c, struct busy_note *note, struct error *err);

/*
 * Remove the note. If that fails, the note stays until it blocks another call, which removes it as
 * abandoned.
 */
int busy_note_erase(struct nfs_client *c, struct busy_note *note, struct error *err);

#endif
