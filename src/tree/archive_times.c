/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Before the first header: the time_t that libraries are compiled with, see configure.ac. */
#ifdef LIBRARIES_HAVE_OLD_TIME_T
#undef _TIME_BITS
#endif

#include "tree/archive_times.h"

#include <archive_entry.h>
#include <time.h>

#ifdef WITH_DLOPEN

#define FUNCTIONS(each)                                                                            \
	each(archive_entry_atime) each(archive_entry_mtime) each(archive_entry_set_atime)          \
		each(archive_entry_set_mtime)

static struct {
	FUNCTIONS(LIBRARY_POINTER)
} functions;

#define archive_entry_atime functions.archive_entry_atime
#define archive_entry_mtime functions.archive_entry_mtime
#define archive_entry_set_atime functions.archive_entry_set_atime
#define archive_entry_set_mtime functions.archive_entry_set_mtime

LIBRARY_FUNCTIONS(archive_times_functions, FUNCTIONS, functions);

#endif

static bool is_time_t(int64_t sec)
{
	return (time_t)sec == sec;
}

bool archive_times_set(struct archive_entry *e, int64_t mtime, uint32_t mtime_nsec, int64_t atime,
		       uint32_t atime_nsec)
{
	if (!is_time_t(mtime) || !is_time_t(atime))
		return false;
	archive_entry_set_mtime(e, (time_t)mtime, (long)mtime_nsec);
	archive_entry_set_atime(e, (time_t)atime, (long)atime_nsec);
	return true;
}

int64_t archive_times_mtime(struct archive_entry *e)
{
	return archive_entry_mtime(e);
}

int64_t archive_times_atime(struct archive_entry *e)
{
	return archive_entry_atime(e);
}

bool archive_times_may_be_cut(int64_t sec)
{
	return sizeof(time_t) < sizeof(sec) && sec < 0;
}
