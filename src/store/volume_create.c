/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* CreateVolume, on the share. */

#include <errno.h>
#include <string.h>

#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/staging.h"
#include "store/tombstone.h"
#include "store/users.h"
#include "store/volume.h"
#include "store/volume_parts.h"

/* A volume that is being created. */
struct new_volume {
	struct nfs_client *c;
	const struct nfs_handle *folder; /* of the record */
	const char *key;
	const char *dir; /* borrowed from the record */
	struct record *rec;
	const struct volume_filler *filler; /* NULL: begins empty */
	bool created; /* the record, by this call */
	bool is_foreign; /* volume_is_foreign() for the record on the share */
	bool begun; /* the volume was not finished when this call began */
	bool exclusive; /* the directory must be this volume's alone; not decided yet */
	bool made; /* the directory, by this call */
	bool noted; /* before this call, others left notes about exactly this directory */
};

/* -------- after a failure -------- */

/* Whether the next attempt, or one of another replica, may succeed with the same request. */
static bool is_transient(const struct error *err)
{
	return err->sys != 0 && err->code != ERROR_PERMISSION_DENIED &&
	       err->code != ERROR_FAILED_PRECONDITION && err->code != ERROR_INVALID_ARGUMENT;
}

/*
 * Check that nobody has made the directory meanwhile. If somebody has, put the record back.
 *
 * Don't set a tombstone: a replica that met it would finish the deletion, of a directory that may
 * be a stranger's. A replica that deletes the volume meanwhile has renamed the record, and finds no
 * directory. A replica that creates it has found the record; both replicas write before they read.
 * If it makes the directory after we look, it sees that there is no record (check_still_there());
 * if before, we see the directory and put the record back. The check is needed after a transient
 * error only: any other error hits both replicas.
 */
static int check_untouched(const struct new_volume *nv, struct error *err)
{
	bool noted;
	int r = directory_is_gone(nv->c, nv->dir, err);

	if (r != 0)
		return r < 0 ? r : 0;
	r = users_add(nv->c, nv->key, nv->dir, &noted, err);
	if (r == 0)
		r = record_create(nv->c, nv->folder, nv->key, nv->rec, err);
	return r == 0 ? -EAGAIN : r;
}

static int take_back_record(const struct new_volume *nv, bool transient, bool *ret_trashed,
			    struct error *err)
{
	const struct volume v = volume_of(nv->rec);
	struct nfs_client *c = nv->c;
	int r;

