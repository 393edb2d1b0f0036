/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/holder.h"
#include "store/layout.h"

#define PART_NAME_SIZE (RECORD_NAME_MAX + 32)

/*
 * A text that does not fit into one link goes into parts, and the record's own link says how many
 * there are: "v=1;parts=3;hash=0123456789abcdef".
 */
struct split {
	uint64_t parts;
	uint64_t hash;
};

static void part_name(char name[PART_NAME_SIZE], const char *key, const struct split *s, uint64_t i)
{
	(void)snprintf(name, PART_NAME_SIZE, "%s~%016" PRIx64 ".%" PRIu64, key, s->hash, i);
}

static int link_failed(struct nfs_client *c, int r, const char *verb, const char *key,
		       struct error *err)
{
	return nfs_error_set(err, c, r, "%s record '%s'", verb, key);
}

/* Parts come before the record's own link: that one makes the record exist. */
static int write_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const char *text, const struct split *s, struct error *err)
{
	uint64_t i;

	for (i = 0; i < s->parts; i++) {
		char name[PART_NAME_SIZE], piece[RECORD_LINK_BYTES + 1];
		int r;

		part_name(name, key, s, i);
		(void)snprintf(piece, sizeof(piece), "%s", text + i * RECORD_LINK_BYTES);
		r = nfs_symlink(c, dir, name, piece);
		/* The name holds the hash of the text: one that is there says the same. */
		if (r < 0 && r != -EEXIST)
			return link_failed(c, r, "writing", key, err);
	}
	return 0;
}

static int remove_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct split *s, struct error *err)
{
	uint64_t i;

	for (i = 0; i < s->parts; i++) {
		char name[PART_NAME_SIZE];
		int r;

		part_name(name, key, s, i);
		r = nfs_remove(c, dir, name);
		if (r < 0 && r != -ENOENT)
			return link_failed(c, r, "removing", key, err);
	}
	return 0;
}

/* Whether the record has parts. Returns 1, 0 or -EINVAL. */
static int split_of(const struct record *rec, struct split *ret)
{
	const char *parts = record_get(rec, "parts");
	const char *hash = record_get(rec, "hash");

	if (parts == NULL)
		return 0;
	if (hash == NULL ||
	    str_parse_u64(parts, 10, RECORD_BYTES_MAX / RECORD_LINK_BYTES + 1, &ret->parts) < 0 ||
	    str_parse_u64(hash, 16, UINT64_MAX, &ret->hash) < 0)
		return -EINVAL;
	return 1;
}

static int malformed(struct nfs_client *c, int r, const char *key, struct error *err)
{
	if (r == -ENOMEM)
		return error_oom(err);
	if (r == -ENOTSUP)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "record '%s' on %s:%s was written by a later csi-nfs: upgrade this one",
				 key, c->export.server, c->export.share);
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "record '%s' in " NFS_STATE_DIR
			 "/volumes on %s:%s is damaged: look at it with ls -l, and remove it if the volume is not needed",
			 key, c->export.server, c->export.share);
}

static int read_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      const struct split *s, struct record *ret, struct error *err)
{
	cleanup_buf struct buf text = { .max = RECORD_BYTES_MAX };
	uint64_t i;
	int r;

	for (i = 0; i < s->parts; i++) {
		char name[PART_NAME_SIZE], link[NFS_LINK_MAX + 1];

		part_name(name, key, s, i);
		r = nfs_readlink(c, dir, name, link);
		if (r == -ENOENT || r == -EINVAL)
			return malformed(c, -EINVAL, key, err);
		if (r < 0)
			return link_failed(c, r, "reading", key, err);
		r = buf_puts(&text, link);
		if (r < 0)
			return malformed(c, r, key, err);
	}
	if (text.len == 0 || str_hash(text.data, text.len) != s->hash)
		return malformed(c, -EINVAL, key, err);
	r = record_decode(ret, text.data);
	return r < 0 ? malformed(c, r, key, err) : 0;
}

