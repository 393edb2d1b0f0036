/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Removing a volume's directory: a rename into the trash, and the purge of it within a call. */

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory_change.h"
#include "store/directory_parts.h"
#include "store/handles.h"
#include "store/layout.h"
#include "store/path_key.h"
#include "tree/remove.h"

/* -------- into the trash -------- */

/* DIRECTORY_LACKS_ROOM: the folder has no room for one more name, and cannot get any. */
static int move_to_trash(struct nfs_client *c, const struct directory_place *place, const char *key,
			 char name[NFS_NAME_MAX + 1], struct error *err)
{
	const struct nfs_handle *trash;
	int r;

	r = store_folder(c, STORE_TRASH, true, &trash, err);
	if (r == -ENOSPC || r == -EDQUOT)
		error_prefix(err,
			     "deleting '%s' has to create the trash directory, so free some space",
			     place->base);
	if (r < 0)
		return r;
	store_trash_name_unchecked(name, &c->export, key);
	r = directory_rename(c, &place->parent, place->base, trash, name);
	/* Another file system below the share, or a directory that is not ours to move. */
	if (r == -EXDEV || r == -EBUSY || r == -EACCES || r == -EPERM)
		return DIRECTORY_CANNOT_MOVE;
	if (r == -ENOSPC || r == -EDQUOT)
		return DIRECTORY_LACKS_ROOM;
	if (r < 0 && r != -ENOENT)
		return nfs_error_set(err, c, r, "moving '%s' into the trash", place->base);
	return r;
}

/* Report an entry for which RMDIR returned ENOTDIR. Return 0 if it is gone by now. */
static int refuse_non_directory(struct nfs_client *c, const struct directory_place *place,
				struct error *err)
{
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(c, &place->parent, place->base, &handle, &attr);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up '%s'", place->base);
	return directory_refuse_entry(c, place->base, strlen(place->base), &attr, err);
}

static bool looks_known(const struct nfs_attr *a, const struct nfs_attr *b)
{
	return a->is_full && b->is_full && a->type == b->type && a->fileid != 0 &&
	       a->fileid == b->fileid && directory_is_same_file_system(a, b) &&
	       nfs_time_is_equal(&a->mtime, &b->mtime);
}

int directory_check_moved(struct nfs_client *c, const struct directory_place *from,
			  const struct directory_known *known, const struct nfs_handle *to,
			  const char *name, struct error *err)
{
	struct nfs_attr attr = { .is_full = false };
	struct nfs_handle now;
	int r;

	r = nfs_lookup(c, to, name, &now, &attr);
	if (r == -ENOENT || (r == 0 && nfs_handle_is_equal(&now, &known->handle)))
		return 0;
	if (r == 0)
		r = directory_complete_attr(c, &now, &attr);
	if (r == 0 && looks_known(&attr, &known->attr) && store_handle_follows_name(c) > 0)
		return 0;
	if (r == 0)
		r = directory_rename_back(c, to, name, from);
	if (r == -ENOENT) /* the deletion of its volume has released it for purging */
		return 1;
	return r < 0 ? nfs_error_set(err, c, r, "looking at '%s', which was moved", from->base) : 1;
}

static int refuse_mount(struct nfs_client *c, const struct directory_place *place,
			struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "'%s' on %s:%s is a mount point, which csi-nfs does not remove: unmount it on the server, or set onDelete to retain",
			 place->base, c->export.server, c->export.share);
}

/* Refuse a mount point: the data of that file system may not be this share's to delete. */
static int check_no_mount(struct nfs_client *c, const struct directory_place *place,
			  struct error *err)
{
	struct nfs_attr attr = { .is_full = false }, above = { .is_full = false };
	struct nfs_handle handle;
	int r;

	r = nfs_lookup_mount(c, &place->parent, place->base, &handle, &attr);
	if (r == 0)
		r = directory_complete_attr(c, &handle, &attr);
	if (r == 0)
		r = nfs_stat(c, &place->parent, &above);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up '%s'", place->base);
	if (!attr.is_mount && directory_is_same_file_system(&attr, &above))
		return 0;
	return refuse_mount(c, place, err);
}

