/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Records: what the driver knows of a volume, kept on the share beside it. A record is a symbolic
 * link whose target is the text of the record, because creating one is a single atomic, exclusive
 * call in NFSv3 and NFSv4 alike, and "ls -l" shows it. The text is a list of key=value, first of
 * them the version ("v=1"), separated by ';', with every other byte than letters, digits and
 * -_.,:/+@ written as %XX. A text over RECORD_LINK_BYTES goes on in further links, whose names hold
 * a hash of the whole text: writers of the same name never mix their parts.
 *
 * Readers keep keys that they do not know. Not shared between threads.
 */
#ifndef NFS_RECORD_H
#define NFS_RECORD_H

#include "nfs/client.h"

#define RECORD_VERSION 1
#define RECORD_LINK_BYTES 1000 /* per link; XFS allows 1,024 */
#define RECORD_BYTES_MAX 32000
#define RECORD_NAME_MAX 200 /* longest key; names of parts are longer by up to 28 */

struct record_pair {
	char *key;
	char *value;
};

struct record {
	struct record_pair *pairs;
	size_t n;
	uint64_t parts; /* further links on the share, where it was read; 0: none */
	uint64_t hash; /* of the text in them */
};

/* Adds or replaces a value; copies both. Returns 0 or -ENOMEM. */
int record_set(struct record *rec, const char *key, const char *value);

/* The value, borrowed from rec; NULL where there is none. */
const char *record_get(const struct record *rec, const char *key);

/* As text. Returns 0, -ENOMEM or -EMSGSIZE. The caller frees. */
int record_encode(const struct record *rec, char **ret);

/*
 * From text. -EINVAL: no record (foreign, truncated, malformed); -ENOTSUP: of a later version.
 * ret is to be freed with record_done().
 */
int record_decode(struct record *ret, const char *text);

/*
 * Creates the record under a key, exclusively: -EEXIST, unreported, where there is one. Everything
 * else is reported. On success rec knows its parts, for record_remove().
 */
int record_create(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  struct record *rec, struct error *err);

/* Reads the record: -ENOENT, unreported, where there is none. Everything else is reported. */
int record_read(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		struct record *ret, struct error *err);

/*
 * Replaces a record that was read, in one step: readers find the old one or the new one. rec knows
 * its parts afterwards, as before. Errors are reported.
 */
int record_replace(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		   struct record *rec, struct error *err);

/*
 * Removes the record; 0 also where there is none. rec is what record_read() found and tells which
 * parts go too; NULL: none. Errors are reported.
 */
int record_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  const struct record *rec, struct error *err);

/*
 * Finishes the removal of a record that was cut short: of one that is not there any more, parts may
 * be. 0 too where there is nothing to do. Errors are reported.
 */
int record_forget(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  struct error *err);

/*
 * Removes what a replacement that was cut short may have left, before the record itself goes. 0 too where
 * there is nothing. Errors are reported.
 */
int record_forget_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			struct error *err);

void record_done(struct record *rec);
#define cleanup_record __attribute__((cleanup(record_done)))

#endif
