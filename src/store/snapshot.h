/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Snapshots on a share: archives, as csi-driver-nfs has them, so that each driver restores the other's:
 *
 *   id        {server}#{share}#{name}#{name}#{source}
 *   archive   {share}/{name}/{source}.tar, .tar.gz or .tar.zst
 *
 * source is the key of the volume that was archived. Snapshots that csi-nfs made also have a record in
 * .csi-nfs/snapshots/. Worker threads; blocks.
 */
#ifndef STORE_SNAPSHOT_H
#define STORE_SNAPSHOT_H

#include "nfs/client.h"
#include "store/record.h"
#include "store/volume_id.h"

/* Keys of a snapshot's record, beside those of store/staging.h, and uid and gid as a volume has them. */
#define SNAPSHOT_KEY_NAME "name"
#define SNAPSHOT_KEY_ID "id"
#define SNAPSHOT_KEY_SOURCE "source" /* id of the volume */
#define SNAPSHOT_KEY_SIZE "size" /* of the volume, in bytes */
#define SNAPSHOT_KEY_FILE "file" /* name of the archive */
#define SNAPSHOT_KEY_TIME "time" /* when it was complete, in nanoseconds since 1970 */

struct snapshot {
	struct volume_id id; /* subdir: name, on_delete: source */
	struct record record; /* empty where there is none */
	bool has_archive;
	bool is_other; /* a snapshot of that name is there, and has another id */
	struct nfs_time time; /* of the archive */
};

/*
 * Parse an id. Return 0; -EINVAL, unreported, for an id that cannot be a snapshot's; or another negative
 * errno with the error set. snapshot_done() is due in either case.
 */
int snapshot_init(struct snapshot *s, const char *id, struct error *err);

/* Read the record and look for the archive. */
int snapshot_read(struct nfs_client *c, struct snapshot *s, struct error *err);

/* Whether it is there and complete. */
bool snapshot_is_ready(const struct snapshot *s);

/* Find the archive. -ENOENT, unreported, where there is none. */
int snapshot_find_archive(struct nfs_client *c, const struct volume_id *id, struct nfs_handle *ret,
			  struct nfs_attr *ret_attr, struct error *err);

/* How a snapshot is made. */
struct snapshot_filler {
	/* As in store/staging.h: makes the directory with the archive in it. */
	int (*fill)(struct nfs_client *c, const char *name, void *data, struct error *err);
	void *data;
	const struct error *missing; /* why there is no such volume; ERROR_OK: there is */
	bool *ret_trashed; /* becomes true when there is something to purge */
};

/*
 * Make the snapshot that rec describes, finish one that was begun, adopt one that csi-driver-nfs made, or
 * find it there already; then rec becomes the record on the share. Errors: ALREADY_EXISTS for a snapshot
 * of that name of another volume, FAILED_PRECONDITION where something else is in its place, else as
 * nfs_error_set(). Nothing is left behind after a final code.
 */
int snapshot_create(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		    const struct snapshot_filler *filler, struct error *err);

/* Delete the snapshot that was read. 0 too where it is gone. *ret_trashed: there is something to purge. */
int snapshot_delete(struct nfs_client *c, const struct snapshot *s, bool *ret_trashed,
		    struct error *err);

void snapshot_done(struct snapshot *s);
#define cleanup_snapshot __attribute__((cleanup(snapshot_done)))

#endif
