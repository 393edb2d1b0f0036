/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Records: what the driver knows of a volume, kept on the share beside it. A record is a symbolic
 * link whose target is the text of the record, because creating one is a single atomic, exclusive
 * call in NFSv3 and NFSv4 alike, and "ls -l" shows it. The text is a list of key=value, first of
 * them the version ("v=1"), separated by ';', with every other byte than letters, digits and
 * -_.,:/+@ written as %XX. A text over RECORD_LINK_BYTES goes on in further links, whose names hold
 * a hash of the whole text: writers of the same name never mix their parts. Parts that no record leads to
 * yet, or any more, can be found nevertheless, by one link each that says what they are:
 *
 *   <key>~new       the draft: of a record that is being created, when it has parts, or replaced
 *   <key>~removed   the grave: of a record that is being removed or replaced, when it has parts
 *
 * Readers keep keys that they do not know. Not shared between threads.
 */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

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
	uint64_t base; /* of the link, as it was read or written; 0: it was not */
};

/* Who replaced it last: a tag of store/holder.h. One that was only created has none. */
#define RECORD_KEY_BY "by"

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
 * else is reported: ABORTED also where another replica is creating it, or something stays behind. On
 * success rec knows its parts, for record_remove().
 */
int record_create(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  struct record *rec, struct error *err);

/* Reads the record: -ENOENT, unreported, where there is none. Everything else is reported. */
int record_read(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		struct record *ret, struct error *err);

/* Whether there is a record, whatever it says. 1, 0, or a negative errno. */
int record_is_there(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    struct error *err);

/*
 * Replaces a record that was read, in one step: readers find the old one or the new one. The draft of the
 * new one excludes other replicas, and whoever removes the draft fences this one off: the record of a
 * volume that another replica has deleted does not come back. A caller excludes other calls of this
 * process. Errors: ABORTED where the record is not the one that was read any more, or another replica is
 * replacing it, else reported as usual. rec knows its parts afterwards, as before.
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
 * Moves the record out of its folder, in one step, parts excepted: there it has none any more. -ENOENT,
 * unreported, where there is none. Errors are reported.
 */
int record_bury(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		const struct nfs_handle *to, const char *name, struct error *err);

/* Reads a record that was buried. Errors as record_read(). */
int record_read_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct nfs_handle *in, const char *name, struct record *ret,
		       struct error *err);

/* Removes what is left of a record that was buried. 0 too where there is nothing. Errors are reported. */
int record_remove_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			 const struct nfs_handle *in, const char *name, const struct record *rec,
			 struct error *err);

/*
 * Removes the draft of a creation or a replacement, with its parts; that cannot be finished then: one that
 * was cut short, or that another replica is about to make. After the record itself has gone, so that no new
 * one is begun. buried, which may be NULL, is the record where it was moved: its parts stay. 0 too where
 * there is none. Errors are reported.
 */
int record_forget_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct record *buried, struct error *err);

/* Whether there is a record, or the draft of one. 1, 0, or a negative errno. */
int record_is_begun(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    struct error *err);

/* Whether the record has ever been replaced, not only created. */
bool record_was_replaced(const struct record *rec);

/* Move the contents of from, which becomes empty, to an empty record. */
void record_move(struct record *to, struct record *from);

void record_done(struct record *rec);
#define cleanup_record __attribute__((cleanup(record_done)))

#endif
