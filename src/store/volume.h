/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Volumes on a share: their records, and the calls that create, change and delete them, step by
 * step and by handle. A crash may follow any step. The record is written before the directory is
 * made and removed after the directory is gone, so a retry always finds what is left to do.
 *
 * volume_create.c, volume_expand.c, volume_modify.c and volume_delete.c each do the work of one
 * call. Worker threads; blocks, except for the functions that take only records and views.
 */
#ifndef STORE_VOLUME_H
#define STORE_VOLUME_H

#include <stdint.h>

#include "nfs/client.h"
#include "store/volume_record.h"

/* Read the volume's record. ret stays empty if it has none. */
int volume_read(struct nfs_client *c, const struct volume_id *id, struct record *ret,
		struct error *err);

/* Check that the record under the key is whole. FAILED_PRECONDITION if it is damaged. */
int volume_check_record(struct nfs_client *c, const char *key, const struct record *rec,
			struct error *err);

/* Return the directory in the record, else in the id: borrowed, unchecked, for locks and notes. */
const char *volume_named_directory(const struct record *rec, const struct volume_id *id);

/*
 * Likewise, checked: FAILED_PRECONDITION for a record without a valid directory. rec is what
 * volume_read() found.
 */
int volume_directory(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		     const char **ret, struct error *err);

/* -------- the calls -------- */

/* Callback that fills a new volume; see fill() in store/staging.h. */
struct volume_filler {
	/* NULL: the volume begins empty */
	int (*fill)(struct nfs_client *c, const char *name, void *data, struct error *err);
	void *data;
	bool *ret_trashed; /* set if there is something to purge */
	bool replace_archive; /* as in volume_disposal, for deletions that are finished first */
	/* In and out: an earlier round of this call has seen the record. NULL: one round only. */
	bool *had_record;
	unsigned int defaults; /* of enum volume_mutable: settings that the request does not name */
};

/*
 * Create the volume that rec describes, finish one that was begun, or find it there already; rec
 * becomes the record on the share. filler may be NULL for a volume that begins empty. The settings
 * in filler->defaults are those of the record, if there is one: defaults may change. Errors:
 * ALREADY_EXISTS for the same name with other parameters, or with a size that does not fit
 * capacity; ABORTED if an earlier round of this call has seen the record, and it is gone: another
 * replica has answered a deletion OK; else as nfs_error_set(). Nothing is left behind after a final
 * code.
 */
int volume_create(struct nfs_client *c, const char *key, struct record *rec,
		  const struct volume_capacity *capacity, const struct volume_filler *filler,
		  struct error *err);

/*
 * Record a larger size. *ret_size becomes what is required, or the present size if that is larger.
 * rec is what volume_read() found, and becomes the record on the share: a volume without one, as
 * csi-driver-nfs makes them, gets one, unless the directory belongs to another volume alone: then
 * the size is not kept. Errors: NOT_FOUND; OUT_OF_RANGE if the limit is below the
 * present size, or a quota of the server below the new one; else as nfs_error_set().
 */
int volume_expand(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_capacity *capacity, int64_t *ret_size, struct error *err);

/*
 * Apply the settings in changes->given to the directory and the record: all of them or none. rec as
 * for volume_expand(). Errors: NOT_FOUND; FAILED_PRECONDITION if another volume has the directory;
 * else as nfs_error_set().
 */
int volume_modify(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_settings *changes, struct error *err);

/* Options of a deletion. */
struct volume_disposal {
	enum volume_on_delete policy; /* used if neither the record nor the id has one */
	bool purge_now; /* purge deleted directories before the answer, not by the purger */
	bool replace_archive; /* of the same name; else the new one gets a dated name */
};

/*
 * Find the owner of a volume without a record whose deletion was interrupted: its tombstone tells
 * it, and only that identity may go on where the export squashes root. *ret is left alone if there
 * is no tombstone.
 */
int volume_find_buried_owner(struct nfs_client *c, const struct volume_id *id,
			     struct volume_owner *ret, struct error *err);

/*
 * Delete, archive or retain the volume's directory, by the policy of its record, else of its id,
 * else of how, and remove the record. rec may get that policy. A directory that other volumes use
 * stays. Return 0 also if the volume is gone already. *ret_trashed tells whether there is something
 * to purge.
 */
int volume_delete(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		  const struct volume_disposal *how, bool *ret_trashed, struct error *err);

/*
 * Look whether the volume's directory is there. FAILED_PRECONDITION if something else is in its
 * place.
 */
int volume_look(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		bool *ret_has_directory, struct error *err);

/*
 * Check that the directory is there and the volume is finished: 0, or -ENOENT with NOT_FOUND.
 * ABORTED if the directory is in the trash and may come back.
 */
int volume_find(struct nfs_client *c, const struct volume_id *id, const struct record *rec,
		struct error *err);

#endif
