/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The directory of a deleted volume or snapshot: removed or archived while the tombstone is set,
 * and put back if another call has begun to use it. Comments refer to the numbered rules in
 * doc/design.md, "Calls at once".
 */

#include "store/tombstone.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/staging.h"
#include "store/users.h"
#include "tree/remove.h"

/* Whether a tombstone was ever set for this deletion, or there was no room for one. */
static bool tombstone_was_set(const struct tombstone *t)
{
	return t->name[0] != '\0' || t->no_room;
}

/* Whether the tombstone is still there: 1, 0 or a negative errno. */
static int tombstone_is_set(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	const struct nfs_handle *busy;
	struct nfs_handle unused;
	int r;

	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = nfs_lookup(c, busy, t->name, &unused, NULL);
	if (r == 0)
		return 1;
	return r == -ENOENT ? 0 : tombstone_failed(c, r, t, err);
}

/* Report that another replica has finished the deletion, so that the CO asks again. */
static int deletion_was_finished(const struct tombstone *t, struct error *err)
{
	return error_set(err, ERROR_ABORTED,
			 "another controller has finished the deletion of '%s' meanwhile; try again",
			 t->dir);
}

int tombstone_check(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	int r;

	if (t->name[0] == '\0')
		return 0;
	r = tombstone_is_set(c, t, err);
	if (r == 0)
		return deletion_was_finished(t, err);
	return r < 0 ? r : 0;
}

/* Rule 4: look up the directory, then check the tombstone. -ENOENT, unreported: there is none. */
static int tombstone_find_directory(struct nfs_client *c, const struct tombstone *t,
				    struct directory_place *place, struct directory_known *ret,
				    struct error *err)
{
	int r = directory_look_up(c, t->dir, place, &ret->handle, &ret->attr, err);

	if (r < 0)
		return r;
	if (!tombstone_was_set(t))
		return deletion_was_finished(t, err);
	return tombstone_check(c, t, err);
}

static int release_if_set(struct nfs_client *c, const struct nfs_handle *trashed, const void *data,
			  struct error *err)
{
	(void)trashed;
	return tombstone_check(c, data, err);
}

/*
 * Release what was found in the trash if it has no user, and no note in or around it keeps it.
 * Without a tombstone, a new volume may have had the directory since this call looked for owners.
 * With one, nobody gets it any more (rule 1), but a late deletion may have moved it before, with a
 * directory in it that is retained. ABORTED if it can be put back once the record is. Leave it if
 * another directory is in the place, or if the tombstone is to stay: no purger puts back below one.
 */
static int release_if_unowned(struct nfs_client *c, const struct nfs_handle *trashed,
			      const void *data, struct error *err)
{
	const struct tombstone *t = data;
	const struct owner_question q = {
		.volume = t->key,
		.has_record = tombstone_had_record(t),
		.scope = OWNER_ALL,
		.count = OWNER_COUNT_FINISHED,
		.policies = true,
		.moved = trashed,
	};
	struct owner owner;
	int r;

	if (tombstone_was_set(t)) {
		r = tombstone_check(c, t, err);
		if (r == 0)
			r = owner_find(c, t->dir, &q, &owner, err);
	} else {
		r = owner_find_late(c, t->dir, &q, &owner, err);
	}
	if (r < 0)
		return r;
	if (r == 0 && !owner_is_only_kept(&owner))
		return 0;
	if (busy_is_irrevocable(t->name)) /* rule 9: this tombstone becomes no record again */
		return 1;
	r = directory_is_gone(c, t->dir, err);
	if (r > 0)
		return directory_is_moving(t->dir, err);
	return r < 0 ? r : 1;
}

int tombstone_release_trash(struct nfs_client *c, const struct tombstone *t, const char *path,
			    bool *ret_trashed, struct error *err)
{
	/* Volumes stay away from an older archive and, once it has a record, from a snapshot. */
	const bool may_be_anothers =
		!tombstone_was_set(t) || (t->kind == BUSY_VOLUME_GONE && strcmp(path, t->dir) == 0);

	return directory_trash_release_all(c, path,
					   may_be_anothers ? release_if_unowned : release_if_set, t,
					   ret_trashed, err);
}

int tombstone_is_in_place(struct nfs_client *c, const struct tombstone *t, bool *ret_trashed,
			  struct error *err)
{
	int r = staging_is_in_place(c, &t->record, t->dir, err);

	if (r != 0 || staging_state_of(&t->record).built == NULL)
		return r;
	r = tombstone_release_trash(c, t, t->dir, ret_trashed, err);
	return r < 0 ? r : staging_is_in_place(c, &t->record, t->dir, err);
}

/* As tombstone_find_directory(), but by rule 6 a directory that is not found cannot come back. */
static int find_directory_to_remove(struct nfs_client *c, const struct tombstone *t,
				    struct directory_place *place, struct directory_known *ret,
				    bool *ret_trashed, struct error *err)
{
	int r = tombstone_find_directory(c, t, place, ret, err);

	if (r != -ENOENT)
		return r;
	r = tombstone_release_trash(c, t, t->dir, ret_trashed, err);
	return r < 0 ? r : tombstone_find_directory(c, t, place, ret, err);
}

