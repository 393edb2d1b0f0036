/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Clients for work on a whole tree, beside those that the call itself uses: over NFSv3 where the server
 * has it and shows the same export there, as it takes large writes and has no state. Few at a time, so
 * that the workers and the servers' places stay free for calls that are short. Worker threads; blocks.
 */
#ifndef CSI_COPY_JOB_H
#define CSI_COPY_JOB_H

#include "csi/driver.h"
#include "store/busy.h"
#include "tree/work.h"

#define TRANSFERS_MAX 3 /* of four clients each at most: servers have NFS_SERVER_PLACES */

struct transfer {
	const struct csi_driver *driver;
	const char *what; /* for the log: what is made, borrowed */
	struct tree_work work;
	const struct nfs_handle *tree; /* that is still to be counted, with attr; NULL: none */
	const struct nfs_attr *attr;
	struct nfs_client *idle[2]; /* those of the call, which servers close if nothing is heard of them */
	struct claim *claims[2]; /* of the exports of idle: the source, and what is made; NULL: none */
	uint64_t started_ns;
	bool has_place; /* of TRANSFERS_MAX */
	unsigned int attempts; /* that something has changed too much for */
};

/*
 * Clients like those: for the same exports, with the same identities. Errors: ABORTED where too many are at
 * work, else as nfs_pool_lease(). transfer_close() is due in either case.
 */
int transfer_open(struct transfer *t, const struct csi_driver *driver, const char *what,
		  struct nfs_client *from, struct nfs_client *to, struct error *err);

/*
 * The folder of unfinished work, of t->work.to, and in it nothing of that name: a transfer may be the second
 * one of a call.
 */
int transfer_begin(struct transfer *t, const char *name, const struct nfs_handle **ret_work,
		   struct error *err);

/*
 * Whether to make it again from the start, as what was read has changed in a way that it could not be gone on
 * with: r is the result of the attempt, and its error is cleared then. Not for ever.
 */
bool transfer_is_to_be_retried(struct transfer *t, int r, struct error *err);

/*
 * What is copied, borrowed: before the first report it is counted, for the time that is left. Most
 * transfers have ended by then, and are not listed twice.
 */
void transfer_set_tree(struct transfer *t, const struct nfs_handle *tree,
		       const struct nfs_attr *attr);

/*
 * Whether the directory at path is still that of the handle, when it has been read: of one that went away
 * meanwhile, by another controller or by hand, parts would be missing. ABORTED where it is not.
 */
int transfer_check_source(struct transfer *t, const char *path, const struct nfs_handle *handle,
			  struct error *err);

/* The notes that other replicas go by, borrowed: they are renewed while the transfer lasts. */
void transfer_set_claims(struct transfer *t, struct claim *source, struct claim *made);

/* Once more, when it is complete, before it is put into its place. ABORTED where one was lost. */
int transfer_renew_claims(struct transfer *t, struct error *err);

/* Gives the clients back, and logs what was done where it was done: r is the result. */
void transfer_close(struct transfer *t, int r);

#endif