int directory_remove_known(struct nfs_client *c, const struct directory_place *place,
			   const struct directory_known *known, const char *key,
			   char ret_name[NFS_NAME_MAX + 1], struct error *err)
{
	const struct nfs_handle *trash;
	int moved, r;

	ret_name[0] = '\0';
	r = nfs_rmdir(c, &place->parent, place->base);
	if (r == 0 || r == -ENOENT)
		return r;
	if (r == -ENOTDIR)
		return refuse_non_directory(c, place, err);
	/*
	 * Servers differ in the error for a directory that something is mounted on. The first error
	 * wins. What is not exported cannot be seen, but Linux says EBUSY over version 4.
	 */
	if (r == -EBUSY)
		(void)refuse_mount(c, place, err);
	else if (r == -EXDEV || r == -EACCES || r == -EPERM)
		(void)check_no_mount(c, place, err);
	if (r != -ENOTEMPTY && r != -EEXIST)
		return nfs_error_set(err, c, r, "removing directory '%s'", place->base);
	moved = move_to_trash(c, place, key, ret_name, err);
	if (moved != 0 && moved != -ENOENT) {
		ret_name[0] = '\0';
		r = moved > 0 ? check_no_mount(c, place, err) : 0;
		return r < 0 ? r : moved;
	}
	/* Also after ENOENT, which may be the answer to a RENAME that was sent twice. */
	r = store_folder(c, STORE_TRASH, true, &trash, err);
	if (r == 0)
		r = directory_check_moved(c, place, known, trash, ret_name, err);
	return r != 0 ? r : moved;
}

/* -------- what was moved into the trash -------- */

void directory_trash_key(char key[RECORD_NAME_MAX + 1], const char *path)
{
	path_key(key, path, strlen(path));
}

/* Get the key in the name of an entry. Return false if it is of a long path, and was cut. */
static bool trash_key_is_whole(const char *name, char key[STORE_TRASH_KEY_MAX + 1])
{
	store_trash_name_key(name, key);
	return strlen(key) <= STORE_TRASH_KEY_WHOLE;
}

bool directory_trash_path(const char *name, char path[RECORD_NAME_MAX + 1])
{
	char key[STORE_TRASH_KEY_MAX + 1];

	return trash_key_is_whole(name, key) && path_of_key(key, strlen(key), path);
}

/*
 * Rename an entry of the trash, checked or not, to a new name for the purger. A paused deletion
 * knows the old name only, so it cannot put the directory back.
 */
static int release_entry(struct nfs_client *c, const struct nfs_handle *trash, const char *entry,
			 const char *key)
{
	char name[NFS_NAME_MAX + 1];
	struct nfs_export owner;

	store_trash_identity(entry, &owner);
	store_trash_name(name, &owner, key);
	return nfs_rename(c, trash, entry, trash, name);
}

int directory_trash_release(struct nfs_client *c, const char *key, const char *entry,
			    struct error *err)
{
	const struct nfs_handle *trash;
	int r;

	r = store_folder(c, STORE_TRASH, true, &trash, err);
	if (r < 0)
		return r;
	r = release_entry(c, trash, entry, key);
	if (r == -ENOENT) /* a repeated call has released it */
		return 0;
	return r < 0 ? nfs_error_set(err, c, r, "renaming '%s' in the trash", entry) : 0;
}

static bool is_trash_for(const char *name, const void *key)
{
	return store_trash_name_is_of(name, key);
}

/* Whether it is unchecked and from that path, or from another spelling on a server that folds. */
static bool may_be_trash_for(const char *name, const void *data)
{
	char key[STORE_TRASH_KEY_MAX + 1], wanted[STORE_TRASH_KEY_MAX + 1];

	if (!store_trash_name_is_unchecked(name))
		return false;
	store_trash_name_key(name, key);
	store_trash_key(wanted, data);
	return path_key_compare(key, strlen(key), wanted, strlen(wanted)) == PATH_IS_SAME;
}

/* Likewise from a path above. A key that was cut does not tell. */
static bool may_be_trash_around(const char *name, const void *data)
{
	char key[STORE_TRASH_KEY_MAX + 1];

	return store_trash_name_is_unchecked(name) && trash_key_is_whole(name, key) &&
	       path_key_compare(key, strlen(key), data, strlen(data)) == PATH_IS_AROUND;
}

static bool may_be_trash_with(const char *name, const void *data)
{
	return may_be_trash_for(name, data) || may_be_trash_around(name, data);
}

/* Likewise from that path, one above or one below. */
static bool may_be_trash_near(const char *name, const void *data)
{
	char key[STORE_TRASH_KEY_MAX + 1];

	if (!store_trash_name_is_unchecked(name))
		return false;
	return !trash_key_is_whole(name, key) ||
	       path_key_compare(key, strlen(key), data, strlen(data)) != PATH_IS_APART;
}

