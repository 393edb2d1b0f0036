/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "grpc/headers.h"
#include "check_util.h"

#define RESET (-1) /* HTTP status that stands for a reset of the stream */
#define GOOD 0
#define PLAIN                                                                                      \
	":method: POST\n:scheme: http\n:path: /a.B/C\n:authority: localhost\n"                     \
	"content-type: application/grpc\nte: trailers\n"

/* Fields are "name: value" lines. */
static const struct {
	const char *name;
	const char *fields;
	int http_status;
	enum error_code code;
} rows[] = {
	{ "plain", PLAIN, GOOD, ERROR_OK },
	{ "path as authority",
	  ":authority: /a/csi.sock\n:method: POST\n:scheme: http\n:path: /a\n"
	  "content-type: application/grpc\n",
	  GOOD, ERROR_OK },
	{ "empty value", PLAIN "x: \n", GOOD, ERROR_OK },
	{ "grpc-encoding", PLAIN "grpc-encoding: gzip\n", GOOD, ERROR_OK },
	{ "base64, padded", PLAIN "x-bin: YQ==\n", GOOD, ERROR_OK },
	{ "base64, not padded", PLAIN "x-bin: YQ\n", GOOD, ERROR_OK },
	{ "base64, a list", PLAIN "x-bin: YQ==,YWI=,YWJj,\n", GOOD, ERROR_OK },
	{ "base64, impossible length", PLAIN "x-bin: YWJjY\n", 400, ERROR_INTERNAL },
	{ "base64, padding too short", PLAIN "x-bin: YQ=\n", 400, ERROR_INTERNAL },
	{ "base64, padding within", PLAIN "x-bin: YQ==YQ\n", 400, ERROR_INTERNAL },
	{ "base64, wrong digit", PLAIN "x-bin: Y_Q=\n", 400, ERROR_INTERNAL },
	{ "timeout", PLAIN "grpc-timeout: 10S\n", GOOD, ERROR_OK },
	{ "bad timeout", PLAIN "grpc-timeout: 10\n", 400, ERROR_INTERNAL },
	{ "two authorities", ":authority: a\n" PLAIN, 400, ERROR_INTERNAL },
	{ "two hosts", PLAIN "host: a\nhost: b\n", 400, ERROR_INTERNAL },
	{ "two paths", ":path: /x/y\n" PLAIN, RESET, ERROR_OK },
	{ "two methods", ":method: POST\n" PLAIN, RESET, ERROR_OK },
	{ "two schemes", ":scheme: http\n" PLAIN, RESET, ERROR_OK },
	{ "unknown pseudo field", ":protocol: x\n" PLAIN, RESET, ERROR_OK },
	{ "pseudo field too late", PLAIN ":authority: x\n", RESET, ERROR_OK },
	{ "upper case", PLAIN "Te: trailers\n", RESET, ERROR_OK },
	{ "space in a name", PLAIN "a b: c\n", RESET, ERROR_OK },
	{ "control character in a value", PLAIN "a: \x01\n", RESET, ERROR_OK },
	{ "connection", PLAIN "connection: close\n", RESET, ERROR_OK },
	{ "upgrade", PLAIN "upgrade: h2c\n", RESET, ERROR_OK },
	{ "keep-alive", PLAIN "keep-alive: 1\n", RESET, ERROR_OK },
	{ "nothing", "", RESET, ERROR_OK },
	{ "no path", ":method: POST\n:scheme: http\ncontent-type: application/grpc\n", RESET,
	  ERROR_OK },
	{ "GET", ":method: GET\n:scheme: http\n:path: /a/b\ncontent-type: application/grpc\n", 405,
	  ERROR_INTERNAL },
	{ "no content-type", ":method: POST\n:scheme: http\n:path: /a/b\n", 415,
	  ERROR_INVALID_ARGUMENT },
	{ "web", PLAIN "content-type: application/grpc-web\n", 415, ERROR_INVALID_ARGUMENT },
	{ "json", PLAIN "content-type: application/grpc+json\n", 415, ERROR_INVALID_ARGUMENT },
	{ "prefix of proto", PLAIN "content-type: application/grpc+protox\n", 415,
	  ERROR_INVALID_ARGUMENT },
	{ "proto", PLAIN "content-type: application/grpc+proto\n", GOOD, ERROR_OK },
	{ "parameter", PLAIN "content-type: application/grpc;charset=x\n", GOOD, ERROR_OK },
	{ "upper-case content-type", PLAIN "content-type: Application/GRPC\n", GOOD, ERROR_OK },
	{ "malformed goes before wrong type", ":x: y\n:method: GET\n", RESET, ERROR_OK },
};

static void add_lines(struct grpc_headers *h, const char *lines)
{
	while (lines[0] != '\0') {
		size_t len = strcspn(lines, "\n");
		/* Find the colon after the name, not the first one of a pseudo-header. */
		size_t colon = 1 + strcspn(lines + 1, ":");

		grpc_headers_add(h, lines, colon, lines + colon + 2, len - colon - 2);
		lines += len + 1;
	}
}

START_TEST(test_rows)
{
	struct grpc_headers h = { .list_size = 0 };
	struct error err = { .code = ERROR_OK };
	int http_status = GOOD;
	int r;

	add_lines(&h, rows[_i].fields);
	r = grpc_headers_check(&h, &http_status, &err);
	if (r == -EPROTO)
		http_status = RESET;
	ck_assert_msg(http_status == rows[_i].http_status && err.code == rows[_i].code &&
			      (r < 0) == (rows[_i].http_status != GOOD),
		      "%s: got %d, HTTP %d, %s", rows[_i].name, r, http_status,
		      error_code_name(err.code));
}
END_TEST

START_TEST(test_values)
{
	struct grpc_headers h = { .list_size = 0 };

	add_lines(&h, PLAIN "grpc-timeout: 3n\ngrpc-encoding: gzip\n");
	ck_assert_str_eq(h.path, "/a.B/C");
	ck_assert(h.has_timeout && h.encoded);
	ck_assert_uint_eq(h.timeout_ns, 3);
	add_lines(&h, "grpc-encoding: identity\n");
	ck_assert(!h.encoded);
}
END_TEST

START_TEST(test_limits)
{
	struct grpc_headers h = { .list_size = 0 };
	struct error err = { .code = ERROR_OK };
	char value[GRPC_HEADER_LIST_MAX];
	int http_status = GOOD;

	memset(value, 'a', sizeof(value));
	grpc_headers_add(&h, ":path", 5, value, sizeof(value) - 5 - 32);
	ck_assert_uint_eq(h.list_size, GRPC_HEADER_LIST_MAX);
	ck_assert_uint_eq(strlen(h.path), GRPC_PATH_MAX);
	ck_assert(!h.malformed);
	grpc_headers_add(&h, "b", 1, "", 0);
	ck_assert_int_lt(grpc_headers_check(&h, &http_status, &err), 0);
	ck_assert_int_eq(http_status, 431);
	ck_assert_int_eq(err.code, ERROR_RESOURCE_EXHAUSTED);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("grpc_headers");

	tcase_add_loop_test(tcase, test_rows, 0, (int)ARRAY_SIZE(rows));
	tcase_add_test(tcase, test_values);
	tcase_add_test(tcase, test_limits);
	return check_run_case("grpc_headers", tcase);
}
