/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/export.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "net/address.h"

int nfs_share_check(const char *share, struct error *err)
{
	cleanup_free char *trimmed = path_trim(share);

	if (trimmed == NULL)
		return error_oom(err);
	if (trimmed[0] == '\0')
		return 0;
	if (path_has_component(trimmed, NFS_STATE_DIR))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "share: %s is where csi-nfs keeps its records", NFS_STATE_DIR);
	return path_check_relative(trimmed, "share", err);
}

int nfs_export_init(struct nfs_export *e, const char *server, const char *share, struct error *err)
{
	cleanup_nfs_export struct nfs_export export = { .server = NULL };
	int r;

	nfs_export_set_own(&export);
	export.server = net_server_without_brackets(server);
	export.share = path_join_root(share, NULL);
	if (export.server == NULL || export.share == NULL)
		return error_oom(err);
	r = net_server_check(export.server, err);
	if (r < 0)
		return r;
	r = nfs_share_check(share, err);
	if (r < 0)
		return r;
	*e = export;
	export = (struct nfs_export){ .server = NULL };
	return 0;
}

/* Minor versions only matter to kernel mounts: the controller always uses 4.0. */
static int parse_version(const char *value, unsigned int *ret, struct error *err)
{
	static const char *const four[] = { "4", "4.0", "4.1", "4.2" };
	size_t i;

	if (strcmp(value, "3") == 0) {
		*ret = 3;
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(four); i++) {
		if (strcmp(value, four[i]) == 0) {
			*ret = 4;
			return 0;
		}
	}
	return error_set(err, ERROR_INVALID_ARGUMENT,
			 "mount options: the NFS version must be 3, 4, 4.0, 4.1 or 4.2");
}

static int parse_port(const char *name, const char *value, uint16_t *ret, struct error *err)
{
	uint64_t n;

	if (str_parse_u64(value, 10, UINT16_MAX, &n) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mount options: %s must be a number from 0 to 65535", name);
	*ret = (uint16_t)n;
	return 0;
}

static int apply_option(struct nfs_export *e, const char *option, struct error *err)
{
	if (str_has_prefix(option, "vers="))
		return parse_version(option + 5, &e->version, err);
	if (str_has_prefix(option, "nfsvers="))
		return parse_version(option + 8, &e->version, err);
	if (option[0] == 'v' && isdigit((unsigned char)option[1]))
		return parse_version(option + 1, &e->version, err);
	if (str_has_prefix(option, "port="))
		return parse_port("port", option + 5, &e->port, err);
	if (str_has_prefix(option, "mountport="))
		return parse_port("mountport", option + 10, &e->mount_port, err);
	return 0;
}

int nfs_export_apply_options(struct nfs_export *e, const char *options, struct error *err)
{
	cleanup_strv struct strv v = { NULL, 0 };
	size_t i;
	int r;

	if (str_is_empty(options))
		return 0;
	r = strv_split(&v, options, ',');
	if (r < 0)
		return error_oom(err);
	for (i = 0; i < v.n; i++) {
		r = apply_option(e, v.items[i], err);
		if (r < 0)
			return r;
	}
	return 0;
}

bool nfs_export_is_own(const struct nfs_export *e)
{
	return e->uid == geteuid() && e->gid == getegid();
}

void nfs_export_set_own(struct nfs_export *e)
{
	e->uid = geteuid();
	e->gid = getegid();
}

int nfs_export_copy(struct nfs_export *ret, const struct nfs_export *e)
{
	struct nfs_export copy = *e;

	copy.server = strdup(e->server);
	copy.share = strdup(e->share);
	if (copy.server == NULL || copy.share == NULL) {
		nfs_export_done(&copy);
		return -ENOMEM;
	}
	*ret = copy;
	return 0;
}

bool nfs_export_is_equal(const struct nfs_export *a, const struct nfs_export *b)
{
	return a->version == b->version && a->port == b->port && a->mount_port == b->mount_port &&
	       a->uid == b->uid && a->gid == b->gid && a->any_port == b->any_port &&
	       strcmp(a->server, b->server) == 0 && strcmp(a->share, b->share) == 0;
}

void nfs_export_done(struct nfs_export *e)
{
	free(e->server);
	free(e->share);
	*e = (struct nfs_export){ .server = NULL };
}

bool nfs_export_has_options(const struct nfs_export *e)
{
	return e->version != 0 || e->port != 0 || e->mount_port != 0;
}
