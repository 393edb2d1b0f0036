/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/volume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/volume_parts.h"

int64_t volume_size(const struct record *rec)
{
	const char *text = record_get(rec, VOLUME_KEY_SIZE);
	uint64_t size;

	if (text == NULL || str_parse_u64(text, 10, INT64_MAX, &size) < 0)
		return 0;
	return (int64_t)size;
}

/* What ControllerModifyVolume has made of it, else what it was created with. */
const char *volume_setting(const struct record *rec, const char *key)
{
	char modified[32];
	const char *value;

	(void)snprintf(modified, sizeof(modified), "%s%s", VOLUME_MODIFIED_PREFIX, key);
	value = record_get(rec, modified);
	return value != NULL ? value : record_get(rec, key);
}

static bool id_of(const struct record *rec, const char *key, uint32_t *ret)
{
	const char *text = volume_setting(rec, key);
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

enum volume_existing volume_existing_of(const struct record *rec)
{
	const char *text = record_get(rec, VOLUME_KEY_EXISTING);
	enum volume_existing value;

	return text != NULL && existing_parse(text, &value) == 0 ? value : EXISTING_ADOPT;
}

/* Records come from a share that others may write to: a path in one is checked like any input. */
int volume_dir_of(struct nfs_client *c, const struct record *rec, const char *key, const char **ret,
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
bool volume_is_built(const struct record *rec)
{
	return record_get(rec, VOLUME_KEY_SOURCE) != NULL ||
	       (record_get(rec, VOLUME_KEY_CLAIM) != NULL &&
		volume_existing_of(rec) == EXISTING_REFUSE);
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
	r = store_folder(c, STORE_VOLUMES, false, &folder, err);
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
		return volume_dir_of(c, rec, volume_id_key(id), ret, err);
	*ret = id->subdir;
	return 0;
}

enum volume_on_delete volume_policy_of(const struct record *rec, const struct volume_id *id,
				       enum volume_on_delete default_policy)
{
	const char *text = volume_setting(rec, VOLUME_KEY_ON_DELETE);
	enum volume_on_delete policy;

	if (text == NULL)
		text = id->on_delete;
	if (text[0] == '\0' || on_delete_parse(text, &policy) < 0)
		return default_policy;
	return policy;
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
