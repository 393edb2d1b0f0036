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

/* tag: of the call that creates (RECORD_KEY_NONCE) or replaces (RECORD_KEY_BY) the record. */
static void format_head(char head[RECORD_LINK_BYTES + 1], const struct record_parts *parts,
			const char *tag_key, const char *tag)
{
	(void)snprintf(head, RECORD_LINK_BYTES + 1,
		       "v=%d;parts=%" PRIu64 ";hash=%016" PRIx64 ";%s=%s", RECORD_VERSION, parts->n,
		       parts->hash, tag_key, tag);
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

/* Report that the record is on the share but not finished, so that the CO retries. */
static void make_not_final(struct error *err)
{
	if (err != NULL && error_is_final(err->code))
		err->code = ERROR_ABORTED;
}

/* -------- drafts -------- */

/*
 * Read the draft: 1, or 0 if there is none. link is its text, "" if it is not a symbolic
 * link; ret stays empty if it is damaged.
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

/* Remove a draft that another call wrote. A damaged one leads to no parts. */
static int remove_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct record_parts *parts, struct error *err)
{
	char draft[RECORD_LINK_NAME_SIZE];
	int r;

	record_draft_name(draft, key);
	if (parts->n > 0)
		return record_remove_head(c, dir, key, dir, draft, err);
	r = nfs_remove(c, dir, draft);
	return r < 0 && r != -ENOENT ? record_link_failed(c, r, "removing", draft, err) : 0;
}

int record_forget_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	struct record_parts parts = { 0, 0 };
	char link[NFS_LINK_MAX + 1];
	int r;

	r = read_draft(c, dir, key, &rec, &parts, link, err);
	return r <= 0 ? r : remove_draft(c, dir, key, &parts, err);
}

/*
 * Remove an existing draft if its writer has ended. No other call of this process works on the
 * record, so a draft with our id is left from an interrupted call, or from an earlier process. A
 * draft of another replica stays as long as that replica may be alive. A draft without a holder was
 * written by a version that treats every draft as the remains of a crash, and is removed.
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
	if (r <= 0)
		return r;
	by = record_get(&rec, RECORD_KEY_BY);
	if (by == NULL)
		by = record_get(&rec, RECORD_KEY_NONCE);
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

/* Check that the draft says text. ABORTED if another replica has removed it. */
static int check_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const char *text, struct error *err)
{
	cleanup_record struct record unused = { .n = 0 };
	struct record_parts there = { 0, 0 };
	char link[NFS_LINK_MAX + 1];
	int r = read_draft(c, dir, key, &unused, &there, link, err);

	if (r < 0)
		return r;
	return r > 0 && strcmp(link, text) == 0 ? 0 : record_is_busy(c, key, err);
}

/*
 * After a failure, remove the parts that we wrote, and then our own draft. Another replica may have
 * removed the draft already, but not the parts that we wrote after that; and it may have written a
 * draft of its own, which stays. If this fails, the next attempt cleans up. text: what our draft
 * says.
 */
static void withdraw_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			   const struct record_parts *parts, const char *text, struct error *err)
{
	struct error second = { .code = ERROR_OK };
	char draft[RECORD_LINK_NAME_SIZE];
	int r = 0;

	/* The server may have renamed it before it failed. */
	if (parts->n > 0)
		r = record_remove_unused_parts(c, dir, key, parts, &second);
	if (r == 0)
		r = check_draft(c, dir, key, text, &second);
	if (r < 0 && second.code == ERROR_ABORTED)
		return;
	record_draft_name(draft, key);
	if (r == 0)
		r = nfs_remove(c, dir, draft);
	if (r < 0 && r != -ENOENT)
		make_not_final(err);
}

static int rename_into_place(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			     const char *text, const struct record_parts *parts, struct error *err)
{
	char draft[RECORD_LINK_NAME_SIZE];
	int r = 0;

	/*
	 * A replica that took us for dead may have written its own draft. Renamed over the record,
	 * a draft with missing parts would be a damaged record, and an unfinished file would count
	 * as none.
	 */
	if (parts->n > 0 || c->refuses_links)
		r = check_draft(c, dir, key, text, err);
	if (r < 0)
		return r;
	record_draft_name(draft, key);
	r = nfs_rename(c, dir, draft, dir, key);
	if (r == -ENOENT)
		return record_is_busy(c, key, err);
	return r < 0 ? record_link_failed(c, r, "writing", key, err) : 0;
}

/*
 * Check that the RENAME moved our own draft. A replica that took us for dead may have removed it,
 * and written its own under the same name.
 */
static int check_ours(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      struct record *rec, const char *link, const struct record_parts *parts,
		      struct error *err)
{
	int r;

	rec->parts = parts->n;
	rec->hash = parts->hash;
	rec->base = str_hash(link, strlen(link));
	r = record_check_same(c, dir, key, rec, err);
	if (r == -ENOENT)
		return record_is_busy(c, key, err);
	if (r < 0)
		make_not_final(err);
	return r;
}

/* -------- creating -------- */

int record_set_nonce(struct record *rec)
{
	char tag[STORE_HOLDER_TAG_MAX];

	store_holder_tag(tag);
	return record_set(rec, RECORD_KEY_NONCE, tag);
}

/*
 * Encode a new record for parts, and format their head. The tag makes the text, and so the names of
 * the parts, different from those of any other record.
 */
static int encode_with_parts(struct record *rec, char **ret_text, struct record_parts *ret_parts,
			     char ret_head[RECORD_LINK_BYTES + 1], struct error *err)
{
	int r;

	if (record_set_nonce(rec) < 0)
		return error_oom(err);
	r = encode_to_fit(rec, ret_text, err);
	if (r < 0)
		return r;
	*ret_parts = parts_for_text(*ret_text);
	format_head(ret_head, ret_parts, RECORD_KEY_NONCE, record_get(rec, RECORD_KEY_NONCE));
	return 0;
}

