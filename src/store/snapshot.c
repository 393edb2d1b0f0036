/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

#define CRC32_DIGITS 8

/* Archives are looked for as csi-driver-nfs does, gzip first. */
#define ARCHIVE_ORDER TREE_COMPRESSION_GZIP, TREE_COMPRESSION_NONE, TREE_COMPRESSION_ZSTD

/* -------- the record -------- */

/* Return 1, 0 if there is no sum, or -EINVAL for a damaged one. */
static int parse_sum(const struct record *rec, struct tree_archive_sum *ret)
{
	const char *bytes = record_get(rec, SNAPSHOT_KEY_BYTES);
	const char *crc32 = record_get(rec, SNAPSHOT_KEY_CRC32);
	uint64_t n, sum;

	if (bytes == NULL && crc32 == NULL)
		return 0;
	if (bytes == NULL || crc32 == NULL || strlen(crc32) != CRC32_DIGITS ||
	    str_parse_u64(bytes, 10, INT64_MAX, &n) < 0 ||
	    str_parse_u64(crc32, 16, UINT32_MAX, &sum) < 0)
		return -EINVAL;
	*ret = (struct tree_archive_sum){ .bytes = n, .crc32 = (uint32_t)sum };
	return 1;
}

struct snapshot_info snapshot_info_of(const struct record *rec)
{
	const struct volume common = volume_of(rec);
	struct snapshot_info info = {
		.name = common.name,
		.id = common.id,
		.source = record_get(rec, SNAPSHOT_KEY_SOURCE),
		.size = common.size,
		.file = record_get(rec, SNAPSHOT_KEY_FILE),
		.owner = common.owner,
		.ready = common.staging.ready,
	};

	/* A damaged time stays 0. */
	(void)str_parse_u64(record_get(rec, SNAPSHOT_KEY_TIME), 10, INT64_MAX, &info.time_ns);
	info.has_sum = parse_sum(rec, &info.sum) > 0;
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

int snapshot_set_archive(struct record *rec, const char *file, const struct tree_archive_sum *sum)
{
	char bytes[32], crc32[CRC32_DIGITS + 1];

	(void)snprintf(bytes, sizeof(bytes), "%" PRIu64, sum->bytes);
	(void)snprintf(crc32, sizeof(crc32), "%08" PRIx32, sum->crc32);
	if (record_set(rec, SNAPSHOT_KEY_FILE, file) < 0 ||
	    record_set(rec, SNAPSHOT_KEY_BYTES, bytes) < 0 ||
	    record_set(rec, SNAPSHOT_KEY_CRC32, crc32) < 0)
		return -ENOMEM;
	return 0;
}

int snapshot_set_tree(struct record *rec, const char *name)
{
	/* An interrupted attempt may have made an archive. */
	record_unset(rec, SNAPSHOT_KEY_BYTES);
	record_unset(rec, SNAPSHOT_KEY_CRC32);
	return record_set(rec, SNAPSHOT_KEY_FILE, name);
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

/* -------- a share that has moved -------- */

int snapshot_has_source_of(const struct snapshot_info *have, const struct snapshot_info *want)
{
	cleanup_volume_id_pair struct volume_id_pair a = { .own = { .server = NULL } };
	cleanup_volume_id_pair struct volume_id_pair b = { .own = { .server = NULL } };
	int r;

	if (have->source != NULL && str_eq(have->source, want->source))
		return 1;
	r = volume_id_pair_parse(&a, have->id, have->source);
	if (r == 0)
		r = volume_id_pair_parse(&b, want->id, want->source);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	return volume_id_pair_has_source_of(&a, &b);
}

/* Set the address in an id, and the id in the record. Return 0 or -ENOMEM. */
static int set_address_of(struct record *rec, const char *key, struct volume_id *id,
			  const struct volume_id *at)
{
	cleanup_free char *text = NULL;

	free(id->server);
	free(id->share);
	id->server = strdup(at->server);
	id->share = strdup(at->share);
	if (id->server == NULL || id->share == NULL)
		return -ENOMEM;
	text = volume_id_format(id);
	return text != NULL ? record_set(rec, key, text) : -ENOMEM;
}

int snapshot_set_address(struct record *rec, const struct volume_id *at)
{
	cleanup_volume_id_pair struct volume_id_pair ids = { .own = { .server = NULL } };
	const struct snapshot_info info = snapshot_info_of(rec);
	bool on_one_share;
	int r = volume_id_pair_parse(&ids, info.id, info.source);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	if (volume_id_has_address_of(&ids.own, at))
		return 0;
	on_one_share = volume_id_has_address_of(&ids.own, &ids.source);
	r = set_address_of(rec, VOLUME_KEY_ID, &ids.own, at);
	return r < 0 || !on_one_share ? r
				      : set_address_of(rec, SNAPSHOT_KEY_SOURCE, &ids.source, at);
}

/* -------- checking a record -------- */

static bool is_archive_name(const char *name, const char *source, enum tree_compression compression)
{
	return str_has_prefix(name, source) &&
	       strcmp(name + strlen(source), tree_compression_suffix(compression)) == 0;
}

static bool is_any_archive_name(const char *name, const char *source)
{
	static const enum tree_compression any[] = { ARCHIVE_ORDER };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(any); i++)
		if (is_archive_name(name, source, any[i]))
			return true;
	return false;
}

static bool is_tree_name(const char *name, const char *source)
{
	return str_has_prefix(name, source) &&
	       strcmp(name + strlen(source), SNAPSHOT_TREE_SUFFIX) == 0;
}

/* Return 0, -EINVAL or -ENOMEM. The caller calls volume_id_done() in each case. */
static int parse_snapshot_id(const char *text, struct volume_id *ret)
{
	int r = volume_id_parse(ret, text);

	if (r < 0)
		return r;
	/* The name is both subDir and uuid, and a directory in the root of the share. */
	if (ret->on_delete[0] == '\0' || strcmp(ret->subdir, ret->uuid) != 0 ||
	    strchr(ret->subdir, '/') != NULL || strchr(ret->on_delete, '/') != NULL ||
	    strlen(ret->subdir) > RECORD_NAME_MAX || strlen(ret->on_delete) > RECORD_NAME_MAX)
		return -EINVAL;
	return 0;
}

/*
 * Whether a record is whole: 0, -EINVAL or -ENOMEM. snapshot_describe() writes the file's name
 * last, so a truncated record lacks it or part of it.
 */
static int snapshot_check_contents(const struct record *rec)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const struct snapshot_info info = snapshot_info_of(rec);
	struct tree_archive_sum sum = { .bytes = 0 };
	int r;

