/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The directory of a new volume: made, found, or built in .csi-nfs/work/. */

#include "store/new_volume.h"

#include <errno.h>
#include <string.h>

#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/staging.h"

/* Refuse a directory that others have. Two creations at once see each other by rule 1. */
static int check_others(const struct new_volume *nv, struct error *err)
{
	const bool plain = strcmp(nv->key, nv->dir) == 0;
	const struct volume v = volume_of(nv->rec);
	struct owner_question q = { .volume = nv->key, .has_record = true };
	struct owner owner;
	int r;

	/*
	 * A snapshot that is put into its place replaces an empty directory, even one that was just
	 * made. A volume without a claim whose name is its directory has a UUID in it, which no
	 * snapshot has.
	 */
	q.scope = plain && v.claim == CLAIM_NONE && !v.has_existing ? 0 : OWNER_SNAPSHOTS;
	if (nv->exclusive)
		q.scope |= plain ? OWNER_AT | OWNER_IN : OWNER_VOLUMES;
	if (q.scope == 0)
		return 0;
	r = owner_find(nv->c, nv->dir, &q, &owner, err);
	return r <= 0 ? r : owner_refuse(nv->c, nv->dir, &owner, nv->key, err);
}

/* Record that the directory is the volume's. It stays so even if the rest of the call fails. */
static int decide_directory(const struct new_volume *nv, struct error *err)
{
	int r;

	if (staging_set_ready(nv->rec) < 0)
		return error_oom(err);
	r = record_replace(nv->c, nv->folder, nv->key, nv->rec, err);
	if (r < 0) { /* the call may be repeated with this record */
		record_unset(nv->rec, STAGING_KEY_READY);
		record_unset(nv->rec, VOLUME_KEY_FOUND);
	}
	return r;
}

/*
 * Note, in memory, whether the directory that was found has contents: they may be of a deleted
 * volume around it, whose policy is to keep them. What we may not read counts as such.
 */
static int describe_found(const struct new_volume *nv, struct error *err)
{
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r = directory_find(nv->c, nv->dir, &place, &handle, &attr, err);

	if (r == -ENOENT)
		return directory_is_moving(nv->dir, err);
	if (r < 0)
		return r;
	r = nfs_has_entry(nv->c, &handle);
	if (r < 0 && r != -EACCES && r != -EPERM)
		return nfs_error_set(err, nv->c, r, "listing '%s'", nv->dir);
	if (r != 0 && record_set(nv->rec, VOLUME_KEY_FOUND, "1") < 0)
		return error_oom(err);
	return 0;
}

/*
 * Make or find the directory, and set its mode and owner. If the volume has a claim that is not
 * decided, record that it gets the directory. own: an existing directory was made for this volume.
 */
static int make_directory(struct new_volume *nv, enum volume_existing existing, bool own,
			  struct error *err)
{
	const struct volume v = volume_of(nv->rec);
	const bool undecided = volume_is_unfinished(&v);
	/* A volume without subDir may be finished: then the data in the directory is its own. */
	const bool fresh = nv->exclusive && (nv->created || undecided);
	const struct owner_question others = {
		.volume = nv->key,
		.has_record = true,
		.scope = own ? 0 : OWNER_SNAPSHOTS | (fresh ? OWNER_ARCHIVE : 0),
	};
	/* A directory that is in another volume, too, keeps its mode and owner. */
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
	/*
	 * Rule 7: check_others() overlooks a volume whose record has just become a tombstone, and
	 * its deletion would leave the directory, with the data, to a claim that is decided. If the
	 * deletion was given up since, the record is back.
	 */
	if (nv->exclusive && !made) {
		r = busy_check_not_deleted(nv->c, nv->dir, err);
		if (r == 0)
			r = check_others(nv, err);
		if (r == 0)
			r = describe_found(nv, err);
		if (r < 0)
			return r;
	}
	r = decide_directory(nv, err);
	/* If another replica has changed the record (ABORTED), the directory is the volume's. */
	if (r < 0 && made && (err == NULL || error_is_final(err->code)))
		directory_unmake(nv->c, nv->dir, &wish, err);
	return r;
}

/* Whether the directory is gone: 1, 0 or a negative errno. ABORTED if it may come back (rule 6). */
static int directory_is_gone_for_good(const struct new_volume *nv, struct error *err)
{
	int r = directory_is_gone(nv->c, nv->dir, err);

	return r <= 0 ? r : directory_stays_gone(nv->c, nv->dir, err);
}

/*
 * Check that a finished volume still has its directory. If an interrupted deletion or somebody has
 * removed it, remove the record, so that the next attempt makes the contents again.
 */
static int new_volume_check_finished(const struct new_volume *nv, struct error *err)
{
	int r = directory_is_gone_for_good(nv, err);

	if (r <= 0)
		return r;
	r = record_remove(nv->c, nv->folder, nv->key, nv->rec, err);
	if (r < 0)
		return r;
	return error_set(err, ERROR_ABORTED,
			 "the volume's directory is gone; try again to re-create it");
}

/*
 * Check existingDirectory=require. The contents replace the directory, which need not exist any
 * longer once they are built.
 */
static int check_required(const struct new_volume *nv, const struct volume *v, struct error *err)
{
	int r;

	if (v->existing != EXISTING_REQUIRE || v->staging.built != NULL)
		return 0;
	r = directory_is_gone_for_good(nv, err);
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
 * Fill the directory and set its mode. A requested mode clears the special bits of the source. It
 * is set here because a user may set such bits once the directory is in place.
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
 * Set mode and owner of a directory that is there; own as for make_directory(). Never make it here:
 * a paused deletion may have moved it for a moment, and an empty directory would count as the
 * volume's contents.
 */
static int set_up_existing(struct new_volume *nv, bool own, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	int r = make_directory(nv, EXISTING_REQUIRE, own, &why);

	/* One that was not there may be back by now. */
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION &&
	    (r == -ENOENT || directory_is_gone(nv->c, nv->dir, NULL) > 0))
		return directory_is_moving(nv->dir, err);
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
				   : "is not empty or belongs to someone else",
		.others = &others,
		.fill = fill_with_mode,
		.data = &filling,
	};
	int r;

	if (v.staging.ready) {
		r = new_volume_check_finished(nv, err);
		/* An earlier attempt may have ended before it set the mode. */
		return r < 0 ? r : set_up_existing(nv, true, err);
	}
	r = check_required(nv, &v, err);
	if (r == 0)
		r = staging_make(nv->c, &staging, err);
	nv->found = staging.found;
	*filler->ret_trashed = *filler->ret_trashed || staging.trashed;
	return r < 0 ? r : set_up_existing(nv, true, err);
}

/* Make an empty directory in .csi-nfs/work/, for a volume whose directory must not exist yet. */
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

int new_volume_make(struct new_volume *nv, struct error *err)
{
	bool trashed = false; /* stays so: an empty directory is not moved to the trash */
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
	/* Rule 6: another volume or attempt may have its data in the directory. */
	if (!nv->created || nv->noted) {
		r = directory_is_gone(nv->c, nv->dir, err);
		if (r == 0)
			return set_up_existing(nv, false, err);
		if (r > 0)
			r = directory_may_come_back(nv->c, nv->dir, err);
		if (r != 0)
			return r < 0 ? r : directory_is_moving(nv->dir, err);
	}
	/* The volume has no claim to decide, and an earlier attempt may have made the directory. */
	if (!volume_is_unfinished(&v) && !nv->created && existing != EXISTING_REQUIRE)
		existing = EXISTING_ADOPT;
	return make_directory(nv, existing, false, err);
}
