/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* CreateVolume, on the share. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
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

static uint32_t mode_of(const struct record *rec)
{
	const char *text = volume_setting(rec, VOLUME_KEY_MODE);
	uint64_t mode;

	if (text == NULL || str_parse_u64(text, 8, 07777, &mode) < 0)
		return 0;
	return (uint32_t)mode;
}

/* Whether the record is written again while the volume is made. */
static bool is_replaced(const struct record *rec)
{
	return record_get(rec, VOLUME_KEY_SOURCE) != NULL ||
	       record_get(rec, VOLUME_KEY_CLAIM) != NULL;
}

static int differs(const char *name, const char *what, struct error *err)
{
	return error_set(err, ERROR_ALREADY_EXISTS, "a volume named '%s' exists with another %s",
			 name, what);
}

static int check_same(const struct record *have, const struct record *want,
		      const struct volume_capacity *capacity, struct error *err)
{
	static const struct {
		const char *key;
		const char *what;
	} keys[] = {
		{ VOLUME_KEY_NAME, "name that has the same short form" },
		{ VOLUME_KEY_DIR, "subDir" },
		{ VOLUME_KEY_ON_DELETE, "onDelete" },
		{ VOLUME_KEY_MODE, "mountPermissions" },
		{ VOLUME_KEY_UID, "uid" },
		{ VOLUME_KEY_GID, "gid" },
		{ VOLUME_KEY_SOURCE, "volume_content_source" },
	};
	const char *name = record_get(want, VOLUME_KEY_NAME);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (!str_eq(record_get(have, keys[i].key), record_get(want, keys[i].key)))
			return differs(name, keys[i].what, err);
	if (!capacity_is_compatible(volume_size(have), capacity))
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "a volume named '%s' exists with a size of %" PRId64
				 " bytes, which is not what is asked for",
				 name, volume_size(have));
	return 0;
}

/* The name is taken: *rec becomes what is on the share, if that is the same volume. */
static int adopt(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
		 struct record *rec, const struct volume_capacity *capacity, struct error *err)
{
	struct record have = { .n = 0 };
	int r;

	r = record_read(c, folder, key, &have, err);
	if (r == -ENOENT)
		return error_set(err, ERROR_ABORTED, "the volume is being deleted; try again");
	if (r < 0)
		return r;
	r = check_same(&have, rec, capacity, err);
	if (r < 0) {
		record_done(&have);
		return r;
	}
	record_done(rec);
	*rec = have;
	return 0;
}

/* Whether the error says nothing of the request: the same one may succeed the next moment, elsewhere. */
static bool is_passing(const struct error *err)
{
	return err->sys != 0 && err->code != ERROR_PERMISSION_DENIED &&
	       err->code != ERROR_FAILED_PRECONDITION && err->code != ERROR_INVALID_ARGUMENT;
}

/* Whether a directory that is there may be what an attempt has made, of this replica or of another one. */
static bool may_be_own(const struct error *err, bool begun, bool created)
{
	return !begun || is_passing(err) || (!created && err->sys != 0);
}

/*
 * No tombstone is set for that: whoever met it would finish the deletion of a directory that may be a
 * stranger's. Another replica that deletes the volume meanwhile has renamed the record, and finds nothing;
 * one that creates it has found the record. Each writes before it reads: if the other made the directory
 * after we looked for it, it sees that there is no record (check_still_there()), and if it made that before,
 * we see the directory, and put the record back. What is passing may hit one of two replicas only; all else
 * the other one is told too.
 */
static int check_untouched(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
			   struct record *rec, const char *dir, struct error *err)
{
	int r = directory_is_gone(c, dir, err);

	if (r != 0)
		return r < 0 ? r : 0;
	r = users_add(c, key, dir, err);
	if (r == 0)
		r = record_create(c, folder, key, rec, err);
	return r == 0 ? -EAGAIN : r;
}

