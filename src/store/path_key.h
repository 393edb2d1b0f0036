/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Names of notes and records that stand for paths. Pure function, any thread.
 */
#ifndef STORE_PATH_KEY_H
#define STORE_PATH_KEY_H

#include <stddef.h>

#include "store/record.h"

/*
 * Format a name for notes about a directory: its path, escaped. A path that is too long is cut and
 * gets a hash, which is the same for paths that differ only in the case of ASCII letters.
 */
void path_key(char key[RECORD_NAME_MAX + 1], const char *path, size_t len);

#endif