/* What the link of that name says, on behalf of the record under key. */
static int read_head(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		     const char *key, struct record *ret, struct split *ret_split, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	char link[NFS_LINK_MAX + 1];
	int r;

	r = nfs_readlink(c, dir, name, link);
	if (r == -ENOENT)
		return r;
	if (r == -EINVAL)
		return malformed(c, r, key, err);
	if (r < 0)
		return link_failed(c, r, "reading", key, err);
	r = record_decode(&rec, link);
	if (r == 0)
		r = split_of(&rec, ret_split);
	if (r < 0)
		return malformed(c, r, key, err);
	rec.base = str_hash(link, strlen(link));
	record_move(ret, &rec);
	return r;
}

/* The record whose own link has that name in that folder, and whose parts are in dir. */
static int read_whole(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      const struct nfs_handle *in, const char *name, struct record *ret,
		      struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct split s = { 0, 0 };
	int r;

	r = read_head(c, in, name, key, &head, &s, err);
	if (r < 0)
		return r;
	if (r > 0) {
		r = read_parts(c, dir, key, &s, ret, err);
		if (r < 0)
			return r;
		ret->parts = s.parts;
		ret->hash = s.hash;
		ret->base = head.base;
		return 0;
	}
	record_move(ret, &head);
	return 0;
}

int record_read(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		struct record *ret, struct error *err)
{
	return read_whole(c, dir, key, dir, key, ret, err);
}

int record_is_there(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    struct error *err)
{
	struct nfs_handle unused;
	int r = nfs_lookup(c, dir, key, &unused, NULL);

	if (r == 0)
		return 1;
	return r == -ENOENT ? 0 : link_failed(c, r, "reading", key, err);
}

/* Removes parts, unless they are those of the record that is there. */
static int remove_unused_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			       const struct split *mine, struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct split other = { 0, 0 };
	int r;

	r = read_head(c, dir, key, key, &head, &other, err);
	if (r == -ENOENT || (r >= 0 && other.hash != mine->hash))
		return remove_parts(c, dir, key, mine, err);
	return r < 0 ? r : 0;
}

/*
 * A record that is being removed and has parts is first renamed, so that it is gone at once and what
 * is left can still be found: by the retry of the removal, or by a new record of that name, whose
 * parts may have the same names.
 */
static void grave_name(char name[PART_NAME_SIZE], const char *key)
{
	(void)snprintf(name, PART_NAME_SIZE, "%s~removed", key);
}

/* keep: the hash of parts that are still needed, of a record that was buried; 0: none. */
static int finish_removal(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			  uint64_t keep, struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct split s = { 0, 0 };
	char grave[PART_NAME_SIZE];
	int r;

	grave_name(grave, key);
	r = read_head(c, dir, grave, key, &head, &s, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	/* A new record of the same text has the same parts. */
	if (keep == 0 || s.hash != keep)
		r = remove_unused_parts(c, dir, key, &s, err);
	if (r < 0)
		return r;
	r = nfs_remove(c, dir, grave);
	return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", key, err) : 0;
}

/* A replacement that was cut short has left the parts of the record before it, and its grave. */
static int make_grave(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      const struct nfs_handle *from, const char *name, const struct record *rec,
		      struct error *err)
{
	char grave[PART_NAME_SIZE];
	int r;

	r = finish_removal(c, dir, key, rec->hash, err);
	if (r < 0)
		return r;
	grave_name(grave, key);
	r = nfs_rename(c, from, name, dir, grave);
	return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", key, err) : 0;
}

/* Of a record without parts, which may have taken the place of one that had some. */
static int finish_replacement(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			      const struct record *rec, struct error *err)
{
	return record_was_replaced(rec) ? finish_removal(c, dir, key, 0, err) : 0;
}

int record_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  const struct record *rec, struct error *err)
{
	int r;

	if (rec != NULL && rec->parts > 0) {
		r = make_grave(c, dir, key, dir, key, rec, err);
		return r < 0 ? r : finish_removal(c, dir, key, 0, err);
	}
	r = rec != NULL ? finish_replacement(c, dir, key, rec, err) : 0;
	if (r < 0)
		return r;
	r = nfs_remove(c, dir, key);
	return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", key, err) : 0;
}

int record_bury(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		const struct nfs_handle *to, const char *name, struct error *err)
{
	int r = nfs_rename(c, dir, key, to, name);

	return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", key, err) : r;
}

int record_read_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct nfs_handle *in, const char *name, struct record *ret,
		       struct error *err)
{
	return read_whole(c, dir, key, in, name, ret, err);
}

