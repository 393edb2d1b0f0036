/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/volume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "csi/build.h"
#include "csi/directory.h"
#include "csi/note.h"
#include "csi/snapshot.h"
#include "csi/tombstone.h"
#include "csi/usage.h"
#include "nfs/calls.h"
#include "nfs/state.h"

int64_t volume_size(const struct record *rec)
{
	const char *text = record_get(rec, VOLUME_KEY_SIZE);
	uint64_t size;

	if (text == NULL || str_parse_u64(text, 10, INT64_MAX, &size) < 0)
		return 0;
	return (int64_t)size;
}

/* What ControllerModifyVolume has made of it, else what it was created with. */
static const char *setting(const struct record *rec, const char *key)
{
	char modified[32];
	const char *value;

	(void)snprintf(modified, sizeof(modified), "%s%s", VOLUME_MODIFIED_PREFIX, key);
	value = record_get(rec, modified);
	return value != NULL ? value : record_get(rec, key);
}

static uint32_t mode_of(const struct record *rec)
{
	const char *text = setting(rec, VOLUME_KEY_MODE);
	uint64_t mode;

	if (text == NULL || str_parse_u64(text, 8, 07777, &mode) < 0)
		return 0;
	return (uint32_t)mode;
}

static bool id_of(const struct record *rec, const char *key, uint32_t *ret)
{
	const char *text = setting(rec, key);
	uint64_t id;

	if (text == NULL || str_parse_u64(text, 10, UINT32_MAX - 1, &id) < 0)
		return false;
	*ret = (uint32_t)id;
	return true;
}

struct volume_owner volume_owner_of(const struct record *rec)
{
	struct volume_owner owner = { .has_uid = false };

	owner.has_uid = id_of(rec, VOLUME_KEY_UID, &owner.uid);
	owner.has_gid = id_of(rec, VOLUME_KEY_GID, &owner.gid);
	return owner;
}

unsigned int volume_version_of(const struct record *rec)
{
	const char *text = record_get(rec, VOLUME_KEY_VERSION);

	if (text == NULL || (strcmp(text, "3") != 0 && strcmp(text, "4") != 0))
		return 0;
	return (unsigned int)(text[0] - '0');
}

static enum volume_existing existing_of(const struct record *rec)
{
	const char *text = record_get(rec, VOLUME_KEY_EXISTING);
	enum volume_existing value;

	return text != NULL && existing_parse(text, &value) == 0 ? value : EXISTING_ADOPT;
}

/* Records come from a share that others may write to: a path in one is checked like any input. */
static int dir_of(struct nfs_client *c, const struct record *rec, const char *key, const char **ret,
		  struct error *err)
{
	const char *dir = record_get(rec, VOLUME_KEY_DIR);

	if (dir == NULL || path_check_relative(dir, "dir", NULL) < 0 ||
	    path_has_component(dir, NFS_STATE_DIR))
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "record '%s' on %s:%s does not name a directory: it is damaged, look at it in %s/volumes",
				 key, c->export.server, c->export.share, NFS_STATE_DIR);
	*ret = dir;
	return 0;
}

static int differs(const char *name, const char *what, struct error *err)
{
	return error_set(err, ERROR_ALREADY_EXISTS, "a volume named '%s' exists with another %s",
			 name, what);
}

static int check_same(const struct record *have, const struct record *want,
		      const Csi__V1__CapacityRange *range, struct error *err)
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
	if (!capacity_is_compatible(volume_size(have), range))
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "a volume named '%s' exists with a size of %" PRId64
				 " bytes, which is not what is asked for",
				 name, volume_size(have));
	return 0;
}

/* The name is taken: *rec becomes what is on the share, if that is the same volume. */
static int adopt(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
		 struct record *rec, const Csi__V1__CapacityRange *range, struct error *err)
{
	struct record have = { .n = 0 };
	int r;

