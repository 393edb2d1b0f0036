/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The driver is the settings, the locks and the lower rooms that the controller's calls use. Made
 * by main.c, read-only afterwards, outlives every call.
 */
#ifndef CSI_DRIVER_H
#define CSI_DRIVER_H

#include <stdint.h>

#include "base/request.h"
#include "csi.pb-c.h"
#include "csi/exports.h"
#include "csi/locks.h"
#include "csi/params.h"
#include "nfs/pool.h"
#include "store/purge.h"
#include "store/users.h"
#include "tree/archive.h"
#include "tree/budget.h"

struct copy_turns;

struct csi_driver {
	const char *server; /* default if a StorageClass gives none; NULL: none */
	const char *share;
	uint32_t mount_permissions; /* default; 0: leave what the server gives */
	enum volume_on_delete on_delete; /* default */
	bool purge_now; /* purge a deleted directory within the call */
	bool replace_archive; /* a new archive replaces one of the same name */
	struct key_locks *key_locks;
	struct dir_locks *dir_locks;
	struct nfs_pool *pool;
	struct purger *purger;
	struct known_exports *known;
	enum tree_compression compression; /* default, of snapshots */
	bool get_snapshot; /* advertise GetSnapshot */
	bool verify_clones; /* read a clone again, and compare checksums */
	struct copy_turns *turns; /* of copies and archives that are being made */
	struct tree_budget *budget; /* of the same */
	const atomic_bool *stopping; /* true: long work has to end */
};

/* The controller service. */
struct csi_controller {
	Csi__V1__Controller_Service service;
	const struct csi_driver *driver;
};

/* The driver that a service was made for. */
const struct csi_driver *csi_driver_of(Csi__V1__Controller_Service *service);

/* Set the subject of the call for the log. A subject that is too long is cut. */
void csi_set_subject(struct request *req, const char *subject);

/* The driver's values for what a StorageClass leaves out. */
struct volume_defaults csi_driver_defaults(const struct csi_driver *driver);

/*
 * Lock a volume or a snapshot against other calls of this process. what: "volume" or "snapshot".
 * Errors as key_lock_take().
 */
int csi_driver_lock(const struct csi_driver *driver, const char *what, const struct nfs_export *e,
		    const char *key, struct key_lock **ret, struct error *err);

/*
 * Fill in e for a share of a server. Version and ports come from the mount options in secrets
 * (NULL: none), or else from earlier calls on this export. nfs_export_done() is due in any case.
 * Errors: -EBADMSG with INVALID_ARGUMENT for a bad option, else as nfs_export_init().
 */
int csi_driver_export(const struct csi_driver *driver, struct nfs_export *e, const char *server,
		      const char *share, const struct csi_map *secrets, struct error *err);

/* A trash that may have to be purged after a call, and the identity that has to do it. */
struct trash {
	struct nfs_export export; /* borrows its strings from what it was made of */
	bool is_used; /* the call has put something there */
};

/* Note the identity of c, which works on export e. */
void trash_init(struct trash *t, const struct nfs_export *e, const struct nfs_client *c);

/* Hand the trash to the purger, if it is used. */
void trash_purge(const struct trash *t, const struct csi_driver *driver);

#endif
