/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "grpc/frame.h"
#include "grpc/limits.h"
#include "check_util.h"

/* Feed the bytes of a whole request in pieces of every size. */
static const struct row {
	const char *name;
	const char *bytes;
	size_t n;
	bool encoded;
	enum error_code code;
	const char *message; /* where code is OK */
} rows[] = {
#define BYTES(s) s, sizeof(s) - 1
	{ "empty message", BYTES("\0\0\0\0\0"), false, ERROR_OK, "" },
	{ "a message", BYTES("\0\0\0\0\3abc"), false, ERROR_OK, "abc" },
	{ "uncompressed despite an encoding", BYTES("\0\0\0\0\1a"), true, ERROR_OK, "a" },
	{ "nothing", BYTES(""), false, ERROR_INTERNAL, NULL },
	{ "half a prefix", BYTES("\0\0"), false, ERROR_INTERNAL, NULL },
	{ "prefix only", BYTES("\0\0\0\0\3"), false, ERROR_INTERNAL, NULL },
	{ "half a message", BYTES("\0\0\0\0\3ab"), false, ERROR_INTERNAL, NULL },
	{ "two messages", BYTES("\0\0\0\0\1a\0\0\0\0\1b"), false, ERROR_INTERNAL, NULL },
	{ "a byte too many", BYTES("\0\0\0\0\1ab"), false, ERROR_INTERNAL, NULL },
	{ "a byte after the empty message", BYTES("\0\0\0\0\0\0"), false, ERROR_INTERNAL, NULL },
	{ "compressed, no encoding", BYTES("\1\0\0\0\1a"), false, ERROR_INTERNAL, NULL },
	{ "compressed, an encoding", BYTES("\1\0\0\0\1a"), true, ERROR_UNIMPLEMENTED, NULL },
	{ "flag 2", BYTES("\2\0\0\0\1a"), false, ERROR_INTERNAL, NULL },
	{ "flag 255", BYTES("\xff\0\0\0\1a"), true, ERROR_INTERNAL, NULL },
	{ "4 MiB and a byte", BYTES("\0\0\x40\0\1a"), false, ERROR_RESOURCE_EXHAUSTED, NULL },
	{ "4 GiB", BYTES("\0\xff\xff\xff\xff"), false, ERROR_RESOURCE_EXHAUSTED, NULL },
};

static void feed_in_pieces(const struct row *row, size_t piece)
{
	struct grpc_frame f = { .encoded = row->encoded };
	struct error err = { .code = ERROR_OK };
	uint8_t *data;
	size_t i, len;
	int r = 0;

	for (i = 0; i < row->n && r == 0; i += piece) {
		size_t n = row->n - i < piece ? row->n - i : piece;

		r = grpc_frame_feed(&f, (const uint8_t *)row->bytes + i, n, &err);
	}
	if (r == 0)
		r = grpc_frame_end(&f, &err);
	ck_assert_msg(err.code == row->code && (r < 0) == (row->code != ERROR_OK),
		      "%s in pieces of %zu: got %s (%d), want %s", row->name, piece,
		      error_code_name(err.code), r, error_code_name(row->code));
	if (r == 0) {
		data = grpc_frame_steal(&f, &len);
		ck_assert_msg(len == strlen(row->message), "%s: %zu bytes", row->name, len);
		if (len > 0)
			ck_assert_msg(memcmp(data, row->message, len) == 0, "%s", row->name);
		free(data);
	} else {
		ck_assert_msg(err.msg[0] != '\0', "%s: no message", row->name);
	}
	grpc_frame_done(&f);
}

START_TEST(test_rows)
{
	const struct row *row = &rows[_i];
	size_t piece;

	for (piece = 1; piece <= row->n + 1; piece++)
		feed_in_pieces(row, piece);
}
END_TEST

START_TEST(test_memory_follows_bytes)
{
	struct grpc_frame f = { .encoded = false };
	static const uint8_t prefix[] = { 0, 0, 0x40, 0, 0 }; /* 4 MiB, the largest */
	static uint8_t chunk[16384];
	size_t i;

	ck_assert_int_eq(grpc_frame_feed(&f, prefix, sizeof(prefix), NULL), 0);
	ck_assert_uint_eq(f.cap, 0);
	ck_assert_int_eq(grpc_frame_feed(&f, chunk, 1, NULL), 0);
	ck_assert_uint_le(f.cap, 512);
	for (i = 1; i + sizeof(chunk) <= GRPC_MESSAGE_MAX; i += sizeof(chunk)) {
		ck_assert_int_eq(grpc_frame_feed(&f, chunk, sizeof(chunk), NULL), 0);
		ck_assert_uint_le(f.cap, 2 * f.len);
	}
	ck_assert_int_eq(grpc_frame_feed(&f, chunk, GRPC_MESSAGE_MAX - i, NULL), 0);
	ck_assert_uint_eq(f.cap, GRPC_MESSAGE_MAX);
	ck_assert_int_eq(grpc_frame_end(&f, NULL), 0);
	grpc_frame_done(&f);
	ck_assert_ptr_null(f.data);
}
END_TEST

START_TEST(test_prefix)
{
	uint8_t prefix[GRPC_FRAME_PREFIX_SIZE];

	grpc_frame_prefix(prefix, 0x01020304);
	ck_assert_mem_eq(prefix, "\0\1\2\3\4", sizeof(prefix));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("grpc_frame");

	tcase_add_loop_test(tcase, test_rows, 0, (int)ARRAY_SIZE(rows));
	tcase_add_test(tcase, test_memory_follows_bytes);
	tcase_add_test(tcase, test_prefix);
	return check_run_case("grpc_frame", tcase);
}
