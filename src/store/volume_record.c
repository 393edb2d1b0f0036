/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/volume_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/path.h"
#include "base/str.h"
#include "net/address.h"

/* -------- reading a record -------- */

/* A damaged number counts as none. */
static uint64_t number_or_0(const char *text, unsigned int base, uint64_t max)
{
	uint64_t number;

	return str_parse_u64(text, base, max, &number) == 0 ? number : 0;
}

/* Return the value that ControllerModifyVolume set last, else the first one. */
static const char *volume_setting(const struct record *rec, const char *key)
{
	const size_t len = strlen(VOLUME_MODIFIED_PREFIX);
	size_t i;

	for (i = 0; i < rec->n; i++)
		if (str_has_prefix(rec->pairs[i].key, VOLUME_MODIFIED_PREFIX) &&
		    strcmp(rec->pairs[i].key + len, key) == 0)
			return rec->pairs[i].value;
	return record_get(rec, key);
}

static bool volume_owner_id(const struct record *rec, const char *key, uint32_t *ret)
{
	uint64_t id;

	if (str_parse_u64(volume_setting(rec, key), 10, UINT32_MAX - 1, &id) < 0)
		return false;
	*ret = (uint32_t)id;
	return true;
}

static unsigned int volume_version(const char *text)
{
	if (str_eq(text, "3"))
		return 3;
	return str_eq(text, "4") ? 4 : 0;
}

static enum volume_claim volume_claim(const char *text)
{
	if (text == NULL)
		return CLAIM_NONE;
	return strcmp(text, VOLUME_CLAIM_EXCLUSIVE) == 0 ? CLAIM_EXCLUSIVE : CLAIM_SHARED;
}

struct volume volume_of(const struct record *rec)
{
	const char *existing = record_get(rec, VOLUME_KEY_EXISTING);
	struct volume v = {
		.name = record_get(rec, VOLUME_KEY_NAME),
		.id = record_get(rec, VOLUME_KEY_ID),
		.dir = record_get(rec, VOLUME_KEY_DIR),
		.size = (int64_t)number_or_0(record_get(rec, VOLUME_KEY_SIZE), 10, INT64_MAX),
		.mode = (uint32_t)number_or_0(volume_setting(rec, VOLUME_KEY_MODE), 8, 07777),
		.version = volume_version(record_get(rec, VOLUME_KEY_VERSION)),
		.on_delete = volume_setting(rec, VOLUME_KEY_ON_DELETE),
		.existing = EXISTING_ADOPT,
		.claim = volume_claim(record_get(rec, VOLUME_KEY_CLAIM)),
		.found = record_get(rec, VOLUME_KEY_FOUND) != NULL,
		.source = record_get(rec, VOLUME_KEY_SOURCE),
		.staging = staging_state_of(rec),
	};

	v.owner.has_uid = volume_owner_id(rec, VOLUME_KEY_UID, &v.owner.uid);
	v.owner.has_gid = volume_owner_id(rec, VOLUME_KEY_GID, &v.owner.gid);
	v.has_existing = existing != NULL && existing_parse(existing, &v.existing) == 0;
	return v;
}

uint64_t volume_record_identity(const struct record *rec)
{
	const char *id = record_get(rec, VOLUME_KEY_ID);
	const char *nonce = record_get(rec, RECORD_KEY_NONCE);

	if (id == NULL)
		return 0;
	return str_hash(id, strlen(id)) ^ (nonce != NULL ? str_hash(nonce, strlen(nonce)) : 0);
}

const char *volume_context_key(const struct record_pair *pair)
{
	if (!str_has_prefix(pair->key, VOLUME_CONTEXT_PREFIX))
		return NULL;
	return pair->key + strlen(VOLUME_CONTEXT_PREFIX);
}

bool volume_is_unfinished(const struct volume *v)
{
	return (v->source != NULL || v->claim != CLAIM_NONE) && !v->staging.ready;
}

bool volume_is_exclusive(const struct volume *v, const char *key)
{
	if (v->claim != CLAIM_NONE)
		return v->claim == CLAIM_EXCLUSIVE;
	return str_eq(v->dir, key) && !(v->has_existing && v->existing == EXISTING_ADOPT);
}

