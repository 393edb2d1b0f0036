/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Notes about which volumes use which directory. A subDir may name the directory of another volume,
 * one in it or one around it; then deleting one volume would delete another's data. Each volume
 * whose directory is not simply its own key leaves notes in .csi-nfs/users/: one for its directory
 * and each one above it, and one for its directory alone. So a few lookups tell who else uses a
 * directory, however many volumes the share has:
 *
 *   users/<path, with %2F for a slash>/<key of the volume>     uses it, or one in it
 *   users/<path, with %2F for a slash>%/<key of the volume>    uses it
 *
 * A note without a record does not count. store/owner.h reads the notes.
 *
 * A deleted volume leaves its directory to the others that use it. Its deletion writes policy
 * notes, in the same folders as the notes of volumes:
 *
 *   users/.../<path, with %2F for a slash>~<policy>        the text has the directory, as dir=
 *
 * The deletions of the others follow the policies retain and archive, too. A note with the policy
 * delete is left for a volume with the policy retain. It says that there were other volumes, whose
 * deletions may be repeated after that volume is gone.
 *
 * Keys that csi-nfs makes contain no '~'. The notes stay as long as the directory: a repeated
 * DeleteVolume finds a directory without a record. Earlier versions of csi-nfs find no record of
 * that name, and ignore the notes. Worker threads; functions that take a client block.
 */
#ifndef STORE_USERS_H
#define STORE_USERS_H

#include "nfs/client.h"
#include "store/record.h"
#include "store/settings.h"

/*
 * Write the notes of a volume. Return 0 also if they are there. *ret_noted tells whether the
 * folder with the notes about the directory alone was there before. Errors as nfs_error_set().
 */
int users_add(struct nfs_client *c, const char *key, const char *dir, bool *ret_noted,
	      struct error *err);

/* Remove the notes of a volume. Return 0 also if there are none. Errors likewise. */
int users_remove(struct nfs_client *c, const char *key, const char *dir, struct error *err);

/* -------- policies of deleted volumes -------- */

/* Write the policy notes of a deleted volume that left dir to others. Errors likewise. */
int users_add_policy(struct nfs_client *c, const char *dir, enum volume_on_delete policy,
		     struct error *err);

/* Whether a name is that of a policy note. ret_policy may be NULL. */
bool users_name_is_policy(const char *name, enum volume_on_delete *ret_policy);

/*
 * Read which directory a policy note in one of the folders is about. *ret is NULL if the note
 * does not tell; the caller frees. -ENOENT, unreported, if the note is gone.
 */
int users_read_policy(struct nfs_client *c, const struct nfs_handle *users, const char *name,
		      char **ret, struct error *err);

/*
 * Remove the policy notes about the directory, of every policy. Notes of another identity, which we
 * cannot remove, stay.
 */
int users_remove_policies(struct nfs_client *c, const char *dir, struct error *err);

/* Likewise for the directory and all directories in it. Call this after these are gone. */
int users_remove_policies_within(struct nfs_client *c, const char *dir, struct error *err);

/* -------- names of folders -------- */

/*
 * Return the length of the next longer prefix of dir that is a path: up to the next slash, or the
 * end.
 */
size_t users_next_prefix(const char *dir, size_t len);

/* Format the name of the folder with the notes about the first len bytes of dir alone. */
#define USERS_EXACT_MAX (RECORD_NAME_MAX + 2)
void users_exact_name(char name[USERS_EXACT_MAX], const char *dir, size_t len);

#endif
