/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Finds out by trial, in the trash, what handles mean on a share. If the process dies during
 * a trial, the purger removes what is left. Worker threads; blocks.
 */
#ifndef STORE_HANDLES_H
#define STORE_HANDLES_H

#include "nfs/client.h"

/* Whether a directory gets another handle when it is renamed: 1, 0 or a negative errno. */
int store_handle_follows_name(struct nfs_client *c);

/*
 * Whether names of one file in different directories have handles of their own, as on Linux exports
 * with subtree_check. True if the server cannot be tried.
 */
bool store_names_have_handles(struct nfs_client *c);

#endif
