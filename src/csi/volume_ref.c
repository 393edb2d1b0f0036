/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/volume_ref.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "store/volume.h"

int volume_ref_init(struct volume_ref *ref, const struct csi_driver *driver, const char *id,
		    const struct csi_map *secrets, struct error *err)
{
	int r;

	*ref = (struct volume_ref){ .version = 0 };
	r = volume_id_parse(&ref->id, id);
	if (r == -EINVAL)
		return r;
	if (r < 0)
		return error_oom(err);
	return csi_driver_export(driver, &ref->export, ref->id.server, ref->id.share, secrets, err);
}

int volume_ref_find(struct volume_ref *ref, const struct csi_driver *driver, const char *id,
		    const struct csi_map *secrets, struct error *err)
{
	int r = volume_ref_init(ref, driver, id, secrets, err);

	if (r == -EINVAL)
		return error_set(err, ERROR_NOT_FOUND, "volume '%.128s' does not exist", id);
	return r;
}

static int volume_ref_read_with(struct volume_ref *ref, struct nfs_client *c, struct error *err)
{
	record_done(&ref->record);
	ref->version = c->version;
	return volume_read(c, &ref->id, &ref->record, err);
}

int volume_ref_read(struct volume_ref *ref, const struct csi_driver *driver, struct error *err)
{
	struct session s;

	session_begin_reader(&s, driver, &ref->export, err);
	while (session_next(&s))
		s.result = volume_ref_read_with(ref, s.client, err);
	ref->is_unreached = !s.is_reached;
	return s.result;
}

int volume_ref_read_again(struct volume_ref *ref, const struct csi_driver *driver,
			  struct error *err)
{
	const uint64_t before = volume_record_identity(&ref->record);
	int r = volume_ref_read(ref, driver, err);

	if (r < 0)
		volume_ref_check_final(ref, driver, err);
	if (r < 0 || volume_record_identity(&ref->record) == before)
		return r;
	return error_set(err, ERROR_ABORTED,
			 "volume '%s' was deleted, or made again, at this moment; try again",
			 volume_id_key(&ref->id));
}

int volume_ref_read_for_deletion(struct volume_ref *ref, const struct csi_driver *driver,
				 struct error *err)
{
	struct session s;
	int r = volume_ref_read(ref, driver, err);

	if (r < 0 || ref->record.n > 0)
		return r;
	session_begin_reader(&s, driver, &ref->export, err);
	while (session_next(&s))
		s.result = volume_find_buried_owner(s.client, &ref->id, &ref->buried, err);
	return s.result;
}

const char *volume_ref_directory(const struct volume_ref *ref)
{
	return volume_named_directory(&ref->record, &ref->id);
}

void volume_ref_begin(struct session *s, const struct csi_driver *driver, struct volume_ref *ref,
		      struct error *err)
{
	const struct volume v = volume_of(&ref->record);

	ref->owner = ref->record.n > 0 ? v.owner : ref->buried;
	session_begin_as(s, driver, &ref->export, &ref->owner, err);
	if (ref->export.version == 0 && v.version != ref->version)
		session_prefer_version(s, v.version);
}

bool volume_ref_next(struct volume_ref *ref, struct session *s)
{
	while (session_next(s)) {
		if (s->rounds == 1)
			return true;
		s->result = volume_ref_read_with(ref, s->client, s->err);
		if (s->result == 0)
			return true;
	}
	ref->is_unreached = !s->is_reached;
	return false;
}

bool volume_ref_is_gone(const struct volume_ref *ref, const struct csi_driver *driver,
			const struct error *err)
{
	return ref->is_unreached && session_share_is_gone(driver, &ref->export, err);
}

void volume_ref_check_final(const struct volume_ref *ref, const struct csi_driver *driver,
			    struct error *err)
{
	if (volume_ref_is_gone(ref, driver, err))
		err->code = ERROR_ABORTED;
}

int volume_ref_check(struct volume_ref *ref, const struct csi_driver *driver, struct error *err)
{
	struct session s;

	volume_ref_begin(&s, driver, ref, err);
	while (volume_ref_next(ref, &s))
		s.result = volume_find(s.client, &ref->id, &ref->record, err);
	return s.result;
}

int volume_ref_set_address(struct volume_ref *ref)
{
	cleanup_free char *share = path_join_root(ref->id.share, NULL);

	return share != NULL ? volume_set_address(&ref->record, ref->id.server, share) : -ENOMEM;
}

int volume_ref_lock(const struct volume_ref *ref, const struct csi_driver *driver,
		    struct key_lock **ret, struct error *err)
{
	return csi_driver_lock(driver, "volume", &ref->export, volume_id_key(&ref->id), ret, err);
}

void volume_ref_done(struct volume_ref *ref)
{
	volume_id_done(&ref->id);
	nfs_export_done(&ref->export);
	record_done(&ref->record);
}
