/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/volume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "nfs/error.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/users.h"
#include "store/volume_parts.h"

/* volume_describe() writes the mode as four digits, after the directory. */
#define MODE_DIGITS 4

static bool is_cut_mode(const char *text)
{
	const size_t n = strlen(text);

	return n < MODE_DIGITS && strspn(text, "01234567") == n;
}

/*
 * Check that a record was not truncated: 0, -EINVAL or -ENOMEM. A record without an id names no
 * directory. Values that were never valid, such as a mode "rwx", count as none. An empty policy
 * does not: it would mean the default one, which may be to delete.
 */
static int volume_check_contents(const struct record *rec)
{
	const char *mode = record_get(rec, VOLUME_KEY_MODE);
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const struct volume v = volume_of(rec);
	int r;

	if (v.id == NULL)
		return 0;
	r = volume_id_parse(&id, v.id);
	if (r < 0)
		return r;
	if (v.dir == NULL || mode == NULL || is_cut_mode(mode))
		return -EINVAL;
	return v.on_delete != NULL && v.on_delete[0] == '\0' ? -EINVAL : 0;
}

int volume_check_record(struct nfs_client *c, const char *key, const struct record *rec,
			struct error *err)
{
	int r = volume_check_contents(rec);

	return r < 0 ? record_unusable(c, r, NFS_STATE_DIR "/volumes", key,
				       "remove it if the volume is not needed", err)
		     : 0;
}

/*
 * Whether an id without a uuid is that of the volume: its own has none, or would be too long with
 * the server and share that this one has. 1, 0 or -ENOMEM.
 */
static int volume_has_short_id(const struct volume *v, const struct volume_id *id)
{
	cleanup_volume_id struct volume_id own = { .server = NULL };
	cleanup_free char *text = NULL;
	struct volume_id there;
	int r;

	r = v->id != NULL ? volume_id_parse(&own, v->id) : -EINVAL;
	if (r < 0)
		return r == -ENOMEM ? r : 1;
	if (own.uuid[0] == '\0')
		return 1;
	there = (struct volume_id){ .server = id->server,
				    .share = id->share,
				    .subdir = own.subdir,
				    .uuid = own.uuid,
				    .on_delete = own.on_delete };
	text = volume_id_format(&there);
	return text != NULL ? strlen(text) > VOLUME_ID_MAX : -ENOMEM;
}

/* An id made by hand may join the key of one volume with the directory of another. */
static int check_same_directory(struct nfs_client *c, const struct volume_id *id,
				const struct record *rec, struct error *err)
{
	const struct volume v = volume_of(rec);
	const char *dir = NULL;
	int r;

	/* An id that would be too long with its subDir has the key there, and no uuid. */
	if (id->uuid[0] == '\0') {
		r = volume_has_short_id(&v, id);
		if (r != 0)
			return r < 0 ? error_oom(err) : 0;
	}
	/* Damage is reported where the directory is needed. */
	if (volume_recorded_directory(c, &v, volume_id_key(id), &dir, NULL) < 0 ||
	    strcmp(dir, id->subdir) == 0)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "the volume id names directory '%s' on %s:%s, but volume '%s' has directory '%s': correct the id",
			 id->subdir, c->export.server, c->export.share, volume_id_key(id), dir);
}

int volume_read(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		struct error *err)
{
	const char *key = volume_id_key(id);
	int r;

	if (!volume_key_can_have_record(key))
		return 0;
	r = record_read_at(c, STORE_VOLUMES, key, ret, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = volume_check_record(c, key, ret, err);
	if (r == 0)
		r = owner_check_record(c, key, ret, err);
	if (r > 0)
		record_done(ret);
	return r == 0 ? check_same_directory(c, id, ret, err) : r < 0 ? r : 0;
}

const char *volume_named_directory(const struct record *rec, const struct volume_id *id)
{
	const char *dir = record_get(rec, VOLUME_KEY_DIR);

	return dir != NULL ? dir : id->subdir;
}

/* Others may be able to write records on the share, so the path is checked like any input. */
int volume_recorded_directory(struct nfs_client *c, const struct volume *v, const char *key,
			      const char **ret, struct error *err)
{
	if (v->dir == NULL || path_check_relative(v->dir, "dir", NULL) < 0 ||
	    path_has_component(v->dir, NFS_STATE_DIR))
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "record '%s' on %s:%s does not name a directory: it is damaged, look at it in %s/volumes",
				 key, c->export.server, c->export.share, NFS_STATE_DIR);
	*ret = v->dir;
	return 0;
}

int volume_directory(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		     const char **ret, struct error *err)
{
	const struct volume v = volume_of(rec);

	if (rec->n > 0)
		return volume_recorded_directory(c, &v, volume_id_key(id), ret, err);
	*ret = volume_named_directory(rec, id);
	return 0;
}

int volume_look(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		bool *ret_has_directory, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	const char *dir = NULL;
	struct nfs_attr attr;
	int r;

	r = volume_directory(c, id, rec, &dir, err);
	if (r < 0)
		return r;
	r = directory_find(c, dir, &place, &handle, &attr, err);
	if (r < 0 && r != -ENOENT)
		return r;
	*ret_has_directory = r == 0;
	return 0;
}

