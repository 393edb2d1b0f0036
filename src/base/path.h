/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Check and join paths below an export and on the host. Any thread. */
#ifndef BASE_PATH_H
#define BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define PATH_COMPONENT_MAX 255 /* NAME_MAX of Linux file systems, in bytes */
#define PATH_LENGTH_MAX 4095

/*
 * Check a path relative to an export: one or more components, each at most PATH_COMPONENT_MAX bytes
 * and not empty, "." or ".."; no control character and no '#', which separates the fields of volume
 * ids. Return 0 or -EINVAL with INVALID_ARGUMENT and a message that starts with the field's name.
 */
int path_check_relative(const char *path, const char *field, struct error *err);

/* The same, but '#' is allowed: for a path that is mounted and never becomes part of an id. */
int path_check_mounted(const char *path, const char *field, struct error *err);

/* Find a component in a path, ignoring case as some servers do (ASCII only). */
bool path_has_component(const char *path, const char *component);

/*
 * Whether a server that folds case or normalizes Unicode might treat both names as the same: case
 * is ignored, and all names with non-ASCII characters are equal to any other.
 */
bool path_may_be_same_name(const char *a, size_t n, const char *b, size_t m);

/* Return a hash of a path that is the same in upper and lower case (ASCII only). */
uint64_t path_hash(const char *path, size_t len);

/* Where a path lies, seen from another one. Names are compared by path_may_be_same_name(). */
enum path_relation { PATH_IS_APART, PATH_IS_SAME, PATH_IS_IN, PATH_IS_AROUND };
enum path_relation path_compare(const char *path, const char *other);

/*
 * As path_clean(), without the slash at the start. csi-driver-nfs strips the slashes around server,
 * share and subDir in its ids, and leaves those in the middle and "." to its file system. Return a
 * new string, which the caller frees, or NULL if out of memory.
 */
char *path_trim(const char *path);

/*
 * Return an absolute path without repeated slashes, "." components and slashes at the end, or NULL
 * if out of memory. The caller frees it. A slash at the end would make the kernel follow a link.
 */
char *path_clean(const char *path);

/*
 * Return "/" and the parts, as path_trim() has them and joined by "/"; skip empty parts. End the
 * list with NULL. The caller frees the result, which is NULL if out of memory.
 */
char *path_join_root(const char *first, ...) __attribute__((sentinel));

#endif
