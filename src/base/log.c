/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"

/* A quotation mark, a brace and a newline, which fit behind a string that is cut. */
#define END_BYTES 3

/* Read-only once threads run, so without a lock. */
static enum log_level log_level = LOG_LEVEL_INFO;
static enum log_format log_format = LOG_FORMAT_TEXT;

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

void log_init(enum log_level level, enum log_format format)
{
	log_level = level;
	log_format = format;
}

int log_level_parse(const char *s, enum log_level *ret)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (strcmp(s, level_names[i]) == 0) {
			*ret = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

int log_format_parse(const char *s, enum log_format *ret)
{
	if (strcmp(s, "text") == 0)
		*ret = LOG_FORMAT_TEXT;
	else if (strcmp(s, "json") == 0)
		*ret = LOG_FORMAT_JSON;
	else
		return -EINVAL;
	return 0;
}

bool log_is_enabled(enum log_level level)
{
	return level <= log_level;
}

/* Append a string. Closes one that is cut, and returns -EMSGSIZE. */
static int put_string(struct buf *b, const char *s)
{
	const size_t start = b->len;
	int r = json_put_quoted(b, s);

	if (r == 0 || b->len == start)
		return r;
	/* Not in the middle of a character. */
	while (!str_is_utf8(b->data + start, b->len - start))
		b->len--;
	b->max = 0; /* it was END_BYTES less than what fits */
	(void)buf_puts(b, "\"");
	return r;
}

/* Append a field, or nothing if its value does not begin. Returns -EMSGSIZE if none may follow. */
static int put_field(struct buf *b, const struct log_field *field)
{
	const size_t start = b->len;
	size_t value;
	int r;

	if (log_format == LOG_FORMAT_JSON)
		r = buf_printf(b, ",\"%s\":", field->key);
	else
		r = buf_printf(b, " %s=", field->key);
	value = b->len;
	if (r == 0 && field->str != NULL)
		r = put_string(b, field->str);
	else if (r == 0)
		r = buf_printf(b, "%" PRId64, field->num);
	if (r < 0 && b->len == value)
		b->len = start;
	return r;
}

void log_write(enum log_level level, const char *msg, const struct log_field *fields, size_t n)
{
	cleanup_buf struct buf b = { .max = LOG_LINE_MAX - END_BYTES };
	struct timespec ts;
	struct tm tm;
	char when[32];
	int r, saved = errno;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (gmtime_r(&ts.tv_sec, &tm) == NULL)
		memset(&tm, 0, sizeof(tm));
	(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	/*
	 * A line that is too long is cut in a string, or ends before a field. Both formats quote as
	 * JSON does.
	 */
	if (log_format == LOG_FORMAT_JSON)
		(void)buf_printf(&b, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"msg\":", when,
				 ts.tv_nsec / 1000000, level_names[level]);
	else
		(void)buf_printf(&b, "time=%s.%03ldZ level=%s msg=", when, ts.tv_nsec / 1000000,
				 level_names[level]);
	r = put_string(&b, msg);
	for (; r == 0 && n > 0; fields++, n--)
		r = put_field(&b, fields);
	b.max = 0; /* the end must fit */
	(void)buf_puts(&b, log_format == LOG_FORMAT_JSON ? "}\n" : "\n");
	if (b.len > 0 && write(STDERR_FILENO, b.data, b.len) < 0)
		errno = 0; /* nowhere left to report it */
	errno = saved;
}
