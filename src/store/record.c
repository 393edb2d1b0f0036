/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Reading and removing records. */

#include "store/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "store/record_links.h"
#include "store/text.h"

/* -------- links -------- */

void record_part_name(char name[RECORD_LINK_NAME_SIZE], const char *key,
		      const struct record_parts *parts, uint64_t i)
{
	(void)snprintf(name, RECORD_LINK_NAME_SIZE, "%s~%016" PRIx64 ".%" PRIu64, key, parts->hash,
		       i);
}

void record_draft_name(char name[RECORD_LINK_NAME_SIZE], const char *key)
{
	(void)snprintf(name, RECORD_LINK_NAME_SIZE, "%s~new", key);
}

void record_grave_name(char name[RECORD_LINK_NAME_SIZE], const char *key)
{
	(void)snprintf(name, RECORD_LINK_NAME_SIZE, "%s~removed", key);
}

static int parse_parts(const char *n, const char *hash, struct record_parts *ret)
{
	if (str_parse_u64(n, 10, RECORD_BYTES_MAX / RECORD_LINK_BYTES + 1, &ret->n) < 0 ||
	    str_parse_u64(hash, 16, UINT64_MAX, &ret->hash) < 0)
		return -EINVAL;
	return 0;
}

int record_head_parts(const struct record *rec, struct record_parts *ret)
{
	const char *parts = record_get(rec, "parts");
	const char *hash = record_get(rec, "hash");

	if (parts == NULL)
		return 0;
	return hash == NULL || parse_parts(parts, hash, ret) < 0 ? -EINVAL : 1;
}

int record_parse_parts(const char *text, struct record_parts *ret)
{
	const char *dot = strchr(text, '.');
	char n[sizeof("32")];

	if (dot == NULL || (size_t)(dot - text) >= sizeof(n))
		return -EINVAL;
	(void)snprintf(n, sizeof(n), "%.*s", (int)(dot - text), text);
	return parse_parts(n, dot + 1, ret);
}

int record_link_failed(struct nfs_client *c, int r, const char *verb, const char *key,
		       struct error *err)
{
	return nfs_error_set(err, c, r, "%s record '%s'", verb, key);
}

int record_is_busy(struct nfs_client *c, const char *key, struct error *err)
{
	return error_set(err, ERROR_ABORTED,
			 "another controller is changing record '%s' on %s:%s; try again", key,
			 c->export.server, c->export.share);
}

/* -------- reading -------- */

int record_unusable(struct nfs_client *c, int r, const char *folder, const char *key,
		    const char *advice, struct error *err)
{
	if (r == -ENOMEM)
		return error_oom(err);
	if (r == -ENOTSUP)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "record '%s' on %s:%s was written by a later csi-nfs: upgrade this one",
				 key, c->export.server, c->export.share);
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "record '%s' in %s on %s:%s is damaged: look at it with ls -l, and %s",
			 key, folder, c->export.server, c->export.share, advice);
}

static int record_is_damaged(struct nfs_client *c, int r, const char *key, struct error *err)
{
	return record_unusable(c, r, NFS_STATE_DIR, key,
			       "remove it if what it describes is not needed", err);
}

static int read_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      const struct record_parts *parts, struct record *ret, struct error *err)
{
	cleanup_buf struct buf text = { .max = RECORD_BYTES_MAX };
	uint64_t i;
	int r;

	for (i = 0; i < parts->n; i++) {
		char name[RECORD_LINK_NAME_SIZE], link[NFS_LINK_MAX + 1];

		record_part_name(name, key, parts, i);
		r = store_text_read(c, dir, name, link);
		if (r == -ENOENT || r == -EINVAL)
			return record_is_damaged(c, -EINVAL, key, err);
		if (r < 0)
			return record_link_failed(c, r, "reading", key, err);
		r = buf_puts(&text, link);
		if (r < 0)
			return record_is_damaged(c, r, key, err);
	}
	if (text.len == 0 || str_hash(text.data, text.len) != parts->hash)
		return record_is_damaged(c, -EINVAL, key, err);
	r = record_decode(ret, text.data);
	return r < 0 ? record_is_damaged(c, r, key, err) : 0;
}

int record_read_head(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		     const char *key, struct record *ret, struct record_parts *ret_parts,
		     struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	char link[NFS_LINK_MAX + 1];
	int r;

	r = store_text_read(c, dir, name, link);
	if (r == -ENOENT)
		return r;
	if (r == -EINVAL)
		return record_is_damaged(c, r, key, err);
	if (r < 0)
		return record_link_failed(c, r, "reading", key, err);
	r = record_decode(&rec, link);
	/* An empty record would look like a missing one to callers. */
	if (r == 0 && rec.n == 0)
		r = -EINVAL;
	if (r == 0)
		r = record_head_parts(&rec, ret_parts);
	if (r < 0)
		return record_is_damaged(c, r, key, err);
	rec.base = str_hash(link, strlen(link));
	record_move(ret, &rec);
	return r;
}

