/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "check/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "mount/mounter.h"
#include "nfs/export.h"

#define ID_MAX (UINT32_MAX - 1) /* the last one stands for "none", as in chown(2) */

static int take_server(struct check_options *o, const char *value, struct error *err)
{
	(void)err;
	o->server = value;
	return 0;
}

static int take_share(struct check_options *o, const char *value, struct error *err)
{
	(void)err;
	o->share = value;
	return 0;
}

static int take_mount(struct check_options *o, const char *value, struct error *err)
{
	(void)value;
	(void)err;
	o->mount = true;
	return 0;
}

/* A message may name an option, never its value. */
static int take_mount_options(struct check_options *o, const char *value, struct error *err)
{
	int r = mount_options_check(value, err);

	if (r < 0) {
		error_prefix(err, "--mount-options");
		return r;
	}
	o->mount_options = value;
	return 0;
}

static int parse_id(const char *name, const char *value, bool *ret_has, uint32_t *ret,
		    struct error *err)
{
	uint64_t id;

	if (str_parse_u64(value, 10, ID_MAX, &id) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--%s: must be a number from 0 to %u, not '%s'", name, ID_MAX,
				 value);
	*ret_has = true;
	*ret = (uint32_t)id;
	return 0;
}

static int take_uid(struct check_options *o, const char *value, struct error *err)
{
	return parse_id("uid", value, &o->has_uid, &o->uid, err);
}

static int take_gid(struct check_options *o, const char *value, struct error *err)
{
	return parse_id("gid", value, &o->has_gid, &o->gid, err);
}

static int take_format(struct check_options *o, const char *value, struct error *err)
{
	o->json = strcmp(value, "json") == 0;
	if (!o->json && strcmp(value, "text") != 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--format: must be text or json, not '%s'", value);
	return 0;
}

static int take_help(struct check_options *o, const char *value, struct error *err)
{
	(void)value;
	(void)err;
	o->help = true;
	return 0;
}

static const struct option_spec {
	const char *name;
	const char *argument; /* in --help; NULL: a switch */
	const char *help;
	int (*take)(struct check_options *o, const char *value, struct error *err);
} specs[] = {
	{ "server", "HOST", "the NFS server (NFS_SERVER)", take_server },
	{ "share", "PATH", "the path that it exports (NFS_SHARE)", take_share },
	{ "mount", NULL, "also mount it, which needs root", take_mount },
	{ "mount-options", "OPTIONS", "as in a StorageClass: vers=4.1,port=2049", take_mount_options },
	{ "uid", "N", "who volumes belong to, as in a StorageClass", take_uid },
	{ "gid", "N", "their group", take_gid },
	{ "format", "FORMAT", "text or json (default: text)", take_format },
	{ "help", NULL, "print this text and exit", take_help },
};

static const struct option_spec *find(const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(specs); i++)
		if (strlen(specs[i].name) == len && memcmp(specs[i].name, name, len) == 0)
			return &specs[i];
	return len == 1 && name[0] == 'h' ? find("help", 4) : NULL;
}

/* Reads the option at argv[*i], and its value, which may be the next word. */
static int take_option(struct check_options *o, int argc, char **argv, int *i, struct error *err)
{
	const char *word = argv[*i];
	const char *name = word + (word[1] == '-' ? 2 : 1);
	size_t len = strcspn(name, "=");
	const struct option_spec *spec = find(name, len);
	bool has_value = name[len] == '=';

	if (spec == NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT, "unknown option '%.*s'",
				 (int)(len + (size_t)(name - word)), word);
	if (spec->argument == NULL && has_value)
		return error_set(err, ERROR_INVALID_ARGUMENT, "--%s: takes no value", spec->name);
	if (spec->argument == NULL)
		return spec->take(o, "", err);
	if (has_value)
		return spec->take(o, name + len + 1, err);
	if (*i + 1 >= argc)
		return error_set(err, ERROR_INVALID_ARGUMENT, "--%s: needs a value", spec->name);
	return spec->take(o, argv[++*i], err);
}

/* Where a value is wrong the message begins with "server:", "share:" or "mount options:". */
static int check_export(const struct check_options *o, struct error *err)
{
	cleanup_nfs_export struct nfs_export e = { .server = NULL };
	int r;

	if (str_is_empty(o->server))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--server: must be given, here or by NFS_SERVER");
	if (str_is_empty(o->share))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "--share: must be given, here or by NFS_SHARE");
	r = nfs_export_init(&e, o->server, o->share, err);
	return r < 0 ? r : nfs_export_apply_options(&e, o->mount_options, err);
}

int check_options_parse(struct check_options *o, int argc, char **argv, struct error *err)
{
	int r = 0, i;

	*o = (struct check_options){
		.server = getenv("NFS_SERVER"),
		.share = getenv("NFS_SHARE"),
		.mount_options = "",
	};
	for (i = 1; i < argc && r == 0 && !o->help; i++) {
		if (argv[i][0] != '-' || argv[i][1] == '\0')
			r = error_set(err, ERROR_INVALID_ARGUMENT, "unexpected argument '%s'",
				      argv[i]);
		else
			r = take_option(o, argc, argv, &i, err);
	}
	if (r < 0 || o->help)
		return r;
	return check_export(o, err);
}

int check_options_print_help(void)
{
	size_t i;

	printf("Usage: csi-nfs check --server HOST --share PATH [OPTION]...\n"
	       "Looks at an NFS export as csi-nfs uses it, step by step, and says what to do about\n"
	       "what is wrong. Makes a directory on the share and removes it again.\n\n");
	for (i = 0; i < ARRAY_SIZE(specs); i++) {
		char left[64];

		(void)snprintf(left, sizeof(left), "--%s%s%s", specs[i].name,
			       specs[i].argument != NULL ? "=" : "",
			       specs[i].argument != NULL ? specs[i].argument : "");
		printf("  %-24s %s\n", left, specs[i].help);
	}
	printf("\nExit status: 0 nothing failed, 1 something failed, 2 wrong options.\n"
	       "See csi-nfs(8), section CHECK.\n");
	return fflush(stdout) == 0 ? 0 : -errno;
}
