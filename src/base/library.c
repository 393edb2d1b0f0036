/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/library.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_DLOPEN

#include <dlfcn.h>
#include <string.h>

static int fail(const struct library *l, const char *why, struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION, "%s %s, which cannot be loaded (%s): %s",
			 l->who_needs, l->soname, why != NULL ? why : "unknown error", l->advice);
}

static int find_functions(const struct library *l, void *handle, struct error *err)
{
	const struct library_functions *const *f;
	size_t i;

	for (f = l->functions; *f != NULL; f++)
		for (i = 0; i < (*f)->n; i++) {
			void *address = dlsym(handle, (*f)->names[i]);

			if (address == NULL)
				return fail(l, dlerror(), err);
			memcpy((char *)(*f)->pointers + i * sizeof(address), &address,
			       sizeof(address));
		}
	return 0;
}

/*
 * Bind everything now: what the library itself lacks shows here, not in the middle of a copy. A
 * library that was used may have left data and handlers behind, and is never unloaded.
 */
static int load(struct library *l, struct error *err)
{
	void *handle = dlopen(l->soname, RTLD_NOW | RTLD_LOCAL);
	int r;

	if (handle == NULL)
		return fail(l, dlerror(), err);
	r = find_functions(l, handle, err);
	if (r < 0) {
		(void)dlclose(handle);
		return r;
	}
	atomic_store_explicit(&l->is_loaded, true, memory_order_release);
	return 0;
}

int library_load(struct library *l, struct error *err)
{
	int r = 0;

	if (atomic_load_explicit(&l->is_loaded, memory_order_acquire))
		return 0;
	(void)pthread_mutex_lock(&l->lock); /* cannot fail */
	if (!atomic_load_explicit(&l->is_loaded, memory_order_relaxed))
		r = load(l, err);
	(void)pthread_mutex_unlock(&l->lock);
	return r;
}

#endif

/* The child's error is lost: if it fails, load here, too, to get the reason. */
int library_try(int (*load_it)(struct error *err), struct error *err)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0)
		_exit(load_it(NULL) < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
	while (child > 0 && waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			child = -1;
	if (child > 0 && WIFSIGNALED(status))
		return error_set(err, ERROR_INTERNAL, "signal %d ended a test of the library",
				 WTERMSIG(status));
	if (child > 0 && WEXITSTATUS(status) == EXIT_SUCCESS)
		return 0;
	return load_it(err);
}