	r = record_read(c, folder, key, &have, err);
	if (r == -ENOENT)
		return error_set(err, ERROR_ABORTED, "the volume is being deleted; try again");
	if (r < 0)
		return r;
	r = check_same(&have, rec, range, err);
	if (r < 0) {
		record_done(&have);
		return r;
	}
	record_done(rec);
	*rec = have;
	return 0;
}

/*
 * Takes back what was made for a volume, after a failure. Where that fails too, the CO has to come
 * back: the code becomes one that makes it do so.
 */
static void undo(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
		 const struct record *rec, const char *dir, bool begun, struct error *err)
{
	struct error second = { .code = ERROR_OK };

	if (err == NULL || !error_is_final(err->code))
		return;
	/* A volume that was there before keeps its record, whatever has become of its directory. */
	if (!begun && directory_is_gone(c, dir, &second) != 1)
		return;
	/* What has been copied, and is in its place, needs little more: the next attempt finds it. */
	if (record_get(rec, VOLUME_KEY_SOURCE) != NULL &&
	    build_is_in_place(c, rec, dir, &second) != 0) {
		err->code = ERROR_ABORTED;
		return;
	}
	if (directory_remove_parents(c, dir, &second) < 0 || usage_forget(c, key, dir, &second) < 0 ||
	    (record_get(rec, VOLUME_KEY_SOURCE) != NULL &&
	     record_forget_draft(c, folder, key, &second) < 0) ||
	    record_remove(c, folder, key, rec, &second) < 0)
		err->code = ERROR_ABORTED;
}

/* A snapshot's would be deleted with the volume. */
static int check_no_snapshot(struct nfs_client *c, const char *dir, struct error *err)
{
	int r = snapshot_has_directory(c, dir, err);

	return r <= 0 ? r
		      : error_set(err, ERROR_FAILED_PRECONDITION,
				  "directory '%s' on %s:%s is that of a snapshot", dir,
				  c->export.server, c->export.share);
}

static int make_directory(struct nfs_client *c, const char *dir, const struct record *rec,
			  enum volume_existing existing, bool *ret_made, struct error *err)
{
	const struct directory_wish wish = {
		.mode = mode_of(rec),
		.owner = volume_owner_of(rec),
		.existing = existing,
		.check = record_get(rec, VOLUME_KEY_SOURCE) == NULL ? check_no_snapshot : NULL,
		.ret_made = ret_made,
	};

	return directory_make(c, dir, &wish, err);
}

/*
 * A finished volume is as it is, but for one whose deletion was cut short, or that somebody has removed: it
 * is made anew, and not as an empty one.
 */
static int check_made(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
		      const char *dir, const struct record *rec, struct error *err)
{
	int r = directory_is_gone(c, dir, err);

	if (r <= 0)
		return r;
	r = record_remove(c, folder, key, rec, err);
	return r < 0 ? r
		     : error_set(err, ERROR_ABORTED,
				 "the directory of the volume has gone; it is made anew when this is tried again");
}

/* What has a source is built elsewhere, and gets its mode and owner when it is in its place. */
static int make_contents(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
			 const char *dir, struct record *rec, const struct volume_filler *filler,
			 struct error *err)
{
	struct build b = {
		.records = folder,
		.key = key,
		.rec = rec,
		.path = dir,
		.work_key = key,
		.fill = filler->fill,
		.data = filler->data,
	};
	int r;

	if (build_is_ready(rec)) {
		r = check_made(c, folder, key, dir, rec, err);
		/* An attempt before this one may have ended before the mode was set. */
		return r < 0 ? r : make_directory(c, dir, rec, EXISTING_ADOPT, NULL, err);
	}
	r = usage_by_others(c, key, dir, err);
	if (r < 0)
		return r;
	b.replaces_empty = r == 0 && existing_of(rec) != EXISTING_REFUSE;
	r = build_make(c, &b, err);
	*filler->ret_trashed = *filler->ret_trashed || b.trashed;
	return r < 0 ? r : make_directory(c, dir, rec, EXISTING_ADOPT, NULL, err);
}