/* Whether the link name still leads to these parts: 0, -ENOENT, -EAGAIN, or another errno. */
static int check_head(struct nfs_client *c, const struct nfs_handle *in, const char *name,
		      const char *key, const struct record_parts *parts, struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct record_parts now = { 0, 0 };
	int r = record_read_head(c, in, name, key, &head, &now, err);

	if (r < 0)
		return r;
	return r > 0 && now.n == parts->n && now.hash == parts->hash ? 0 : -EAGAIN;
}

/* Likewise, but -EAGAIN, unreported, if the record was replaced while its parts were read. */
static int try_read(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    const struct nfs_handle *in, const char *name, struct record *ret,
		    struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct error why = { .code = ERROR_OK };
	struct record_parts parts = { 0, 0 };
	int r, now;

	r = record_read_head(c, in, name, key, &head, &parts, err);
	if (r < 0)
		return r;
	if (r == 0) {
		record_move(ret, &head);
		return 0;
	}
	r = read_parts(c, dir, key, &parts, ret, &why);
	if (r < 0 && why.code == ERROR_FAILED_PRECONDITION) {
		/* Another replica may be removing the record, or be replacing it. */
		now = check_head(c, in, name, key, &parts, err);
		if (now < 0)
			return now;
	}
	if (r < 0) {
		if (err != NULL)
			*err = why;
		return r;
	}
	ret->parts = parts.n;
	ret->hash = parts.hash;
	ret->base = head.base;
	return 0;
}

#define READ_TRIES 3

/* Read the record whose own link is name in the folder in, and whose parts are in dir. */
int record_read_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct nfs_handle *in, const char *name, struct record *ret,
		       struct error *err)
{
	unsigned int tries;
	int r = -EAGAIN;

	for (tries = 0; tries < READ_TRIES && r == -EAGAIN; tries++)
		r = try_read(c, dir, key, in, name, ret, err);
	return r == -EAGAIN ? record_is_busy(c, key, err) : r;
}

int record_read(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		struct record *ret, struct error *err)
{
	return record_read_buried(c, dir, key, dir, key, ret, err);
}

int record_read_at(struct nfs_client *c, enum store_place folder, const char *key,
		   struct record *ret, struct error *err)
{
	const struct nfs_handle *dir;
	int r = store_folder(c, folder, false, &dir, err);

	return r < 0 ? r : record_read(c, dir, key, ret, err);
}

int record_is_there(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    struct error *err)
{
	char text[NFS_LINK_MAX + 1];
	struct nfs_handle unused;
	struct nfs_attr attr;
	int r = nfs_lookup(c, dir, key, &unused, &attr);

	/* An unfinished file does not count as a record. */
	if (r == 0 && attr.type == NFS_TYPE_FILE)
		r = store_text_read(c, dir, key, text);
	if (r == 0 || r == -EINVAL)
		return 1;
	return r == -ENOENT ? 0 : record_link_failed(c, r, "reading", key, err);
}

int record_is_begun(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		    struct error *err)
{
	char draft[RECORD_LINK_NAME_SIZE];
	int r;

	r = record_is_there(c, dir, key, err);
	if (r != 0)
		return r;
	record_draft_name(draft, key);
	return record_is_there(c, dir, draft, err);
}

/* -------- removing -------- */

int record_remove_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const struct record_parts *parts, struct error *err)
{
	uint64_t i;

	for (i = 0; i < parts->n; i++) {
		char name[RECORD_LINK_NAME_SIZE];
		int r;

		record_part_name(name, key, parts, i);
		r = nfs_remove(c, dir, name);
		if (r < 0 && r != -ENOENT)
			return record_link_failed(c, r, "removing", key, err);
	}
	return 0;
}

int record_remove_unused_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			       const struct record_parts *parts, struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct record_parts used = { 0, 0 };
	int r;

	r = record_read_head(c, dir, key, key, &head, &used, err);
	if (r == -ENOENT || (r >= 0 && used.hash != parts->hash))
		return record_remove_parts(c, dir, key, parts, err);
	return r < 0 ? r : 0;
}

