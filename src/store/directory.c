/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mode.h"
#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "store/record.h"
#include "tree/remove.h"

/* The same hash for what a server may take for the same name. */
static uint64_t hash_of(const char *path, size_t len)
{
	char lower[PATH_LENGTH_MAX];
	size_t i;

	for (i = 0; i < len && i < sizeof(lower); i++)
		lower[i] = path[i] >= 'A' && path[i] <= 'Z' ? (char)(path[i] - 'A' + 'a') : path[i];
	return str_hash(lower, i);
}

void directory_key(char key[RECORD_NAME_MAX + 1], const char *path, size_t len)
{
	size_t n = 0, i;

	for (i = 0; i < len && n + 3 < RECORD_NAME_MAX; i++)
		n += (size_t)snprintf(key + n, RECORD_NAME_MAX + 1 - n,
				      path[i] == '/' || path[i] == '%' ? "%%%02X" : "%c",
				      (unsigned int)(unsigned char)path[i]);
	if (i < len)
		(void)snprintf(key + RECORD_NAME_MAX - 17, 18, "-%016" PRIx64, hash_of(path, len));
}

static int note_parent(struct nfs_client *c, const char *path, size_t len, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_free char *dir = strndup(path, len);
	const struct nfs_handle *folder;
	char key[RECORD_NAME_MAX + 1];
	int r;

	if (dir == NULL || record_set(&rec, "dir", dir) < 0)
		return error_oom(err);
	r = store_folder(c, STORE_PARENTS, true, &folder, err);
	if (r < 0)
		return r;
	directory_key(key, path, len);
	r = record_create(c, folder, key, &rec, err);
	return r == -EEXIST ? 0 : r; /* of one that was removed by hand and made anew */
}

static int not_a_directory(struct nfs_client *c, const char *path, size_t len,
			   const struct nfs_attr *attr, struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION, "'%.*s' on %s:%s is %s: move it away",
			 (int)len, path, c->export.server, c->export.share,
			 attr->type == NFS_TYPE_SYMLINK
				 ? "a symbolic link, which csi-nfs does not follow"
				 : "not a directory");
}

/* Takes a note back that turned out to be wrong. */
static void forget_parent(struct nfs_client *c, const char *path, size_t len)
{
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *folder;
	char key[RECORD_NAME_MAX + 1];

	/* One that stays has somebody else's directory removed, if that is ever empty. */
	if (store_folder(c, STORE_PARENTS, false, &folder, &ignored) < 0)
		return;
	directory_key(key, path, len);
	(void)record_remove(c, folder, key, NULL, &ignored);
}

/*
 * Makes a directory above a volume. The note comes first: after a crash between the two, the retry
 * could not tell any more who made the directory.
 */
static int make_parent(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		       const char *path, size_t len, struct nfs_handle *ret,
		       struct nfs_attr *ret_attr, struct error *err)
{
	int r;

	r = note_parent(c, path, len, err);
	if (r < 0)
		return r;
	r = nfs_mkdir(c, dir, name, DIRECTORY_MODE, ret, ret_attr);
	if (r == -EEXIST) {
		forget_parent(c, path, len);
		r = nfs_lookup(c, dir, name, ret, ret_attr);
	}
	if (r == -ENOENT)
		r = -ESTALE; /* dir itself was removed meanwhile */
	if (r < 0)
		return nfs_error_set(err, c, r, "making directory '%.*s'", (int)len, path);
	return 0;
}

/* Names may be folded in more ways than one knows: what counts is where they lead. */
static int check_not_own(struct nfs_client *c, const struct nfs_handle *handle, const char *path,
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

/* One step of a walk. path[0..len) is what the step leads to, for messages. */
static int step(struct nfs_client *c, struct nfs_handle *dir, const char *name, const char *path,
		size_t len, bool make, struct error *err)
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
		return not_a_directory(c, path, len, &attr, err);
	r = check_not_own(c, &next, path, len, err);
	if (r < 0)
		return r;
	*dir = next;
	return 0;
}

static int walk(struct nfs_client *c, const char *path, bool make, struct directory_place *ret,
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
		r = step(c, &dir, name, path, (size_t)(p - path) + n, make, err);
		if (r < 0)
			return r;
		p += n + 1;
	}
	ret->parent = dir;
	ret->base = p;
	return 0;
}

int directory_locate(struct nfs_client *c, const char *path, struct directory_place *ret,
		     struct error *err)
{
	return walk(c, path, false, ret, err);
}

