/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/volume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "csi/directory.h"
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

static uint32_t mode_of(const struct record *rec)
{
	const char *text = record_get(rec, VOLUME_KEY_MODE);
	uint64_t mode;

	if (text == NULL || str_parse_u64(text, 8, 07777, &mode) < 0)
		return 0;
	return (uint32_t)mode;
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

/* Codes after which a CO may forget the volume, so that nothing of it may stay behind. */
static bool is_final(enum error_code code)
{
	return code != ERROR_CANCELLED && code != ERROR_DEADLINE_EXCEEDED &&
	       code != ERROR_UNAVAILABLE && code != ERROR_ABORTED;
}

/*
 * Takes back what was made for a volume, after a failure. Where that fails too, the CO has to come
 * back: the code becomes one that makes it do so.
 */
static void undo(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
		 const struct record *rec, const char *dir, bool created, struct error *err)
{
	struct error second = { .code = ERROR_OK };

	if (err == NULL || !is_final(err->code))
		return;
	/* A volume that was there before keeps its record, whatever has become of its directory. */
	if (!created && directory_is_gone(c, dir, &second) != 1)
		return;
	if (directory_remove_parents(c, dir, &second) < 0 ||
	    record_remove(c, folder, key, rec, &second) < 0)
		err->code = ERROR_ABORTED;
}

int volume_create(struct nfs_client *c, const char *key, struct record *rec,
		  const Csi__V1__CapacityRange *range, struct error *err)
{
	const struct nfs_handle *folder;
	const char *dir;
	bool created;
	int r;

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
	/* What an attempt before this one may have made is not somebody else's. */
	r = directory_make(c, dir, mode_of(rec), created ? existing_of(rec) : EXISTING_ADOPT, err);
	if (r < 0 && r != -ESTALE)
		undo(c, folder, key, rec, dir, created, err);
	return r;
}

/* Ids of volumes that csi-driver-nfs made may hold what is no name for a record. */
static bool key_can_have_record(const char *key)
{
	return strchr(key, '/') == NULL && strlen(key) <= RECORD_NAME_MAX;
}

/* The volume's record; ret stays empty where there is none. *ret_folder NULL: no folder either. */
static int read_record(struct nfs_client *c, const char *key, struct record *ret,
		       const struct nfs_handle **ret_folder, struct error *err)
{
	int r;

	*ret_folder = NULL;
	if (!key_can_have_record(key))
		return 0;
	r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, false, ret_folder, err);
	if (r == 0)
		r = record_read(c, *ret_folder, key, ret, err);
	return r == -ENOENT ? 0 : r;
}

static enum volume_on_delete policy_of(const struct record *rec, const struct volume_id *id,
				       enum volume_on_delete default_policy)
{
	const char *text = record_get(rec, VOLUME_KEY_ON_DELETE);
	enum volume_on_delete policy;

	if (text == NULL)
		text = id->on_delete;
	if (text[0] == '\0' || on_delete_parse(text, &policy) < 0)
		return default_policy;
	return policy;
}

static int delete_directory(struct nfs_client *c, const char *dir, const char *key,
			    bool *ret_trashed, struct error *err)
{
	struct directory_place place;
	int r;

	r = directory_locate(c, dir, &place, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	return directory_remove(c, &place, key, ret_trashed, err);
}

static int dispose(struct nfs_client *c, const char *dir, const char *key,
		   enum volume_on_delete policy, bool *ret_trashed, struct error *err)
{
	int r;

	switch (policy) {
	case ON_DELETE_RETAIN:
		return 0;
	case ON_DELETE_ARCHIVE:
		r = directory_archive(c, dir, err);
		break;
	case ON_DELETE_DELETE:
	default:
		r = delete_directory(c, dir, key, ret_trashed, err);
		break;
	}
	return r < 0 ? r : directory_remove_parents(c, dir, err);
}

int volume_delete(struct nfs_client *c, const struct volume_id *id,
		  enum volume_on_delete default_policy, bool *ret_trashed, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const char *key = volume_id_key(id), *dir = id->subdir, *slash;
	const struct nfs_handle *folder;
	int r;

	*ret_trashed = false;
	r = read_record(c, key, &rec, &folder, err);
	if (r == 0 && rec.n > 0)
		r = dir_of(c, &rec, key, &dir, err);
	if (r < 0)
		return r;
	slash = strrchr(dir, '/');
	r = dispose(c, dir, slash != NULL ? slash + 1 : dir, policy_of(&rec, id, default_policy),
		    ret_trashed, err);
	if (r < 0 || folder == NULL)
		return r;
	if (rec.n == 0)
		return record_forget(c, folder, key, err);
	return record_remove(c, folder, key, &rec, err);
}

int volume_look(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		bool *ret_has_directory, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const char *key = volume_id_key(id), *dir = id->subdir;
	const struct nfs_handle *folder;
	int r;

	r = read_record(c, key, &rec, &folder, err);
	if (r == 0 && rec.n > 0)
		r = dir_of(c, &rec, key, &dir, err);
	if (r == 0)
		r = directory_is_gone(c, dir, err);
	if (r < 0)
		return r;
	*ret_has_directory = r == 0;
	*ret = rec;
	rec = (struct record){ .n = 0 };
	return 0;
}

int volume_find(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		struct error *err)
{
	struct record rec = { .n = 0 };
	bool has_directory;
	int r;

	r = volume_look(c, id, &rec, &has_directory, err);
	if (r < 0)
		return r;
	if (!has_directory) {
		record_done(&rec);
		return error_sys(err, ERROR_NOT_FOUND, ENOENT, "volume directory '%s' on %s:%s",
				 id->subdir, c->export.server, c->export.share);
	}
	*ret = rec;
	return 0;
}

static int set_size(struct record *rec, int64_t size, struct error *err)
{
	char number[32];

	(void)snprintf(number, sizeof(number), "%" PRId64, size);
	return record_set(rec, VOLUME_KEY_SIZE, number) < 0 ? error_oom(err) : 0;
}

/* What csi-driver-nfs made has no record: its size has to be kept somewhere from now on. */
static int describe_foreign(struct record *rec, const struct volume_id *id, struct error *err)
{
	cleanup_free char *text = volume_id_format(id);
	enum volume_on_delete policy;
	int r = text != NULL ? 0 : -ENOMEM;

	if (r == 0)
		r = record_set(rec, VOLUME_KEY_NAME, volume_id_key(id));
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_ID, text);
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_DIR, id->subdir);
	if (r == 0)
		r = record_set(rec, VOLUME_KEY_MODE, "0000");
	/* Without it, the policy of the time of the deletion counts, as before. */
	if (r == 0 && id->on_delete[0] != '\0' && on_delete_parse(id->on_delete, &policy) == 0)
		r = record_set(rec, VOLUME_KEY_ON_DELETE, on_delete_name(policy));
	return r < 0 ? error_oom(err) : 0;
}