	/* Another replica may have finished the volume, or taken the record back itself. */
	r = record_check_same(c, nv->folder, nv->key, nv->rec, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (volume_is_built(&v))
		r = staging_discard(c, nv->key, ret_trashed, err);
	if (r == 0)
		r = directory_remove_parents(c, nv->dir, err);
	if (r == 0)
		r = users_remove(c, nv->key, nv->dir, err);
	/* Such a record is replaced during the creation. */
	if (r == 0 && (v.source != NULL || v.claim != CLAIM_NONE))
		r = record_forget_draft(c, nv->folder, nv->key, err);
	if (r == 0)
		r = record_remove(c, nv->folder, nv->key, nv->rec, err);
	if (r == 0 && transient)
		r = check_untouched(nv, err);
	return r;
}

/*
 * Remove what was made for the volume. If that fails too, change the code to ABORTED, so that the
 * CO retries.
 */
static void undo_creation(const struct new_volume *nv, bool *ret_trashed, struct error *err)
{
	const struct volume v = volume_of(nv->rec);
	struct error second = { .code = ERROR_OK };
	bool may_be_ours;
	int r = 1;

	if (err == NULL || !error_is_final(err->code))
		return;
	/* Did an attempt of this or another replica make the directory that is there? */
	may_be_ours = !nv->begun || is_transient(err) || (!nv->created && err->sys != 0);
	if (may_be_ours)
		r = directory_is_gone(nv->c, nv->dir, &second);
	/* A volume that was there before keeps its record, whatever has become of its directory. */
	if (r <= 0) {
		if (err->sys != 0)
			err->code = ERROR_ABORTED;
		return;
	}
	/* The volume is almost finished: the next attempt finds its directory in place. */
	if (volume_is_built(&v) && staging_is_in_place(nv->c, nv->rec, nv->dir, &second) != 0) {
		err->code = ERROR_ABORTED;
		return;
	}
	if (take_back_record(nv, is_transient(err), ret_trashed, &second) < 0)
		err->code = ERROR_ABORTED;
}

/* -------- the directory -------- */

/*
 * Refuse a directory that others have. Our record and notes are already on the share: of two
 * creations at once, at least the later one sees the other.
 */
static int check_others(const struct new_volume *nv, struct error *err)
{
	const bool nested = strchr(nv->dir, '/') != NULL;
	const bool plain = strcmp(nv->key, nv->dir) == 0;
	struct owner_question q = { .volume = nv->key, .has_record = true };
	struct owner owner;
	int r;

	/* Making the directory finds a snapshot that has the very same one. */
	q.scope = nested ? OWNER_SNAPSHOTS : 0;
	if (nv->exclusive)
		q.scope |= plain ? OWNER_AT | OWNER_IN : OWNER_VOLUMES;
	if (q.scope == 0)
		return 0;
	r = owner_find(nv->c, nv->dir, &q, &owner, err);
	return r <= 0 ? r : owner_refuse(nv->c, nv->dir, &owner, nv->key, err);
}

/* Give the directory to the volume for good, even if the rest of the call fails. */
static int decide_directory(const struct new_volume *nv, struct error *err)
{
	if (staging_set_ready(nv->rec) < 0)
		return error_oom(err);
	return record_replace(nv->c, nv->folder, nv->key, nv->rec, err);
}

/*
 * Make or find the directory, set its mode and owner, and decide on it if that is not done. own: an
 * existing directory was made for this volume.
 */
static int make_directory(struct new_volume *nv, enum volume_existing existing, bool own,
			  struct error *err)
{
	const struct volume v = volume_of(nv->rec);
	const bool undecided = volume_is_unfinished(&v);
	/* A volume named by default may be finished; then the data in the directory is its own. */
	const bool fresh = nv->exclusive && (nv->created || undecided);
	const struct owner_question others = {
		.volume = nv->key,
		.has_record = true,
		.scope = own ? 0 : OWNER_SNAPSHOTS | (fresh ? OWNER_ARCHIVE : 0),
	};
	/* Mode and owner of a directory are those of every volume that has it or lies in it. */
	const struct owner_question users = {
		.volume = nv->key,
		.has_record = true,
		.scope = own ? 0 : OWNER_AT | OWNER_AROUND,
		.count = OWNER_COUNT_DIFFERING,
		.settings_of = &v,
	};
	const struct directory_wish wish = {
		.mode = v.mode,
		.owner = v.owner,
		.existing = existing,
		.others = &others,
		.users = &users,
	};
	bool made;
	int r;

	r = directory_make(nv->c, nv->dir, &wish, &made, err);
	if (r < 0)
		return r;
	nv->made = nv->made || made;
	if (!undecided)
		return 0;
	r = decide_directory(nv, err);
	if (r < 0 && made)
		directory_unmake(nv->c, nv->dir, &wish, err);
	return r;
}

static int directory_is_moving(const struct new_volume *nv, struct error *err)
{
	return error_set(err, ERROR_ABORTED,
			 "another controller is at work on directory '%s'; try again", nv->dir);
}

/*
 * Check that a finished volume still has its directory. If an interrupted deletion or somebody has
 * removed it, remove the record, so that the next attempt makes the contents again.
 */
static int check_finished(const struct new_volume *nv, struct error *err)
{
	int r = directory_is_gone(nv->c, nv->dir, err);

	if (r <= 0)
		return r;
	r = directory_may_come_back(nv->c, nv->dir, err);
	if (r > 0)
		return directory_is_moving(nv, err);
	if (r == 0)
		r = directory_is_gone(nv->c, nv->dir, err);
	if (r <= 0)
		return r;
	r = record_remove(nv->c, nv->folder, nv->key, nv->rec, err);
	if (r < 0)
		return r;
	return error_set(err, ERROR_ABORTED,
			 "the directory of the volume is gone; try again to make it anew");
}

/*
 * Check existingDirectory=require. The contents replace the directory, so it need not exist any
 * more once they are built.
 */
static int check_required(const struct new_volume *nv, const struct volume *v, struct error *err)
{
	int r;

	if (v->existing != EXISTING_REQUIRE || v->staging.built != NULL)
		return 0;
	r = directory_is_gone(nv->c, nv->dir, err);
	if (r <= 0)
		return r;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "directory '%s' on %s:%s does not exist, and existingDirectory is 'require'",
			 nv->dir, nv->c->export.server, nv->c->export.share);
}

