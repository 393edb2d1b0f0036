/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The codec of extended attributes (RFC 8276): what is sent, and replies that are torn or wrong. */

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "net/zdr.h"
#include "nfs/op.h"
#include "nfs/v4_compound.h"
#include "check_util.h"

#define BYTES 4096

struct message {
	char bytes[BYTES];
	uint32_t len;
};

static void put(struct message *m, uint32_t n)
{
	const uint32_t be = htonl(n);

	memcpy(m->bytes + m->len, &be, sizeof(be));
	m->len += 4;
}

static void put_text(struct message *m, const char *text)
{
	const uint32_t n = (uint32_t)strlen(text);

	put(m, n);
	memset(m->bytes + m->len, 0, n + 3);
	memcpy(m->bytes + m->len, text, n);
	m->len += (n + 3) & ~3U;
}

static void check_sent(const char *row, enum v4_later_opnum opnum, const union v4_later_args *args,
		       const struct message *want)
{
	struct message got = { .len = 0 };
	ZDR zdr;

	zdrmem_create(&zdr, got.bytes, BYTES, ZDR_ENCODE);
	check_that(row, "it fits", v4_later_encode(&zdr, opnum, args));
	got.len = zdr_getpos(&zdr);
	zdr_destroy(&zdr);
	check_int(row, "length", got.len, want->len);
	check_that(row, "bytes are right", memcmp(got.bytes, want->bytes, got.len) == 0);
}

START_TEST(test_requests)
{
	const union v4_later_args get = { .getxattr = "name" };
	const union v4_later_args set = { .setxattr = { "n", "value", 5 } };
	const union v4_later_args list = { .listxattrs = { 0x100000002, 77 } };
	struct message m = { .len = 0 };

	put(&m, 72);
	put_text(&m, "name");
	check_sent("GETXATTR", V4_OP_GETXATTR, &get, &m);
	m.len = 0;
	put(&m, 73);
	put(&m, 0); /* EITHER */
	put_text(&m, "n");
	put_text(&m, "value");
	check_sent("SETXATTR", V4_OP_SETXATTR, &set, &m);
	m.len = 0;
	put(&m, 74);
	put(&m, 1);
	put(&m, 2);
	put(&m, 77);
	check_sent("LISTXATTRS", V4_OP_LISTXATTRS, &list, &m);
}
END_TEST

/* Decode a result without its number. The copy ends where the reply does, for sanitizers. */
static bool decode(const struct message *m, uint32_t len, uint32_t opnum,
		   void (*look)(const union v4_later_result *result))
{
	char *bytes = malloc(len > 0 ? len : 1);
	nfs_resop4 one;
	bool fits;
	ZDR zdr;

	ck_assert(bytes != NULL);
	memcpy(bytes, m->bytes, len);
	memset(&one, 0, sizeof(one));
	zdrmem_create(&zdr, bytes, len, ZDR_DECODE);
	fits = v4_later_decode(&zdr, opnum, &one);
	if (fits && look != NULL)
		look(v4_later_result(&one));
	zdr_destroy(&zdr);
	free(bytes);
	return fits;
}

static void look_at_value(const union v4_later_result *result)
{
	check_int("value", "length", result->getxattr.len, 6);
	check_that("value", "bytes", memcmp(result->getxattr.data, "values", 6) == 0);
}

static void look_at_names(const union v4_later_result *result)
{
	check_int("names", "cookie", result->listxattrs.cookie, 7);
	check_int("names", "number", result->listxattrs.n, 2);
	check_int("names", "first", result->listxattrs.names[0].len, 1);
	check_int("names", "second", result->listxattrs.names[1].len, 5);
	check_that("names", "end", result->listxattrs.eof);
}

/* Each prefix of a reply is refused. */
static void check_torn(const char *row, const struct message *m, uint32_t opnum,
		       void (*look)(const union v4_later_result *result))
{
	uint32_t len;

	for (len = 0; len < m->len; len++)
		check_that(row, "a torn reply is refused", !decode(m, len, opnum, look));
	check_that(row, "the whole one is taken", decode(m, m->len, opnum, look));
}

START_TEST(test_replies)
{
	struct message m = { .len = 0 };

	put(&m, 0);
	put_text(&m, "values");
	check_torn("GETXATTR", &m, 72, look_at_value);
	m.len = 0;
	put(&m, 0);
	put(&m, 1); /* atomic */
	put(&m, 0);
	put(&m, 1);
	put(&m, 0);
	put(&m, 2);
	check_torn("SETXATTR", &m, 73, NULL);
	m.len = 0;
	put(&m, 0);
	put(&m, 0);
	put(&m, 7); /* cookie */
	put(&m, 2);
	put_text(&m, "a");
	put_text(&m, "bcdef");
	put(&m, 1);
	check_torn("LISTXATTRS", &m, 74, look_at_names);
	m.len = 0;
	put(&m, 10095);
	check_torn("an error", &m, 72, NULL);
}
END_TEST