/* Write the draft before the parts, so that the next attempt finds them even with another text. */
static int create_with_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			     struct record *rec, struct error *err)
{
	char head[RECORD_LINK_BYTES + 1];
	cleanup_free char *text = NULL;
	struct record_parts parts;
	int r;

	r = record_forget(c, dir, key, NULL, err);
	if (r == 0)
		r = record_is_there(c, dir, key, err);
	if (r != 0)
		return r > 0 ? -EEXIST : r;
	r = encode_with_parts(rec, &text, &parts, head, err);
	if (r < 0)
		return r;
	r = write_draft(c, dir, key, head, err);
	if (r < 0)
		return r;
	r = write_parts(c, dir, key, text, &parts, err);
	/* The draft excludes other replicas that create a record with parts. */
	if (r == 0)
		r = record_is_there(c, dir, key, err);
	if (r > 0)
		r = -EEXIST;
	if (r == 0)
		r = rename_into_place(c, dir, key, head, &parts, err);
	if (r < 0) {
		withdraw_draft(c, dir, key, &parts, head, err);
		return r;
	}
	return check_ours(c, dir, key, rec, head, &parts, err);
}

/* Write the record's own link. -EEXIST, unreported, if there is one. */
static int create_link(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const char *text, struct record *rec, struct error *err)
{
	int r = store_text_create(c, dir, key, text);

	/* The folder has just gone, or the new link was renamed before the server replied. */
	if (r == -ENOENT)
		r = -ESTALE;
	if (r == 0)
		rec->base = str_hash(text, strlen(text));
	return r < 0 && r != -EEXIST ? record_link_failed(c, r, "writing", key, err) : r;
}

int record_create(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  struct record *rec, struct error *err)
{
	cleanup_free char *text = NULL;
	int r;

	r = encode_to_fit(rec, &text, err);
	if (r < 0)
		return r;
	return strlen(text) > RECORD_LINK_BYTES ? create_with_parts(c, dir, key, rec, err)
						: create_link(c, dir, key, text, rec, err);
}

int record_create_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			 const struct nfs_handle *in, const char *name, struct record *rec,
			 struct error *err)
{
	char head[RECORD_LINK_BYTES + 1];
	struct error second = { .code = ERROR_OK };
	cleanup_free char *text = NULL;
	struct record_parts parts;
	int r;

	r = encode_to_fit(rec, &text, err);
	if (r < 0)
		return r;
	if (strlen(text) <= RECORD_LINK_BYTES)
		return create_link(c, in, name, text, rec, err);
	free(steal_ptr(&text));
	r = encode_with_parts(rec, &text, &parts, head, err);
	if (r < 0)
		return r;
	r = write_parts(c, dir, key, text, &parts, err);
	if (r == 0)
		r = create_link(c, in, name, head, rec, err);
	if (r < 0) {
		/* Without a reply, the link may be there and lead to the parts. */
		if (!c->broken && r != -EEXIST)
			(void)record_remove_parts(c, dir, key, &parts, &second);
		return r;
	}
	rec->parts = parts.n;
	rec->hash = parts.hash;
	return 0;
}

/* -------- replacing -------- */

/* Note which parts the old record had, so that a call after a crash finds them. */
static int name_old_parts(struct record *rec)
{
	char old[64];

	if (rec->parts == 0) {
		record_unset(rec, RECORD_KEY_OLD);
		return 0;
	}
	(void)snprintf(old, sizeof(old), "%" PRIu64 ".%016" PRIx64, rec->parts, rec->hash);
	return record_set(rec, RECORD_KEY_OLD, old);
}

/* Write the parts, and rename the draft, if the record is still the one that was read. */
static int write_and_rename(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			    const struct record *rec, const char *text, const char *link,
			    const struct record_parts *parts, struct error *err)
{
	int r = write_parts(c, dir, key, text, parts, err);

	if (r == 0)
		r = record_check_same(c, dir, key, rec, err);
	if (r == -ENOENT)
		return record_is_busy(c, key, err);
	return r < 0 ? r : rename_into_place(c, dir, key, link, parts, err);
}

int record_replace(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		   struct record *rec, struct error *err)
{
	const struct record_parts old = { rec->parts, rec->hash };
	char head[RECORD_LINK_BYTES + 1], tag[STORE_HOLDER_TAG_MAX];
	struct record_parts parts = { 0, 0 };
	cleanup_free char *text = NULL;
	const char *link;
	int r;

	/* The new text names only the parts that it replaces itself. */
	if (record_get(rec, RECORD_KEY_OLD) != NULL) {
		r = record_forget(c, dir, key, rec, err);
		if (r < 0)
			return r;
	}
	store_holder_tag(tag); /* makes every text different */
	if (record_set(rec, RECORD_KEY_BY, tag) < 0 || name_old_parts(rec) < 0)
		return error_oom(err);
	r = encode_to_fit(rec, &text, err);
	if (r < 0)
		return r;
	link = text;
	if (strlen(text) > RECORD_LINK_BYTES) {
		parts = parts_for_text(text);
		format_head(head, &parts, RECORD_KEY_BY, tag);
		link = head;
	}
	r = write_draft(c, dir, key, link, err);
	if (r < 0)
		return r;
	r = write_and_rename(c, dir, key, rec, text, link, &parts, err);
	if (r < 0) {
		withdraw_draft(c, dir, key, &parts, link, err);
		return r;
	}
	r = check_ours(c, dir, key, rec, link, &parts, err);
	if (r < 0)
		return r;
	r = record_remove_parts(c, dir, key, &old, err);
	if (r < 0)
		make_not_final(err);
	return r;
}