int directory_make_parents(struct nfs_client *c, const char *path, struct directory_place *ret,
			   struct error *err)
{
	return walk(c, path, true, ret, err);
}

int directory_find(struct nfs_client *c, const char *path, struct directory_place *ret_place,
		   struct nfs_handle *ret, struct nfs_attr *ret_attr, struct error *err)
{
	int r;

	r = directory_locate(c, path, ret_place, err);
	if (r < 0)
		return r;
	r = nfs_lookup(c, &ret_place->parent, ret_place->base, ret, ret_attr);
	if (r == -ENOENT)
		return r;
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up '%s'", path);
	if (ret_attr->type != NFS_TYPE_DIRECTORY)
		return not_a_directory(c, path, strlen(path), ret_attr, err);
	return check_not_own(c, ret, path, strlen(path), err);
}

bool directory_is_anothers(struct nfs_client *c, const struct nfs_handle *dir)
{
	struct nfs_attr attr;

	return nfs_getattr(c, dir, &attr) == 0 && (!attr.has_owner || attr.uid != c->export.uid);
}

/* -------- file systems within the share -------- */

/* All of the attributes, which a LOOKUP of version 4 does not bring. */
static int complete(struct nfs_client *c, const struct nfs_handle *handle, struct nfs_attr *attr)
{
	return attr->has_fsid ? 0 : nfs_stat(c, handle, attr);
}

static bool is_same_file_system(const struct nfs_attr *a, const struct nfs_attr *b)
{
	/* What a server does not tell cannot be held against it. */
	return !a->has_fsid || !b->has_fsid || nfs_fsid_is_equal(a, b);
}

int directory_apart(struct nfs_client *c, const char *path, struct error *err)
{
	(void)error_set(err, ERROR_FAILED_PRECONDITION,
			"'%s' on %s:%s is on another file system than the share, or in another quota project: nothing can be renamed into it or out of it; give that file system's own export as the share",
			path, c->export.server, c->export.share);
	return -EXDEV;
}

/* Whether what is at the handle is on the file system of the driver's folder. 0, or the error. */
static int check_file_system(struct nfs_client *c, const char *path, const struct nfs_handle *handle,
			     struct nfs_attr *attr, struct error *err)
{
	const struct nfs_handle *top;
	struct nfs_attr own = { .is_full = false };
	int r;

	r = store_folder(c, STORE_TOP, false, &top, err);
	if (r < 0 && r != -ENOENT)
		return r;
	r = nfs_stat(c, r == 0 ? top : &c->root, &own);
	if (r == 0)
		r = complete(c, handle, attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up the file system of '%s'", path);
	if (is_same_file_system(&own, attr))
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
	attr.is_full = false; /* of dir, not of what a failure has left */
	return check_file_system(c, path, &dir, &attr, err);
}

static uint32_t owner_of(bool given, uint32_t wanted, uint32_t otherwise)
{
	return given ? wanted : otherwise;
}

/* A server that does not tell the owner, or tells a name, has it set where we cannot be it. */
static bool has_other_owner(const struct nfs_client *c, const struct nfs_attr *attr, bool found,
			    const struct volume_owner *owner)
{
	uint32_t uid = attr->has_owner ? attr->uid : c->export.uid;
	uint32_t gid = attr->has_owner ? attr->gid : c->export.gid;

	if (!owner->has_uid && !owner->has_gid)
		return false;
	if (found && !attr->has_owner)
		return true;
	return uid != owner_of(owner->has_uid, owner->uid, uid) ||
	       gid != owner_of(owner->has_gid, owner->gid, gid);
}

/* A server that does not know an owner may have set another one. */
static void give_back(struct nfs_client *c, const struct nfs_handle *handle,
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
 * MKDIR's mode goes through the server's umask and ACLs, and mkdir(2) there drops setgid: what the
 * reply shows to be other than wanted is set, in one step.
 */
static int set_attributes(struct nfs_client *c, const char *path, const struct nfs_handle *handle,
			  const struct nfs_attr *attr, uint32_t mode, bool found,
			  const struct volume_owner *owner, struct error *err)
{
	struct nfs_change change = { .mode = mode, .uid = owner->uid, .gid = owner->gid };
	int r;

	change.has_mode = mode != 0 && !(attr->has_mode && attr->mode == mode);
	if (has_other_owner(c, attr, found, owner)) {
		change.has_uid = owner->has_uid;
		change.has_gid = owner->has_gid;
		change.has_mode = mode != 0; /* chown(2) on the server drops setuid and setgid */
	}
	if (!change.has_mode && !change.has_uid && !change.has_gid)
		return 0;
	r = nfs_setattr(c, handle, &change);
	if (r == -NFS_EOWNER)
		give_back(c, handle, attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "setting mode and owner of '%s'", path);
	return 0;
}

/* The directory that has to be there already. */
static int find_existing(struct nfs_client *c, const char *path, struct nfs_handle *ret,
			 struct nfs_attr *ret_attr, struct error *err)
{
	struct directory_place place;
	int r;

	r = directory_find(c, path, &place, ret, ret_attr, err);
	if (r == -ENOENT)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "directory '%s' on %s:%s does not exist, and existingDirectory is 'require'",
				 path, c->export.server, c->export.share);
	return r;
}

/* Makes it, or finds it: *ret_found. */
static int make_or_find(struct nfs_client *c, const char *path, uint32_t mode,
			struct directory_place *place, struct nfs_handle *ret,
			struct nfs_attr *ret_attr, bool *ret_found, struct error *err)
{
	struct nfs_attr parent = { .is_full = false };
	int r;

