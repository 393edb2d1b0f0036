/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Private to record.c and record_write.c: the links that make up a record.
 *
 * The link of a record with parts is its head: "v=1;parts=3;hash=0123456789abcdef". Drafts and
 * graves are heads too. Errors are reported unless a function says otherwise.
 */
#ifndef STORE_RECORD_LINKS_H
#define STORE_RECORD_LINKS_H

#include "store/record.h"

#define RECORD_LINK_NAME_SIZE (RECORD_NAME_MAX + 32)

struct record_parts {
	uint64_t n; /* 0: the record fits into its own link */
	uint64_t hash; /* of the whole text */
};

void record_part_name(char name[RECORD_LINK_NAME_SIZE], const char *key,
		      const struct record_parts *parts, uint64_t i);
void record_draft_name(char name[RECORD_LINK_NAME_SIZE], const char *key);
void record_grave_name(char name[RECORD_LINK_NAME_SIZE], const char *key);

/* Read the parts that a head leads to. Return 1, 0 if rec is not a head, or -EINVAL. */
int record_head_parts(const struct record *rec, struct record_parts *ret);

/* Read the value of RECORD_KEY_OLD. Return 0 or -EINVAL. */
int record_parse_parts(const char *text, struct record_parts *ret);

/* Report a failed operation on a link. */
int record_link_failed(struct nfs_client *c, int r, const char *verb, const char *key,
		       struct error *err);

/* Report ABORTED: another replica is at work on the record. */
int record_is_busy(struct nfs_client *c, const char *key, struct error *err);

/*
 * Read the link name; messages name the record key. Return 1 for a head, with its parts; 0 for a
 * record without parts; or a negative errno, of which -ENOENT is unreported.
 */
int record_read_head(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		     const char *key, struct record *ret, struct record_parts *ret_parts,
		     struct error *err);

int record_remove_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct record_parts *parts, struct error *err);

/* Likewise, unless the present record uses them. */
int record_remove_unused_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			       const struct record_parts *parts, struct error *err);

/*
 * Rename a head, name in the folder from, to the grave, and remove its parts. Return 0 also if
 * it has gone: then somebody else has moved it, with its parts.
 */
int record_remove_head(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct nfs_handle *from, const char *name, struct error *err);

#endif
