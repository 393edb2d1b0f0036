/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Directories that a deletion has moved into the trash and not looked at again. The deletion may
 * have been paused before the move, for longer than others take it to be alive, and so have moved a
 * directory that another volume uses by now. It puts such a directory back itself
 * (store/tombstone.h); if it is killed before that, the purger does. Worker threads; blocks.
 */
#ifndef STORE_HELD_H
#define STORE_HELD_H

#include "nfs/client.h"

/*
 * Decide about a held entry of the trash (store_trash_name_is_held()). Return 1 where it is to be
 * left alone: its user has it back, or a deletion of that path is under way and decides. Return 0
 * where it is nobody's; a negative errno with the error set where that cannot be told.
 */
int held_put_back(struct nfs_client *c, const char *name, struct error *err);

#endif
