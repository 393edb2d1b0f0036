/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/driver.h"

#include <errno.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/list.h"

const struct csi_driver *csi_driver_of(Csi__V1__Controller_Service *service)
{
	return container_of(service, struct csi_controller, service)->driver;
}

void csi_set_subject(struct request *req, const char *subject)
{
	(void)snprintf(req->subject, sizeof(req->subject), "%s", subject);
}

struct volume_defaults csi_driver_defaults(const struct csi_driver *driver)
{
	return (struct volume_defaults){
		.server = driver->server,
		.share = driver->share,
		.mode = driver->mount_permissions,
		.on_delete = driver->on_delete,
	};
}

int csi_driver_lock(const struct csi_driver *driver, const char *what, const struct nfs_export *e,
		    const char *key, struct key_lock **ret, struct error *err)
{
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, "%s#%s#%s#%s", what, e->server, e->share, key) < 0)
		return error_oom(err);
	return key_lock_take(driver->key_locks, what, b.data, ret, err);
}

int csi_driver_export(const struct csi_driver *driver, struct nfs_export *e, const char *server,
		      const char *share, const struct csi_map *secrets, struct error *err)
{
	int r;

	r = nfs_export_init(e, server, share, err);
	if (r < 0)
		return r;
	if (secrets != NULL) {
		r = nfs_export_apply_options(e, csi_map_get(secrets, SECRET_MOUNT_OPTIONS), err);
		if (r < 0)
			return r == -EINVAL ? -EBADMSG : r; /* the secret is wrong, not the id */
	}
	known_exports_apply(driver->known, e);
	return 0;
}

void trash_init(struct trash *t, const struct nfs_export *e, const struct nfs_client *c)
{
	t->export = *e;
	t->export.uid = c->export.uid;
	t->export.gid = c->export.gid;
}

void trash_purge(const struct trash *t, const struct csi_driver *driver)
{
	/* Without memory, the next call on this share or the next process purges it. */
	if (t->is_used)
		(void)purger_add(driver->purger, &t->export);
}
