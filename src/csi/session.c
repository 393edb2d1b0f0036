/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/volume.h"

const struct csi_driver *csi_controller_driver(Csi__V1__Controller_Service *service)
{
	return container_of(service, struct csi_controller, service)->driver;
}

void csi_set_subject(struct request *req, const char *subject)
{
	(void)snprintf(req->subject, sizeof(req->subject), "%s", subject);
}

int csi_with_client(const struct csi_driver *driver, const struct nfs_export *e, csi_work_fn work,
		    void *data, struct error *err)
{
	int attempt, r;

	for (attempt = 0;; attempt++) {
		struct nfs_client *c;

		r = nfs_pool_lease(driver->pool, e, &c, err);
		if (r < 0)
			return r;
		r = work(c, data, err);
		if (r == -ESTALE)
			c->broken = true; /* with the handles that it holds */
		nfs_pool_return(driver->pool, c);
		if (r == -ESTALE)
			nfs_pool_drop(driver->pool, e);
		if ((r != -ESTALE && r != -ECONNABORTED) || attempt > 0)
			break;
		error_clear(err);
	}
	if (r == 0) {
		known_exports_remember(driver->known, e);
		/* Of what another process left there. Without memory the next call asks again. */
		(void)purger_note(driver->purger, e);
	}
	return r;
}

static int take_root_owner(struct nfs_client *c, void *data, struct error *err)
{
	struct nfs_attr *attr = data;
	int r = nfs_getattr(c, &c->root, attr);

	return r < 0 ? nfs_error_set(err, c, r, "looking up the owner of the share") : 0;
}

int csi_with_reader(const struct csi_driver *driver, struct nfs_export *e, csi_work_fn work,
		    void *data, struct error *err)
{
	struct error first = { .code = ERROR_OK }, second = { .code = ERROR_OK };
	struct nfs_attr attr = { .has_owner = false };
	struct nfs_export own = *e;
	int r;

	r = csi_with_client(driver, e, work, data, &first);
	if (first.code != ERROR_PERMISSION_DENIED ||
	    csi_with_client(driver, e, take_root_owner, &attr, &second) < 0 || !attr.has_owner ||
	    attr.uid == e->uid) {
		*err = first;
		return r;
	}
	e->uid = attr.uid;
	e->gid = attr.gid;
	r = csi_with_client(driver, e, work, data, &second);
	if (r < 0 && second.code == ERROR_PERMISSION_DENIED) {
		e->uid = own.uid;
		e->gid = own.gid;
		*err = first;
	} else {
		*err = second;
	}
	return r;
}

int csi_with_owner(const struct csi_driver *driver, const struct nfs_export *e,
		   const struct volume_owner *owner, csi_work_fn work, void *data, struct error *err)
{
	struct error first = { .code = ERROR_OK };
	struct nfs_export as = *e; /* borrows its strings */
	int r;

	if (owner->has_uid)
		as.uid = owner->uid;
	if (owner->has_gid)
		as.gid = owner->gid;
	if (nfs_export_is_equal(&as, e))
		return csi_with_client(driver, e, work, data, err);
	r = csi_with_client(driver, &as, work, data, &first);
	if (first.code == ERROR_PERMISSION_DENIED) {
		r = csi_with_client(driver, e, work, data, err);
		if (err->code != ERROR_PERMISSION_DENIED)
			return r;
	}
	*err = first; /* it names the identity that was asked for */
	return r;
}

struct look {
	enum store_place folder;
	const char *key;
	bool begun;
};

static int look_for_record(struct nfs_client *c, void *data, struct error *err)
{
	const struct nfs_handle *folder;
	struct look *look = data;
	int r;

	r = store_folder(c, look->folder, false, &folder, err);
	if (r == 0)
		r = record_is_begun(c, folder, look->key, err);
	look->begun = r > 0;
	return r == -ENOENT || r > 0 ? 0 : r;
}

void csi_check_final(const struct csi_driver *driver, const struct nfs_export *e,
		     const struct volume_owner *owner, enum store_place folder, const char *key,
		     struct error *err)
{
	struct look look = { .folder = folder, .key = key };
	struct error second = { .code = ERROR_OK };
	int r;

	if (err->sys == 0 || !error_is_final(err->code))
		return;
	r = csi_with_owner(driver, e, owner, look_for_record, &look, &second);
	if (r == 0 && !look.begun)
		return;
	/* Where there is not even a client, the server has refused the share: nobody waits for that to change. */
	if (r < 0 && second.code == err->code && second.sys == err->sys &&
	    strcmp(second.msg, err->msg) == 0)
		return;
	err->code = ERROR_ABORTED;
}

struct volume_work {
	struct reference *ref;
	csi_volume_fn work;
	void *data;
	bool again;
};

static int read_record(struct nfs_client *c, void *data, struct error *err)
{
	struct reference *ref = data;

	record_done(&ref->record);
	ref->version = c->version;
	return volume_read(c, &ref->id, &ref->record, err);
}

static int run_volume_work(struct nfs_client *c, void *data, struct error *err)
{
	struct volume_work *x = data;
	int r = x->again ? read_record(c, x->ref, err) : 0;

	x->again = true;
	return r < 0 ? r : x->work(c, x->ref, x->data, err);
}

