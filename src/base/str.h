/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* String helpers. Any thread. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/*
 * Parse a number that is all digits of the base, 2 to 36: no sign, space or prefix. Return 0,
 * -EINVAL, or -ERANGE above max.
 */
int str_parse_u64(const char *s, unsigned int base, uint64_t max, uint64_t *ret);

static inline bool str_is_empty(const char *s)
{
	return s == NULL || s[0] == '\0';
}

bool str_eq(const char *a, const char *b); /* NULL equals NULL only */
bool str_eq_nocase(const char *a, const char *b); /* ASCII; neither may be NULL */
bool str_has_prefix(const char *s, const char *prefix);
bool str_ends_with_uuid(const char *s); /* 36 characters in either case (RFC 9562, section 4) */

/* Find a byte below 0x20, or 0x7f. */
bool str_has_control(const char *s);

/* Check for well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). */
bool str_is_utf8(const char *s, size_t len);

/* Whether the left bytes at s begin a character that has more bytes. left > 0. */
bool str_is_cut_char(const char *s, size_t left);

/* Drop the beginning of a character at the end, and replace other malformed bytes by '?'. */
void str_make_utf8(char *s);

/* Return the largest n <= max at which s can be cut between characters. s is longer than max. */
size_t str_utf8_cut(const char *s, size_t max);

struct strv {
	char **items;
	size_t n;
};

/* Split s at sep, keeping empty pieces. Return 0 or -ENOMEM. Free with strv_done(). */
int strv_split(struct strv *ret, const char *s, char sep);

/* Append a copy of s. Return 0 or -ENOMEM; the list stays usable. */
int strv_append(struct strv *v, const char *s);

void strv_done(struct strv *v);
#define cleanup_strv __attribute__((cleanup(strv_done)))

/* Return the 64-bit FNV-1a hash. Not safe against deliberate collisions. */
uint64_t str_hash(const void *data, size_t len);

#endif
