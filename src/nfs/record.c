/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/record.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "nfs/state.h"

#define PART_NAME_SIZE (RECORD_NAME_MAX + 32)

void record_done(struct record *rec)
{
	size_t i;

	for (i = 0; i < rec->n; i++) {
		free(rec->pairs[i].key);
		free(rec->pairs[i].value);
	}
	free(rec->pairs);
	*rec = (struct record){ .n = 0 };
}

static void record_move(struct record *to, struct record *from)
{
	*to = *from;
	*from = (struct record){ .n = 0 };
}

static struct record_pair *find(const struct record *rec, const char *key)
{
	size_t i;

	for (i = 0; i < rec->n; i++)
		if (strcmp(rec->pairs[i].key, key) == 0)
			return &rec->pairs[i];
	return NULL;
}

const char *record_get(const struct record *rec, const char *key)
{
	const struct record_pair *pair = find(rec, key);

	return pair != NULL ? pair->value : NULL;
}

int record_set(struct record *rec, const char *key, const char *value)
{
	struct record_pair *pair = find(rec, key), *pairs;
	cleanup_free char *v = strdup(value);
	cleanup_free char *k = NULL;

	if (v == NULL)
		return -ENOMEM;
	if (pair != NULL) {
		free(pair->value);
		pair->value = steal_ptr(&v);
		return 0;
	}
	k = strdup(key);
	pairs = reallocarray(rec->pairs, rec->n + 1, sizeof(*pairs));
	if (pairs != NULL)
		rec->pairs = pairs;
	if (k == NULL || pairs == NULL)
		return -ENOMEM;
	pairs[rec->n++] = (struct record_pair){ steal_ptr(&k), steal_ptr(&v) };
	return 0;
}

static bool is_plain(char c)
{
	return isalnum((unsigned char)c) || (c != '\0' && strchr("-_.,:/+@", c) != NULL);
}

static int put_escaped(struct buf *b, const char *s)
{
	int r = 0;

	for (; *s != '\0' && r == 0; s++)
		r = is_plain(*s) ? buf_append(b, s, 1)
				 : buf_printf(b, "%%%02X", (unsigned int)(unsigned char)*s);
	return r;
}

static int put_pair(struct buf *b, const struct record_pair *pair)
{
	int r;

	r = buf_puts(b, ";");
	if (r == 0)
		r = put_escaped(b, pair->key);
	if (r == 0)
		r = buf_puts(b, "=");
	if (r == 0)
		r = put_escaped(b, pair->value);
	return r;
}

int record_encode(const struct record *rec, char **ret)
{
	cleanup_buf struct buf b = { .max = RECORD_BYTES_MAX };
	size_t i;
	int r;

	r = buf_printf(&b, "v=%d", RECORD_VERSION);
	for (i = 0; i < rec->n && r == 0; i++)
		r = put_pair(&b, &rec->pairs[i]);
	if (r < 0)
		return r;
	*ret = buf_steal(&b);
	return *ret != NULL ? 0 : -ENOMEM;
}

static int unescape(char *s)
{
	char *to = s;

	for (; *s != '\0'; s++) {
		uint64_t c;
		char hex[3];

		if (*s != '%') {
			if (!is_plain(*s))
				return -EINVAL;
			*to++ = *s;
			continue;
		}
		memcpy(hex, s + 1, strnlen(s + 1, 2));
		hex[strnlen(s + 1, 2)] = '\0';
		if (strlen(hex) != 2 || str_parse_u64(hex, 16, 255, &c) < 0 || c == 0)
			return -EINVAL;
		*to++ = (char)c;
		s += 2;
	}
	*to = '\0';
	return 0;
}

static int decode_pair(struct record *rec, char *item)
{
	char *value = strchr(item, '=');

	if (value == NULL || value == item)
		return -EINVAL;
	*value++ = '\0';
	if (unescape(item) < 0 || unescape(value) < 0 || find(rec, item) != NULL)
		return -EINVAL;
	return record_set(rec, item, value);
}

/* "v=N" comes first, so that a later version may change everything behind it. */
static int check_version(const char *item)
{
	uint64_t version;

	if (!str_has_prefix(item, "v=") || str_parse_u64(item + 2, 10, UINT32_MAX, &version) < 0)
		return -EINVAL;
	if (version == 0)
		return -EINVAL;
	return version > RECORD_VERSION ? -ENOTSUP : 0;
}

int record_decode(struct record *ret, const char *text)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_strv struct strv items = { NULL, 0 };
	size_t i;
	int r;

	r = strv_split(&items, text, ';');
	if (r < 0)
		return r;
	r = check_version(items.items[0]);
	for (i = 1; i < items.n && r == 0; i++)
		r = decode_pair(&rec, items.items[i]);
	if (r < 0)
		return r;
	record_move(ret, &rec);
	return 0;
}

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
	record_move(ret, &rec);
	return r;
}