bool volume_is_proven_exclusive(const struct volume *v, const char *key)
{
	return v->claim != CLAIM_NONE && volume_is_exclusive(v, key) && v->staging.ready;
}

bool volume_was_alone(const struct volume *v, const char *key)
{
	return volume_is_proven_exclusive(v, key) && !v->found;
}

bool volume_is_built(const struct volume *v)
{
	return v->source != NULL || (v->claim != CLAIM_NONE && v->existing == EXISTING_REFUSE);
}

bool volume_needs_its_place(const struct volume *v)
{
	return !volume_is_built(v) || v->staging.ready || v->existing == EXISTING_REQUIRE;
}

bool volume_wants_same_settings(const struct volume *a, const struct volume *b)
{
	return a->mode == b->mode && a->owner.has_uid == b->owner.has_uid &&
	       a->owner.has_gid == b->owner.has_gid &&
	       (!a->owner.has_uid || a->owner.uid == b->owner.uid) &&
	       (!a->owner.has_gid || a->owner.gid == b->owner.gid);
}

char *volume_recorded_key(const struct volume *v)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };

	if (v->id == NULL || volume_id_parse(&id, v->id) < 0)
		return NULL;
	return strdup(volume_id_key(&id));
}

const char *volume_policy_text(const struct volume *v, const struct volume_id *id)
{
	return v->on_delete != NULL ? v->on_delete : id->on_delete;
}

enum volume_on_delete volume_policy(const struct volume *v, const struct volume_id *id,
				    enum volume_on_delete default_policy)
{
	const char *text = volume_policy_text(v, id);
	enum volume_on_delete policy;

	if (text[0] == '\0')
		return default_policy;
	return on_delete_parse(text, &policy) == 0 ? policy : ON_DELETE_RETAIN;
}

enum volume_on_delete volume_buried_policy(const struct record *rec, const struct volume_id *id,
					   enum volume_on_delete default_policy)
{
	const struct volume v = volume_of(rec);

	return volume_policy(&v, id, volume_is_foreign(rec) ? default_policy : ON_DELETE_DELETE);
}

static int volume_differs(const char *name, const char *what, struct error *err)
{
	return error_set(err, ERROR_ALREADY_EXISTS, "a volume named '%s' exists with another %s",
			 name, what);
}

static int volume_check_size(int64_t size, const char *name, const struct volume_capacity *capacity,
			     struct error *err)
{
	if (capacity_is_compatible(size, capacity))
		return 0;
	return error_set(err, ERROR_ALREADY_EXISTS,
			 "a volume named '%s' exists with a size of %" PRId64
			 " bytes, which does not fit the requested capacity",
			 name, size);
}

/* The id in the text of a source, after the kind; NULL: there is none. */
static const char *source_id(const struct volume *v)
{
	const char *space = v->source != NULL ? strchr(v->source, ' ') : NULL;

	return space != NULL ? space + 1 : NULL;
}

/*
 * Whether both have the same source. The share may have moved, with the volume and its source: then
 * have has another server or share in both ids. Return 1, 0 or -ENOMEM.
 */
static int volume_has_source_of(const struct volume *have, const struct volume *want)
{
	cleanup_volume_id_pair struct volume_id_pair a = { .own = { .server = NULL } };
	cleanup_volume_id_pair struct volume_id_pair b = { .own = { .server = NULL } };
	int r;

	if (str_eq(have->source, want->source))
		return 1;
	r = volume_id_pair_parse(&a, have->id, source_id(have));
	if (r == 0)
		r = volume_id_pair_parse(&b, want->id, source_id(want));
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	return have->source[0] == want->source[0] && /* of one kind */
	       volume_id_pair_has_source_of(&a, &b) &&
	       strcmp(a.source.on_delete, b.source.on_delete) == 0;
}

/* The first values count: a volume that was modified is still the one that was asked for. */
int volume_check_same(const struct record *have, const struct record *want,
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
	};
	const struct volume had = volume_of(have), wanted = volume_of(want);
	const char *name = wanted.name;
	size_t i;
	int r;

	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (!str_eq(record_get(have, keys[i].key), record_get(want, keys[i].key)))
			return volume_differs(name, keys[i].what, err);
	r = volume_has_source_of(&had, &wanted);
	if (r <= 0)
		return r < 0 ? error_oom(err) : volume_differs(name, "volume_content_source", err);
	return volume_check_size(had.size, name, capacity, err);
}

