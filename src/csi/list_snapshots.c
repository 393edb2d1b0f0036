/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * ListSnapshots and GetSnapshot. Listed is what has a record on the default share and on every share that
 * this process has worked on; a snapshot that is asked for by its id needs none.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "csi/snapshot.h"
#include "csi/validate.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "store/staging.h"
#include "store/volume.h"

/* What clients of gRPC take at once is 4 MiB; an entry is over when it has passed this. */
#define PAGE_BYTES_MAX (3500 * 1024)
#define ENTRY_BYTES 64 /* numbers, times and frames of one entry */

/* -------- messages -------- */

void snapshot_message_of_record(struct snapshot_message *m, const struct record *rec)
{
	const char *time = record_get(rec, SNAPSHOT_KEY_TIME);
	uint64_t ns = 0;

	google__protobuf__timestamp__init(&m->time);
	csi__v1__snapshot__init(&m->snapshot);
	if (time != NULL)
		(void)str_parse_u64(time, 10, INT64_MAX, &ns); /* else 1970: the record is damaged */
	m->time.seconds = (int64_t)(ns / CLOCK_NS_PER_S);
	m->time.nanos = (int32_t)(ns % CLOCK_NS_PER_S);
	m->snapshot.creation_time = &m->time;
	m->snapshot.snapshot_id = (char *)(uintptr_t)record_get(rec, SNAPSHOT_KEY_ID);
	m->snapshot.source_volume_id = (char *)(uintptr_t)record_get(rec, SNAPSHOT_KEY_SOURCE);
	m->snapshot.size_bytes = volume_size(rec);
	m->snapshot.ready_to_use = staging_is_ready(rec);
}

static bool is_whole(const struct record *rec)
{
	return record_get(rec, SNAPSHOT_KEY_ID) != NULL &&
	       record_get(rec, SNAPSHOT_KEY_SOURCE) != NULL && staging_is_ready(rec);
}

/* What csi-driver-nfs has made tells the volume's key, and that alone. */
static int describe_foreign(struct snapshot *s, const char *id, struct error *err)
{
	cleanup_buf struct buf source = { 0 }, time = { 0 };

	if (buf_printf(&source, "%s#%s#%s##", s->id.server, s->id.share, s->id.on_delete) < 0 ||
	    buf_printf(&time, "%lld%09u", (long long)s->time.sec, s->time.nsec) < 0 ||
	    record_set(&s->record, SNAPSHOT_KEY_ID, id) < 0 ||
	    record_set(&s->record, SNAPSHOT_KEY_SOURCE, source.data) < 0 ||
	    record_set(&s->record, SNAPSHOT_KEY_TIME, time.data) < 0 ||
	    record_set(&s->record, STAGING_KEY_READY, "1") < 0)
		return error_oom(err);
	return 0;
}

/* Returns 1 when it is there, 0 when not, or a negative errno with the error set. */
static int find(const struct csi_driver *driver, const char *id, const struct csi_map *secrets,
		struct snapshot *s, struct error *err)
{
	int r;

	r = snapshot_init(s, driver, id, secrets, err);
	if (r == -EINVAL)
		return 0;
	if (r == 0)
		r = snapshot_read(s, driver, err);
	if (r < 0)
		return r;
	if (!snapshot_is_ready(s))
		return 0;
	if (s->record.n == 0)
		r = describe_foreign(s, id, err);
	return r < 0 ? r : is_whole(&s->record);
}

/* -------- all of them -------- */

struct entry {
	struct record record;
	const struct nfs_export *export; /* of the list */
	char *key;
	struct snapshot_message message;
	Csi__V1__ListSnapshotsResponse__Entry entry;
};

struct list_of_snapshots {
	const char *source; /* only of this volume; NULL: of all */
	struct nfs_export *exports;
	size_t n_exports;
	struct nfs_export *current;
	const char *after; /* key behind which to start; NULL: from the start */
	size_t max;
	size_t bytes;
	bool full; /* there is more */
	struct entry *entries;
	size_t n, mark; /* mark: before the current export */
	struct strv keys; /* on the current export */
};

/* An entry of a page, packed. */
static size_t bytes_of(const struct record *rec)
{
	return ENTRY_BYTES + strlen(record_get(rec, SNAPSHOT_KEY_ID)) +
	       strlen(record_get(rec, SNAPSHOT_KEY_SOURCE));
}

static void drop_entries(struct list_of_snapshots *l, size_t from)
{
	for (; l->n > from; l->n--) {
		l->bytes -= bytes_of(&l->entries[l->n - 1].record);
		record_done(&l->entries[l->n - 1].record);
		free(l->entries[l->n - 1].key);
	}
}

