/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * How to reach one export: server, exported path, protocol version, ports and identity. Mount
 * options that only matter to a kernel mount are ignored. Plain data, any thread.
 */
#ifndef NFS_EXPORT_H
#define NFS_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/mount_options.h"

/* The driver's own folder on a share, see store/layout.h. */
#define NFS_STATE_DIR ".csi-nfs"

struct nfs_export {
	char *server; /* host name, IPv4 or bare IPv6 literal */
	char *share; /* absolute path of the export on the server, "/" or "/a/b" */
	unsigned int version; /* 3 or 4; 0: 4 if the server has it, else 3 */
	bool has_minor; /* only this minor version of 4; else the newest that the server has */
	unsigned int minor;
	bool prefers_version; /* the pool takes any version if the server refuses this one */
	bool asks_version; /* mount options name it, of this call or of one that is remembered */
	uint16_t port; /* NFS; 0: 2049 */
	uint16_t mount_port; /* MOUNT, for version 3; 0: ask rpcbind */
	uint32_t uid, gid; /* AUTH_SYS identity of the calls */
	bool any_port; /* do not try to get a source port below 1024 */
};

/*
 * Check the path of an export: no "..", no empty component, not within the driver's own folder.
 * Leading and trailing slashes are ignored. Returns 0, -EINVAL with INVALID_ARGUMENT, or -ENOMEM.
 */
int nfs_share_check(const char *share, struct error *err);

/* The same for a node, which makes no volume ids: '#' is allowed. */
int nfs_share_check_mounted(const char *share, struct error *err);

/*
 * Set e to copies of server and share, checked, with the identity of the process. Returns 0,
 * -EINVAL with INVALID_ARGUMENT, or -ENOMEM.
 */
int nfs_export_init(struct nfs_export *e, const char *server, const char *share, struct error *err);

/*
 * Apply version, port and mountport of mount options, which may be NULL, over those that e has.
 * Errors as mount_options_read(), leaving e as it was.
 */
int nfs_export_apply_options(struct nfs_export *e, const char *options, struct error *err);

/* Replace version and ports by those of mount_options_read(). The version is not a preference. */
void nfs_export_set_options(struct nfs_export *e, const struct mount_options *o);

/* Check whether any of these options was applied. */
bool nfs_export_has_options(const struct nfs_export *e);

/* Check whether mount options leave it open which version is used. */
bool nfs_export_leaves_version(const struct nfs_export *e);

/* Check whether the identity is that of the process; set it to that. */
bool nfs_export_is_own(const struct nfs_export *e);
void nfs_export_set_own(struct nfs_export *e);

/* Reach e in the way of from: version and ports, and whether the version was asked for. */
void nfs_export_copy_way(struct nfs_export *e, const struct nfs_export *from);

/* Prefer a version, 3 or 4; 0: none. */
void nfs_export_prefer(struct nfs_export *e, unsigned int version);

int nfs_export_copy(struct nfs_export *ret, const struct nfs_export *e);
/* Check whether both are reached in the same way, be it a preference or not. */
bool nfs_export_is_equal(const struct nfs_export *a, const struct nfs_export *b);
/* Check whether both are on the same server, by its name and port. */
bool nfs_export_is_same_server(const struct nfs_export *a, const struct nfs_export *b);
void nfs_export_done(struct nfs_export *e);

#define cleanup_nfs_export __attribute__((cleanup(nfs_export_done)))

#endif
