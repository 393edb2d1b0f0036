/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The command line of "csi-nfs check". */
#ifndef CHECK_OPTIONS_H
#define CHECK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define CHECK_NO_ID UINT32_MAX /* no user has this id; chown(2) ignores it */

/* Strings are borrowed from argv or the environment. */
struct check_options {
	bool help;
	const char *server, *share;
	bool mount;
	const char *mount_options; /* "": none; may hold secrets */
	uint32_t uid, gid; /* CHECK_NO_ID: not given */
	bool json;
};

/*
 * Read the environment and the command line; argv[0] is CHECK_COMMAND. Return 0, or a negative
 * errno with INVALID_ARGUMENT and a message that names the option. Not thread-safe.
 */
int check_options_parse(struct check_options *o, int argc, char **argv, struct error *err);

/* Print --help to stdout. Return 0 or a negative errno. */
int check_options_print_help(void);

#endif
