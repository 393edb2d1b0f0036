/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Directories that take long to make: clones, restored volumes, archives. They are built in .csi-nfs/work/
 * under a name of their own for each attempt, and renamed to where they belong when they are complete. The
 * record comes first, and tells how far it got:
 *
 *   no "built"        being made, or the attempt died: the next one starts over
 *   "built", no "ready"   complete, and maybe in its place: the directory there with that fileid and
 *                         handle is it
 *   "ready"           done
 *
 * Of two attempts at once (another controller took over) the later one moves the work of the earlier one
 * to the trash; whose directory is renamed was complete. Worker threads; blocks.
 */
#ifndef STORE_STAGING_H
#define STORE_STAGING_H

#include <stdbool.h>

#include "nfs/client.h"
#include "store/owner.h"
#include "store/record.h"

#define STAGING_KEY_BUILT "built" /* fileid of the directory, in hexadecimal */
#define STAGING_KEY_HANDLE                                                                         \
	"handle" /* hash of its handle: a fileid is used again, a handle is not */
#define STAGING_KEY_READY "ready"

struct staging {
	const struct nfs_handle *records; /* folder of the record */
	const char *key;
	struct record *rec; /* read or created; kept as it is on the share */
	const char *path; /* where the directory belongs */
	const char *work_key; /* what names in .csi-nfs/work/ begin with: of volumes and snapshots not the same */
	const char *refusal; /* why something in its place is in the way */
	bool replaces_empty; /* an empty directory in its place is nobody's, unless others have it */
	const struct owner_question *others; /* whose must the place not be; see store/owner.h */

	/*
	 * Makes the directory of that name in .csi-nfs/work/, with clients of its own as it likes. Reports its
	 * errors; what is left after one is removed by the caller.
	 */
	int (*fill)(struct nfs_client *c, const char *name, void *data, struct error *err);
	/* Adds to the record what is known now, before "ready". May be NULL. */
	int (*describe)(struct record *rec, void *data);
	void *data;

	bool trashed; /* out: there is something to purge */
};

bool staging_is_ready(const struct record *rec);

/*
 * Makes what the record describes, or finishes it. Errors: FAILED_PRECONDITION where something is in its
 * place that is not empty, otherwise as fill() and nfs_error_set().
 */
int staging_make(struct nfs_client *c, struct staging *b, struct error *err);

/* Whether the directory at path is what was built for the record. 1, 0 or a negative errno. */
int staging_is_in_place(struct nfs_client *c, const struct record *rec, const char *path,
			struct error *err);

/* Moves what is left of attempts to the trash. *ret_trashed becomes true where there was something. */
int staging_discard(struct nfs_client *c, const char *work_key, bool *ret_trashed, struct error *err);

#endif
