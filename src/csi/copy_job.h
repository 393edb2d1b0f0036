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
#include "tree/work.h"

#define COPY_JOBS_MAX 3 /* each has up to four clients; a server takes NFS_SERVER_PLACES */

struct copy_job {
	const struct csi_driver *driver;
	const char *what; /* name of what is made, for the log; borrowed */
	struct tree_work work;
	const struct nfs_handle *tree; /* to be counted at the first report; NULL: none */
	const struct nfs_attr *attr;
	struct nfs_client
		*idle[2]; /* of the call: source, target. Kept alive: servers close idle ones */
	struct claim *claims[2]; /* on the exports of idle; NULL: none */
	uint64_t started_ns;
	bool has_place; /* counts towards COPY_JOBS_MAX */
	unsigned int attempts; /* given up because the tree changed too much */
};

/*
 * Lease clients for the exports and identities of from and to. Errors: ABORTED where too many jobs
 * run, else as nfs_pool_lease(). copy_job_close() is due in either case.
 */
int copy_job_open(struct copy_job *job, const struct csi_driver *driver, const char *what,
		  struct nfs_client *from, struct nfs_client *to, struct error *err);

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
 * Set the tree that is copied; borrowed. It is counted at the first progress report, to tell the
 * time left. Most jobs have ended by then, so their trees are not listed twice.
 */
void copy_job_set_tree(struct copy_job *job, const struct nfs_handle *tree,
		       const struct nfs_attr *attr);

/*
 * Check, after reading, that the directory at path still has that handle: if it went away
 * meanwhile, by another controller or by hand, parts of it may be missing. ABORTED where it has
 * another one.
 */
int copy_job_check_source(struct copy_job *job, const char *path, const struct nfs_handle *handle,
			  struct error *err);

/* Set the notes that keep other replicas away; borrowed. They are renewed while the job lasts. */
void copy_job_set_claims(struct copy_job *job, struct claim *source, struct claim *made);

/* Renew the notes before the result is put in place. ABORTED where one was lost. */
int copy_job_renew_claims(struct copy_job *job, struct error *err);

/* Give the clients back and, where the result r is 0, log what was done. */
void copy_job_close(struct copy_job *job, int r);

#endif