struct filling {
	const struct volume_filler *filler;
	uint32_t mode; /* 0: keep that of the contents */
};

/*
 * Fill the directory and set its mode. With a requested mode, it does not get the special bits of
 * the source. Set the mode here: once the directory is in place, a user may have set such bits.
 */
static int fill_with_mode(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	const struct filling *f = data;
	const struct nfs_handle *work;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	r = f->filler->fill(c, name, f->filler->data, err);
	if (r < 0 || f->mode == 0)
		return r;
	r = store_folder(c, STORE_WORK, false, &work, err);
	if (r < 0)
		return r;
	r = nfs_lookup(c, work, name, &handle, &attr);
	if (r == 0 && !(attr.has_mode && attr.mode == f->mode))
		r = nfs_setmode(c, &handle, f->mode);
	/* Another attempt may have taken the work away; putting it into place reports that. */
	if (r == 0 || r == -ENOENT)
		return 0;
	return nfs_error_set(err, c, r, "setting the mode of '%s'", name);
}

/*
 * Set mode and owner of what was built. Never make the directory here: a paused deletion may have
 * moved it for a moment, and an empty one would be taken for it.
 */
static int set_up_contents(struct new_volume *nv, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	int r = make_directory(nv, EXISTING_REQUIRE, true, &why);

	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION &&
	    directory_is_gone(nv->c, nv->dir, NULL) > 0)
		return directory_is_moving(nv, err);
	if (err != NULL)
		*err = why;
	return r;
}

/*
 * Build a directory that has a source, or that must not exist yet, in .csi-nfs/work/. Set its owner
 * once it is in place.
 */
static int make_contents(struct new_volume *nv, const struct volume_filler *filler,
			 struct error *err)
{
	const struct volume v = volume_of(nv->rec);
	const bool refuses = v.existing == EXISTING_REFUSE;
	struct filling filling = { .filler = filler, .mode = v.mode };
	const struct owner_question others = {
		.volume = nv->key,
		.has_record = true,
		.scope = nv->exclusive ? OWNER_ALL : OWNER_AT | OWNER_IN | OWNER_SNAPSHOTS,
	};
	struct staging staging = {
		.records = nv->folder,
		.key = nv->key,
		.rec = nv->rec,
		.path = nv->dir,
		.work_key = nv->key,
		.replaces_empty = !refuses,
		.refusal = refuses ? "existingDirectory is 'refuse'"
				   : "is not empty or somebody else's",
		.others = &others,
		.fill = fill_with_mode,
		.data = &filling,
	};
	int r;

	if (v.staging.ready) {
		r = check_finished(nv, err);
		/* An earlier attempt may have ended before it set the mode. */
		return r < 0 ? r : set_up_contents(nv, err);
	}
	r = check_required(nv, &v, err);
	if (r == 0)
		r = staging_make(nv->c, &staging, err);
	*filler->ret_trashed = *filler->ret_trashed || staging.trashed;
	return r < 0 ? r : set_up_contents(nv, err);
}