bool volume_key_can_have_record(const char *key)
{
	return strchr(key, '/') == NULL && strlen(key) <= RECORD_NAME_MAX;
}

int volume_read(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		struct error *err)
{
	const char *key = volume_id_key(id);
	const struct nfs_handle *folder;
	int r;

	if (!volume_key_can_have_record(key))
		return 0;
	r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, false, &folder, err);
	if (r == 0)
		r = record_read(c, folder, key, ret, err);
	return r == -ENOENT ? 0 : r;
}

int volume_directory(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		     const char **ret, struct error *err)
{
	if (rec->n > 0)
		return dir_of(c, rec, volume_id_key(id), ret, err);
	*ret = id->subdir;
	return 0;
}

static enum volume_on_delete policy_of(const struct record *rec, const struct volume_id *id,
				       enum volume_on_delete default_policy)
{
	const char *text = setting(rec, VOLUME_KEY_ON_DELETE);
	enum volume_on_delete policy;

	if (text == NULL)
		text = id->on_delete;
	if (text[0] == '\0' || on_delete_parse(text, &policy) < 0)
		return default_policy;
	return policy;
}

/*
 * Whether the path of a volume that is deleted is used by now: 1, 0 or a negative errno. A new volume of the
 * same key makes a directory of its own, when the old one has gone; another one takes what it finds.
 */
static int is_used_again(struct nfs_client *c, const struct tombstone *t, bool was_empty,
			 struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *folder;
	int r = -ENOENT;

	if (was_empty && volume_key_can_have_record(t->key))
		r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, false, &folder, err);
	if (r == 0)
		r = record_read(c, folder, t->key, &rec, err);
	if (r == 0)
		return 1;
	return r == -ENOENT ? usage_by_others(c, t->key, t->dir, err) : r;
}

/* In the call, a retry has to go on with what a call before it has put into the trash. */
static int delete_and_purge(struct nfs_client *c, const struct tombstone *t, bool purge_now,
			    bool *ret_trashed, struct error *err)
{
	const char *slash = strrchr(t->dir, '/');
	const char *base = slash != NULL ? slash + 1 : t->dir;
	int r;

	r = tombstone_remove_directory(c, t, t->dir, base, is_used_again, ret_trashed, err);
	if (r < 0 || !purge_now)
		return r;
	*ret_trashed = false;
	return directory_purge(c, base, err);
}

static int dispose(struct nfs_client *c, const struct tombstone *t,
		   const struct volume_disposal *how, bool *ret_trashed, struct error *err)
{
	int r;

	if (how->policy == ON_DELETE_RETAIN)
		return 0;
	r = usage_by_others(c, t->key, t->dir, err);
	if (r < 0)
		return r;
	if (r > 0) {
		log_info("The directory of a deleted volume stays, another volume uses it",
			 LOG_STR("volume", t->key), LOG_STR("directory", t->dir));
		return 0;
	}
	if (how->policy == ON_DELETE_ARCHIVE)
		r = tombstone_archive_directory(c, t, t->dir, how->replace_archive, ret_trashed, err);
	else
		r = delete_and_purge(c, t, how->purge_now, ret_trashed, err);
	return r < 0 ? r : directory_remove_parents(c, t->dir, err);
}

/* Where a volume with a source was not finished, what is in its place may be somebody else's. */
static int is_made(struct nfs_client *c, const struct record *rec, const char *dir, struct error *err)
{
	if (record_get(rec, VOLUME_KEY_SOURCE) == NULL || build_is_ready(rec))
		return 1;
	return build_is_in_place(c, rec, dir, err);
}

/*
 * What there is to do once the tombstone is set. Returns 1 where the record came back, or as
 * volume_delete(). What is being built for the record goes first: it cannot get into its place then.
 */