static void list_done(struct list_of_snapshots *l)
{
	drop_entries(l, 0);
	free(l->entries);
	strv_done(&l->keys);
	known_exports_list_free(l->exports, l->n_exports);
}

/* Names with '~' are parts of records and records that are being written or removed. */
static int take_key(void *data, const struct nfs_entry *entry)
{
	struct list_of_snapshots *l = data;
	char **items;

	if (strchr(entry->name, '~') != NULL ||
	    (l->after != NULL && strcmp(entry->name, l->after) <= 0))
		return 0;
	items = reallocarray(l->keys.items, l->keys.n + 1, sizeof(*items));
	if (items == NULL)
		return -ENOMEM;
	l->keys.items = items;
	items[l->keys.n] = strdup(entry->name);
	return items[l->keys.n++] != NULL ? 0 : -ENOMEM;
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add(struct list_of_snapshots *l, const char *key, struct record *rec)
{
	struct entry *entries = reallocarray(l->entries, l->n + 1, sizeof(*entries));

	if (entries == NULL)
		return -ENOMEM;
	l->entries = entries;
	entries[l->n] = (struct entry){ .export = l->current, .key = strdup(key) };
	if (entries[l->n].key == NULL)
		return -ENOMEM;
	entries[l->n].record = *rec;
	*rec = (struct record){ .n = 0 };
	l->bytes += bytes_of(&entries[l->n].record);
	l->n++;
	return 0;
}

static int read_one(struct list_of_snapshots *l, struct nfs_client *c,
		    const struct nfs_handle *folder, const char *key, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	struct error why = { .code = ERROR_OK };
	int r;

	r = record_read(c, folder, key, &rec, &why);
	if (r == -ENOENT)
		return 0;
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION) {
		log_warn("A record is passed over", LOG_STR("reason", why.msg));
		return 0;
	}
	if (r < 0) {
		*err = why;
		return r;
	}
	if (!is_whole(&rec) ||
	    (l->source != NULL && strcmp(record_get(&rec, SNAPSHOT_KEY_SOURCE), l->source) != 0))
		return 0;
	if (l->n == l->max || l->bytes > PAGE_BYTES_MAX) {
		l->full = true;
		return 0;
	}
	return add(l, key, &rec) < 0 ? error_oom(err) : 0;
}

