/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The command line. Every option of csi-driver-nfs is taken, also those that mean nothing here, so
 * that its manifests work as they are; so is Go's way of writing them, "-v=5" and "-endpoint x".
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "csi/params.h"

enum options_mode {
	MODE_CONTROLLER = 1 << 0,
	MODE_NODE = 1 << 1,
	MODE_ALL = MODE_CONTROLLER | MODE_NODE,
};

enum options_action {
	ACTION_SERVE,
	ACTION_HELP,
	ACTION_VERSION,
};

/* Strings are borrowed from argv, the environment or this object. */
struct options {
	enum options_action action;
	const char *endpoint;
	const char *node_id;
	enum options_mode mode;
	const char *driver_name;
	const char *server, *share; /* NULL: none */
	uint32_t mount_permissions;
	enum volume_on_delete on_delete;
	bool replace_archive;
	bool purge_now;
	enum tree_compression compression;
	bool get_snapshot;
	bool verify_clones;
	unsigned int replica_timeout; /* seconds; see store/holder.h */
	unsigned int window; /* operations in flight on a connection */
	const char *state_dir;
	const char *inline_volumes; /* NULL: none */
	enum log_level log_level;
	enum log_format log_format;
	char host_name[256];
};

/*
 * Reads the command line and the environment. Returns 0, or -EINVAL with INVALID_ARGUMENT that
 * names the option. Not thread-safe.
 */
int options_parse(struct options *o, int argc, char **argv, struct error *err);

/* The text of --help, to stdout. Returns 0 or a negative errno. */
int options_print_help(void);

#endif
