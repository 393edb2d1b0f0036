/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Names of notes and records that stand for paths. Pure functions, any thread.
 */
#ifndef STORE_PATH_KEY_H
#define STORE_PATH_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/path.h"
#include "store/record.h"

/*
 * Format a name for notes about a directory: its path, escaped. len must not be 0. A path that is
 * too long is cut, perhaps within a "%2F", and gets a hash, which is the same for paths that differ
 * only in the case of ASCII letters. A key has RECORD_NAME_MAX bytes if and only if it was cut.
 */
void path_key(char key[RECORD_NAME_MAX + 1], const char *path, size_t len);

/* Get the path that a key was made from. Return false for a cut key, or one of no valid path. */
bool path_of_key(const char *key, size_t len, char path[RECORD_NAME_MAX + 1]);

/*
 * path_compare() for the paths of two keys. Only the beginning of one that was cut is known: if
 * the beginnings may be the same, so may the paths.
 */
enum path_relation path_key_compare(const char *key, size_t len, const char *other,
				    size_t other_len);

#endif
