/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The policy notes that a deletion leaves, see doc/design.md, "users/: who uses a directory". They
 * are written before the record becomes the tombstone, and again where the directory is retained.
 */

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "store/busy.h"
#include "store/directory.h"
#include "store/owner.h"
#include "store/users.h"
#include "store/volume_parts.h"

struct owner_question volume_question_of_deletion(const struct tombstone *t,
						  const struct record *rec)
{
	const bool has_record = rec->n > 0 && !tombstone_is_new(t);
	const struct volume v = volume_of(rec);

	return (struct owner_question){
		.volume = t->key,
		.has_record = has_record,
		.expects_notes = has_record && strcmp(t->key, t->dir) != 0,
		.scope = OWNER_ALL,
		.count = volume_is_proven_exclusive(&v, t->key) ? OWNER_COUNT_SHARING
								: OWNER_COUNT_FINISHED,
		.policies = true,
	};
}

static int find_other_tombstone(struct nfs_client *c, const char *name, enum busy_kind kind,
				void *data, struct error *err)
{
	const char *own = data;

	(void)c;
	(void)err;
	return kind == BUSY_VOLUME_GONE && strcmp(name, own) != 0;
}

/*
 * Write policy notes if others use the directory or have used it, so that their deletions follow
 * this volume's policy too. These may be under way, or be repeated after they have succeeded.
 */
static int note_policy_if_shared(struct nfs_client *c, const struct tombstone *t,
				 const struct record *rec, enum volume_on_delete policy,
				 struct error *err)
{
	const struct owner_question q = volume_question_of_deletion(t, rec);
	struct owner owner;
	int r;

	r = owner_find(c, t->dir, &q, &owner, err);
	if (r > 0 && owner.kind != OWNER_IS_VOLUME)
		return 0;
	if (r == 0)
		r = owner.was_shared;
	if (r == 0)
		r = busy_each(c, t->dir, find_other_tombstone, (void *)(uintptr_t)t->name, err);
	return r > 0 ? users_add_policy(c, t->dir, policy, err) : r;
}

/*
 * Note that the directory is retained, even if nobody else uses it: the deletion of an earlier
 * volume with this directory may be repeated. A volume without subDir needs the note only for a
 * shared directory, since only a volume of the same name can have had it before. id: of this
 * deletion, which may be repeated after it has succeeded. Then the policy of the id counts, and
 * without one, a default that may be another one by then: if it is not to retain, write the note in
 * any case.
 */
static int note_retained(struct nfs_client *c, const struct tombstone *t, const struct record *rec,
			 const struct volume_id *id, struct error *err)
{
	const struct volume unrecorded = { .name = NULL };
	const bool must = volume_policy(&unrecorded, id, ON_DELETE_DELETE) != ON_DELETE_RETAIN;
	struct error why = { .code = ERROR_OK };
	struct directory_place place;
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (!must && strcmp(t->key, t->dir) == 0)
		return note_policy_if_shared(c, t, rec, ON_DELETE_RETAIN, err);
	r = directory_find(c, t->dir, &place, &handle, &attr, &why);
	if (r == -ENOENT)
		return tombstone_keep_moved(c, t, ON_DELETE_RETAIN, err);
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION)
		return 0; /* there is nothing to keep */
	if (r == 0)
		r = users_add_policy(c, t->dir, ON_DELETE_RETAIN, &why);
	/* On a full share, do without the note if the directory is this volume's alone. */
	if (!must && (r == -ENOSPC || r == -EDQUOT))
		return note_policy_if_shared(c, t, rec, ON_DELETE_RETAIN, err);
	if (r < 0 && err != NULL)
		*err = why;
	return r;
}

int volume_note_policy_before_burial(struct nfs_client *c, const struct tombstone *t,
				     const struct record *rec, const struct volume_id *id,
				     enum volume_on_delete policy, struct error *err)
{
	const struct volume v = volume_of(rec);

	/* Without a record, an earlier attempt left the notes, or nobody counted the volume. */
	if (rec->n == 0 || policy == ON_DELETE_DELETE || volume_is_unfinished(&v))
		return 0;
	if (policy != ON_DELETE_RETAIN)
		return note_policy_if_shared(c, t, rec, policy, err);
	return note_retained(c, t, rec, id, err);
}

int volume_note_retained_again(struct nfs_client *c, const struct tombstone *t, struct error *err)
{
	const char *text = volume_of(&t->record).id;
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const struct volume_id unknown = { .on_delete = (char *)(uintptr_t) "" };
	int r = text != NULL ? volume_id_parse(&id, text) : -EINVAL;

	if (r == -ENOMEM)
		return error_oom(err);
	return note_retained(c, t, &t->record, r == 0 ? &id : &unknown, err);
}
