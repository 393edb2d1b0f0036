/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Volume ids in csi-driver-nfs's format:
 *
 *   {server}#{share}#{subDir}#{uuid}#{onDelete}
 *
 * The slashes around server, share and subDir are trimmed; uuid is set only if a subDir
 * parameter was given, onDelete only if it is not "delete". Earlier versions made ids of three
 * and four fields, and "{server}/{share}/{subDir}", which tutorials show with "nfs://" before it.
 * Pure functions, any thread.
 */
#ifndef STORE_VOLUME_ID_H
#define STORE_VOLUME_ID_H

#include "base/error.h"

#define VOLUME_ID_MAX 128 /* CSI specification, "Size Limits": a string without another limit */

/*
 * Limit for reading: ids of csi-driver-nfs may be longer. Applies to the form with all five fields.
 */
#define VOLUME_ID_TEXT_MAX 1024

struct volume_id {
	char *server; /* bare, no brackets */
	char *share; /* trimmed; "" for "/" */
	char *subdir; /* trimmed */
	char *uuid; /* "" if the subdir identifies the volume */
	char *on_delete; /* "", or as it was given */
};

/*
 * Parse an id. Return 0; -EINVAL, unreported, for one that neither csi-nfs nor csi-driver-nfs can
 * have made, or that leads out of the share, where nothing may be touched; or -ENOMEM. The caller
 * calls volume_id_done() in each case.
 */
int volume_id_parse(struct volume_id *ret, const char *text);

/* Format an id of any length. NULL without memory. The caller frees. */
char *volume_id_format(const struct volume_id *id);

/*
 * Make the key of a volume. It names the record and, unless a subDir is given, the directory; with
 * a subDir it is the uuid of the id. The key is the volume's name if that can be a file name and
 * fits into the id; else offending bytes become %XX, and a key that is too long is cut and gets a
 * hash. The same name, server and share always give the same key. Return 0, -ENOMEM, or -EINVAL
 * with INVALID_ARGUMENT if server and share leave no room.
 */
int volume_key(const char *name, const char *server, const char *share, char **ret,
	       struct error *err);

/*
 * Return the part of an id that identifies the volume on its share, borrowed: for our ids, the
 * result of volume_key().
 */
const char *volume_id_key(const struct volume_id *id);

/* Whether both name the same share, by the same names. */
bool volume_id_has_address_of(const struct volume_id *a, const struct volume_id *b);

void volume_id_done(struct volume_id *id);
#define cleanup_volume_id __attribute__((cleanup(volume_id_done)))

/* The id of a volume or snapshot, and that of what it is made from. */
struct volume_id_pair {
	struct volume_id own, source;
};

/*
 * Parse both, either of which may be NULL. Return 0, -EINVAL for ids that are damaged or missing,
 * or -ENOMEM. The caller calls volume_id_pair_done() in each case.
 */
int volume_id_pair_parse(struct volume_id_pair *ret, const char *own, const char *source);

/*
 * Whether both are made from the volume or snapshot with that key and directory on their own share,
 * which may have another address in one of them.
 */
bool volume_id_pair_has_source_of(const struct volume_id_pair *a, const struct volume_id_pair *b);

void volume_id_pair_done(struct volume_id_pair *pair);
#define cleanup_volume_id_pair __attribute__((cleanup(volume_id_pair_done)))

#endif
