/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* CreateVolume, on the share. */

#include <errno.h>
#include <string.h>

#include "store/busy.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/new_volume.h"
#include "store/owner.h"
#include "store/staging.h"
#include "store/users.h"
#include "store/volume.h"
#include "store/volume_parts.h"

/* -------- after a failure -------- */

/* Whether a repeated call, or one of another replica, may succeed with the same request. */
static bool is_transient(const struct error *err)
{
	return err->sys != 0 && err->code != ERROR_PERMISSION_DENIED &&
	       err->code != ERROR_FAILED_PRECONDITION && err->code != ERROR_INVALID_ARGUMENT;
}

/*
 * Whether nobody has made the directory: 1, 0 or a negative errno. An empty one that this call has
 * found, and has not replaced, is as it was.
 */
static int directory_is_not_made(const struct new_volume *nv, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r = directory_look_up(nv->c, nv->dir, &place, &handle, &attr, err);

	if (r < 0)
		return r == -ENOENT ? 1 : r;
	return nfs_handle_is_equal(&handle, &nv->found);
}

/* Rule 3: if another replica has made the directory in the meantime, put the record back. */
static int check_untouched(const struct new_volume *nv, struct error *err)
{
	int r = directory_is_not_made(nv, err);

	if (r != 0)
		return r < 0 ? r : 0;
	r = record_create(nv->c, nv->folder, nv->key, nv->rec, err);
	return r == 0 ? -EAGAIN : r;
}

/* Rule 3: remove the record and everything that was noted for the volume. */
static int take_back_record(const struct new_volume *nv, bool transient, bool *ret_trashed,
			    struct error *err)
{
	const struct volume v = volume_of(nv->rec);
	struct nfs_client *c = nv->c;
	int r;

	/*
	 * Another replica may have finished the volume, or have removed the record itself. It does
	 * not know what this call has made and noted since. The record may come back: see
	 * remove_unfinished() in store/text.c. The next attempt removes it then.
	 */
	r = record_check_same(c, nv->folder, nv->key, nv->rec, err);
	if (r == -ENOENT) {
		r = directory_remove_parents(c, nv->dir, err);
		if (r == 0)
			r = volume_remove_notes(c, nv->key, nv->dir, err);
		return r < 0 ? r : -EAGAIN;
	}
	if (r < 0)
		return r;
	if (volume_is_built(&v)) {
		r = staging_discard(c, nv->key, ret_trashed, err);
		if (r < 0)
			return r;
	}
	r = directory_remove_parents(c, nv->dir, err);
	if (r < 0)
		return r;
	/* The creation replaces a record like this, so it may have left a draft. */
	if (v.source != NULL || v.claim != CLAIM_NONE) {
		r = record_forget_draft(c, nv->folder, nv->key, err);
		if (r < 0)
			return r;
	}
	r = record_remove(c, nv->folder, nv->key, nv->rec, err);
	if (r == 0 && transient)
		r = check_untouched(nv, err);
	/* Not before the record is gone for good: a finished volume needs its notes. */
	return r < 0 ? r : volume_remove_notes(c, nv->key, nv->dir, err);
}

/*
 * Whether the directory at the volume's path cannot be the volume's: nobody has made it, or it is a
 * snapshot's. A snapshot does not take a directory that a volume has (rule 1).
 */
static int directory_is_not_ours(const struct new_volume *nv, struct error *err)
{
	const struct owner_question q = {
		.volume = nv->key,
		.has_record = true,
		.scope = OWNER_SNAPSHOTS,
	};
	struct owner owner;
	int r = owner_find(nv->c, nv->dir, &q, &owner, err);

	return r != 0 ? r : directory_is_not_made(nv, err);
}

/*
 * Remove everything that was made for the volume. If that fails too, change the code to ABORTED, so
 * that the CO retries.
 */