int record_remove_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			 const struct nfs_handle *in, const char *name, const struct record *rec,
			 struct error *err)
{
	int r;

	if (rec->parts == 0) {
		r = finish_replacement(c, dir, key, rec, err);
		if (r < 0)
			return r;
		r = nfs_remove(c, in, name);
		return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", key, err) : 0;
	}
	/* What has lost a part already could not be read there by a retry. */
	r = make_grave(c, dir, key, in, name, rec, err);
	return r < 0 ? r : finish_removal(c, dir, key, 0, err);
}

int record_forget(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  struct error *err)
{
	return finish_removal(c, dir, key, 0, err);
}

/* -------- writing -------- */

static struct split split_for(const char *text)
{
	size_t len = strlen(text);
	struct split s = {
		.parts = (len + RECORD_LINK_BYTES - 1) / RECORD_LINK_BYTES,
		.hash = str_hash(text, len),
	};

	return s;
}

/* by: who writes it; NULL for a record that is created. */
static void format_head(char head[RECORD_LINK_BYTES + 1], const struct split *s, const char *by)
{
	(void)snprintf(head, RECORD_LINK_BYTES + 1,
		       "v=%d;parts=%" PRIu64 ";hash=%016" PRIx64 "%s%s", RECORD_VERSION, s->parts,
		       s->hash, by != NULL ? ";" RECORD_KEY_BY "=" : "", by != NULL ? by : "");
}

static int encode_to_fit(const struct record *rec, char **ret, struct error *err)
{
	int r = record_encode(rec, ret);

	if (r == -EMSGSIZE)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "parameters: too long for a record on the share, the limit is %d bytes",
				 RECORD_BYTES_MAX);
	return r < 0 ? error_oom(err) : 0;
}

/* -------- drafts -------- */

static void draft_name(char ret[PART_NAME_SIZE], const char *key)
{
	(void)snprintf(ret, PART_NAME_SIZE, "%s~new", key);
}

/*
 * Removes a draft, and before it the parts that were written for it. It may tell nobody and nothing: then
 * it has none.
 */
static int remove_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct split *s, struct error *err)
{
	char draft[PART_NAME_SIZE];
	int r = 0;

	if (s->parts > 0)
		r = remove_unused_parts(c, dir, key, s, err);
	if (r < 0)
		return r;
	draft_name(draft, key);
	r = nfs_remove(c, dir, draft);
	return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", draft, err) : 0;
}

/* What the draft says: 1, or 0 where there is none. What is no record says nothing. */
static int read_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      struct record *ret, struct split *ret_split, char link[NFS_LINK_MAX + 1],
		      struct error *err)
{
	char draft[PART_NAME_SIZE];
	int r;

	draft_name(draft, key);
	link[0] = '\0';
	r = nfs_readlink(c, dir, draft, link);
	if (r == -ENOENT)
		return 0;
	if (r < 0 && r != -EINVAL)
		return link_failed(c, r, "reading", draft, err);
	if (r < 0)
		link[0] = '\0';
	if (r == 0 && record_decode(ret, link) == 0 && split_of(ret, ret_split) < 0)
		*ret_split = (struct split){ 0, 0 };
	return 1;
}

int record_forget_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct record *buried, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	char link[NFS_LINK_MAX + 1];
	struct split s = { 0, 0 };
	int r;

	r = read_draft(c, dir, key, &rec, &s, link, err);
	/* A creation that was cut short may have left it beside the record that it made. */
	if (buried != NULL && buried->parts > 0 && s.hash == buried->hash)
		s.parts = 0;
	return r <= 0 ? r : remove_draft(c, dir, key, &s, err);
}

int record_is_begun(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    struct error *err)
{
	char draft[PART_NAME_SIZE];
	int r;

	r = record_is_there(c, dir, key, err);
	if (r != 0)
		return r;
	draft_name(draft, key);
	return record_is_there(c, dir, draft, err);
}

static int is_busy(struct nfs_client *c, const char *key, struct error *err)
{
	(void)error_set(err, ERROR_ABORTED,
			"another controller is changing record '%s' on %s:%s; try again", key,
			c->export.server, c->export.share);
	return -EAGAIN;
}

