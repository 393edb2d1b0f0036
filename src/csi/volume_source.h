/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What a new volume begins with: the contents of another volume, or of a snapshot, on the same server or
 * another. Worker threads; blocks, for as long as copying takes.
 */
#ifndef CSI_VOLUME_SOURCE_H
#define CSI_VOLUME_SOURCE_H

#include "csi/session.h"
#include "csi/snapshot.h"
#include "store/busy.h"
#include "store/users.h"

enum content_kind { CONTENT_NONE, CONTENT_VOLUME, CONTENT_SNAPSHOT };

struct content {
	const struct csi_driver *driver;
	enum content_kind kind;
	const char *what; /* name of the new volume, for the log; borrowed */
	struct reference volume;
	struct snapshot snapshot;
	struct usage_lock *usage; /* keeps the source from being deleted */
	struct claim *use; /* tells other replicas the same */
	struct claim *make; /* of the new volume; borrowed */
	int64_t size; /* of the source, in bytes; 0: not known */
	char *text; /* for the volume's record */
	struct error missing; /* why it cannot be made of that source, which a finished volume needs no more */
	struct nfs_client *to; /* meanwhile */
	const char *name; /* of the directory that is being made, meanwhile */
};

/*
 * Finds the source. Errors: INVALID_ARGUMENT, or ABORTED where it is being deleted. That it is not there, or
 * not finished, is NOT_FOUND in content_fill(). content_done() is due in either case.
 */
int content_init(struct content *x, const struct csi_driver *driver,
		 const Csi__V1__CreateVolumeRequest *in, struct error *err);

/* The fill() of store/staging.h, for a struct content. */
int content_fill(struct nfs_client *c, const char *name, void *data, struct error *err);

void content_done(struct content *x);

/* The volume_content_source of a record, in what is handed over; NULL where it has none. */
struct content_message {
	Csi__V1__VolumeContentSource source;
	Csi__V1__VolumeContentSource__SnapshotSource snapshot;
	Csi__V1__VolumeContentSource__VolumeSource volume;
};

Csi__V1__VolumeContentSource *content_message_of(struct content_message *m, const struct record *rec);

#endif