bool volume_is_foreign(const struct record *rec)
{
	return record_get(rec, VOLUME_KEY_VERSION) == NULL;
}

int volume_complete_foreign(struct record *have, const struct record *want,
			    const struct volume_capacity *capacity, struct error *err)
{
	const char *name = record_get(want, VOLUME_KEY_NAME);
	const int64_t size = volume_of(have).size;
	size_t i;
	int r;

	if (!str_eq(record_get(have, VOLUME_KEY_DIR), record_get(want, VOLUME_KEY_DIR)))
		return volume_differs(name, "subDir", err);
	r = size > 0 ? volume_check_size(size, name, capacity, err) : 0;
	if (r < 0)
		return r;
	for (i = 0; i < want->n; i++) {
		const struct record_pair *pair = &want->pairs[i];

		if (strcmp(pair->key, VOLUME_KEY_SIZE) == 0 && size > volume_of(want).size)
			continue;
		/* It stays the record that deletions have read. */
		if (strcmp(pair->key, RECORD_KEY_NONCE) == 0 && volume_record_identity(have) != 0)
			continue;
		if (record_set(have, pair->key, pair->value) < 0)
			return error_oom(err);
	}
	return 0;
}

/* -------- writing a record -------- */

static int put_text(struct record *rec, const char *key, const char *value)
{
	return value != NULL ? record_set(rec, key, value) : 0;
}

static int put_number(struct record *rec, const char *key, uint64_t value)
{
	char number[24];

	(void)snprintf(number, sizeof(number), "%" PRIu64, value);
	return record_set(rec, key, number);
}

static int put_mode(struct record *rec, const char *key, uint32_t value)
{
	char mode[16];

	(void)snprintf(mode, sizeof(mode), "%04" PRIo32, value);
	return record_set(rec, key, mode);
}

int volume_describe(struct record *rec, const struct volume *v)
{
	static const char *const claims[] = {
		[CLAIM_SHARED] = VOLUME_CLAIM_SHARED,
		[CLAIM_EXCLUSIVE] = VOLUME_CLAIM_EXCLUSIVE,
	};

	if (put_text(rec, VOLUME_KEY_SOURCE, v->source) < 0 ||
	    put_text(rec, VOLUME_KEY_NAME, v->name) < 0 ||
	    put_text(rec, VOLUME_KEY_ID, v->id) < 0 || put_text(rec, VOLUME_KEY_DIR, v->dir) < 0 ||
	    volume_set_size(rec, v->size) < 0 || put_mode(rec, VOLUME_KEY_MODE, v->mode) < 0 ||
	    put_text(rec, VOLUME_KEY_ON_DELETE, v->on_delete) < 0 ||
	    (v->has_existing &&
	     put_text(rec, VOLUME_KEY_EXISTING, existing_name(v->existing)) < 0) ||
	    put_text(rec, VOLUME_KEY_CLAIM, claims[v->claim]) < 0 ||
	    (v->owner.has_uid && put_number(rec, VOLUME_KEY_UID, v->owner.uid) < 0) ||
	    (v->owner.has_gid && put_number(rec, VOLUME_KEY_GID, v->owner.gid) < 0) ||
	    (v->port != 0 && put_number(rec, VOLUME_KEY_PORT, v->port) < 0) ||
	    (v->mount_port != 0 && put_number(rec, VOLUME_KEY_MOUNT_PORT, v->mount_port) < 0) ||
	    put_text(rec, VOLUME_KEY_SEC, v->sec) < 0)
		return -ENOMEM;
	return 0;
}

int volume_set_context(struct record *rec, const char *key, const char *value)
{
	cleanup_buf struct buf prefixed = { 0 };

	if (buf_printf(&prefixed, "%s%s", VOLUME_CONTEXT_PREFIX, key) < 0)
		return -ENOMEM;
	return record_set(rec, prefixed.data, value);
}

int volume_set_version(struct record *rec, unsigned int version)
{
	return put_number(rec, VOLUME_KEY_VERSION, version);
}

int volume_set_size(struct record *rec, int64_t size)
{
	return put_number(rec, VOLUME_KEY_SIZE, (uint64_t)size);
}

int volume_set_source(struct record *rec, const char *source)
{
	return record_set(rec, VOLUME_KEY_SOURCE, source);
}