	r = directory_make_parents(c, path, place, err);
	if (r == 0 && strchr(path, '/') != NULL)
		r = check_file_system(c, path, &place->parent, &parent, err);
	if (r < 0)
		return r;
	r = nfs_mkdir(c, &place->parent, place->base, mode, ret, ret_attr);
	*ret_found = r == -EEXIST;
	if (r == -EEXIST)
		r = nfs_lookup(c, &place->parent, place->base, ret, ret_attr);
	if (r == -ENOENT)
		r = -ESTALE; /* the directory above was removed meanwhile */
	return r < 0 ? nfs_error_set(err, c, r, "making directory '%s'", path) : 0;
}

/* LOOKUP of version 4 leaves the owner out, and one of version 3 may leave out all. */
static int complete_settings(struct nfs_client *c, const struct nfs_handle *handle,
			     const struct directory_wish *wish, struct nfs_attr *attr)
{
	const bool has_owner = attr->has_owner || (!wish->owner.has_uid && !wish->owner.has_gid);

	if (has_owner && (attr->has_mode || wish->mode == 0))
		return 0;
	return nfs_getattr(c, handle, attr);
}

/* One that is there: whether a volume may have it. 0, or the error. */
static int check_found(struct nfs_client *c, const char *path, const struct directory_wish *wish,
		       const struct nfs_handle *handle, struct nfs_attr *attr, struct error *err)
{
	struct owner owner;
	int r;

	if (attr->type != NFS_TYPE_DIRECTORY)
		return not_a_directory(c, path, strlen(path), attr, err);
	if (wish->existing == EXISTING_REFUSE)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "directory '%s' on %s:%s exists, and existingDirectory is 'refuse'",
				 path, c->export.server, c->export.share);
	r = check_not_own(c, handle, path, strlen(path), err);
	if (r == 0)
		r = check_file_system(c, path, handle, attr, err);
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
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	bool found = true;
	int r;

	if (wish->existing == EXISTING_REQUIRE)
		r = find_existing(c, path, &handle, &attr, err);
	else
		r = make_or_find(c, path, mode, &place, &handle, &attr, &found, err);
	if (r < 0)
		return r;
	r = found ? check_found(c, path, wish, &handle, &attr, err) : 0;
	if (r < 0)
		return r;
	r = complete_settings(c, &handle, wish, &attr);
	if (found)
		mode = wish->mode == 0 ? 0 : mode_for_existing(wish->mode, attr.mode);
	if (r < 0)
		r = nfs_error_set(err, c, r, "looking up the owner of '%s'", path);
	else
		r = set_attributes(c, path, &handle, &attr, mode, found, &wish->owner, err);
	if (r < 0 && !found)
		directory_unmake(c, path, wish, err); /* the request fails as a whole */
	*ret_made = r == 0 && !found;
	return r;
}