static int carry_out(struct nfs_client *c, struct tombstone *t, const struct volume_disposal *how,
		     bool *ret_trashed, struct error *err)
{
	const struct record *rec = &t->record;
	bool trashed = false;
	int r = 0;

	if (record_get(rec, VOLUME_KEY_SOURCE) != NULL)
		r = build_discard(c, t->key, ret_trashed, err);
	if (r == 0)
		r = is_made(c, rec, t->dir, err);
	if (r > 0)
		r = dispose(c, t, how, &trashed, err);
	else if (r == 0)
		r = directory_remove_parents(c, t->dir, err);
	*ret_trashed = *ret_trashed || trashed;
	if (r == 0 && strcmp(t->key, t->dir) != 0)
		r = tombstone_check(c, t, err);
	if (r == 0)
		r = usage_forget(c, t->key, t->dir, err);
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
		return note_is_of(t->name, dir);
	return volume_id_parse(&id, text) == 0 && strcmp(volume_id_key(&id), key) == 0;
}

static int try_tombstone(struct nfs_client *c, const char *name, enum note_kind kind, void *data,
			 struct error *err)
{
	struct search *s = data;
	struct error why = { .code = ERROR_OK };
	int r;

	if (kind != NOTE_VOLUME_GONE)
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
	const struct nfs_handle *folder;
	int r;

	if (!volume_key_can_have_record(t->key))
		return 0;
	r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, false, &folder, err);
	if (r == 0)
		r = record_is_there(c, folder, t->key, err);
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
	r = note_each(c, NULL, try_tombstone, &s, err);
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
		r = dir_of(c, &t->record, t->key, &t->dir, err);
	own.policy = policy_of(&t->record, id, how->policy);
	return r < 0 ? r : carry_out(c, t, &own, ret_trashed, err);
}

int volume_delete(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		  const struct volume_disposal *how, bool *ret_trashed, struct error *err)
{
	cleanup_tombstone struct tombstone t = { .kind = NOTE_VOLUME_GONE, .key = volume_id_key(id) };
	const struct nfs_handle *folder;
	const char *dir = NULL;
	int r;

	*ret_trashed = false;
	r = volume_directory(c, id, rec, &dir, err);
	if (r == 0)
		r = note_check_unused(c, dir, err);
	t.dir = dir;
	if (r == 0)
		r = bury(c, &t, id, rec, policy_of(rec, id, how->policy), err);
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
	r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, false, &folder, err);
	if (r == 0)
		r = record_forget_draft(c, folder, t.key, err);
	if (r == 0)
		r = record_forget(c, folder, t.key, err);
	return r == -ENOENT ? 0 : r;
}

/* -------- creating -------- */

/* In the way of a new volume: tombstones of replicas that are at work, or dead. */
struct arrival {
	const char *key, *dir;
	bool finished; /* a deletion, which may have taken our note of use with it */
	bool trashed; /* there is something to purge */
};

static int not_yet(const char *dir, struct error *err)
{
	(void)error_set(err, ERROR_ABORTED, "directory '%s' is being deleted; try again", dir);
	return -EAGAIN;
}

