/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Creating and replacing records, and the drafts that this needs. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/holder.h"
#include "store/record.h"
#include "store/record_links.h"
#include "store/text.h"

/* -------- heads and parts -------- */

static struct record_parts parts_for_text(const char *text)
{
	size_t len = strlen(text);
	struct record_parts parts = {
		.n = (len + RECORD_LINK_BYTES - 1) / RECORD_LINK_BYTES,
		.hash = str_hash(text, len),
	};

	return parts;
}

/* by: the tag (store/holder.h) of the call that writes a draft or replaces a record; NULL: none. */
static void format_head(char head[RECORD_LINK_BYTES + 1], const struct record_parts *parts,
			const char *by)
{
	(void)snprintf(head, RECORD_LINK_BYTES + 1,
		       "v=%d;parts=%" PRIu64 ";hash=%016" PRIx64 "%s%s", RECORD_VERSION, parts->n,
		       parts->hash, by != NULL ? ";" RECORD_KEY_BY "=" : "", by != NULL ? by : "");
}

/* Write the parts, before the record's own link, which makes the record exist. */
static int write_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const char *text, const struct record_parts *parts, struct error *err)
{
	uint64_t i;

	for (i = 0; i < parts->n; i++) {
		char name[RECORD_LINK_NAME_SIZE], piece[RECORD_LINK_BYTES + 1];
		int r;

		record_part_name(name, key, parts, i);
		(void)snprintf(piece, sizeof(piece), "%s", text + i * RECORD_LINK_BYTES);
		r = store_text_create(c, dir, name, piece);
		/* The name holds the hash of the text: an existing part says the same. */
		if (r < 0 && r != -EEXIST)
			return record_link_failed(c, r, "writing", key, err);
	}
	return 0;
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

/* The record is on the share and something is left to do: the CO has to come back. */
static void make_not_final(struct error *err)
{
	if (err != NULL && error_is_final(err->code))
		err->code = ERROR_ABORTED;
}

/* -------- drafts -------- */

/* Remove a draft, after the parts that were written for it. A damaged draft leads to no parts. */
static int remove_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct record_parts *parts, struct error *err)
{
	char draft[RECORD_LINK_NAME_SIZE];
	int r;

	if (parts->n > 0) {
		r = record_remove_unused_parts(c, dir, key, parts, err);
		if (r < 0)
			return r;
	}
	record_draft_name(draft, key);
	r = nfs_remove(c, dir, draft);
	return r < 0 && r != -ENOENT ? record_link_failed(c, r, "removing", draft, err) : 0;
}

/*
 * Read the draft: 1, or 0 where there is none. link is its text, "" where it is not a symbolic
 * link; ret stays empty where it is damaged.
 */
static int read_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      struct record *ret, struct record_parts *ret_parts,
		      char link[NFS_LINK_MAX + 1], struct error *err)
{
	char draft[RECORD_LINK_NAME_SIZE];
	int r;

	record_draft_name(draft, key);
	link[0] = '\0';
	r = store_text_read(c, dir, draft, link);
	if (r == -ENOENT)
		return 0;
	if (r < 0 && r != -EINVAL)
		return record_link_failed(c, r, "reading", draft, err);
	if (r < 0)
		link[0] = '\0';
	if (r == 0 && record_decode(ret, link) == 0 && record_head_parts(ret, ret_parts) < 0)
		*ret_parts = (struct record_parts){ 0, 0 };
	return 1;
}

int record_forget_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct record *buried, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	struct record_parts parts = { 0, 0 };
	char link[NFS_LINK_MAX + 1];
	int r;

	r = read_draft(c, dir, key, &rec, &parts, link, err);
	if (r <= 0)
		return r;
	/* A creation that was cut short may have left its draft beside the record that it made. */
	if (buried != NULL && buried->parts > 0 && parts.hash == buried->hash)
		parts.n = 0;
	return remove_draft(c, dir, key, &parts, err);
}

