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

static void put_fields(struct buf *b, const struct log_field *fields, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (log_format == LOG_FORMAT_JSON)
			(void)buf_printf(b, ",\"%s\":", fields[i].key);
		else
			(void)buf_printf(b, " %s=", fields[i].key);
		if (fields[i].str != NULL)
			(void)json_put_quoted(b, fields[i].str);
		else
			(void)buf_printf(b, "%" PRId64, fields[i].num);
	}
}

void log_write(enum log_level level, const char *msg, const struct log_field *fields, size_t n)
{
	cleanup_buf struct buf b = { .max = 8192 };
	struct timespec ts;
	struct tm tm;
	char when[32];
	int saved = errno;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (gmtime_r(&ts.tv_sec, &tm) == NULL)
		memset(&tm, 0, sizeof(tm));
	(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	/* Ignore errors: a line that is too long is truncated. Both formats quote as JSON does. */
	if (log_format == LOG_FORMAT_JSON)
		(void)buf_printf(&b, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"msg\":", when,
				 ts.tv_nsec / 1000000, level_names[level]);
	else
		(void)buf_printf(&b, "time=%s.%03ldZ level=%s msg=", when, ts.tv_nsec / 1000000,
				 level_names[level]);
	(void)json_put_quoted(&b, msg);
	put_fields(&b, fields, n);
	if (log_format == LOG_FORMAT_JSON)
		(void)buf_puts(&b, "}");
	b.max = 0; /* the newline must fit */
	(void)buf_puts(&b, "\n");
	if (b.len > 0 && write(STDERR_FILENO, b.data, b.len) < 0)
		errno = 0; /* nowhere left to report it */
	errno = saved;
}
