/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/list_volumes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "csi/session.h"
#include "csi/volume_source.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/volume.h"

/* What clients of gRPC take at once is 4 MiB; an entry is over when it has passed this. */
#define PAGE_BYTES_MAX (3500 * 1024)

/* Records that are read before they are made entries. */
#define BATCH_MAX 4096

/* A record's link in the folder, before it has been read. */
struct found {
	char *key;
	struct nfs_handle handle;
};

struct entry {
	struct record record;
	char *key;
	const struct nfs_export *export; /* of the listing */
	bool has_directory;
	Csi__V1__ListVolumesResponse__Entry entry;
	Csi__V1__ListVolumesResponse__VolumeStatus status;
	Csi__V1__VolumeCondition condition;
	Csi__V1__Volume volume;
	Csi__V1__Volume__VolumeContextEntry *context;
	Csi__V1__Volume__VolumeContextEntry **context_list;
	struct content_message source;
};

struct listing {
	struct nfs_export *exports;
	size_t n_exports;
	struct nfs_export *current;
	const char *after; /* key behind which to start on the current export; NULL: from the start */
	size_t max; /* entries */
	size_t bytes;
	bool full; /* there is more */
	size_t mark; /* entries before the current export */
	struct entry *entries;
	size_t n, cap;
	/* Of the current export. */
	struct found *found;
	size_t n_found, found_cap;
	struct found *tops; /* what is in the root of the share, in order */
	size_t n_tops, tops_cap;
};

static void clear(struct found *list, size_t *n)
{
	size_t i;

	for (i = 0; i < *n; i++)
		free(list[i].key);
	*n = 0;
}

static size_t bytes_of(const struct record *rec)
{
	size_t n = 64, i;

	for (i = 0; i < rec->n; i++)
		n += strlen(rec->pairs[i].key) + strlen(rec->pairs[i].value) + 8;
	return n;
}

static void drop_entries(struct listing *l, size_t from)
{
	for (; l->n > from; l->n--) {
		struct entry *e = &l->entries[l->n - 1];

		l->bytes -= bytes_of(&e->record);
		record_done(&e->record);
		free(e->key);
		free(e->context);
		free(e->context_list);
	}
}

static void listing_done(struct listing *l)
{
	clear(l->found, &l->n_found);
	free(l->found);
	clear(l->tops, &l->n_tops);
	free(l->tops);
	drop_entries(l, 0);
	free(l->entries);
	known_exports_list_free(l->exports, l->n_exports);
}

