/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * DeleteVolume, on the share. Comments refer to the numbered rules in doc/design.md, "Calls at
 * once"; policy notes are described there in "users/: who uses a directory".
 */

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/staging.h"
#include "store/tombstone.h"
#include "store/users.h"
#include "store/volume.h"
#include "store/volume_parts.h"

/* Whether there is a record under the key: 1, 0 or a negative errno. A damaged one is an error. */
static int key_has_record(struct nfs_client *c, const char *key, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r = record_read_at(c, STORE_VOLUMES, key, &rec, err);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : 1;
}

/* -------- the directory -------- */

/*
 * Whether the key has a record whose volume may need an empty directory that it found at dir: 1, 0
 * or a negative errno.
 */
static int key_has_directory(struct nfs_client *c, const char *key, const char *dir,
			     struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	struct volume v;
	int r;

	r = record_read_at(c, STORE_VOLUMES, key, &rec, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	v = volume_of(&rec);
	if (v.dir != NULL && path_compare(v.dir, dir) == PATH_IS_APART)
		return 0;
	return volume_needs_its_place(&v);
}

int volume_is_used_again(struct nfs_client *c, const struct tombstone *t, bool was_empty,
			 struct error *err)
{
	/* The old record is the tombstone, so any record under the key is a new volume's. */
	const struct owner_question q = { .volume = t->key, .scope = OWNER_ALL };
	struct owner owner;
	int r;

	if (was_empty && volume_key_can_have_record(t->key)) {
		r = key_has_directory(c, t->key, t->dir, err);
		if (r != 0)
			return r;
	}
	return owner_find(c, t->dir, &q, &owner, err);
}

static int delete_directory(struct nfs_client *c, struct tombstone *t, bool purge_now,
			    bool *ret_trashed, struct error *err)
{
	int r = tombstone_remove_directory(c, t, volume_is_used_again, ret_trashed, err);

	if (r < 0 || !purge_now)
		return r;
	/* Also purge what an earlier attempt moved into the trash. */
	*ret_trashed = false;
	return tombstone_purge_directory(c, t, err);
}

/*
 * Apply the policies of earlier volumes. Return 1 if they keep the directory as it is; else set
 * *policy to the strictest one and return 0.
 */
static int apply_earlier_policies(const struct tombstone *t, const struct owner *owner,
				  enum volume_on_delete *policy)
{
	const struct volume v = volume_of(&t->record);
	const enum volume_on_delete own = *policy;
	/* Such a directory was new or empty: it has nothing older in it. */
	const bool had_it_alone = volume_was_alone(&v, t->key);

	if (owner->policy_around != ON_DELETE_DELETE && !had_it_alone) {
		log_info("Keeping the directory of a deleted volume: it is inside a directory that is to be retained or archived",
			 LOG_STR("volume", t->key), LOG_STR("directory", t->dir),
			 LOG_STR("policy", on_delete_name(owner->policy_around)));
		return 1;
	}
	*policy = on_delete_stricter(own, owner->policy);
	if (*policy != own)
		log_info("Applying the stricter onDelete of an earlier volume in the directory or below it",
			 LOG_STR("volume", t->key), LOG_STR("directory", t->dir),
			 LOG_STR("policy", on_delete_name(*policy)));
	return *policy == ON_DELETE_RETAIN;
}

/*
 * Leave the directory to its other owner, with notes of the policy. With delete, leave a note only
 * if the other volume may be retained.
 */
static int leave_to_owner(struct nfs_client *c, const struct tombstone *t,
			  const struct owner *owner, enum volume_on_delete policy,
			  struct error *err)
{
	int r = 0;

	log_info("Keeping the directory of a deleted volume: it also belongs to another owner",
		 LOG_STR("volume", t->key), LOG_STR("directory", t->dir),
		 LOG_STR("of", owner->key));
	if (owner->kind != OWNER_IS_VOLUME)
		return 0;
	if (policy != ON_DELETE_DELETE || owner->may_retain)
		r = users_add_policy(c, t->dir, policy, err);
	return r < 0 ? r : directory_leave_parents(c, t->dir, t->key, err);
}

/*
 * Remove the notes of policies in a directory that is gone. Keep them if a late deletion has moved
 * it, or a directory in it, to the trash: they keep the purger from what is to be retained.
 */
static int remove_policies(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	int r = directory_has_unchecked_trash(c, t->dir, err);

	if (r != 0)
		return r < 0 ? r : 0;
	return users_remove_policies_within(c, t->dir, err);
}

/*
 * Rule 9: finish the removal of a directory that is being emptied in place, even if somebody uses
 * it by now. If we stopped, another replica might still be removing its entries.
 */
static int finish_in_place(struct nfs_client *c, struct tombstone *t, bool purge_now,
			   bool *ret_trashed, struct error *err)
{
	int r = delete_directory(c, t, purge_now, ret_trashed, err);

	if (r == 0)
		r = remove_policies(c, t, err);
	return r < 0 ? r : directory_remove_parents(c, t->dir, err);
}

static int retain_directory(struct nfs_client *c, const struct tombstone *t, bool binds_others,
			    struct error *err)
{
	int r;

	if (directory_is_gone(c, t->dir, NULL) > 0) {
		r = binds_others ? tombstone_keep_moved(c, t, ON_DELETE_RETAIN, err) : 0;
		return r < 0 ? r : directory_remove_parents(c, t->dir, err);
	}
	r = binds_others ? volume_note_retained_again(c, t, err) : 0;
	return r < 0 ? r : directory_leave_parents(c, t->dir, t->key, err);
}

/*
 * Dispose of the directory by the strictest policy of this volume and the earlier ones, unless it
 * has another owner.
 */
static int dispose_of_directory(struct nfs_client *c, struct tombstone *t,
				const struct volume_disposal *how, bool *ret_trashed,
				struct error *err)
{
	const struct owner_question q = volume_question_of_deletion(t, &t->record);
	/* The policy of an id without a record does not count for the directories of others. */
	const bool binds_others = q.has_record;
	enum volume_on_delete policy = how->policy;
	struct owner owner;
	int r;

	if (busy_is_irrevocable(t->name))
		return finish_in_place(c, t, how->purge_now, ret_trashed, err);
	if (policy == ON_DELETE_RETAIN)
		return retain_directory(c, t, binds_others, err);
	r = q.has_record ? owner_find(c, t->dir, &q, &owner, err)
			 : owner_find_late(c, t->dir, &q, &owner, err);
	if (r < 0)
		return r;
	if (r > 0)
		return leave_to_owner(c, t, &owner, binds_others ? policy : ON_DELETE_DELETE, err);
	if (apply_earlier_policies(t, &owner, &policy) > 0)
		return directory_leave_parents(c, t->dir, t->key, err);
	if (policy == ON_DELETE_ARCHIVE)
		r = tombstone_archive_directory(c, t, how->replace_archive, volume_is_used_again,
						ret_trashed, err);
	else
		r = delete_directory(c, t, how->purge_now, ret_trashed, err);
	if (r == 0 && owner.has_notes)
		r = remove_policies(c, t, err);
	return r < 0 ? r : directory_remove_parents(c, t->dir, err);
}

/* Remove a directory that a crash has left empty. A directory with contents was there before. */
static int remove_if_empty(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = directory_find(c, t->dir, &place, &handle, &attr, err);
	if (r == 0)
		r = tombstone_check(c, t, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_rmdir(c, &place.parent, place.base);
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	if (r < 0 && r != -ENOENT)
		return nfs_error_set(err, c, r, "removing directory '%s'", t->dir);
	r = directory_note_forget(c, t->dir, &handle, &attr, err);
	return r == -ENOENT ? 0 : r;
}

/*
 * Dispose of the remains of a volume that was not finished, never of data that was there before. A
 * directory that was not built elsewhere is removed only if it is empty and has no owner, and never
 * if existingDirectory was "require".
 */
static int dispose_of_unfinished(struct nfs_client *c, struct tombstone *t,
				 const struct volume_disposal *how, bool *ret_trashed,
				 struct error *err)
{
	const struct volume v = volume_of(&t->record);
	const struct owner_question q = {
		.volume = t->key,
		.has_record = true,
		.scope = OWNER_ALL,
		.policies = true,
	};
	struct owner owner;
	int r;

	if (volume_is_built(&v)) {
		r = tombstone_is_in_place(c, t, ret_trashed, err);
		if (r > 0)
			return dispose_of_directory(c, t, how, ret_trashed, err);
		return r < 0 ? r : directory_remove_parents(c, t->dir, err);
	}
	if (v.existing == EXISTING_REQUIRE)
		return directory_remove_parents(c, t->dir, err);
	r = owner_find(c, t->dir, &q, &owner, err);
	if (r == 0 && (!owner.is_noted || owner.policy == ON_DELETE_DELETE))
		r = remove_if_empty(c, t, err);
	return r < 0 ? r : directory_remove_parents(c, t->dir, err);
}

/*
 * Remove the notes of a deleted volume. If it had no record but its key leads to one, as on a share
 * that folds case, the notes belong to that record's volume: keep them.
 */
static int remove_notes(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	const bool had_record = tombstone_had_record(t);
	int r;

	/* Without room for a tombstone, the record is still there. */
	if (had_record && t->no_room)
		return users_remove(c, t->key, t->dir, err);
	if (!had_record && volume_key_can_have_record(t->key)) {
		r = key_has_record(c, t->key, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return volume_remove_notes(c, t->key, t->dir, err);
}

int volume_carry_out(struct nfs_client *c, struct tombstone *t, const struct volume_disposal *how,
		     bool *ret_trashed, struct error *err)
{
	const struct volume v = volume_of(&t->record);
	bool trashed = false;
	int r;

	/* Remove unfinished work first, so that it cannot be put into place any more. */
	if (volume_is_built(&v)) {
		r = staging_discard(c, t->key, ret_trashed, err);
		if (r < 0)
			return r;
	}
	if (volume_is_unfinished(&v))
		r = dispose_of_unfinished(c, t, how, &trashed, err);
	else
		r = dispose_of_directory(c, t, how, &trashed, err);
	*ret_trashed = *ret_trashed || trashed;
	if (r < 0)
		return r;
	if (strcmp(t->key, t->dir) != 0) {
		r = tombstone_check(c, t, err);
		if (r < 0)
			return r;
	}
	r = remove_notes(c, t, err);
	return r < 0 ? r : tombstone_finish(c, t, err);
}

/* -------- the call -------- */

/*
 * If the record has no policy, and the one that applies keeps the directory, record it: the
 * tombstone must tell all replicas the same policy, also those with another default.
 */
static int record_policy(struct nfs_client *c, const struct volume_id *id, struct record *rec,
			 const struct volume_disposal *how, struct error *err)
{
	const struct volume v = volume_of(rec);
	const struct volume_settings changes = {
		.given = MUTABLE_ON_DELETE,
		.on_delete = volume_policy(&v, id, how->policy),
	};
	int r;

	if (rec->n == 0 || v.on_delete != NULL || changes.on_delete == ON_DELETE_DELETE)
		return 0;
	if (volume_set_changes(rec, &changes) < 0)
		return error_oom(err);
	r = volume_write_record(c, id, rec, false, err);
	if (r < 0) /* the call may try again as another user: the share does not have it */
		record_unset(rec, VOLUME_MODIFIED_PREFIX VOLUME_KEY_ON_DELETE);
	return r;
}

static int bury_and_carry_out(struct nfs_client *c, struct tombstone *t, const struct volume_id *id,
			      struct record *rec, const struct volume_disposal *how,
			      bool *ret_trashed, struct error *err)
{
	struct volume_disposal disposal = *how;
	struct volume v;
	int r;

	/* First, because it looks for a record that was changed, and record_policy() changes it. */
	r = rec->n > 0 ? tombstone_forget_replaced(c, t, rec, err) : 0;
	if (r == 0)
		r = record_policy(c, id, rec, how, err);
	if (r < 0)
		return r;
	v = volume_of(rec);
	disposal.policy = volume_policy(&v, id, how->policy);
	r = volume_note_policy_before_burial(c, t, rec, id, disposal.policy, err);
	if (r == 0)
		r = volume_bury(c, t, id, rec, disposal.policy, err);
	if (r < 0)
		return r;
	/* The tombstone is newer than the record that was read before it was set. */
	if (t->record.n > 0) {
		v = volume_of(&t->record);
		r = volume_recorded_directory(c, &v, t->key, &t->dir, err);
		if (r < 0)
			return r;
	}
	/* Rule 1: a copy that has not seen the tombstone wrote its note before. */
	r = busy_check_unused(c, t->dir, err);
	if (r < 0)
		return r;
	disposal.policy = volume_buried_policy(&t->record, id, how->policy);
	return volume_carry_out(c, t, &disposal, ret_trashed, err);
}

/* Remove the draft and grave that a version of csi-nfs without tombstones may have left. */
static int remove_record_remains(struct nfs_client *c, const char *key, struct error *err)
{
	const struct nfs_handle *folder;
	int r;

	if (!volume_key_can_have_record(key))
		return 0;
	r = store_folder(c, STORE_VOLUMES, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = key_has_record(c, key, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = record_forget_draft(c, folder, key, err);
	if (r == 0)
		r = record_forget(c, folder, key, NULL, err);
	return r == -ENOENT ? 0 : r;
}

int volume_delete(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_disposal *how, bool *ret_trashed, struct error *err)
{
	cleanup_tombstone struct tombstone t = {
		.kind = BUSY_VOLUME_GONE,
		.key = volume_id_key(id),
		.identity = volume_record_identity(rec),
	};
	int r;

	*ret_trashed = false;
	r = volume_directory(c, id, rec, &t.dir, err);
	if (r < 0)
		return r;
	r = busy_check_unused(c, t.dir, err);
	if (r == 0)
		r = bury_and_carry_out(c, &t, id, rec, how, ret_trashed, err);
	if (r < 0 && r != -ESTALE)
		tombstone_restore(c, &t);
	/* The next attempt finds the record, or the tombstone. */
	if (r > 0)
		return error_set(err, ERROR_ABORTED, "the volume is being changed; try again");
	return r < 0 || rec->n > 0 ? r : remove_record_remains(c, t.key, err);
}