/* Remove the grave and the parts that it leads to. */
static int empty_grave(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct record_parts parts = { 0, 0 };
	char grave[RECORD_LINK_NAME_SIZE];
	int r;

	record_grave_name(grave, key);
	r = record_read_head(c, dir, grave, key, &head, &parts, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = record_remove_unused_parts(c, dir, key, &parts, err);
	if (r < 0)
		return r;
	r = nfs_remove(c, dir, grave);
	return r < 0 && r != -ENOENT ? record_link_failed(c, r, "removing", key, err) : 0;
}

/*
 * Remove a head that XFS does not rename, even within its folder, since it is outside the folder's
 * quota project. The grave is for a kill only, so that a share without room for it can do without.
 */
static int remove_fixed_head(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			     const struct nfs_handle *from, const char *name, struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct record_parts parts = { 0, 0 };
	char grave[RECORD_LINK_NAME_SIZE], text[NFS_LINK_MAX + 1];
	int r;

	r = record_read_head(c, from, name, key, &head, &parts, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	record_grave_name(grave, key);
	r = store_text_read(c, from, name, text);
	if (r == 0)
		r = store_text_create(c, dir, grave, text);
	if (r == 0 || r == -EEXIST || r == -ENOSPC || r == -EDQUOT)
		r = nfs_remove(c, from, name);
	if (r < 0 && r != -ENOENT)
		return record_link_failed(c, r, "removing", key, err);
	/* Not by the grave: another replica may have emptied it while the head led to them. */
	r = record_remove_unused_parts(c, dir, key, &parts, err);
	return r < 0 ? r : empty_grave(c, dir, key, err);
}

int record_remove_head(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct nfs_handle *from, const char *name, struct error *err)
{
	char grave[RECORD_LINK_NAME_SIZE];
	int r;

	/* A crash may have left a grave, which the RENAME would replace. */
	r = empty_grave(c, dir, key, err);
	if (r < 0)
		return r;
	record_grave_name(grave, key);
	r = nfs_rename(c, from, name, dir, grave);
	if (r == -EXDEV)
		return remove_fixed_head(c, dir, key, from, name, err);
	if (r < 0)
		return r == -ENOENT ? 0 : record_link_failed(c, r, "removing", key, err);
	return empty_grave(c, dir, key, err);
}

/* Remove the parts of the record that rec has replaced, if that call was interrupted. */
static int remove_old_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			    const struct record *rec, struct error *err)
{
	const char *old = record_get(rec, RECORD_KEY_OLD);
	struct record_parts parts;

	if (old == NULL)
		return 0;
	if (record_parse_parts(old, &parts) < 0)
		return record_is_damaged(c, -EINVAL, key, err);
	return record_remove_parts(c, dir, key, &parts, err);
}

int record_forget(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  const struct record *rec, struct error *err)
{
	int r = rec != NULL ? remove_old_parts(c, dir, key, rec, err) : 0;

	return r < 0 ? r : empty_grave(c, dir, key, err);
}

int record_find_remains(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			struct nfs_attr *ret, struct error *err)
{
	char grave[RECORD_LINK_NAME_SIZE];
	struct nfs_handle unused;
	int r;

	record_grave_name(grave, key);
	r = nfs_lookup_full(c, dir, grave, &unused, ret);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? record_link_failed(c, r, "looking for what is left of", key, err) : 1;
}

int record_remove_buried(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			 const struct nfs_handle *in, const char *name, const struct record *rec,
			 struct error *err)
{
	int r = 0;

	/* An interrupted replacement may have left something, too. */
	if (rec != NULL && record_was_replaced(rec))
		r = record_forget(c, dir, key, rec, err);
	if (r < 0)
		return r;
	if (rec != NULL && rec->parts > 0)
		return record_remove_head(c, dir, key, in, name, err);
	r = nfs_remove(c, in, name);
	return r < 0 && r != -ENOENT ? record_link_failed(c, r, "removing", key, err) : 0;
}

int record_check_same(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		      const struct record *rec, struct error *err)
{
	char link[NFS_LINK_MAX + 1];
	int r;

	if (rec->base == 0)
		return 0;
	r = store_text_read(c, dir, key, link);
	if (r == -ENOENT)
		return r;
	if (r < 0 && r != -EINVAL)
		return record_link_failed(c, r, "reading", key, err);
	if (r < 0 || str_hash(link, strlen(link)) != rec->base)
		return record_is_busy(c, key, err);
	return 0;
}

int record_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  const struct record *rec, struct error *err)
{
	int r = rec != NULL ? record_check_same(c, dir, key, rec, err) : 0;

	if (r < 0 && r != -ENOENT)
		return r;
	return record_remove_buried(c, dir, key, dir, key, rec, err);
}

static bool has_same_value(const struct record *a, const struct record *b, const char *name)
{
	const char *value = record_get(a, name), *other = record_get(b, name);

	return value != NULL && other != NULL && strcmp(value, other) == 0;
}

int record_is_replaced(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct nfs_handle *in, const char *name, const char *same,
		       struct error *err)
{
	cleanup_record struct record head = { .n = 0 }, now = { .n = 0 };
	struct record_parts buried = { 0, 0 }, old;
	const char *text;
	int r;

	r = record_read_head(c, in, name, key, &head, &buried, err);
	if (r >= 0)
		r = record_read(c, dir, key, &now, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (buried.n == 0)
		return record_was_replaced(&now) && now.base != head.base &&
		       has_same_value(&now, &head, same);
	text = record_get(&now, RECORD_KEY_OLD);
	return text != NULL && record_parse_parts(text, &old) == 0 && old.n == buried.n &&
	       old.hash == buried.hash;
}

int record_bury(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		const struct nfs_handle *to, const char *name, struct error *err)
{
	int r = nfs_rename(c, dir, key, to, name);

	return r < 0 && r != -ENOENT ? record_link_failed(c, r, "removing", key, err) : r;
}
