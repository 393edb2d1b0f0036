/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/volume_change.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/mode.h"
#include "nfs/calls.h"
#include "nfs/owner.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/users.h"

/* What csi-driver-nfs made has no record: what is known of it has to be kept from now on. */
static int describe_foreign(struct record *rec, const struct volume_id *id, struct error *err)
{
	cleanup_free char *text = volume_id_format(id);
	enum volume_on_delete policy;
	int r = text != NULL ? 0 : -ENOMEM;

	if (r == 0)
		r = record_set(rec, VOLUME_KEY_NAME, volume_id_key(id));
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_ID, text);
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_DIR, id->subdir);
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_MODE, "0000");
	/* Without it, the policy of the time of the deletion counts, as before. */
	if (r == 0 && id->on_delete[0] != '\0' && on_delete_parse(id->on_delete, &policy) == 0)
		r = record_set(rec, VOLUME_KEY_ON_DELETE, on_delete_name(policy));
	return r < 0 ? error_oom(err) : 0;
}

/* Puts rec on the share; fresh: it was described just now, there is none yet. */
static int write_record(struct nfs_client *c, const struct volume_id *id, struct record *rec,
			bool fresh, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	const char *key = volume_id_key(id);
	const struct nfs_handle *folder;
	int r;

	r = store_folder(c, STORE_VOLUMES, true, &folder, err);
	if (r < 0)
		return r;
	if (!fresh)
		return record_replace(c, folder, key, rec, err);
	/* Notes that lead to no record do no harm; a record without them would be overlooked. */
	r = users_add(c, key, id->subdir, err);
	if (r == 0)
		r = record_create(c, folder, key, rec, err);
	if (r == -EEXIST)
		return error_set(err, ERROR_ABORTED, "the volume is being changed; try again");
	if (r < 0)
		return r;
	/* A deletion looks for a record once it has said what it is at: of the two, one sees the other. */
	r = busy_check_kept(c, id->subdir, err);
	if (r < 0 && (users_remove(c, key, id->subdir, &ignored) < 0 ||
		      record_remove(c, folder, key, rec, &ignored) < 0))
		err->code = ERROR_ABORTED;
	return r;
}

static int open_directory(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
			  const char **ret_dir, struct nfs_handle *ret, struct error *err)
{
	struct directory_place place;
	struct nfs_attr attr;
	int r;

	r = volume_directory(c, id, rec, ret_dir, err);
	/* One without a record may have had one until now: the tombstone is there before that goes. */
	if (r == 0 && rec->n == 0)
		r = busy_check_kept(c, *ret_dir, err);
	if (r < 0)
		return r;
	r = directory_find(c, *ret_dir, &place, ret, &attr, err);
	return r < 0 ? nfs_error_set(err, c, r, "volume directory '%s'", *ret_dir) : 0;
}

/* -------- expand -------- */

static int set_size(struct record *rec, int64_t size, struct error *err)
{
	char number[32];

	(void)snprintf(number, sizeof(number), "%" PRId64, size);
	return record_set(rec, VOLUME_KEY_SIZE, number) < 0 ? error_oom(err) : 0;
}

/* A quota of the server's on the directory shows as a file system smaller than the export's. */
static int check_quota(struct nfs_client *c, const char *dir, const struct nfs_handle *handle,
		       int64_t size, struct error *err)
{
	struct nfs_space whole, own;
	int r;

	r = nfs_fsstat(c, &c->root, &whole);
	if (r == 0)
		r = nfs_fsstat(c, handle, &own);
	if (r < 0)
		return nfs_error_set(err, c, r, "asking for the space of '%s'", dir);
	if (own.total > 0 && own.total < whole.total && own.total < (uint64_t)size)
		return error_set(err, ERROR_OUT_OF_RANGE,
				 "the server's own quota gives '%s' on %s:%s %" PRIu64
				 " bytes: raise it there first",
				 dir, c->export.server, c->export.share, own.total);
	return 0;
}

/* The size that a volume gets: what is required, exactly, and never less than it has. */
static int expanded_size(int64_t have, const struct volume_capacity *capacity, int64_t *ret,
			 struct error *err)
{
	if (capacity->limit > 0 && have > capacity->limit)
		return error_set(err, ERROR_OUT_OF_RANGE,
				 "capacity_range: limit_bytes is below the size that the volume has, %" PRId64
				 " bytes",
				 have);
	*ret = capacity->required > have ? capacity->required : have;
	return 0;
}

/* An attempt before this one may have ended between the new record and the parts of the old one. */
static int tidy_record(struct nfs_client *c, const struct volume_id *id, struct error *err)
{
	const struct nfs_handle *folder;
	int r = store_folder(c, STORE_VOLUMES, false, &folder, err);

	return r < 0 ? r : record_forget(c, folder, volume_id_key(id), err);
}