/* A quota of the server's on the directory shows as a file system smaller than the export's. */
static int check_quota(struct nfs_client *c, const char *dir, int64_t size, struct error *err)
{
	struct nfs_space whole, own;
	struct directory_place place;
	struct nfs_handle handle;
	int r;

	r = directory_locate(c, dir, &place, err);
	if (r == 0)
		r = nfs_lookup(c, &place.parent, place.base, &handle, NULL);
	if (r == 0)
		r = nfs_fsstat(c, &c->root, &whole);
	if (r == 0)
		r = nfs_fsstat(c, &handle, &own);
	if (r < 0)
		return nfs_error_set(err, c, r, "asking for the space of '%s'", dir);
	if (own.total > 0 && own.total < whole.total && own.total < (uint64_t)size)
		return error_set(err, ERROR_OUT_OF_RANGE,
				 "the server's own quota gives '%s' on %s:%s %" PRIu64
				 " bytes: raise it there first",
				 dir, c->export.server, c->export.share, own.total);
	return 0;
}

/* The size that a volume gets: what is required, exactly, and never less than it has. */
static int expanded_size(int64_t have, const Csi__V1__CapacityRange *range, int64_t *ret,
			 struct error *err)
{
	if (range->limit_bytes > 0 && have > range->limit_bytes)
		return error_set(err, ERROR_OUT_OF_RANGE,
				 "capacity_range: limit_bytes is below the size that the volume has, %" PRId64
				 " bytes",
				 have);
	*ret = range->required_bytes > have ? range->required_bytes : have;
	return 0;
}

static int write_size(struct nfs_client *c, const char *key, const struct volume_id *id,
		      const struct nfs_handle *folder, struct record *rec, int64_t size,
		      struct error *err)
{
	bool fresh = rec->n == 0;
	int r = 0;

	if (fresh && !key_can_have_record(key))
		return 0; /* an id of early csi-driver-nfs; there is nowhere to keep it */
	if (fresh)
		r = describe_foreign(rec, id, err);
	if (r == 0)
		r = set_size(rec, size, err);
	if (r < 0)
		return r;
	if (!fresh)
		return record_replace(c, folder, key, rec, err);
	r = record_create(c, folder, key, rec, err);
	if (r == -EEXIST)
		return error_set(err, ERROR_ABORTED, "the volume is being changed; try again");
	return r;
}

int volume_expand(struct nfs_client *c, const struct volume_id *id,
		  const Csi__V1__CapacityRange *range, struct record *ret, int64_t *ret_size,
		  struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	const char *key = volume_id_key(id), *dir = id->subdir;
	const struct nfs_handle *folder;
	int64_t size = 0;
	int r;

	r = volume_find(c, id, &rec, err);
	if (r == 0 && rec.n > 0)
		r = dir_of(c, &rec, key, &dir, err);
	if (r == 0)
		r = expanded_size(volume_size(&rec), range, &size, err);
	if (r == 0 && size != volume_size(&rec)) {
		r = check_quota(c, dir, size, err);
		if (r == 0)
			r = nfs_state_folder(c, NFS_FOLDER_VOLUMES, true, &folder, err);
		if (r == 0)
			r = write_size(c, key, id, folder, &rec, size, err);
	}
	if (r < 0)
		return r;
	*ret_size = size;
	*ret = rec;
	rec = (struct record){ .n = 0 };
	return 0;
}