/* Whether the draft is of a creation that was cut short just before it removed the draft. */
static int draft_is_done(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			 const struct record_parts *draft, struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct record_parts parts = { 0, 0 };
	int r;

	if (draft->n == 0)
		return 0;
	r = record_read_head(c, dir, key, key, &head, &parts, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return r > 0 && parts.hash == draft->hash;
}

/*
 * Remove the draft that is in the way, if nobody is at work on it. No other call of this process
 * works on the record, so a draft with our id is left from a call that was cut short, or from the
 * process before. A draft of another replica stays for as long as that may be alive. A draft
 * without a holder is of a version that takes every draft for the remains of a crash; so do we.
 */
static int take_draft_over(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			   struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	struct record_parts parts = { 0, 0 };
	cleanup_buf struct buf seen = { 0 };
	char link[NFS_LINK_MAX + 1];
	const char *by;
	int r;

	r = read_draft(c, dir, key, &rec, &parts, link, err);
	if (r > 0)
		r = draft_is_done(c, dir, key, &parts, err);
	if (r < 0)
		return r;
	if (r > 0 || link[0] == '\0')
		return remove_draft(c, dir, key, &parts, err);
	by = record_get(&rec, RECORD_KEY_BY);
	if (buf_printf(&seen, "%s~new=%s", key, link) < 0)
		return error_oom(err);
	if (by != NULL && !store_holder_is_own(by) &&
	    !store_holder_is_dead(c->export.server, c->export.share, seen.data))
		return record_is_busy(c, key, err);
	return remove_draft(c, dir, key, &parts, err);
}

static int write_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const char *text, struct error *err)
{
	char draft[RECORD_LINK_NAME_SIZE];
	int r;

	record_draft_name(draft, key);
	r = store_text_create(c, dir, draft, text);
	if (r == -EEXIST) {
		r = take_draft_over(c, dir, key, err);
		if (r < 0)
			return r;
		r = store_text_create(c, dir, draft, text);
	}
	if (r == -EEXIST)
		return record_is_busy(c, key, err);
	return r < 0 ? record_link_failed(c, r, "writing", key, err) : 0;
}

/* Remove our own draft with its parts after a failure, or leave both to the next attempt. */
static void withdraw_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			   const struct record_parts *parts, struct error *err)
{
	struct error second = { .code = ERROR_OK };

	if (remove_draft(c, dir, key, parts, &second) < 0)
		make_not_final(err);
}

/* -------- creating -------- */

/* The record is there: remove what a call that made or replaced it has left, and return -EEXIST. */
static int tidy_existing(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			 struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	struct record_parts parts = { 0, 0 };
	char link[NFS_LINK_MAX + 1];
	int r;

	r = record_forget(c, dir, key, err);
	if (r == 0)
		r = read_draft(c, dir, key, &rec, &parts, link, err);
	if (r > 0)
		r = draft_is_done(c, dir, key, &parts, err);
	if (r > 0)
		r = remove_draft(c, dir, key, &parts, err);
	return r < 0 ? r : -EEXIST;
}

/* Write the draft before the parts, so that the next attempt finds them even with another text. */
static int create_with_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			     struct record *rec, struct error *err)
{
	char head[RECORD_LINK_BYTES + 1], draft[RECORD_LINK_BYTES + 1], tag[STORE_HOLDER_TAG_MAX];
	cleanup_free char *text = NULL;
	struct record_parts parts;
	int r;

	r = record_is_there(c, dir, key, err);
	if (r != 0)
		return r < 0 ? r : tidy_existing(c, dir, key, err);
	r = record_forget(c, dir, key, err);
	if (r < 0)
		return r;
	store_holder_tag(tag);
	if (record_set(rec, RECORD_KEY_NONCE, tag) < 0)
		return error_oom(err);
	r = encode_to_fit(rec, &text, err);
	if (r < 0)
		return r;
	parts = parts_for_text(text);
	format_head(draft, &parts, tag);
	format_head(head, &parts, NULL);
	r = write_draft(c, dir, key, draft, err);
	if (r < 0)
		return r;
	r = write_parts(c, dir, key, text, &parts, err);
	if (r == 0) {
		r = store_text_create(c, dir, key, head);
		if (r < 0 && r != -EEXIST)
			r = record_link_failed(c, r, "writing", key, err);
	}
	if (r < 0) {
		withdraw_draft(c, dir, key, &parts, err);
		return r;
	}
	rec->parts = parts.n;
	rec->hash = parts.hash;
	rec->base = str_hash(head, strlen(head));
	r = remove_draft(c, dir, key, &parts, err);
	if (r < 0)
		make_not_final(err);
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
		return create_with_parts(c, dir, key, rec, err);
	r = store_text_create(c, dir, key, text);
	/* The folder has just gone, or the new link was renamed before the server replied. */
	if (r == -ENOENT)
		r = -ESTALE;
	if (r == 0)
		rec->base = str_hash(text, strlen(text));
	return r < 0 && r != -EEXIST ? record_link_failed(c, r, "writing", key, err) : r;
}

