/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What the controller's calls share: a client to work with, the lock of a volume, and, for a call
 * about a volume that exists, what its id refers to. Worker threads; csi_with_client() blocks.
 */
#ifndef CSI_SESSION_H
#define CSI_SESSION_H

#include "base/request.h"
#include "base/str.h"
#include "csi/driver.h"
#include "csi/map.h"
#include "csi/services.h"
#include "store/layout.h"
#include "store/record.h"
#include "store/volume_id.h"

struct reference {
	struct volume_id id;
	struct nfs_export export; /* as it was reached to read the record */
	struct record record; /* by reference_read(); empty where the volume has none */
	unsigned int version; /* of NFS, that it was read over */
};

/*
 * Takes an id apart, with the mount options of the secrets, or else what is known of the export. Returns
 * 0; -EINVAL, unreported, where the id cannot be one of ours; or another negative errno with the
 * error set. reference_done() is due in either case.
 */
int reference_init(struct reference *ref, const struct csi_driver *driver, const char *id,
		   const struct csi_map *secrets, struct error *err);

/* As reference_init(), with NOT_FOUND for an id that cannot be one of ours. */
int reference_find(struct reference *ref, const struct csi_driver *driver, const char *id,
		   const struct csi_map *secrets, struct error *err);

/* Reads the volume's record. Blocks. Errors as csi_with_reader() and record_read(). */
int reference_read(struct reference *ref, const struct csi_driver *driver, struct error *err);

void reference_done(struct reference *ref);

/* The driver that a controller service was made for. */
const struct csi_driver *csi_controller_driver(Csi__V1__Controller_Service *service);

/* Something to do with a client, which may be done twice. */
typedef int (*csi_work_fn)(struct nfs_client *c, void *data, struct error *err);

/*
 * Runs work on a client for the export. An idle connection may turn out to be dead, and a handle to be
 * forgotten by the server, only when they are used: then once more on a new connection.
 */
int csi_with_client(const struct csi_driver *driver, const struct nfs_export *e, csi_work_fn work,
		    void *data, struct error *err);

/*
 * As csi_with_client(), for work that only reads: where the export's identity may not enter the
 * share, once more as the owner of its root, and then that is e's identity from here on.
 */
int csi_with_reader(const struct csi_driver *driver, struct nfs_export *e, csi_work_fn work,
		    void *data, struct error *err);

/*
 * As csi_with_client(), with the identity of owner first. Where that is refused, since only root may do
 * it on an export that does not squash root, with the export's own.
 */
int csi_with_owner(const struct csi_driver *driver, const struct nfs_export *e,
		   const struct volume_owner *owner, csi_work_fn work, void *data, struct error *err);

/*
 * A CO may forget what it asked for after a final code, so nothing of it may be there: where the record of
 * that key in that folder is, or its draft, or nobody can tell, the code becomes ABORTED. The attempt that
 * failed need not have made it; one before it may have, that was killed, or could not take back what it
 * did. A refusal of the driver's own (no sys) is left alone: it knows what is there. Worker threads; blocks.
 */
void csi_check_final(const struct csi_driver *driver, const struct nfs_export *e,
		     const struct volume_owner *owner, enum store_place folder, const char *key,
		     struct error *err);

/* Something to do with a volume, whose record has been read. */
typedef int (*csi_volume_fn)(struct nfs_client *c, struct reference *ref, void *data,
			     struct error *err);

/*
 * As csi_with_owner(), for the volume, over the version of NFS that it was created with where no other is
 * asked for. Its record is read anew where work is done twice.
 */
int csi_with_volume(const struct csi_driver *driver, struct reference *ref, csi_volume_fn work,
		    void *data, struct error *err);

/* A csi_volume_fn: NOT_FOUND where the volume's directory is not there. */
int csi_find_volume_work(struct nfs_client *c, struct reference *ref, void *data, struct error *err);

/*
 * The lock of what ("volume", "snapshot") has that key on the export, the same for every call that is about
 * it. Errors as inflight_acquire().
 */
int csi_lock(const struct csi_driver *driver, const char *what, const struct nfs_export *e,
	     const char *key, struct inflight_lock **ret, struct error *err);

/* csi_lock() of a volume. */
int csi_lock_volume(const struct csi_driver *driver, const struct nfs_export *e, const char *key,
		    struct inflight_lock **ret, struct error *err);

/*
 * The exports that a list goes over: the default one, and those that this process has worked on. The caller
 * frees them with known_exports_list_free().
 */
int csi_known_exports(const struct csi_driver *driver, struct nfs_export **ret, size_t *ret_n,
		      struct error *err);

/*
 * Where a list goes on after a page whose token is "server#share#key": on which of the exports, and behind
 * which key, which is borrowed from token. An empty one is the beginning. ABORTED for one that is not of
 * this list.
 */
int csi_list_start(const char *starting_token, const struct nfs_export *exports, size_t n,
		   struct strv *token, size_t *ret_start, const char **ret_after, struct error *err);

/* Where there is something to purge after a call, and as whom. */
struct trash {
	struct nfs_export export; /* borrows its strings from the one that it was made of */
	bool is_used; /* there is something */
};

/* Whoever moves things to the trash with c does so on this export. */
void csi_trash_of(struct trash *t, const struct nfs_export *e, const struct nfs_client *c);

/* Asks the purger, if there is something. */
void csi_purge(const struct csi_driver *driver, const struct trash *t);

/* What the log says the call is about; cut when too long. */
void csi_set_subject(struct request *req, const char *subject);

#define CSI_CONTEXT_MAX 256 /* entries: a map of 4 KiB holds no more that matter */

/*
 * The volume_context of a record, in arrays of CSI_CONTEXT_MAX. Strings are borrowed from the record.
 * Returns the number of entries.
 */
size_t csi_context_of(const struct record *rec, Csi__V1__Volume__VolumeContextEntry *entries,
		      Csi__V1__Volume__VolumeContextEntry **list);

#endif