static int move_to_trash(struct nfs_client *c, const struct directory_place *place, const char *key,
			 char name[NFS_NAME_MAX + 1], struct error *err)
{
	const struct nfs_handle *trash;
	int r;

	r = store_folder(c, STORE_TRASH, true, &trash, err);
	if (r < 0)
		return r;
	store_trash_name(name, c, key);
	r = nfs_rename(c, &place->parent, place->base, trash, name);
	/* Another file system below the share, or a directory that is not ours to move. */
	if (r == -EXDEV || r == -EBUSY || r == -EACCES || r == -EPERM)
		return -EXDEV;
	if (r < 0 && r != -ENOENT)
		return nfs_error_set(err, c, r, "moving '%s' into the trash", place->base);
	return 0;
}

static int in_the_way(struct nfs_client *c, const struct directory_place *place, struct error *err)
{
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(c, &place->parent, place->base, &handle, &attr);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up '%s'", place->base);
	return not_a_directory(c, place->base, strlen(place->base), &attr, err);
}

/*
 * Whether what was moved is what was meant. What was not goes back: 1. A name that is gone again is the
 * purger's of another replica, which only has what was in the trash for a while.
 */
int directory_check_moved(struct nfs_client *c, const struct directory_place *from,
			  const struct nfs_handle *known, const struct nfs_handle *to,
			  const char *name, struct error *err)
{
	struct nfs_handle now;
	int r;

	r = nfs_lookup(c, to, name, &now, NULL);
	if (r == -ENOENT || (r == 0 && nfs_handle_is_equal(&now, known)))
		return 0;
	if (r == 0)
		r = nfs_rename(c, to, name, &from->parent, from->base);
	return r < 0 ? nfs_error_set(err, c, r, "looking at '%s', which was moved", from->base) : 1;
}

static int check_trashed(struct nfs_client *c, const struct directory_place *place,
			 const struct nfs_handle *known, const char *name, struct error *err)
{
	const struct nfs_handle *trash;
	int r;

	if (known == NULL)
		return 0;
	r = store_folder(c, STORE_TRASH, true, &trash, err);
	return r < 0 ? r : directory_check_moved(c, place, known, trash, name, err);
}

/* A file system is mounted there: what is in it was never put there by way of this share alone. */
static int check_no_mount(struct nfs_client *c, const struct directory_place *place, struct error *err)
{
	struct nfs_attr attr = { .is_full = false }, above = { .is_full = false };
	struct nfs_handle handle;
	int r;

	r = nfs_lookup(c, &place->parent, place->base, &handle, &attr);
	if (r == 0)
		r = complete(c, &handle, &attr);
	if (r == 0)
		r = nfs_stat(c, &place->parent, &above);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up '%s'", place->base);
	if (is_same_file_system(&attr, &above))
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "on '%s' on %s:%s another file system is mounted, which csi-nfs does not remove: unmount it on the server, or set onDelete to retain",
			 place->base, c->export.server, c->export.share);
}

int directory_remove_known(struct nfs_client *c, const struct directory_place *place,
			   const struct nfs_handle *known, const char *key,
			   char ret_name[NFS_NAME_MAX + 1], struct error *err)
{
	int r;

	ret_name[0] = '\0';
	r = nfs_rmdir(c, &place->parent, place->base);
	if (r == 0 || r == -ENOENT)
		return 0;
	if (r == -ENOTDIR)
		return in_the_way(c, place, err);
	/* Servers differ in what they say of a directory that something is mounted on. The first error wins. */
	if (r == -EBUSY || r == -EXDEV || r == -EACCES || r == -EPERM)
		(void)check_no_mount(c, place, err);
	if (r != -ENOTEMPTY && r != -EEXIST)
		return nfs_error_set(err, c, r, "removing directory '%s'", place->base);
	r = move_to_trash(c, place, key, ret_name, err);
	if (r == 0)
		return check_trashed(c, place, known, ret_name, err);
	ret_name[0] = '\0';
	if (r != -EXDEV)
		return r;
	/* In its place, and in the call: there is no trash on that file system. */
	r = check_no_mount(c, place, err);
	return r < 0 ? r : tree_remove(c, &place->parent, place->base, NULL, NULL, err);
}

int directory_remove(struct nfs_client *c, const struct directory_place *place, const char *key,
		     bool *ret_trashed, struct error *err)
{
	char name[NFS_NAME_MAX + 1];
	int r = directory_remove_known(c, place, NULL, key, name, err);

	*ret_trashed = r == 0 && name[0] != '\0';
	return r;
}

/* A purge within a call, for the log. */
struct purge {
	const struct nfs_export *export;
	struct tree_stats stats;
	uint64_t started_ns;
};

