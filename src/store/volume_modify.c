/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * ControllerModifyVolume, on the share: the directory first, then the record; all of it or nothing.
 */

#include "base/mode.h"
#include "nfs/calls.h"
#include "nfs/owner.h"
#include "store/owner.h"
#include "store/volume.h"
#include "store/volume_parts.h"

/* Find what has to change on the server; *ret_old undoes it. */
static struct nfs_change change_for(const struct volume_settings *changes,
				    const struct nfs_attr *attr, struct nfs_change *ret_old)
{
	struct nfs_change change = {
		.mode = changes->mode,
		.uid = changes->owner.uid,
		.gid = changes->owner.gid,
	};
	bool known = attr->has_owner;

	if (attr->has_mode)
		change.mode = mode_for_existing(changes->mode, attr->mode);
	change.has_uid = changes->owner.has_uid && !(known && attr->uid == change.uid);
	change.has_gid = changes->owner.has_gid && !(known && attr->gid == change.gid);
	change.has_mode = (changes->given & MUTABLE_MODE) && changes->mode != 0 &&
			  !(attr->has_mode && attr->mode == change.mode);
	/* chown(2) on the server drops setuid and setgid. */
	if ((change.has_uid || change.has_gid) && !change.has_mode && attr->has_mode) {
		change.has_mode = (attr->mode & MODE_SPECIAL) != 0;
		change.mode = attr->mode;
	}
	*ret_old = (struct nfs_change){
		.has_mode = change.has_mode && attr->has_mode,
		.has_uid = change.has_uid && (known || attr->is_named),
		.has_gid = change.has_gid && (known || attr->is_named),
		.mode = attr->mode,
		.uid = attr->uid,
		.gid = attr->gid,
		.uid_name = attr->uid_name,
		.gid_name = attr->gid_name,
	};
	return change;
}

static int change_directory(struct nfs_client *c, const char *dir, const struct nfs_handle *handle,
			    const struct nfs_change *change, struct error *err)
{
	int r;

	if (!change->has_mode && !change->has_uid && !change->has_gid)
		return 0;
	r = nfs_setattr(c, handle, change);
	return r < 0 ? nfs_error_set(err, c, r, "setting mode and owner of '%s'", dir) : 0;
}

static bool is_unchanged(const struct nfs_attr *now, const struct nfs_attr *before)
{
	return now->has_mode && now->mode == before->mode && now->has_owner == before->has_owner &&
	       now->is_named == before->is_named &&
	       nfs_owner_is_same(now->uid_name, now->uid, before->uid_name, before->uid) &&
	       nfs_owner_is_same(now->gid_name, now->gid, before->gid_name, before->gid);
}

/* Undo a change of the directory. If that fails, ABORTED makes the CO come back. */
static void undo_change(struct nfs_client *c, const char *dir, const struct nfs_handle *handle,
			const struct nfs_change *old, struct error *err)
{
	if (change_directory(c, dir, handle, old, NULL) < 0)
		err->code = ERROR_ABORTED;
}

/* Check that the directory is in no other volume: mode and owner would change there, too. */
static int check_other_volumes(struct nfs_client *c, const struct volume_id *id,
			       const struct record *rec, const char *dir,
			       const struct nfs_change *change, struct error *err)
{
	const struct volume v = volume_of(rec);
	const char *key = volume_id_key(id);
	const struct owner_question q = {
		.volume = key,
		.has_record = rec->n > 0,
		.scope = OWNER_AT | OWNER_AROUND | OWNER_SNAPSHOTS,
		.count = volume_is_proven_exclusive(&v, key) ? OWNER_COUNT_SHARING
							     : OWNER_COUNT_FINISHED,
	};
	struct owner owner;
	int r;

	if (!change->has_mode && !change->has_uid && !change->has_gid)
		return 0;
	r = owner_find(c, dir, &q, &owner, err);
	return r <= 0 ? r : owner_refuse(c, dir, &owner, key, err);
}

int volume_modify(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_settings *changes, struct error *err)
{
	const bool fresh = rec->n == 0;
	struct nfs_change change, old;
	struct nfs_attr attr, now;
	struct nfs_handle handle;
	const char *dir = NULL;
	int r;

	r = volume_open_directory(c, id, rec, &dir, &handle, err);
	if (r < 0)
		return r;
	if (!volume_key_can_have_record(volume_id_key(id)))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "this volume's id cannot have a record, so the volume cannot be modified");
	r = nfs_getattr(c, &handle, &attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up the owner of '%s'", dir);
	change = change_for(changes, &attr, &old);
	r = check_other_volumes(c, id, rec, dir, &change, err);
	if (r < 0)
		return r;
	r = change_directory(c, dir, &handle, &change, err);
	if (r < 0) {
		/*
		 * A failed change may be half made: a server may set another owner than it is told
		 * to.
		 */
		if (nfs_getattr(c, &handle, &now) < 0 || !is_unchanged(&now, &attr))
			undo_change(c, dir, &handle, &old, err);
		return r;
	}
	if ((fresh && volume_describe_foreign(rec, id) < 0) || volume_set_changes(rec, changes) < 0)
		r = error_oom(err);
	else
		r = volume_write_record(c, id, rec, fresh, err);
	if (r > 0)
		r = error_set(err, ERROR_FAILED_PRECONDITION,
			      "directory '%s' on %s:%s belongs to another volume alone: modify that one",
			      dir, c->export.server, c->export.share);
	if (r < 0)
		undo_change(c, dir, &handle, &old, err);
	return r;
}