	if (info.name == NULL || info.id == NULL || info.source == NULL || info.file == NULL)
		return -EINVAL;
	r = parse_snapshot_id(info.id, &id);
	if (r == 0)
		r = parse_sum(rec, &sum);
	if (r < 0)
		return r;
	return is_any_archive_name(info.file, id.on_delete) || is_tree_name(info.file, id.on_delete)
		       ? 0
		       : -EINVAL;
}

bool snapshot_is_recorded_tree(const struct record *rec)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const struct snapshot_info info = snapshot_info_of(rec);

	return info.id != NULL && info.file != NULL && parse_snapshot_id(info.id, &id) == 0 &&
	       is_tree_name(info.file, id.on_delete);
}

static int snapshot_check_record(struct nfs_client *c, const char *key, const struct record *rec,
				 struct error *err)
{
	int r = snapshot_check_contents(rec);

	return r < 0 ? record_unusable(c, r, NFS_STATE_DIR "/snapshots", key,
				       "remove it to use its archive like one of csi-driver-nfs",
				       err)
		     : 0;
}

int snapshot_check_found_record(struct nfs_client *c, const char *key, const struct record *rec,
				struct error *err)
{
	int r = snapshot_check_record(c, key, rec, err);

	if (r < 0)
		return r;
	if (owner_check_record(c, key, rec, NULL) < 0)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "record '%s' in " NFS_STATE_DIR
				 "/snapshots on %s:%s is that of another snapshot: somebody has copied it; look at it with ls -l",
				 key, c->export.server, c->export.share);
	return 0;
}

/* -------- one snapshot -------- */

