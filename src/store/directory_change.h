/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Making, archiving and removing the directory of a volume. The caller first settles whose
 * directory it is, see store/owner.h. directory_make.c, directory_archive.c, directory_remove.c,
 * directory_parents.c and directory_notes.c do what their names say. Worker threads; blocks.
 */
#ifndef STORE_DIRECTORY_CHANGE_H
#define STORE_DIRECTORY_CHANGE_H

#include "store/directory.h"
#include "store/record.h"
#include "store/owner.h"
#include "store/settings.h"

/*
 * Remove the directories above path that the driver made, deepest first, if empty and no volume's.
 */
int directory_remove_parents(struct nfs_client *c, const char *path, struct error *err);

/*
 * The directory of the deleted volume key stays. As far as it and those above lie in a directory
 * that a volume has, or that is kept, and hold no other volume, remove the notes that the driver
 * made them: whoever removes or archives the directory around them does not look for such notes.
 */
int directory_leave_parents(struct nfs_client *c, const char *path, const char *key,
			    struct error *err);

/* Whether the driver made the directory above a volume or archive: 1, 0 or a negative errno. */
int directory_is_made_parent(struct nfs_client *c, const char *path, struct error *err);

/* -------- making -------- */

/* Requirements for a volume's directory. */
struct directory_wish {
	uint32_t mode; /* 0: DIRECTORY_MODE for a new one; an existing one keeps its own */
	struct volume_owner owner;
	enum volume_existing existing; /* whether it may, must or must not be there */
	const struct owner_question *others; /* if these own an existing one, refuse it */
	const struct owner_question *users; /* if these use one, keep its mode and owner */
};

/*
 * As directory_make_parents(), for the directory of a volume; NULL: of a snapshot. ABORTED if a
 * directory above is missing that other volumes have, or have theirs in, and may come back from the
 * trash (rule 6 in doc/design.md, "Calls at once").
 */
int directory_make_parents_of(struct nfs_client *c, const char *path, const char *volume,
			      struct directory_place *ret, struct error *err);

/*
 * Make the directory at path, with parents, or find it. *ret_made tells whether it was made.
 * Errors: FAILED_PRECONDITION if it is there, or is not (-ENOENT), against the wish; else as
 * nfs_error_set(). After a final error, what was made is gone again.
 */
int directory_make(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		   bool *ret_made, struct error *err);

/*
 * Remove what directory_make() made, after the error in err, unless somebody has it by now or
 * something is in it. If that fails, change the error to ABORTED, so that the CO retries.
 */
void directory_unmake(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		      struct error *err);

/*
 * Rename a directory back to the place that it was moved from. While it was away, the directory
 * above may have been empty, and have been removed: then make it again. Errors are unreported:
 * -ENOENT if the directory itself is gone.
 */
int directory_rename_back(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			  const struct directory_place *place);

/*
 * Likewise where somebody may have taken the place. Looks at the place first, since RENAME would
 * replace an empty directory. Errors are unreported: -EEXIST if something is there by now, -ENOENT
 * if the directory itself is gone.
 */
int directory_move_back(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			const struct directory_place *place);

/* -------- removing -------- */

/* A directory that was looked up before, with all attributes. */
struct directory_known {
	struct nfs_handle handle;
	struct nfs_attr attr;
};

/*
 * Remove the known directory at place: at once if it is empty, else by a rename into the trash, to
 * a name that begins with key. ret_name: its name in the trash, where it is unchecked until
 * directory_trash_release(); "": none. Return -ENOENT, unreported, if there is none: another call
 * may have moved it to the trash meanwhile. Return 1 if another directory had taken its place; that
 * one has been put back. Return DIRECTORY_CANNOT_MOVE if the server refuses the rename, as from
 * another file system: the caller checks once more that it may go, and calls tree_remove_known().
 * Likewise DIRECTORY_LACKS_ROOM if the file system is too full for its name in the trash.
 * FAILED_PRECONDITION if something is mounted on it.
 */