static int append(struct found **list, size_t *n, size_t *cap, const struct nfs_entry *entry)
{
	struct found *more;

	if (*n == *cap) {
		size_t larger = *cap == 0 ? 64 : *cap * 2;

		more = reallocarray(*list, larger, sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		*list = more;
		*cap = larger;
	}
	(*list)[*n].handle = entry->handle;
	(*list)[*n].key = strdup(entry->name);
	if ((*list)[*n].key == NULL)
		return -ENOMEM;
	(*n)++;
	return 0;
}

/* Names with '~' are parts of records and records that are being written or removed. */
static int take_found(void *data, const struct nfs_entry *entry)
{
	struct listing *l = data;

	if (strchr(entry->name, '~') != NULL)
		return 0;
	if (l->after != NULL && strcmp(entry->name, l->after) <= 0)
		return 0;
	return append(&l->found, &l->n_found, &l->found_cap, entry);
}

static int take_top(void *data, const struct nfs_entry *entry)
{
	struct listing *l = data;

	return append(&l->tops, &l->n_tops, &l->tops_cap, entry);
}

static int compare_found(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return strcmp(x->key, y->key);
}

static struct entry *add_entry(struct listing *l, const char *key)
{
	struct entry *list;

	if (l->n == l->cap) {
		size_t cap = l->cap == 0 ? 64 : l->cap * 2;

		list = reallocarray(l->entries, cap, sizeof(*list));
		if (list == NULL)
			return NULL;
		l->entries = list;
		l->cap = cap;
	}
	memset(&l->entries[l->n], 0, sizeof(l->entries[l->n]));
	l->entries[l->n].key = strdup(key);
	if (l->entries[l->n].key == NULL)
		return NULL;
	l->entries[l->n].export = l->current;
	return &l->entries[l->n++];
}

/* -------- reading records, many at a time -------- */

struct reading {
	struct nfs_op op;
	char link[NFS_LINK_MAX + 1];
	size_t index; /* in found */
	bool busy;
};

struct pipeline {
	struct nfs_client *client;
	const struct found *found; /* n of them, borrowed from the listing */
	struct record *records; /* one for each */
	int *results;
	struct reading slots[NFS_WINDOW];
	size_t next, n, in_flight;
};

static void reading_done(struct nfs_op *op)
{
	struct reading *slot = container_of(op, struct reading, op);
	struct pipeline *p = op->data;
	int r = op->error;

	slot->busy = false;
	p->in_flight--;
	if (r == 0)
		r = record_decode(&p->records[slot->index], slot->link);
	p->results[slot->index] = r;
}

static int start_reading(struct pipeline *p, struct reading *slot)
{
	int r;

	slot->index = p->next++;
	slot->op = (struct nfs_op){
		.type = NFS_OP_READLINK,
		.dir = &p->found[slot->index].handle,
		.link = slot->link,
		.done = reading_done,
		.data = p,
	};
	r = nfs_client_start(p->client, &slot->op);
	if (r < 0)
		return r;
	slot->busy = true;
	p->in_flight++;
	return 0;
}

static int fill_window(struct pipeline *p)
{
	size_t i;
	int r;

	for (i = 0; i < NFS_WINDOW && p->next < p->n; i++) {
		if (p->slots[i].busy)
			continue;
		/* Without a handle the record is read by name, afterwards. */
		while (p->next < p->n && p->found[p->next].handle.len == 0)
			p->results[p->next++] = -EAGAIN;
		if (p->next == p->n)
			break;
		r = start_reading(p, &p->slots[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int run_pipeline(struct pipeline *p)
{
	int r;

	for (;;) {
		r = fill_window(p);
		if (r < 0 || p->in_flight == 0)
			break;
		r = nfs_client_run(p->client);
		if (r < 0)
			break;
	}
	/* What is in flight writes into the slots. */
	if (p->in_flight > 0)
		nfs_client_abort(p->client);
	while (p->in_flight > 0 && nfs_client_run(p->client) == 0)
		;
	return r;
}

/* -------- one share -------- */

/* 1: a volume; 0: it went meanwhile, or is nobody's record; negative: an error, reported. */
static int complete(struct nfs_client *c, const struct nfs_handle *folder, const char *key,
		    int read, struct record *rec, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	int r;

	/* Of a handle no error says that the record has gone: its name does. */
	if (read < 0 || record_get(rec, "parts") != NULL) {
		record_done(rec);
		r = record_read(c, folder, key, rec, &why);
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
	}
	return record_get(rec, VOLUME_KEY_ID) != NULL && record_get(rec, VOLUME_KEY_DIR) != NULL;
}

/* Most volumes lie in the root of the share, which has been read: one call for all of them. */
static int condition_of(struct listing *l, struct nfs_client *c, const struct record *rec,
			bool *ret, struct error *err)
{
	const char *dir = record_get(rec, VOLUME_KEY_DIR);
	const struct found want = { .key = (char *)(uintptr_t)dir }; /* only compared */
	int r;

	if (strchr(dir, '/') == NULL) {
		*ret = bsearch(&want, l->tops, l->n_tops, sizeof(want), compare_found) != NULL;
		return 0;
	}
	r = directory_is_gone(c, dir, err);
	if (r < 0)
		return r;
	*ret = r == 0;
	return 0;
}

static int take_volumes(struct listing *l, struct nfs_client *c, const struct nfs_handle *folder,
			struct pipeline *p, struct error *err)
{
	size_t i;
	int r;

	for (i = 0; i < p->n; i++) {
		struct record *rec = &p->records[i];
		struct entry *entry;

		r = complete(c, folder, p->found[i].key, p->results[i], rec, err);
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		if (l->n == l->max || l->bytes > PAGE_BYTES_MAX) {
			l->full = true;
			return 0;
		}
		entry = add_entry(l, p->found[i].key);
		if (entry == NULL)
			return error_oom(err);
		entry->record = *rec;
		*rec = (struct record){ .n = 0 };
		l->bytes += bytes_of(&entry->record);
		r = condition_of(l, c, &entry->record, &entry->has_directory, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_batch(struct listing *l, struct nfs_client *c, const struct nfs_handle *folder,
		      size_t first, size_t n, struct error *err)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	size_t i;
	int r;

	if (p == NULL)
		return error_oom(err);
	p->client = c;
	p->found = &l->found[first];
	p->n = n;
	p->records = calloc(n, sizeof(*p->records));
	p->results = calloc(n, sizeof(*p->results));
	if (p->records == NULL || p->results == NULL)
		r = error_oom(err);
	else
		r = run_pipeline(p);
	if (r < 0 && err->code == ERROR_OK)
		(void)nfs_error_set(err, c, r, "reading records");
	if (r == 0)
		r = take_volumes(l, c, folder, p, err);
	for (i = 0; p->records != NULL && i < n; i++)
		record_done(&p->records[i]);
	free(p->records);
	free(p->results);
	free(p);
	return r;
}

/* One record more than fits on the page tells whether there is another page. */
static int read_volumes(struct listing *l, struct nfs_client *c, const struct nfs_handle *folder,
			struct error *err)
{
	size_t first = 0;
	int r = 0;

	while (r == 0 && first < l->n_found && !l->full) {
		size_t n = l->n_found - first, room = l->max - l->n;

		if (n > BATCH_MAX)
			n = BATCH_MAX;
		if (room < n)
			n = room + 1;
		r = read_batch(l, c, folder, first, n, err);
		first += n;
	}
	return r;
}

static int list_work(struct nfs_client *c, void *data, struct error *err)
{
	struct listing *l = data;
	const struct nfs_handle *folder;
	int r;

	clear(l->found, &l->n_found);
	clear(l->tops, &l->n_tops);
	drop_entries(l, l->mark); /* of an attempt before this one */
	r = store_folder(c, STORE_VOLUMES, false, &folder, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	r = nfs_readdir(c, folder, take_found, l);
	if (r < 0)
		return nfs_error_set(err, c, r, "reading the records' folder");
	if (l->n_found == 0)
		return 0;
	qsort(l->found, l->n_found, sizeof(*l->found), compare_found);
	r = nfs_readdir(c, &c->root, take_top, l);
	if (r < 0)
		return nfs_error_set(err, c, r, "reading the share");
	qsort(l->tops, l->n_tops, sizeof(*l->tops), compare_found);
	return read_volumes(l, c, folder, err);
}

/* -------- all shares -------- */

static int list_all(const struct csi_driver *driver, struct listing *l, size_t start,
		    struct error *err)
{
	struct error first = { .code = ERROR_OK };
	size_t i, reached = 0;

	for (i = start; i < l->n_exports && !l->full; i++) {
		struct error why = { .code = ERROR_OK };
		int r;

		l->current = &l->exports[i];
		l->mark = l->n;
		r = csi_with_reader(driver, l->current, list_work, l, &why);
		l->after = NULL;
		if (r == 0) {
			reached++;
			continue;
		}
		if (why.code == ERROR_RESOURCE_EXHAUSTED) {
			*err = why;
			return r;
		}
		log_warn("A share is left out of the list", LOG_STR("server", l->current->server),
			 LOG_STR("share", l->current->share), LOG_STR("reason", why.msg));
		if (first.code == ERROR_OK)
			first = why;
	}
	if (reached == 0 && first.code != ERROR_OK)
		return error_set(err, first.code, "%s", first.msg);
	return 0;
}

static int make_listing(const struct csi_driver *driver, const Csi__V1__ListVolumesRequest *in,
			struct listing *l, struct strv *token, struct error *err)
{
	size_t start = 0;
	int r;

	if (in->max_entries < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "max_entries: must not be negative");
	l->max = in->max_entries > 0 ? (size_t)in->max_entries : SIZE_MAX;
	r = csi_known_exports(driver, &l->exports, &l->n_exports, err);
	if (r == 0)
		r = csi_list_start(in->starting_token, l->exports, l->n_exports, token, &start,
				   &l->after, err);
	return r < 0 ? r : list_all(driver, l, start, err);
}

/* -------- the reply -------- */

static int fill_in(struct entry *e)
{
	Csi__V1__Volume__VolumeContextEntry entries[CSI_CONTEXT_MAX];
	Csi__V1__Volume__VolumeContextEntry *list[CSI_CONTEXT_MAX];
	size_t n = csi_context_of(&e->record, entries, list), i;

	csi__v1__list_volumes_response__entry__init(&e->entry);
	csi__v1__list_volumes_response__volume_status__init(&e->status);
	csi__v1__volume_condition__init(&e->condition);
	csi__v1__volume__init(&e->volume);
	e->context = calloc(n + 1, sizeof(*e->context));
	e->context_list = calloc(n + 1, sizeof(*e->context_list));
	if (e->context == NULL || e->context_list == NULL)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		e->context[i] = entries[i];
		e->context_list[i] = &e->context[i];
	}
	e->volume.volume_id = (char *)(uintptr_t)record_get(&e->record, VOLUME_KEY_ID);
	e->volume.capacity_bytes = volume_size(&e->record);
	e->volume.volume_context = e->context_list;
	e->volume.n_volume_context = n;
	e->volume.content_source = content_message_of(&e->source, &e->record);
	e->condition.abnormal = !e->has_directory;
	e->condition.message =
		(char *)(uintptr_t)(e->has_directory
					    ? "the volume is there"
					    : "the volume's directory is missing; its record is there");
	e->status.volume_condition = &e->condition;
	e->entry.volume = &e->volume;
	e->entry.status = &e->status;
	return 0;
}

static char *format_token(const struct listing *l)
{
	const struct entry *last = &l->entries[l->n - 1];
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, "%s#%s#%s", last->export->server, last->export->share, last->key) < 0)
		return NULL;
	return buf_steal(&b);
}

static int reply(struct listing *l, Csi__V1__ListVolumesResponse_Closure closure, void *data,
		 struct error *err)
{
	Csi__V1__ListVolumesResponse out = CSI__V1__LIST_VOLUMES_RESPONSE__INIT;
	cleanup_free Csi__V1__ListVolumesResponse__Entry **list = calloc(l->n + 1, sizeof(*list));
	cleanup_free char *token = NULL;
	size_t i;

	if (list == NULL)
		return error_oom(err);
	for (i = 0; i < l->n; i++) {
		if (fill_in(&l->entries[i]) < 0)
			return error_oom(err);
		list[i] = &l->entries[i].entry;
	}
	if (l->full && l->n > 0) {
		token = format_token(l);
		if (token == NULL)
			return error_oom(err);
		out.next_token = token;
	}
	out.entries = list;
	out.n_entries = l->n;
	closure(&out, data);
	return 0;
}

void controller_list_volumes(Csi__V1__Controller_Service *service,
			     const Csi__V1__ListVolumesRequest *in,
			     Csi__V1__ListVolumesResponse_Closure closure, void *data)
{
	const struct csi_driver *driver = csi_controller_driver(service);
	cleanup_strv struct strv token = { NULL, 0 };
	struct listing l = { .n = 0 };
	struct request *req = data;

	if (make_listing(driver, in, &l, &token, &req->err) < 0 ||
	    reply(&l, closure, data, &req->err) < 0)
		closure(NULL, data);
	listing_done(&l);
}
