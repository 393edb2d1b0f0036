/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory_parts.h"
#include "store/layout.h"

bool directory_is_archive_name(const char *path)
{
	return strncasecmp(path, DIRECTORY_ARCHIVE_PREFIX, strlen(DIRECTORY_ARCHIVE_PREFIX)) == 0;
}

const char *directory_archived_from(const char *path)
{
	const char *rest = path + strlen(DIRECTORY_ARCHIVE_PREFIX);

	if (!directory_is_archive_name(path) || rest[0] == '\0' || rest[0] == '/')
		return NULL;
	return rest;
}

int directory_refuse_entry(struct nfs_client *c, const char *path, size_t len,
			   const struct nfs_attr *attr, struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION, "'%.*s' on %s:%s is %s: move it away",
			 (int)len, path, c->export.server, c->export.share,
			 attr->type == NFS_TYPE_SYMLINK
				 ? "a symbolic link, which csi-nfs does not follow"
				 : "not a directory");
}

int directory_check_not_own(struct nfs_client *c, const struct nfs_handle *handle, const char *path,
			    size_t len, struct error *err)
{
	const struct nfs_handle *top;
	int r;

	r = store_folder(c, STORE_TOP, false, &top, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!nfs_handle_is_equal(top, handle))
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "'%.*s' on %s:%s is another name of %s, where csi-nfs keeps its records",
			 (int)len, path, c->export.server, c->export.share, NFS_STATE_DIR);
}

/* Whether a failed MKDIR is known to have made nothing. */
static bool mkdir_made_nothing(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			       int r)
{
	struct nfs_handle unused;

	return r == -EEXIST || r == -ENOENT || nfs_lookup(c, dir, name, &unused, NULL) == -ENOENT;
}

/*
 * Make a directory above a volume. Its note comes first: after a crash between the two, a retry
 * could not tell who made the directory.
 */
static int make_parent(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		       const char *path, size_t len, struct nfs_handle *ret,
		       struct nfs_attr *ret_attr, struct error *err)
{
	struct directory_note note;
	int r;

	r = directory_note_begin(c, &note, path, len, err);
	if (r < 0)
		return r;
	r = nfs_mkdir(c, dir, name, DIRECTORY_MODE, ret, ret_attr);
	if (r == 0 && !ret_attr->is_full)
		r = nfs_stat(c, ret, ret_attr);
	if (r == 0)
		return directory_note_finish(c, &note, ret, ret_attr, err);
	/* If the directory may exist, the undo or the next attempt needs the note. */
	if (mkdir_made_nothing(c, dir, name, r))
		directory_note_withdraw(c, &note);
	if (r == -EEXIST)
		r = nfs_lookup(c, dir, name, ret, ret_attr);
	if (r == -ENOENT)
		r = -ESTALE; /* dir itself has just been removed */
	if (r < 0)
		return nfs_error_set(err, c, r, "making directory '%.*s'", (int)len, path);
	return 0;
}

/* Go from *dir to the directory name in it, whose path is path[0..len). */
static int walk_step(struct nfs_client *c, struct nfs_handle *dir, const char *name,
		     const char *path, size_t len, bool make, struct error *err)
{
	struct nfs_handle next;
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(c, dir, name, &next, &attr);
	if (r == -ENOENT && !make)
		return r;
	if (r == -ENOENT)
		r = make_parent(c, dir, name, path, len, &next, &attr, err);
	else if (r < 0)
		r = nfs_error_set(err, c, r, "directory '%.*s'", (int)len, path);
	if (r < 0)
		return r;
	if (attr.type != NFS_TYPE_DIRECTORY)
		return directory_refuse_entry(c, path, len, &attr, err);
	r = directory_check_not_own(c, &next, path, len, err);
	if (r < 0)
		return r;
	*dir = next;
	return 0;
}