static int list_work(struct nfs_client *c, void *data, struct error *err)
{
	const struct nfs_handle *folder;
	struct list_of_snapshots *l = data;
	size_t i;
	int r;

	strv_done(&l->keys);
	l->keys = (struct strv){ NULL, 0 };
	drop_entries(l, l->mark); /* of an attempt before this one */
	r = store_folder(c, STORE_SNAPSHOTS, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_readdir(c, folder, take_key, l);
	if (r < 0)
		return nfs_error_set(err, c, r, "reading the records of snapshots");
	if (l->keys.n > 0)
		qsort(l->keys.items, l->keys.n, sizeof(*l->keys.items), compare_keys);
	for (i = 0; i < l->keys.n && r == 0 && !l->full; i++)
		r = read_one(l, c, folder, l->keys.items[i], err);
	return r;
}

static int list_all(const struct csi_driver *driver, struct list_of_snapshots *l, size_t start,
		    struct error *err)
{
	struct error first = { .code = ERROR_OK };
	size_t i, reached = 0;

	for (i = start; i < l->n_exports && !l->full; i++) {
		struct error why = { .code = ERROR_OK };

		l->current = &l->exports[i];
		l->mark = l->n;
		if (csi_with_reader(driver, l->current, list_work, l, &why) == 0) {
			reached++;
		} else {
			log_warn("A share is left out of the list",
				 LOG_STR("server", l->current->server),
				 LOG_STR("share", l->current->share), LOG_STR("reason", why.msg));
			if (first.code == ERROR_OK)
				first = why;
		}
		l->after = NULL;
	}
	if (reached == 0 && first.code != ERROR_OK)
		return error_set(err, first.code, "%s", first.msg);
	return 0;
}

/* -------- ListSnapshots -------- */

static int reply_list(struct list_of_snapshots *l, Csi__V1__ListSnapshotsResponse_Closure closure,
		      void *data, struct error *err)
{
	Csi__V1__ListSnapshotsResponse out = CSI__V1__LIST_SNAPSHOTS_RESPONSE__INIT;
	cleanup_free Csi__V1__ListSnapshotsResponse__Entry **list = calloc(l->n + 1, sizeof(*list));
	cleanup_buf struct buf token = { 0 };
	size_t i;

	if (list == NULL)
		return error_oom(err);
	for (i = 0; i < l->n; i++) {
		struct entry *e = &l->entries[i];

		snapshot_message_of_record(&e->message, &e->record);
		csi__v1__list_snapshots_response__entry__init(&e->entry);
		e->entry.snapshot = &e->message.snapshot;
		list[i] = &e->entry;
	}
	if (l->full && l->n > 0) {
		const struct entry *last = &l->entries[l->n - 1];

		if (buf_printf(&token, "%s#%s#%s", last->export->server, last->export->share,
			       last->key) < 0)
			return error_oom(err);
		out.next_token = token.data;
	}
	out.entries = list;
	out.n_entries = l->n;
	closure(&out, data);
	return 0;
}

static int list_snapshots(const struct csi_driver *driver, const Csi__V1__ListSnapshotsRequest *in,
			  struct list_of_snapshots *l, struct error *err)
{
	cleanup_strv struct strv token = { NULL, 0 };
	size_t start = 0;
	int r;

	if (in->max_entries < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "max_entries: must not be negative");
	l->max = in->max_entries > 0 ? (size_t)in->max_entries : SIZE_MAX;
	l->source = in->source_volume_id[0] != '\0' ? in->source_volume_id : NULL;
	r = csi_known_exports(driver, &l->exports, &l->n_exports, err);
	if (r == 0)
		r = csi_list_start(in->starting_token, l->exports, l->n_exports, &token, &start,
				   &l->after, err);
	return r < 0 ? r : list_all(driver, l, start, err);
}

static int list_one(const struct csi_driver *driver, const Csi__V1__ListSnapshotsRequest *in,
		    struct list_of_snapshots *l, struct error *err)
{
	const struct csi_map secrets = csi_map_of(in, secrets);
	cleanup_snapshot struct snapshot s = { .has_archive = false };
	int r;

	r = find(driver, in->snapshot_id, &secrets, &s, err);
	if (r <= 0)
		return r;
	if (in->source_volume_id[0] != '\0' &&
	    strcmp(record_get(&s.record, SNAPSHOT_KEY_SOURCE), in->source_volume_id) != 0)
		return 0;
	return add(l, s.id.subdir, &s.record) < 0 ? error_oom(err) : 0;
}

void controller_list_snapshots(Csi__V1__Controller_Service *service,
			       const Csi__V1__ListSnapshotsRequest *in,
			       Csi__V1__ListSnapshotsResponse_Closure closure, void *data)
{
	const struct csi_driver *driver = csi_controller_driver(service);
	struct list_of_snapshots l = { .n = 0 };
	struct request *req = data;
	int r;

	r = in->snapshot_id[0] != '\0' ? list_one(driver, in, &l, &req->err)
				       : list_snapshots(driver, in, &l, &req->err);
	if (r < 0 || reply_list(&l, closure, data, &req->err) < 0)
		closure(NULL, data);
	list_done(&l);
}

/* -------- GetSnapshot -------- */

void controller_get_snapshot(Csi__V1__Controller_Service *service,
			     const Csi__V1__GetSnapshotRequest *in,
			     Csi__V1__GetSnapshotResponse_Closure closure, void *data)
{
	const struct csi_driver *driver = csi_controller_driver(service);
	Csi__V1__GetSnapshotResponse out = CSI__V1__GET_SNAPSHOT_RESPONSE__INIT;
	const struct csi_map secrets = csi_map_of(in, secrets);
	cleanup_snapshot struct snapshot s = { .has_archive = false };
	struct snapshot_message message;
	struct request *req = data;
	int r;

	csi_set_subject(req, in->snapshot_id);
	r = driver->get_snapshot ? 0
				 : error_set(&req->err, ERROR_UNIMPLEMENTED,
					     "GetSnapshot: not switched on (--enable-get-snapshot)");
	if (r == 0)
		r = validate_required(in->snapshot_id, "snapshot_id", &req->err);
	if (r == 0)
		r = find(driver, in->snapshot_id, &secrets, &s, &req->err);
	if (r == 0 && req->err.code == ERROR_OK)
		r = error_set(&req->err, ERROR_NOT_FOUND, "snapshot '%.128s' does not exist",
			      in->snapshot_id);
	if (r < 0) {
		closure(NULL, data);
		return;
	}
	snapshot_message_of_record(&message, &s.record);
	out.snapshot = &message.snapshot;
	closure(&out, data);
}
