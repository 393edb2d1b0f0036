/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/tombstone.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "store/owner.h"

#define TOMBSTONE_KEY_NEW "new" /* in a tombstone that was not a record before */

bool tombstone_is_new(const struct tombstone *t)
{
	return record_get(&t->record, TOMBSTONE_KEY_NEW) != NULL;
}

void tombstone_done(struct tombstone *t)
{
	record_done(&t->record);
}

static int folder_of(struct nfs_client *c, const struct tombstone *t, bool create,
		     const struct nfs_handle **ret, struct error *err)
{
	return store_folder(c, t->kind == BUSY_SNAPSHOT_GONE ? STORE_SNAPSHOTS : STORE_VOLUMES,
			    create, ret, err);
}

static int failed(struct nfs_client *c, int r, const struct tombstone *t, struct error *err)
{
	return nfs_error_set(err, c, r, "noting that '%s' is deleted", t->dir);
}

/* Ids of volumes that csi-driver-nfs made may hold what is no name. */
static bool can_have_record(const struct tombstone *t)
{
	return strchr(t->key, '/') == NULL && strlen(t->key) <= RECORD_NAME_MAX;
}

/* A draft that is there was begun before the record went, and may be renamed in its place no more. */
static int read_again(struct nfs_client *c, struct tombstone *t, const struct nfs_handle *records,
		      const struct nfs_handle *busy, struct error *err)
{
	int r;

	record_done(&t->record);
	r = record_read_buried(c, records, t->key, busy, t->name, &t->record, err);
	return r < 0 || !can_have_record(t)
		       ? r
		       : record_forget_draft(c, records, t->key, &t->record, err);
}

/* A full share has to be emptied, if need be without other replicas knowing of it. */
static int go_without(struct tombstone *t, int r, struct error *err)
{
	if (r != -ENOSPC && r != -EDQUOT)
		return r;
	error_clear(err);
	t->name[0] = '\0';
	t->no_room = true;
	return 0;
}

static int bury(struct nfs_client *c, struct tombstone *t, const struct nfs_handle *records,
		struct error *err)
{
	const struct nfs_handle *busy;
	int r;

	if (t->name[0] == '\0')
		busy_name(t->name, t->kind, t->dir);
	r = store_folder(c, STORE_BUSY, true, &busy, err);
	if (r == 0)
		r = record_bury(c, records, t->key, busy, t->name, err);
	/* Once it is set, it is there, whatever there is no room for. */
	r = go_without(t, r, err);
	return r < 0 || t->no_room ? r : read_again(c, t, records, busy, err);
}

int tombstone_set(struct nfs_client *c, struct tombstone *t, struct error *err)
{
	const struct nfs_handle *records;
	int r;

	r = folder_of(c, t, false, &records, err);
	if (r < 0)
		return r;
	r = bury(c, t, records, err);
	if (r < 0 || !t->no_room)
		return r;
	record_done(&t->record);
	return record_read(c, records, t->key, &t->record, err);
}

int tombstone_set_new(struct nfs_client *c, struct tombstone *t, struct record *rec, struct error *err)
{
	const struct nfs_handle *busy;
	int r;

	if (record_set(rec, TOMBSTONE_KEY_NEW, "1") < 0)
		return error_oom(err);
	busy_name(t->name, t->kind, t->dir);
	r = store_folder(c, STORE_BUSY, true, &busy, err);
	if (r == 0)
		r = record_create(c, busy, t->name, rec, err);
	r = go_without(t, r, err);
	if (r < 0)
		return r == -EEXIST ? failed(c, r, t, err) : r;
	record_done(&t->record);
	record_move(&t->record, rec);
	return 0;
}

int tombstone_adopt(struct nfs_client *c, struct tombstone *t, const char *name, struct error *err)
{
	const struct nfs_handle *records, *busy;
	int r;

	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = folder_of(c, t, true, &records, err);
	if (r < 0)
		return r;
	memcpy(t->name, name, strlen(name) + 1);
	return read_again(c, t, records, busy, err);
}

/* -------- the directory -------- */

static int is_set(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	const struct nfs_handle *busy;
	struct nfs_handle unused;
	int r;

	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r == 0)
		r = nfs_lookup(c, busy, t->name, &unused, NULL);
	if (r == 0)
		return 1;
	return r == -ENOENT ? 0 : failed(c, r, t, err);
}

/* Another replica has finished the deletion. A CO that asks again is told how it stands now. */
static int is_finished(const struct tombstone *t, struct error *err)
{
	(void)error_set(err, ERROR_ABORTED,
			"another controller has finished the deletion of '%s' meanwhile; try again",
			t->dir);
	return -EAGAIN;
}

int tombstone_check(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	int r;

	if (t->name[0] == '\0')
		return 0;
	r = is_set(c, t, err);
	return r == 0 ? is_finished(t, err) : r < 0 ? r : 0;
}

/*
 * Finds the directory, and then the tombstone: what is in the directory's place from now on may be a new one,
 * and has another handle. -ENOENT, unreported, where there is no directory.
 */
static int find_directory(struct nfs_client *c, const struct tombstone *t, const char *path,
			  struct directory_place *place, struct nfs_handle *ret,
			  struct nfs_attr *ret_attr, struct error *err)
{
	int r;