/*
 * Takes back what was made for a volume, after a failure. Where that fails too, the CO has to come
 * back: the code becomes one that makes it do so.
 */
static void undo(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
		 struct record *rec, const char *dir, bool begun, bool created, bool *ret_trashed,
		 struct error *err)
{
	struct error second = { .code = ERROR_OK };
	int r;

	if (err == NULL || !error_is_final(err->code))
		return;
	/* A volume that was there before keeps its record, whatever has become of its directory. */
	r = may_be_own(err, begun, created) ? directory_is_gone(c, dir, &second) : 1;
	if (r <= 0) {
		if (err->sys != 0)
			err->code = ERROR_ABORTED;
		return;
	}
	/* What was built, and is in its place, needs little more: the next attempt finds it. */
	if (volume_is_built(rec) && staging_is_in_place(c, rec, dir, &second) != 0) {
		err->code = ERROR_ABORTED;
		return;
	}
	r = volume_is_built(rec) ? staging_discard(c, key, ret_trashed, &second) : 0;
	if (r == 0)
		r = directory_remove_parents(c, dir, &second);
	if (r == 0)
		r = users_remove(c, key, dir, &second);
	if (r == 0 && is_replaced(rec))
		r = record_forget_draft(c, folder, key, NULL, &second);
	if (r == 0)
		r = record_remove(c, folder, key, rec, &second);
	if (r == 0 && is_passing(err))
		r = check_untouched(c, folder, key, rec, dir, &second);
	if (r < 0)
		err->code = ERROR_ABORTED;
}

/* -------- making -------- */

struct making {
	struct nfs_client *c;
	const struct nfs_handle *folder; /* of the record */
	const char *key;
	const char *dir;
	struct record *rec;
	bool exclusive; /* the directory has to be this volume's alone, and that is not decided yet */
	bool created; /* the record, in this call */
	bool *made; /* the directory was made by this call */
};

/*
 * Whether somebody is there. The volume's own record and notes are on the share by now: of two that begin
 * at once each sees the other, or the later one does.
 */
static int check_others(const struct making *m, struct error *err)
{
	const bool nested = strchr(m->dir, '/') != NULL;
	const bool plain = strcmp(m->key, m->dir) == 0;
	struct owner_question q = { .volume = m->key, .has_record = true };
	struct owner owner;
	int r;

	/* Where a snapshot has the very directory, that is found there. */
	q.scope = nested ? OWNER_SNAPSHOTS : 0;
	if (m->exclusive)
		q.scope |= plain ? OWNER_AT | OWNER_IN : OWNER_VOLUMES;
	if (q.scope == 0)
		return 0;
	r = owner_find(m->c, m->dir, &q, &owner, err);
	return r <= 0 ? r : owner_refuse(m->c, m->dir, &owner, m->key, err);
}

/* From here on the directory is the volume's, whatever becomes of the call. */
static int decide(const struct making *m, struct error *err)
{
	if (record_set(m->rec, STAGING_KEY_READY, "1") < 0)
		return error_oom(err);
	return record_replace(m->c, m->folder, m->key, m->rec, err);
}

/* own: what is there was made for this volume. Then it is decided, where that is due. */
static int make_directory(const struct making *m, enum volume_existing existing, bool own,
			  struct error *err)
{
	/* One named by default may be finished: then it is its own data that is there. */
	const bool fresh = m->exclusive && (m->created || owner_is_open(m->rec));
	const struct owner_question others = {
		.volume = m->key,
		.has_record = true,
		.scope = own ? 0 : OWNER_SNAPSHOTS | (fresh ? OWNER_ARCHIVE : 0),
	};
	const struct directory_wish wish = {
		.mode = mode_of(m->rec),
		.owner = volume_owner_of(m->rec),
		.existing = existing,
		.others = &others,
	};
	bool made;
	int r;

