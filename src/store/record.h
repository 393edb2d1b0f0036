/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Records: what the driver knows of a volume or snapshot, kept on the share beside it. A record is
 * a symbolic link whose target is the text of the record: creating one is a single atomic,
 * exclusive call in NFSv3 and NFSv4 alike, and "ls -l" shows it. The text is a list of key=value
 * pairs separated by ';', first the version ("v=1"); bytes other than letters, digits and -_.,:/+@
 * are written as %XX.
 *
 * A text over RECORD_LINK_BYTES continues in more links, its parts. Their names hold a hash of
 * the whole text, so that writers of the same name never mix their parts. Two more links lead to
 * parts that do not belong to a record yet, or no longer do:
 *
 *   <key>~new       the draft of a record that is being replaced, or created with parts
 *   <key>~removed   the grave of a record or draft with parts that is being removed
 *
 * Parts belong to one link at a time. The link changes its name by RENAME alone: from the draft to
 * the record, from there to a tombstone, and from each of them to the grave. Only the call that
 * moved it to the grave removes the parts. Each text with parts has a tag of its call, so no two
 * records ever share parts.
 *
 * Keys that a version does not know are kept. record_text.c is the codec (pure functions, any
 * thread, a record is not shared between threads); record.c the storage (worker threads; blocks).
 */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "store/layout.h"

#define RECORD_VERSION 1
#define RECORD_LINK_BYTES 1000 /* per link; XFS allows 1,024 */
#define RECORD_BYTES_MAX 32000
#define RECORD_NAME_MAX 200 /* longest key; names of parts are longer by up to 20 */

struct record_pair {
	char *key;
	char *value;
};

struct record {
	struct record_pair *pairs;
	size_t n;
	uint64_t parts; /* number of parts on the share it was read from */
	uint64_t hash; /* of the text in them */
	uint64_t base; /* hash of the link as it was read or written; 0: neither */
};

/* Tag (store/holder.h) of the last replacement. A record that was only created has none. */
#define RECORD_KEY_BY "by"
/* Tag of the creation, in the record of a volume or snapshot, and in any other one with parts. */
#define RECORD_KEY_NONCE "nonce"
/* Number and hash of the parts of the record that this one has replaced. */
#define RECORD_KEY_OLD "old"

/* -------- codec -------- */

/* Add or replace a value; both strings are copied. Return 0 or -ENOMEM. */
int record_set(struct record *rec, const char *key, const char *value);

/* Remove a value, if there is one. */
void record_unset(struct record *rec, const char *key);

/* Return the value, borrowed from rec, or NULL. */
const char *record_get(const struct record *rec, const char *key);

/* Give a record that is to be created a new RECORD_KEY_NONCE. Return 0 or -ENOMEM. */
int record_set_nonce(struct record *rec);

/* Whether the record has ever been replaced, not only created. */
bool record_was_replaced(const struct record *rec);

/* Format the text. Return 0, -ENOMEM or -EMSGSIZE. The caller frees. */
int record_encode(const struct record *rec, char **ret);

/*
 * Parse a text. -EINVAL: no record (foreign, truncated, malformed); -ENOTSUP: of a later version.
 * ret is to be freed with record_done().
 */
int record_decode(struct record *ret, const char *text);

/* Move the contents of from, which becomes empty, to an empty record. */
void record_move(struct record *to, struct record *from);

void record_done(struct record *rec);
#define cleanup_record __attribute__((cleanup(record_done)))

/* -------- storage; dir is the folder of the record, and errors are reported -------- */

/*
 * Create the record, exclusively: -EEXIST, unreported, if there is one. ABORTED if another
 * replica is creating it, or if something stays behind. On success rec knows its parts, for
 * record_remove(); after a failure it may have another RECORD_KEY_NONCE. key: at most
 * RECORD_NAME_MAX bytes, as everywhere below.
 */
int record_create(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  struct record *rec, struct error *err);

