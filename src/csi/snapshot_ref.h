/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A snapshot that a request names by its id: its export, its record and its archive. And the
 * message for a snapshot in a reply. Worker threads.
 */
#ifndef CSI_SNAPSHOT_REF_H
#define CSI_SNAPSHOT_REF_H

#include "csi.pb-c.h"
#include "csi/map.h"
#include "csi/session.h"
#include "store/snapshot.h"

struct snapshot_ref {
	struct snapshot snapshot;
	struct nfs_export export;
};

/*
 * Parse an id and find out how to reach its export, as volume_ref_init(). Return 0; -EINVAL,
 * unreported, for an id that cannot be a snapshot's; or another negative errno with the error set.
 * snapshot_ref_done() is due in either case.
 */
int snapshot_ref_init(struct snapshot_ref *ref, const struct csi_driver *driver, const char *id,
		      const struct csi_map *secrets, struct error *err);

/* Read the record and look for the contents. Blocks. */
int snapshot_ref_read(struct snapshot_ref *ref, const struct csi_driver *driver, struct error *err);

/*
 * Find a complete snapshot by its id. If it has no record, as one that csi-driver-nfs made, fill
 * one in. Return 1, 0 if there is no such snapshot, or a negative errno with the error set. Blocks.
 * snapshot_ref_done() is due.
 */
int snapshot_ref_find(struct snapshot_ref *ref, const struct csi_driver *driver, const char *id,
		      const struct csi_map *secrets, struct error *err);

void snapshot_ref_done(struct snapshot_ref *ref);
#define cleanup_snapshot_ref __attribute__((cleanup(snapshot_ref_done)))

/* A snapshot in a reply; borrows from the record that it was made of. */
struct snapshot_message {
	Csi__V1__Snapshot snapshot;
	Google__Protobuf__Timestamp time;
};

void snapshot_message_init(struct snapshot_message *m, const struct record *rec);

#endif