int tombstone_keep_moved(struct nfs_client *c, const struct tombstone *t,
			 enum volume_on_delete policy, struct error *err)
{
	int r = directory_stays_gone(c, t->dir, err);

	if (r == 0)
		return directory_is_moving(t->dir, err);
	if (r > 0)
		r = directory_has_unchecked_trash(c, t->dir, err);
	return r > 0 ? users_add_policy(c, t->dir, policy, err) : r;
}

/*
 * Rule 5: make an empty directory again for its user, and remove it if the user has been deleted in
 * the meantime. Return 1 if it stays, else 0 or a negative errno.
 */
static int put_empty_directory_back(struct nfs_client *c, const struct tombstone *t,
				    struct directory_place *place, const struct nfs_attr *attr,
				    tombstone_users_fn users, struct error *err)
{
	int r = directory_make_again(c, place, attr);

	if (r < 0)
		return tombstone_failed(c, r, t, err);
	r = users(c, t, true, err);
	if (r != 0)
		return r;
	(void)nfs_rmdir(c, &place->parent, place->base);
	return directory_remove_parents(c, t->dir, err);
}

/* There is another directory in the place. */
#define PLACE_IS_TAKEN 2

/*
 * Put back a directory that was moved after its tombstone had gone. Return 1 after that, 0 if no
 * user has found the directory (rule 5), or PLACE_IS_TAKEN.
 */
static int move_directory_back(struct nfs_client *c, const struct tombstone *t,
			       const struct directory_place *place,
			       const struct nfs_handle *moved_to, const char *name,
			       tombstone_users_fn users, struct error *err)
{
	int r;

	r = users != NULL ? users(c, t, false, err) : 0;
	if (r <= 0)
		return r;
	r = directory_move_back(c, moved_to, name, place);
	if (r == -EEXIST)
		return PLACE_IS_TAKEN;
	if (r == -ENOENT) /* the user's deletion has released the entry */
		return 0;
	return r < 0 ? tombstone_failed(c, r, t, err) : 1;
}

/* Put back a directory that was removed. trashed is its name in the trash; "": it was empty. */
static int put_directory_back(struct nfs_client *c, const struct tombstone *t,
			      struct directory_place *place, const struct nfs_attr *attr,
			      const char *trashed, tombstone_users_fn users, struct error *err)
{
	const struct nfs_handle *trash;
	int r;

	if (trashed[0] != '\0') {
		r = store_folder(c, STORE_TRASH, true, &trash, err);
		if (r < 0)
			return tombstone_failed(c, r, t, err);
		r = move_directory_back(c, t, place, trash, trashed, users, err);
		/* It may be another user's data: the entry stays, unchecked (rule 6). */
		return r == PLACE_IS_TAKEN ? deletion_was_finished(t, err) : r;
	}
	r = users != NULL ? users(c, t, true, err) : 0;
	return r <= 0 ? r : put_empty_directory_back(c, t, place, attr, users, err);
}

/*
 * Remove the notes of the directory, which the driver may have made above an earlier volume. The
 * directory of a volume without subDir has none, since no other volume uses its name.
 */
static int forget_notes(struct nfs_client *c, const struct tombstone *t,
			const struct directory_known *known, struct error *err)
{
	if (strcmp(t->key, t->dir) == 0)
		return 0;
	return directory_note_forget(c, t->dir, &known->handle, &known->attr, err);
}

/* Remove the notes of a directory that is gone: an earlier attempt may have left them. */
static int sweep_notes(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	int r = strcmp(t->key, t->dir) == 0 ? 0 : directory_note_sweep(c, t->dir, err);

	return r < 0 ? r : 0;
}

static int directory_was_replaced(struct nfs_client *c, const struct tombstone *t,
				  struct error *err)
{
	log_warn("A directory was put back during its deletion: another controller has re-created it, or has given up the deletion",
		 LOG_STR("directory", t->dir), LOG_STR("server", c->export.server),
		 LOG_STR("share", c->export.share));
	return error_set(err, ERROR_ABORTED,
			 "another controller has re-created '%s' meanwhile, or has given up its deletion; try again",
			 t->dir);
}

/*
 * Rule 9: mark the tombstone, so that no replica that takes this one for dead leaves the directory
 * to others while it is emptied. ABORTED if the tombstone has gone.
 */
static int tombstone_make_irrevocable(struct nfs_client *c, struct tombstone *t, struct error *err)
{
	char marked[NFS_NAME_MAX + 1];
	const struct nfs_handle *busy;
	int r;

	if (t->name[0] == '\0' || busy_is_irrevocable(t->name))
		return tombstone_check(c, t, err);
	busy_irrevocable_name(marked, t->name);
	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = nfs_rename(c, busy, t->name, busy, marked);
	if (r == -ENOSPC || r == -EDQUOT) /* go on without the mark, since deletions make room */
		return tombstone_check(c, t, err);
	if (r < 0 && r != -ENOENT)
		return tombstone_failed(c, r, t, err);
	memcpy(t->name, marked, sizeof(t->name));
	/* Another replica may have marked it first. */
	return r == -ENOENT ? tombstone_check(c, t, err) : 0;
}

