/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Times of archive entries. On some 32-bit systems libarchive has a time_t of 32 bits and ours has
 * 64: this is the only module that calls libarchive with a time_t. Internal to the archives, which
 * have called libarchive_load().
 */
#ifndef TREE_ARCHIVE_TIMES_H
#define TREE_ARCHIVE_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/library.h"

struct archive_entry;

#ifdef WITH_DLOPEN
extern const struct library_functions archive_times_functions; /* for libarchive_load() */
#endif

/* Return false if libarchive has no room for the time. */
bool archive_times_set(struct archive_entry *e, int64_t mtime, uint32_t mtime_nsec, int64_t atime,
		       uint32_t atime_nsec);

/* In seconds; the smallest or largest number for a time out of range. */
int64_t archive_times_mtime(struct archive_entry *e);
int64_t archive_times_atime(struct archive_entry *e);

/*
 * Return whether libarchive may have cut this time that it read. With 32 bits, it turns times from
 * 2038 to 2106 into times before 1970; later times become ones that nobody can tell from correct
 * ones.
 */
bool archive_times_may_be_cut(int64_t sec);

#endif
