/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "check/steps.h"

static const struct {
	const char *word; /* in a line of text */
	const char *name; /* in JSON */
	const char *color;
} statuses[] = {
	[CHECK_OK] = { "ok", "ok", "\033[32m" },
	[CHECK_FAILED] = { "FAILED", "failed", "\033[31m" },
	[CHECK_WARNING] = { "warning", "warning", "\033[33m" },
	[CHECK_SKIPPED] = { "skipped", "skipped", "" },
};

__attribute__((format(printf, 2, 0))) static void format_text(struct buf *b, const char *fmt,
							      va_list ap)
{
	char *text = NULL;

	buf_done(b);
	if (vasprintf(&text, fmt, ap) < 0)
		return; /* out of memory: report the status only */
	(void)buf_puts(b, text);
	free(text);
}

void check_say(struct check_step *s, enum check_status status, const char *fmt, ...)
{
	va_list ap;

	s->status = status;
	va_start(ap, fmt);
	format_text(&s->text, fmt, ap);
	va_end(ap);
}

void check_hint(struct check_step *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	format_text(&s->hint, fmt, ap);
	va_end(ap);
}

void check_bytes_text(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	uint64_t whole = bytes, rest = 0;
	size_t unit;

	for (unit = 0; whole >= 1024 && unit + 1 < ARRAY_SIZE(units); unit++) {
		rest = whole % 1024;
		whole /= 1024;
	}
	if (unit == 0)
		(void)snprintf(text, size, "%" PRIu64 " B", whole);
	else
		(void)snprintf(text, size, "%" PRIu64 ".%" PRIu64 " %s", whole, rest * 10 / 1024,
			       units[unit]);
}

/* Return the length of a control character at p, else 0. In UTF-8, C1 controls have two bytes. */
static size_t control_len(const char *p, bool utf8)
{
	const unsigned char *u = (const unsigned char *)p;

	if (u[0] == 0xc2 && u[1] >= 0x80 && u[1] < 0xa0)
		return 2;
	return u[0] < 0x20 || u[0] == 0x7f || (u[0] >= 0x80 && !utf8) ? 1 : 0;
}

char *check_plain(const char *text)
{
	bool utf8 = str_is_utf8(text, strlen(text));
	char *copy = strdup(text), *p;

	for (p = copy; p != NULL && *p != '\0'; p++) {
		size_t len = control_len(p, utf8);

		memset(p, '?', len);
		p += len > 0 ? len - 1 : 0;
	}
	return copy;
}

static bool is_colored(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && str_is_empty(getenv("NO_COLOR")) &&
	       !(term != NULL && strcmp(term, "dumb") == 0);
}

void check_report_begin(struct check_report *r, const struct check *c)
{
	*r = (struct check_report){ .json = c->options.json, .color = is_colored() };
	if (!r->json)
		return;
	json_open(&r->out, NULL, '{');
	json_string(&r->out, "server", c->export.server);
	json_string(&r->out, "share", c->export.share);
	json_open(&r->out, "steps", '[');
}

static void print_step(const struct check_report *r, const struct check_step *s)
{
	cleanup_free char *text = check_plain(buf_text(&s->text));
	cleanup_free char *hint = check_plain(buf_text(&s->hint));
	const char *color = r->color ? statuses[s->status].color : "";

	printf("%s%-7s%s  %-9s  %s\n", color, statuses[s->status].word,
	       color[0] != '\0' ? "\033[0m" : "", s->name, text != NULL ? text : "");
	if (!str_is_empty(hint))
		printf("%20s-> %s\n", "", hint);
	(void)fflush(stdout); /* check_report_end() reports errors */
}

static void add_json_step(struct check_report *r, struct check_step *s)
{
	json_close(&s->data, '}');
	json_open(&r->out, NULL, '{');
	json_string(&r->out, "name", s->name);
	json_string(&r->out, "status", statuses[s->status].name);
	json_string(&r->out, "text", buf_text(&s->text));
	json_string(&r->out, "hint", buf_text(&s->hint));
	if (s->data.error == 0)
		json_raw(&r->out, "data", buf_text(&s->data.text));
	else
		r->out.error = s->data.error;
	json_close(&r->out, '}');
}

void check_report_step(struct check_report *r, struct check_step *s)
{
	r->counts[s->status]++;
	if (r->json)
		add_json_step(r, s);
	else
		print_step(r, s);
}

static int print_json(struct check_report *r)
{
	json_close(&r->out, ']');
	json_bool(&r->out, "ok", r->counts[CHECK_FAILED] == 0);
	json_close(&r->out, '}');
	if (r->out.error < 0)
		return r->out.error;
	printf("%s\n", r->out.text.data);
	return 0;
}

int check_report_end(struct check_report *r)
{
	int e = 0;

	if (r->json)
		e = print_json(r);
	else
		printf("\n%u ok, %u failed, %u warnings, %u skipped\n", r->counts[CHECK_OK],
		       r->counts[CHECK_FAILED], r->counts[CHECK_WARNING], r->counts[CHECK_SKIPPED]);
	json_done(&r->out);
	if (fflush(stdout) != 0 || ferror(stdout))
		e = -EIO;
	return e;
}