	r = directory_make(m->c, m->dir, &wish, &made, err);
	*m->made = *m->made || (r == 0 && made);
	if (r == 0 && owner_is_open(m->rec)) {
		r = decide(m, err);
		if (r < 0 && made)
			directory_unmake(m->c, m->dir, &wish, err);
	}
	return r;
}

/*
 * A finished volume is as it is, but for one whose deletion was cut short, or that somebody has removed: it
 * is made anew, and not as an empty one.
 */
static int check_made(const struct making *m, struct error *err)
{
	int r = directory_is_gone(m->c, m->dir, err);

	if (r <= 0)
		return r;
	r = record_remove(m->c, m->folder, m->key, m->rec, err);
	return r < 0 ? r
		     : error_set(err, ERROR_ABORTED,
				 "the directory of the volume has gone; it is made anew when this is tried again");
}

/* Contents take the place of the directory that has to be there; from then on it is not. */
static int check_required(const struct making *m, struct error *err)
{
	int r;

	if (volume_existing_of(m->rec) != EXISTING_REQUIRE ||
	    record_get(m->rec, STAGING_KEY_BUILT) != NULL)
		return 0;
	r = directory_is_gone(m->c, m->dir, err);
	return r <= 0 ? r
		      : error_set(err, ERROR_FAILED_PRECONDITION,
				  "directory '%s' on %s:%s does not exist, and existingDirectory is 'require'",
				  m->dir, m->c->export.server, m->c->export.share);
}

struct filling {
	const struct volume_filler *filler;
	uint32_t mode; /* 0: leave it as the contents have it */
};

/*
 * The special bits of the source are not the new volume's, where a mode was asked for; once it is in its
 * place its bits may be somebody's who uses it.
 */
static int fill(struct nfs_client *c, const char *name, void *data, struct error *err)
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
	/* Whose work another attempt has taken learns that when it is to get its place. */
	if (r == 0 || r == -ENOENT)
		return 0;
	return nfs_error_set(err, c, r, "setting the mode of '%s'", name);
}

/* What has a source, or must not be there, is built elsewhere; it gets its owner in its place. */
static int make_contents(const struct making *m, const struct volume_filler *filler, struct error *err)
{
	const bool refuses = volume_existing_of(m->rec) == EXISTING_REFUSE;
	struct filling filling = { .filler = filler, .mode = mode_of(m->rec) };
	const struct owner_question others = {
		.volume = m->key,
		.has_record = true,
		.scope = m->exclusive ? OWNER_ALL : OWNER_AT | OWNER_IN | OWNER_SNAPSHOTS,
	};
	struct staging b = {
		.records = m->folder,
		.key = m->key,
		.rec = m->rec,
		.path = m->dir,
		.work_key = m->key,
		.replaces_empty = !refuses,
		.refusal = refuses ? "existingDirectory is 'refuse'"
				   : "is not empty or somebody else's",
		.others = &others,
		.fill = fill,
		.data = &filling,
	};
	int r;

	if (staging_is_ready(m->rec)) {
		r = check_made(m, err);
		/* An attempt before this one may have ended before the mode was set. */
		return r < 0 ? r : make_directory(m, EXISTING_ADOPT, true, err);
	}
	r = check_required(m, err);
	if (r == 0)
		r = staging_make(m->c, &b, err);
	*filler->ret_trashed = *filler->ret_trashed || b.trashed;
	return r < 0 ? r : make_directory(m, EXISTING_ADOPT, true, err);
}

/* The fill() of a volume that begins empty where there must be nothing. */
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

static int make_empty(const struct making *m, struct error *err)
{
	enum volume_existing existing = volume_existing_of(m->rec);

	/* Without a claim to decide on, what an attempt before this one may have made is not somebody else's. */
	if (!owner_is_open(m->rec) && !m->created && existing != EXISTING_REQUIRE)
		existing = EXISTING_ADOPT;
	return make_directory(m, existing, false, err);
}

