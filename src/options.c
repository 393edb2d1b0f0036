/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "nfs/client.h"
#include "nfs/export.h"
#include "node/inline.h"
#include "store/holder.h"

#define DEFAULT_ENDPOINT "unix:///tmp/csi.sock"
#define DEFAULT_DRIVER_NAME "nfs.csi.k8s.io"
#define DEFAULT_STATE_DIR "/run/csi-nfs" /* it vanishes with the node's mounts, at a reboot */
#define DRIVER_NAME_MAX 63 /* CSI specification, GetPluginInfoResponse */
#define NODE_ID_MAX 192 /* what Kubernetes stores; the specification allows 256 */

static int take_endpoint(struct options *o, const char *value, struct error *err)
{
	if (value[0] == '\0')
		return error_set(err, ERROR_INVALID_ARGUMENT, "--endpoint: must not be empty");
	o->endpoint = value;
	return 0;
}

static int take_node_id(struct options *o, const char *value, struct error *err)
{
	if (strlen(value) > NODE_ID_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT, "--nodeid: longer than %d bytes",
				 NODE_ID_MAX);
	if (str_has_control(value))
		return error_set(err, ERROR_INVALID_ARGUMENT, "--nodeid: holds a control character");
	o->node_id = value;
	return 0;
}

static int take_mode(struct options *o, const char *value, struct error *err)
{
	if (strcmp(value, "controller") == 0)
		o->mode = MODE_CONTROLLER;
	else if (strcmp(value, "node") == 0)
		o->mode = MODE_NODE;
	else if (strcmp(value, "all") == 0)
		o->mode = MODE_ALL;
	else
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--mode: must be controller, node or all, not '%s'", value);
	return 0;
}

static int take_server(struct options *o, const char *value, struct error *err)
{
	struct nfs_export e;
	int r;

	if (value[0] == '\0')
		return 0;
	r = nfs_export_init(&e, value, "/", err);
	if (r < 0) {
		error_prefix(err, "--server");
		return r;
	}
	nfs_export_done(&e);
	o->server = value;
	return 0;
}

static int take_share(struct options *o, const char *value, struct error *err)
{
	struct nfs_export e;
	int r;

	if (value[0] == '\0')
		return 0;
	r = nfs_export_init(&e, "localhost", value, err);
	if (r < 0) {
		error_prefix(err, "--share");
		return r;
	}
	nfs_export_done(&e);
	o->share = value;
	return 0;
}

/* As the specification and csi-sanity want it: letters at both ends, '-' and '.' between. */
static int take_driver_name(struct options *o, const char *value, struct error *err)
{
	size_t len = strlen(value), i;

	if (len == 0 || len > DRIVER_NAME_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--drivername: must have 1 to %d characters", DRIVER_NAME_MAX);
	for (i = 0; i < len; i++)
		if (!isalnum((unsigned char)value[i]) && strchr("-.", value[i]) == NULL)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "--drivername: only letters, digits, '-' and '.' are allowed");
	if (!isalnum((unsigned char)value[0]) || !isalnum((unsigned char)value[len - 1]))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--drivername: must start and end with a letter or digit");
	o->driver_name = value;
	return 0;
}

/* csi-driver-nfs reads it as Go does: octal with a leading 0, else decimal. */
static int take_mount_permissions(struct options *o, const char *value, struct error *err)
{
	const char *digits = value;
	unsigned int base = 10;
	uint64_t mode;

	if (digits[0] == '0' && digits[1] != '\0') {
		base = 8;
		digits += digits[1] == 'o' ? 2 : 1;
	}
	if (str_parse_u64(digits, base, 07777, &mode) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--mount-permissions: must be a mode such as 0770 (octal with the leading 0), not '%s'",
				 value);
	o->mount_permissions = (uint32_t)mode;
	return 0;
}

static int take_on_delete(struct options *o, const char *value, struct error *err)
{
	if (on_delete_parse(value, &o->on_delete) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--default-ondelete-policy: must be delete, retain or archive, not '%s'",
				 value);
	return 0;
}