int volume_expand(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_capacity *capacity, int64_t *ret_size, struct error *err)
{
	bool fresh = rec->n == 0;
	struct nfs_handle handle;
	const char *dir;
	int64_t size = 0;
	int r;

	r = open_directory(c, id, rec, &dir, &handle, err);
	if (r == 0)
		r = expanded_size(volume_size(rec), capacity, &size, err);
	if (r < 0)
		return r;
	*ret_size = size;
	if (size == volume_size(rec))
		return fresh ? 0 : tidy_record(c, id, err);
	r = check_quota(c, dir, &handle, size, err);
	if (r < 0 || !volume_key_can_have_record(volume_id_key(id)))
		return r; /* an id of early csi-driver-nfs; there is nowhere to keep it */
	if (fresh)
		r = describe_foreign(rec, id, err);
	if (r == 0)
		r = set_size(rec, size, err);
	return r < 0 ? r : write_record(c, id, rec, fresh, err);
}

/* -------- modify -------- */

static int set_id(struct record *rec, const char *key, uint32_t id)
{
	char number[16];

	(void)snprintf(number, sizeof(number), "%" PRIu32, id);
	return record_set(rec, key, number);
}

static int set_changes(struct record *rec, const struct volume_settings *changes, struct error *err)
{
	char mode[8];
	int r = 0;

	(void)snprintf(mode, sizeof(mode), "%04" PRIo32, changes->mode);
	if (changes->given & MUTABLE_MODE)
		r = record_set(rec, VOLUME_MODIFIED_PREFIX VOLUME_KEY_MODE, mode);
	if (r == 0 && changes->owner.has_uid)
		r = set_id(rec, VOLUME_MODIFIED_PREFIX VOLUME_KEY_UID, changes->owner.uid);
	if (r == 0 && changes->owner.has_gid)
		r = set_id(rec, VOLUME_MODIFIED_PREFIX VOLUME_KEY_GID, changes->owner.gid);
	if (r == 0 && (changes->given & MUTABLE_ON_DELETE))
		r = record_set(rec, VOLUME_MODIFIED_PREFIX VOLUME_KEY_ON_DELETE,
			       on_delete_name(changes->on_delete));
	return r < 0 ? error_oom(err) : 0;
}

/* What the server has to change; *ret_old takes it back. */
static struct nfs_change change_of(const struct volume_settings *changes,
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

static bool is_as_before(const struct nfs_attr *now, const struct nfs_attr *before)
{
	return now->has_mode && now->mode == before->mode && now->has_owner == before->has_owner &&
	       now->is_named == before->is_named &&
	       nfs_owner_is_same(now->uid_name, now->uid, before->uid_name, before->uid) &&
	       nfs_owner_is_same(now->gid_name, now->gid, before->gid_name, before->gid);
}

/* A change that failed may have been made in part: a server may set another owner than it is told to. */
static void take_back(struct nfs_client *c, const char *dir, const struct nfs_handle *handle,
		      const struct nfs_change *old, const struct nfs_attr *before, struct error *err)
{
	struct nfs_attr now;

	if (nfs_getattr(c, handle, &now) == 0 && is_as_before(&now, before))
		return;
	/* Where that fails too, the CO has to come back. */
	if (change_directory(c, dir, handle, old, NULL) < 0)
		err->code = ERROR_ABORTED;
}

/* Mode and owner of a directory are those of every volume that has it, or lies in it. */
static int check_others(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
			const char *dir, const struct nfs_change *change, struct error *err)
{
	const char *key = volume_id_key(id);
	const struct owner_question q = {
		.volume = key,
		.has_record = rec->n > 0,
		.scope = OWNER_AT | OWNER_AROUND | OWNER_SNAPSHOTS,
		.finished = true,
		.exclusive = owner_has_decided(key, rec),
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
	struct nfs_change change, old;
	bool fresh = rec->n == 0;
	struct nfs_handle handle;
	struct nfs_attr attr;
	const char *dir;
	int r;

	r = open_directory(c, id, rec, &dir, &handle, err);
	if (r < 0)
		return r;
	if (!volume_key_can_have_record(volume_id_key(id)))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "the volume's id is of a kind that cannot have a record, so nothing of it can be changed");
	r = nfs_getattr(c, &handle, &attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up the owner of '%s'", dir);
	change = change_of(changes, &attr, &old);
	r = check_others(c, id, rec, dir, &change, err);
	if (r < 0)
		return r;
	r = change_directory(c, dir, &handle, &change, err);
	if (r < 0) {
		take_back(c, dir, &handle, &old, &attr, err);
		return r;
	}
	if (fresh)
		r = describe_foreign(rec, id, err);
	if (r == 0)
		r = set_changes(rec, changes, err);
	if (r == 0)
		r = write_record(c, id, rec, fresh, err);
	/* Where that fails too, the CO has to come back. */
	if (r < 0 && change_directory(c, dir, &handle, &old, NULL) < 0)
		err->code = ERROR_ABORTED;
	return r;
}