/* Whether the draft is of a creation that had nothing more to do than to remove it. */
static int is_done(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		   const struct split *draft, struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct split s = { 0, 0 };
	int r;

	if (draft->parts == 0)
		return 0;
	r = read_head(c, dir, key, key, &head, &s, err);
	return r < 0 && r != -ENOENT ? r : r > 0 && s.hash == draft->hash;
}

/*
 * The draft that is there. Of this process, no other call works on the record: it is of one that was cut
 * short, or of the process before this one. Another replica's counts for as long as that may be alive. One
 * that tells nobody is of a version before this one, which takes what it finds for a crash's, too.
 */
static int take_draft_over(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			   struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	char link[NFS_LINK_MAX + 1];
	cleanup_buf struct buf seen = { 0 };
	struct split s = { 0, 0 };
	const char *by;
	int r;

	r = read_draft(c, dir, key, &rec, &s, link, err);
	if (r > 0)
		r = is_done(c, dir, key, &s, err);
	if (r != 0 || link[0] == '\0')
		return r < 0 ? r : remove_draft(c, dir, key, &s, err);
	by = record_get(&rec, RECORD_KEY_BY);
	if (buf_printf(&seen, "%s~new=%s", key, link) < 0)
		return error_oom(err);
	if (by != NULL && !store_holder_is_own(by) &&
	    !store_holder_is_dead(c->export.server, c->export.share, seen.data))
		return is_busy(c, key, err);
	return remove_draft(c, dir, key, &s, err);
}

static int put_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		     const char *text, struct error *err)
{
	char draft[PART_NAME_SIZE];
	int r;

	draft_name(draft, key);
	r = nfs_symlink(c, dir, draft, text);
	if (r == -EEXIST) {
		r = take_draft_over(c, dir, key, err);
		if (r < 0)
			return r;
		r = nfs_symlink(c, dir, draft, text);
	}
	if (r == -EEXIST)
		return is_busy(c, key, err);
	return r < 0 ? link_failed(c, r, "writing", key, err) : 0;
}

/*
 * Takes one's own draft back, with its parts, after a failure. Where that fails too the next attempt finds
 * it, and a CO has to come back for it.
 */
static void withdraw(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		     const struct split *s, struct error *err)
{
	struct error second = { .code = ERROR_OK };

	if (remove_draft(c, dir, key, s, &second) < 0 && err != NULL && error_is_final(err->code))
		err->code = ERROR_ABORTED;
}

/* -------- creating -------- */

/* The record is there: -EEXIST, and what is left of a call that made or replaced it, and was cut short, goes. */
static int tidy(struct nfs_client *c, const struct nfs_handle *dir, const char *key, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	char link[NFS_LINK_MAX + 1];
	struct split s = { 0, 0 };
	int r;

	r = finish_removal(c, dir, key, 0, err);
	if (r == 0)
		r = read_draft(c, dir, key, &rec, &s, link, err);
	if (r > 0)
		r = is_done(c, dir, key, &s, err);
	if (r > 0)
		r = remove_draft(c, dir, key, &s, err);
	return r < 0 ? r : -EEXIST;
}

/* The draft goes before the parts: by it the next attempt finds them, whatever its own text is. */
static int create_split(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const char *text, struct record *rec, struct error *err)
{
	char head[RECORD_LINK_BYTES + 1], draft[RECORD_LINK_BYTES + 1], tag[STORE_HOLDER_TAG_MAX];
	const struct split s = split_for(text);
	int r;

	r = record_is_there(c, dir, key, err);
	if (r != 0)
		return r < 0 ? r : tidy(c, dir, key, err);
	r = finish_removal(c, dir, key, 0, err);
	if (r < 0)
		return r;
	store_holder_tag(tag);
	format_head(draft, &s, tag);
	format_head(head, &s, NULL);
	r = put_draft(c, dir, key, draft, err);
	if (r < 0)
		return r;
	r = write_parts(c, dir, key, text, &s, err);
	if (r == 0) {
		r = nfs_symlink(c, dir, key, head);
		if (r < 0 && r != -EEXIST)
			r = link_failed(c, r, "writing", key, err);
	}
	if (r < 0) {
		withdraw(c, dir, key, &s, err);
		return r;
	}
	rec->parts = s.parts;
	rec->hash = s.hash;
	rec->base = str_hash(head, strlen(head));
	r = remove_draft(c, dir, key, &s, err);
	if (r < 0 && err != NULL && error_is_final(err->code))
		err->code = ERROR_ABORTED; /* the next attempt finds the record */
	return r;
}

