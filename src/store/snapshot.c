/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/snapshot_parts.h"
#include "store/staging.h"
#include "tree/archive.h"

int snapshot_init(struct snapshot *s, const char *id, struct error *err)
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
	return 0;
}

void snapshot_work_key(char ret[SNAPSHOT_WORK_KEY_MAX], const char *name)
{
	(void)snprintf(ret, SNAPSHOT_WORK_KEY_MAX, "%s%s", SNAPSHOT_WORK_PREFIX, name);
}

void snapshot_done(struct snapshot *s)
{
	volume_id_done(&s->id);
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

int snapshot_read(struct nfs_client *c, struct snapshot *s, struct error *err)
{
	const struct nfs_handle *folder;
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

bool snapshot_is_ready(const struct snapshot *s)
{
	return s->has_archive && (s->record.n == 0 || staging_is_ready(&s->record));
}