/* Fill a volume that begins empty and whose directory must not exist yet. */
static int fill_empty(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	const struct nfs_handle *work;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	(void)data;
	r = store_folder(c, STORE_WORK, true, &work, err);
	if (r < 0)
		return r;
	r = nfs_mkdir(c, work, name, DIRECTORY_MODE, &handle, &attr);
	if (r == 0 && attr.has_mode && attr.mode != DIRECTORY_MODE)
		r = nfs_setmode(c, &handle, DIRECTORY_MODE);
	return r < 0 ? nfs_error_set(err, c, r, "making directory '%s'", name) : 0;
}

static int make_volume(struct new_volume *nv, struct error *err)
{
	bool trashed = false; /* unused: an empty directory is not moved to the trash */
	const struct volume_filler empty = { .fill = fill_empty, .ret_trashed = &trashed };
	const struct volume v = volume_of(nv->rec);
	enum volume_existing existing = v.existing;
	int r;

	r = check_others(nv, err);
	if (r < 0)
		return r;
	if (nv->filler != NULL && nv->filler->fill != NULL)
		return make_contents(nv, nv->filler, err);
	if (volume_is_built(&v))
		return make_contents(nv, &empty, err);
	/* There is no claim to decide, and an earlier attempt may have made the directory. */
	if (!volume_is_unfinished(&v) && !nv->created && existing != EXISTING_REQUIRE)
		existing = EXISTING_ADOPT;
	return make_directory(nv, existing, false, err);
}

/* -------- deletions in the way -------- */

/* The tombstones that a new volume meets, of replicas that are at work or dead. */
struct arrival {
	const struct new_volume *nv;
	bool finished; /* we finished a deletion, which may have removed our notes of use */
	bool trashed; /* there is something to purge */
};

/*
 * Take over the tombstone. Its name has the directory only, but the names of a long record's parts
 * begin with the volume's key: with the wrong key it looks damaged. Try our key and the directory,
 * which dir is for; for any other volume, only its deletion knows what to do.
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
	struct arrival *arrival = data;
	const struct new_volume *nv = arrival->nv;
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
	/* If the id is damaged or the policy missing, only the deletion knows what to do. */
	if ((v.id != NULL && volume_id_parse(&id, v.id) < 0) || v.on_delete == NULL)
		return tombstone_refuse(nv->dir, err);
	if (v.id != NULL)
		t.key = volume_id_key(&id);
	/*
	 * A live replica whose deletion is slow could still remove a directory that we keep: it
	 * looked for other users before we came.
	 */
	if (strcmp(t.key, nv->key) != 0 && !busy_is_abandoned(c, name))
		return tombstone_refuse(nv->dir, err);
	how.policy = volume_policy(&v, &id, ON_DELETE_RETAIN);
	r = volume_recorded_directory(c, &v, t.key, &t.dir, err);
	if (r == 0)
		r = volume_carry_out(c, &t, &how, &trashed, err);
	arrival->finished = true;
	arrival->trashed = arrival->trashed || trashed;
	return r <= 0 ? r : tombstone_refuse(nv->dir, err);
}

static int finish_volume_deletions(const struct new_volume *nv, struct error *err)
{
	struct arrival arrival = { .nv = nv };
	bool noted;
	int r;

	r = busy_each(nv->c, nv->dir, finish_volume_deletion, &arrival, err);
	if (arrival.trashed && nv->filler != NULL)
		*nv->filler->ret_trashed = true;
	if (r < 0 || !arrival.finished)
		return r;
	return users_add(nv->c, nv->key, nv->dir, &noted, err);
}

/* -------- deletions meanwhile -------- */

/*
 * Remove the directory of a volume that was deleted while it was made, unless somebody uses it by
 * now. Set a tombstone to keep new users away.
 */
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
	r = tombstone_set_new(c, &t, &rec, err);
	if (r == 0)
		r = volume_is_used_again(c, &t, true, err);
	if (r == 0)
		r = tombstone_remove_directory(c, &t, volume_is_used_again, &trashed, err);
	if (trashed && nv->filler != NULL)
		*nv->filler->ret_trashed = true;
	if (r == 0)
		r = directory_remove_parents(c, nv->dir, err);
	if (r == 0)
		r = users_remove(c, nv->key, nv->dir, err);
	return r < 0 ? r : tombstone_finish(c, &t, err);
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
 * Check the directory of a volume whose record remains. A deletion sees that record, and leaves a
 * directory that we made alone. But it ignores a volume with a claim that is not decided yet, and
 * it may have been about to remove a directory that we found.
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

