/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Paths below an export, and paths of the host: checked before any of them reaches a server. */
#ifndef BASE_PATH_H
#define BASE_PATH_H

#include <stdbool.h>

#include "base/error.h"

#define PATH_COMPONENT_MAX 255 /* NAME_MAX of Linux file systems, in bytes */
#define PATH_LENGTH_MAX 4095

/*
 * Checks a path relative to an export: one or more components, none of them empty, "." or "..",
 * none over PATH_COMPONENT_MAX bytes, no control character and no '#' (the separator of volume
 * ids). Returns 0 or -EINVAL with INVALID_ARGUMENT that starts with the field's name.
 */
int path_check_relative(const char *path, const char *field, struct error *err);

/* Whether one of the path's components is that one, in any case: some servers fold it. ASCII. */
bool path_has_component(const char *path, const char *component);

/*
 * Strips leading and trailing slashes, as csi-driver-nfs does for server, share and subDir in its
 * ids. Returns a new string, which the caller frees, or NULL without memory.
 */
char *path_trim(const char *path);

/* "/" + the trimmed parts joined by "/"; empty parts vanish. NULL-terminated list. Caller frees. */
char *path_join_root(const char *first, ...) __attribute__((sentinel));

#endif