int record_create(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  struct record *rec, struct error *err)
{
	cleanup_free char *text = NULL;
	int r;

	r = encode_to_fit(rec, &text, err);
	if (r < 0)
		return r;
	if (strlen(text) > RECORD_LINK_BYTES)
		return create_split(c, dir, key, text, rec, err);
	r = nfs_symlink(c, dir, key, text);
	if (r == 0)
		rec->base = str_hash(text, strlen(text));
	return r < 0 && r != -EEXIST ? link_failed(c, r, "writing", key, err) : r;
}

/* -------- replacing -------- */

/* Whether the record is still the one that was read: 0, or the error. */
static int check_base(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      const struct record *rec, struct error *err)
{
	char link[NFS_LINK_MAX + 1];
	int r;

	if (rec->base == 0)
		return 0;
	r = nfs_readlink(c, dir, key, link);
	if (r < 0 && r != -ENOENT)
		return link_failed(c, r, "reading", key, err);
	return r == 0 && str_hash(link, strlen(link)) == rec->base ? 0 : is_busy(c, key, err);
}

/* By the grave the parts of the record that is replaced are found, whoever goes on after a crash. */
static int mark_old_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			  const struct split *old, struct error *err)
{
	char head[RECORD_LINK_BYTES + 1], grave[PART_NAME_SIZE];
	int r;

	if (old->parts == 0)
		return 0;
	r = finish_removal(c, dir, key, 0, err);
	if (r < 0)
		return r;
	grave_name(grave, key);
	format_head(head, old, NULL);
	r = nfs_symlink(c, dir, grave, head);
	return r < 0 && r != -EEXIST ? link_failed(c, r, "writing", key, err) : 0;
}

/* The draft is looked for by the RENAME itself: where another replica has removed it, nothing is done. */
static int rename_into_place(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			     const struct record *rec, const char *text, const struct split *s,
			     struct error *err)
{
	const struct split old = { rec->parts, rec->hash };
	struct error ignored = { .code = ERROR_OK };
	char draft[PART_NAME_SIZE];
	int r;

	if (s->parts > 0) {
		r = write_parts(c, dir, key, text, s, err);
		if (r < 0)
			return r;
	}
	r = check_base(c, dir, key, rec, err);
	if (r == 0)
		r = mark_old_parts(c, dir, key, &old, err);
	if (r < 0)
		return r;
	draft_name(draft, key);
	r = nfs_rename(c, dir, draft, dir, key);
	if (r < 0 && old.parts > 0)
		(void)finish_removal(c, dir, key, 0, &ignored); /* which is of the record that stays */
	if (r == -ENOENT)
		return is_busy(c, key, err);
	return r < 0 ? link_failed(c, r, "writing", key, err) : 0;
}

int record_replace(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		   struct record *rec, struct error *err)
{
	const uint64_t old_parts = rec->parts;
	char head[RECORD_LINK_BYTES + 1], tag[STORE_HOLDER_TAG_MAX];
	struct split s = { 0, 0 };
	cleanup_free char *text = NULL;
	const char *link;
	int r;

	store_holder_tag(tag); /* no two texts are the same */
	if (record_set(rec, RECORD_KEY_BY, tag) < 0)
		return error_oom(err);
	r = encode_to_fit(rec, &text, err);
	if (r < 0)
		return r;
	link = text;
	if (strlen(text) > RECORD_LINK_BYTES) {
		s = split_for(text);
		format_head(head, &s, tag);
		link = head;
	}
	r = put_draft(c, dir, key, link, err);
	if (r < 0)
		return r;
	r = rename_into_place(c, dir, key, rec, text, &s, err);
	if (r < 0) {
		withdraw(c, dir, key, &s, err);
		return r;
	}
	rec->parts = s.parts;
	rec->hash = s.hash;
	rec->base = str_hash(link, strlen(link));
	/* What stays of the old one means nothing without its link. */
	r = old_parts > 0 ? finish_removal(c, dir, key, 0, err) : 0;
	if (r < 0 && err != NULL && error_is_final(err->code))
		err->code = ERROR_ABORTED; /* the record is there, and there is something left to do */
	return r;
}
