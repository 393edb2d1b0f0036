/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"

/* A quotation mark, a brace and a newline, which fit behind a string that is cut. */
#define END_BYTES 3

/*
 * How long to wait until whoever reads the log goes on, and for how long after that not to wait:
 * lines are lost then, because the event loop writes some of them.
 */
#define PATIENCE_MS 1000
#define HURRY_MS 10000

static pthread_mutex_t output_lock =
	PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and keeps lines whole; innermost */
static uint64_t lost; /* lines, since the last one that was written */
static bool is_torn; /* the last line has no end */
static uint64_t waited_ns; /* since a write that did not have to wait */
static uint64_t hurry_until_ns;

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

static void put_line(struct buf *b, enum log_level level, const char *msg,
		     const struct log_field *fields, size_t n)
{
	struct timespec ts;
	struct tm tm;
	char when[32];
	int r;

	b->max = LOG_LINE_MAX - END_BYTES;
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (gmtime_r(&ts.tv_sec, &tm) == NULL)
		memset(&tm, 0, sizeof(tm));
	(void)strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	/*
	 * A line that is too long is cut in a string, or ends before a field. Both formats quote as
	 * JSON does.
	 */
	if (log_format == LOG_FORMAT_JSON)
		(void)buf_printf(b, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"msg\":", when,
				 ts.tv_nsec / 1000000, level_names[level]);
	else
		(void)buf_printf(b, "time=%s.%03ldZ level=%s msg=", when, ts.tv_nsec / 1000000,
				 level_names[level]);
	r = put_string(b, msg);
	for (; r == 0 && n > 0; fields++, n--)
		r = put_field(b, fields);
	b->max = 0; /* the end must fit */
	(void)buf_puts(b, log_format == LOG_FORMAT_JSON ? "}\n" : "\n");
}

static bool has_room(void)
{
	const uint64_t begun_ns = clock_now_ns();
	const bool hurries = begun_ns < hurry_until_ns;
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	uint64_t now_ns;
	int n;

	do {
		n = poll(&p, 1, hurries ? 0 : PATIENCE_MS);
	} while (n < 0 && errno == EINTR);
	now_ns = clock_now_ns();
	waited_ns = now_ns - begun_ns < CLOCK_NS_PER_MS ? 0 : waited_ns + now_ns - begun_ns;
	/* A reader that is slow all the time must not take more than one that has stopped. */
	if (!hurries && (n == 0 || waited_ns >= PATIENCE_MS * CLOCK_NS_PER_MS))
		hurry_until_ns = now_ns + HURRY_MS * CLOCK_NS_PER_MS;
	return n != 0; /* after an error, write() tells what is wrong */
}

/* Return false if nobody reads. A pipe that has room takes PIPE_BUF bytes and does not block. */
static bool write_bytes(const char *bytes, size_t len)
{
	ssize_t n;

	while (len > 0) {
		if (!has_room())
			return false;
		n = write(STDERR_FILENO, bytes, len < PIPE_BUF ? len : PIPE_BUF);
		if (n < 0 && errno != EINTR)
			return errno != EAGAIN; /* nowhere left to report another error */
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
			is_torn = len > 0;
		}
	}
	return true;
}

static bool write_lost(void)
{
	const struct log_field lines = LOG_NUM("lines", lost);
	cleanup_buf struct buf b = { .len = 0 };

	put_line(&b, LOG_LEVEL_WARN, "Lines of the log were lost, because nobody read it", &lines,
		 1);
	return write_bytes(b.data, b.len);
}

void log_write(enum log_level level, const char *msg, const struct log_field *fields, size_t n)
{
	cleanup_buf struct buf b = { .len = 0 };
	const int saved = errno;

	put_line(&b, level, msg, fields, n);
	pthread_mutex_lock(&output_lock);
	if (is_torn)
		(void)write_bytes("\n", 1);
	if (!is_torn && lost > 0 && write_lost())
		lost = 0;
	if (is_torn || lost > 0 || !write_bytes(b.data, b.len))
		lost++;
	pthread_mutex_unlock(&output_lock);
	errno = saved;
}
