/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/tirpc.h"

#ifdef WITH_DLOPEN

#include "base/str.h"

LIBRARY_NOTE(note, "[{\"feature\":\"reserved-ports\","
		   "\"description\":\"Source ports below 1024, which exports want by default\","
		   "\"priority\":\"recommended\",\"soname\":[\"" LIBTIRPC_SONAME "\"]}]");

struct libtirpc libtirpc;

static const char *const names[] = { LIBTIRPC_FUNCTIONS(LIBRARY_NAME) };

_Static_assert(sizeof(libtirpc) == ARRAY_SIZE(names) * sizeof(void *), "a pointer for each name");

int libtirpc_load(struct error *err)
{
	static const struct library_functions here = { names, &libtirpc, ARRAY_SIZE(names) };
	static const struct library_functions *const functions[] = { &here, NULL };
	static struct library library = {
		.soname = LIBTIRPC_SONAME,
		.who_needs = "source ports below 1024 need",
		.advice =
			"install libtirpc3 or libtirpc3t64 (Debian, Ubuntu) or libtirpc (Fedora, Alpine) where csi-nfs runs, or export with 'insecure'",
		.functions = functions,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};

	return library_load(&library, err);
}

#else

int libtirpc_load(struct error *err)
{
	(void)err;
	return 0;
}

#endif