static bool is_trash_of(const char *name, const void *data)
{
	const char *key = data;

	return str_has_prefix(name, key) && name[strlen(key)] == '.';
}

static void log_purge(const struct purge *p, const char *name, const char *message)
{
	const struct tree_stats *s = &p->stats;
	uint64_t ms = (clock_now_ns() - p->started_ns) / CLOCK_NS_PER_MS + 1;

	log_info(message, LOG_STR("what", name), LOG_STR("server", p->export->server),
		 LOG_STR("share", p->export->share), LOG_NUM("files", s->files),
		 LOG_NUM("directories", s->directories),
		 LOG_NUM("entries_per_second", (s->files + s->directories) * 1000 / ms),
		 LOG_NUM("seconds", ms / 1000));
}

static void report_purge(const struct tree_stats *stats, const char *name, void *data)
{
	(void)stats;
	log_purge(data, name, "Purging");
}

int directory_purge(struct nfs_client *c, const char *key, struct error *err)
{
	struct purge p = { .export = &c->export, .started_ns = clock_now_ns() };
	cleanup_strv struct strv names = { NULL, 0 };
	char prefix[STORE_TRASH_KEY_MAX + 1];
	const struct nfs_handle *trash;
	size_t i;
	int r;

	r = store_folder(c, STORE_TRASH, false, &trash, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	p.stats = (struct tree_stats){
		.report = report_purge,
		.data = &p,
		.reported_ns = p.started_ns,
	};
	store_trash_key(prefix, key);
	r = store_list(c, trash, is_trash_of, prefix, SIZE_MAX, &names);
	if (r < 0)
		r = nfs_error_set(err, c, r, "reading the trash");
	/* One that cannot be removed does not keep the others. */
	for (i = 0; i < names.n && !c->broken; i++) {
		int one = tree_remove(c, trash, names.items[i], NULL, &p.stats, err);

		r = r < 0 ? r : one;
	}
	/* The call itself tells of one that did not last. */
	if (r == 0 && p.stats.reported_ns != p.started_ns)
		log_purge(&p, key, "Purged");
	return r;
}

int directory_is_gone(struct nfs_client *c, const char *path, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	int r;

	r = directory_locate(c, path, &place, err);
	if (r == 0)
		r = nfs_lookup(c, &place.parent, place.base, &handle, NULL);
	if (r == -ENOENT)
		return 1;
	return r < 0 ? nfs_error_set(err, c, r, "looking up '%s'", path) : 0;
}

static bool is_anothers_parent(struct nfs_client *c, const struct directory_place *place)
{
	struct nfs_handle handle;
	struct nfs_attr attr;

	return nfs_lookup(c, &place->parent, place->base, &handle, &attr) == 0 &&
	       (directory_is_anothers(c, &handle) || directory_is_anothers(c, &place->parent));
}

/* Returns 1 when the directory went, or had gone before, and 0 when it has to stay. */
static int remove_parent(struct nfs_client *c, const struct nfs_handle *folder, const char *path,
			 struct error *err)
{
	const struct owner_question q = { .scope = OWNER_AT };
	cleanup_record struct record rec = { .n = 0 };
	char key[RECORD_NAME_MAX + 1];
	struct directory_place place;
	struct owner owner;
	int r;

	directory_key(key, path, strlen(path));
	r = record_read(c, folder, key, &rec, err);
	if (r == -ENOENT)
		return directory_is_gone(c, path, err); /* what is there, somebody else has made */
	if (r < 0)
		return r;
	if (!str_eq(record_get(&rec, "dir"), path))
		return 0;
	r = owner_find(c, path, &q, &owner, err);
	if (r != 0)
		return r < 0 ? r : 0; /* a volume has made it its own since */
	r = directory_locate(c, path, &place, err);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0)
		r = nfs_rmdir(c, &place.parent, place.base);
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	/* Another identity made it for an earlier volume: it stays, empty. */
	if ((r == -EACCES || r == -EPERM) && is_anothers_parent(c, &place))
		return 0;
	if (r < 0 && r != -ENOENT)
		return nfs_error_set(err, c, r, "removing directory '%s'", path);
	r = record_remove(c, folder, key, &rec, err);
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
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	above = strdup(path);
	if (above == NULL)
		return error_oom(err);
	for (r = 1; r > 0;) {
		slash = strrchr(above, '/');
		if (slash == NULL)
			return 0;
		*slash = '\0';
		r = remove_parent(c, folder, above, err);
	}
	return r;
}