static int list_trash(struct nfs_client *c, const char *path, store_match_fn match,
		      const struct nfs_handle **ret_trash, struct strv *names, struct error *err)
{
	char key[RECORD_NAME_MAX + 1];
	int r;

	directory_trash_key(key, path);
	r = store_folder(c, STORE_TRASH, false, ret_trash, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = store_list(c, *ret_trash, match, key, SIZE_MAX, names);
	return r < 0 ? nfs_error_set(err, c, r, "looking for '%s' in the trash", path) : 0;
}

int directory_may_come_back(struct nfs_client *c, const char *path, struct error *err)
{
	cleanup_strv struct strv names = { NULL, 0 };
	char key[RECORD_NAME_MAX + 1], above[RECORD_NAME_MAX + 1];
	const struct nfs_handle *trash;
	size_t i;
	int r;

	directory_trash_key(key, path);
	r = list_trash(c, path, may_be_trash_with, &trash, &names, err);
	for (i = 0; i < names.n && r == 0; i++) {
		if (may_be_trash_for(names.items[i], key))
			return 1;
		/* Not if there is another directory in that place by now. */
		if (directory_trash_path(names.items[i], above))
			r = directory_is_gone(c, above, err);
	}
	return r;
}

int directory_has_unchecked_trash(struct nfs_client *c, const char *path, struct error *err)
{
	cleanup_strv struct strv names = { NULL, 0 };
	const struct nfs_handle *trash;
	int r = list_trash(c, path, may_be_trash_near, &trash, &names, err);

	return r < 0 ? r : names.n > 0;
}

int directory_is_moving(const char *path, struct error *err)
{
	return error_set(err, ERROR_ABORTED,
			 "another controller is working on directory '%s'; try again", path);
}

int directory_stays_gone(struct nfs_client *c, const char *path, struct error *err)
{
	int r = directory_may_come_back(c, path, err);

	if (r > 0)
		return directory_is_moving(path, err);
	/* It may have come back before the look into the trash. */
	return r == 0 ? directory_is_gone(c, path, err) : r;
}

static int release_unless_kept(struct nfs_client *c, const struct nfs_handle *trash,
			       const char *entry, const char *key, directory_release_fn decide,
			       const void *data, bool *ret_trashed, struct error *err)
{
	struct nfs_handle trashed;
	int r;

	r = nfs_lookup(c, trash, entry, &trashed, NULL);
	if (r == 0 && decide != NULL) {
		r = decide(c, &trashed, data, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	if (r == 0)
		r = release_entry(c, trash, entry, key);
	*ret_trashed = *ret_trashed || r == 0;
	/* Gone, or of another identity: if root is squashed, only that may move it. */
	if (r == 0 || r == -ENOENT || r == -EACCES || r == -EPERM)
		return 0;
	return nfs_error_set(err, c, r, "renaming '%s' in the trash", entry);
}

int directory_trash_release_all(struct nfs_client *c, const char *path, directory_release_fn decide,
				const void *data, bool *ret_trashed, struct error *err)
{
	cleanup_strv struct strv names = { NULL, 0 };
	char key[RECORD_NAME_MAX + 1];
	const struct nfs_handle *trash;
	size_t i;
	int r;

	directory_trash_key(key, path);
	r = list_trash(c, path, is_trash_for, &trash, &names, err);
	for (i = 0; i < names.n && r == 0; i++)
		r = release_unless_kept(c, trash, names.items[i], key, decide, data, ret_trashed,
					err);
	return r;
}

/* -------- purging within a call -------- */

/* A purge, for the log. */
struct purge_log {
	const struct nfs_export *export;
	struct tree_stats stats;
	uint64_t started_ns;
};

static bool is_trash_of(const char *name, const void *key)
{
	return store_trash_name_is_of(name, key) && !store_trash_name_is_unchecked(name);
}

static void log_purge(const struct purge_log *purge, const char *name, const char *message)
{
	const struct tree_stats *s = &purge->stats;
	uint64_t ms = (clock_now_ns() - purge->started_ns) / CLOCK_NS_PER_MS + 1;

	log_info(message, LOG_STR("what", name), LOG_STR("server", purge->export->server),
		 LOG_STR("share", purge->export->share), LOG_NUM("files", s->files),
		 LOG_NUM("directories", s->directories),
		 LOG_NUM("entries_per_second", (s->files + s->directories) * 1000 / ms),
		 LOG_NUM("seconds", ms / 1000));
}

static void log_purge_progress(const struct tree_stats *stats, const char *name, void *data)
{
	(void)stats;
	log_purge(data, name, "Purging");
}

int directory_purge(struct nfs_client *c, const char *key, struct error *err)
{
	struct purge_log purge = { .export = &c->export, .started_ns = clock_now_ns() };
	cleanup_strv struct strv names = { NULL, 0 };
	const struct nfs_handle *trash;
	size_t i;
	int r;

	r = store_folder(c, STORE_TRASH, false, &trash, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	purge.stats = (struct tree_stats){
		.report = log_purge_progress,
		.data = &purge,
		.reported_ns = purge.started_ns,
	};
	r = store_list(c, trash, is_trash_of, key, SIZE_MAX, &names);
	if (r < 0)
		r = nfs_error_set(err, c, r, "reading the trash");
	/* Go on after a name that cannot be removed, and after a listing that broke off. */
	for (i = 0; i < names.n && !c->broken; i++) {
		int one = tree_remove(c, trash, names.items[i], NULL, &purge.stats, err);

		r = r < 0 ? r : one;
	}
	/* A short purge is not worth a line: the call has its own. */
	if (r == 0 && purge.stats.reported_ns != purge.started_ns)
		log_purge(&purge, key, "Purged");
	return r;
}
