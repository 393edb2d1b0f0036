/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/tirpc.h"

#ifdef WITH_DLOPEN

LIBRARY_NOTE(note, "[{\"feature\":\"reserved-ports\","
		   "\"description\":\"Source ports below 1024, which exports want by default\","
		   "\"priority\":\"recommended\",\"soname\":[\"" LIBTIRPC_SONAME "\"]}]");

struct libtirpc libtirpc;

static LIBRARY_FUNCTIONS(functions, LIBTIRPC_FUNCTIONS, libtirpc);

int libtirpc_load(struct error *err)
{
	static const struct library_functions *const all[] = { &functions, NULL };
	static struct library library = {
		.soname = LIBTIRPC_SONAME,
		.who_needs = "source ports below 1024 need",
		.advice =
			"install libtirpc3 or libtirpc3t64 (Debian, Ubuntu) or libtirpc (Fedora, Alpine) where csi-nfs runs, or export with 'insecure'",
		.functions = all,
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
