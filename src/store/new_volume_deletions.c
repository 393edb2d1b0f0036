/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Deletions that a creation meets before it makes its directory, and while it does. */

#include "store/new_volume.h"

#include <errno.h>
#include <string.h>

#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/tombstone.h"
#include "store/volume_parts.h"

/* -------- deletions in the way -------- */

/* A pass over the tombstones that overlap with the directory. */
struct deletions_pass {
	const struct new_volume *nv;
	bool trashed; /* there is something to purge */
};

/*
 * Take over the tombstone. Its name holds only the directory, but reading a long record takes the
 * volume's key: with the wrong key, its parts are not found and the record looks damaged. Try our
 * key, and the directory (in dir) as the key. If neither fits, return ABORTED: only the volume's
 * own deletion knows the key.
 */
static int adopt_tombstone(const struct new_volume *nv, struct tombstone *t, const char *name,
			   char dir[RECORD_NAME_MAX + 1], struct error *err)
{
	struct error why = { .code = ERROR_OK };
	int r;

	if (busy_is_of(name, nv->key))
		t->key = nv->key;
	else
		t->key = busy_directory(name, dir) ? dir : nv->dir;
	r = tombstone_adopt(nv->c, t, name, &why);
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION && t->key != nv->key) {
		error_clear(&why);
		record_done(&t->record);
		t->key = nv->key;
		r = tombstone_adopt(nv->c, t, name, &why);
	}
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION)
		return tombstone_refuse(nv->dir, err);
	if (why.code != ERROR_OK)
		*err = why;
	return r;
}

