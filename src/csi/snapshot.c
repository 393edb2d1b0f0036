/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/str.h"
#include "csi/validate.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/staging.h"
#include "store/tombstone.h"
#include "store/users.h"
#include "store/volume.h"
#include "tree/archive.h"

/* -------- one that an id names -------- */

int snapshot_init(struct snapshot *s, const struct csi_driver *driver, const char *id,
		  const struct csi_map *secrets, struct error *err)
{
	int r;

	*s = (struct snapshot){ .has_archive = false };
	r = volume_id_parse(&s->id, id);
	if (r == -ENOMEM)
		return error_oom(err);
	/* The name is there twice, and is a directory in the root of the share. */
	if (r < 0 || s->id.on_delete[0] == '\0' || strcmp(s->id.subdir, s->id.uuid) != 0 ||
	    strchr(s->id.subdir, '/') != NULL || strchr(s->id.on_delete, '/') != NULL ||
	    strlen(s->id.subdir) > RECORD_NAME_MAX || strlen(s->id.on_delete) > RECORD_NAME_MAX)
		return -EINVAL;
	r = nfs_export_init(&s->export, s->id.server, s->id.share, err);
	if (r < 0)
		return r;
	r = nfs_export_apply_options(&s->export, csi_map_get(secrets, SECRET_MOUNT_OPTIONS), err);
	if (r == -EINVAL)
		return -EBADMSG; /* that is the secret's fault, not the id's */
	if (r == 0)
		known_exports_apply(driver->known, &s->export);
	return r;
}

void snapshot_work_key(char ret[SNAPSHOT_WORK_KEY_MAX], const char *name)
{
	(void)snprintf(ret, SNAPSHOT_WORK_KEY_MAX, "%s%s", SNAPSHOT_WORK_PREFIX, name);
}

void snapshot_done(struct snapshot *s)
{
	volume_id_done(&s->id);
	nfs_export_done(&s->export);
	record_done(&s->record);
}

int snapshot_find_archive(struct nfs_client *c, const struct volume_id *id, struct nfs_handle *ret,
			  struct nfs_attr *ret_attr, struct error *err)
{
	static const enum tree_compression order[] = {
		TREE_COMPRESSION_GZIP,
		TREE_COMPRESSION_NONE,
		TREE_COMPRESSION_ZSTD,
	};
	char name[NFS_NAME_MAX + 1];
	struct nfs_handle folder;
	size_t i;
	int r;

	r = nfs_lookup(c, &c->root, id->subdir, &folder, ret_attr);
	if (r == 0 && ret_attr->type != NFS_TYPE_DIRECTORY)
		r = -ENOENT;
	for (i = 0; i < ARRAY_SIZE(order) && (r == 0 || (i > 0 && r == -ENOENT)); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", id->on_delete,
			       tree_compression_suffix(order[i]));
		r = nfs_lookup(c, &folder, name, ret, ret_attr);
		if (r == 0)
			r = nfs_stat(c, ret, ret_attr);
		if (r == 0 && ret_attr->type == NFS_TYPE_FILE)
			return 0;
		if (r == 0)
			r = -ENOENT;
	}
	return r == -ENOENT ? r : nfs_error_set(err, c, r, "looking for snapshot '%s'", id->subdir);
}

struct lonely {
	const char *source;
	bool has_others;
};

static int look_for_others(void *data, const struct nfs_entry *entry)
{
	struct lonely *l = data;

	if (!str_has_prefix(entry->name, l->source))
		l->has_others = true;
	return 0;
}

int snapshot_is_alone(struct nfs_client *c, const char *name, const char *source, struct error *err)
{
	struct lonely l = { .source = source };
	struct nfs_handle folder;
	int r;

	r = nfs_lookup(c, &c->root, name, &folder, NULL);
	if (r == 0)
		r = nfs_readdir(c, &folder, look_for_others, &l);
	if (r == -ENOENT)
		return 0; /* another replica may have deleted it meanwhile */
	if (r < 0)
		return nfs_error_set(err, c, r, "looking for snapshot '%s'", name);
	return !l.has_others;
}

/*
 * What has no record is known by its archive, and that nothing else is beside it, as csi-driver-nfs has it:
 * a volume may well hold a file of that name. One that has a record is none, whatever is in it.
 */
static int check_alone(struct nfs_client *c, struct snapshot *s, struct error *err)
{
	const struct owner_question q = { .scope = OWNER_VOLUMES };
	struct owner owner;
	int r;

	r = owner_find(c, s->id.subdir, &q, &owner, err);
	s->has_archive = false;
	if (r != 0)
		return r < 0 ? r : 0;
	r = snapshot_is_alone(c, s->id.subdir, s->id.on_delete, err);
	s->has_archive = r > 0;
	return r < 0 ? r : 0;
}

