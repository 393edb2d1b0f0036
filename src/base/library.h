/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Shared libraries that are loaded by dlopen() when a call first needs them: a process that never
 * does keeps neither them nor what they link in memory. They stay loaded. With --disable-dlopen the
 * program links them, and a wrapper such as tree/libarchive.h compiles to the library's own header.
 *
 * A wrapper names the functions that are called in a macro LIST(each), which makes the struct of
 * their pointers and, by LIBRARY_FUNCTIONS(), the table of their names. The pointers have the types
 * of the library's header, so the compiler checks the calls. A macro for each function makes calls
 * look as if the library were linked; a function without one does not link.
 */
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include "base/error.h"

#ifdef WITH_DLOPEN

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* For lists of functions: a member of the struct of pointers, and the name in the table. */
#define LIBRARY_POINTER(function) __typeof__(function) *function;
#define LIBRARY_NAME(function) #function,

/* n names, and a struct of as many pointers in the same order. */
struct library_functions {
	const char *const *names;
	void *pointers;
	size_t n;
};

/* Define the table of a LIST at file scope; pointers is the struct that LIST declared. */
#define LIBRARY_FUNCTIONS(variable, LIST, pointers)                                                \
	const struct library_functions variable = {                                                \
		(const char *const[]){ LIST(LIBRARY_NAME) },                                       \
		&(pointers),                                                                       \
		sizeof(pointers) / sizeof(void *),                                                 \
	};                                                                                         \
	_Static_assert(sizeof(pointers) == sizeof((const char *const[]){ LIST(LIBRARY_NAME) }),    \
		       "a pointer for each name")

struct library {
	const char *soname;
	const char *who_needs; /* "archives need": how the error begins */
	const char *advice; /* the rest of the error: what to install, what works without it */
	const struct library_functions *const *functions; /* ends with NULL */
	pthread_mutex_t lock; /* guards loading; innermost; held while dlopen() reads files */
	atomic_bool is_loaded; /* the pointers are set, and do not change again */
};

/*
 * Load the library unless it is loaded. Any thread. FAILED_PRECONDITION if it is missing or lacks a
 * function: the next call tries again, so that installing it is enough.
 */
int library_load(struct library *library, struct error *err);

/*
 * A note that tells packaging tools about a library that is loaded by name ("dlopen() metadata for
 * ELF files" of the UAPI group). text is a JSON array.
 */
#define LIBRARY_NOTE(variable, text)                                                               \
	static const struct {                                                                      \
		uint32_t owner_size, text_size, type;                                              \
		char owner[4];                                                                     \
		char padded[(sizeof(text) + 3) / 4 * 4];                                           \
	} variable __attribute__((used, aligned(4), section(".note.dlopen"))) = {                  \
		sizeof("FDO"), sizeof(text), UINT32_C(0x407c0c0a), "FDO", text                     \
	}

#endif

/*
 * Run load, a wrapper's function or a test of a library, in a child process, which ends: this
 * process maps nothing, and survives a crash, which is INTERNAL. If load fails, or no child can be
 * started, run it here, and return its result and error. Before threads start.
 */
int library_try(int (*load)(struct error *err), struct error *err);

#endif