static void undo_creation(const struct new_volume *nv, bool *ret_trashed, struct error *err)
{
	const struct volume v = volume_of(nv->rec);
	struct error second = { .code = ERROR_OK };
	bool may_be_ours;
	int r = 1;

	if (err == NULL || !error_is_final(err->code))
		return;
	/* An attempt of this or another replica may have made the directory that is there. */
	may_be_ours = !nv->begun || is_transient(err) || (!nv->created && err->sys != 0);
	if (may_be_ours)
		r = directory_is_not_ours(nv, &second);
	/* A volume that existed before this call keeps its record, even without a directory. */
	if (r <= 0) {
		if (err->sys != 0 || (r < 0 && !error_is_final(second.code)))
			err->code = ERROR_ABORTED;
		return;
	}
	/* The next attempt finds the directory in place, and finishes the volume. */
	if (volume_is_built(&v) && staging_is_in_place(nv->c, nv->rec, nv->dir, &second) != 0) {
		err->code = ERROR_ABORTED;
		return;
	}
	if (take_back_record(nv, is_transient(err), ret_trashed, &second) < 0)
		err->code = ERROR_ABORTED;
}

/* -------- policies of earlier volumes -------- */

/*
 * Whether deleted volumes may have left policy notes. Assume it for a volume without subDir: it
 * writes no notes of use, so it has not seen the folder with the policy notes.
 */
static bool may_have_policies(const struct new_volume *nv)
{
	const struct volume v = volume_of(nv->rec);

	return nv->noted || (strcmp(nv->key, nv->dir) == 0 && !nv->made && !volume_is_built(&v));
}

/*
 * Remove the policy notes if nobody else uses the directory: from now on the policy of the new
 * volume applies (doc/design.md, "users/: who uses a directory"). Call this only after creating the
 * record: a deletion may leave notes because this volume exists. Errors are ignored, since a note
 * that stays only retains data that could be deleted.
 */
static void drop_earlier_policies(const struct new_volume *nv)
{
	const struct owner_question q = {
		.volume = nv->key,
		.has_record = true,
		.scope = OWNER_VOLUMES,
		.count = OWNER_COUNT_NOTED,
		.policies = true,
	};
	struct error ignored = { .code = ERROR_OK };
	struct owner owner;
	int r;

	r = owner_find(nv->c, nv->dir, &q, &owner, &ignored);
	if (r != 0 || !owner.is_noted)
		return;
	r = busy_check_not_deleted(nv->c, nv->dir, &ignored);
	if (r == 0)
		(void)users_remove_policies(nv->c, nv->dir, &ignored);
}

/* -------- the call -------- */

