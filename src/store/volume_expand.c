/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* ControllerExpandVolume, on the share: only the recorded size grows. */

#include <inttypes.h>

#include "nfs/calls.h"
#include "store/layout.h"
#include "store/volume.h"
#include "store/volume_parts.h"

/* A quota that the server has on the directory shows as a file system smaller than the export's. */
static int check_quota(struct nfs_client *c, const char *dir, const struct nfs_handle *handle,
		       int64_t size, struct error *err)
{
	struct nfs_space whole = { .total = 0 }, own = { .total = 0 };
	int r;

	r = nfs_fsstat(c, &c->root, &whole);
	if (r == 0)
		r = nfs_fsstat(c, handle, &own);
	if (r < 0)
		return nfs_error_set(err, c, r, "getting the size of '%s'", dir);
	if (own.total > 0 && own.total < whole.total && own.total < (uint64_t)size)
		return error_set(err, ERROR_OUT_OF_RANGE,
				 "the server's quota limits '%s' on %s:%s to %" PRIu64
				 " bytes; raise the quota first",
				 dir, c->export.server, c->export.share, own.total);
	return 0;
}

int volume_expand(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_capacity *capacity, int64_t *ret_size, struct error *err)
{
	const int64_t size = volume_of(rec).size;
	const int64_t larger = capacity->required > size ? capacity->required : size;
	const bool fresh = rec->n == 0;
	const struct nfs_handle *folder;
	struct nfs_handle handle;
	const char *dir = NULL;
	int r;

	r = volume_open_directory(c, id, rec, &dir, &handle, err);
	if (r < 0)
		return r;
	if (capacity->limit > 0 && size > capacity->limit)
		return error_set(err, ERROR_OUT_OF_RANGE,
				 "capacity_range: limit_bytes is below the volume's size, %" PRId64
				 " bytes",
				 size);
	*ret_size = larger;
	if (larger == size) {
		if (fresh)
			return 0;
		/*
		 * An earlier attempt may have ended before it removed the parts of the old record.
		 */
		r = store_folder(c, STORE_VOLUMES, false, &folder, err);
		return r < 0 ? r : record_forget(c, folder, volume_id_key(id), rec, err);
	}
	r = check_quota(c, dir, &handle, larger, err);
	if (r < 0)
		return r;
	/* An id of an early csi-driver-nfs: there is nowhere to keep the size. */
	if (!volume_key_can_have_record(volume_id_key(id)))
		return 0;
	if ((fresh && volume_describe_foreign(rec, id) < 0) || volume_set_size(rec, larger) < 0)
		return error_oom(err);
	r = volume_write_record(c, id, rec, fresh, err);
	return r < 0 ? r : 0; /* without a record, there is nowhere to keep the size */
}
