/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * How far a directory that is built elsewhere has come, as its record says; see store/staging.h.
 * Any thread; nothing blocks.
 */
#ifndef STORE_STAGING_STATE_H
#define STORE_STAGING_STATE_H

#include <stdbool.h>

#include "store/record.h"

#define STAGING_KEY_BUILT "built" /* fileid of the directory, in hexadecimal */
#define STAGING_KEY_HANDLE "handle" /* hash of its handle: servers reuse fileids, never handles */
#define STAGING_KEY_READY "ready"
/*
 * Kept until the directory is ready: the NFS version that it was built over, and its mtime. The
 * mtime identifies it over the other version, where its handle is different.
 */
#define STAGING_KEY_VERSION "handlevers"
#define STAGING_KEY_TIME "dirtime" /* seconds, dot, nanoseconds */
/* Mode of a directory that may have to be opened to be put in place, until it is ready. */
#define STAGING_KEY_MODE "dirmode"

/* How far the directory of a record is. Strings are borrowed from the record. */
struct staging_state {
	const char *built; /* NULL: not built */
	const char *handle; /* NULL: written by a version that did not record it */
	const char *version,
		*time; /* NULL: ready, or written by a version that did not record it */
	const char *mode; /* NULL: it need not be opened */
	bool ready;
};

struct staging_state staging_state_of(const struct record *rec);

/* Mark the record as ready. Return 0 or -ENOMEM. */
int staging_set_ready(struct record *rec);

#endif
