/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A volume that a request names by its id: its export and its record. Worker threads.
 */
#ifndef CSI_VOLUME_REF_H
#define CSI_VOLUME_REF_H

#include "csi/map.h"
#include "csi/session.h"
#include "store/record.h"
#include "store/settings.h"
#include "store/volume_id.h"

struct volume_ref {
	struct volume_id id;
	struct nfs_export export; /* as it was reached to read the record */
	struct record record; /* set by volume_ref_read(); empty if the volume has none */
	unsigned int version; /* of NFS, over which the record was read */
	bool is_unreached; /* the last session did not reach the share */
	struct volume_owner buried; /* who goes on with an interrupted deletion, if it is known */
	struct volume_owner owner; /* for the session */
};

/*
 * Parse an id and find out how to reach its export: by the mount options in the secrets, else as
 * earlier calls did. Return 0; -EINVAL, unreported, for an id that csi-nfs cannot have made; or
 * another negative errno with the error set. volume_ref_done() is due in any case.
 */
int volume_ref_init(struct volume_ref *ref, const struct csi_driver *driver, const char *id,
		    const struct csi_map *secrets, struct error *err);

/* As volume_ref_init(), with NOT_FOUND for an id that csi-nfs cannot have made. */
int volume_ref_find(struct volume_ref *ref, const struct csi_driver *driver, const char *id,
		    const struct csi_map *secrets, struct error *err);

/* Read the record. Blocks. Errors as session_begin_reader() and record_read(). */
int volume_ref_read(struct volume_ref *ref, const struct csi_driver *driver, struct error *err);

/*
 * As volume_ref_read(), for a deletion: if the volume has no record because an earlier attempt was
 * interrupted, the session goes on as the owner that the tombstone names.
 */
int volume_ref_read_for_deletion(struct volume_ref *ref, const struct csi_driver *driver,
				 struct error *err);

/* The volume's directory, from the record, else from the id. Borrowed; not checked yet. */
const char *volume_ref_directory(const struct volume_ref *ref);

/*
 * Begin a session for a volume whose record was read: as its owner, over the version of NFS that it
 * was created with, unless the export's options name one. ref and err are borrowed until the loop
 * ends.
 */
void volume_ref_begin(struct session *s, const struct csi_driver *driver, struct volume_ref *ref,
		      struct error *err);

/* session_next() for that session: reads the record again before a second round. */
bool volume_ref_next(struct volume_ref *ref, struct session *s);

/* After a failure: whether the share is gone for now, see session_share_is_gone(). */
bool volume_ref_is_gone(const struct volume_ref *ref, const struct csi_driver *driver,
			const struct error *err);

/*
 * After a change of the volume has failed: set ABORTED if its share is gone for now, as while the
 * server starts. The CO takes NOT_FOUND for the end of the change, but an earlier attempt, whose
 * answer was lost, may have made it.
 */
void volume_ref_check_final(const struct volume_ref *ref, const struct csi_driver *driver,
			    struct error *err);

/*
 * Read the record again after a note of use was written, and check that it is of the same volume:
 * before the note, the volume may have been deleted, and its directory given to another. ABORTED if
 * it is not. Blocks.
 */
int volume_ref_read_again(struct volume_ref *ref, const struct csi_driver *driver,
			  struct error *err);

/* Check that the volume's directory is there, and finished: 0, or NOT_FOUND. Blocks. */
int volume_ref_check(struct volume_ref *ref, const struct csi_driver *driver, struct error *err);

/*
 * For a reply: have the record name the server and the share of the id, as the share may have moved
 * since it was written. The record must not be written after this. Return 0 or -ENOMEM.
 */
int volume_ref_set_address(struct volume_ref *ref);

/* Lock the volume against other calls of this process. Errors as key_lock_take(). */
int volume_ref_lock(const struct volume_ref *ref, const struct csi_driver *driver,
		    struct key_lock **ret, struct error *err);

void volume_ref_done(struct volume_ref *ref);
#define cleanup_volume_ref __attribute__((cleanup(volume_ref_done)))

#endif
