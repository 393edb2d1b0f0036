/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Notes that say at which target paths of this node a volume is published, for the access mode
 * SINGLE_NODE_SINGLE_WRITER. mountinfo lists the mounts but not their volume ids, and several
 * volumes may share one directory.
 *
 * There is one file for each target path, in a folder that survives a restart of the driver but not
 * of the node, as mounts do. A note is written before the mount and removed after the unmount. A
 * note without a mount belongs to an interrupted call, and is ignored. So a call for a volume keeps
 * others out until its mount is there: by the lock of the volume, which is shared unless the volume
 * is published exclusively. Any thread; the files are local.
 *
 * A note also says that the volume's directory may not have its mode yet, since a call can be
 * interrupted between the mount and the change of the mode. Later the mode is the pod's.
 */
#ifndef NODE_PUBLISHED_H
#define NODE_PUBLISHED_H

#include <stdbool.h>

#include "base/error.h"
#include "mount/mounter.h"

/* A volume at a target path. Strings are borrowed. */
struct published {
	const char *volume, *target;
	bool exclusive; /* there and nowhere else */
	bool needs_mode; /* its directory may not have its mode yet */
};

/*
 * Note that the volume is about to be published. The caller holds the locks of the target path and
 * of the volume; the latter shared if not exclusive. state_dir is made when it is first needed.
 * Errors: FAILED_PRECONDITION if it is mounted at another target and either of the two is
 * exclusive, or if an exclusive one cannot be noted, or another note of the volume cannot be read.
 * A volume that is not exclusive is published then all the same, without a note if state_dir cannot
 * be written, and a warning is logged. Notes of other volumes at target are removed.
 */
int node_published_add(const char *state_dir, struct mounter *m, const struct published *p,
		       struct error *err);

/*
 * Find the note of the volume and target. Returns 1, and what it says in *ret_needs_mode; 0 if
 * there is none, or state_dir cannot be used; or a negative errno with ABORTED if that may pass, as
 * when too many files are open.
 */
int node_published_find(const char *state_dir, const char *volume, const char *target,
			bool *ret_needs_mode, struct error *err);

/* Whether a note tells that another volume was published at the target. */
bool node_published_is_of_another(const char *state_dir, const char *volume, const char *target);

/*
 * Note that the directory has its mode. Needs no room in state_dir. Returns 0; or a negative errno
 * with ABORTED if that cannot be noted now. If it cannot be noted at all, in a folder that has
 * become read-only, a warning is logged, and a repeated call sets the mode again.
 */
int node_published_has_mode(const char *state_dir, const struct published *p, struct error *err);

/* Remove the note of a target at which nothing is mounted any more. */
void node_published_remove(const char *state_dir, const char *target);

#endif