static int finish_volume_deletion(struct nfs_client *c, const char *name, enum busy_kind kind,
				  void *data, struct error *err)
{
	cleanup_tombstone struct tombstone t = { .kind = kind };
	cleanup_volume_id struct volume_id id = { .server = NULL };
	struct deletions_pass *pass = data;
	const struct new_volume *nv = pass->nv;
	struct volume_disposal how = {
		.replace_archive = nv->filler != NULL && nv->filler->replace_archive,
	};
	char dir[RECORD_NAME_MAX + 1];
	bool trashed = false;
	struct volume v;
	int r;

	if (kind == BUSY_SNAPSHOT_GONE)
		return tombstone_refuse(nv->dir, err);
	if (kind != BUSY_VOLUME_GONE)
		return 0;
	r = adopt_tombstone(nv, &t, name, dir, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	v = volume_of(&t.record);
	/* With a damaged id or no policy, only the volume's own deletion can go on. */
	if (v.id != NULL ? volume_id_parse(&id, v.id) < 0 : v.on_delete == NULL)
		return tombstone_refuse(nv->dir, err);
	if (v.on_delete == NULL && volume_is_foreign(&t.record))
		return tombstone_refuse(nv->dir, err);
	if (v.id != NULL)
		t.key = volume_id_key(&id);
	if (strcmp(t.key, nv->key) == 0) {
		r = tombstone_forget_earlier(c, &t, nv->rec, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	/* Rule 7: a live replica may still remove the directory after we have found it. */
	if (strcmp(t.key, nv->key) != 0 && !busy_is_abandoned(c, name))
		return tombstone_refuse(nv->dir, err);
	how.policy = volume_buried_policy(&t.record, &id, ON_DELETE_RETAIN);
	r = volume_recorded_directory(c, &v, t.key, &t.dir, err);
	/* Rule 1: the deletion may have died before it looked for copies. */
	if (r == 0)
		r = busy_check_unread(c, t.dir, err);
	if (r == 0)
		r = volume_carry_out(c, &t, &how, &trashed, err);
	pass->trashed = pass->trashed || trashed;
	return r <= 0 ? r : tombstone_refuse(nv->dir, err);
}

int new_volume_finish_deletions(const struct new_volume *nv, struct error *err)
{
	struct deletions_pass pass = { .nv = nv };
	int r = busy_each_in_way(nv->c, nv->dir, finish_volume_deletion, &pass, err);

	if (pass.trashed && nv->filler != NULL)
		*nv->filler->ret_trashed = true;
	return r;
}

/* -------- deletions during the creation -------- */

/*
 * Whether something is in the directory that this call has made: data of a pod. Another replica has
 * finished the volume then, and its deletion has retained the directory. 1, 0 or a negative errno.
 */
static int directory_may_be_retained(const struct new_volume *nv, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = directory_find(nv->c, nv->dir, &place, &handle, &attr, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_has_entry(nv->c, &handle);
	if (r == -EACCES || r == -EPERM)
		return 1;
	if (r == -ESTALE || r == -ENOENT) /* it has just been removed */
		return 0;
	return r < 0 ? nfs_error_set(err, nv->c, r, "listing '%s'", nv->dir) : r;
}

/* Rule 2: remove the directory of a volume that was deleted while it was made. */
static int take_back_directory(const struct new_volume *nv, struct error *err)
{
	cleanup_tombstone struct tombstone t = {
		.kind = BUSY_VOLUME_GONE,
		.key = nv->key,
		.dir = nv->dir,
	};
	cleanup_record struct record rec = { .n = 0 };
	struct nfs_client *c = nv->c;
	bool trashed = false;
	int r;

	if (volume_describe_deleted(&rec, volume_of(nv->rec).id, nv->dir, ON_DELETE_DELETE) < 0)
		return error_oom(err);
	/* Before the tombstone, too: who finishes it goes by the policy that it names. */
	r = directory_may_be_retained(nv, err);
	if (r != 0)
		return r < 0 ? r : 0;
	r = tombstone_set_new(c, &t, &rec, err);
	if (r < 0)
		return r;
	r = volume_is_used_again(c, &t, true, err);
	if (r == 0)
		r = directory_may_be_retained(nv, err);
	if (r < 0)
		return r;
	if (r > 0)
		return tombstone_finish(c, &t, err);
	r = tombstone_remove_directory(c, &t, volume_is_used_again, &trashed, err);
	if (trashed && nv->filler != NULL)
		*nv->filler->ret_trashed = true;
	if (r < 0)
		return r;
	r = directory_remove_parents(c, nv->dir, err);
	if (r < 0)
		return r;
	r = volume_remove_notes(c, nv->key, nv->dir, err);
	if (r < 0)
		return r;
	return tombstone_finish(c, &t, err);
}

/* Whether the record is there with all its parts: 1, 0 or a negative errno. */
static int record_remains(const struct new_volume *nv, struct error *err)
{
	cleanup_record struct record whole = { .n = 0 };
	int r = record_is_there(nv->c, nv->folder, nv->key, err);

	if (r <= 0 || nv->rec->parts == 0)
		return r;
	r = record_read(nv->c, nv->folder, nv->key, &whole, err);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : 1;
}

/*
 * Check the directory of a volume whose record remains. By rule 7, a directory that this call made
 * is safe from deletions, except for a volume with a claim.
 */
static int check_directory_remains(const struct new_volume *nv, struct error *err)
{
	int r;

	if (nv->made && volume_of(nv->rec).claim == CLAIM_NONE)
		return 0;
	r = busy_check_not_deleted(nv->c, nv->dir, err);
	if (r == 0)
		r = directory_is_gone(nv->c, nv->dir, err);
	return r > 0 ? tombstone_refuse(nv->dir, err) : r;
}

int new_volume_check(const struct new_volume *nv, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	int r = record_remains(nv, err);

	/* An earlier deletion may have removed the parts of the record that this call wrote. */
	if (r < 0 && err != NULL && err->code == ERROR_FAILED_PRECONDITION)
		(void)record_remove(nv->c, nv->folder, nv->key, nv->rec, &ignored);
	if (r == 0 && nv->made) {
		r = take_back_directory(nv, err);
		if (r < 0)
			return r;
	}
	if (r == 0)
		return error_set(err, ERROR_ABORTED,
				 "another controller has deleted the volume while it was made; try again");
	if (r > 0)
		r = check_directory_remains(nv, err);
	/* The volume is made. The next attempt checks again. */
	if (r < 0 && r != -ESTALE && err != NULL && error_is_final(err->code))
		err->code = ERROR_ABORTED;
	return r;
}