static int walk_path(struct nfs_client *c, const char *path, bool make, struct directory_place *ret,
		     struct error *err)
{
	struct nfs_handle dir = c->root;
	const char *p = path;

	for (;;) {
		size_t n = strcspn(p, "/");
		char name[PATH_COMPONENT_MAX + 1];
		int r;

		if (p[n] == '\0')
			break;
		if (n > PATH_COMPONENT_MAX)
			return error_set(err, ERROR_INVALID_ARGUMENT, "path component too long");
		memcpy(name, p, n);
		name[n] = '\0';
		r = walk_step(c, &dir, name, path, (size_t)(p - path) + n, make, err);
		if (r < 0)
			return r;
		p += n + 1;
	}
	ret->parent = dir;
	ret->path = path;
	ret->base = p;
	return 0;
}

int directory_locate(struct nfs_client *c, const char *path, struct directory_place *ret,
		     struct error *err)
{
	return walk_path(c, path, false, ret, err);
}

int directory_make_parents(struct nfs_client *c, const char *path, struct directory_place *ret,
			   struct error *err)
{
	int r = walk_path(c, path, true, ret, err);

	if (r == -ESTALE)
		directory_note_sweep_above(c, path);
	return r;
}

int directory_look_up(struct nfs_client *c, const char *path, struct directory_place *ret_place,
		      struct nfs_handle *ret, struct nfs_attr *ret_attr, struct error *err)
{
	int r;

	r = directory_locate(c, path, ret_place, err);
	if (r < 0)
		return r;
	r = nfs_lookup_full(c, &ret_place->parent, ret_place->base, ret, ret_attr);
	return r < 0 && r != -ENOENT ? nfs_error_set(err, c, r, "looking up '%s'", path) : r;
}

int directory_find(struct nfs_client *c, const char *path, struct directory_place *ret_place,
		   struct nfs_handle *ret, struct nfs_attr *ret_attr, struct error *err)
{
	int r;

	r = directory_look_up(c, path, ret_place, ret, ret_attr, err);
	if (r < 0)
		return r;
	if (ret_attr->type != NFS_TYPE_DIRECTORY)
		return directory_refuse_entry(c, path, strlen(path), ret_attr, err);
	return directory_check_not_own(c, ret, path, strlen(path), err);
}

int directory_is_gone(struct nfs_client *c, const char *path, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	int r;

	r = directory_locate(c, path, &place, err);
	if (r < 0)
		return r == -ENOENT ? 1 : r;
	r = nfs_lookup(c, &place.parent, place.base, &handle, NULL);
	if (r == -ENOENT)
		return 1;
	return r < 0 ? nfs_error_set(err, c, r, "looking up '%s'", path) : 0;
}

bool directory_is_anothers(struct nfs_client *c, const struct nfs_handle *dir)
{
	struct nfs_attr attr;

	return nfs_getattr(c, dir, &attr) == 0 && (!attr.has_owner || attr.uid != c->export.uid);
}

int directory_make_again(struct nfs_client *c, struct directory_place *place,
			 const struct nfs_attr *attr)
{
	const struct nfs_change change = {
		.has_mode = attr->has_mode,
		.has_uid = attr->has_owner,
		.has_gid = attr->has_owner,
		.mode = attr->mode,
		.uid = attr->uid,
		.gid = attr->gid,
	};
	const uint32_t mode = attr->has_mode ? attr->mode : DIRECTORY_MODE;
	struct error ignored = { .code = ERROR_OK };
	struct nfs_handle handle;
	struct nfs_attr unused;
	int r;

	r = nfs_mkdir(c, &place->parent, place->base, mode, &handle, &unused);
	if (r == -ESTALE || r == -ENOENT) {
		r = directory_make_parents(c, place->path, place, &ignored);
		if (r == 0)
			r = nfs_mkdir(c, &place->parent, place->base, mode, &handle, &unused);
	}
	if (r == 0)
		r = nfs_setattr(c, &handle, &change);
	return r == -EEXIST ? 0 : r;
}

