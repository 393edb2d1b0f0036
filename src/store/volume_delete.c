/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* DeleteVolume, on the share. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/staging.h"
#include "store/tombstone.h"
#include "store/users.h"
#include "store/volume.h"
#include "store/volume_parts.h"

/* Of a tombstone there is no record under the key: one that is there is a new one. */
static int is_used_by_others(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	const struct owner_question q = { .volume = t->key, .scope = OWNER_ALL };
	struct owner owner;

	return owner_find(c, t->dir, &q, &owner, err);
}

/*
 * Whether the path of a volume that is deleted is used by now: 1, 0 or a negative errno. A new volume of the
 * same key makes a directory of its own, when the old one has gone; another one takes what it finds.
 */
int volume_is_used_again(struct nfs_client *c, const struct tombstone *t, bool was_empty,
			 struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *folder;
	int r = -ENOENT;

	if (was_empty && volume_key_can_have_record(t->key))
		r = store_folder(c, STORE_VOLUMES, false, &folder, err);
	if (r == 0)
		r = record_read(c, folder, t->key, &rec, err);
	if (r == 0)
		return 1;
	return r == -ENOENT ? is_used_by_others(c, t, err) : r;
}

/* In the call, a retry has to go on with what a call before it has put into the trash. */
static int delete_and_purge(struct nfs_client *c, const struct tombstone *t, bool purge_now,
			    bool *ret_trashed, struct error *err)
{
	const char *slash = strrchr(t->dir, '/');
	const char *base = slash != NULL ? slash + 1 : t->dir;
	int r;

	r = tombstone_remove_directory(c, t, t->dir, base, volume_is_used_again, ret_trashed, err);
	if (r < 0 || !purge_now)
		return r;
	*ret_trashed = false;
	return directory_purge(c, base, err);
}

/* The directory of a volume that is to go; it stays where others have it too. */
static int dispose(struct nfs_client *c, const struct tombstone *t,
		   const struct volume_disposal *how, bool *ret_trashed, struct error *err)
{
	const char *key = t->key, *dir = t->dir;
	const struct record *rec = &t->record;
	const struct owner_question q = {
		.volume = key,
		.has_record = rec->n > 0 && record_get(rec, TOMBSTONE_KEY_NEW) == NULL,
		.scope = OWNER_ALL,
		.finished = true,
		.exclusive = owner_has_decided(key, rec),
	};
	struct owner owner;
	int r;

	if (how->policy == ON_DELETE_RETAIN)
		return 0;
	r = owner_find(c, dir, &q, &owner, err);
	if (r < 0)
		return r;
	if (r > 0) {
		log_info("The directory of a deleted volume stays, it is not this volume's alone",
			 LOG_STR("volume", key), LOG_STR("directory", dir), LOG_STR("of", owner.key));
		return 0;
	}
	if (how->policy == ON_DELETE_ARCHIVE)
		r = tombstone_archive_directory(c, t, dir, how->replace_archive, ret_trashed, err);
	else
		r = delete_and_purge(c, t, how->purge_now, ret_trashed, err);
	return r < 0 ? r : directory_remove_parents(c, dir, err);
}

/*
 * What is left of a volume whose creation was not over: what was built for it. Of what was not, only a
 * directory that is empty goes, since a crash may have left that, and only where none had to be there.
 */
static int dispose_unfinished(struct nfs_client *c, const struct tombstone *t,
			      const struct volume_disposal *how, bool *ret_trashed, struct error *err)
{
	const char *key = t->key, *dir = t->dir;
	const struct record *rec = &t->record;
	const struct owner_question q = { .volume = key, .has_record = true, .scope = OWNER_ALL };
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct owner owner;
	int r;

	if (volume_is_built(rec)) {
		r = staging_is_in_place(c, rec, dir, err);
		if (r > 0)
			return dispose(c, t, how, ret_trashed, err);
		return r < 0 ? r : directory_remove_parents(c, dir, err);
	}
	r = volume_existing_of(rec) == EXISTING_REQUIRE ? 1 : owner_find(c, dir, &q, &owner, err);
	if (r == 0)
		r = directory_find(c, dir, &place, &handle, &attr, err);
	if (r == 0)
		r = tombstone_check(c, t, err);
	if (r == 0) {
		r = nfs_rmdir(c, &place.parent, place.base);
		if (r == -ENOTEMPTY || r == -EEXIST)
			return 0; /* it was somebody's before */
		if (r < 0 && r != -ENOENT)
			return nfs_error_set(err, c, r, "removing directory '%s'", dir);
	}
	return r < 0 && r != -ENOENT ? r : directory_remove_parents(c, dir, err);
}

