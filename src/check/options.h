/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The command line of "csi-nfs check". */
#ifndef CHECK_OPTIONS_H
#define CHECK_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Strings are borrowed from argv or the environment. */
struct check_options {
	bool help;
	const char *server, *share;
	bool mount;
	const char *mount_options; /* "" where none are given; may hold secrets */
	bool has_uid, has_gid;
	uint32_t uid, gid;
	bool json;
};

/*
 * Reads the command line, argv[0] being the name of the command, and the environment. Returns 0,
 * or -EINVAL with INVALID_ARGUMENT that names the option. Not thread-safe.
 */
int check_options_parse(struct check_options *o, int argc, char **argv, struct error *err);

/* The text of --help, to stdout. Returns 0 or a negative errno. */
int check_options_print_help(void);

#endif