/* Read the record. -ENOENT, unreported, if there is none. */
int record_read(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		struct record *ret, struct error *err);

/* As record_read() in one of the driver's folders. -ENOENT also if there is no such folder. */
int record_read_at(struct nfs_client *c, enum store_place folder, const char *key,
		   struct record *ret, struct error *err);

/*
 * Report a record that was read but cannot be used. r is -ENOMEM, -ENOTSUP for a record of a later
 * version, or any other errno for a damaged one; the last two give FAILED_PRECONDITION. folder is
 * the record's, as a path from the share's top; advice says what to do about a damaged one.
 */
int record_unusable(struct nfs_client *c, int r, const char *folder, const char *key,
		    const char *advice, struct error *err);

/* Whether there is a record, even a damaged one: 1, 0 or a negative errno. */
int record_is_there(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    struct error *err);

/* Whether there is a record, or the draft of one: 1, 0 or a negative errno. */
int record_is_begun(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    struct error *err);

/*
 * Replace a record that was read, in one step: readers find the old one or the new one. The draft
 * of the new one excludes other replicas. A replica that deletes the volume removes the draft, and
 * with that makes this replacement fail, so that the record does not come back. The caller excludes
 * other calls of this process. ABORTED if the record has changed since it was read, or another
 * replica is replacing it. rec knows its parts afterwards.
 */
int record_replace(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		   struct record *rec, struct error *err);

/*
 * Check that the record is the one that was read or written: 0, -ENOENT, unreported, if it is
 * gone, or ABORTED if another replica has changed it.
 */
int record_check_same(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      const struct record *rec, struct error *err);

/*
 * Remove the record. Return 0 also if there is none. rec is what was read or written, and tells
 * which parts to remove; NULL: none. Errors as record_check_same().
 */
int record_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  const struct record *rec, struct error *err);

/*
 * Finish an interrupted removal or replacement: remove the parts that it left. rec is the record
 * that was read, or NULL. Return 0 also if there is nothing to do.
 */
int record_forget(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  const struct record *rec, struct error *err);

/*
 * Look for what an interrupted removal has left of the record. Return 1 with the attributes of the
 * link that leads to its parts, 0 if there is nothing, or a negative errno.
 */
int record_find_remains(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			struct nfs_attr *ret, struct error *err);

/*
 * Remove the draft of a creation or a replacement, with its parts, so that the call that wrote it
 * cannot finish: it was interrupted, or another replica is at work on it. Call this after the
 * record itself has gone, so that no new replacement begins. Return 0 also if there is no draft.
 */
int record_forget_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			struct error *err);

/*
 * Rename the record's own link to another folder, in one step. From then on there is no record of
 * that key. Its parts stay. -ENOENT, unreported, if there is none.
 */
int record_bury(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		const struct nfs_handle *to, const char *name, struct error *err);

/*
 * Create a record that was never another one's, as if it had been buried: its own link is name in
 * the folder in, and its parts have the key. Nothing may have that name; -EEXIST, unreported, if
 * something does. If we are killed, parts may stay that no link leads to. Changes rec.
 */
int record_create_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			 const struct nfs_handle *in, const char *name, struct record *rec,
			 struct error *err);

/* Read a record that was buried. Errors as for record_read(). */
int record_read_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct nfs_handle *in, const char *name, struct record *ret,
		       struct error *err);

/*
 * Whether the record that is there now has replaced the buried one: 1, 0 or a negative errno. A
 * record names the parts that it has replaced. If the buried one has none, the record has replaced
 * it if it was changed, is different, and both have the same value for the key same, such as an id.
 */
int record_is_replaced(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct nfs_handle *in, const char *name, const char *same,
		       struct error *err);

/* Remove what is left of a record that was buried. Return 0 also if there is nothing. */
int record_remove_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			 const struct nfs_handle *in, const char *name, const struct record *rec,
			 struct error *err);

#endif