int csi_with_volume(const struct csi_driver *driver, struct reference *ref, csi_volume_fn work,
		    void *data, struct error *err)
{
	const struct volume_owner owner = volume_owner_of(&ref->record);
	struct volume_work x = { .ref = ref, .work = work, .data = data };
	const unsigned int version = volume_version_of(&ref->record);
	struct nfs_export e = ref->export; /* borrows its strings */
	int r;

	if (e.version == 0 && version != ref->version)
		e.version = version;
	r = csi_with_owner(driver, &e, &owner, run_volume_work, &x, err);
	if (r != -EPROTONOSUPPORT || nfs_export_is_equal(&e, &ref->export))
		return r;
	/* The server has lost that version since. */
	error_clear(err);
	return csi_with_owner(driver, &ref->export, &owner, run_volume_work, &x, err);
}

int csi_find_volume_work(struct nfs_client *c, struct reference *ref, void *data, struct error *err)
{
	(void)data;
	return volume_find(c, &ref->id, &ref->record, err);
}

int csi_lock(const struct csi_driver *driver, const char *what, const struct nfs_export *e,
	     const char *key, struct inflight_lock **ret, struct error *err)
{
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, "%s#%s#%s#%s", what, e->server, e->share, key) < 0)
		return error_oom(err);
	return inflight_acquire(driver->inflight, what, b.data, ret, err);
}

int csi_lock_volume(const struct csi_driver *driver, const struct nfs_export *e, const char *key,
		    struct inflight_lock **ret, struct error *err)
{
	return csi_lock(driver, "volume", e, key, ret, err);
}

void reference_done(struct reference *ref)
{
	volume_id_done(&ref->id);
	nfs_export_done(&ref->export);
	record_done(&ref->record);
}

int reference_init(struct reference *ref, const struct csi_driver *driver, const char *id,
		   const struct csi_map *secrets, struct error *err)
{
	int r;

	*ref = (struct reference){ .record = { .n = 0 } };
	r = volume_id_parse(&ref->id, id);
	if (r == -EINVAL)
		return r;
	if (r < 0)
		return error_oom(err);
	r = nfs_export_init(&ref->export, ref->id.server, ref->id.share, err);
	if (r < 0)
		return r;
	r = nfs_export_apply_options(&ref->export, csi_map_get(secrets, SECRET_MOUNT_OPTIONS), err);
	if (r == -EINVAL)
		return -EBADMSG; /* that is the secret's fault, not the id's */
	if (r == 0)
		known_exports_apply(driver->known, &ref->export);
	return r;
}

int reference_read(struct reference *ref, const struct csi_driver *driver, struct error *err)
{
	return csi_with_reader(driver, &ref->export, read_record, ref, err);
}

int reference_find(struct reference *ref, const struct csi_driver *driver, const char *id,
		   const struct csi_map *secrets, struct error *err)
{
	int r = reference_init(ref, driver, id, secrets, err);

	if (r == -EINVAL)
		return error_set(err, ERROR_NOT_FOUND, "volume '%.128s' does not exist", id);
	return r;
}

size_t csi_context_of(const struct record *rec, Csi__V1__Volume__VolumeContextEntry *entries,
		      Csi__V1__Volume__VolumeContextEntry **list)
{
	const size_t prefix = strlen(VOLUME_CONTEXT_PREFIX);
	size_t n = 0, i;

	for (i = 0; i < rec->n && n < CSI_CONTEXT_MAX; i++) {
		if (!str_has_prefix(rec->pairs[i].key, VOLUME_CONTEXT_PREFIX))
			continue;
		csi__v1__volume__volume_context_entry__init(&entries[n]);
		entries[n].key = rec->pairs[i].key + prefix;
		entries[n].value = rec->pairs[i].value;
		list[n] = &entries[n];
		n++;
	}
	return n;
}

int csi_known_exports(const struct csi_driver *driver, struct nfs_export **ret, size_t *ret_n,
		      struct error *err)
{
	struct nfs_export e;
	int r;

	if (driver->server != NULL && driver->share != NULL) {
		r = nfs_export_init(&e, driver->server, driver->share, err);
		if (r < 0)
			return r;
		known_exports_apply(driver->known, &e);
		known_exports_remember(driver->known, &e);
		nfs_export_done(&e);
	}
	r = known_exports_list(driver->known, ret, ret_n);
	return r < 0 ? error_oom(err) : 0;
}

int csi_list_start(const char *starting_token, const struct nfs_export *exports, size_t n,
		   struct strv *token, size_t *ret_start, const char **ret_after, struct error *err)
{
	size_t i;

	*ret_start = 0;
	*ret_after = NULL;
	if (starting_token[0] == '\0')
		return 0;
	if (strv_split(token, starting_token, '#') < 0)
		return error_oom(err);
	for (i = 0; token->n == 3 && i < n; i++) {
		if (strcmp(exports[i].server, token->items[0]) != 0 ||
		    strcmp(exports[i].share, token->items[1]) != 0)
			continue;
		*ret_after = token->items[2];
		*ret_start = i;
		return 0;
	}
	return error_set(err, ERROR_ABORTED,
			 "starting_token: is not of this list; begin again without one");
}

void csi_trash_of(struct trash *t, const struct nfs_export *e, const struct nfs_client *c)
{
	t->export = *e;
	t->export.uid = c->export.uid;
	t->export.gid = c->export.gid;
}

void csi_purge(const struct csi_driver *driver, const struct trash *t)
{
	/* Without memory: the next call on this share, or the next process, does it. */
	if (t->is_used)
		(void)purger_add(driver->purger, &t->export);
}
