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
#include "csi/owner.h"
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

/* Whether the directory is made elsewhere and renamed into its place: it can be told from any other. */
static bool is_built(const struct record *rec)
{
	return record_get(rec, VOLUME_KEY_SOURCE) != NULL ||
	       (record_get(rec, VOLUME_KEY_CLAIM) != NULL && existing_of(rec) == EXISTING_REFUSE);
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
	/* What was built, and is in its place, needs little more: the next attempt finds it. */
	if (is_built(rec) && build_is_in_place(c, rec, dir, &second) != 0) {
		err->code = ERROR_ABORTED;
		return;
	}
	if (directory_remove_parents(c, dir, &second) < 0 || usage_forget(c, key, dir, &second) < 0 ||
	    (is_replaced(rec) && record_forget_draft(c, folder, key, &second) < 0) ||
	    record_remove(c, folder, key, rec, &second) < 0)
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
	if (record_set(m->rec, BUILD_KEY_READY, "1") < 0)
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
			directory_unmake(m->c, m->dir, &wish);
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

	if (existing_of(m->rec) != EXISTING_REQUIRE || record_get(m->rec, BUILD_KEY_BUILT) != NULL)
		return 0;
	r = directory_is_gone(m->c, m->dir, err);
	return r <= 0 ? r
		      : error_set(err, ERROR_FAILED_PRECONDITION,
				  "directory '%s' on %s:%s does not exist, and existingDirectory is 'require'",
				  m->dir, m->c->export.server, m->c->export.share);
}

/* What has a source, or must not be there, is built elsewhere; it gets its mode and owner in its place. */
static int make_contents(const struct making *m, const struct volume_filler *filler, struct error *err)
{
	const bool refuses = existing_of(m->rec) == EXISTING_REFUSE;
	const struct owner_question others = {
		.volume = m->key,
		.has_record = true,
		.scope = m->exclusive ? OWNER_ALL : OWNER_AT | OWNER_IN | OWNER_SNAPSHOTS,
	};
	struct build b = {
		.records = m->folder,
		.key = m->key,
		.rec = m->rec,
		.path = m->dir,
		.work_key = m->key,
		.replaces_empty = !refuses,
		.refusal = refuses ? "existingDirectory is 'refuse'"
				   : "is not empty or somebody else's",
		.others = &others,
		.fill = filler->fill,
		.data = filler->data,
	};
	int r;

	if (build_is_ready(m->rec)) {
		r = check_made(m, err);
		/* An attempt before this one may have ended before the mode was set. */
		return r < 0 ? r : make_directory(m, EXISTING_ADOPT, true, err);
	}
	r = check_required(m, err);
	if (r == 0)
		r = build_make(m->c, &b, err);
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
	r = nfs_state_folder(c, NFS_FOLDER_WORK, true, &work, err);
	if (r < 0)
		return r;
	r = nfs_mkdir(c, work, name, DIRECTORY_MODE, &handle, &attr);
	if (r == 0 && attr.has_mode && attr.mode != DIRECTORY_MODE)
		r = nfs_setmode(c, &handle, DIRECTORY_MODE);
	return r < 0 ? nfs_error_set(err, c, r, "making directory '%s'", name) : 0;
}

static int make_empty(const struct making *m, struct error *err)
{
	enum volume_existing existing = existing_of(m->rec);

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
	return is_built(m->rec) ? make_contents(m, &empty, err) : make_empty(m, err);
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
	if (r == 0)
		r = owner_check_record(c, key, ret, err);
	if (r > 0)
		record_done(ret);
	return r == -ENOENT || r > 0 ? 0 : r;
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
	return r == -ENOENT ? is_used_by_others(c, t, err) : r;
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
			      const struct volume_disposal *how, bool *ret_trashed,
			      struct error *err)
{
	const char *key = t->key, *dir = t->dir;
	const struct record *rec = &t->record;
	const struct owner_question q = { .volume = key, .has_record = true, .scope = OWNER_ALL };
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct owner owner;
	int r;

	if (is_built(rec)) {
		r = build_is_in_place(c, rec, dir, err);
		if (r > 0)
			return dispose(c, t, how, ret_trashed, err);
		return r < 0 ? r : directory_remove_parents(c, dir, err);
	}
	r = existing_of(rec) == EXISTING_REQUIRE ? 1 : owner_find(c, dir, &q, &owner, err);
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
		r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, false, &folder, err);
		if (r == 0)
			r = is_anothers_record(c, folder, t->key, err);
	}
	if (r > 0)
		return 0;
	return r < 0 && r != -ENOENT ? r : usage_forget(c, t->key, t->dir, err);
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

	if (is_built(rec))
		r = build_discard(c, t->key, ret_trashed, err);
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
	cleanup_record struct record rec = { .n = 0 };
	const struct nfs_handle *folder;
	int r;

	if (!volume_key_can_have_record(t->key))
		return 0;
	r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, false, &folder, err);
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
		r = is_anothers_record(c, folder, t.key, err);
	if (r > 0)
		return 0;
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
	/* A deletion does not count a volume that is not decided on: it may have taken what was found. */
	if (r > 0 && !made) {
		r = note_check_kept(c, dir, err);
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
		  const Csi__V1__CapacityRange *range, const struct volume_filler *filler,
		  struct error *err)
{
	bool made = false;
	struct making m = { .c = c, .key = key, .rec = rec, .made = &made };
	const struct nfs_handle *busy;
	bool begun;
	char version[8];
	int r;

	(void)snprintf(version, sizeof(version), "%u", c->version);
	if (record_set(rec, VOLUME_KEY_VERSION, version) < 0)
		return error_oom(err);
	r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, true, &m.folder, err);
	if (r < 0)
		return r;
	r = record_create(c, m.folder, key, rec, err);
	m.created = r == 0;
	if (r == -EEXIST)
		r = adopt(c, m.folder, key, rec, range, err);
	if (r == 0)
		r = dir_of(c, rec, key, &m.dir, err);
	if (r < 0)
		return r;
	begun = m.created || owner_is_open(rec);
	/* One that is finished has its directory; one named by default does not tell whether it is. */
	m.exclusive = owner_is_exclusive(key, rec) && !build_is_ready(rec);
	/* For the deletion, which may come when the share is full. */
	r = nfs_state_folder(c, NFS_FOLDER_BUSY, true, &busy, err);
	if (r == 0)
		r = usage_note(c, key, m.dir, err);
	if (r == 0)
		r = finish_deletions(c, key, m.dir, filler, err);
	if (r == 0)
		r = make(&m, filler, err);
	if (r == 0)
		r = check_still_there(c, m.folder, key, m.dir, rec, made, err);
	if (r < 0 && r != -ESTALE)
		undo(c, m.folder, key, rec, m.dir, begun, err);
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
	if (has_directory && !owner_is_open(rec))
		return 0;
	return error_sys(err, ERROR_NOT_FOUND, ENOENT, "volume directory '%s' on %s:%s", id->subdir,
			 c->export.server, c->export.share);
}
