/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A list of records, of volumes or of snapshots: those on the default share and on every share that
 * this process has worked on, ordered by server, share and key. A page ends with a token that names
 * its last entry, so the next page continues after that, whatever is deleted or created in between.
 * A share that cannot be reached is logged and left out; if none can be reached, that is an error,
 * and so is a share for which too many calls wait. Once one has failed, the servers of all that
 * follow are asked at the same time, so dead servers take about as long as two of them. Worker
 * threads; blocks.
 */
#ifndef CSI_LISTING_H
#define CSI_LISTING_H

#include "base/request.h"
#include "csi/reach.h"
#include "csi/session.h"
#include "nfs/names.h"
#include "store/record.h"

struct listing;

struct listing_entry {
	struct record record;
	char *key;
	const struct nfs_export *export; /* borrowed from the list */
	char *problem; /* volumes only: what is wrong with the directory; NULL: nothing */
	bool is_refused; /* the identity was refused the directory, which the problem says */
};

/* The kind of record that a list has. */
struct listing_ops {
	enum store_place folder;
	/*
	 * Check that a record is whole. A damaged one (FAILED_PRECONDITION) is logged and left out.
	 */
	int (*check)(struct nfs_client *c, const char *key, const struct record *rec,
		     struct error *err);
	/* Whether a record is on the list. data is that of listing_read(). */
	bool (*accepts)(const struct record *rec, const void *data);
	/* Bytes of a record's entry in a reply. */
	size_t (*bytes)(const struct record *rec);
	/* Fill in problem and is_refused of the entry. NULL: it is not needed. */
	int (*look)(struct listing *l, struct nfs_client *c, struct listing_entry *entry,
		    struct error *err);
	bool reads_root; /* look() asks listing_root_has() */
};

struct listing {
	struct listing_entry *entries;
	size_t n;
	char *next_token; /* NULL: this is the last page */

	/* Private. */
	const struct listing_ops *ops;
	const void *data;
	struct nfs_export *exports;
	size_t n_exports;
	struct nfs_export *current;
	const char *after; /* list the current export after this key; NULL: from its beginning */
	size_t cap, max, bytes;
	bool is_full; /* there are more entries than fit */
	bool is_read; /* all entries of the current share are there; some may be refused */
	struct listing_name *names; /* of the records on the current export, sorted */
	size_t n_names, names_cap;
	struct nfs_names root; /* of the share: all directories, also those that are not ours */
	struct reach *asked; /* servers, once a share has failed; NULL: not yet */
	size_t n_asked;
};

/*
 * Read a page of at most max_entries entries, 0 for as many as a gRPC message holds. Errors, in
 * req->err: INVALID_ARGUMENT; ABORTED for a token that is not of this list; RESOURCE_EXHAUSTED;
 * -EUSERS as net_breaker_enter(); CANCELLED or DEADLINE_EXCEEDED if nobody waits for the answer any
 * more; if no share was reached, the error of the first. listing_done() is due in any case.
 */
int listing_read(struct listing *l, const struct csi_driver *driver, const struct listing_ops *ops,
		 const void *data, int32_t max_entries, const char *starting_token,
		 struct request *req);

/* Whether the root of the share that is being read has a directory of that name. */
bool listing_root_has(const struct listing *l, const char *name);

/* Add an entry; takes the record. Return 0 or -ENOMEM. */
int listing_add(struct listing *l, const char *key, struct record *rec);

void listing_done(struct listing *l);
#define cleanup_listing __attribute__((cleanup(listing_done)))

#endif
