/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Snapshots on a share. They are archives, laid out as csi-driver-nfs does, so that each driver can
 * restore the other's, or trees, which are copies of the volume's directory:
 *
 *   id        {server}#{share}#{name}#{name}#{source}
 *   archive   {share}/{name}/{source}.tar, .tar.gz or .tar.zst
 *   tree      {share}/{name}/{source}.tree/
 *
 * source is the key of the volume. The directory of the name, which both have, can be entered by
 * its owner only. Snapshots made by csi-nfs also have a record in .csi-nfs/snapshots/, whose keys
 * snapshot.c alone knows; without one, a directory is not a tree. Worker threads; blocks, except
 * for the functions that take only records and views.
 */
#ifndef STORE_SNAPSHOT_H
#define STORE_SNAPSHOT_H

#include "nfs/client.h"
#include "store/record.h"
#include "store/settings.h"
#include "store/volume_id.h"
#include "tree/archive.h"

/* -------- the record -------- */

/*
 * Keys of the record. It also has those of store/staging_state.h, and name, id, size, uid and gid
 * as in a volume's record.
 */
#define SNAPSHOT_KEY_SOURCE "source" /* id of the volume */
#define SNAPSHOT_KEY_FILE "file" /* name of the archive or tree; its suffix tells which */
/* Length and checksum of the archive file, stored together with STAGING_KEY_BUILT. */
#define SNAPSHOT_KEY_BYTES "bytes" /* length */
#define SNAPSHOT_KEY_CRC32 "crc32" /* 8 hexadecimal digits */
#define SNAPSHOT_KEY_TIME "time" /* when it was complete, in nanoseconds since 1970 */

/* A record, decoded. Strings are borrowed from the record and NULL if it has none. */
struct snapshot_info {
	const char *name; /* as CreateSnapshot was given it */
	const char *id;
	const char *source; /* id of the volume */
	int64_t size; /* of the volume, in bytes; 0: not recorded */
	uint64_t time_ns; /* when it was complete, since 1970; 0: not recorded */
	const char *file; /* name of the archive or tree */
	bool has_sum;
	struct tree_archive_sum sum;
	struct volume_owner owner; /* whose identity works on it */
	bool ready;
};

struct snapshot_info snapshot_info_of(const struct record *rec);

/*
 * Write the record of a new snapshot, without a sum. The owner is the one that the volume was
 * created with, as its record says. Return 0 or -ENOMEM.
 */
int snapshot_describe(struct record *rec, const struct snapshot_info *info,
		      const struct record *volume);

/*
 * Record the archive that was built. Call this in snapshot_filler.fill(): then it is stored in one
 * step with the keys that identify the directory. Return 0 or -ENOMEM.
 */
int snapshot_set_archive(struct record *rec, const char *file, const struct tree_archive_sum *sum);

/*
 * Likewise for a tree, which has no sum: its files are what they were when they were copied, and
 * comparing them would take reading them.
 */
int snapshot_set_tree(struct record *rec, const char *name);

#define SNAPSHOT_TREE_SUFFIX ".tree"

/* Whether the record says that the snapshot is a tree. */
bool snapshot_is_recorded_tree(const struct record *rec);

/*
 * Check that the record under the key is whole, and that of a snapshot of that name, or of one that
 * the server may have folded into it. FAILED_PRECONDITION if it is damaged or a copy.
 */
int snapshot_check_found_record(struct nfs_client *c, const char *key, const struct record *rec,
				struct error *err);

/*
 * Replace server and share in the ids of a record, in memory: where the share was found, instead of
 * where it was when the record was written. A volume on another share than the snapshot keeps its
 * id. Return 0 or -ENOMEM.
 */
int snapshot_set_address(struct record *rec, const struct volume_id *at);

/* Whether a record describes a complete snapshot. */
bool snapshot_info_is_complete(const struct snapshot_info *info);

/* -------- one snapshot -------- */

struct snapshot {
	struct volume_id id; /* subdir: name, on_delete: source */
	struct record record; /* empty if there is none */
	bool has_contents; /* the archive or the tree is there */
	bool is_other; /* the snapshot of that name is of another volume */
	/* Owner whose identity works on it: from its record, or from a deletion's tombstone. */
	struct volume_owner owner;
	struct nfs_time time; /* of the archive or the tree's directory */
};

/* An archive or a tree as found. */
struct snapshot_contents {
	bool is_tree;
	char name[NFS_NAME_MAX + 1];
	struct nfs_handle handle;
	struct nfs_attr attr;
};

/*
 * Parse an id. Return 0; -EINVAL, unreported, for an id that cannot be a snapshot's; or another
 * negative errno with the error set. The caller calls snapshot_done() in each case.
 */
int snapshot_init(struct snapshot *s, const char *id, struct error *err);

/* Read the record and find the owner. */
int snapshot_read_record(struct nfs_client *c, struct snapshot *s, struct error *err);

/* Look for the contents of what snapshot_read_record() has read, as the owner. */
int snapshot_read_contents(struct nfs_client *c, struct snapshot *s, struct error *err);

/* Whether it is there and complete. */
bool snapshot_is_ready(const struct snapshot *s);

/*
 * Describe a snapshot of csi-driver-nfs in s->record, in memory only: its id tells the key of the
 * volume, and its archive the time. Return 0 or -ENOMEM.
 */
int snapshot_describe_foreign(struct snapshot *s, const char *id);

/*
 * Find the archive or tree that rec names, else any archive: an administrator may have made one of
 * a tree. -ENOENT, unreported, if there is none. rec may be empty.
 */
int snapshot_find_contents(struct nfs_client *c, const struct volume_id *id,
			   const struct record *rec, struct snapshot_contents *ret,
			   struct error *err);

/*
 * Return the recorded sum of an archive that was found, borrowed from info, or NULL. An archive
 * with another name than the recorded one has none: an administrator has compressed it again.
 */
const struct tree_archive_sum *snapshot_recorded_sum(const struct snapshot_info *info,
						     const struct snapshot_contents *contents);

void snapshot_done(struct snapshot *s);
#define cleanup_snapshot __attribute__((cleanup(snapshot_done)))

/* -------- the calls -------- */

/* Callbacks that make a snapshot. */
struct snapshot_filler {
	/* Make the directory with the archive or tree in it; see fill() in store/staging.h. */
	int (*fill)(struct nfs_client *c, const char *name, void *data, struct error *err);
	/*
	 * Read the archive without a record in the snapshot's place to its end. DATA_LOSS: it is
	 * truncated or damaged.
	 */
	int (*check)(struct nfs_client *c, void *data, struct error *err);
	void *data;
	const struct error *missing; /* why the volume was not found; ERROR_OK: it was */
	bool *ret_trashed; /* set if there is something to purge */
	bool *had_record; /* in and out: an earlier round of this call has seen the record */
};

/*
 * Make the snapshot that rec describes, finish one that was begun, adopt a whole one of
 * csi-driver-nfs, or find it there already; rec becomes the record on the share. Errors:
 * ALREADY_EXISTS for a snapshot of that name of another volume, FAILED_PRECONDITION if something
 * else is in its place, also a part of an archive, else as nfs_error_set(). Nothing is left behind
 * after a final code.
 */
int snapshot_create(struct nfs_client *c, const struct volume_id *id, struct record *rec,
		    const struct snapshot_filler *filler, struct error *err);

/*
 * Delete a snapshot that was read. Return 0 also if it is gone. *ret_trashed is set if there
 * is something to purge.
 */
int snapshot_delete(struct nfs_client *c, const struct snapshot *s, bool *ret_trashed,
		    struct error *err);

#endif
