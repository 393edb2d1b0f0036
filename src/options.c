/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cmdline.h"
#include "base/str.h"
#include "nfs/client.h"
#include "nfs/export.h"
#include "node/inline.h"
#include "store/holder.h"

#define DEFAULT_DRIVER_NAME "nfs.csi.k8s.io"
/* Lost at a reboot, like the mounts it describes. */
#define DEFAULT_STATE_DIR RUNSTATEDIR "/csi-nfs"
#define DRIVER_NAME_MAX 63 /* CSI specification, GetPluginInfoResponse */
#define NODE_ID_MAX 192 /* what Kubernetes stores; the specification allows 256 */
#define REPLICA_TIMEOUT_MAX_S 3600

static int check_endpoint(const char *value, struct error *err)
{
	if (value[0] == '\0')
		return error_set(err, ERROR_INVALID_ARGUMENT, "must not be empty");
	return 0;
}

static int check_node_id(const char *value, struct error *err)
{
	if (strlen(value) > NODE_ID_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT, "longer than %d bytes", NODE_ID_MAX);
	if (str_has_control(value))
		return error_set(err, ERROR_INVALID_ARGUMENT, "contains a control character");
	return 0;
}

static int check_server(const char *value, struct error *err)
{
	cleanup_nfs_export struct nfs_export e = { .server = NULL };

	return nfs_export_init(&e, value, "/", err);
}

static int check_share(const char *value, struct error *err)
{
	cleanup_nfs_export struct nfs_export e = { .server = NULL };

	return nfs_export_init(&e, "localhost", value, err);
}

/* Accept what the specification and csi-sanity do: '-' and '.' only between letters and digits. */
static int check_driver_name(const char *value, struct error *err)
{
	size_t len = strlen(value), i;

	if (len == 0 || len > DRIVER_NAME_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT, "must have 1 to %d characters",
				 DRIVER_NAME_MAX);
	for (i = 0; i < len; i++)
		if (!isalnum((unsigned char)value[i]) && strchr("-.", value[i]) == NULL)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "only letters, digits, '-' and '.' are allowed");
	if (!isalnum((unsigned char)value[0]) || !isalnum((unsigned char)value[len - 1]))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "must start and end with a letter or digit");
	return 0;
}

static int check_state_dir(const char *value, struct error *err)
{
	if (value[0] != '/')
		return error_set(err, ERROR_INVALID_ARGUMENT, "must be an absolute path, not '%s'",
				 value);
	return 0;
}

static int parse_mode(const char *value, void *field)
{
	enum options_mode *mode = field;

	if (strcmp(value, "controller") == 0)
		*mode = MODE_CONTROLLER;
	else if (strcmp(value, "node") == 0)
		*mode = MODE_NODE;
	else if (strcmp(value, "all") == 0)
		*mode = MODE_ALL;
	else
		return -EINVAL;
	return 0;
}

/* Parse a mode as csi-driver-nfs does, by Go's rules: octal with a leading 0, else decimal. */
static int parse_mount_permissions(const char *value, void *field)
{
	unsigned int base = 10;
	uint64_t mode;

	if (value[0] == '0' && value[1] != '\0') {
		base = 8;
		value += value[1] == 'o' ? 2 : 1;
	}
	if (str_parse_u64(value, base, 07777, &mode) < 0)
		return -EINVAL;
	*(uint32_t *)field = (uint32_t)mode;
	return 0;
}

static int parse_on_delete(const char *value, void *field)
{
	return on_delete_parse(value, field);
}

static int parse_delete_mode(const char *value, void *field)
{
	bool *purge_now = field;

	*purge_now = strcmp(value, "inline") == 0;
	return *purge_now || strcmp(value, "background") == 0 ? 0 : -EINVAL;
}

static int parse_compression(const char *value, void *field)
{
	return tree_compression_parse(value, field);
}