int snapshot_init(struct snapshot *s, const char *id, struct error *err)
{
	int r;

	*s = (struct snapshot){ .has_contents = false };
	r = parse_snapshot_id(id, &s->id);
	return r == -ENOMEM ? error_oom(err) : r;
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

/* Look for an archive, which is a file, or a tree in the snapshot's directory. */
static int look_for_contents(struct nfs_client *c, const struct nfs_handle *folder,
			     const char *source, const char *suffix, struct snapshot_contents *ret)
{
	int r;

	(void)snprintf(ret->name, sizeof(ret->name), "%s%s", source, suffix);
	r = nfs_lookup(c, folder, ret->name, &ret->handle, &ret->attr);
	if (r == 0)
		r = nfs_stat(c, &ret->handle, &ret->attr);
	if (r < 0)
		return r;
	return ret->attr.type == (ret->is_tree ? NFS_TYPE_DIRECTORY : NFS_TYPE_FILE) ? 0 : -ENOENT;
}

static int look_into_folder(struct nfs_client *c, const struct nfs_handle *folder,
			    const char *source, const char *recorded, struct snapshot_contents *ret)
{
	enum tree_compression order[] = { ARCHIVE_ORDER };
	int r = -ENOENT;
	size_t i;

	ret->is_tree = recorded != NULL && is_tree_name(recorded, source);
	if (ret->is_tree)
		r = look_for_contents(c, folder, source, SNAPSHOT_TREE_SUFFIX, ret);
	if (r != -ENOENT)
		return r;
	ret->is_tree = false;
	for (i = 1; recorded != NULL && i < ARRAY_SIZE(order); i++) {
		const enum tree_compression first = order[0];

		if (!is_archive_name(recorded, source, order[i]))
			continue;
		order[0] = order[i];
		order[i] = first;
	}
	for (i = 0; i < ARRAY_SIZE(order) && r == -ENOENT; i++)
		r = look_for_contents(c, folder, source, tree_compression_suffix(order[i]), ret);
	return r;
}

int snapshot_find_contents(struct nfs_client *c, const struct volume_id *id,
			   const struct record *rec, struct snapshot_contents *ret,
			   struct error *err)
{
	struct nfs_handle folder;
	int r;

	r = nfs_lookup(c, &c->root, id->subdir, &folder, &ret->attr);
	if (r == 0 && ret->attr.type != NFS_TYPE_DIRECTORY)
		return -ENOENT;
	if (r == 0)
		r = look_into_folder(c, &folder, id->on_delete, record_get(rec, SNAPSHOT_KEY_FILE),
				     ret);
	if (r == 0 || r == -ENOENT)
		return r;
	return nfs_error_set(err, c, r, "looking for snapshot '%s'", id->subdir);
}

const struct tree_archive_sum *snapshot_recorded_sum(const struct snapshot_info *info,
						     const struct snapshot_contents *contents)
{
	return info->has_sum && str_eq(info->file, contents->name) ? &info->sum : NULL;
}

struct archive_search {
	const char *source;
	bool has_others; /* out */
};

static int look_for_others(void *data, const struct nfs_entry *entry)
{
	struct archive_search *search = data;
	const bool is_file = entry->attr.type == NFS_TYPE_FILE ||
			     entry->attr.type == NFS_TYPE_UNKNOWN; /* the server did not tell */

	if (!is_file || !is_any_archive_name(entry->name, search->source))
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
		return r; /* another replica may have just deleted it */
	if (r < 0)
		return nfs_error_set(err, c, r, "looking for snapshot '%s'", name);
	return !search.has_others;
}

/*
 * Set has_contents for a directory without a snapshot's record. An archive in it does not make it a
 * snapshot, since a volume may hold a file of that name. It is one only if nothing else is in it,
 * as csi-driver-nfs leaves it, and no volume with a record has it.
 */
static int check_foreign_archive(struct nfs_client *c, struct snapshot *s, struct error *err)
{
	const struct owner_question q = { .scope = OWNER_VOLUMES };
	struct owner owner;
	int r;

	r = owner_find(c, s->id.subdir, &q, &owner, err);
	s->has_contents = false;
	if (r != 0)
		return r < 0 ? r : 0;
	r = snapshot_is_alone(c, s->id.subdir, s->id.on_delete, err);
	s->has_contents = r > 0;
	return r < 0 && r != -ENOENT ? r : 0;
}

int snapshot_read_record(struct nfs_client *c, struct snapshot *s, struct error *err)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	int r;

	record_done(&s->record);
	s->has_contents = s->is_other = false;
	s->owner = (struct volume_owner){ .has_uid = false };
	r = record_read_at(c, STORE_SNAPSHOTS, s->id.subdir, &s->record, err);
	if (r < 0 && r != -ENOENT)
		return r;
	if (s->record.n == 0)
		return snapshot_find_buried_owner(c, s->id.subdir, &s->owner, err);
	r = snapshot_check_found_record(c, s->id.subdir, &s->record, err);
	if (r < 0)
		return r;
	if (volume_id_parse(&id, snapshot_info_of(&s->record).id) < 0) /* which was checked */
		return error_oom(err);
	/* Its server and share may be those from which the share was moved or copied. */
	s->is_other =
		strcmp(id.subdir, s->id.subdir) != 0 || strcmp(id.on_delete, s->id.on_delete) != 0;
	s->owner = snapshot_info_of(&s->record).owner;
	return 0;
}

int snapshot_read_contents(struct nfs_client *c, struct snapshot *s, struct error *err)
{
	struct snapshot_contents contents;
	int r;

	r = snapshot_find_contents(c, &s->id, &s->record, &contents, err);
	s->has_contents = r == 0;
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	s->time = contents.attr.mtime;
	return s->record.n == 0 ? check_foreign_archive(c, s, err) : 0;
}

bool snapshot_is_ready(const struct snapshot *s)
{
	return s->has_contents && (s->record.n == 0 || snapshot_info_of(&s->record).ready);
}