/* Another replica may have deleted the volume while its directory was made. */
static int check_still_there(const struct new_volume *nv, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	int r = record_remains(nv, err);

	/* An earlier deletion may have removed the parts that we have just written. */
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
	/* The volume is made; the next attempt asks again. */
	if (r < 0 && r != -ESTALE && err != NULL && error_is_final(err->code))
		err->code = ERROR_ABORTED;
	return r;
}

/* -------- policies of earlier volumes -------- */

/*
 * Whether deleted volumes may have left policy notes. A volume without subDir writes no notes of
 * use, so it has not seen whether there are some: assume it.
 */
static bool may_have_policies(const struct new_volume *nv)
{
	const struct volume v = volume_of(nv->rec);

	return nv->noted || (strcmp(nv->key, nv->dir) == 0 && !nv->made && !volume_is_built(&v));
}

/*
 * Remove the policy notes if nobody else uses the directory: from now on the policy of the new
 * volume applies. Not in a repeated call: a deletion may have left the notes because this
 * volume was there. A deletion that is leaving notes still has its notes of use, or a tombstone. A
 * note that stays behind, as after an error, only retains data that could be deleted.
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
	/* A damaged record is not that of another volume. */
	v = volume_of(&have);
	r = volume_recorded_directory(nv->c, &v, nv->key, &dir, err);
	if (r < 0)
		return r;
	if (!volume_is_foreign(&have)) {
		r = volume_check_same(&have, nv->rec, capacity, err);
	} else {
		/*
		 * Perhaps another replica deleted the volume, took the directory that we made anew
		 * for a volume of csi-driver-nfs, and recorded a change of that. But perhaps it is
		 * such a volume, whose changes exist in this record only: replace the record only
		 * after the volume has been made.
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

	/* Make the folders for the deletion now: the share may be full by then. */
	r = store_folder(nv->c, STORE_BUSY, true, &unused, err);
	if (r < 0)
		return r;
	r = store_folder(nv->c, STORE_TRASH, true, &unused, &trash);
	/* Something else of that name only hinders the deletion. */
	if (r < 0 && r != -ENOTDIR) {
		if (err != NULL)
			*err = trash;
		return r;
	}
	r = users_add(nv->c, nv->key, nv->dir, &nv->noted, err);
	if (r < 0)
		return r;
	r = finish_volume_deletions(nv, err);
	if (r < 0)
		return r;
	r = make_volume(nv, err);
	if (r == 0 && nv->is_foreign)
		r = record_replace(nv->c, nv->folder, nv->key, nv->rec, err);
	if (r == 0)
		r = check_still_there(nv, err);
	if (r == 0 && nv->created && may_have_policies(nv))
		drop_earlier_policies(nv);
	return r;
}

int volume_create(struct nfs_client *c, const char *key, struct record *rec,
		  const struct volume_capacity *capacity, const struct volume_filler *filler,
		  struct error *err)
{
	struct new_volume nv = { .c = c, .key = key, .rec = rec, .filler = filler };
	bool trashed = false;
	struct volume v;
	int r;

	if (volume_set_version(rec, c->version) < 0)
		return error_oom(err);
	r = store_folder(c, STORE_VOLUMES, true, &nv.folder, err);
	if (r < 0)
		return r;
	r = record_create(c, nv.folder, key, rec, err);
	nv.created = r == 0;
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
	 * A volume that is ready has its directory. One without subDir is never recorded as ready.
	 */
	nv.exclusive = volume_is_exclusive(&v, key) && !v.staging.ready;
	r = make_and_check(&nv, err);
	if (r < 0 && r != -ESTALE)
		undo_creation(&nv, filler != NULL ? filler->ret_trashed : &trashed, err);
	return r;
}