/* csi-driver-nfs has a switch because it knows gzip only. */
static int parse_enable_compression(const char *value, void *field)
{
	enum tree_compression *compression = field;
	bool enabled;

	if (cmdline_parse_bool(value, &enabled) < 0)
		return -EINVAL;
	*compression = enabled ? TREE_COMPRESSION_GZIP : TREE_COMPRESSION_NONE;
	return 0;
}

static int parse_log_level(const char *value, void *field)
{
	return log_level_parse(value, field);
}

static int parse_log_format(const char *value, void *field)
{
	return log_format_parse(value, field);
}

#define FIELD(name) offsetof(struct options, name)

static const struct cmdline_opt options[] = {
	{ "endpoint", "URL", "unix socket to serve, unix:///path/csi.sock (CSI_ENDPOINT)",
	  .kind = CMDLINE_TEXT, .field = FIELD(endpoint), .check = check_endpoint,
	  .variable = "CSI_ENDPOINT" },
	{ "nodeid", "ID", "name of this node (NODE_ID; default: host name)", .kind = CMDLINE_TEXT,
	  .field = FIELD(node_id), .check = check_node_id, .variable = "NODE_ID" },
	{ "mode", "MODE", "controller, node or all (default: all)", .kind = CMDLINE_WORD,
	  .field = FIELD(mode), .parse = parse_mode, .expects = "controller, node or all" },
	{ "server", "HOST", "NFS server if a StorageClass has none (NFS_SERVER)",
	  .kind = CMDLINE_OPTIONAL, .field = FIELD(server), .check = check_server,
	  .variable = "NFS_SERVER" },
	{ "share", "PATH", "exported path if a StorageClass has none (NFS_SHARE)",
	  .kind = CMDLINE_OPTIONAL, .field = FIELD(share), .check = check_share,
	  .variable = "NFS_SHARE" },
	{ "drivername", "NAME", "name of the driver (default: " DEFAULT_DRIVER_NAME ")",
	  .kind = CMDLINE_TEXT, .field = FIELD(driver_name), .check = check_driver_name },
	{ "mount-permissions", "MODE", "mode of volume directories, 0770 (default: 0, leave)",
	  .kind = CMDLINE_WORD, .field = FIELD(mount_permissions), .parse = parse_mount_permissions,
	  .expects = "a mode such as 0770 (octal with the leading 0)" },
	{ "default-ondelete-policy", "POLICY", "delete, retain or archive (default: delete)",
	  .kind = CMDLINE_WORD, .field = FIELD(on_delete), .parse = parse_on_delete,
	  .expects = "delete, retain or archive" },
	{ "delete-mode", "MODE", "background or inline: when to free space (default: background)",
	  .kind = CMDLINE_WORD, .field = FIELD(purge_now), .parse = parse_delete_mode,
	  .expects = "background or inline" },
	{ "remove-archived-volume-path", NULL,
	  "replace an archive of the same name (default: give the new one a dated name)",
	  .kind = CMDLINE_BOOL, .field = FIELD(replace_archive) },
	{ "snapshot-compression", "KIND",
	  "none, gzip or zstd, unless a VolumeSnapshotClass says (default: gzip)",
	  .kind = CMDLINE_WORD, .field = FIELD(compression), .parse = parse_compression,
	  .expects = "none, gzip or zstd" },
	{ "enable-snapshot-compression", NULL,
	  "the same, for csi-driver-nfs manifests: true is gzip, false is none",
	  .kind = CMDLINE_WORD, .field = FIELD(compression), .parse = parse_enable_compression,
	  .expects = "true or false" },
	{ "verify-clones", NULL, "read clones again and compare checksums (default: sizes only)",
	  .kind = CMDLINE_BOOL, .field = FIELD(verify_clones) },
	{ "replica-timeout", "SECONDS",
	  "idle time after which another controller counts as dead (default: 30)",
	  .kind = CMDLINE_NUMBER, .field = FIELD(replica_timeout), .min = 1,
	  .max = REPLICA_TIMEOUT_MAX_S },
	{ "window", "NUMBER", "operations that a copy or removal keeps in flight (default: 64)",
	  .kind = CMDLINE_NUMBER, .field = FIELD(window), .min = 1, .max = NFS_WINDOW_MAX },
	{ "enable-get-snapshot", NULL, "advertise GetSnapshot, which older sidecars do not know",
	  .kind = CMDLINE_BOOL, .field = FIELD(get_snapshot) },
	{ "state-dir", "PATH",
	  "where a node notes what it has published (default: " DEFAULT_STATE_DIR ")",
	  .kind = CMDLINE_TEXT, .field = FIELD(state_dir), .check = check_state_dir },
	{ "inline-volumes", "LIST", "server:/path,... that pods may mount inline (default: none)",
	  .kind = CMDLINE_OPTIONAL, .field = FIELD(inline_volumes),
	  .check = node_inline_list_check },
	{ "log-level", "LEVEL", "error, warn, info or debug (default: info)", .kind = CMDLINE_WORD,
	  .field = FIELD(log_level), .parse = parse_log_level,
	  .expects = "error, warn, info or debug" },
	{ "log-format", "FORMAT", "text or json (default: text)", .kind = CMDLINE_WORD,
	  .field = FIELD(log_format), .parse = parse_log_format, .expects = "text or json" },
	{ "version", NULL, "print the version and exit", .kind = CMDLINE_END },
	{ "help", NULL, "print this text and exit", .kind = CMDLINE_END },
	{ "working-mount-dir", "PATH", NULL, .kind = CMDLINE_IGNORED },
	{ "vol-stats-cache-expire-in-minutes", "N", NULL, .kind = CMDLINE_IGNORED },
	{ "use-tar-command-in-snapshot", NULL, NULL, .kind = CMDLINE_IGNORED },
	{ "v", "N", NULL, .kind = CMDLINE_IGNORED },
	{ "vmodule", "LIST", NULL, .kind = CMDLINE_IGNORED },
	{ "logtostderr", NULL, NULL, .kind = CMDLINE_IGNORED },
	{ "alsologtostderr", NULL, NULL, .kind = CMDLINE_IGNORED },
	{ "stderrthreshold", "N", NULL, .kind = CMDLINE_IGNORED },
	{ "log-dir", "PATH", NULL, .kind = CMDLINE_IGNORED },
	{ "legacy-stderr-threshold-behavior", NULL, NULL, .kind = CMDLINE_IGNORED },
	{ "alsologtostderrthreshold", "N", NULL, .kind = CMDLINE_IGNORED },
};