	r = directory_locate(c, path, place, err);
	if (r == 0)
		r = nfs_lookup(c, &place->parent, place->base, ret, ret_attr);
	if (r == -ENOENT)
		return r;
	if (r < 0)
		return failed(c, r, t, err);
	return t->name[0] == '\0' && !t->no_room ? is_finished(t, err) : tombstone_check(c, t, err);
}

/* An empty directory that was removed is made again. */
static int make_again(struct nfs_client *c, const struct directory_place *place,
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
	struct nfs_handle handle;
	struct nfs_attr unused;
	int r;

	r = nfs_mkdir(c, &place->parent, place->base, attr->has_mode ? attr->mode : 0755, &handle,
		      &unused);
	if (r == 0)
		r = nfs_setattr(c, &handle, &change);
	return r == -EEXIST ? 0 : r;
}

/*
 * The tombstone had gone when the directory went: somebody who came later may have found it there, and begun
 * to use it.
 */
static int put_back(struct nfs_client *c, const struct tombstone *t,
		    const struct directory_place *place, const struct nfs_attr *attr,
		    const char *trashed, tombstone_users_fn users, struct error *err)
{
	const struct nfs_handle *trash;
	struct nfs_handle handle;
	int r;

	r = users != NULL ? users(c, t, trashed[0] == '\0', err) : 0;
	if (r <= 0)
		return r < 0 ? r : is_finished(t, err);
	if (trashed[0] == '\0') {
		r = make_again(c, place, attr);
		return r < 0 ? failed(c, r, t, err) : 1;
	}
	/* Whoever has made one of their own had not found this one. */
	r = nfs_lookup(c, &place->parent, place->base, &handle, NULL);
	if (r == 0)
		return is_finished(t, err);
	if (r == -ENOENT)
		r = store_folder(c, STORE_TRASH, true, &trash, err);
	if (r == 0)
		r = nfs_rename(c, trash, trashed, &place->parent, place->base);
	return r < 0 ? failed(c, r, t, err) : 1;
}

static int was_new(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	log_warn("A directory that was made anew while its deletion waited is put back",
		 LOG_STR("directory", t->dir), LOG_STR("server", c->export.server),
		 LOG_STR("share", c->export.share));
	return is_finished(t, err);
}

int tombstone_remove_directory(struct nfs_client *c, const struct tombstone *t, const char *path,
			       const char *trash_key, tombstone_users_fn users, bool *ret_trashed,
			       struct error *err)
{
	char trashed[NFS_NAME_MAX + 1];
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	*ret_trashed = false;
	r = find_directory(c, t, path, &place, &handle, &attr, err);
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = directory_remove_known(c, &place, &handle, trash_key, trashed, err);
	if (r != 0)
		return r > 0 ? was_new(c, t, err) : r;
	r = t->no_room ? 1 : is_set(c, t, err);
	if (r == 0)
		r = put_back(c, t, &place, &attr, trashed, users, err);
	else if (r > 0)
		r = 0;
	*ret_trashed = trashed[0] != '\0' && r <= 0;
	return r > 0 ? was_new(c, t, err) : r;
}

int tombstone_archive_directory(struct nfs_client *c, const struct tombstone *t, const char *path,
				bool replace, bool *ret_trashed, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = find_directory(c, t, path, &place, &handle, &attr, err);
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = directory_archive(c, path, t->key, &handle, replace, ret_trashed, err);
	return r > 0 ? was_new(c, t, err) : r;
}

/* -------- the end -------- */

/*
 * A record that is there again is a new one, whose creation sees the tombstone and waits; or an old one, which
 * a change has renamed into its place just before its draft was removed. Only the latter was ever changed.
 */
static int has_come_back(struct nfs_client *c, struct tombstone *t,
			 const struct nfs_handle *records, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r;

	if (!can_have_record(t))
		return 0;
	r = record_read(c, records, t->key, &rec, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0 || !record_was_replaced(&rec))
		return r;
	/* On a share that folds case it may be that of another volume. */
	return t->kind != BUSY_VOLUME_GONE || owner_check_record(c, t->key, &rec, NULL) <= 0;
}

static int remove_record(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	const struct nfs_handle *records;
	int r;

	if (!can_have_record(t))
		return 0;
	r = folder_of(c, t, false, &records, err);
	if (r == 0)
		r = record_forget_draft(c, records, t->key, NULL, err);
	if (r == 0)
		r = record_remove(c, records, t->key, &t->record, err);
	return r == -ENOENT ? 0 : r;
}

int tombstone_finish(struct nfs_client *c, struct tombstone *t, struct error *err)
{
	const struct nfs_handle *records, *busy;
	int r;

	if (t->no_room)
		return remove_record(c, t, err);
	if (t->name[0] == '\0')
		return 0;
	r = store_folder(c, STORE_BUSY, false, &busy, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = folder_of(c, t, true, &records, err);
	if (r == 0)
		r = has_come_back(c, t, records, err);
	if (r != 0)
		return r;
	return record_remove_buried(c, records, t->key, busy, t->name, &t->record, err);
}

void tombstone_restore(struct nfs_client *c, struct tombstone *t)
{
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *records, *busy;

	if (t->name[0] == '\0' || t->record.n == 0 || c->broken)
		return;
	if (store_folder(c, STORE_BUSY, false, &busy, &ignored) < 0 ||
	    folder_of(c, t, true, &records, &ignored) < 0)
		return;
	if (tombstone_is_new(t))
		(void)nfs_remove(c, busy, t->name);
	else
		(void)nfs_rename(c, busy, t->name, records, t->key);
}
