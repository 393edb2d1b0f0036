/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/staging.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mode.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "tree/remove.h"

#define HEX_BYTES 17
#define TIME_BYTES 32

static int placing_failed(struct nfs_client *c, int r, const char *path, struct error *err)
{
	return nfs_error_set(err, c, r, "putting '%s' into its place", path);
}

/* The identity of a directory, which no earlier or later directory has. */
struct directory_identity {
	char fileid[HEX_BYTES];
	char handle[HEX_BYTES];
	char version[8];
	char time[TIME_BYTES];
	struct nfs_attr attr;
};

static int identify_directory(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			      struct directory_identity *ret)
{
	struct nfs_handle handle;
	int r;

	r = nfs_lookup(c, dir, name, &handle, &ret->attr);
	if (r == 0)
		r = nfs_stat(c, &handle, &ret->attr);
	if (r < 0)
		return r;
	if (ret->attr.type != NFS_TYPE_DIRECTORY)
		return -ENOTDIR;
	(void)snprintf(ret->fileid, HEX_BYTES, "%" PRIx64, ret->attr.fileid);
	(void)snprintf(ret->handle, HEX_BYTES, "%" PRIx64, str_hash(handle.data, handle.len));
	(void)snprintf(ret->version, sizeof(ret->version), "%d", c->version);
	(void)snprintf(ret->time, TIME_BYTES, "%" PRId64 ".%09" PRIu32, ret->attr.mtime.sec,
		       ret->attr.mtime.nsec);
	return 0;
}

/*
 * Whether a directory is the one of the record: 1, 0 or a negative errno. Over another version of
 * NFS its handle tells nothing, so compare the mtime, which nobody changes before it is ready. With
 * another mtime it may be this directory, or a later one that reuses its fileid; only the version
 * that it was built over can tell.
 */
static int is_recorded(struct nfs_client *c, const struct staging_state *state,
		       const struct directory_identity *there, const char *path, struct error *err)
{
	if (strcmp(there->fileid, state->built) != 0)
		return 0;
	if (state->handle == NULL || strcmp(there->handle, state->handle) == 0)
		return 1;
	if (state->version == NULL || strcmp(there->version, state->version) == 0)
		return 0;
	if (str_eq(state->time, there->time))
		return 1;
	return error_set(err, ERROR_ABORTED,
			 "cannot tell over NFSv%s whether '%s' on %s:%s is the directory that was made over NFSv%s; try again with vers=%s",
			 there->version, path, c->export.server, c->export.share, state->version,
			 state->version);
}

int staging_is_in_place(struct nfs_client *c, const struct record *rec, const char *path,
			struct error *err)
{
	const struct staging_state state = staging_state_of(rec);
	struct directory_identity there;
	struct directory_place place;
	int r;

	if (state.built == NULL)
		return 0;
	r = directory_locate(c, path, &place, err);
	if (r == 0)
		r = identify_directory(c, &place.parent, place.base, &there);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	if (r < 0)
		return placing_failed(c, r, path, err);
	return is_recorded(c, &state, &there, path, err);
}

/* -------- what earlier attempts left -------- */

static bool is_leftover(const char *name, const void *work_key)
{
	return store_trash_name_is_of(name, work_key);
}

/* Move work to the trash, for the purger. Errors are unreported. */
static int trash_work(struct nfs_client *c, const struct nfs_handle *work, const char *name,
		      bool *ret_trashed)
{
	struct error unused = { .code = ERROR_OK };
	const struct nfs_handle *trash;
	int r;

	/* Many attempts end before there is anything in it. */
	r = nfs_rmdir(c, work, name);
	if (r == 0 || r == -ENOENT)
		return 0;
	r = store_folder(c, STORE_TRASH, true, &trash, &unused);
	if (r == 0)
		r = directory_rename(c, work, name, trash, name);
	*ret_trashed = *ret_trashed || r == 0;
	return r == -ENOENT ? 0 : r;
}

/*
 * Discard what another attempt has made. That may be about to put it into place, and must not find
 * half of it: if the trash has no room for it, give it another name before it is removed.
 */
static int discard_leftover(struct nfs_client *c, const struct nfs_handle *work, const char *name,
			    const char *work_key, bool *ret_trashed, struct error *err)
{
	char aside[NFS_NAME_MAX + 1];
	struct nfs_export owner;
	int r;

	if (trash_work(c, work, name, ret_trashed) == 0)
		return 0;
	store_trash_identity(name, &owner);
	store_trash_name(aside, &owner, work_key);
	r = nfs_rename(c, work, name, work, aside);
	if (r == -ENOENT)
		return 0;
	/* On a file system that is too full for any rename, make room. */
	if (r == -ENOSPC || r == -EDQUOT)
		return tree_remove(c, work, name, NULL, NULL, err);
	if (r < 0)
		return nfs_error_set(err, c, r, "renaming unfinished work '%s'", name);
	return tree_remove(c, work, aside, NULL, NULL, err);
}

static int discard_own(struct nfs_client *c, const struct nfs_handle *work, const char *name,
		       bool *ret_trashed, struct error *err)
{
	if (trash_work(c, work, name, ret_trashed) == 0)
		return 0;
	return tree_remove(c, work, name, NULL, NULL, err);
}

