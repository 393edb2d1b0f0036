/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"

/* gRPC clients accept messages of 4 MiB by default. A page with more bytes than this is full. */
#define PAGE_BYTES_MAX (3500 * 1024)

/* Records that are read together before they become entries. */
#define BATCH_MAX 4096

struct listing_name {
	char *name;
	struct nfs_handle handle; /* len 0: READDIR did not return it */
};

/* -------- names -------- */

static void names_clear(struct listing_name *names, size_t *n)
{
	size_t i;

	for (i = 0; i < *n; i++)
		free(names[i].name);
	*n = 0;
}

static int names_add(struct listing_name **names, size_t *n, size_t *cap,
		     const struct nfs_entry *entry)
{
	struct listing_name *more;

	if (*n == *cap) {
		size_t larger = *cap == 0 ? 64 : *cap * 2;

		more = reallocarray(*names, larger, sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		*names = more;
		*cap = larger;
	}
	(*names)[*n].handle = entry->handle;
	(*names)[*n].name = strdup(entry->name);
	if ((*names)[*n].name == NULL)
		return -ENOMEM;
	(*n)++;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	const struct listing_name *one = a, *other = b;

	return strcmp(one->name, other->name);
}

/* Names with '~' are parts of records, or records that are being written or removed. */
static int take_record_name(void *data, const struct nfs_entry *entry)
{
	struct listing *l = data;

	if (strchr(entry->name, '~') != NULL)
		return 0;
	if (l->after != NULL && strcmp(entry->name, l->after) <= 0)
		return 0;
	return names_add(&l->names, &l->n_names, &l->names_cap, entry);
}

static int take_root_name(void *data, const struct nfs_entry *entry)
{
	const enum nfs_type type = entry->attr.type;
	struct listing *l = data;
	int r;

	if (type != NFS_TYPE_DIRECTORY && type != NFS_TYPE_UNKNOWN) /* the server did not tell */
		return 0;
	r = nfs_names_add(&l->root, entry->name);
	return r < 0 ? r : 0;
}

bool listing_root_has(const struct listing *l, const char *name)
{
	return nfs_names_has(&l->root, name);
}

/* -------- entries -------- */

static size_t entry_bytes(const struct listing *l, const struct listing_entry *entry)
{
	return l->ops->bytes(&entry->record) +
	       (entry->problem != NULL ? strlen(entry->problem) : 0);
}

static void drop_entries(struct listing *l, size_t from)
{
	for (; l->n > from; l->n--) {
		struct listing_entry *entry = &l->entries[l->n - 1];

		l->bytes -= entry_bytes(l, entry);
		record_done(&entry->record);
		free(entry->key);
		free(entry->problem);
	}
}

int listing_add(struct listing *l, const char *key, struct record *rec)
{
	struct listing_entry *entry;

	if (l->n == l->cap) {
		size_t cap = l->cap == 0 ? 64 : l->cap * 2;

		entry = reallocarray(l->entries, cap, sizeof(*entry));
		if (entry == NULL)
			return -ENOMEM;
		l->entries = entry;
		l->cap = cap;
	}
	entry = &l->entries[l->n];
	*entry = (struct listing_entry){ .export = l->current, .key = strdup(key) };
	if (entry->key == NULL)
		return -ENOMEM;
	entry->record = *rec;
	*rec = (struct record){ .n = 0 };
	l->bytes += l->ops->bytes(&entry->record);
	l->n++;
	return 0;
}

void listing_done(struct listing *l)
{
	names_clear(l->names, &l->n_names);
	free(l->names);
	nfs_names_done(&l->root);
	drop_entries(l, 0);
	free(l->entries);
	free(l->next_token);
	free(l->asked);
	known_exports_list_free(l->exports, l->n_exports);
}

/* -------- reading records, many in flight -------- */

struct record_read_slot {
	struct nfs_op op;
	char link[NFS_LINK_MAX + 1];
	size_t index; /* in names */
	bool is_busy;
};

struct record_batch {
	struct nfs_client *client;
	const struct listing_name *names; /* n of them, borrowed from the list */
	struct record *records; /* one for each */
	int *results; /* likewise */
	struct record_read_slot slots[NFS_WINDOW];
	size_t next, n, in_flight;
};

static void slot_done(struct nfs_op *op)
{
	struct record_read_slot *slot = container_of(op, struct record_read_slot, op);
	struct record_batch *batch = op->data;
	int r = op->error;

	slot->is_busy = false;
	batch->in_flight--;
	if (r == 0)
		r = record_decode(&batch->records[slot->index], slot->link);
	batch->results[slot->index] = r;
}

static int slot_start(struct record_batch *batch, struct record_read_slot *slot)
{
	int r;

	slot->index = batch->next++;
	slot->op = (struct nfs_op){
		.type = NFS_OP_READLINK,
		.dir = &batch->names[slot->index].handle,
		.link = slot->link,
		.done = slot_done,
		.data = batch,
	};
	r = nfs_client_start(batch->client, &slot->op);
	if (r < 0)
		return r;
	slot->is_busy = true;
	batch->in_flight++;
	return 0;
}

static int batch_fill_window(struct record_batch *batch)
{
	size_t i;
	int r;

	for (i = 0; i < NFS_WINDOW && batch->next < batch->n; i++) {
		if (batch->slots[i].is_busy)
			continue;
		/* Without a handle the record is read by name, later. */
		while (batch->next < batch->n && batch->names[batch->next].handle.len == 0)
			batch->results[batch->next++] = -EAGAIN;
		if (batch->next == batch->n)
			break;
		r = slot_start(batch, &batch->slots[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int batch_run(struct record_batch *batch)
{
	int r;

	for (;;) {
		r = batch_fill_window(batch);
		if (r < 0 || batch->in_flight == 0)
			break;
		r = nfs_client_run(batch->client);
		if (r < 0)
			break;
	}
	/* Operations in flight write into the slots: end them before the slots go. */
	if (batch->in_flight > 0)
		nfs_client_abort(batch->client);
	while (batch->in_flight > 0 && nfs_client_run(batch->client) == 0)
		;
	return r;
}

/* -------- one share -------- */

/*
 * Check a record; first read it by name if its link does not have all of it. Return 1, 0 for a
 * record that is gone or damaged, or a negative errno with the error set.
 */
static int complete_record(const struct listing *l, struct nfs_client *c,
			   const struct nfs_handle *folder, const char *key, int result,
			   struct record *rec, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	int r = 0;

	/* An error on a handle does not prove that the record is gone; a lookup by name does. */
	if (result < 0 || record_get(rec, "parts") != NULL) {
		record_done(rec);
		r = record_read(c, folder, key, rec, &why);
	}
	if (r == 0)
		r = l->ops->check(c, key, rec, &why);
	if (r == 0)
		return 1;
	/* -EINPROGRESS: its creation has not finished, or was interrupted. */
	if (r == -ENOENT || r == -EINPROGRESS)
		return 0;
	if (why.code == ERROR_FAILED_PRECONDITION) {
		log_warn("Skipping an unusable record", LOG_STR("reason", why.msg));
		return 0;
	}
	*err = why;
	return r;
}

/* What is wrong with the directory takes room in the page, too. */
static int look_at(struct listing *l, struct nfs_client *c, struct listing_entry *entry,
		   struct error *err)
{
	int r;

	l->bytes -= entry_bytes(l, entry);
	r = l->ops->look(l, c, entry, err);
	l->bytes += entry_bytes(l, entry);
	return r;
}

static int add_batch(struct listing *l, struct nfs_client *c, const struct nfs_handle *folder,
		     struct record_batch *batch, struct error *err)
{
	size_t i;
	int r;

	for (i = 0; i < batch->n; i++) {
		struct record *rec = &batch->records[i];

		r = complete_record(l, c, folder, batch->names[i].name, batch->results[i], rec,
				    err);
		if (r < 0)
			return r;
		if (r == 0 || !l->ops->accepts(rec, l->data))
			continue;
		if (l->n == l->max || l->bytes > PAGE_BYTES_MAX) {
			l->is_full = true;
			return 0;
		}
		if (listing_add(l, batch->names[i].name, rec) < 0)
			return error_oom(err);
		if (l->ops->look == NULL)
			continue;
		r = look_at(l, c, &l->entries[l->n - 1], err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_batch(struct listing *l, struct nfs_client *c, const struct nfs_handle *folder,
		      size_t first, size_t n, struct error *err)
{
	struct record_batch *batch = calloc(1, sizeof(*batch));
	size_t i;
	int r;

	if (batch == NULL)
		return error_oom(err);
	batch->client = c;
	batch->names = &l->names[first];
	batch->n = n;
	batch->records = calloc(n, sizeof(*batch->records));
	batch->results = calloc(n, sizeof(*batch->results));
	if (batch->records == NULL || batch->results == NULL)
		r = error_oom(err);
	else
		r = batch_run(batch);
	if (r < 0 && err->code == ERROR_OK)
		(void)nfs_error_set(err, c, r, "reading records");
	if (r == 0)
		r = add_batch(l, c, folder, batch, err);
	for (i = 0; batch->records != NULL && i < n; i++)
		record_done(&batch->records[i]);
	free(batch->records);
	free(batch->results);
	free(batch);
	return r;
}

/*
 * Check whether an export earlier in the list leads to the same records, under another name of the
 * server or of the share. If we cannot tell, list both. Return a negative errno if the connection
 * broke.
 */
static int is_listed_before(const struct listing *l, const struct csi_driver *driver,
			    struct nfs_client *c)
{
	struct records_place place = { .port = c->export.port, .version = c->version };
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (l->n_exports < 2)
		return 0;
	r = nfs_lookup_full(c, &c->root, NFS_STATE_DIR, &handle, &attr);
	if (r == 0 && attr.is_full && attr.has_fsid) {
		(void)snprintf(place.address, sizeof(place.address), "%s", c->address);
		place.fsid = attr.fsid;
		place.fsid_minor = attr.fsid_minor;
		place.fileid = attr.fileid;
		place.ctime = attr.ctime;
	}
	return c->broken ? r : known_exports_place(driver->known, l->current, &place);
}

/* Forget where a share's records are if it cannot be listed: it must not hide its other name. */
static void forget_place(const struct listing *l, const struct csi_driver *driver)
{
	const struct records_place none = { .port = 0 };

	(void)known_exports_place(driver->known, l->current, &none);
}

/*
 * End a round in which everything was read. If look() was refused something, the session goes on
 * with another identity, if there is one, for which there is look_again().
 */
static int end_round(struct listing *l, size_t mark, struct error *err)
{
	size_t i;

	l->is_read = true;
	for (i = mark; i < l->n; i++)
		if (l->entries[i].is_refused)
			return error_set(err, ERROR_PERMISSION_DENIED, "%s", l->entries[i].problem);
	return 0;
}

/* Look at what an earlier identity was refused. What this one is refused, too, stays as it is. */
static int look_again(struct listing *l, struct nfs_client *c, size_t mark, struct error *err)
{
	size_t i;

	for (i = mark; i < l->n; i++) {
		struct listing_entry *entry = &l->entries[i];
		struct listing_entry before = *entry;
		int r;

		if (!entry->is_refused)
			continue;
		l->bytes -= strlen(before.problem);
		entry->problem = NULL;
		entry->is_refused = false;
		r = look_at(l, c, entry, err);
		if (r == 0 && !entry->is_refused) {
			free(before.problem);
			continue;
		}
		l->bytes += entry_bytes(l, &before) - entry_bytes(l, entry);
		free(entry->problem);
		*entry = before;
		if (r < 0)
			return r;
	}
	return end_round(l, mark, err);
}

/* mark: number of entries of earlier shares; an earlier round may have added some of this one. */
static int read_share(struct listing *l, const struct csi_driver *driver, struct nfs_client *c,
		      size_t mark, struct error *err)
{
	const struct nfs_handle *folder;
	size_t first = 0;
	int r;

	names_clear(l->names, &l->n_names);
	nfs_names_done(&l->root);
	drop_entries(l, mark);
	r = is_listed_before(l, driver, c);
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up the records' folder");
	if (r > 0)
		return 0;
	r = store_folder(c, l->ops->folder, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_readdir(c, folder, take_record_name, l);
	if (r < 0)
		return nfs_error_set(err, c, r, "reading the records' folder");
	if (l->n_names == 0)
		return 0;
	qsort(l->names, l->n_names, sizeof(*l->names), compare_names);
	if (l->ops->reads_root) {
		r = nfs_readdir(c, &c->root, take_root_name, l);
		if (r < 0)
			return nfs_error_set(err, c, r, "reading the share");
	}
	while (first < l->n_names && !l->is_full) {
		size_t n = l->n_names - first, room = l->max - l->n;

		if (n > BATCH_MAX)
			n = BATCH_MAX;
		if (room < n && l->data == NULL)
			n = room + 1; /* one more tells whether there is another page */
		r = read_batch(l, c, folder, first, n, err);
		if (r < 0)
			return r;
		first += n;
	}
	return end_round(l, mark, err);
}

/* -------- all shares -------- */

/*
 * Read the current share. If directories in it are closed to each identity, their entries say so,
 * and the others are listed all the same.
 */
static int read_current_share(struct listing *l, const struct csi_driver *driver, struct error *err)
{
	const size_t mark = l->n;
	struct session s;

	l->is_read = false;
	session_begin_reader(&s, driver, l->current, err);
	while (session_next(&s))
		s.result = l->is_read ? look_again(l, s.client, mark, err)
				      : read_share(l, driver, s.client, mark, err);
	if (s.result == 0 || !l->is_read || err->code != ERROR_PERMISSION_DENIED)
		return s.result;
	/* End well: the share was reached. */
	error_clear(err);
	session_begin_reader(&s, driver, l->current, err);
	while (session_next(&s))
		s.result = 0;
	return s.result;
}

/* The error of the server, if it was asked and cannot be reached; else NULL. */
static const struct error *away_error(const struct listing *l, const struct nfs_export *e)
{
	size_t i;

	for (i = 0; i < l->n_asked; i++)
		if (l->asked[i].is_away && nfs_export_is_same_server(l->asked[i].export, e))
			return &l->asked[i].err;
	return NULL;
}

/*
 * Ask the servers of all exports from here on at the same time, once. Each that is down would take
 * seconds. Without memory, they are asked one by one.
 */
static void ask_servers(struct listing *l, const struct csi_driver *driver, size_t from)
{
	size_t n = 0, i;

	if (l->asked != NULL || from == l->n_exports)
		return;
	l->asked = calloc(l->n_exports - from, sizeof(*l->asked));
	if (l->asked == NULL)
		return;
	for (i = from; i < l->n_exports; i++)
		/* They are sorted by server. */
		if (i == from || !nfs_export_is_same_server(&l->exports[i], &l->exports[i - 1]))
			l->asked[n++].export = &l->exports[i];
	reach_servers(driver->pool, l->asked, n);
	l->n_asked = n;
}

/* Whether nobody has looked at the share, because its server is busy: it may have any entries. */
static bool is_busy(int error, const struct error *err)
{
	return err->code == ERROR_RESOURCE_EXHAUSTED || error == -EUSERS;
}

/* Return 0, or a negative errno with the reason why the current share is left out. */
static int read_or_skip_share(struct listing *l, const struct csi_driver *driver, struct error *err)
{
	const struct error *away = away_error(l, l->current);
	int r = -EHOSTDOWN;

	if (away != NULL)
		*err = *away;
	else
		r = read_current_share(l, driver, err);
	l->after = NULL;
	if (r == 0)
		return 0;
	forget_place(l, driver);
	if (is_busy(r, err))
		return r;
	known_exports_fail(driver->known, l->current);
	log_warn("Skipping a share that cannot be listed", LOG_STR("server", l->current->server),
		 LOG_STR("share", l->current->share), LOG_STR("reason", err->msg));
	return r;
}

/* A list of many servers may take longer than its caller waits. */
static int check_awaited(struct request *req)
{
	if (atomic_load(&req->cancelled))
		return error_set(&req->err, ERROR_CANCELLED, "the caller has given up");
	if (request_is_past_deadline(req))
		return error_set(&req->err, ERROR_DEADLINE_EXCEEDED, "deadline exceeded");
	return 0;
}

static int read_shares(struct listing *l, const struct csi_driver *driver, size_t start,
		       struct request *req)
{
	struct error first = { .code = ERROR_OK };
	size_t i, reached = 0;
	int r = 0; /* of the first error */

	for (i = start; i < l->n_exports && !l->is_full; i++) {
		struct error why = { .code = ERROR_OK };
		int one = check_awaited(req);

		if (one < 0)
			return one;
		l->current = &l->exports[i];
		one = read_or_skip_share(l, driver, &why);
		if (one == 0) {
			reached++;
			continue;
		}
		if (is_busy(one, &why)) {
			req->err = why;
			return one;
		}
		if (why.code == ERROR_UNAVAILABLE)
			ask_servers(l, driver, i + 1);
		if (r == 0) {
			first = why;
			r = one;
		}
	}
	if (reached > 0 || r == 0)
		return 0;
	req->err = first;
	return r;
}

/* The exports that this process knows, and the default one. */
static int listing_exports(struct listing *l, const struct csi_driver *driver, struct error *err)
{
	struct nfs_export e;
	int r;

	if (driver->server != NULL && driver->share != NULL) {
		r = csi_driver_export(driver, &e, driver->server, driver->share, NULL, err);
		if (r < 0)
			return r;
		known_exports_remember(driver->known, &e);
		nfs_export_done(&e);
	}
	r = known_exports_list(driver->known, &l->exports, &l->n_exports);
	return r < 0 ? error_oom(err) : 0;
}

/* A token is "server#share#key": find the export, and the key after which to continue. */
static int parse_token(struct listing *l, const char *text, struct strv *parts, size_t *ret_start,
		       struct error *err)
{
	size_t i;

	*ret_start = 0;
	if (text[0] == '\0')
		return 0;
	if (strv_split(parts, text, '#') < 0)
		return error_oom(err);
	for (i = 0; parts->n == 3 && i < l->n_exports; i++) {
		if (strcmp(l->exports[i].server, parts->items[0]) != 0 ||
		    strcmp(l->exports[i].share, parts->items[1]) != 0)
			continue;
		l->after = parts->items[2];
		*ret_start = i;
		return 0;
	}
	return error_set(err, ERROR_ABORTED,
			 "starting_token: does not belong to this list; restart without it");
}

static int format_token(struct listing *l, struct error *err)
{
	const struct listing_entry *last = &l->entries[l->n - 1];
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, "%s#%s#%s", last->export->server, last->export->share, last->key) < 0)
		return error_oom(err);
	l->next_token = buf_steal(&b);
	return l->next_token != NULL ? 0 : error_oom(err);
}

int listing_read(struct listing *l, const struct csi_driver *driver, const struct listing_ops *ops,
		 const void *data, int32_t max_entries, const char *starting_token,
		 struct request *req)
{
	cleanup_strv struct strv token = { NULL, 0 };
	struct error *err = &req->err;
	size_t start;
	int r;

	*l = (struct listing){ .ops = ops, .data = data };
	if (max_entries < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "max_entries: must not be negative");
	l->max = max_entries > 0 ? (size_t)max_entries : SIZE_MAX;
	r = listing_exports(l, driver, err);
	if (r == 0)
		r = parse_token(l, starting_token, &token, &start, err);
	if (r == 0)
		r = read_shares(l, driver, start, req);
	if (r == 0 && l->is_full && l->n > 0)
		r = format_token(l, err);
	l->after = NULL;
	return r;
}
