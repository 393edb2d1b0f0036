/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The daemon's command line. Accepts every option of csi-driver-nfs, some of them to ignore, so
 * that its manifests work unchanged.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "csi/params.h"
#include "tree/archive.h"

#define OPTIONS_DEFAULT_ENDPOINT "unix:///tmp/csi.sock"

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

/* Strings are borrowed from argv or the environment; node_id may point to host_name. */
struct options {
	enum options_action action;
	const char *endpoint; /* NULL: not given */
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
	uint32_t replica_timeout; /* seconds; see store/holder.h */
	uint32_t window; /* operations in flight on a connection */
	const char *state_dir;
	const char *inline_volumes; /* NULL: none */
	enum log_level log_level;
	enum log_format log_format;
	char host_name[256];
};

/*
 * Read the environment and the command line. Return 0, or -EINVAL with INVALID_ARGUMENT and a
 * message that names the option. Not thread-safe.
 */
int options_parse(struct options *o, int argc, char **argv, struct error *err);

/* Print --help to stdout. Return 0 or a negative errno. */
int options_print_help(void);

#endif
