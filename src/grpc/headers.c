/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/headers.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "grpc/timeout.h"

#define FIELD_OVERHEAD 32 /* RFC 9113, section 6.5.2 */
#define CONTENT_TYPE "application/grpc"

enum seen {
	SEEN_METHOD = 1 << 0,
	SEEN_SCHEME = 1 << 1,
	SEEN_PATH = 1 << 2,
	SEEN_AUTHORITY = 1 << 3,
	SEEN_HOST = 1 << 4,
};

struct text {
	const char *s;
	size_t len;
};

static bool text_is(struct text t, const char *s)
{
	return t.len == strlen(s) && memcmp(t.s, s, t.len) == 0;
}

/* Set the bit. Return false if it was set before. */
static bool note_first(struct grpc_headers *h, enum seen which)
{
	if ((h->seen & which) != 0)
		return false;
	h->seen |= which;
	return true;
}

static void add_method(struct grpc_headers *h, struct text value)
{
	if (!note_first(h, SEEN_METHOD))
		h->malformed = true;
	h->is_post = text_is(value, "POST");
}

static void add_scheme(struct grpc_headers *h, struct text value)
{
	(void)value; /* http or https makes no difference on a unix socket */
	if (!note_first(h, SEEN_SCHEME))
		h->malformed = true;
}

static void add_path(struct grpc_headers *h, struct text value)
{
	if (!note_first(h, SEEN_PATH))
		h->malformed = true;
	if (value.len > GRPC_PATH_MAX)
		value.len = GRPC_PATH_MAX;
	memcpy(h->path, value.s, value.len);
	h->path[value.len] = '\0';
}

static void add_authority(struct grpc_headers *h, struct text value)
{
	(void)value; /* clients send a path, nothing, or localhost, depending on their target */
	if (!note_first(h, SEEN_AUTHORITY))
		h->bad = "more than one :authority";
}

static void add_host(struct grpc_headers *h, struct text value)
{
	(void)value;
	if (!note_first(h, SEEN_HOST))
		h->bad = "more than one host";
}

static void add_forbidden(struct grpc_headers *h, struct text value)
{
	(void)value; /* HTTP/1's connection-specific fields: RFC 9113, section 8.2.2 */
	h->malformed = true;
}

/* Accept application/grpc, optionally with "+proto" and parameters after a semicolon. */
static void add_content_type(struct grpc_headers *h, struct text value)
{
	static const char proto[] = "+proto";
	size_t n = strlen(CONTENT_TYPE);

	h->is_grpc = false;
	if (value.len < n || strncasecmp(value.s, CONTENT_TYPE, n) != 0)
		return;
	if (value.len - n >= strlen(proto) && strncasecmp(value.s + n, proto, strlen(proto)) == 0)
		n += strlen(proto);
	h->is_grpc = value.len == n || value.s[n] == ';' || value.s[n] == ' ';
}

static void add_timeout(struct grpc_headers *h, struct text value)
{
	if (grpc_timeout_parse(value.s, value.len, &h->timeout_ns) < 0)
		h->bad = "malformed grpc-timeout";
	else
		h->has_timeout = true;
}

static void add_encoding(struct grpc_headers *h, struct text value)
{
	h->encoded = value.len > 0 && !text_is(value, "identity");
}

static const struct {
	const char *name;
	void (*handle)(struct grpc_headers *h, struct text value);
} fields[] = {
	{ ":method", add_method },
	{ ":scheme", add_scheme },
	{ ":path", add_path },
	{ ":authority", add_authority },
	{ "host", add_host },
	{ "content-type", add_content_type },
	{ "grpc-timeout", add_timeout },
	{ "grpc-encoding", add_encoding },
	{ "connection", add_forbidden },
	{ "keep-alive", add_forbidden },
	{ "proxy-connection", add_forbidden },
	{ "transfer-encoding", add_forbidden },
	{ "upgrade", add_forbidden },
};

static bool is_base64(struct text t)
{
	size_t i, run = 0, pad = 0;

	/* Commas join several values; padding is optional. */
	for (i = 0; i < t.len; i++) {
		char c = t.s[i];
		bool digit = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
			     (c >= '0' && c <= '9') || c == '+' || c == '/';

		if (c == ',') {
			if (run % 4 == 1 || (pad > 0 && (run + pad) % 4 != 0))
				return false;
			run = pad = 0;
		} else if (c == '=' && pad < 2) {
			pad++;
		} else if (digit && pad == 0) {
			run++;
		} else {
			return false;
		}
	}
	return run % 4 != 1 && (pad == 0 || (run + pad) % 4 == 0);
}

static bool is_valid_name(struct text name)
{
	size_t i;

	for (i = 0; i < name.len; i++)
		if (name.s[i] >= 'A' && name.s[i] <= 'Z')
			return false;
	return nghttp2_check_header_name((const uint8_t *)name.s, name.len) != 0;
}

void grpc_headers_add(struct grpc_headers *h, const char *name_s, size_t name_len,
		      const char *value_s, size_t value_len)
{
	struct text name = { name_s, name_len };
	struct text value = { value_s, value_len };
	bool pseudo = name_len > 0 && name_s[0] == ':';
	size_t i;

	h->list_size += name_len + value_len + FIELD_OVERHEAD;
	if (h->list_size > GRPC_HEADER_LIST_MAX)
		return;
	if (!is_valid_name(name) ||
	    nghttp2_check_header_value((const uint8_t *)value_s, value_len) == 0 ||
	    (pseudo && h->has_regular)) {
		h->malformed = true;
		return;
	}
	if (!pseudo)
		h->has_regular = true;
	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		if (text_is(name, fields[i].name)) {
			fields[i].handle(h, value);
			return;
		}
	}
	if (pseudo)
		h->malformed = true;
	if (name_len > 4 && memcmp(name_s + name_len - 4, "-bin", 4) == 0 && !is_base64(value))
		h->bad = "malformed base64 in a -bin header";
}

/* Check in grpc-go's order. Don't require "te": some proxies drop it. */
int grpc_headers_check(const struct grpc_headers *h, int *ret_http_status, struct error *err)
{
	const unsigned int required = SEEN_METHOD | SEEN_SCHEME | SEEN_PATH;

	if (h->list_size > GRPC_HEADER_LIST_MAX) {
		*ret_http_status = 431;
		return error_set(err, ERROR_RESOURCE_EXHAUSTED,
				 "headers are larger than the limit of %u bytes",
				 GRPC_HEADER_LIST_MAX);
	}
	if (h->malformed || (h->seen & required) != required)
		return -EPROTO;
	if (!h->is_grpc) {
		*ret_http_status = 415;
		return error_set(err, ERROR_INVALID_ARGUMENT, "content-type is not " CONTENT_TYPE);
	}
	if (h->bad != NULL) {
		*ret_http_status = 400;
		return error_set(err, ERROR_INTERNAL, "%s", h->bad);
	}
	if (!h->is_post) {
		*ret_http_status = 405;
		return error_set(err, ERROR_INTERNAL, "gRPC requests use the method POST");
	}
	return 0;
}