START_TEST(test_hostile)
{
	static const struct {
		const char *name;
		uint32_t opnum, words[8], n;
	} rows[] = {
		{ "a value without end", 72, { 0, 0xffffffff, 1 }, 3 },
		{ "a value that is too long", 72, { 0, 9, 1, 1 }, 4 },
		{ "atomic is no boolean", 73, { 0, 2, 0, 0, 0, 0 }, 6 },
		{ "names without end", 74, { 0, 0, 1, 0xffffffff, 0, 0, 0, 0 }, 8 },
		{ "more names than fit", 74, { 0, 0, 1, 2049, 0, 0, 0, 1 }, 8 },
		{ "a name without end", 74, { 0, 0, 1, 1, 0xfffffffd, 1, 1, 1 }, 8 },
		{ "the end is no boolean", 74, { 0, 0, 1, 0, 5 }, 5 },
	};
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct message m = { .len = 0 };

		for (k = 0; k < rows[i].n; k++)
			put(&m, rows[i].words[k]);
		check_that(rows[i].name, "it is refused", !decode(&m, m.len, rows[i].opnum, NULL));
	}
}
END_TEST

/* Whether a file system has them: asked for alone, and believed only if it is said alone. */
START_TEST(test_support)
{
	static const struct {
		const char *name;
		uint32_t words[4], n;
		uint32_t values[2], n_values; /* in words */
		bool want;
	} rows[] = {
		{ "yes", { 0, 0, 1U << 18 }, 3, { 1 }, 1, true },
		{ "no", { 0, 0, 1U << 18 }, 3, { 0 }, 1, false },
		{ "left out", { 0, 0, 0 }, 3, { 0 }, 0, false },
		{ "no mask", { 0 }, 0, { 0 }, 0, false },
		{ "two words", { 0, 0 }, 2, { 1 }, 1, false },
		{ "four words", { 0, 0, 1U << 18, 1 }, 4, { 1, 1 }, 2, false },
		{ "something else", { 1, 0, 1U << 18 }, 3, { 1, 1 }, 2, false },
		{ "no value", { 0, 0, 1U << 18 }, 3, { 0 }, 0, false },
		{ "no boolean", { 0, 0, 1U << 18 }, 3, { 2 }, 1, false },
	};
	const bitmap4 asked = v4_mask(V4_XATTRS);
	size_t i, k;

	check_int("mask", "words", asked.bitmap4_len, 3);
	check_int("mask", "third", asked.bitmap4_val[2], 1U << 18);
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t words[4], values[2];
		fattr4 attr = { .attrmask = { rows[i].n, words } };

		memcpy(words, rows[i].words, sizeof(words));
		for (k = 0; k < ARRAY_SIZE(values); k++)
			values[k] = htonl(rows[i].values[k]);
		attr.attr_vals.attrlist4_len = rows[i].n_values * 4;
		attr.attr_vals.attrlist4_val = (char *)values;
		check_int(rows[i].name, "has", v4_take_xattrs(&attr), rows[i].want);
	}
}
END_TEST

/* Versions without extended attributes refuse them before anything is sent. */
START_TEST(test_versions)
{
	static const enum nfs_op_type types[] = { NFS_OP_XATTR_SUPPORT, NFS_OP_GETXATTR,
						  NFS_OP_SETXATTR, NFS_OP_LISTXATTRS };
	const struct nfs_handle handle = { .len = 4 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		struct nfs_connection conn = { .protocol = NULL };
		struct nfs_op op = { .type = types[i], .dir = &handle, .name = "a" };

		check_int("version 3", "result", nfs_protocol_v3.start(&conn, &op), -EOPNOTSUPP);
		conn.client.version = 4;
		check_int("4.0", "result", nfs_protocol_v4.start(&conn, &op), -EOPNOTSUPP);
		conn.client.minor = 1;
		check_int("4.1", "result", nfs_protocol_v4.start(&conn, &op), -EOPNOTSUPP);
	}
}
END_TEST

CHECK_MAIN("xattrs of nfs/",
	   .tests = { test_requests, test_replies, test_hostile, test_support, test_versions })