int staging_discard(struct nfs_client *c, const char *work_key, bool *ret_trashed,
		    struct error *err)
{
	cleanup_strv struct strv names = { NULL, 0 };
	const struct nfs_handle *work;
	size_t i;
	int r;

	r = store_folder(c, STORE_WORK, false, &work, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = store_list(c, work, is_leftover, work_key, SIZE_MAX, &names);
	if (r < 0)
		return nfs_error_set(err, c, r, "reading the folder of unfinished work");
	for (i = 0; i < names.n && r == 0; i++)
		r = discard_leftover(c, work, names.items[i], work_key, ret_trashed, err);
	return r;
}

/* -------- making -------- */

/*
 * Refuse what is in the place. If an earlier attempt put it there, answer ABORTED: a paused
 * deletion of an earlier volume or snapshot may have moved it for a moment, and the next attempt
 * finds it.
 */
static int refuse_place(struct nfs_client *c, const struct staging *s, struct error *err)
{
	int r = staging_is_in_place(c, s->rec, s->path, err);

	if (r < 0)
		return r;
	if (r > 0)
		return directory_is_moving(s->path, err);
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "'%s' on %s:%s already exists, and %s: move it away", s->path,
			 c->export.server, c->export.share, s->refusal);
}

/* Check that nobody else has the place, and that it is on this file system. */
static int check_place_is_free(struct nfs_client *c, const struct staging *s, struct error *err)
{
	struct owner owner;
	int r;

	r = owner_find(c, s->path, s->others, &owner, err);
	if (r > 0)
		return owner_refuse(c, s->path, &owner,
				    s->others->volume != NULL ? s->others->volume : s->key, err);
	return r < 0 ? r : directory_check_file_system(c, s->path, err);
}

/*
 * Check that nothing is in the place but an empty directory that may go, such as one that a
 * StorageClass's subDir names. It stays until ours replaces it: if this attempt fails or is killed,
 * the next one finds it, too.
 */
static int check_place_is_empty(struct nfs_client *c, struct staging *s, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = directory_look_up(c, s->path, &place, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!s->replaces_empty || attr.type != NFS_TYPE_DIRECTORY)
		return refuse_place(c, s, err);
	r = nfs_has_entry(c, &handle);
	if (r > 0)
		return refuse_place(c, s, err);
	if (r == -ESTALE)
		return 0;
	/* One that may not be read may be empty: the RENAME decides. */
	if (r < 0 && r != -EACCES && r != -EPERM)
		return placing_failed(c, r, s->path, err);
	s->found = handle;
	return 0;
}

/* Report that a later attempt has taken this one's work for the remains of a crash. */
static int work_was_taken(const struct staging *s, struct error *err)
{
	return error_set(err, ERROR_ABORTED, "another attempt is working on '%s'", s->path);
}

/* Identify our directory in the record, in memory. Return 0 or -ENOMEM. */
static int record_identity(struct record *rec, const struct directory_identity *own)
{
	char mode[16];
	uint32_t open;

	if (record_set(rec, STAGING_KEY_BUILT, own->fileid) < 0 ||
	    record_set(rec, STAGING_KEY_HANDLE, own->handle) < 0 ||
	    record_set(rec, STAGING_KEY_VERSION, own->version) < 0 ||
	    record_set(rec, STAGING_KEY_TIME, own->time) < 0)
		return -ENOMEM;
	record_unset(rec, STAGING_KEY_MODE);
	if (!own->attr.has_mode || !directory_mode_is_closed(own->attr.mode, &open))
		return 0;
	(void)snprintf(mode, sizeof(mode), "%04" PRIo32, own->attr.mode);
	return record_set(rec, STAGING_KEY_MODE, mode);
}

/* Write the record that identifies our directory, and make the place ready for the RENAME. */
static int prepare_place(struct nfs_client *c, struct staging *s, struct directory_place *ret,
			 struct error *err)
{
	int r;

	r = record_replace(c, s->records, s->key, s->rec, err);
	if (r < 0)
		return r;
	r = directory_make_parents_of(c, s->path, s->others->volume, ret, err);
	if (r < 0)
		return r;
	return check_place_is_free(c, s, err); /* again: the work may have taken hours */
}

/* Servers pass on EEXIST in their own ways. */
static bool may_mean_taken(int error)
{
	return error == -EEXIST || error == -ENOTEMPTY || error == -EIO || error == -EREMOTEIO ||
	       error == -EINVAL;
}

/*
 * Remove an empty directory first, for a server that does not replace one by RENAME. If the RENAME
 * fails all the same, make the directory again: existingDirectory=require may ask for it.
 */
static int clear_and_rename(struct nfs_client *c, const struct nfs_handle *work, const char *name,
			    struct directory_place *place)
{
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(c, &place->parent, place->base, &handle, &attr);
	if (r == 0)
		r = nfs_getattr(c, &handle, &attr); /* LOOKUP of version 4 omits the owner */
	if (r == 0)
		r = nfs_rmdir(c, &place->parent, place->base);
	if (r < 0)
		return r;
	r = directory_rename(c, work, name, &place->parent, place->base);
	if (r < 0)
		(void)directory_make_again(c, place, &attr); /* r tells more */
	return r;
}