/* Take the settings that the request does not name from the record, so that they do not differ. */
static int take_recorded_settings(struct new_volume *nv, const struct record *have)
{
	static const struct {
		unsigned int setting; /* enum volume_mutable */
		const char *key;
	} keys[] = {
		{ MUTABLE_MODE, VOLUME_KEY_MODE },
		{ MUTABLE_ON_DELETE, VOLUME_KEY_ON_DELETE },
	};
	const unsigned int defaults = nv->filler != NULL ? nv->filler->defaults : 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *value = record_get(have, keys[i].key);

		if ((defaults & keys[i].setting) == 0)
			continue;
		if (value == NULL)
			record_unset(nv->rec, keys[i].key);
		else if (record_set(nv->rec, keys[i].key, value) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Read the record that has the name into nv->rec, if it is of the same volume. */
static int adopt_volume_record(struct new_volume *nv, const struct volume_capacity *capacity,
			       struct error *err)
{
	cleanup_record struct record have = { .n = 0 };
	const char *dir = NULL;
	struct volume v;
	int r;

	r = record_read(nv->c, nv->folder, nv->key, &have, err);
	if (r == -ENOENT)
		return error_set(err, ERROR_ABORTED, "the volume is being deleted; try again");
	if (r == 0)
		r = volume_check_record(nv->c, nv->key, &have, err);
	if (r < 0)
		return r;
	/* A damaged record is refused here, instead of as another volume's. */
	v = volume_of(&have);
	r = volume_recorded_directory(nv->c, &v, nv->key, &dir, err);
	if (r < 0)
		return r;
	if (!volume_is_foreign(&have)) {
		if (take_recorded_settings(nv, &have) < 0)
			return error_oom(err);
		r = volume_check_same(&have, nv->rec, capacity, err);
	} else {
		/*
		 * The record has a change of a volume of csi-driver-nfs. Perhaps another replica
		 * deleted our volume and then took the directory that we had made for such a
		 * volume. But if it is one, its changes exist in this record only: replace the
		 * record only after the volume has been made.
		 */
		nv->is_foreign = true;
		r = volume_complete_foreign(&have, nv->rec, capacity, err);
	}
	if (r < 0)
		return r;
	record_done(nv->rec);
	record_move(nv->rec, &have);
	return 0;
}

static int make_and_check(struct new_volume *nv, struct error *err)
{
	const struct nfs_handle *unused;
	struct error trash = { .code = ERROR_OK };
	int r;

	/* Make the folders that the deletion needs now, since the share may be full by then. */
	r = store_folder(nv->c, STORE_BUSY, true, &unused, err);
	if (r < 0)
		return r;
	r = store_folder(nv->c, STORE_TRASH, true, &unused, &trash);
	/* Anything else of that name hinders only the deletion. */
	if (r < 0 && r != -ENOTDIR) {
		if (err != NULL)
			*err = trash;
		return r;
	}
	r = users_add(nv->c, nv->key, nv->dir, &nv->noted, err);
	if (r < 0)
		return r;
	r = new_volume_finish_deletions(nv, err);
	if (r < 0)
		return r;
	r = new_volume_make(nv, err);
	if (r < 0)
		return r;
	if (nv->is_foreign) {
		r = record_replace(nv->c, nv->folder, nv->key, nv->rec, err);
		if (r < 0)
			return r;
	}
	r = new_volume_check(nv, err);
	if (r < 0)
		return r;
	if (nv->created && may_have_policies(nv))
		drop_earlier_policies(nv);
	return 0;
}

/* Whether an earlier round of this call has seen the record. */
static bool had_record(const struct new_volume *nv)
{
	return nv->filler != NULL && nv->filler->had_record != NULL && *nv->filler->had_record;
}

static void remember_record(const struct new_volume *nv, bool has_record)
{
	if (nv->filler != NULL && nv->filler->had_record != NULL)
		*nv->filler->had_record = has_record;
}

int volume_create(struct nfs_client *c, const char *key, struct record *rec,
		  const struct volume_capacity *capacity, const struct volume_filler *filler,
		  struct error *err)
{
	struct new_volume nv = { .c = c, .key = key, .rec = rec, .filler = filler };
	bool trashed = false, was_broken;
	struct volume v;
	int r;

	if (volume_set_version(rec, c->version) < 0 || record_set_nonce(rec) < 0)
		return error_oom(err);
	r = store_folder(c, STORE_VOLUMES, true, &nv.folder, err);
	if (r < 0)
		return r;
	/* What was deleted since is not made again: perhaps nobody waits for this call any more. */
	r = had_record(&nv) ? -EEXIST : record_create(c, nv.folder, key, rec, err);
	nv.created = r == 0;
	if (r == 0 || r == -EEXIST)
		remember_record(&nv, true);
	if (r == -EEXIST)
		r = adopt_volume_record(&nv, capacity, err);
	if (r < 0)
		return r;
	v = volume_of(rec);
	r = volume_recorded_directory(c, &v, key, &nv.dir, err);
	if (r < 0)
		return r;
	nv.begun = nv.created || (volume_is_unfinished(&v) && !nv.is_foreign);
	/*
	 * A volume that is ready has its directory. A volume with neither a claim nor a source is
	 * never recorded as ready, so its directory is checked each time.
	 */
	nv.exclusive = volume_is_exclusive(&v, key) && !v.staging.ready;
	r = make_and_check(&nv, err);
	if (r == 0 || r == -ESTALE)
		return r;
	was_broken = c->broken;
	if (err == NULL || error_is_final(err->code))
		remember_record(&nv, false); /* the undo may take it back */
	undo_creation(&nv, filler != NULL ? filler->ret_trashed : &trashed, err);
	/*
	 * Without a reply, the record of a volume that another replica has finished may be gone.
	 * The session repeats the call on a new connection, which makes it again.
	 */
	return c->broken && !was_broken ? -ECONNABORTED : r;
}