/* -------- replacing -------- */

/* Write a grave for the parts of the old record, so that the call after a crash finds them. */
static int mark_old_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			  const struct record_parts *old, struct error *err)
{
	char head[RECORD_LINK_BYTES + 1], grave[RECORD_LINK_NAME_SIZE];
	int r;

	if (old->n == 0)
		return 0;
	r = record_forget(c, dir, key, err);
	if (r < 0)
		return r;
	record_grave_name(grave, key);
	format_head(head, old, NULL);
	r = store_text_create(c, dir, grave, head);
	return r < 0 && r != -EEXIST ? record_link_failed(c, r, "writing", key, err) : 0;
}

/* Another replica may have removed the draft; then the RENAME fails. */
static int rename_into_place(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			     const struct record *rec, const char *text,
			     const struct record_parts *parts, struct error *err)
{
	const struct record_parts old = { rec->parts, rec->hash };
	struct error ignored = { .code = ERROR_OK };
	char draft[RECORD_LINK_NAME_SIZE];
	int r;

	r = write_parts(c, dir, key, text, parts, err);
	if (r < 0)
		return r;
	r = record_check_same(c, dir, key, rec, err);
	if (r == -ENOENT)
		return record_is_busy(c, key, err);
	if (r == 0)
		r = mark_old_parts(c, dir, key, &old, err);
	if (r < 0)
		return r;
	record_draft_name(draft, key);
	r = nfs_rename(c, dir, draft, dir, key);
	if (r < 0 && old.n > 0)
		(void)record_forget(c, dir, key, &ignored); /* the old record keeps its parts */
	if (r == -ENOENT)
		return record_is_busy(c, key, err);
	return r < 0 ? record_link_failed(c, r, "writing", key, err) : 0;
}

int record_replace(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		   struct record *rec, struct error *err)
{
	const uint64_t old_parts = rec->parts;
	char head[RECORD_LINK_BYTES + 1], tag[STORE_HOLDER_TAG_MAX];
	struct record_parts parts = { 0, 0 };
	cleanup_free char *text = NULL;
	const char *link;
	int r;

	store_holder_tag(tag); /* makes every text different */
	if (record_set(rec, RECORD_KEY_BY, tag) < 0)
		return error_oom(err);
	r = encode_to_fit(rec, &text, err);
	if (r < 0)
		return r;
	link = text;
	if (strlen(text) > RECORD_LINK_BYTES) {
		parts = parts_for_text(text);
		format_head(head, &parts, tag);
		link = head;
	}
	r = write_draft(c, dir, key, link, err);
	if (r < 0)
		return r;
	r = rename_into_place(c, dir, key, rec, text, &parts, err);
	if (r < 0) {
		withdraw_draft(c, dir, key, &parts, err);
		return r;
	}
	rec->parts = parts.n;
	rec->hash = parts.hash;
	rec->base = str_hash(link, strlen(link));
	if (old_parts == 0)
		return 0;
	/*
	 * Parts without their head mean nothing: the record is replaced, whatever becomes of them.
	 */
	r = record_forget(c, dir, key, err);
	if (r < 0)
		make_not_final(err);
	return r;
}