/* RENAME replaces an empty directory, so look first, if one has to stay. */
static int rename_into_place(struct nfs_client *c, const struct staging *s,
			     const struct nfs_handle *work, const char *name,
			     struct directory_place *place)
{
	struct nfs_handle handle;
	int r, cleared;

	if (!s->replaces_empty) {
		r = nfs_lookup(c, &place->parent, place->base, &handle, NULL);
		if (r != -ENOENT)
			return r == 0 ? -EEXIST : r;
	}
	r = directory_rename(c, work, name, &place->parent, place->base);
	if (!s->replaces_empty || !may_mean_taken(r))
		return r;
	cleared = clear_and_rename(c, work, name, place);
	return cleared == -ENOENT ? r : cleared;
}

static int put_in_place(struct nfs_client *c, struct staging *s, const struct nfs_handle *work,
			const char *name, struct error *err)
{
	struct directory_identity own;
	struct directory_place place;
	int r;

	r = check_place_is_empty(c, s, err);
	if (r < 0)
		return r;
	r = identify_directory(c, work, name, &own);
	if (r == -ENOENT)
		return work_was_taken(s, err);
	if (r < 0)
		return placing_failed(c, r, s->path, err);
	if (record_identity(s->rec, &own) < 0)
		return error_oom(err);
	r = prepare_place(c, s, &place, err);
	if (r == -ESTALE)
		directory_note_sweep_above(c, s->path);
	if (r < 0)
		return r;
	r = rename_into_place(c, s, work, name, &place);
	if (r == -EEXIST || r == -ENOTEMPTY || r == -ENOTDIR)
		return refuse_place(c, s, err);
	/* The directory above may be gone, with the last volume in it. */
	if (r == -ENOENT || r == -ESTALE)
		directory_note_sweep_above(c, s->path);
	if (r == -ENOENT)
		return work_was_taken(s, err);
	if (r == -EXDEV)
		return directory_apart(c, s->path, err);
	return r < 0 ? placing_failed(c, r, s->path, err) : 0;
}

static int build_directory(struct nfs_client *c, struct staging *s, struct error *err)
{
	struct error second = { .code = ERROR_OK };
	const struct nfs_handle *work;
	char name[NFS_NAME_MAX + 1];
	int r;

	r = staging_discard(c, s->work_key, &s->trashed, err);
	if (r < 0)
		return r;
	r = check_place_is_free(c, s, err);
	if (r == 0)
		r = check_place_is_empty(c, s, err);
	if (r < 0)
		return r;
	r = store_folder(c, STORE_WORK, true, &work, err);
	if (r < 0)
		return r;
	store_trash_name(name, &c->export, s->work_key);
	r = s->fill(c, name, s->data, err);
	if (r == 0)
		r = put_in_place(c, s, work, name, err);
	if (r == 0 || c->broken)
		return r;
	/* The next attempt or the deletion finds the leftovers, so the CO has to retry. */
	if (discard_own(c, work, name, &s->trashed, &second) < 0 && error_is_final(err->code))
		err->code = ERROR_ABORTED;
	return r;
}

/*
 * Restore the mode of the directory in place, if it was opened to be put there: the attempt that
 * did that may have been killed. Nobody uses the directory yet.
 */
static int restore_mode(struct nfs_client *c, const struct staging *s, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	uint64_t mode;
	uint32_t open;
	int r;

	if (str_parse_u64(staging_state_of(s->rec).mode, 8, MODE_ALL, &mode) < 0)
		return 0;
	r = directory_find(c, s->path, &place, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r; /* a paused deletion has moved it for a moment */
	if (!attr.has_mode || !directory_mode_is_closed((uint32_t)mode, &open) || attr.mode != open)
		return 0;
	r = nfs_setmode(c, &handle, (uint32_t)mode);
	return r < 0 ? nfs_error_set(err, c, r, "setting the mode of '%s'", s->path) : 0;
}

int staging_make(struct nfs_client *c, struct staging *s, struct error *err)
{
	bool was_in_place;
	int r;

	if (staging_state_of(s->rec).ready)
		return 0;
	r = staging_is_in_place(c, s->rec, s->path, err);
	was_in_place = r > 0;
	if (r == 0)
		r = build_directory(c, s, err);
	/* The driver may have made, and noted, the directory that was replaced. */
	if (r >= 0 && (was_in_place || s->found.len > 0))
		r = directory_note_sweep(c, s->path, err);
	if (r >= 0)
		r = restore_mode(c, s, err);
	if (r < 0)
		return r;
	record_unset(s->rec, STAGING_KEY_VERSION);
	record_unset(s->rec, STAGING_KEY_TIME);
	record_unset(s->rec, STAGING_KEY_MODE);
	if ((s->describe != NULL && s->describe(s->rec, s->data) < 0) ||
	    staging_set_ready(s->rec) < 0)
		return error_oom(err);
	return record_replace(c, s->records, s->key, s->rec, err);
}
