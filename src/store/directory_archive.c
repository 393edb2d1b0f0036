/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Archiving a volume's directory: onDelete=archive. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/directory_parts.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/unchecked.h"

#define ARCHIVE_TRIES 10
#define ARCHIVE_DATE_MAX 24 /* ".20260131T120000Z.10" */
#define ARCHIVE_HASH 17 /* "-" and 16 digits */

/* Why a name cannot be used. Other results: 0, errors, and the 1 of directory_check_moved(). */
#define ARCHIVE_NAME_TAKEN 2
#define ARCHIVE_NAME_OF_OTHERS 3 /* others have something there, in it or around it */
#define ARCHIVE_IS_NEW 4 /* another replica may have archived the volume there since */

/* Put a component, and a date behind it if it is dated, in room bytes: a longer one is cut. */
static int put_component(struct buf *b, const char *name, size_t len, size_t room, bool dated)
{
	if (dated)
		room -= ARCHIVE_DATE_MAX;
	if (len <= room)
		return buf_append(b, name, len);
	return buf_printf(b, "%.*s-%016" PRIx64, (int)str_utf8_cut(name, room - ARCHIVE_HASH), name,
			  str_hash(name, len));
}

/* Put "archived-" before the first component, as csi-driver-nfs does. */
static int put_archive_top(struct buf *b, const char *path, size_t first, bool dated)
{
	int r = buf_puts(b, DIRECTORY_ARCHIVE_PREFIX);

	return r < 0 ? r
		     : put_component(b, path, first,
				     PATH_COMPONENT_MAX - strlen(DIRECTORY_ARCHIVE_PREFIX), dated);
}

/* Put the components after the first one. path: with the slash before them, or empty. */
static int put_archive_rest(struct buf *b, const char *path, bool dated)
{
	const char *last = strrchr(path, '/');
	int r;

	if (last == NULL)
		return 0;
	last++;
	r = buf_append(b, path, (size_t)(last - path));
	return r < 0 ? r : put_component(b, last, strlen(last), PATH_COMPONENT_MAX, dated);
}

static int put_date(struct buf *b, int attempt)
{
	char when[ARCHIVE_DATE_MAX];
	struct timespec now;
	struct tm tm;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (gmtime_r(&now.tv_sec, &tm) == NULL)
		return -ENOMEM;
	(void)strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
	if (attempt > 1)
		return buf_printf(b, ".%s.%d", when, attempt);
	return buf_printf(b, ".%s", when);
}

/*
 * Format the path of an archive. Attempts after the first have a date at the end. With aside, the
 * date follows the first component instead, because others have the path below that.
 */
static char *archive_path(const char *path, int attempt, bool aside)
{
	const size_t first = strcspn(path, "/");
	cleanup_buf struct buf b = { 0 };
	int r;

	r = put_archive_top(&b, path, first, aside || path[first] == '\0');
	if (r == 0 && attempt > 0 && aside)
		r = put_date(&b, attempt);
	if (r == 0)
		r = put_archive_rest(&b, path + first, attempt > 0 && !aside);
	if (r == 0 && attempt > 0 && !aside)
		r = put_date(&b, attempt);
	return r < 0 ? NULL : buf_steal(&b);
}

/* A directory that is being archived. */
struct archive_move {
	const char *path;
	const char *key; /* of the volume */
	const struct directory_known *known;
	struct directory_place from;
	bool moved, trashed; /* out */
};

/*
 * Keep away from the directories of volumes and snapshots: ARCHIVE_NAME_OF_OTHERS. Only an older
 * archive may be replaced.
 */
static int check_archive_place(struct nfs_client *c, const char *archive, const char *key,
			       struct error *err)
{
	const struct owner_question q = { .volume = key, .scope = OWNER_ALL, .policies = true };
	struct owner owner;
	int r;

	r = owner_find(c, archive, &q, &owner, err);
	if (r < 0)
		return r;
	if (r == 0 && !owner_is_only_kept(&owner))
		return 0;
	log_info("A volume is archived under another name, since others have the usual one",
		 LOG_STR("volume", key), LOG_STR("directory", archive), LOG_STR("of", owner.key));
	return ARCHIVE_NAME_OF_OTHERS;
}

/* Handle ENOENT of RENAME: path is gone, which is fine, or the directory above the archive is. */
static int rename_found_none(struct nfs_client *c, const char *path, const char *archive,
			     struct error *err)
{
	int r = directory_is_gone(c, path, err);