#define DIRECTORY_CANNOT_MOVE 2
#define DIRECTORY_LACKS_ROOM 3
int directory_remove_known(struct nfs_client *c, const struct directory_place *place,
			   const struct directory_known *known, const char *key,
			   char ret_name[NFS_NAME_MAX + 1], struct error *err);

/*
 * After the rename of a directory from a place to name in the directory to, check that it is the
 * known one. Return 0 if so, and also if the entry is gone: a repeated call may have handed it to
 * the purger. Rename anything else back and return 1.
 *
 * A directory is known by its handle. Servers whose handles stand for paths (go-nfs) give it
 * another one when it is renamed; only there it is known by file id, file system and mtime.
 */
int directory_check_moved(struct nfs_client *c, const struct directory_place *from,
			  const struct directory_known *known, const struct nfs_handle *to,
			  const char *name, struct error *err);

/*
 * Rename path, the directory of volume key, to archived-path. If there is an archive of that name
 * and replace is set, the old archive is removed first (*ret_trashed: there is something to purge);
 * without replace, the new one gets a date at the end of its name. It also gets one if
 * archived-path holds archives of other volumes, or if a volume has just adopted the older archive,
 * which is then given back to it. If the new archive would overlap with directories of others, or
 * lie in another archive, the date follows the first component instead. Return 0 also if path is
 * gone. *ret_archive becomes the path of the archive, for the caller to free, or NULL if nothing
 * was moved. known, and the result 1, are as for directory_remove_known().
 */
int directory_archive(struct nfs_client *c, const char *path, const char *key,
		      const struct directory_known *known, bool replace, char **ret_archive,
		      bool *ret_trashed, struct error *err);

/* -------- what was moved into the trash -------- */

/*
 * Release an unchecked entry for purging: rename it to a name that begins with key and that the
 * purger takes. Return 0 also if the entry is gone.
 */
int directory_trash_release(struct nfs_client *c, const char *key, const char *entry,
			    struct error *err);

/*
 * Format the key of names in the trash for the directory at path: the whole path or, of a long one,
 * its beginning and a hash, so that no other directory has it.
 */
void directory_trash_key(char key[RECORD_NAME_MAX + 1], const char *path);

/* Get the path from which an entry of the trash was moved. False if its name does not tell. */
bool directory_trash_path(const char *name, char path[RECORD_NAME_MAX + 1]);

/*
 * Whether a directory that was at path is in the trash, unchecked, or one that was above path and
 * has no other in its place: 1, 0 or a negative errno. The deletion of an earlier volume that was
 * paused may have taken it for the one that it knew, and puts it back, or a purger does.
 */
int directory_may_come_back(struct nfs_client *c, const char *path, struct error *err);

/*
 * Whether the trash has an unchecked entry that was at path, above it or below it, even if it
 * cannot be put back: 1, 0 or a negative errno.
 */
int directory_has_unchecked_trash(struct nfs_client *c, const char *path, struct error *err);

/* Answer ABORTED: another replica may move the directory at path, or has just moved it (rule 6). */
int directory_is_moving(const char *path, struct error *err);

/*
 * Whether a directory that was not found stays away: 1, 0 if it is back by now, or a negative
 * errno. ABORTED if it may come back.
 */
int directory_stays_gone(struct nfs_client *c, const char *path, struct error *err);

/* Decide about an entry of the trash: 0 to release it, 1 to leave it, or a negative errno. */
typedef int (*directory_release_fn)(struct nfs_client *c, const struct nfs_handle *trashed,
				    const void *data, struct error *err);

/*
 * Release the directories that were at path for purging, so that they cannot come back. decide() is
 * asked about each, and its first error ends the call; NULL releases all. Those of another identity
 * stay as they are if the export does not let this one rename them. *ret_trashed is set if a
 * directory was renamed: a purge that is under way does not see its new name.
 */
int directory_trash_release_all(struct nfs_client *c, const char *path, directory_release_fn decide,
				const void *data, bool *ret_trashed, struct error *err);

/*
 * Purge what deletions have moved into the trash under that key, in this call or an earlier one.
 * Blocks as long as it takes.
 */
int directory_purge(struct nfs_client *c, const char *key, struct error *err);

#endif
