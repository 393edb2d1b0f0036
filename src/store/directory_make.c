/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Making a volume's directory, or finding it, with its mode and owner. */

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/mode.h"
#include "nfs/calls.h"
#include "store/directory_change.h"
#include "store/directory_parts.h"

/* -------- mode and owner -------- */

/*
 * Whether the owner has to be set. A new directory belongs to the client. For a directory that was
 * found, the answer is yes if the server reports no owner, or a name.
 */
static bool needs_owner(const struct nfs_client *c, const struct nfs_attr *attr, bool found,
			const struct volume_owner *owner)
{
	uint32_t uid = attr->has_owner ? attr->uid : c->export.uid;
	uint32_t gid = attr->has_owner ? attr->gid : c->export.gid;

	if (!owner->has_uid && !owner->has_gid)
		return false;
	if (found && !attr->has_owner)
		return true;
	return (owner->has_uid && uid != owner->uid) || (owner->has_gid && gid != owner->gid);
}

/* Restore the owner: a server that does not know the new one may have set a third one. */
static void restore_owner(struct nfs_client *c, const struct nfs_handle *handle,
			  const struct nfs_attr *attr)
{
	const bool known = attr->has_owner || attr->is_named;
	const struct nfs_change old = {
		.has_uid = known,
		.uid = attr->uid,
		.uid_name = attr->uid_name,
		.has_gid = known,
		.gid = attr->gid,
		.gid_name = attr->gid_name,
	};

	if (known)
		(void)nfs_setattr(c, handle, &old); /* the caller's error tells more */
}

/*
 * Whether another volume uses the directory, so that its mode and owner stay: 1, 0 or a negative
 * errno.
 */
static int settings_are_anothers(struct nfs_client *c, const char *path,
				 const struct directory_wish *wish, struct error *err)
{
	struct owner owner;
	int r;

	r = owner_find(c, path, wish->users, &owner, err);
	if (r > 0)
		log_info("Keeping mode and owner of a new volume's directory: another volume uses it",
			 LOG_STR("volume", wish->users->volume), LOG_STR("directory", path),
			 LOG_STR("of", owner.key));
	return r;
}

/*
 * Set in one step what differs in the reply: the server's umask and ACLs change the mode of MKDIR,
 * and mkdir(2) there drops setgid.
 */