static int check_id(struct snapshot *s, struct error *err)
{
	cleanup_free char *id = volume_id_format(&s->id);

	if (id == NULL)
		return error_oom(err);
	s->is_other = s->record.n > 0 && !str_eq(record_get(&s->record, SNAPSHOT_KEY_ID), id);
	return 0;
}

static int read_work(struct nfs_client *c, void *data, struct error *err)
{
	const struct nfs_handle *folder;
	struct snapshot *s = data;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	record_done(&s->record);
	r = store_folder(c, STORE_SNAPSHOTS, false, &folder, err);
	if (r == 0)
		r = record_read(c, folder, s->id.subdir, &s->record, err);
	if (r < 0 && r != -ENOENT)
		return r;
	r = check_id(s, err);
	if (r < 0 || s->is_other)
		return r;
	r = snapshot_find_archive(c, &s->id, &handle, &attr, err);
	s->has_archive = r == 0;
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	s->time = attr.mtime;
	return s->record.n == 0 ? check_alone(c, s, err) : 0;
}

int snapshot_read(struct snapshot *s, const struct csi_driver *driver, struct error *err)
{
	return csi_with_reader(driver, &s->export, read_work, s, err);
}

bool snapshot_is_ready(const struct snapshot *s)
{
	return s->has_archive && (s->record.n == 0 || staging_is_ready(&s->record));
}

int64_t snapshot_size(const struct snapshot *s)
{
	return volume_size(&s->record); /* the key is the same */
}

/* -------- DeleteSnapshot -------- */

struct removal {
	struct snapshot *snapshot;
	struct trash trash;
};

/* Only what holds the archive, or was built for the record, is a snapshot's directory. */
static int remove_directory(struct nfs_client *c, const struct tombstone *t, bool has_archive,
			    bool *ret_trashed, struct error *err)
{
	const struct owner_question q = { .snapshot = t->dir,
					  .scope = OWNER_VOLUMES,
					  .finished = true };
	struct owner owner;
	bool trashed = false;
	int r = has_archive;

	if (r == 0)
		r = staging_is_in_place(c, &t->record, t->dir, err);
	if (r <= 0)
		return r;
	r = owner_find(c, t->dir, &q, &owner, err);
	if (r != 0)
		return r < 0 ? r : owner_refuse(c, t->dir, &owner, t->dir, err);
	r = tombstone_remove_directory(c, t, t->dir, t->dir, NULL, &trashed, err);
	*ret_trashed = *ret_trashed || trashed;
	return r;
}

/*
 * What there is to do once the tombstone is set. Returns 1 where the record came back. What is being built
 * goes first: it cannot get into its place then.
 */
static int carry_out(struct nfs_client *c, struct tombstone *t, bool has_archive, bool *ret_trashed,
		     struct error *err)
{
	char work_key[SNAPSHOT_WORK_KEY_MAX];
	int r;

	snapshot_work_key(work_key, t->dir);
	r = staging_discard(c, work_key, ret_trashed, err);
	if (r == 0)
		r = remove_directory(c, t, has_archive, ret_trashed, err);
	return r < 0 ? r : tombstone_finish(c, t, err);
}

static int find_tombstone(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
			  struct error *err)
{
	struct tombstone *t = data;
	int r;