int tombstone_remove_directory(struct nfs_client *c, struct tombstone *t, tombstone_users_fn users,
			       bool *ret_trashed, struct error *err)
{
	char key[RECORD_NAME_MAX + 1], trashed[NFS_NAME_MAX + 1];
	struct directory_place place;
	struct directory_known known;
	bool was_finished, was_gone;
	int r;

	r = find_directory_to_remove(c, t, &place, &known, ret_trashed, err);
	if (r < 0)
		return r == -ENOENT ? sweep_notes(c, t, err) : r;
	directory_trash_key(key, t->dir);
	r = directory_remove_known(c, &place, &known, key, trashed, err);
	was_gone = r == -ENOENT;
	if (was_gone)
		r = 0;
	/* On a full share, a trash that cannot grow must not hinder what makes room. */
	if (r == DIRECTORY_CANNOT_MOVE || r == DIRECTORY_LACKS_ROOM) {
		r = tombstone_make_irrevocable(c, t, err);
		t->is_emptied = r == 0;
		if (r == 0)
			r = tree_remove_known(c, &place.parent, place.base, &known.handle, err);
	}
	t->is_moved = r <= 0 && trashed[0] != '\0';
	if (r != 0)
		return r > 0 ? directory_was_replaced(c, t, err) : r;
	r = t->no_room ? 1 : tombstone_is_set(c, t, err);
	was_finished = r == 0;
	if (was_finished) {
		r = put_directory_back(c, t, &place, &known.attr, trashed, users, err);
		if (r > 0)
			return directory_was_replaced(c, t, err);
	}
	if (r < 0) /* the entry stays unchecked: a repeated call decides about it */
		return r;
	if (trashed[0] != '\0') {
		r = directory_trash_release(c, key, trashed, err);
		if (r < 0)
			return r;
		*ret_trashed = true;
	}
	if (was_finished)
		return deletion_was_finished(t, err);
	/* Rule 6: another deletion has moved it since we looked, and may be dead. */
	if (was_gone) {
		r = tombstone_release_trash(c, t, t->dir, ret_trashed, err);
		if (r < 0)
			return r;
	}
	return forget_notes(c, t, &known, err);
}

int tombstone_purge_directory(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	char key[RECORD_NAME_MAX + 1];

	directory_trash_key(key, t->dir);
	return directory_purge(c, key, err);
}

/* Put back a directory that was archived. */
static int take_out_of_archive(struct nfs_client *c, const struct tombstone *t,
			       const struct directory_place *place,
			       const struct directory_known *known, const char *archive,
			       tombstone_users_fn users, struct error *err)
{
	struct directory_place from;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = directory_look_up(c, archive, &from, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!nfs_handle_is_equal(&handle, &known->handle))
		return 0;
	r = move_directory_back(c, t, place, &from.parent, from.base, users, err);
	if (r <= 0 || r == PLACE_IS_TAKEN)
		return r < 0 ? r : 0;
	r = directory_remove_parents(c, archive, err);
	return r < 0 ? r : 1;
}

/* Without a record, an earlier call may have archived it. */
static int check_nothing_archived(struct nfs_client *c, const struct tombstone *t,
				  struct error *err)
{
	if (!tombstone_had_record(t))
		return 0;
	return tombstone_keep_moved(c, t, ON_DELETE_ARCHIVE, err);
}

static int archive_nothing(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	int r = check_nothing_archived(c, t, err);

	return r < 0 ? r : sweep_notes(c, t, err);
}

int tombstone_archive_directory(struct nfs_client *c, const struct tombstone *t, bool replace,
				tombstone_users_fn users, bool *ret_trashed, struct error *err)
{
	cleanup_free char *archive = NULL;
	struct directory_place place;
	struct directory_known known;
	int r;

	r = tombstone_find_directory(c, t, &place, &known, err);
	if (r < 0)
		return r == -ENOENT ? archive_nothing(c, t, err) : r;
	r = directory_archive(c, t->dir, t->key, &known, replace, &archive, ret_trashed, err);
	if (r == 0 && archive == NULL)
		r = check_nothing_archived(c, t, err);
	if (r != 0)
		return r > 0 ? directory_was_replaced(c, t, err) : r;
	r = t->no_room ? 1 : tombstone_is_set(c, t, err);
	if (r < 0)
		return r;
	/* The older archive may be in the trash, unchecked, since an earlier attempt died. */
	if (r > 0 && replace && archive != NULL) {
		int released = tombstone_release_trash(c, t, archive, ret_trashed, err);

		if (released < 0)
			return released;
	}
	if (r > 0)
		return forget_notes(c, t, &known, err);
	if (archive != NULL)
		r = take_out_of_archive(c, t, &place, &known, archive, users, err);
	if (r != 0)
		return r > 0 ? directory_was_replaced(c, t, err) : r;
	return deletion_was_finished(t, err);
}