int record_read(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		struct record *ret, struct error *err)
{
	cleanup_record struct record head = { .n = 0 };
	struct split s = { 0, 0 };
	int r;

	r = read_head(c, dir, key, key, &head, &s, err);
	if (r < 0)
		return r;
	if (r > 0) {
		r = read_parts(c, dir, key, &s, ret, err);
		if (r < 0)
			return r;
		ret->parts = s.parts;
		ret->hash = s.hash;
		return 0;
	}
	record_move(ret, &head);
	return 0;
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

static int finish_removal(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			  struct error *err)
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
	r = remove_parts(c, dir, key, &s, err);
	if (r < 0)
		return r;
	r = nfs_remove(c, dir, grave);
	return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", key, err) : 0;
}

int record_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  const struct record *rec, struct error *err)
{
	char grave[PART_NAME_SIZE];
	int r;

	if (rec != NULL && rec->parts > 0) {
		grave_name(grave, key);
		r = nfs_rename(c, dir, key, dir, grave);
		if (r < 0 && r != -ENOENT)
			return link_failed(c, r, "removing", key, err);
		return finish_removal(c, dir, key, err);
	}
	r = nfs_remove(c, dir, key);
	return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", key, err) : 0;
}

int record_forget(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		  struct error *err)
{
	return finish_removal(c, dir, key, err);
}

/* -------- writing -------- */

/* Parts of a record that did not come to be, unless it is that one which is there. */
static void drop_parts(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		       const struct split *mine)
{
	cleanup_record struct record head = { .n = 0 };
	struct error ignored = { .code = ERROR_OK };
	struct split other = { 0, 0 };
	int r;

	r = read_head(c, dir, key, key, &head, &other, &ignored);
	if (r == -ENOENT || (r >= 0 && other.hash != mine->hash))
		(void)remove_parts(c, dir, key, mine, &ignored);
}

static struct split split_for(const char *text)
{
	size_t len = strlen(text);
	struct split s = {
		.parts = (len + RECORD_LINK_BYTES - 1) / RECORD_LINK_BYTES,
		.hash = str_hash(text, len),
	};

	return s;
}

static void format_head(char head[RECORD_LINK_BYTES + 1], const struct split *s)
{
	(void)snprintf(head, RECORD_LINK_BYTES + 1, "v=%d;parts=%" PRIu64 ";hash=%016" PRIx64,
		       RECORD_VERSION, s->parts, s->hash);
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

static int create_split(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			const char *text, struct record *rec, struct error *err)
{
	const struct split s = split_for(text);
	char head[RECORD_LINK_BYTES + 1];
	int r;

	r = finish_removal(c, dir, key, err);
	if (r == 0)
		r = write_parts(c, dir, key, text, &s, err);
	if (r < 0) {
		drop_parts(c, dir, key, &s);
		return r;
	}
	format_head(head, &s);
	r = nfs_symlink(c, dir, key, head);
	if (r < 0) {
		drop_parts(c, dir, key, &s);
		return r != -EEXIST ? link_failed(c, r, "writing", key, err) : r;
	}
	rec->parts = s.parts;
	rec->hash = s.hash;
	return 0;
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
	return r < 0 && r != -EEXIST ? link_failed(c, r, "writing", key, err) : r;
}

/* Writes a link of that name, over one that an interrupted call may have left. */
static int put_link(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    const char *text)
{
	int r;

	r = nfs_symlink(c, dir, name, text);
	if (r != -EEXIST)
		return r;
	r = nfs_remove(c, dir, name);
	if (r < 0 && r != -ENOENT)
		return r;
	return nfs_symlink(c, dir, name, text);
}

static void draft_name(char ret[PART_NAME_SIZE], const char *key)
{
	(void)snprintf(ret, PART_NAME_SIZE, "%s~new", key);
}

int record_forget_draft(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			struct error *err)
{
	char draft[PART_NAME_SIZE];
	int r;

	draft_name(draft, key);
	r = nfs_remove(c, dir, draft);
	return r < 0 && r != -ENOENT ? link_failed(c, r, "removing", draft, err) : 0;
}

static int rename_into_place(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
			     const char *text, struct error *err)
{
	char draft[PART_NAME_SIZE];
	int r;

	draft_name(draft, key);
	r = put_link(c, dir, draft, text);
	if (r == 0)
		r = nfs_rename(c, dir, draft, dir, key);
	return r < 0 ? link_failed(c, r, "writing", key, err) : 0;
}

int record_replace(struct nfs_client *c, const struct nfs_handle *dir, const char *key,
		   struct record *rec, struct error *err)
{
	const struct split old = { rec->parts, rec->hash };
	struct split s = { 0, 0 };
	cleanup_free char *text = NULL;
	int r;

	r = encode_to_fit(rec, &text, err);
	if (r < 0)
		return r;
	if (strlen(text) > RECORD_LINK_BYTES) {
		char head[RECORD_LINK_BYTES + 1];

		s = split_for(text);
		r = write_parts(c, dir, key, text, &s, err);
		if (r < 0)
			return r;
		format_head(head, &s);
		r = rename_into_place(c, dir, key, head, err);
	} else {
		r = rename_into_place(c, dir, key, text, err);
	}
	if (r < 0)
		return r;
	rec->parts = s.parts;
	rec->hash = s.hash;
	/* What stays of the old one means nothing without its link. */
	return old.parts > 0 && old.hash != s.hash ? remove_parts(c, dir, key, &old, err) : 0;
}