	if (kind != BUSY_SNAPSHOT_GONE || !busy_is_of(name, t->dir))
		return 0;
	r = tombstone_adopt(c, t, name, err);
	if (r == -ENOENT)
		t->name[0] = '\0';
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

/* Sets the tombstone, or finds that of a deletion that was cut short, or that another replica is at. */
static int bury(struct nfs_client *c, const struct snapshot *s, struct tombstone *t, struct error *err)
{
	cleanup_free char *id = volume_id_format(&s->id);
	cleanup_record struct record rec = { .n = 0 };
	int r;

	if (id == NULL || record_set(&rec, SNAPSHOT_KEY_ID, id) < 0)
		return error_oom(err);
	if (s->record.n > 0) {
		r = tombstone_set(c, t, err);
		if (r != -ENOENT)
			return r;
		t->name[0] = '\0';
	}
	r = busy_each(c, t->dir, find_tombstone, t, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (s->record.n == 0)
		return s->has_archive ? tombstone_set_new(c, t, &rec, err) : 0;
	(void)error_set(err, ERROR_ABORTED, "the snapshot is being deleted; try again");
	return -EAGAIN;
}

static int remove_work(struct nfs_client *c, void *data, struct error *err)
{
	cleanup_tombstone struct tombstone t = { .kind = BUSY_SNAPSHOT_GONE };
	struct removal *x = data;
	struct snapshot *s = x->snapshot;
	const struct nfs_handle *folder;
	int r;

	t.key = t.dir = s->id.subdir;
	csi_trash_of(&x->trash, &s->export, c);
	r = busy_check_unused(c, t.dir, err);
	if (r == 0)
		r = bury(c, s, &t, err);
	if (r == 0)
		r = carry_out(c, &t, s->has_archive, &x->trash.is_used, err);
	if (r < 0 && r != -ESTALE)
		tombstone_restore(c, &t);
	if (r > 0) {
		(void)error_set(err, ERROR_ABORTED, "the snapshot is being changed; try again");
		return -EAGAIN;
	}
	if (r < 0 || s->record.n > 0)
		return r;
	/* Of versions before this one. */
	r = store_folder(c, STORE_SNAPSHOTS, false, &folder, err);
	if (r == 0)
		r = record_forget_draft(c, folder, t.key, NULL, err);
	if (r == 0)
		r = record_forget(c, folder, t.key, err);
	return r == -ENOENT ? 0 : r;
}

static int finish_deletion(struct nfs_client *c, const char *name, enum busy_kind kind, void *data,
			   struct error *err)
{
	cleanup_tombstone struct tombstone t = { .kind = kind, .key = data, .dir = data };
	cleanup_volume_id struct volume_id id = { NULL };
	struct nfs_handle handle;
	struct nfs_attr attr;
	bool trashed = false;
	const char *text;
	int r;

	if (kind == BUSY_SNAPSHOT_GONE && busy_is_of(name, data)) {
		r = tombstone_adopt(c, &t, name, err);
		if (r == -ENOENT)
			return 0;
		text = record_get(&t.record, SNAPSHOT_KEY_ID);
		if (r == 0 && text != NULL && volume_id_parse(&id, text) == 0) {
			r = snapshot_find_archive(c, &id, &handle, &attr, err);
			if (r == 0 || r == -ENOENT)
				r = carry_out(c, &t, r == 0, &trashed, err);
		}
		if (r <= 0)
			return r;
	} else if (kind != BUSY_VOLUME_GONE) {
		return 0;
	}
	(void)error_set(err, ERROR_ABORTED, "directory '%s' is being deleted; try again",
			(const char *)data);
	return -EAGAIN;
}

int snapshot_finish_deletions(struct nfs_client *c, const char *name, struct error *err)
{
	return busy_each(c, name, finish_deletion, (void *)(uintptr_t)name, err);
}

static int delete_snapshot(const struct csi_driver *driver, const Csi__V1__DeleteSnapshotRequest *in,
			   struct snapshot *s, struct error *err)
{
	cleanup_inflight_lock struct inflight_lock *lock = NULL;
	cleanup_usage_lock struct usage_lock *usage = NULL;
	const struct csi_map secrets = csi_map_of(in, secrets);
	struct removal x = { .snapshot = s };
	struct volume_owner owner;
	int r;

	r = validate_required(in->snapshot_id, "snapshot_id", err);
	if (r < 0)
		return r;
	r = snapshot_init(s, driver, in->snapshot_id, &secrets, err);
	if (r < 0)
		return r == -EINVAL ? 0 : r; /* none that ever was here */
	r = csi_lock(driver, "snapshot", &s->export, s->id.subdir, &lock, err);
	if (r == 0)
		r = usage_acquire(driver->usage, &s->export, s->id.subdir, true, &usage, err);
	if (r == 0)
		r = snapshot_read(s, driver, err);
	if (r < 0 || s->is_other)
		return r;
	owner = volume_owner_of(&s->record);
	r = csi_with_owner(driver, &s->export, &owner, remove_work, &x, err);
	csi_purge(driver, &x.trash);
	return r;
}

void controller_delete_snapshot(Csi__V1__Controller_Service *service,
				const Csi__V1__DeleteSnapshotRequest *in,
				Csi__V1__DeleteSnapshotResponse_Closure closure, void *data)
{
	const Csi__V1__DeleteSnapshotResponse out = CSI__V1__DELETE_SNAPSHOT_RESPONSE__INIT;
	struct snapshot s = { .has_archive = false };
	struct request *req = data;
	int r;

	csi_set_subject(req, in->snapshot_id);
	r = delete_snapshot(csi_controller_driver(service), in, &s, &req->err);
	snapshot_done(&s);
	closure(r < 0 ? NULL : &out, data);
}
