/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "check/options.h"

#include <errno.h>
#include <string.h>

#include "base/cmdline.h"
#include "base/mount_options.h"
#include "base/str.h"
#include "mount/mounter.h"
#include "nfs/export.h"

static int parse_json(const char *value, void *field)
{
	bool *json = field;

	*json = strcmp(value, "json") == 0;
	return *json || strcmp(value, "text") == 0 ? 0 : -EINVAL;
}

#define FIELD(name) offsetof(struct check_options, name)

/* Errors for --mount-options may name a mount option but never its value, which may be secret. */
static const struct cmdline_opt options[] = {
	{ "server", "HOST", "the NFS server (NFS_SERVER)", .kind = CMDLINE_TEXT,
	  .field = FIELD(server), .variable = "NFS_SERVER" },
	{ "share", "PATH", "the path that it exports (NFS_SHARE)", .kind = CMDLINE_TEXT,
	  .field = FIELD(share), .variable = "NFS_SHARE" },
	{ "mount", NULL, "also mount it, which needs root", .kind = CMDLINE_BOOL,
	  .field = FIELD(mount) },
	{ "mount-options", "OPTIONS", "as in a StorageClass: vers=4.1,port=2049",
	  .kind = CMDLINE_TEXT, .field = FIELD(mount_options), .check = mount_options_check },
	{ "uid", "N", "owner of volumes, as in a StorageClass", .kind = CMDLINE_NUMBER,
	  .field = FIELD(uid), .max = CHECK_NO_ID - 1 },
	{ "gid", "N", "their group", .kind = CMDLINE_NUMBER, .field = FIELD(gid),
	  .max = CHECK_NO_ID - 1 },
	{ "format", "FORMAT", "text or json (default: text)", .kind = CMDLINE_WORD,
	  .field = FIELD(json), .parse = parse_json, .expects = "text or json" },
	{ "help", NULL, "print this text and exit", .kind = CMDLINE_END },
};

static const struct cmdline cmdline = {
	.intro = "Usage: csi-nfs check --server HOST --share PATH [OPTION]...\n"
		 "Looks at an NFS export as csi-nfs uses it, step by step, and says what to do\n"
		 "about what is wrong. Makes a directory on the share and removes it again.\n",
	.outro = "Exit status: 0 nothing failed, 1 something failed, 2 wrong options.\n"
		 "See csi-nfs(8), section CHECK.\n",
	.width = 24,
	.options = options,
	.n = ARRAY_SIZE(options),
};

int check_options_parse(struct check_options *o, int argc, char **argv, struct error *err)
{
	cleanup_nfs_export struct nfs_export e = { .server = NULL };
	const struct cmdline_opt *end;
	int r;

	*o = (struct check_options){
		.mount_options = "",
		.uid = CHECK_NO_ID,
		.gid = CHECK_NO_ID,
	};
	r = cmdline_parse(&cmdline, o, argc, argv, &end, err);
	if (r < 0)
		return r;
	o->help = end != NULL;
	if (o->help)
		return 0;
	if (str_is_empty(o->server))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--server: must be given, here or by NFS_SERVER");
	if (str_is_empty(o->share))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--share: must be given, here or by NFS_SHARE");
	/* These errors begin with "server:", "share:" or "mount options:". */
	r = nfs_export_init(&e, o->server, o->share, err);
	return r < 0 ? r : nfs_export_apply_options(&e, o->mount_options, err);
}

int check_options_print_help(void)
{
	return cmdline_print_help(&cmdline);
}
