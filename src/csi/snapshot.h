/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Snapshots: archives on a share, as csi-driver-nfs has them, so that each driver restores the other's:
 *
 *   id        {server}#{share}#{name}#{name}#{source}
 *   archive   {share}/{name}/{source}.tar, .tar.gz or .tar.zst
 *
 * source is the key of the volume that was archived. Those that this driver made also have a record in
 * .csi-nfs/snapshots/. Worker threads; blocks.
 */
#ifndef CSI_SNAPSHOT_H
#define CSI_SNAPSHOT_H

#include "csi/services.h"
#include "csi/session.h"

/* Keys of a snapshot's record, beside those of store/staging.h, and uid and gid as a volume has them. */
#define SNAPSHOT_KEY_NAME "name"
#define SNAPSHOT_KEY_ID "id"
#define SNAPSHOT_KEY_SOURCE "source" /* id of the volume */
#define SNAPSHOT_KEY_SIZE "size" /* of the volume, in bytes */
#define SNAPSHOT_KEY_FILE "file" /* name of the archive */
#define SNAPSHOT_KEY_TIME "time" /* when it was complete, in nanoseconds since 1970 */

/* What names in .csi-nfs/work/ begin with: no volume's key has a '~'. */
#define SNAPSHOT_WORK_PREFIX "snapshot~"
#define SNAPSHOT_WORK_KEY_MAX (sizeof(SNAPSHOT_WORK_PREFIX) + RECORD_NAME_MAX)
void snapshot_work_key(char ret[SNAPSHOT_WORK_KEY_MAX], const char *name);

/*
 * Of a directory that is taken for a snapshot's by what is in it: whether nothing else is there than archives
 * of source, as csi-driver-nfs leaves it. Returns 1, 0 or a negative errno.
 */
int snapshot_is_alone(struct nfs_client *c, const char *name, const char *source, struct error *err);

struct snapshot {
	struct volume_id id; /* subdir: name, on_delete: source */
	struct nfs_export export;
	struct record record; /* by snapshot_read(); empty where it has none */
	bool has_archive; /* likewise */
	bool is_other; /* likewise: a snapshot of that name is there, and has another id */
	struct nfs_time time; /* of the archive */
};

/*
 * Takes an id apart. Returns 0; -EINVAL, unreported, where the id cannot be a snapshot's; or another
 * negative errno with the error set. snapshot_done() is due in either case.
 */
int snapshot_init(struct snapshot *s, const struct csi_driver *driver, const char *id,
		  const struct csi_map *secrets, struct error *err);

/* Reads the record, and looks for the archive. */
int snapshot_read(struct snapshot *s, const struct csi_driver *driver, struct error *err);

/* Whether it is there, and complete. */
bool snapshot_is_ready(const struct snapshot *s);

/* The size of the volume that it was made of; 0: not known. */
int64_t snapshot_size(const struct snapshot *s);

/* The archive. -ENOENT, unreported, where there is none. */
int snapshot_find_archive(struct nfs_client *c, const struct volume_id *id, struct nfs_handle *ret,
			  struct nfs_attr *ret_attr, struct error *err);

/*
 * Finishes deletions of a snapshot of that name that other replicas have begun, so that a new one can be
 * made. ABORTED where something else of that name is being deleted.
 */
int snapshot_finish_deletions(struct nfs_client *c, const char *name, struct error *err);

void snapshot_done(struct snapshot *s);
#define cleanup_snapshot __attribute__((cleanup(snapshot_done)))

/* As it stands in replies; borrows from the record that it was made of. */
struct snapshot_message {
	Csi__V1__Snapshot snapshot;
	Google__Protobuf__Timestamp time;
};

void snapshot_message_of_record(struct snapshot_message *m, const struct record *rec);

void controller_create_snapshot(Csi__V1__Controller_Service *service,
				const Csi__V1__CreateSnapshotRequest *in,
				Csi__V1__CreateSnapshotResponse_Closure closure, void *data);
void controller_delete_snapshot(Csi__V1__Controller_Service *service,
				const Csi__V1__DeleteSnapshotRequest *in,
				Csi__V1__DeleteSnapshotResponse_Closure closure, void *data);
void controller_list_snapshots(Csi__V1__Controller_Service *service,
			       const Csi__V1__ListSnapshotsRequest *in,
			       Csi__V1__ListSnapshotsResponse_Closure closure, void *data);
void controller_get_snapshot(Csi__V1__Controller_Service *service,
			     const Csi__V1__GetSnapshotRequest *in,
			     Csi__V1__GetSnapshotResponse_Closure closure, void *data);

#endif