/* -------- renaming -------- */

#define OWNER_MAY_MOVE 0300 /* write and search */

bool directory_mode_is_closed(uint32_t mode, uint32_t *ret_open)
{
	*ret_open = mode | OWNER_MAY_MOVE;
	return *ret_open != mode;
}

int directory_rename(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		     const struct nfs_handle *to_dir, const char *to_name)
{
	const int refused = nfs_rename(c, dir, name, to_dir, to_name);
	struct nfs_handle handle;
	struct nfs_attr attr;
	uint32_t open;
	int r;

	if (refused != -EACCES && refused != -EPERM)
		return refused;
	r = nfs_lookup_full(c, dir, name, &handle, &attr);
	if (r < 0 || attr.type != NFS_TYPE_DIRECTORY || !attr.has_mode ||
	    !directory_mode_is_closed(attr.mode, &open) || nfs_setmode(c, &handle, open) < 0)
		return refused;
	r = nfs_rename(c, dir, name, to_dir, to_name);
	/* Errors are ignored: the directory stays open to its owner, who may open it anyway. */
	if (nfs_setmode(c, &handle, attr.mode) == -ESTALE && r == 0 &&
	    nfs_lookup(c, to_dir, to_name, &handle, NULL) == 0)
		(void)nfs_setmode(c, &handle, attr.mode); /* the handle follows the name */
	return r;
}

/* -------- file systems within the share -------- */

int directory_complete_attr(struct nfs_client *c, const struct nfs_handle *handle,
			    struct nfs_attr *attr)
{
	return attr->has_fsid ? 0 : nfs_complete_attr(c, handle, attr);
}

bool directory_is_same_file_system(const struct nfs_attr *a, const struct nfs_attr *b)
{
	return !a->has_fsid || !b->has_fsid || nfs_fsid_is_equal(a, b);
}

int directory_apart(struct nfs_client *c, const char *path, struct error *err)
{
	(void)error_set(err, ERROR_FAILED_PRECONDITION,
			"'%s' on %s:%s is on another file system than the share, or in another quota project: nothing can be renamed into it or out of it; give that file system's own export as the share",
			path, c->export.server, c->export.share);
	return -EXDEV;
}

int directory_check_same_file_system(struct nfs_client *c, const char *path,
				     const struct nfs_handle *handle, struct nfs_attr *attr,
				     struct error *err)
{
	struct nfs_attr own = { .is_full = false };
	const struct nfs_handle *top;
	int r;

	r = store_folder(c, STORE_TOP, false, &top, err);
	if (r < 0 && r != -ENOENT)
		return r;
	r = nfs_stat(c, r == 0 ? top : &c->root, &own);
	if (r == 0)
		r = directory_complete_attr(c, handle, attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up the file system of '%s'", path);
	if (directory_is_same_file_system(&own, attr))
		return 0;
	return directory_apart(c, path, err);
}

int directory_check_file_system(struct nfs_client *c, const char *path, struct error *err)
{
	struct nfs_handle dir = c->root, next;
	struct nfs_attr attr = { .is_full = false };
	const char *p = path;
	int r = 0;

	while (r == 0) {
		size_t n = strcspn(p, "/");
		char name[PATH_COMPONENT_MAX + 1];

		(void)snprintf(name, sizeof(name), "%.*s", (int)n, p);
		r = nfs_lookup(c, &dir, name, &next, &attr);
		if (r == 0)
			dir = next;
		if (p[n] == '\0')
			break;
		p += n + 1;
	}
	if (r < 0 && r != -ENOENT && r != -ENOTDIR)
		return nfs_error_set(err, c, r, "looking up '%s'", path);
	if (nfs_handle_is_equal(&dir, &c->root))
		return 0;
	return directory_check_same_file_system(c, path, &dir, &attr, err);
}
