/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A command line that is read by a table of options, which also describes --help and environment
 * variables. Takes "--name=value", "--name value", and Go's "-name=value" and "-name value"; an '_'
 * in a name stands for '-'. Unlike getopt_long(3) it accepts no abbreviations, and returns its
 * errors. Not thread-safe.
 */
#ifndef BASE_CMDLINE_H
#define BASE_CMDLINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The kind of an option's field, and how its value is checked. */
enum cmdline_kind {
	CMDLINE_TEXT, /* const char *, borrowed from argv or the environment; check() accepts it */
	CMDLINE_OPTIONAL, /* likewise, but an empty value changes nothing */
	CMDLINE_NUMBER, /* uint32_t, from min to max */
	CMDLINE_BOOL, /* bool, as Go reads it; true without a value */
	CMDLINE_WORD, /* parse() accepts it and sets the field */
	CMDLINE_IGNORED, /* any value; no field */
	CMDLINE_END, /* any value; no field: stop here, as --help does */
};

struct cmdline_opt {
	const char *name; /* "help" is also "-h" */
	const char *argument; /* for --help; NULL: a value only after '=' */
	const char *help; /* NULL only for CMDLINE_IGNORED */
	enum cmdline_kind kind;
	size_t field; /* offset in the struct that cmdline_parse() fills */
	const char *variable; /* environment variable with a default; NULL: none */
	int (*check)(const char *value, struct error *err); /* NULL: accept all */
	int (*parse)(const char *value, void *field);
	const char *expects; /* values that parse() accepts, for the error: "must be ..." */
	uint32_t min, max;
};

struct cmdline {
	const char *intro, *outro; /* for --help */
	int width; /* of the first column of --help */
	const struct cmdline_opt *options;
	size_t n;
};

/*
 * Set the fields of the struct at fields from the environment, then from argv, starting at argv[1].
 * Set *ret_end to the CMDLINE_END option that was given, else NULL. Return 0, or a negative errno
 * with INVALID_ARGUMENT and a message that names the option.
 */
int cmdline_parse(const struct cmdline *c, void *fields, int argc, char **argv,
		  const struct cmdline_opt **ret_end, struct error *err);

/* Parse true or false as Go does; "" is true. Sets the bool at field. Return 0 or -EINVAL. */
int cmdline_parse_bool(const char *value, void *field);

/* Print --help to stdout. Return 0 or a negative errno. */
int cmdline_print_help(const struct cmdline *c);

#endif
