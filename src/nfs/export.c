/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "net/address.h"

static int share_check(const char *share,
		       int (*check)(const char *path, const char *field, struct error *err),
		       struct error *err)
{
	cleanup_free char *trimmed = path_trim(share);

	if (trimmed == NULL)
		return error_oom(err);
	if (trimmed[0] == '\0')
		return 0;
	if (path_has_component(trimmed, NFS_STATE_DIR))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "share: %s is where csi-nfs keeps its records", NFS_STATE_DIR);
	return check(trimmed, "share", err);
}

int nfs_share_check(const char *share, struct error *err)
{
	return share_check(share, path_check_relative, err);
}

int nfs_share_check_mounted(const char *share, struct error *err)
{
	return share_check(share, path_check_mounted, err);
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

int nfs_export_apply_options(struct nfs_export *e, const char *options, struct error *err)
{
	cleanup_mount_options struct mount_options o = {
		.minor = -1,
		.port = e->port,
		.mount_port = e->mount_port,
	};
	int r;

	r = mount_options_read(&o, options, err);
	if (r < 0)
		return r;
	if (o.major != 0) {
		nfs_export_set_options(e, &o);
		return 0;
	}
	e->port = o.port;
	e->mount_port = o.mount_port;
	return 0;
}

void nfs_export_set_options(struct nfs_export *e, const struct mount_options *o)
{
	e->version = o->major;
	e->has_minor = o->major == 4 && o->minor >= 0;
	e->minor = e->has_minor ? (unsigned int)o->minor : 0;
	e->prefers_version = false;
	e->asks_version = o->major != 0;
	e->port = o->port;
	e->mount_port = o->mount_port;
}

void nfs_export_prefer(struct nfs_export *e, unsigned int version)
{
	e->version = version;
	e->has_minor = false;
	e->minor = 0;
	e->prefers_version = version != 0;
}

void nfs_export_copy_way(struct nfs_export *e, const struct nfs_export *from)
{
	e->version = from->version;
	e->has_minor = from->has_minor;
	e->minor = from->minor;
	e->prefers_version = from->prefers_version;
	e->asks_version = from->asks_version;
	e->port = from->port;
	e->mount_port = from->mount_port;
}

bool nfs_export_leaves_version(const struct nfs_export *e)
{
	return !e->has_minor && !e->asks_version;
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
	return a->version == b->version && a->has_minor == b->has_minor && a->minor == b->minor &&
	       a->port == b->port && a->mount_port == b->mount_port && a->uid == b->uid &&
	       a->gid == b->gid && a->any_port == b->any_port &&
	       strcmp(a->server, b->server) == 0 && strcmp(a->share, b->share) == 0;
}

bool nfs_export_is_same_server(const struct nfs_export *a, const struct nfs_export *b)
{
	return a->port == b->port && strcmp(a->server, b->server) == 0;
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
