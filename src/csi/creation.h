/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A CreateVolume request, parsed: the parameters, the export and how to reach it, and the record of
 * the volume to be. Pure functions, except that they read the identity of the process; any thread.
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
	char *key; /* the volume's, see store/volume_id.h */
	char *sec; /* security flavor for mounts; NULL: none was named */
	struct record record; /* as requested; volume_create() replaces it with the share's */
	struct volume_capacity capacity; /* as requested */
};

/*
 * Check a request and parse it. It is borrowed while the creation is used. Return 0 or a negative
 * errno with an error of the CSI specification. creation_done() is due in either case.
 */
int creation_init(struct creation *creation, const struct csi_driver *driver,
		  const Csi__V1__CreateVolumeRequest *in, struct volume_source *source,
		  struct error *err);

void creation_done(struct creation *creation);

/* The volume's directory below the root of the share. Borrowed from the creation. */
const char *creation_directory(const struct creation *creation);

/* The volume's id. The caller frees; NULL without memory. */
char *creation_volume_id(const struct creation *creation);

#endif
