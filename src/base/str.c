/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static unsigned int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned int)(c - '0');
	if (c >= 'a' && c <= 'z')
		return (unsigned int)(c - 'a') + 10;
	if (c >= 'A' && c <= 'Z')
		return (unsigned int)(c - 'A') + 10;
	return UINT32_MAX;
}

int str_parse_u64(const char *s, unsigned int base, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	if (str_is_empty(s))
		return -EINVAL;
	for (; *s != '\0'; s++) {
		unsigned int d = digit_value(*s);

		if (d >= base)
			return -EINVAL;
		if (value > (max - d) / base || d > max)
			return -ERANGE;
		value = value * base + d;
	}
	*ret = value;
	return 0;
}

bool str_eq(const char *a, const char *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return strcmp(a, b) == 0;
}

bool str_eq_nocase(const char *a, const char *b)
{
	return strcasecmp(a, b) == 0;
}

bool str_ends_with_uuid(const char *s)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	const size_t len = strlen(s), form_len = sizeof(form) - 1;
	size_t i;

	if (len < form_len)
		return false;
	s += len - form_len;
	for (i = 0; i < form_len; i++)
		if (form[i] == '-' ? s[i] != '-' : !isxdigit((unsigned char)s[i]))
			return false;
	return true;
}

bool str_has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_has_control(const char *s)
{
	for (; *s != '\0'; s++) {
		unsigned char c = (unsigned char)*s;

		if (c < 0x20 || c == 0x7f)
			return true;
	}
	return false;
}

/* Return the length of the sequence at s, or 0 if it is malformed. */
static size_t utf8_len(const unsigned char *s, size_t left)
{
	unsigned char lo = 0x80, hi = 0xbf;
	size_t n, i;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	if (n > left)
		return 0;
	/* Narrow the second byte: no overlong forms, surrogates or code points > U+10FFFF. */
	if (s[0] == 0xe0)
		lo = 0xa0;
	if (s[0] == 0xed)
		hi = 0x9f;
	if (s[0] == 0xf0)
		lo = 0x90;
	if (s[0] == 0xf4)
		hi = 0x8f;
	if (s[1] < lo || s[1] > hi)
		return 0;
	for (i = 2; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

bool str_is_utf8(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t i = 0;

	while (i < len) {
		size_t n = utf8_len(p + i, len - i);

		if (n == 0)
			return false;
		i += n;
	}
	return true;
}

bool str_is_cut_char(const char *s, size_t left)
{
	static const unsigned char tails[][3] = {
		{ 0x80, 0x80, 0x80 },
		{ 0xa0, 0x80, 0x80 },
		{ 0x90, 0x80, 0x80 },
	};
	unsigned char whole[6];
	size_t i;

	if (left > sizeof(whole) - sizeof(tails[0]))
		return false;
	memcpy(whole, s, left);
	for (i = 0; i < ARRAY_SIZE(tails); i++) {
		memcpy(whole + left, tails[i], sizeof(tails[i]));
		if (utf8_len(whole, left + sizeof(tails[i])) > left)
			return true;
	}
	return false;
}

void str_make_utf8(char *s)
{
	size_t left = strlen(s);

	while (left > 0) {
		size_t n = utf8_len((const unsigned char *)s, left);

		if (n == 0 && str_is_cut_char(s, left)) {
			*s = '\0';
			return;
		}
		if (n == 0) {
			*s = '?';
			n = 1;
		}
		s += n;
		left -= n;
	}
}

size_t str_utf8_cut(const char *s, size_t max)
{
	size_t n = max;

	while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
		n--;
	return n;
}

int strv_split(struct strv *ret, const char *s, char sep)
{
	struct strv v = { NULL, 0 };
	size_t n = 1;
	const char *p;

	for (p = s; *p != '\0'; p++)
		if (*p == sep)
			n++;
	v.items = calloc(n, sizeof(*v.items));
	if (v.items == NULL)
		return -ENOMEM;
	for (;;) {
		size_t len = strcspn(s, (char[]){ sep, '\0' });

		v.items[v.n] = strndup(s, len);
		if (v.items[v.n] == NULL) {
			strv_done(&v);
			return -ENOMEM;
		}
		v.n++;
		if (s[len] == '\0')
			break;
		s += len + 1;
	}
	*ret = v;
	return 0;
}

int strv_append(struct strv *v, const char *s)
{
	char **items = reallocarray(v->items, v->n + 1, sizeof(*items));

	if (items == NULL)
		return -ENOMEM;
	v->items = items;
	items[v->n] = strdup(s);
	if (items[v->n] == NULL)
		return -ENOMEM;
	v->n++;
	return 0;
}

void strv_done(struct strv *v)
{
	size_t i;

	for (i = 0; i < v->n; i++)
		free(v->items[i]);
	free(v->items);
	*v = (struct strv){ NULL, 0 };
}

uint64_t str_hash(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t h = UINT64_C(14695981039346656037);
	size_t i;

	for (i = 0; i < len; i++) {
		h ^= p[i];
		h *= UINT64_C(1099511628211);
	}
	return h;
}