static int make(const struct making *m, const struct volume_filler *filler, struct error *err)
{
	bool trashed = false; /* empty */
	const struct volume_filler empty = { .fill = fill_empty, .ret_trashed = &trashed };
	int r;

	r = check_others(m, err);
	if (r < 0)
		return r;
	if (filler != NULL && filler->fill != NULL)
		return make_contents(m, filler, err);
	return volume_is_built(m->rec) ? make_contents(m, &empty, err) : make_empty(m, err);
}

/* -------- creating -------- */

/* In the way of a new volume: tombstones of replicas that are at work, or dead. */
struct arrival {
	const char *key, *dir;
	bool finished; /* a deletion, which may have taken our note of use with it */
	bool replace_archive;
	bool trashed; /* there is something to purge */
};

static int not_yet(const char *dir, struct error *err)
{
	(void)error_set(err, ERROR_ABORTED, "directory '%s' is being deleted; try again", dir);
	return -EAGAIN;
}

static int finish_deletion(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
			   struct error *err)
{
	const struct volume_disposal none = { .policy = ON_DELETE_RETAIN };
	cleanup_tombstone struct tombstone t = { .kind = kind };
	cleanup_volume_id struct volume_id id = { NULL };
	struct arrival *a = data;
	struct volume_disposal how = none;
	bool trashed = false;
	const char *text;
	int r;

	if (kind != BUSY_VOLUME_GONE)
		return kind == BUSY_SNAPSHOT_GONE ? not_yet(a->dir, err) : 0;
	t.key = busy_is_of(name, a->key) ? a->key : a->dir;
	r = tombstone_adopt(c, &t, name, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	text = record_get(&t.record, VOLUME_KEY_ID);
	if ((text != NULL && volume_id_parse(&id, text) < 0) ||
	    volume_setting(&t.record, VOLUME_KEY_ON_DELETE) == NULL)
		return not_yet(a->dir, err); /* its own deletion knows what is to become of it */
	if (text != NULL)
		t.key = volume_id_key(&id);
	/*
	 * What stays there for us, a deletion that is only slow could still take away: it knows the directory,
	 * and looked for others before we came.
	 */
	if (strcmp(t.key, a->key) != 0 && !busy_is_left(c, name))
		return not_yet(a->dir, err);
	how.policy = volume_policy_of(&t.record, &id, none.policy);
	how.replace_archive = a->replace_archive;
	r = volume_dir_of(c, &t.record, t.key, &t.dir, err);
	if (r == 0)
		r = volume_carry_out(c, &t, &how, &trashed, err);
	a->finished = true;
	a->trashed = a->trashed || trashed;
	return r <= 0 ? r : not_yet(a->dir, err);
}

static int finish_deletions(struct nfs_client *c, const char *key, const char *dir,
			    const struct volume_filler *filler, struct error *err)
{
	struct arrival a = {
		.key = key,
		.dir = dir,
		.replace_archive = filler != NULL && filler->replace_archive,
	};
	int r;

	r = busy_each(c, dir, finish_deletion, &a, err);
	if (a.trashed && filler != NULL)
		*filler->ret_trashed = true;
	return r == 0 && a.finished ? users_add(c, key, dir, err) : r;
}

/*
 * Takes a directory back whose volume was deleted while it was made, if nobody else has begun to use it: a
 * tombstone keeps those away who begin now.
 */
static int take_back(struct nfs_client *c, const char *key, const char *dir,
		     const struct record *rec, struct error *err)
{
	cleanup_tombstone struct tombstone t = { .kind = BUSY_VOLUME_GONE, .key = key, .dir = dir };
	cleanup_record struct record copy = { .n = 0 };
	const char *id = record_get(rec, VOLUME_KEY_ID);
	bool trashed;
	int r;

	if ((id != NULL && record_set(&copy, VOLUME_KEY_ID, id) < 0) ||
	    record_set(&copy, VOLUME_KEY_DIR, dir) < 0 ||
	    record_set(&copy, VOLUME_KEY_ON_DELETE, on_delete_name(ON_DELETE_DELETE)) < 0)
		return error_oom(err);
	r = tombstone_set_new(c, &t, &copy, err);
	if (r == 0)
		r = volume_is_used_again(c, &t, true, err);
	if (r == 0)
		r = tombstone_remove_directory(c, &t, dir, key, volume_is_used_again, &trashed, err);
	if (r == 0)
		r = directory_remove_parents(c, dir, err);
	if (r == 0)
		r = users_remove(c, key, dir, err);
	return r < 0 ? r : tombstone_finish(c, &t, err);
}

/* Another replica may have deleted the volume while its directory was made. */
static int check_still_there(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
			     const char *dir, const struct record *rec, bool made, struct error *err)
{
	cleanup_record struct record whole = { .n = 0 };
	struct error ignored = { .code = ERROR_OK };
	int r = record_is_there(c, folder, key, err);

	if (r > 0 && rec->parts > 0) {
		r = record_read(c, folder, key, &whole, err);
		r = r == -ENOENT ? 0 : r < 0 ? r : 1;
	}
	/* A deletion before this may have taken parts for its own that were written just now. */
	if (r < 0 && err != NULL && err->code == ERROR_FAILED_PRECONDITION)
		(void)record_remove(c, folder, key, rec, &ignored);
	/* What could not be asked is asked by the next attempt: the volume is made. */
	if (r < 0 && r != -ESTALE && err != NULL && error_is_final(err->code))
		err->code = ERROR_ABORTED;
	/* A deletion does not count a volume that is not decided on: it may have taken what was found. */
	if (r > 0 && !made) {
		r = busy_check_kept(c, dir, err);
		if (r == 0)
			r = directory_is_gone(c, dir, err);
		r = r > 0 ? not_yet(dir, err) : r < 0 ? r : 1;
	}
	if (r != 0)
		return r < 0 ? r : 0;
	r = made ? take_back(c, key, dir, rec, err) : 0;
	if (r < 0)
		return r;
	(void)error_set(err, ERROR_ABORTED,
			"another controller has deleted the volume while it was made; try again");
	return -EAGAIN;
}

int volume_create(struct nfs_client *c, const char *key, struct record *rec,
		  const struct volume_capacity *capacity, const struct volume_filler *filler,
		  struct error *err)
{
	bool made = false;
	struct making m = { .c = c, .key = key, .rec = rec, .made = &made };
	const struct nfs_handle *busy;
	bool begun, trashed = false;
	char version[8];
	int r;