/*
 * A volume without a record, under whose key there is one nevertheless: on a share that folds case it is
 * that of another volume, and stays, with its notes.
 */
static int is_anothers_record(struct nfs_client *c, const struct nfs_handle *folder,
			      const char *key, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r = record_read(c, folder, key, &rec, err);

	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

/* Takes the notes of use back, but for those that a share which folds case has under another's key. */
static int forget_usage(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	const struct nfs_handle *folder;
	int r = 0;

	if (record_get(&t->record, TOMBSTONE_KEY_NEW) != NULL && volume_key_can_have_record(t->key)) {
		r = store_folder(c, STORE_VOLUMES, false, &folder, err);
		if (r == 0)
			r = is_anothers_record(c, folder, t->key, err);
	}
	if (r > 0)
		return 0;
	return r < 0 && r != -ENOENT ? r : users_remove(c, t->key, t->dir, err);
}

/*
 * What there is to do once the tombstone is set. Returns 1 where the record came back, or as
 * volume_delete(). What is being built for the record goes first: it cannot get into its place then.
 */
int volume_carry_out(struct nfs_client *c, struct tombstone *t, const struct volume_disposal *how,
		     bool *ret_trashed, struct error *err)
{
	const struct record *rec = &t->record;
	bool trashed = false;
	int r = 0;

	if (volume_is_built(rec))
		r = staging_discard(c, t->key, ret_trashed, err);
	if (r == 0 && owner_is_open(rec))
		r = dispose_unfinished(c, t, how, &trashed, err);
	else if (r == 0)
		r = dispose(c, t, how, &trashed, err);
	*ret_trashed = *ret_trashed || trashed;
	if (r == 0 && strcmp(t->key, t->dir) != 0)
		r = tombstone_check(c, t, err);
	if (r == 0)
		r = forget_usage(c, t, err);
	return r < 0 ? r : tombstone_finish(c, t, err);
}

/* A tombstone that is looked for, by the key of its volume. */
struct search {
	const char *key;
	struct tombstone *t;
};

static bool is_of_key(const struct tombstone *t, const char *key, const char *dir)
{
	const char *text = record_get(&t->record, VOLUME_KEY_ID);
	cleanup_volume_id struct volume_id id = { NULL };

	if (text == NULL)
		return busy_is_of(t->name, dir);
	return volume_id_parse(&id, text) == 0 && strcmp(volume_id_key(&id), key) == 0;
}

static int try_tombstone(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
			 struct error *err)
{
	struct search *s = data;
	struct error why = { .code = ERROR_OK };
	int r;

	if (kind != BUSY_VOLUME_GONE)
		return 0;
	r = tombstone_adopt(c, s->t, name, &why);
	if (r == 0 && is_of_key(s->t, s->key, s->t->dir))
		return 1;
	s->t->name[0] = '\0';
	record_done(&s->t->record);
	/* Of another volume the parts are not found under this key. */
	if (r == 0 || r == -ENOENT || why.code == ERROR_FAILED_PRECONDITION)
		return 0;
	*err = why;
	return r;
}

/* A change may have made a record since: the next attempt deletes that. */
static int check_no_record(struct nfs_client *c, struct tombstone *t, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *folder;
	int r;

	if (!volume_key_can_have_record(t->key))
		return 0;
	r = store_folder(c, STORE_VOLUMES, false, &folder, err);
	if (r == 0)
		r = record_read(c, folder, t->key, &rec, err);
	if (r == 0)
		r = owner_check_record(c, t->key, &rec, err) == 0 ? 1 : 0;
	if (r <= 0)
		return r == -ENOENT ? 0 : r;
	r = tombstone_finish(c, t, err);
	if (r < 0)
		return r;
	(void)error_set(err, ERROR_ABORTED, "the volume is being changed; try again");
	return -EAGAIN;
}

/* What csi-driver-nfs made has no record, but has to be seen on its way out as well. */
static int bury_foreign(struct nfs_client *c, struct tombstone *t, const struct volume_id *id,
			enum volume_on_delete policy, struct error *err)
{
	cleanup_free char *text = volume_id_format(id);
	cleanup_record struct record rec = { .n = 0 };
	int r;

	r = directory_is_gone(c, t->dir, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (text == NULL || record_set(&rec, VOLUME_KEY_ID, text) < 0 ||
	    record_set(&rec, VOLUME_KEY_DIR, t->dir) < 0 ||
	    record_set(&rec, VOLUME_KEY_ON_DELETE, on_delete_name(policy)) < 0)
		return error_oom(err);
	r = tombstone_set_new(c, t, &rec, err);
	return r < 0 ? r : check_no_record(c, t, err);
}

/* Sets the tombstone, or finds that of a deletion that was cut short, or that another replica is at. */
static int bury(struct nfs_client *c, struct tombstone *t, const struct volume_id *id,
		const struct record *rec, enum volume_on_delete policy, struct error *err)
{
	struct search s = { .key = t->key, .t = t };
	int r;

	if (rec->n > 0) {
		r = tombstone_set(c, t, err);
		if (r != -ENOENT)
			return r;
		t->name[0] = '\0';
	}
	r = busy_each(c, NULL, try_tombstone, &s, err);
	if (r < 0)
		return r;
	if (r > 0 || rec->n == 0)
		return r > 0 ? 0 : bury_foreign(c, t, id, policy, err);
	(void)error_set(err, ERROR_ABORTED, "the volume is being deleted; try again");
	return -EAGAIN;
}

/* By what the tombstone says, which is newer than what was read before it was set. */
static int carry_out_buried(struct nfs_client *c, struct tombstone *t, const struct volume_id *id,
			    const struct volume_disposal *how, bool *ret_trashed, struct error *err)
{
	struct volume_disposal own = *how;
	int r = 0;

	if (t->record.n > 0)
		r = volume_dir_of(c, &t->record, t->key, &t->dir, err);
	own.policy = volume_policy_of(&t->record, id, how->policy);
	return r < 0 ? r : volume_carry_out(c, t, &own, ret_trashed, err);
}

int volume_delete(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		  const struct volume_disposal *how, bool *ret_trashed, struct error *err)
{
	cleanup_tombstone struct tombstone t = { .kind = BUSY_VOLUME_GONE, .key = volume_id_key(id) };
	const struct nfs_handle *folder;
	const char *dir = NULL;
	int r;

	*ret_trashed = false;
	r = volume_directory(c, id, rec, &dir, err);
	if (r == 0)
		r = busy_check_unused(c, dir, err);
	t.dir = dir;
	if (r == 0)
		r = bury(c, &t, id, rec, volume_policy_of(rec, id, how->policy), err);
	if (r == 0)
		r = carry_out_buried(c, &t, id, how, ret_trashed, err);
	if (r < 0 && r != -ESTALE)
		tombstone_restore(c, &t);
	if (r > 0) {
		(void)error_set(err, ERROR_ABORTED, "the volume is being changed; try again");
		return -EAGAIN; /* the next attempt finds the record, or the tombstone */
	}
	if (r < 0 || rec->n > 0 || !volume_key_can_have_record(t.key))
		return r;
	/* Of versions before this one. */
	r = store_folder(c, STORE_VOLUMES, false, &folder, err);
	if (r == 0)
		r = is_anothers_record(c, folder, t.key, err);
	if (r > 0)
		return 0;
	if (r == 0)
		r = record_forget_draft(c, folder, t.key, NULL, err);
	if (r == 0)
		r = record_forget(c, folder, t.key, err);
	return r == -ENOENT ? 0 : r;
}
