/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The driver's own folder on a share:
 *
 *   .csi-nfs/
 *     volumes/      one record for each volume, see store/record.h
 *     snapshots/    one record for each snapshot
 *     parents/      which directories above volumes csi-nfs made, see
 *                   store/directory_notes.c
 *     users/        which volumes use which directory, see store/users.h
 *     busy/         what calls are doing, for other replicas to see; store/busy.h
 *     work/         copies and snapshots that are being made, see store/staging.h
 *     trash/        deleted directories that are being purged
 *
 * The folders have mode 0700 where the driver is root on the share. Elsewhere (the export squashes
 * root, or the driver is not root) volumes may be made with several identities, and each has to
 * write here: mode 1777, as for /tmp, so that nobody can remove what is another's.
 *
 * Handles of the folders are kept in the client, since every call needs them. After -ESTALE the
 * caller drops the client, and with it the handles. Threads as for nfs/client.h.
 */
#ifndef STORE_LAYOUT_H
#define STORE_LAYOUT_H

#include "base/str.h"
#include "nfs/client.h"

enum store_place {
	STORE_TOP, /* .csi-nfs itself */
	STORE_VOLUMES,
	STORE_PARENTS,
	STORE_USERS,
	STORE_SNAPSHOTS,
	STORE_WORK,
	STORE_TRASH,
	STORE_BUSY,
};

/*
 * Get the handle of a folder, borrowed from the client, making the folder if create is set.
 * -ENOENT, unreported, if it does not exist and create is not set. Other errors are reported.
 */
int store_folder(struct nfs_client *c, enum store_place folder, bool create,
		 const struct nfs_handle **ret, struct error *err);

/*
 * Open the directory name in dir, making it with the mode of the driver's folders if create is
 * set. Errors as store_folder().
 */
int store_open(struct nfs_client *c, const struct nfs_handle *dir, const char *name, bool create,
	       struct nfs_handle *ret, struct error *err);

/* As store_open() with create. *ret_made tells whether the directory was made. */
int store_make(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
	       struct nfs_handle *ret, bool *ret_made, struct error *err);

/*
 * Append the names in a directory that match() accepts to names; a NULL match accepts all. Return
 * 0; -ECANCELED if there are more than max, with the first max in names; or the errno of
 * nfs_readdir(), with what was read until then. Errors are not reported.
 */
typedef bool (*store_match_fn)(const char *name, const void *data);
int store_list(struct nfs_client *c, const struct nfs_handle *dir, store_match_fn match,
	       const void *data, size_t max, struct strv *names);

/* -------- names in the trash: <key>.<time>.<pid>.<number>[@<uid>:<gid>] -------- */

#define STORE_TRASH_KEY_MAX 150 /* the rest of a name has less than 100 bytes */
#define STORE_TRASH_KEY_WHOLE (STORE_TRASH_KEY_MAX - 4) /* a cut spares a character of 4 bytes */

/*
 * Get the key as it appears in a name. A key of more than STORE_TRASH_KEY_WHOLE bytes is cut and
 * gets a hash. It is then still longer than STORE_TRASH_KEY_WHOLE, so it differs from all keys that
 * are whole, and from those that an earlier version cut without a hash: these match no key.
 */
void store_trash_key(char ret[STORE_TRASH_KEY_MAX + 1], const char *key);

/*
 * Format a name that is unique among the entries at any one time. It contains the identity of the
 * export's clients unless that is the process's own.
 */
void store_trash_name(char name[NFS_NAME_MAX + 1], const struct nfs_export *e, const char *key);

/*
 * A rename into the trash may move a directory other than the one that was looked at before. Until
 * its handle has been compared, an entry is unchecked: its number begins with h. If the process
 * dies in between, a repeated call decides about the entry. If the call is not repeated, the purger
 * decides: after STORE_UNCHECKED_CHECK_S it looks for a user of the directory (store/unchecked.h),
 * and after STORE_UNCHECKED_PURGE_S it purges a directory without one. The age is its clock minus
 * that of the deleter, so a difference of the clocks changes both times.
 */
#define STORE_UNCHECKED_CHECK_S 60
#define STORE_UNCHECKED_PURGE_S 86400

void store_trash_name_unchecked(char name[NFS_NAME_MAX + 1], const struct nfs_export *e,
				const char *key);

bool store_trash_name_is_unchecked(const char *name);

/*
 * Return how long ago a name was made, in seconds: our clock minus the time in the name, by the
 * clock of the machine that made it. A time in the future counts as that far in the past.
 */
uint64_t store_trash_name_age_s(const char *name);

/* Get the key in a name. One of more than STORE_TRASH_KEY_WHOLE bytes was cut. */
void store_trash_name_key(const char *name, char ret[STORE_TRASH_KEY_MAX + 1]);

/* Whether a name was made from that key: finds what earlier attempts left. */
bool store_trash_name_is_of(const char *name, const char *key);

/* Set the identity of e to the one in the name, else to the process's own. */
void store_trash_identity(const char *name, struct nfs_export *e);

#endif
