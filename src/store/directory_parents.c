/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Removing the directories above volumes. Each one that the driver made has a note, see
 * store/directory_notes.c. A call removes its volume's directory before it looks at the one above.
 * So when two calls remove volumes at once, the later one finds the parent empty and removes it.
 * Comments refer to the numbered rules in doc/design.md, "Calls at once".
 */

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "nfs/calls.h"
#include "store/directory_change.h"
#include "store/directory_parts.h"
#include "store/layout.h"
#include "store/users.h"
#include "store/volume_record.h"

#define LINKS_OF_AN_EMPTY_DIRECTORY 2 /* its name and its "." */

static bool is_anothers_parent(struct nfs_client *c, const struct directory_place *place)
{
	struct nfs_handle handle;
	struct nfs_attr attr;

	return nfs_lookup(c, &place->parent, place->base, &handle, &attr) == 0 &&
	       (directory_is_anothers(c, &handle) || directory_is_anothers(c, &place->parent));
}

int directory_is_made_parent(struct nfs_client *c, const char *path, struct error *err)
{
	struct directory_place place;
	struct directory_note note;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = directory_look_up(c, path, &place, &handle, &attr, err);
	if (r == 0)
		r = directory_note_find(c, &note, path, &handle, &attr, err);
	return r == -ENOENT ? 0 : r;
}

/*
 * Find a volume that needs the directory; attr gets its mode and owner. Return 1, 0 for nobody, or
 * a negative errno.
 */
static int find_user(struct nfs_client *c, const char *path, enum owner_count count,
		     struct nfs_attr *attr, struct error *err)
{
	const struct owner_question q = { .scope = OWNER_AT, .count = count };
	cleanup_record struct record rec = { .n = 0 };
	struct owner owner;
	struct volume v;
	int r;

	r = owner_find(c, path, &q, &owner, err);
	if (r > 0)
		r = record_read_at(c, STORE_VOLUMES, owner.key, &rec, err);
	if (r < 0 || rec.n == 0)
		return r == -ENOENT ? 0 : r;
	v = volume_of(&rec);
	if (!volume_needs_its_place(&v))
		return count == OWNER_COUNT_ALL
			       ? find_user(c, path, OWNER_COUNT_FINISHED, attr, err)
			       : 0;
	if (v.mode != 0) {
		attr->has_mode = true;
		attr->mode = v.mode;
	}
	if (v.owner.has_uid)
		attr->uid = v.owner.uid;
	if (v.owner.has_gid)
		attr->gid = v.owner.gid;
	attr->has_owner = attr->has_owner || (v.owner.has_uid && v.owner.has_gid);
	return 1;
}

/*
 * Rule 5, for a directory above: a volume may have taken it after this call looked for owners,
 * since no tombstone is at that path. Make it again then, and remove it if the volume has been
 * deleted in the meantime. Return 1 if it stays, else 0 or a negative errno.
 */
static int put_parent_back(struct nfs_client *c, const char *path, const struct nfs_attr *attr,
			   struct error *err)
{
	struct nfs_attr again = *attr, unused = *attr;
	struct directory_place place;
	int r;

	r = find_user(c, path, OWNER_COUNT_ALL, &again, err);
	if (r <= 0)
		return r;
	r = directory_make_parents(c, path, &place, err);
	if (r < 0)
		return r;
	r = directory_make_again(c, &place, &again);
	if (r < 0)
		return nfs_error_set(err, c, r, "making directory '%s' again", path);
	r = find_user(c, path, OWNER_COUNT_ALL, &unused, err);
	if (r == 0)
		(void)nfs_rmdir(c, &place.parent, place.base);
	return r;
}

/* Return 1 if the directory was removed, or was gone before; 0 if it has to stay. */
static int remove_parent(struct nfs_client *c, const char *path, struct error *err)
{
	const struct owner_question q = { .scope = OWNER_AT, .policies = true };
	struct directory_place place;
	struct directory_note note;
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct owner owner;
	int r;

	r = directory_look_up(c, path, &place, &handle, &attr, err);
	if (r == -ENOENT)
		return directory_note_sweep(c, path, err);
	if (r < 0)
		return r;
	/*
	 * Most parents have other volumes in them. The link count is the cheapest way to see that,
	 * since most file systems count subdirectories in it. Only the RMDIR decides.
	 */
	if (attr.links > LINKS_OF_AN_EMPTY_DIRECTORY || nfs_has_entry(c, &handle) == 1)
		return 0;
	r = directory_note_find(c, &note, path, &handle, &attr, err);
	if (r <= 0)
		return r; /* somebody else's */
	r = owner_find(c, path, &q, &owner, err);
	if (r != 0)
		return r < 0 ? r : 0; /* it has become a volume's directory */
	if (owner.policy != ON_DELETE_DELETE)
		return 0; /* a deleted volume retained or archived it */
	r = nfs_rmdir(c, &place.parent, place.base);
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	/* Another identity made it for an earlier volume: it stays, empty. */
	if ((r == -EACCES || r == -EPERM) && is_anothers_parent(c, &place))
		return 0;
	if (r < 0 && r != -ENOENT)
		return nfs_error_set(err, c, r, "removing directory '%s'", path);
	r = directory_note_remove(c, &note, err);
	if (r == 0)
		r = put_parent_back(c, path, &attr, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = owner.is_noted ? users_remove_policies(c, path, err) : 0;
	return r < 0 ? r : 1;
}

int directory_remove_parents(struct nfs_client *c, const char *path, struct error *err)
{
	cleanup_free char *above = NULL;
	const struct nfs_handle *folder;
	char *slash;
	int r;

	if (strchr(path, '/') == NULL)
		return 0;
	r = store_folder(c, STORE_PARENTS, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r; /* the driver has made none */
	above = strdup(path);
	if (above == NULL)
		return error_oom(err);
	while ((slash = strrchr(above, '/')) != NULL) {
		*slash = '\0';
		r = remove_parent(c, above, err);
		if (r <= 0)
			return r;
	}
	return 0;
}

/* -------- directories that stay -------- */

/*
 * Whether the directory lies in that of another volume, or in one that is kept, and holds none
 * itself: 1, 0 or a negative errno.
 */
static int is_left_around(struct nfs_client *c, const char *path, const char *key,
			  struct error *err)
{
	const struct owner_question in = { .volume = key, .scope = OWNER_IN };
	const struct owner_question around = {
		.volume = key,
		.scope = OWNER_AROUND,
		.count = OWNER_COUNT_FINISHED,
		.policies = true,
	};
	struct owner owner;
	int r;

	r = owner_find(c, path, &in, &owner, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = owner_find(c, path, &around, &owner, err);
	return r != 0 ? r : owner.policy_around != ON_DELETE_DELETE;
}

static int forget_parent(struct nfs_client *c, const char *path, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = directory_look_up(c, path, &place, &handle, &attr, err);
	if (r == -ENOENT)
		r = directory_note_sweep(c, path, err);
	else if (r == 0)
		r = directory_note_forget(c, path, &handle, &attr, err);
	return r < 0 ? r : 0;
}

int directory_leave_parents(struct nfs_client *c, const char *path, const char *key,
			    struct error *err)
{
	cleanup_free char *left = NULL;
	char *slash;
	int r;

	if (strchr(path, '/') == NULL)
		return 0;
	left = strdup(path);
	if (left == NULL)
		return error_oom(err);
	while ((slash = strrchr(left, '/')) != NULL) {
		r = is_left_around(c, left, key, err);
		if (r <= 0)
			return r;
		r = forget_parent(c, left, err);
		if (r < 0)
			return r;
		*slash = '\0';
	}
	return 0;
}