	if (r != 0)
		return r < 0 ? r : directory_remove_parents(c, archive, err);
	return nfs_error_set(err, c, -ESTALE, "archiving '%s'", path);
}

/* Look the name up first: RENAME would replace an empty directory of that name. */
static int move_to_archive(struct nfs_client *c, struct archive_move *a, const char *archive,
			   struct error *err)
{
	struct directory_place to;
	struct nfs_handle handle;
	int r;

	r = directory_make_parents(c, archive, &to, err);
	if (r == -ENOSPC || r == -EDQUOT)
		error_prefix(err, "archiving '%s' has to create directories, so free some space",
			     a->path);
	if (r < 0)
		return r;
	r = nfs_lookup(c, &to.parent, to.base, &handle, NULL);
	if (r == 0)
		return ARCHIVE_NAME_TAKEN;
	if (r == -ENOENT)
		r = directory_rename(c, &a->from.parent, a->from.base, &to.parent, to.base);
	if (r == -ENOTEMPTY || r == -EEXIST || r == -ENOTDIR)
		return ARCHIVE_NAME_TAKEN;
	if (r == -EXDEV)
		return directory_apart(c, a->path, err);
	if (r == -ENOENT)
		return rename_found_none(c, a->path, archive, err);
	if (r < 0)
		return nfs_error_set(err, c, r, "archiving '%s'", a->path);
	r = directory_check_moved(c, &a->from, a->known, &to.parent, to.base, err);
	a->moved = r == 0;
	return r;
}

/*
 * If it was not archived, remove the directories that were made for the archive: the next attempt
 * may choose another name, or find that somebody else uses the directory.
 */
static int archive_as(struct nfs_client *c, struct archive_move *a, const char *archive,
		      struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	int r = move_to_archive(c, a, archive, err);

	if (r == 0 || r == ARCHIVE_NAME_TAKEN)
		return r;
	if (r == -ESTALE)
		directory_note_sweep_above(c, archive);
	(void)directory_remove_parents(c, archive, &ignored);
	return r;
}

/*
 * Keep out of other archives: ARCHIVE_NAME_OF_OTHERS if a directory above exists that the driver
 * did not make.
 */
static int check_archive_parents(struct nfs_client *c, const char *archive, struct error *err)
{
	const char *slash = archive;
	int r;

	while ((slash = strchr(slash, '/')) != NULL) {
		cleanup_free char *above = strndup(archive, (size_t)(slash++ - archive));

		if (above == NULL)
			return error_oom(err);
		r = directory_is_made_parent(c, above, err);
		if (r < 0)
			return r;
		if (r > 0)
			continue;
		r = directory_is_gone(c, above, err);
		return r == 0 ? ARCHIVE_NAME_OF_OTHERS : r < 0 ? r : 0;
	}
	return 0;
}

/*
 * Look for users again after an older archive was removed: another replica may have finished this
 * deletion, and then a volume may have adopted the archive (rule 4). If so, give the archive back
 * and return ARCHIVE_NAME_OF_OTHERS. A volume whose creation is not finished notices the loss
 * itself. entry: the name of the archive in the trash, or "" if the archive was empty; becomes ""
 * once it has left the trash.
 */
static int give_back_if_used(struct nfs_client *c, const char *archive,
			     struct directory_place *place, const struct nfs_attr *attr,
			     char *entry, struct error *err)
{
	const struct owner_question q = { .scope = OWNER_ALL, .count = OWNER_COUNT_FINISHED };
	const struct nfs_handle *trash;
	struct owner owner;
	int r;

	r = owner_find(c, archive, &q, &owner, err);
	if (r <= 0)
		return r;
	if (entry[0] == '\0') {
		r = directory_make_again(c, place, attr);
		return r < 0 ? nfs_error_set(err, c, r, "making directory '%s' again", archive)
			     : ARCHIVE_NAME_OF_OTHERS;
	}
	r = store_folder(c, STORE_TRASH, true, &trash, err);
	if (r == 0)
		r = unchecked_rename_back(c, trash, entry, archive, owner.key, err);
	if (r < 0)
		return r;
	/* Rule 5: a user that has made a new directory never had the archive, which is purged. */
	if (r > 0)
		entry[0] = '\0';
	return ARCHIVE_NAME_OF_OTHERS;
}

/*
 * Remove an older archive. ARCHIVE_NAME_TAKEN for anything else of that name: something that is not
 * a directory, or a directory that holds archives of other volumes. Another replica may archive the
 * same volume at the same time. So look at the archive first, and then at the volume's directory:
 * if that is still in its place, the archive is an older one and may go. If not, return
 * ARCHIVE_IS_NEW.
 */
