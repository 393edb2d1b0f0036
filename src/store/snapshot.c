/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "store/owner.h"
#include "store/snapshot_parts.h"
#include "store/volume.h"
#include "tree/archive.h"

/* -------- the record -------- */

struct snapshot_info snapshot_info_of(const struct record *rec)
{
	const struct volume common = volume_of(rec);
	struct snapshot_info info = {
		.name = common.name,
		.id = common.id,
		.source = record_get(rec, SNAPSHOT_KEY_SOURCE),
		.size = common.size,
		.owner = common.owner,
		.ready = common.staging.ready,
	};

	/* A damaged time stays 0. */
	(void)str_parse_u64(record_get(rec, SNAPSHOT_KEY_TIME), 10, INT64_MAX, &info.time_ns);
	return info;
}

bool snapshot_info_is_complete(const struct snapshot_info *info)
{
	return info->id != NULL && info->source != NULL && info->ready;
}

int snapshot_describe(struct record *rec, const struct snapshot_info *info,
		      const struct record *volume)
{
	static const char *const identity[] = { VOLUME_KEY_UID, VOLUME_KEY_GID };
	char size[32];
	size_t i;

	(void)snprintf(size, sizeof(size), "%" PRId64, info->size);
	if (record_set(rec, VOLUME_KEY_NAME, info->name) < 0 ||
	    record_set(rec, VOLUME_KEY_ID, info->id) < 0 ||
	    record_set(rec, SNAPSHOT_KEY_SOURCE, info->source) < 0 ||
	    record_set(rec, VOLUME_KEY_SIZE, size) < 0 ||
	    record_set(rec, SNAPSHOT_KEY_FILE, info->file) < 0)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(identity); i++) {
		const char *value = record_get(volume, identity[i]);

		if (value != NULL && record_set(rec, identity[i], value) < 0)
			return -ENOMEM;
	}
	return 0;
}

int snapshot_set_time(struct record *rec, struct nfs_time time)
{
	char number[32];

	(void)snprintf(number, sizeof(number), "%" PRIu64,
		       (uint64_t)time.sec * CLOCK_NS_PER_S + time.nsec);
	return record_set(rec, SNAPSHOT_KEY_TIME, number);
}

int snapshot_set_id(struct record *rec, const struct volume_id *id)
{
	cleanup_free char *text = volume_id_format(id);

	return text != NULL ? record_set(rec, VOLUME_KEY_ID, text) : -ENOMEM;
}

int snapshot_describe_foreign(struct snapshot *s, const char *id)
{
	cleanup_buf struct buf source = { 0 };

	if (buf_printf(&source, "%s#%s#%s##", s->id.server, s->id.share, s->id.on_delete) < 0 ||
	    record_set(&s->record, VOLUME_KEY_ID, id) < 0 ||
	    record_set(&s->record, SNAPSHOT_KEY_SOURCE, source.data) < 0 ||
	    snapshot_set_time(&s->record, s->time) < 0 || staging_set_ready(&s->record) < 0)
		return -ENOMEM;
	return 0;
}

/* -------- one snapshot -------- */

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

void snapshot_done(struct snapshot *s)
{
	volume_id_done(&s->id);
	record_done(&s->record);
}

void snapshot_work_key(char ret[SNAPSHOT_WORK_KEY_MAX], const char *name)
{
	(void)snprintf(ret, SNAPSHOT_WORK_KEY_MAX, "%s%s", SNAPSHOT_WORK_PREFIX, name);
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

struct archive_search {
	const char *source;
	bool has_others; /* out */
};

static int look_for_others(void *data, const struct nfs_entry *entry)
{
	struct archive_search *search = data;

	if (!str_has_prefix(entry->name, search->source))
		search->has_others = true;
	return 0;
}

int snapshot_is_alone(struct nfs_client *c, const char *name, const char *source, struct error *err)
{
	struct archive_search search = { .source = source };
	struct nfs_handle folder;
	int r;

	r = nfs_lookup(c, &c->root, name, &folder, NULL);
	if (r == 0)
		r = nfs_readdir(c, &folder, look_for_others, &search);
	if (r == -ENOENT)
		return 0; /* another replica may have deleted it meanwhile */
	if (r < 0)
		return nfs_error_set(err, c, r, "looking for snapshot '%s'", name);
	return !search.has_others;
}

/*
 * Set has_archive for a directory without a snapshot's record. An archive alone does not make it a
 * snapshot, since a volume may hold a file of that name: nothing else may be beside it, as
 * csi-driver-nfs leaves it, and the directory of a volume with a record is no snapshot, whatever is
 * in it.
 */
static int check_foreign_archive(struct nfs_client *c, struct snapshot *s, struct error *err)
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

int snapshot_read(struct nfs_client *c, struct snapshot *s, struct error *err)
{
	cleanup_free char *id = volume_id_format(&s->id);
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
	if (id == NULL)
		return error_oom(err);
	s->is_other = s->record.n > 0 && !str_eq(snapshot_info_of(&s->record).id, id);
	if (s->is_other)
		return 0;
	r = snapshot_find_archive(c, &s->id, &handle, &attr, err);
	s->has_archive = r == 0;
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	s->time = attr.mtime;
	return s->record.n == 0 ? check_foreign_archive(c, s, err) : 0;
}

bool snapshot_is_ready(const struct snapshot *s)
{
	return s->has_archive && (s->record.n == 0 || snapshot_info_of(&s->record).ready);
}
