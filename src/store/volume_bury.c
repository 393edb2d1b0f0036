/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The tombstone of a volume: set when it is deleted, or found if a deletion was interrupted. */

#include <errno.h>
#include <string.h>

#include "store/busy.h"
#include "store/directory_change.h"
#include "store/tombstone.h"
#include "store/volume_parts.h"

/* A search for the tombstone of a volume. */
struct tombstone_search {
	const char *key; /* of the volume */
	struct tombstone *t; /* out */
};

static bool tombstone_is_of(const struct tombstone *t, const char *key)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const char *text = volume_of(&t->record).id;

	if (text == NULL)
		return busy_is_of(t->name, t->dir);
	return volume_id_parse(&id, text) == 0 && strcmp(volume_id_key(&id), key) == 0;
}

/* Adopt the tombstone if it is of the volume. Return 1 then, 0 for any other. */
static int adopt_if_of_volume(struct nfs_client *c, const char *name, enum busy_kind kind,
			      void *data, struct error *err)
{
	struct tombstone_search *search = data;
	struct error why = { .code = ERROR_OK };
	int r;

	if (kind != BUSY_VOLUME_GONE)
		return 0;
	r = tombstone_adopt(c, search->t, name, &why);
	if (r == 0 && tombstone_is_of(search->t, search->key))
		return 1;
	search->t->name[0] = '\0';
	record_done(&search->t->record);
	/* The tombstone of another volume looks damaged if it has parts, which have its key. */
	if (r == 0 || r == -ENOENT || why.code == ERROR_FAILED_PRECONDITION)
		return 0;
	*err = why;
	return r;
}

struct volume_burial_search {
	const char *key; /* of the volume */
	struct volume_owner *owner; /* out */
};

/* A tombstone that cannot be read tells no owner: the deletion itself reports it. */
static int take_owner_if_of_volume(struct nfs_client *c, const char *name, enum busy_kind kind,
				   void *data, struct error *err)
{
	const struct volume_burial_search *search = data;
	cleanup_tombstone struct tombstone t = { .kind = kind };
	struct error ignored = { .code = ERROR_OK };

	(void)err;
	if (kind != BUSY_VOLUME_GONE)
		return 0;
	t.key = t.dir = search->key;
	if (tombstone_peek(c, &t, name, &ignored) < 0 || !tombstone_is_of(&t, search->key))
		return 0;
	*search->owner = volume_of(&t.record).owner;
	return 1;
}

int volume_find_buried_owner(struct nfs_client *c, const struct volume_id *id,
			     struct volume_owner *ret, struct error *err)
{
	struct volume_burial_search search = { .key = volume_id_key(id), .owner = ret };
	int r = busy_each(c, NULL, take_owner_if_of_volume, &search, err);

	if (r != 0)
		return r < 0 ? r : 0;
	return tombstone_find_remains_owner(c, STORE_VOLUMES, search.key, ret, err);
}

/* Set a tombstone for a volume of csi-driver-nfs, which has no record to rename. */
static int bury_foreign_volume(struct nfs_client *c, struct tombstone *t,
			       const struct volume_id *id, enum volume_on_delete policy,
			       struct error *err)
{
	cleanup_free char *text = volume_id_format(id);
	cleanup_record struct record rec = { .n = 0 };
	int r;

	r = directory_is_gone(c, t->dir, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (text == NULL || volume_describe_deleted(&rec, text, t->dir, policy) < 0)
		return error_oom(err);
	return tombstone_set_unrecorded(c, t, &rec, err);
}

int volume_bury(struct nfs_client *c, struct tombstone *t, const struct volume_id *id,
		const struct record *rec, enum volume_on_delete policy, struct error *err)
{
	struct tombstone_search search = { .key = t->key, .t = t };
	int r;

	if (rec->n > 0) {
		r = tombstone_set(c, t, err);
		if (r != -ENOENT)
			return r;
		t->name[0] = '\0';
	}
	r = busy_each(c, NULL, adopt_if_of_volume, &search, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (rec->n == 0)
		return bury_foreign_volume(c, t, id, policy, err);
	return error_set(err, ERROR_ABORTED, "the volume is being deleted; try again");
}
