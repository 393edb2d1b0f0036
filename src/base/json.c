/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/json.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"

static int append_escaped(struct buf *b, const char *s, bool utf8)
{
	const unsigned char c = (unsigned char)*s;

	if (c == '"' || c == '\\')
		return buf_printf(b, "\\%c", c);
	if (c < 0x20 || c == 0x7f)
		return buf_printf(b, "\\u%04x", c);
	if (c >= 0x80 && !utf8)
		return buf_puts(b, "?");
	return buf_append(b, s, 1);
}

int json_put_quoted(struct buf *b, const char *s)
{
	bool utf8 = str_is_utf8(s, strlen(s));
	int r;

	r = buf_puts(b, "\"");
	for (; r == 0 && *s != '\0'; s++)
		r = append_escaped(b, s, utf8);
	return r == 0 ? buf_puts(b, "\"") : r;
}

static void note_error(struct json *j, int r)
{
	if (r < 0 && j->error == 0)
		j->error = r;
}

static void put_key(struct json *j, const char *key)
{
	if (j->comma)
		note_error(j, buf_puts(&j->text, ","));
	if (key != NULL)
		note_error(j, buf_printf(&j->text, "\"%s\":", key));
	j->comma = true;
}

void json_open(struct json *j, const char *key, char bracket)
{
	put_key(j, key);
	note_error(j, buf_append(&j->text, &bracket, 1));
	j->comma = false;
}

void json_close(struct json *j, char bracket)
{
	note_error(j, buf_append(&j->text, &bracket, 1));
	j->comma = true;
}

void json_string(struct json *j, const char *key, const char *value)
{
	put_key(j, key);
	note_error(j, json_put_quoted(&j->text, value));
}

void json_number(struct json *j, const char *key, uint64_t value)
{
	put_key(j, key);
	note_error(j, buf_printf(&j->text, "%" PRIu64, value));
}

void json_bool(struct json *j, const char *key, bool value)
{
	json_raw(j, key, value ? "true" : "false");
}

void json_raw(struct json *j, const char *key, const char *value)
{
	put_key(j, key);
	note_error(j, buf_puts(&j->text, value));
}

void json_done(struct json *j)
{
	buf_done(&j->text);
}
