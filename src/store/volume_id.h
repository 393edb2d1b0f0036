/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Volume ids in csi-driver-nfs's format:
 *
 *   {server}#{share}#{subDir}#{uuid}#{onDelete}
 *
 * with the slashes around server, share and subDir trimmed; uuid is there only where a subDir
 * parameter was given, onDelete only where it is not "delete". Ids of three and four fields and
 * "{server}/{share}/{subDir}" are what its earlier versions made; that with "nfs://" before it is
 * what tutorials show. Pure functions, any thread.
 */
#ifndef STORE_VOLUME_ID_H
#define STORE_VOLUME_ID_H

#include "base/error.h"

#define VOLUME_ID_MAX 128 /* CSI specification, "Size Limits": a string without another limit */

/* What is read: ids of csi-driver-nfs may be longer. It holds for the form with all five fields. */
#define VOLUME_ID_TEXT_MAX 1024

struct volume_id {
	char *server; /* bare, no brackets */
	char *share; /* trimmed; "" for "/" */
	char *subdir; /* trimmed */
	char *uuid; /* "" where the subdir identifies the volume */
	char *on_delete; /* "", or as it was given */
};

/*
 * Parses an id. -EINVAL, unreported, for one that cannot be of csi-nfs or csi-driver-nfs or that
 * leads out of the share: nothing of it may be touched. -ENOMEM. The caller calls volume_id_done().
 */
int volume_id_parse(struct volume_id *ret, const char *text);

/* As text, whatever its length. NULL without memory. The caller frees. */
char *volume_id_format(const struct volume_id *id);

/*
 * The name that stands for a volume on its share: its directory unless a subDir is given, its uuid,
 * and its record. It is the volume's name where that can be a file name and fits into the id;
 * otherwise with the offending bytes as %XX, and cut and marked with a hash where it is too long.
 * The same name, server and share give the same key, always. Returns 0, -ENOMEM, or -EINVAL with
 * INVALID_ARGUMENT where server and share leave no room.
 */
int volume_key(const char *name, const char *server, const char *share, char **ret,
	       struct error *err);

/* What identifies the volume in its id: a key as volume_key() made it, for ids of ours. */
const char *volume_id_key(const struct volume_id *id);

void volume_id_done(struct volume_id *id);
#define cleanup_volume_id __attribute__((cleanup(volume_id_done)))

#endif
