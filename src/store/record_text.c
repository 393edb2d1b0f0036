/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The codec of records: pairs and their text. */

#include "store/record.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

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

void record_move(struct record *to, struct record *from)
{
	*to = *from;
	*from = (struct record){ .n = 0 };
}

static struct record_pair *find_pair(const struct record *rec, const char *key)
{
	size_t i;

	for (i = 0; i < rec->n; i++)
		if (rec->pairs[i].key[0] == key[0] && strcmp(rec->pairs[i].key, key) == 0)
			return &rec->pairs[i];
	return NULL;
}

const char *record_get(const struct record *rec, const char *key)
{
	const struct record_pair *pair = find_pair(rec, key);

	return pair != NULL ? pair->value : NULL;
}

int record_set(struct record *rec, const char *key, const char *value)
{
	struct record_pair *pair = find_pair(rec, key), *pairs;
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

void record_unset(struct record *rec, const char *key)
{
	struct record_pair *pair = find_pair(rec, key);

	if (pair == NULL)
		return;
	free(pair->key);
	free(pair->value);
	rec->n--;
	memmove(pair, pair + 1, (size_t)(rec->pairs + rec->n - pair) * sizeof(*pair));
}

bool record_was_replaced(const struct record *rec)
{
	return record_get(rec, RECORD_KEY_BY) != NULL;
}

static bool is_plain_byte(char c)
{
	return isalnum((unsigned char)c) || (c != '\0' && strchr("-_.,:/+@", c) != NULL);
}

static int put_escaped(struct buf *b, char separator, const char *s)
{
	int r = buf_append(b, &separator, 1);

	for (; *s != '\0' && r == 0; s++)
		r = is_plain_byte(*s) ? buf_append(b, s, 1)
				      : buf_printf(b, "%%%02X", (unsigned int)(unsigned char)*s);
	return r;
}

int record_encode(const struct record *rec, char **ret)
{
	cleanup_buf struct buf b = { .max = RECORD_BYTES_MAX };
	size_t i;
	int r;

	r = buf_printf(&b, "v=%d", RECORD_VERSION);
	for (i = 0; i < rec->n && r == 0; i++) {
		r = put_escaped(&b, ';', rec->pairs[i].key);
		if (r == 0)
			r = put_escaped(&b, '=', rec->pairs[i].value);
	}
	if (r < 0)
		return r;
	*ret = buf_steal(&b);
	return *ret != NULL ? 0 : -ENOMEM;
}

static int unescape_in_place(char *s)
{
	char *to = s;

	for (; *s != '\0'; s++) {
		uint64_t c;
		char hex[3];

		if (*s != '%') {
			if (!is_plain_byte(*s))
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
	if (unescape_in_place(item) < 0 || unescape_in_place(value) < 0 ||
	    find_pair(rec, item) != NULL)
		return -EINVAL;
	return record_set(rec, item, value);
}

/* "v=N" comes first, so that a later version may change everything after it. */
static int check_format_version(const char *item)
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
	r = check_format_version(items.items[0]);
	for (i = 1; i < items.n && r == 0; i++)
		r = decode_pair(&rec, items.items[i]);
	if (r < 0)
		return r;
	record_move(ret, &rec);
	return 0;
}
