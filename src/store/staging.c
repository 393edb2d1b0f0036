/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/staging.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "tree/remove.h"

#define HEX_BYTES 17

bool staging_is_ready(const struct record *rec)
{
	return record_get(rec, STAGING_KEY_READY) != NULL;
}

static int failed(struct nfs_client *c, int r, const char *path, struct error *err)
{
	return nfs_error_set(err, c, r, "putting '%s' into its place", path);
}

/* What tells a directory from every other one, at any time. */
struct identity {
	char fileid[HEX_BYTES];
	char handle[HEX_BYTES];
};

static int identify(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    struct identity *ret)
{
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(c, dir, name, &handle, &attr);
	if (r == 0)
		r = nfs_stat(c, &handle, &attr);
	if (r < 0)
		return r;
	if (attr.type != NFS_TYPE_DIRECTORY)
		return -ENOTDIR;
	(void)snprintf(ret->fileid, HEX_BYTES, "%" PRIx64, attr.fileid);
	(void)snprintf(ret->handle, HEX_BYTES, "%" PRIx64, str_hash(handle.data, handle.len));
	return 0;
}

int staging_is_in_place(struct nfs_client *c, const struct record *rec, const char *path,
			struct error *err)
{
	const char *built = record_get(rec, STAGING_KEY_BUILT);
	const char *handle = record_get(rec, STAGING_KEY_HANDLE);
	struct directory_place place;
	struct identity there;
	int r;

	if (built == NULL)
		return 0;
	r = directory_locate(c, path, &place, err);
	if (r == 0)
		r = identify(c, &place.parent, place.base, &there);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	if (r < 0)
		return failed(c, r, path, err);
	return strcmp(there.fileid, built) == 0 &&
	       (handle == NULL || strcmp(there.handle, handle) == 0);
}

/* -------- what is left of earlier attempts -------- */

static bool is_leftover(const char *name, const void *work_key)
{
	return store_trash_name_is_of(name, work_key);
}

static int discard(struct nfs_client *c, const struct nfs_handle *work, const char *name,
		   bool *ret_trashed, struct error *err)
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
		r = nfs_rename(c, work, name, trash, name);
	if (r == 0)
		*ret_trashed = true;
	if (r == 0 || r == -ENOENT)
		return 0;
	/* There may be no room for the trash, or for one more entry in it. */
	return tree_remove(c, work, name, NULL, NULL, err);
}

int staging_discard(struct nfs_client *c, const char *work_key, bool *ret_trashed, struct error *err)
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
		r = discard(c, work, names.items[i], ret_trashed, err);
	return r;
}

/* -------- making -------- */

static int in_the_way(struct nfs_client *c, const struct staging *b, struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION, "'%s' on %s:%s exists, and %s: move it away",
			 b->path, c->export.server, c->export.share, b->refusal);
}

/* Whether the place can be taken: nobody's, and of this file system. */
static int check_free(struct nfs_client *c, const struct staging *b, struct error *err)
{
	struct owner owner;
	int r;

	r = owner_find(c, b->path, b->others, &owner, err);
	if (r > 0)
		return owner_refuse(c, b->path, &owner,
				    b->others->volume != NULL ? b->others->volume : b->key, err);
	return r < 0 ? r : directory_check_file_system(c, b->path, err);
}

/* RENAME replaces an empty directory, as one is that a StorageClass's subDir may name. */
static int check_place(struct nfs_client *c, const struct staging *b, struct error *err)
{
	const char *path = b->path;
	struct directory_place place;
	struct nfs_handle handle;
	int r;

	r = check_free(c, b, err);
	if (r < 0)
		return r;
	r = directory_locate(c, path, &place, err);
	if (r == 0)
		r = nfs_lookup(c, &place.parent, place.base, &handle, NULL);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return failed(c, r, path, err);
	r = b->replaces_empty ? nfs_rmdir(c, &place.parent, place.base) : -EEXIST;
	if (r == 0 || r == -ENOENT)
		return 0;
	if (r == -ENOTEMPTY || r == -EEXIST || r == -ENOTDIR)
		return in_the_way(c, b, err);
	return failed(c, r, path, err);
}

/* Another attempt has begun, and has taken this one's work for what a crash left. */
static int taken_over(const struct staging *b, struct error *err)
{
	return error_set(err, ERROR_ABORTED, "another attempt is at work on '%s'", b->path);
}

static int put_in_place(struct nfs_client *c, struct staging *b, const struct nfs_handle *work,
			const char *name, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct identity own;
	int r;

	r = identify(c, work, name, &own);
	if (r == -ENOENT)
		return taken_over(b, err);
	if (r < 0)
		return failed(c, r, b->path, err);
	if (record_set(b->rec, STAGING_KEY_BUILT, own.fileid) < 0 ||
	    record_set(b->rec, STAGING_KEY_HANDLE, own.handle) < 0)
		return error_oom(err);
	r = record_replace(c, b->records, b->key, b->rec, err);
	if (r == 0)
		r = directory_make_parents(c, b->path, &place, err);
	if (r == 0)
		r = check_free(c, b, err); /* the work may have taken hours */
	if (r < 0)
		return r;
	r = nfs_lookup(c, &place.parent, place.base, &handle, NULL);
	if (r == 0)
		r = -EEXIST;
	else if (r == -ENOENT)
		r = nfs_rename(c, work, name, &place.parent, place.base);
	if (r == -EEXIST || r == -ENOTEMPTY)
		return in_the_way(c, b, err);
	if (r == -ENOENT)
		return taken_over(b, err);
	if (r == -EXDEV)
		return directory_apart(c, b->path, err);
	return r < 0 ? failed(c, r, b->path, err) : 0;
}

static int build(struct nfs_client *c, struct staging *b, struct error *err)
{
	struct error second = { .code = ERROR_OK };
	const struct nfs_handle *work;
	char name[NFS_NAME_MAX + 1];
	int r;

	r = staging_discard(c, b->work_key, &b->trashed, err);
	if (r == 0)
		r = check_place(c, b, err);
	if (r == 0)
		r = store_folder(c, STORE_WORK, true, &work, err);
	if (r < 0)
		return r;
	store_trash_name(name, c, b->work_key);
	r = b->fill(c, name, b->data, err);
	if (r == 0)
		r = put_in_place(c, b, work, name, err);
	/* Where that fails, the next attempt, or the deletion, finds it: a CO has to come back. */
	if (r < 0 && !c->broken && discard(c, work, name, &b->trashed, &second) < 0 &&
	    error_is_final(err->code))
		err->code = ERROR_ABORTED;
	return r;
}

int staging_make(struct nfs_client *c, struct staging *b, struct error *err)
{
	int r;

	if (staging_is_ready(b->rec))
		return 0;
	r = staging_is_in_place(c, b->rec, b->path, err);
	if (r == 0)
		r = build(c, b, err);
	if (r < 0)
		return r;
	if ((b->describe != NULL && b->describe(b->rec, b->data) < 0) ||
	    record_set(b->rec, STAGING_KEY_READY, "1") < 0)
		return error_oom(err);
	return record_replace(c, b->records, b->key, b->rec, err);
}