/* Replace an entry of the volume_context, in any spelling of its key. */
static int replace_context(struct record *rec, const char *key, const char *value)
{
	size_t i;

	for (i = 0; i < rec->n; i++) {
		const char *have = volume_context_key(&rec->pairs[i]);

		if (have != NULL && str_eq_nocase(have, key))
			return volume_set_context(rec, have, value);
	}
	return 0;
}

/* With the key in place of a subDir that does not fit any more, as CreateVolume makes ids. */
static char *format_short_id(struct volume_id *id)
{
	cleanup_free char *text = volume_id_format(id);

	if (text == NULL || strlen(text) <= VOLUME_ID_MAX || id->uuid[0] == '\0')
		return steal_ptr(&text);
	free(id->subdir);
	id->subdir = id->uuid;
	id->uuid = strdup("");
	return id->uuid != NULL ? volume_id_format(id) : NULL;
}

int volume_set_address(struct record *rec, const char *server, const char *share)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_free char *host = net_server_without_brackets(server);
	cleanup_free char *path = path_trim(share), *text = NULL;
	const char *recorded = volume_of(rec).id;
	int r = recorded != NULL ? volume_id_parse(&id, recorded) : -EINVAL;

	if (r == -ENOMEM || host == NULL || path == NULL)
		return -ENOMEM;
	if (r < 0 || (strcmp(id.server, host) == 0 && strcmp(id.share, path) == 0))
		return 0;
	free(id.server);
	free(id.share);
	id.server = steal_ptr(&host);
	id.share = steal_ptr(&path);
	text = format_short_id(&id);
	if (text == NULL || record_set(rec, VOLUME_KEY_ID, text) < 0)
		return -ENOMEM;
	r = replace_context(rec, "server", server);
	return r < 0 ? r : replace_context(rec, "share", share);
}

#define MODIFIED(key) VOLUME_MODIFIED_PREFIX key

int volume_set_changes(struct record *rec, const struct volume_settings *changes)
{
	const struct volume_owner *owner = &changes->owner;

	if (((changes->given & MUTABLE_MODE) &&
	     put_mode(rec, MODIFIED(VOLUME_KEY_MODE), changes->mode) < 0) ||
	    (owner->has_uid && put_number(rec, MODIFIED(VOLUME_KEY_UID), owner->uid) < 0) ||
	    (owner->has_gid && put_number(rec, MODIFIED(VOLUME_KEY_GID), owner->gid) < 0) ||
	    ((changes->given & MUTABLE_ON_DELETE) &&
	     put_text(rec, MODIFIED(VOLUME_KEY_ON_DELETE), on_delete_name(changes->on_delete)) < 0))
		return -ENOMEM;
	return 0;
}

int volume_describe_foreign(struct record *rec, const struct volume_id *id)
{
	cleanup_free char *text = volume_id_format(id);
	const char *on_delete = NULL;
	enum volume_on_delete policy;

	/* Without a policy, the driver's at the time of the deletion counts, as before. */
	if (id->on_delete[0] != '\0' && on_delete_parse(id->on_delete, &policy) == 0)
		on_delete = on_delete_name(policy);
	if (text == NULL || put_text(rec, VOLUME_KEY_NAME, volume_id_key(id)) < 0 ||
	    put_text(rec, VOLUME_KEY_ID, text) < 0 ||
	    put_text(rec, VOLUME_KEY_DIR, id->subdir) < 0 ||
	    put_mode(rec, VOLUME_KEY_MODE, 0) < 0 ||
	    put_text(rec, VOLUME_KEY_ON_DELETE, on_delete) < 0)
		return -ENOMEM;
	return 0;
}

int volume_describe_deleted(struct record *rec, const char *id, const char *dir,
			    enum volume_on_delete policy)
{
	if (put_text(rec, VOLUME_KEY_ID, id) < 0 || put_text(rec, VOLUME_KEY_DIR, dir) < 0 ||
	    put_text(rec, VOLUME_KEY_ON_DELETE, on_delete_name(policy)) < 0)
		return -ENOMEM;
	return 0;
}

bool volume_key_can_have_record(const char *key)
{
	return strchr(key, '/') == NULL && strlen(key) <= RECORD_NAME_MAX;
}