static const struct cmdline cmdline = {
	.intro = "Usage: csi-nfs [OPTION]...\n"
		 "Serves the Container Storage Interface for NFS volumes on a unix socket.\n",
	.outro = "To find out what is wrong with an NFS export: csi-nfs check --help\n"
		 "See csi-nfs(8).\n",
	.width = 34,
	.options = options,
	.n = ARRAY_SIZE(options),
};

int options_parse(struct options *o, int argc, char **argv, struct error *err)
{
	const struct cmdline_opt *end;
	int r;

	*o = (struct options){
		.compression = TREE_COMPRESSION_GZIP,
		.window = NFS_WINDOW,
		.replica_timeout = STORE_HOLDER_PATIENCE_S,
		.driver_name = DEFAULT_DRIVER_NAME,
		.state_dir = DEFAULT_STATE_DIR,
		.mode = MODE_ALL,
		.log_level = LOG_LEVEL_INFO,
	};
	r = cmdline_parse(&cmdline, o, argc, argv, &end, err);
	if (r < 0)
		return r;
	if (end != NULL) {
		o->action = strcmp(end->name, "help") == 0 ? ACTION_HELP : ACTION_VERSION;
		return 0;
	}
	if (!str_is_empty(o->node_id))
		return 0;
	if (gethostname(o->host_name, sizeof(o->host_name) - 1) < 0 || o->host_name[0] == '\0')
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--nodeid: must be given, as this machine has no host name");
	o->node_id = o->host_name;
	return 0;
}

int options_print_help(void)
{
	return cmdline_print_help(&cmdline);
}
