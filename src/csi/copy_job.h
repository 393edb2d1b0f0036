/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A copy job is the copying or archiving of a whole tree. It has clients of its own beside those of
 * the call: over NFSv3 where the server offers the same export there, since NFSv3 takes large
 * writes and keeps no state. Few jobs run at a time, so that workers and slots of servers stay free
 * for short calls. Worker threads; blocks.
 */
#ifndef CSI_COPY_JOB_H
#define CSI_COPY_JOB_H

#include "csi/claim.h"
#include "csi/driver.h"
#include "csi/volume_ref.h"
#include "tree/work.h"

#define COPY_JOBS_MAX 3 /* each has up to four clients; a server takes NFS_SERVER_PLACES */

struct copy_job {
	const struct csi_driver *driver;
	const char *what; /* name of what is made, for the log; borrowed */
	struct tree_work work;
	const char *path; /* directory of the source volume; NULL: the source is a snapshot */
	struct nfs_handle tree; /* that directory; unused for a snapshot */
	struct nfs_attr attr;
	bool is_counted; /* the tree, to tell the time left */
	/* Of the call: source and target. Keep them alive, since servers close idle connections. */
	struct nfs_client *idle[2];
	struct claim *const *claims; /* on the exports of idle; borrowed */
	uint64_t started_ns;
	bool has_place; /* counts towards COPY_JOBS_MAX */
	unsigned int attempts; /* given up because the tree changed too much */
};

/*
 * Lease clients for the exports and identities of from and to. claims are the notes on both that
 * keep other replicas away, each may be NULL; they are renewed while the job lasts, and borrowed.
 * Errors: ABORTED where too many jobs run, else as nfs_pool_lease(). copy_job_close() is due in
 * either case.
 */
int copy_job_open(struct copy_job *job, const struct csi_driver *driver, const char *what,
		  struct nfs_client *from, struct nfs_client *to, struct claim *const claims[2],
		  struct error *err);

/*
 * Find the directory of the volume that is read: path, tree and attr. ref is borrowed. It is
 * counted at the first progress report; most jobs have ended by then, so that their trees are not
 * listed twice.
 */
int copy_job_find_volume(struct copy_job *job, const struct volume_ref *ref, struct error *err);

/*
 * Get the folder of unfinished work on work.to, and remove what is in it under that name: the job
 * may be the second attempt of a call.
 */
int copy_job_begin(struct copy_job *job, const char *name, const struct nfs_handle **ret_work,
		   struct error *err);

/*
 * Whether to start over, since the tree changed in a way that the attempt could not cope with. r is
 * the result of the attempt; its error is cleared if so. Returns true a bounded number of times.
 */
bool copy_job_is_to_be_retried(struct copy_job *job, int r, struct error *err);

/*
 * Give the clients back. r is the result of the job. Where it is 0, check first that the source is
 * still the directory that was found, since parts of one that went away meanwhile may be missing,
 * and renew the notes; then log what was done. Return r, or a negative errno with ABORTED where
 * the source went away or a note was lost.
 */
int copy_job_close(struct copy_job *job, int r, struct error *err);

#endif