static int remove_archive(struct nfs_client *c, struct archive_move *a, const char *archive,
			  struct error *err)
{
	char key[RECORD_NAME_MAX + 1], entry[NFS_NAME_MAX + 1];
	struct directory_place place;
	struct directory_known old;
	struct nfs_handle handle;
	int r, released;

	/*
	 * The directories of a share that was restored or moved are others than those in the notes,
	 * and may hold the same archives.
	 */
	r = directory_note_is_there(c, archive, err);
	if (r != 0)
		return r < 0 ? r : ARCHIVE_NAME_TAKEN;
	r = directory_look_up(c, archive, &place, &old.handle, &old.attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (old.attr.type != NFS_TYPE_DIRECTORY)
		return ARCHIVE_NAME_TAKEN;
	r = nfs_lookup(c, &a->from.parent, a->from.base, &handle, NULL);
	if (r == -ENOENT || (r == 0 && !nfs_handle_is_equal(&handle, &a->known->handle)))
		return ARCHIVE_IS_NEW;
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up '%s'", a->path);
	directory_trash_key(key, archive);
	r = directory_remove_known(c, &place, &old, key, entry, err);
	/* Removing it in place takes long: a volume might adopt what is left of it meanwhile. */
	if (r == DIRECTORY_CANNOT_MOVE)
		return ARCHIVE_NAME_TAKEN;
	if (r == DIRECTORY_LACKS_ROOM)
		return nfs_error_set(err, c, -ENOSPC, "moving '%s' into the trash", place.base);
	if (r != 0 && r != -ENOENT)
		return r > 0 ? ARCHIVE_IS_NEW : r;
	r = give_back_if_used(c, archive, &place, &old.attr, entry, err);
	if (r < 0 || entry[0] == '\0') /* after an error, the entry stays unchecked */
		return r;
	released = directory_trash_release(c, key, entry, err);
	a->trashed = released == 0;
	return released < 0 ? released : r;
}

static int try_archive(struct nfs_client *c, struct archive_move *a, const char *archive,
		       bool replace, struct error *err)
{
	int r;

	r = check_archive_place(c, archive, a->key, err);
	if (r == 0)
		r = check_archive_parents(c, archive, err);
	if (r == 0)
		r = archive_as(c, a, archive, err);
	if (r != ARCHIVE_NAME_TAKEN || !replace)
		return r;
	r = remove_archive(c, a, archive, err);
	if (r == ARCHIVE_IS_NEW) /* the volume is gone from its place, which archive_as() finds */
		return error_set(err, ERROR_ABORTED,
				 "another controller is archiving '%s'; try again", a->path);
	return r != 0 ? r : archive_as(c, a, archive, err);
}

/* Try one name after the other. */
static int find_archive_name(struct nfs_client *c, struct archive_move *a, bool replace,
			     char **ret_archive, struct error *err)
{
	bool aside = false;
	int r, attempt;

	for (attempt = 0; attempt < ARCHIVE_TRIES; attempt++) {
		cleanup_free char *archive = archive_path(a->path, attempt, aside);

		if (archive == NULL)
			return error_oom(err);
		r = try_archive(c, a, archive, replace && attempt == 0, err);
		if (r == 0 && a->moved)
			*ret_archive = steal_ptr(&archive);
		if (r != ARCHIVE_NAME_TAKEN && r != ARCHIVE_NAME_OF_OTHERS)
			return r;
		aside = aside || r == ARCHIVE_NAME_OF_OTHERS;
	}
	return error_set(err, ERROR_ABORTED, "no free name for the archive of '%s' on %s:%s",
			 a->path, c->export.server, c->export.share);
}

int directory_archive(struct nfs_client *c, const char *path, const char *key,
		      const struct directory_known *known, bool replace, char **ret_archive,
		      bool *ret_trashed, struct error *err)
{
	struct archive_move a = { .path = path, .key = key, .known = known };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	*ret_archive = NULL;
	r = directory_find(c, path, &a.from, &handle, &attr, err);
	if (r == -ENOENT)
		return 0; /* archived by an earlier attempt */
	if (r == 0)
		r = directory_check_file_system(c, path, err);
	if (r < 0)
		return r;
	r = find_archive_name(c, &a, replace, ret_archive, err);
	*ret_trashed = *ret_trashed || a.trashed;
	return r;
}