	(void)snprintf(version, sizeof(version), "%u", c->version);
	if (record_set(rec, VOLUME_KEY_VERSION, version) < 0)
		return error_oom(err);
	r = store_folder(c, STORE_VOLUMES, true, &m.folder, err);
	if (r < 0)
		return r;
	r = record_create(c, m.folder, key, rec, err);
	m.created = r == 0;
	if (r == -EEXIST)
		r = adopt(c, m.folder, key, rec, capacity, err);
	if (r == 0)
		r = volume_dir_of(c, rec, key, &m.dir, err);
	if (r < 0)
		return r;
	begun = m.created || owner_is_open(rec);
	/* One that is finished has its directory; one named by default does not tell whether it is. */
	m.exclusive = owner_is_exclusive(key, rec) && !staging_is_ready(rec);
	/* For the deletion, which may come when the share is full. */
	r = store_folder(c, STORE_BUSY, true, &busy, err);
	if (r == 0)
		r = users_add(c, key, m.dir, err);
	if (r == 0)
		r = finish_deletions(c, key, m.dir, filler, err);
	if (r == 0)
		r = make(&m, filler, err);
	if (r == 0)
		r = check_still_there(c, m.folder, key, m.dir, rec, made, err);
	if (r < 0 && r != -ESTALE)
		undo(c, m.folder, key, rec, m.dir, begun, m.created,
		     filler != NULL ? filler->ret_trashed : &trashed, err);
	return r;
}
