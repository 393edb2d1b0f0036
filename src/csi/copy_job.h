/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A copy job copies or archives a whole tree. It leases clients of its own besides the call's, see
 * csi/copy_clients.h. Few jobs run at a time, so that workers and slots of servers stay free for
 * short calls. Worker threads; blocks.
 */
#ifndef CSI_COPY_JOB_H
#define CSI_COPY_JOB_H

#include "csi/claim.h"
#include "csi/copy_clients.h"
#include "csi/driver.h"
#include "csi/volume_ref.h"
#include "tree/work.h"

#define COPY_JOB_CLIENTS 5 /* at most: two of the call, two of the job, one to renew a note */

struct copy_job {
	const struct csi_driver *driver;
	enum copy_kind kind;
	const char *what; /* name of what is made, for the log; borrowed */
	struct tree_work work;
	const char *path; /* of the source's directory; NULL: the source is an archive */
	struct nfs_handle tree; /* that directory; unused for an archive */
	struct nfs_attr attr;
	bool can_offload; /* the server may copy the files, which pays for large ones only */
	bool is_counted; /* counting the tree has begun, to estimate the time left */
	/* The call's clients of source and target. Kept alive, since servers close idle ones. */
	struct nfs_client *idle[2];
	struct claim *const *claims; /* two, on the exports of idle; borrowed */
	uint64_t started_ns, logged_ns; /* logged_ns: of the last line about the progress */
	uint64_t renewed_ns; /* when the notes were renewed last */
	unsigned int attempts; /* given up because the tree changed too much */
	bool from_xattrs, to_xattrs; /* which ends had extended attributes before the first one */
};

/*
 * Begin a job between the exports and identities of from and to. claims are the notes on both that
 * keep other replicas away, in this order; each may be NULL. The job borrows them and renews them
 * while it lasts: a failed renewal is only logged, except the last one, in copy_job_close(), which
 * fails the job. The caller has a turn. copy_job_close() is due.
 */
void copy_job_open(struct copy_job *job, const struct csi_driver *driver, const char *what,
		   struct nfs_client *from, struct nfs_client *to, struct claim *const claims[2]);

/*
 * Find the directory at path, which is borrowed, lease clients for it, and set path, tree and attr.
 * kind: COPY_CLONE or COPY_ARCHIVE. Errors as directory_locate() and nfs_pool_lease(). The tree is
 * counted at the first progress report: most jobs have ended by then, so their trees are listed
 * only once. It is listed here already if that may change the version. Version 3 is used for a tree
 * without extended attributes if the sessions have few slots; and for a tree of small files that
 * cannot have attributes, even if the server could clone the files.
 */
int copy_job_find_tree(struct copy_job *job, enum copy_kind kind, const char *path,
		       struct error *err);

/* Find the directory of the source volume, likewise. ref is borrowed. */
int copy_job_find_volume(struct copy_job *job, enum copy_kind kind, const struct volume_ref *ref,
			 struct error *err);

/*
 * Lease clients for reading an archive in the directory at path, which the caller finds on
 * work.from. kind: COPY_RESTORE or COPY_CHECK.
 */
int copy_job_lease_for_archive(struct copy_job *job, enum copy_kind kind, const char *path,
			       struct error *err);

/*
 * Open the folder of unfinished work on work.to, and remove name from it: an earlier attempt may
 * have left it. The job borrows name. -ECANCELED with CANCELLED if the driver is being stopped.
 */
int copy_job_begin(struct copy_job *job, const char *name, const struct nfs_handle **ret_work,
		   struct error *err);

/*
 * Whether to start over, since the tree changed in a way that the attempt could not cope with. r is
 * the result of the attempt; its error is cleared if so. Returns true a bounded number of times.
 */
bool copy_job_is_to_be_retried(struct copy_job *job, int r, struct error *err);

/*
 * Give the clients back. r is the result of the job. If it is 0, first check that the source's path
 * still leads to the directory that was found (a copy of one removed during the job may lack parts)
 * and renew the notes, and at the end log what was done. Return r, or a negative errno with ABORTED
 * if the source went away or a note was lost.
 */
int copy_job_close(struct copy_job *job, int r, struct error *err);

#endif