static int finish_deletion(struct nfs_client *c, const char *name, enum note_kind kind, void *data,
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

	if (kind != NOTE_VOLUME_GONE)
		return kind == NOTE_SNAPSHOT_GONE ? not_yet(a->dir, err) : 0;
	t.key = note_is_of(name, a->key) ? a->key : a->dir;
	r = tombstone_adopt(c, &t, name, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	text = record_get(&t.record, VOLUME_KEY_ID);
	if ((text != NULL && volume_id_parse(&id, text) < 0) ||
	    setting(&t.record, VOLUME_KEY_ON_DELETE) == NULL)
		return not_yet(a->dir, err); /* its own deletion knows what is to become of it */
	if (text != NULL)
		t.key = volume_id_key(&id);
	/*
	 * What stays there for us, a deletion that is only slow could still take away: it knows the directory,
	 * and looked for others before we came.
	 */
	if (strcmp(t.key, a->key) != 0 && !note_is_left(c, name))
		return not_yet(a->dir, err);
	how.policy = policy_of(&t.record, &id, none.policy);
	r = dir_of(c, &t.record, t.key, &t.dir, err);
	if (r == 0)
		r = carry_out(c, &t, &how, &trashed, err);
	a->finished = true;
	a->trashed = a->trashed || trashed;
	return r <= 0 ? r : not_yet(a->dir, err);
}

static int finish_deletions(struct nfs_client *c, const char *key, const char *dir,
			    const struct volume_filler *filler, struct error *err)
{
	struct arrival a = { .key = key, .dir = dir };
	int r;

	r = note_each(c, dir, finish_deletion, &a, err);
	if (a.trashed && filler != NULL)
		*filler->ret_trashed = true;
	return r == 0 && a.finished ? usage_note(c, key, dir, err) : r;
}

/*
 * Takes a directory back whose volume was deleted while it was made, if nobody else has begun to use it: a
 * tombstone keeps those away who begin now.
 */
static int take_back(struct nfs_client *c, const char *key, const char *dir,
		     const struct record *rec, struct error *err)
{
	cleanup_tombstone struct tombstone t = { .kind = NOTE_VOLUME_GONE, .key = key, .dir = dir };
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
		r = is_used_again(c, &t, true, err);
	if (r == 0)
		r = tombstone_remove_directory(c, &t, dir, key, is_used_again, &trashed, err);
	if (r == 0)
		r = directory_remove_parents(c, dir, err);
	if (r == 0)
		r = usage_forget(c, key, dir, err);
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
		  const Csi__V1__CapacityRange *range, const struct volume_filler *filler,
		  struct error *err)
{
	const struct nfs_handle *folder;
	const char *dir;
	char version[8];
	bool created, begun, made = false;
	int r;

	(void)snprintf(version, sizeof(version), "%u", c->version);
	if (record_set(rec, VOLUME_KEY_VERSION, version) < 0)
		return error_oom(err);
	r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, true, &folder, err);
	if (r < 0)
		return r;
	r = record_create(c, folder, key, rec, err);
	created = r == 0;
	if (r == -EEXIST)
		r = adopt(c, folder, key, rec, range, err);
	if (r == 0)
		r = dir_of(c, rec, key, &dir, err);
	if (r < 0)
		return r;
	/* In a snapshot's directory there may be nothing of that name yet. */
	r = strchr(dir, '/') != NULL ? check_no_snapshot(c, dir, err) : 0;
	begun = created || (record_get(rec, VOLUME_KEY_SOURCE) != NULL && !build_is_ready(rec));
	if (r == 0)
		r = usage_note(c, key, dir, err);
	if (r == 0)
		r = finish_deletions(c, key, dir, filler, err);
	if (r == 0 && filler != NULL && filler->fill != NULL)
		r = make_contents(c, folder, key, dir, rec, filler, err);
	else if (r == 0)
		/* What an attempt before this one may have made is not somebody else's. */
		r = make_directory(c, dir, rec, created ? existing_of(rec) : EXISTING_ADOPT, &made,
				   err);
	if (r == 0)
		r = check_still_there(c, folder, key, dir, rec, made, err);
	if (r < 0 && r != -ESTALE)
		undo(c, folder, key, rec, dir, begun, err);
	return r;
}

int volume_look(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		bool *ret_has_directory, struct error *err)
{
	const char *dir;
	int r;

	r = volume_directory(c, id, rec, &dir, err);
	if (r == 0)
		r = directory_is_gone(c, dir, err);
	if (r < 0)
		return r;
	*ret_has_directory = r == 0;
	return 0;
}

int volume_find(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		struct error *err)
{
	bool has_directory;
	int r;

	r = volume_look(c, id, rec, &has_directory, err);
	if (r < 0)
		return r;
	if (has_directory && (record_get(rec, VOLUME_KEY_SOURCE) == NULL || build_is_ready(rec)))
		return 0;
	return error_sys(err, ERROR_NOT_FOUND, ENOENT, "volume directory '%s' on %s:%s", id->subdir,
			 c->export.server, c->export.share);
}
