/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* base/error.h uses gRPC's numbers without including gRPC. */
_Static_assert(ERROR_OK == 0, "gRPC status codes");
_Static_assert(ERROR_CANCELLED == 1, "gRPC status codes");
_Static_assert(ERROR_UNKNOWN == 2, "gRPC status codes");
_Static_assert(ERROR_INVALID_ARGUMENT == 3, "gRPC status codes");
_Static_assert(ERROR_DEADLINE_EXCEEDED == 4, "gRPC status codes");
_Static_assert(ERROR_NOT_FOUND == 5, "gRPC status codes");
_Static_assert(ERROR_ALREADY_EXISTS == 6, "gRPC status codes");
_Static_assert(ERROR_PERMISSION_DENIED == 7, "gRPC status codes");
_Static_assert(ERROR_RESOURCE_EXHAUSTED == 8, "gRPC status codes");
_Static_assert(ERROR_FAILED_PRECONDITION == 9, "gRPC status codes");
_Static_assert(ERROR_ABORTED == 10, "gRPC status codes");
_Static_assert(ERROR_OUT_OF_RANGE == 11, "gRPC status codes");
_Static_assert(ERROR_UNIMPLEMENTED == 12, "gRPC status codes");
_Static_assert(ERROR_INTERNAL == 13, "gRPC status codes");
_Static_assert(ERROR_UNAVAILABLE == 14, "gRPC status codes");
_Static_assert(ERROR_DATA_LOSS == 15, "gRPC status codes");
_Static_assert(ERROR_UNAUTHENTICATED == 16, "gRPC status codes");
_Static_assert(ERROR_CODE_LAST == 16, "gRPC status codes");

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define UTF8_MAX 4

void grpc_status_code(enum error_code code, char ret[GRPC_STATUS_CODE_SIZE])
{
	unsigned int n = (unsigned int)code;

	if (n > ERROR_CODE_LAST)
		n = ERROR_UNKNOWN;
	(void)snprintf(ret, GRPC_STATUS_CODE_SIZE, "%u", n);
}

/* Return the length of the character at s, or 0 if none begins there. left > 0. */
static size_t char_len(const char *s, size_t left)
{
	size_t n;

	for (n = 1; n <= UTF8_MAX && n <= left; n++)
		if (str_is_utf8(s, n))
			return n;
	return 0;
}

/* Encode a character. Return the bytes written, 0 if they do not fit into room. */
static size_t put_encoded(const char *s, size_t n, char *out, size_t room)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t i;

	if (n == 1 && s[0] >= 0x20 && s[0] <= 0x7e && s[0] != '%') {
		if (room < 1)
			return 0;
		out[0] = s[0];
		return 1;
	}
	if (room < 3 * n)
		return 0;
	for (i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		out[3 * i] = '%';
		out[3 * i + 1] = hex[c >> 4];
		out[3 * i + 2] = hex[c & 0xf];
	}
	return 3 * n;
}

size_t grpc_status_message(const char *message, char *ret, size_t size)
{
	size_t left = strlen(message);
	size_t len = 0;

	while (left > 0) {
		size_t n = char_len(message, left);
		size_t put;

		if (n > 0) {
			put = put_encoded(message, n, ret + len, size - 1 - len);
		} else {
			if (str_is_cut_char(message, left))
				break;
			n = 1;
			put = put_encoded(REPLACEMENT, strlen(REPLACEMENT), ret + len,
					  size - 1 - len);
		}
		if (put == 0)
			break;
		len += put;
		message += n;
		left -= n;
	}
	ret[len] = '\0';
	return len;
}

enum log_level grpc_status_log_level(enum error_code code)
{
	switch (code) {
	case ERROR_OK:
		return LOG_LEVEL_DEBUG;
	case ERROR_CANCELLED:
	case ERROR_INVALID_ARGUMENT:
	case ERROR_NOT_FOUND:
	case ERROR_ALREADY_EXISTS:
	case ERROR_FAILED_PRECONDITION:
	case ERROR_ABORTED:
	case ERROR_OUT_OF_RANGE:
	case ERROR_UNIMPLEMENTED:
		return LOG_LEVEL_INFO;
	case ERROR_UNKNOWN:
	case ERROR_DEADLINE_EXCEEDED:
	case ERROR_PERMISSION_DENIED:
	case ERROR_RESOURCE_EXHAUSTED:
	case ERROR_INTERNAL:
	case ERROR_UNAVAILABLE:
	case ERROR_DATA_LOSS:
	case ERROR_UNAUTHENTICATED:
		break;
	}
	return LOG_LEVEL_WARN;
}
