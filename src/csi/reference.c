/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/reference.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/str.h"
#include "csi/volume.h"

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

int csi_lock_volume(const struct csi_driver *driver, const struct nfs_export *e, const char *key,
		    struct inflight_lock **ret, struct error *err)
{
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, "%s#%s#%s", e->server, e->share, key) < 0)
		return error_oom(err);
	return inflight_acquire(driver->inflight, "volume", b.data, ret, err);
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

	*ref = (struct reference){ .default_policy = driver->on_delete };
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
