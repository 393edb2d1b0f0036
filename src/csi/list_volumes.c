/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <stdlib.h>
#include <string.h>

#include "csi/controller.h"
#include "csi/listing.h"
#include "csi/volume_message.h"
#include "store/owner.h"
#include "store/volume.h"

/* Also leave out a copy of another volume's record, which would list that volume twice. */
static int volume_check_listed(struct nfs_client *c, const char *key, const struct record *rec,
			       struct error *err)
{
	int r = volume_check_record(c, key, rec, err);

	if (r == 0)
		r = owner_check_record(c, key, rec, err);
	return r < 0 ? r : 0;
}

static bool volume_accepts(const struct record *rec, const void *data)
{
	const struct volume v = volume_of(rec);

	(void)data;
	return v.id != NULL && v.dir != NULL;
}

static size_t volume_bytes(const struct record *rec)
{
	size_t n = 64, i;

	for (i = 0; i < rec->n; i++)
		n += strlen(rec->pairs[i].key) + strlen(rec->pairs[i].value) + 8;
	return n;
}

/*
 * Return 1, 0, or a negative errno: also for a link or file in the directory's place or above. Most
 * volumes lie in the root of the share, which is read once for all of them.
 */
static int volume_has_directory(const struct listing *l, struct nfs_client *c,
				const struct record *rec, struct error *err)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	bool has_directory = false;
	const char *dir = NULL;
	int r = volume_id_parse(&id, volume_of(rec).id); /* which is valid: it was checked */

	if (r < 0)
		return error_oom(err);
	r = volume_directory(c, &id, rec, &dir, err);
	if (r < 0)
		return r;
	if (strchr(dir, '/') == NULL && listing_root_has(l, dir))
		return 1;
	/* On a server that folds names, the root may have it in another spelling. */
	r = volume_look(c, &id, rec, &has_directory, err);
	return r < 0 ? r : has_directory;
}

/*
 * Whether an error is about the one directory. Whoever may write in the directories above it can
 * bring it about, and must not hide the other volumes.
 */
static bool is_problem_of_directory(const struct nfs_client *c, const struct error *why)
{
	return !c->broken && error_is_final(why->code) && why->code != ERROR_RESOURCE_EXHAUSTED;
}

static int volume_look_at_directory(struct listing *l, struct nfs_client *c,
				    struct listing_entry *entry, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	const char *problem;
	int r;

	r = volume_has_directory(l, c, &entry->record, &why);
	if (r > 0)
		return 0;
	if (r < 0 && !is_problem_of_directory(c, &why)) {
		*err = why;
		return r;
	}
	entry->is_refused = why.code == ERROR_PERMISSION_DENIED; /* another identity may see more */
	problem = r < 0 ? why.msg : "the volume's directory is missing; its record is there";
	entry->problem = strdup(problem);
	return entry->problem == NULL ? error_oom(err) : 0;
}

static const struct listing_ops volumes = {
	.folder = STORE_VOLUMES,
	.check = volume_check_listed,
	.accepts = volume_accepts,
	.bytes = volume_bytes,
	.look = volume_look_at_directory,
	.reads_root = true,
};

struct volume_reply {
	Csi__V1__ListVolumesResponse__Entry entry;
	Csi__V1__ListVolumesResponse__VolumeStatus status;
	struct volume_message message;
};

static int volume_reply_init(struct volume_reply *reply, const struct listing_entry *entry)
{
	const char *id = volume_of(&entry->record).id;

	if (volume_message_init(&reply->message, id, &entry->record) < 0)
		return -1;
	volume_message_set_condition(&reply->message, entry->problem);
	csi__v1__list_volumes_response__volume_status__init(&reply->status);
	csi__v1__list_volumes_response__entry__init(&reply->entry);
	reply->status.volume_condition = &reply->message.condition;
	reply->entry.volume = &reply->message.volume;
	reply->entry.status = &reply->status;
	return 0;
}

static int list_volumes_reply(const struct listing *l, Csi__V1__ListVolumesResponse_Closure closure,
			      void *data, struct error *err)
{
	Csi__V1__ListVolumesResponse out = CSI__V1__LIST_VOLUMES_RESPONSE__INIT;
	cleanup_free Csi__V1__ListVolumesResponse__Entry **list = calloc(l->n + 1, sizeof(*list));
	cleanup_free struct volume_reply *replies = calloc(l->n + 1, sizeof(*replies));
	size_t i, n;
	int r = 0;

	if (list == NULL || replies == NULL)
		return error_oom(err);
	for (n = 0; n < l->n && r == 0; n++) {
		r = volume_reply_init(&replies[n], &l->entries[n]);
		list[n] = &replies[n].entry;
	}
	if (r == 0) {
		out.next_token = l->next_token != NULL ? l->next_token : out.next_token;
		out.entries = list;
		out.n_entries = n;
		closure(&out, data);
	}
	for (i = 0; i < n; i++)
		volume_message_done(&replies[i].message);
	return r < 0 ? error_oom(err) : 0;
}

CONTROLLER_METHOD(list_volumes, ListVolumes)
{
	cleanup_listing struct listing l = { .n = 0 };
	struct request *req = data;

	if (listing_read(&l, csi_driver_of(service), &volumes, NULL, in->max_entries,
			 in->starting_token, req) < 0 ||
	    list_volumes_reply(&l, closure, data, &req->err) < 0)
		closure(NULL, data);
}
