/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A CreateVolume request as what is to be made of it: parameters checked and filled in, the export
 * and how to speak to it, and the record that will stand for the volume. Pure but for the
 * identity of the process; any thread.
 */
#ifndef CSI_CREATION_H
#define CSI_CREATION_H

#include "csi/driver.h"
#include "csi/validate.h"
#include "csi/volume_source.h"
#include "nfs/export.h"
#include "store/record.h"

struct creation {
	struct volume_params params;
	struct nfs_export export;
	char *key; /* of the volume on its share, see store/volume_id.h */
	char *sec; /* security flavour of the mounts; NULL: none was named */
	struct record record; /* as wanted; volume_create() makes it what is there */
	struct volume_capacity capacity; /* as asked for */
};

/*
 * Checks a request and takes what is needed from it. The request has to outlive x. Returns 0 or a
 * negative errno with the error of the CSI specification. creation_done() is due in either case.
 */
int creation_init(struct creation *x, const struct csi_driver *driver,
		  const Csi__V1__CreateVolumeRequest *in, struct volume_source *source, struct error *err);

void creation_done(struct creation *x);

/* The volume's directory, below the root of the share. Borrowed from x. */
const char *creation_directory(const struct creation *x);

/* The volume's id. The caller frees; NULL without memory. */
char *creation_volume_id(const struct creation *x);

#endif
