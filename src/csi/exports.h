/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The exports that this process has worked on, and how each was spoken to. Calls that bring no mount
 * options of their own (CSI gives ControllerGetVolume and ListVolumes no secrets) go by what the
 * last call that had some used; ListVolumes lists what is on all of them. Any thread.
 */
#ifndef CSI_EXPORTS_H
#define CSI_EXPORTS_H

#include <stddef.h>

#include "nfs/export.h"

#define KNOWN_EXPORTS_MAX 1024 /* servers and shares; further ones are served and not remembered */

struct known_exports;

/* Returns 0 or -ENOMEM. The caller frees. */
int known_exports_new(struct known_exports **ret);
void known_exports_free(struct known_exports *k);

/* Notes an export on which a call succeeded, in place of what was known of its server and share. */
void known_exports_remember(struct known_exports *k, const struct nfs_export *e);

/* Fills in version and ports from what is known, where e leaves all of them open. */
void known_exports_apply(struct known_exports *k, struct nfs_export *e);

/*
 * Copies of all, with the process's own identity, ordered by server and share. The caller frees by
 * known_exports_list_free(). Returns 0 or -ENOMEM.
 */
int known_exports_list(struct known_exports *k, struct nfs_export **ret, size_t *ret_n);
void known_exports_list_free(struct nfs_export *list, size_t n);

#endif