/* As Go reads its boolean flags; none is true. */
/* As Go reads it; without a value it is true. */
static int parse_bool(const char *option, const char *value, bool *ret, struct error *err)
{
	static const char *const yes[] = { "", "1", "t", "true" }, *const no[] = { "0", "f", "false" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(yes); i++) {
		if (str_eq_nocase(value, yes[i])) {
			*ret = true;
			return 0;
		}
	}
	for (i = 0; i < ARRAY_SIZE(no); i++) {
		if (str_eq_nocase(value, no[i])) {
			*ret = false;
			return 0;
		}
	}
	return error_set(err, ERROR_INVALID_ARGUMENT, "%s: must be true or false, not '%s'", option,
			 value);
}

static int take_replace_archive(struct options *o, const char *value, struct error *err)
{
	return parse_bool("--remove-archived-volume-path", value, &o->replace_archive, err);
}

static int take_get_snapshot(struct options *o, const char *value, struct error *err)
{
	return parse_bool("--enable-get-snapshot", value, &o->get_snapshot, err);
}

static int take_verify_clones(struct options *o, const char *value, struct error *err)
{
	return parse_bool("--verify-clones", value, &o->verify_clones, err);
}

static int take_replica_timeout(struct options *o, const char *value, struct error *err)
{
	uint64_t n;

	if (str_parse_u64(value, 10, 3600, &n) < 0 || n == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--replica-timeout: must be 1 to 3600 seconds");
	o->replica_timeout = (unsigned int)n;
	return 0;
}

static int take_window(struct options *o, const char *value, struct error *err)
{
	uint64_t n;

	if (str_parse_u64(value, 10, NFS_WINDOW_MAX, &n) < 0 || n == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "--window: must be 1 to %d",
				 NFS_WINDOW_MAX);
	o->window = (unsigned int)n;
	return 0;
}

static int take_compression(struct options *o, const char *value, struct error *err)
{
	if (tree_compression_parse(value, &o->compression) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--snapshot-compression: must be none, gzip or zstd, not '%s'",
				 value);
	return 0;
}

/* csi-driver-nfs knows gzip and none. */
static int take_enable_compression(struct options *o, const char *value, struct error *err)
{
	bool enabled = true;
	int r = parse_bool("--enable-snapshot-compression", value, &enabled, err);

	if (r == 0)
		o->compression = enabled ? TREE_COMPRESSION_GZIP : TREE_COMPRESSION_NONE;
	return r;
}

static int take_delete_mode(struct options *o, const char *value, struct error *err)
{
	if (strcmp(value, "background") != 0 && strcmp(value, "inline") != 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--delete-mode: must be background or inline, not '%s'", value);
	o->purge_now = strcmp(value, "inline") == 0;
	return 0;
}

static int take_state_dir(struct options *o, const char *value, struct error *err)
{
	if (value[0] != '/')
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--state-dir: must be an absolute path, not '%s'", value);
	o->state_dir = value;
	return 0;
}

static int take_inline_volumes(struct options *o, const char *value, struct error *err)
{
	int r;

	if (value[0] == '\0')
		return 0;
	r = node_inline_list_check(value, err);
	if (r < 0) {
		error_prefix(err, "--inline-volumes");
		return r;
	}
	o->inline_volumes = value;
	return 0;
}

static int take_log_level(struct options *o, const char *value, struct error *err)
{
	if (log_level_parse(value, &o->log_level) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--log-level: must be error, warn, info or debug, not '%s'", value);
	return 0;
}

static int take_log_format(struct options *o, const char *value, struct error *err)
{
	if (log_format_parse(value, &o->log_format) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--log-format: must be text or json, not '%s'", value);
	return 0;
}

static int take_version(struct options *o, const char *value, struct error *err)
{
	(void)value;
	(void)err;
	o->action = ACTION_VERSION;
	return 0;
}

static int take_help(struct options *o, const char *value, struct error *err)
{
	(void)value;
	(void)err;
	o->action = ACTION_HELP;
	return 0;
}

/* Taken for the sake of manifests that were written for csi-driver-nfs. */
static int take_nothing(struct options *o, const char *value, struct error *err)
{
	(void)o;
	(void)value;
	(void)err;
	return 0;
}

enum option_flags {
	OPTION_SWITCH = 1 << 0, /* a value only after '=', as Go's boolean flags */
};

static const struct option_spec {
	const char *name;
	const char *argument; /* in --help */
	const char *help;
	unsigned int flags;
	int (*take)(struct options *o, const char *value, struct error *err);
} specs[] = {
	{ "endpoint", "URL", "unix socket to serve, unix:///path/csi.sock (CSI_ENDPOINT)", 0,
	  take_endpoint },
	{ "nodeid", "ID", "name of this node (NODE_ID; default: the host name)", 0, take_node_id },
	{ "mode", "MODE", "controller, node or all (default: all)", 0, take_mode },
	{ "server", "HOST", "NFS server where a StorageClass gives none (NFS_SERVER)", 0,
	  take_server },
	{ "share", "PATH", "exported path where a StorageClass gives none (NFS_SHARE)", 0,
	  take_share },
	{ "drivername", "NAME", "name of the driver (default: " DEFAULT_DRIVER_NAME ")", 0,
	  take_driver_name },
	{ "mount-permissions", "MODE", "mode of volume directories, 0770 (default: 0, leave)", 0,
	  take_mount_permissions },
	{ "default-ondelete-policy", "POLICY", "delete, retain or archive (default: delete)", 0,
	  take_on_delete },
	{ "delete-mode", "MODE",
	  "background or inline: when the space is free (default: background)", 0, take_delete_mode },
	{ "remove-archived-volume-path", NULL,
	  "replace an archive of the same name (default: give the new one a dated name)",
	  OPTION_SWITCH, take_replace_archive },
	{ "snapshot-compression", "KIND",
	  "none, gzip or zstd where a VolumeSnapshotClass gives none (default: gzip)", 0,
	  take_compression },
	{ "enable-snapshot-compression", NULL,
	  "the same, as csi-driver-nfs has it: true is gzip, false is none", OPTION_SWITCH,
	  take_enable_compression },
	{ "verify-clones", NULL, "read clones again and compare checksums (default: sizes only)",
	  OPTION_SWITCH, take_verify_clones },
	{ "replica-timeout", "SECONDS",
	  "when another controller that does nothing more counts as dead (default: 30)", 0,
	  take_replica_timeout },
	{ "window", "NUMBER", "operations of a copy or removal in flight at once (default: 64)", 0,
	  take_window },
	{ "enable-get-snapshot", NULL, "advertise GetSnapshot, which older sidecars do not know",
	  OPTION_SWITCH, take_get_snapshot },
	{ "state-dir", "PATH",
	  "where a node notes what it has published (default: " DEFAULT_STATE_DIR ")", 0,
	  take_state_dir },
	{ "inline-volumes", "LIST", "server:/path,... that pods may mount inline (default: none)",
	  0, take_inline_volumes },
	{ "log-level", "LEVEL", "error, warn, info or debug (default: info)", 0, take_log_level },
	{ "log-format", "FORMAT", "text or json (default: text)", 0, take_log_format },
	{ "version", NULL, "print the version and exit", OPTION_SWITCH, take_version },
	{ "help", NULL, "print this text and exit", OPTION_SWITCH, take_help },
	{ "working-mount-dir", "PATH", NULL, 0, take_nothing },
	{ "vol-stats-cache-expire-in-minutes", "N", NULL, 0, take_nothing },
	{ "use-tar-command-in-snapshot", NULL, NULL, OPTION_SWITCH, take_nothing },
	{ "v", "N", NULL, 0, take_nothing },
	{ "vmodule", "LIST", NULL, 0, take_nothing },
	{ "logtostderr", NULL, NULL, OPTION_SWITCH, take_nothing },
	{ "alsologtostderr", NULL, NULL, OPTION_SWITCH, take_nothing },
	{ "stderrthreshold", "N", NULL, 0, take_nothing },
	{ "log-dir", "PATH", NULL, 0, take_nothing },
};

/* "log_dir" is the same as "log-dir": klog has both spellings in use. */
static bool name_is(const char *name, size_t len, const char *spec)
{
	size_t i;

	for (i = 0; i < len && spec[i] != '\0'; i++)
		if (name[i] != spec[i] && !(name[i] == '_' && spec[i] == '-'))
			return false;
	return i == len && spec[i] == '\0';
}

static const struct option_spec *find(const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(specs); i++)
		if (name_is(name, len, specs[i].name))
			return &specs[i];
	if (len == 1 && name[0] == 'h')
		return find("help", 4);
	return NULL;
}

/* Reads the option at argv[*i], and its value, which may be the next word. */
static int take_option(struct options *o, int argc, char **argv, int *i, struct error *err)
{
	const char *word = argv[*i];
	const char *name = word + (word[1] == '-' ? 2 : 1);
	size_t len = strcspn(name, "=");
	const struct option_spec *spec = find(name, len);
	const char *value = "";

	if (spec == NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT, "unknown option '%.*s'",
				 (int)(len + (size_t)(name - word)), word);
	if (name[len] == '=') {
		value = name + len + 1;
	} else if (!(spec->flags & OPTION_SWITCH)) {
		if (*i + 1 >= argc)
			return error_set(err, ERROR_INVALID_ARGUMENT, "--%s: needs a value",
					 spec->name);
		value = argv[++*i];
	}
	return spec->take(o, value, err);
}

static int take_environment(struct options *o, struct error *err)
{
	static const struct {
		const char *variable;
		int (*take)(struct options *o, const char *value, struct error *err);
	} variables[] = {
		{ "CSI_ENDPOINT", take_endpoint },
		{ "NODE_ID", take_node_id },
		{ "NFS_SERVER", take_server },
		{ "NFS_SHARE", take_share },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(variables); i++) {
		const char *value = getenv(variables[i].variable);
		int r;

		if (str_is_empty(value))
			continue;
		r = variables[i].take(o, value, err);
		if (r < 0) {
			error_prefix(err, "environment variable %s", variables[i].variable);
			return r;
		}
	}
	return 0;
}

static int fill_node_id(struct options *o, struct error *err)
{
	if (!str_is_empty(o->node_id))
		return 0;
	if (gethostname(o->host_name, sizeof(o->host_name) - 1) < 0 || o->host_name[0] == '\0')
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--nodeid: this machine has no host name to use; give one");
	o->node_id = o->host_name;
	return 0;
}

int options_parse(struct options *o, int argc, char **argv, struct error *err)
{
	int r, i;

	*o = (struct options){
		.compression = TREE_COMPRESSION_GZIP,
		.window = NFS_WINDOW,
		.replica_timeout = STORE_HOLDER_PATIENCE_S,
		.endpoint = DEFAULT_ENDPOINT,
		.driver_name = DEFAULT_DRIVER_NAME,
		.state_dir = DEFAULT_STATE_DIR,
		.mode = MODE_ALL,
		.log_level = LOG_LEVEL_INFO,
	};
	r = take_environment(o, err);
	for (i = 1; i < argc && r == 0; i++) {
		if (argv[i][0] != '-' || argv[i][1] == '\0')
			r = error_set(err, ERROR_INVALID_ARGUMENT, "unexpected argument '%s'",
				      argv[i]);
		else
			r = take_option(o, argc, argv, &i, err);
		if (r == 0 && o->action != ACTION_SERVE)
			return 0;
	}
	return r < 0 ? r : fill_node_id(o, err);
}

static void print_option(const struct option_spec *spec)
{
	char left[64];

	(void)snprintf(left, sizeof(left), "--%s%s%s", spec->name, spec->argument != NULL ? "=" : "",
		       spec->argument != NULL ? spec->argument : "");
	if (spec->help != NULL)
		printf("  %-34s %s\n", left, spec->help);
	else
		printf("  %s\n", left);
}

int options_print_help(void)
{
	bool ignored;
	size_t i;

	printf("Usage: csi-nfs [OPTION]...\n"
	       "Serves the Container Storage Interface for NFS volumes on a unix socket.\n\n");
	for (i = 0, ignored = false; i < ARRAY_SIZE(specs); i++) {
		if (specs[i].help == NULL && !ignored) {
			ignored = true;
			printf("\nOf csi-driver-nfs, taken and ignored:\n");
		}
		print_option(&specs[i]);
	}
	printf("\nTo find out what is wrong with an NFS export: csi-nfs check --help\n"
	       "See csi-nfs(8).\n");
	return fflush(stdout) == 0 ? 0 : -errno;
}
