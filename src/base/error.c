/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static const struct {
	const char *name;
	int sys; /* errno whose negative error_set() returns */
} codes[] = {
	[ERROR_OK] = { "OK", EINVAL },
	[ERROR_CANCELLED] = { "CANCELLED", ECANCELED },
	[ERROR_UNKNOWN] = { "UNKNOWN", EIO },
	[ERROR_INVALID_ARGUMENT] = { "INVALID_ARGUMENT", EINVAL },
	[ERROR_DEADLINE_EXCEEDED] = { "DEADLINE_EXCEEDED", ETIMEDOUT },
	[ERROR_NOT_FOUND] = { "NOT_FOUND", ENOENT },
	[ERROR_ALREADY_EXISTS] = { "ALREADY_EXISTS", EEXIST },
	[ERROR_PERMISSION_DENIED] = { "PERMISSION_DENIED", EACCES },
	[ERROR_RESOURCE_EXHAUSTED] = { "RESOURCE_EXHAUSTED", ENOSPC },
	[ERROR_FAILED_PRECONDITION] = { "FAILED_PRECONDITION", EBUSY },
	[ERROR_ABORTED] = { "ABORTED", EAGAIN },
	[ERROR_OUT_OF_RANGE] = { "OUT_OF_RANGE", ERANGE },
	[ERROR_UNIMPLEMENTED] = { "UNIMPLEMENTED", ENOSYS },
	[ERROR_INTERNAL] = { "INTERNAL", EIO },
	[ERROR_UNAVAILABLE] = { "UNAVAILABLE", EHOSTUNREACH },
	[ERROR_DATA_LOSS] = { "DATA_LOSS", EIO },
	[ERROR_UNAUTHENTICATED] = { "UNAUTHENTICATED", EPERM },
};

static bool is_known_code(enum error_code code)
{
	return (unsigned int)code <= ERROR_CODE_LAST;
}

const char *error_code_name(enum error_code code)
{
	return is_known_code(code) ? codes[code].name : codes[ERROR_UNKNOWN].name;
}

__attribute__((format(printf, 4, 0))) static void set_first(struct error *err, enum error_code code,
							    int sys, const char *fmt, va_list ap)
{
	if (err == NULL || err->code != ERROR_OK)
		return;
	err->code = code;
	err->sys = sys;
	(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap); /* truncates */
}

/*
 * Paths of a server have any bytes, and a long text is cut anywhere. Replies carry messages in
 * protobuf strings, and a client refuses the whole reply if one of them is not UTF-8.
 */
static void make_utf8(struct error *err)
{
	if (err != NULL)
		str_make_utf8(err->msg);
}

int error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set_first(err, code, 0, fmt, ap);
	va_end(ap);
	make_utf8(err);
	return is_known_code(code) ? -codes[code].sys : -EIO;
}

int error_sys(struct error *err, enum error_code code, int sys, const char *fmt, ...)
{
	bool first = err != NULL && err->code == ERROR_OK;
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	set_first(err, code, sys, fmt, ap);
	va_end(ap);
	if (first) {
		len = strlen(err->msg);
		(void)snprintf(err->msg + len, sizeof(err->msg) - len, ": %s", strerror(sys));
	}
	make_utf8(err);
	return -sys;
}

int error_oom(struct error *err)
{
	return error_sys(err, ERROR_RESOURCE_EXHAUSTED, ENOMEM, "csi-nfs is out of memory");
}

void error_prefix(struct error *err, const char *fmt, ...)
{
	const size_t last = sizeof(err->msg) - 1;
	char old[ERROR_MESSAGE_SIZE];
	size_t len, rest;
	va_list ap;

	if (err == NULL || err->code == ERROR_OK)
		return;
	memcpy(old, err->msg, sizeof(old));
	va_start(ap, fmt);
	(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	len = strlen(err->msg);
	if (len + 2 < last) {
		memcpy(err->msg + len, ": ", 2);
		rest = strnlen(old, last - len - 2);
		memcpy(err->msg + len + 2, old, rest);
		err->msg[len + 2 + rest] = '\0';
	}
	make_utf8(err);
}

void error_clear(struct error *err)
{
	if (err != NULL)
		*err = (struct error){ .code = ERROR_OK };
}

bool error_is_final(enum error_code code)
{
	return code != ERROR_CANCELLED && code != ERROR_DEADLINE_EXCEEDED &&
	       code != ERROR_UNAVAILABLE && code != ERROR_ABORTED;
}