static int set_attributes(struct nfs_client *c, const char *path, const struct nfs_handle *handle,
			  const struct nfs_attr *attr, uint32_t mode, bool found,
			  const struct directory_wish *wish, struct error *err)
{
	const struct volume_owner *owner = &wish->owner;
	struct nfs_change change = { .mode = mode, .uid = owner->uid, .gid = owner->gid };
	int r;

	change.has_mode = mode != 0 && !(attr->has_mode && attr->mode == mode);
	if (needs_owner(c, attr, found, owner)) {
		change.has_uid = owner->has_uid;
		change.has_gid = owner->has_gid;
		change.has_mode = mode != 0; /* chown(2) on the server drops setuid and setgid */
	}
	if (!change.has_mode && !change.has_uid && !change.has_gid)
		return 0;
	if (found) {
		r = settings_are_anothers(c, path, wish, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	r = nfs_setattr(c, handle, &change);
	if (r == -NFS_EOWNER)
		restore_owner(c, handle, attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "setting mode and owner of '%s'", path);
	return 0;
}

/*
 * Fetch what set_attributes() needs: LOOKUP of version 4 omits the owner, of version 3 maybe
 * everything.
 */
static int complete_settings(struct nfs_client *c, const struct nfs_handle *handle, bool found,
			     const struct directory_wish *wish, struct nfs_attr *attr)
{
	const bool has_owner = attr->has_owner || (!wish->owner.has_uid && !wish->owner.has_gid);

	if (has_owner && (attr->has_mode || (found && wish->mode == 0)))
		return 0;
	return nfs_getattr(c, handle, attr);
}

/* -------- the directory -------- */

/* Find a directory that has to be there already. -ENOENT, reported, if it is not. */
static int find_required(struct nfs_client *c, const char *path, struct nfs_handle *ret,
			 struct nfs_attr *ret_attr, struct error *err)
{
	struct directory_place place;
	int r;

	r = directory_find(c, path, &place, ret, ret_attr, err);
	if (r == -ENOENT)
		(void)error_set(err, ERROR_FAILED_PRECONDITION,
				"directory '%s' on %s:%s does not exist, and existingDirectory is 'require'",
				path, c->export.server, c->export.share);
	return r;
}

/*
 * Whether a directory above path is missing that other volumes have, or have theirs in, and may
 * come back from the trash: 1, 0 or a negative errno.
 */
static int parent_may_come_back(struct nfs_client *c, const char *path, const char *volume,
				struct error *err)
{
	const struct owner_question others = { .volume = volume, .scope = OWNER_AT | OWNER_IN };
	const char *slash = path;
	struct owner owner;
	int r;

	while ((slash = strchr(slash, '/')) != NULL) {
		cleanup_free char *above = strndup(path, (size_t)(slash++ - path));

		if (above == NULL)
			return error_oom(err);
		r = directory_is_gone(c, above, err);
		if (r == 0)
			continue;
		if (r > 0)
			r = owner_find(c, above, &others, &owner, err);
		return r <= 0 ? r : directory_may_come_back(c, path, err);
	}
	return 0;
}

int directory_make_parents_of(struct nfs_client *c, const char *path, const char *volume,
			      struct directory_place *ret, struct error *err)
{
	int r = directory_locate(c, path, ret, err);

	if (r != -ENOENT)
		return r;
	r = parent_may_come_back(c, path, volume, err);
	if (r > 0)
		return error_set(err, ERROR_ABORTED,
				 "another controller is working on the directory above '%s'; try again",
				 path);
	return r < 0 ? r : directory_make_parents(c, path, ret, err);
}

static int make_or_find(struct nfs_client *c, const char *path, const struct directory_wish *wish,
			uint32_t mode, struct nfs_handle *ret, struct nfs_attr *ret_attr,
			bool *ret_found, struct error *err)
{
	struct nfs_attr parent = { .is_full = false };
	struct directory_place place;
	int r;

	r = directory_make_parents_of(c, path, wish->others->volume, &place, err);
	if (r == 0 && strchr(path, '/') != NULL)
		r = directory_check_same_file_system(c, path, &place.parent, &parent, err);
	if (r < 0)
		return r;
	r = nfs_mkdir(c, &place.parent, place.base, mode, ret, ret_attr);
	*ret_found = r == -EEXIST;
	if (r == -EEXIST)
		r = nfs_lookup(c, &place.parent, place.base, ret, ret_attr);
	if (r == -ENOENT)
		r = -ESTALE; /* the directory above has just been removed */
	return r < 0 ? nfs_error_set(err, c, r, "making directory '%s'", path) : 0;
}

/* Check that a volume may have the directory that was found. */
static int check_found(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		       const struct nfs_handle *handle, struct nfs_attr *attr, struct error *err)
{
	struct owner owner;
	int r;

	if (attr->type != NFS_TYPE_DIRECTORY)
		return directory_refuse_entry(c, path, strlen(path), attr, err);
	if (wish->existing == EXISTING_REFUSE)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "directory '%s' on %s:%s exists, and existingDirectory is 'refuse'",
				 path, c->export.server, c->export.share);
	r = directory_check_not_own(c, handle, path, strlen(path), err);
	if (r == 0)
		r = directory_check_same_file_system(c, path, handle, attr, err);
	if (r == 0)
		r = owner_find(c, path, wish->others, &owner, err);
	return r <= 0 ? r : owner_refuse(c, path, &owner, wish->others->volume, err);
}

void directory_unmake(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		      struct error *err)
{
	struct owner_question q = *wish->others;
	struct error unused = { .code = ERROR_OK };
	struct directory_place place;
	struct owner owner;
	int r;

	q.scope = OWNER_VOLUMES;
	r = owner_find(c, path, &q, &owner, &unused);
	if (r == 0)
		r = directory_locate(c, path, &place, &unused);
	if (r == 0)
		r = nfs_rmdir(c, &place.parent, place.base);
	if (r < 0 && r != -ENOENT && r != -ENOTEMPTY && r != -EEXIST && err != NULL &&
	    error_is_final(err->code))
		err->code = ERROR_ABORTED;
}

int directory_make(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		   bool *ret_made, struct error *err)
{
	uint32_t mode = wish->mode != 0 ? wish->mode : DIRECTORY_MODE;
	struct nfs_handle handle;
	struct nfs_attr attr;
	bool found = true;
	int r;

	if (wish->existing == EXISTING_REQUIRE)
		r = find_required(c, path, &handle, &attr, err);
	else
		r = make_or_find(c, path, wish, mode, &handle, &attr, &found, err);
	/* A deletion has just removed a directory above, with what this call made or found. */
	if (r == -ESTALE)
		directory_note_sweep_above(c, path);
	if (r < 0)
		return r;
	if (found) {
		r = check_found(c, path, wish, &handle, &attr, err);
		if (r < 0)
			return r;
	}
	r = complete_settings(c, &handle, found, wish, &attr);
	if (r < 0) {
		r = nfs_error_set(err, c, r, "looking up the owner of '%s'", path);
	} else {
		if (found)
			mode = wish->mode == 0 ? 0 : mode_for_existing(wish->mode, attr.mode);
		else if (wish->mode == 0 && attr.has_mode)
			mode |= attr.mode & MODE_SETGID; /* inherited from the directory above */
		r = set_attributes(c, path, &handle, &attr, mode, found, wish, err);
	}
	if (r < 0 && !found)
		directory_unmake(c, path, wish, err); /* the request fails as a whole */
	*ret_made = r == 0 && !found;
	return r;
}
