/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/libarchive.h"

#ifdef WITH_DLOPEN

#include "tree/archive_times.h"

LIBRARY_NOTE(note, "[{\"feature\":\"archives\","
		   "\"description\":\"Snapshots as archives, made and restored\","
		   "\"priority\":\"recommended\",\"soname\":[\"" LIBARCHIVE_SONAME "\"]}]");

struct libarchive libarchive;

static LIBRARY_FUNCTIONS(functions, LIBARCHIVE_FUNCTIONS, libarchive);

int libarchive_load(struct error *err)
{
	static const struct library_functions *const all[] = {
		&functions,
		&archive_times_functions,
		NULL,
	};
	static struct library library = {
		.soname = LIBARCHIVE_SONAME,
		.who_needs = "archives need",
		.advice =
			"install libarchive13 or libarchive13t64 (Debian, Ubuntu) or libarchive (Fedora, Alpine) where csi-nfs runs; clones, and snapshots with format: tree, work without it",
		.functions = all,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};

	return library_load(&library, err);
}

#else

int libarchive_load(struct error *err)
{
	(void)err;
	return 0;
}

#endif