int volume_find(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		struct error *err)
{
	const struct volume v = volume_of(rec);
	bool has_directory;
	int r;

	r = volume_look(c, id, rec, &has_directory, err);
	if (r < 0)
		return r;
	/* A paused deletion of an earlier volume may have moved it for a moment (rule 6). */
	if (!has_directory && rec->n > 0 && !volume_is_unfinished(&v)) {
		r = directory_stays_gone(c, v.dir, err);
		if (r < 0)
			return r;
		has_directory = r == 0;
	}
	if (has_directory && !volume_is_unfinished(&v))
		return 0;
	/* csi-driver-nfs may have finished it, which leaves the record as it is. */
	if (has_directory)
		return error_set(err, ERROR_NOT_FOUND,
				 "volume '%s' on %s:%s is unfinished: its creation is under way, or was interrupted; if another driver has finished it, remove its record from " NFS_STATE_DIR
				 "/volumes",
				 volume_id_key(id), c->export.server, c->export.share);
	return error_sys(err, ERROR_NOT_FOUND, ENOENT, "volume directory '%s' on %s:%s", id->subdir,
			 c->export.server, c->export.share);
}

int volume_open_directory(struct nfs_client *c, const struct volume_id *id,
			  const struct record *rec, const char **ret_dir, struct nfs_handle *ret,
			  struct error *err)
{
	struct directory_place place;
	struct nfs_attr attr;
	int r;

	r = volume_directory(c, id, rec, ret_dir, err);
	/* The record may have gone just now; its tombstone is there before it goes. */
	if (r == 0 && rec->n == 0)
		r = busy_check_not_deleted(c, *ret_dir, err);
	if (r < 0)
		return r;
	r = directory_find(c, *ret_dir, &place, ret, &attr, err);
	return r < 0 ? nfs_error_set(err, c, r, "volume directory '%s'", *ret_dir) : 0;
}

/* Write the notes again of a volume that has got the key since (rule 10 in doc/design.md). */
static int give_notes_back(struct nfs_client *c, const char *key, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const char *dir;
	struct volume v;
	bool noted;
	int r;

	r = record_read_at(c, STORE_VOLUMES, key, &rec, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	v = volume_of(&rec);
	r = volume_recorded_directory(c, &v, key, &dir, err);
	return r < 0 ? r : users_add(c, key, dir, &noted, err);
}

int volume_remove_notes(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	int r;

	if (strcmp(key, dir) == 0)
		return 0;
	r = users_remove(c, key, dir, err);
	return r < 0 || !volume_key_can_have_record(key) ? r : give_notes_back(c, key, err);
}

/*
 * Whether another volume has the directory to itself, or may get it: 1, 0 or a negative errno. Then
 * a volume without a record is a static one that an administrator has added, or was deleted before
 * that one was made. With a record it would keep the directory for good.
 */
static int is_of_another_alone(struct nfs_client *c, const struct volume_id *id, struct error *err)
{
	const struct owner_question q = { .volume = volume_id_key(id),
					  .scope = OWNER_AT | OWNER_AROUND,
					  .count = OWNER_COUNT_ALONE };
	struct owner owner;
	int r;

	r = owner_find(c, id->subdir, &q, &owner, err);
	if (r > 0)
		log_info("Writing no record for a volume: its directory belongs to another one alone",
			 LOG_STR("volume", volume_id_key(id)), LOG_STR("directory", id->subdir),
			 LOG_STR("of", owner.key));
	return r;
}

/*
 * Check that a volume may keep its first record, which has just been written: 0, or 1 as
 * is_of_another_alone(). A deletion sets its tombstone before it looks for a record, so at least
 * one of the two calls sees the other (rule 1 in doc/design.md, "Calls at once"). A deletion that
 * has ended since the caller looked has removed the directory as well.
 */
static int check_first_record(struct nfs_client *c, const struct volume_id *id, struct error *err)
{
	int r = busy_check_not_deleted(c, id->subdir, err);

	if (r == 0)
		r = directory_is_gone(c, id->subdir, err);
	if (r > 0)
		return error_set(err, ERROR_ABORTED, "the volume is being deleted; try again");
	return r < 0 ? r : is_of_another_alone(c, id, err);
}

/* Give a volume of csi-driver-nfs its first record. Return 1 if it may not have one. */
static int create_foreign_record(struct nfs_client *c, const struct nfs_handle *folder,
				 const struct volume_id *id, struct record *rec, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	const char *key = volume_id_key(id);
	bool noted;
	int r;

	r = is_of_another_alone(c, id, err);
	if (r != 0)
		return r;
	/*
	 * Notes that lead to no record do no harm; a record without its notes would be overlooked.
	 */
	if (record_set_nonce(rec) < 0)
		return error_oom(err);
	r = users_add(c, key, id->subdir, &noted, err);
	if (r == 0)
		r = record_create(c, folder, key, rec, err);
	if (r == -EEXIST)
		return error_set(err, ERROR_ABORTED, "the volume is being changed; try again");
	if (r < 0)
		return r;
	r = check_first_record(c, id, err);
	if (r == 0)
		return 0;
	if (record_remove(c, folder, key, rec, &ignored) < 0 ||
	    volume_remove_notes(c, key, id->subdir, &ignored) < 0) {
		if (r > 0)
			*err = ignored;
		err->code = ERROR_ABORTED;
		return r < 0 ? r : -EAGAIN;
	}
	return r;
}

int volume_write_record(struct nfs_client *c, const struct volume_id *id, struct record *rec,
			bool fresh, struct error *err)
{
	const struct nfs_handle *folder;
	int r;

	r = store_folder(c, STORE_VOLUMES, true, &folder, err);
	if (r < 0)
		return r;
	if (fresh)
		return create_foreign_record(c, folder, id, rec, err);
	return record_replace(c, folder, volume_id_key(id), rec, err);
}
