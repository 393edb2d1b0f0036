/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Replies that are well-formed RPC and cannot be right: results of other operations than asked, too
 * few, cut, or with more behind them, and values that no server may send. None counts as success.
 */

#include <errno.h>
#include <inttypes.h>
#include <nfsc/libnfs-zdr.h>
#include <string.h>
/* After libnfs-zdr.h, whose types it uses; before nfs/calls.h, which renames functions of it. */
#include <nfsc/libnfs-raw-nfs4.h>

#include "base/list.h"
#include "nfs/calls.h"
#include "nfs/cookies.h"
#include "nfs/v4_later.h"

#include "nfs_peer.h"

#define FH 0x41414141 /* a handle of 4 bytes */

/* What an operation is asked with. */
#define BYTES 8
static const struct nfs_handle dir = { .len = 4, .data = "dir" };

struct row {
	const char *name;
	unsigned int version;
	enum nfs_op_type type;
	size_t n;
	uint32_t words[PEER_WORDS_MAX]; /* of the reply, behind the header of RPC */
	int want;
	bool doomed; /* the connection breaks */
	uint32_t handle, entries; /* length of the handle, number of entries */
	bool lists, listed; /* READ with the names of extended attributes: asked for, all there */
	uint32_t names;
};

/* Results of version 3. */
#define V3_NO_WCC 0, 0
#define V3_LISTING 0, 0, 1, 2 /* a status, no attributes, a verifier */
#define V3_ENTRY(LEN, ...) 1, 0, 7, LEN, __VA_ARGS__, 0, 1, 0, 0 /* cookie 1, no more of it */
#define V3_PAGE_END 0, 1

/* Results of version 4, of operation and status. */
#define V4(STATUS, N) STATUS, 0, N
#define V4_PUTFH OP_PUTFH, 0
#define V4_CHANGE 1, 0, 1, 0, 2
#define V4_CREATE OP_CREATE, 0, V4_CHANGE, 0
#define V4_GETFH OP_GETFH, 0, 4, FH
#define V4_GETATTR OP_GETATTR, 0, 0, 0
#define V4_REMOVE OP_REMOVE, 0, V4_CHANGE
#define V4_SETATTR OP_SETATTR, 0, 0
#define V4_READ OP_READ, 0, 1, 3, 0x61626300 /* three bytes to the end */
#define V4_ENTRY(LEN, ...) 1, 0, 1, LEN, __VA_ARGS__, 0, 0 /* cookie 1, no attributes */

static const struct row rows[] = {
	/* Version 3. */
	{ "v3 removed", 3, NFS_OP_REMOVE, 3, { 0, V3_NO_WCC }, 0 },
	{ "v3 remove, cut", 3, NFS_OP_REMOVE, 2, { 0, 0 }, -EBADMSG, true },
	{ "v3 remove, no status", 3, NFS_OP_REMOVE, 0, { 0 }, -EBADMSG, true },
	{ "v3 remove, and more", 3, NFS_OP_REMOVE, 4, { 0, V3_NO_WCC, 0 }, -EBADMSG, true },
	{ "v3 refused, and more", 3, NFS_OP_REMOVE, 4, { 13, V3_NO_WCC, 0 }, -EACCES },
	{ "v3 space, and more", 3, NFS_OP_FSSTAT, 16, { 0, 0, 0, 1 }, 0 }, /* as go-nfs has it */
	{ "v3 rename, cut", 3, NFS_OP_RENAME, 3, { 0, V3_NO_WCC }, -EBADMSG, true },
	{ "v3 made", 3, NFS_OP_MKDIR, 7, { 0, 1, 4, FH, 0, V3_NO_WCC }, 0, false, 4 },
	{ "v3 mkdir, cut handle", 3, NFS_OP_MKDIR, 4, { 0, 1, 64, FH }, -EBADMSG, true },
	{ "v3 lookup without a handle", 3, NFS_OP_LOOKUP, 4, { 0, 0, 0, 0 }, -EBADMSG },
	{ "v3 written", 3, NFS_OP_WRITE, 7, { 0, V3_NO_WCC, BYTES, 2, 1, 2 }, 0 },
	{ "v3 wrote more", 3, NFS_OP_WRITE, 7, { 0, V3_NO_WCC, BYTES + 1, 2, 1, 2 }, -EBADMSG },
	{ "v3 read", 3, NFS_OP_READ, 6, { 0, 0, 3, 1, 3, 0x61626300 }, 0 },
	{ "v3 read more", 3, NFS_OP_READ, 8, { 0, 0, 12, 1, 12, 0, 0, 0 }, -EBADMSG },
	{ "v3 read, two lengths", 3, NFS_OP_READ, 6, { 0, 0, 4, 1, 3, 0x61626300 }, -EBADMSG },
	{ "v3 target with NUL", 3, NFS_OP_READLINK, 4, { 0, 0, 3, 0x61006200 }, -EBADMSG },
	{ "v3 listed",
	  3,
	  NFS_OP_READDIR,
	  15,
	  { V3_LISTING, V3_ENTRY(3, 0x61626300), V3_PAGE_END },
	  0,
	  .entries = 1 },
	{ "v3 empty name",
	  3,
	  NFS_OP_READDIR,
	  14,
	  { V3_LISTING, 1, 0, 7, 0, 0, 1, 0, 0, V3_PAGE_END },
	  -EBADMSG },
	{ "v3 name with a slash",
	  3,
	  NFS_OP_READDIR,
	  15,
	  { V3_LISTING, V3_ENTRY(3, 0x612f6200), V3_PAGE_END },
	  -EBADMSG },
	{ "v3 name with NUL",
	  3,
	  NFS_OP_READDIR,
	  15,
	  { V3_LISTING, V3_ENTRY(3, 0x61006200), V3_PAGE_END },
	  -EBADMSG },
	{ "v3 dot dot",
	  3,
	  NFS_OP_READDIR,
	  15,
	  { V3_LISTING, V3_ENTRY(2, 0x2e2e0000), V3_PAGE_END },
	  0 },

	/* Version 4. */
	{ "made",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 8 + 4 + 4,
	  { V4(0, 4), V4_PUTFH, V4_CREATE, V4_GETFH, V4_GETATTR },
	  0,
	  false,
	  4 },
	{ "made, and more",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 8 + 4 + 4 + 1,
	  { V4(0, 4), V4_PUTFH, V4_CREATE, V4_GETFH, V4_GETATTR, 0 },
	  -EBADMSG,
	  true },
	{ "made without results", 4, NFS_OP_MKDIR, 3, { V4(0, 0) }, -EBADMSG, true },
	{ "made with one result", 4, NFS_OP_MKDIR, 5, { V4(0, 1), V4_PUTFH }, -EBADMSG, true },
	{ "made, the rest is missing",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 8,
	  { V4(0, 2), V4_PUTFH, V4_CREATE },
	  -EBADMSG,
	  true },
	{ "made by another operation",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 7 + 4 + 4,
	  { V4(0, 4), V4_PUTFH, V4_REMOVE, V4_GETFH, V4_GETATTR },
	  -EBADMSG,
	  true },
	{ "made in another order",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 8 + 4 + 4,
	  { V4(0, 4), V4_PUTFH, V4_CREATE, V4_GETATTR, V4_GETFH },
	  -EBADMSG,
	  true },
	{ "made, and one failed in between",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 2 + 4 + 4,
	  { V4(0, 4), V4_PUTFH, OP_CREATE, NFS4ERR_EXIST, V4_GETFH, V4_GETATTR },
	  -EBADMSG,
	  true },
	{ "failed, and nothing did",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 8 + 4 + 4,
	  { V4(NFS4ERR_EXIST, 4), V4_PUTFH, V4_CREATE, V4_GETFH, V4_GETATTR },
	  -EBADMSG,
	  true },
	{ "failed otherwise",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 2,
	  { V4(NFS4ERR_EXIST, 2), V4_PUTFH, OP_CREATE, NFS4ERR_ACCESS },
	  -EBADMSG,
	  true },
	{ "more results than asked",
	  4,
	  NFS_OP_REMOVE,
	  3 + 2 + 7 + 7,
	  { V4(0, 3), V4_PUTFH, V4_REMOVE, V4_REMOVE },
	  -EBADMSG,
	  true },
	{ "exists",
	  4,
	  NFS_OP_MKDIR,
	  7,
	  { V4(NFS4ERR_EXIST, 2), V4_PUTFH, OP_CREATE, NFS4ERR_EXIST },
	  -EEXIST },
	{ "refused as a whole",
	  4,
	  NFS_OP_MKDIR,
	  3,
	  { V4(NFS4ERR_MINOR_VERS_MISMATCH, 0) },
	  -EPROTONOSUPPORT },
	{ "unknown operation",
	  4,
	  NFS_OP_MKDIR,
	  7,
	  { V4(NFS4ERR_OP_ILLEGAL, 2), V4_PUTFH, OP_ILLEGAL, NFS4ERR_OP_ILLEGAL },
	  -EOPNOTSUPP },
	/* The change was made: only what it made is not told. */
	{ "made, attributes later",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 8 + 4 + 2,
	  { V4(NFS4ERR_DELAY, 4), V4_PUTFH, V4_CREATE, V4_GETFH, OP_GETATTR, NFS4ERR_DELAY },
	  0,
	  false,
	  4 },
	{ "made, handle later",
	  4,
	  NFS_OP_MKDIR,
	  3 + 2 + 8 + 2,
	  { V4(NFS4ERR_DELAY, 3), V4_PUTFH, V4_CREATE, OP_GETFH, NFS4ERR_DELAY },
	  0 },
	{ "removed", 4, NFS_OP_REMOVE, 3 + 2 + 7, { V4(0, 2), V4_PUTFH, V4_REMOVE }, 0 },
	{ "removed, cut",
	  4,
	  NFS_OP_REMOVE,
	  3 + 2 + 6,
	  { V4(0, 2), V4_PUTFH, V4_REMOVE },
	  -EBADMSG,
	  true },
	{ "renamed without a result", 4, NFS_OP_RENAME, 5, { V4(0, 1), V4_PUTFH }, -EBADMSG, true },
	{ "set", 4, NFS_OP_SETATTR, 3 + 2 + 3, { V4(0, 2), V4_PUTFH, V4_SETATTR }, 0 },
	{ "set without a result", 4, NFS_OP_SETATTR, 5, { V4(0, 1), V4_PUTFH }, -EBADMSG, true },
	{ "written",
	  4,
	  NFS_OP_WRITE,
	  3 + 2 + 6,
	  { V4(0, 2), V4_PUTFH, OP_WRITE, 0, BYTES, 2, 1, 2 },
	  0 },
	{ "wrote more",
	  4,
	  NFS_OP_WRITE,
	  3 + 2 + 6,
	  { V4(0, 2), V4_PUTFH, OP_WRITE, 0, BYTES + 1, 2, 1, 2 },
	  -EBADMSG },
	{ "written without a result", 4, NFS_OP_WRITE, 5, { V4(0, 1), V4_PUTFH }, -EBADMSG, true },
	{ "read more",
	  4,
	  NFS_OP_READ,
	  3 + 2 + 7,
	  { V4(0, 2), V4_PUTFH, OP_READ, 0, 1, 12, 0, 0, 0 },
	  -EBADMSG },
	{ "read and listed",
	  4,
	  NFS_OP_READ,
	  3 + 2 + 5 + 8,
	  { V4(0, 3), V4_PUTFH, V4_READ, V4_OP_LISTXATTRS, 0, 0, 9, 1, 1, 0x61000000, 1 },
	  0,
	  .lists = true,
	  .listed = true,
	  .names = 1 },
	{ "read, and listed in part",
	  4,
	  NFS_OP_READ,
	  3 + 2 + 5 + 8,
	  { V4(0, 3), V4_PUTFH, V4_READ, V4_OP_LISTXATTRS, 0, 0, 9, 1, 1, 0x61000000, 0 },
	  0,
	  .lists = true },
	{ "read, and refused to list",
	  4,
	  NFS_OP_READ,
	  3 + 2 + 5 + 2,
	  { V4(NFS4ERR_NOTSUPP, 3), V4_PUTFH, V4_READ, V4_OP_LISTXATTRS, NFS4ERR_NOTSUPP },
	  0,
	  .lists = true },
	{ "refused to read and list",
	  4,
	  NFS_OP_READ,
	  3 + 2 + 2,
	  { V4(NFS4ERR_ACCESS, 2), V4_PUTFH, OP_READ, NFS4ERR_ACCESS },
	  -EACCES,
	  .lists = true },
	{ "read, and more names than there are",
	  4,
	  NFS_OP_READ,
	  3 + 2 + 5 + 8,
	  { V4(0, 3), V4_PUTFH, V4_READ, V4_OP_LISTXATTRS, 0, 0, 9, 2, 1, 0x61000000, 1 },
	  -EBADMSG,
	  true,
	  .lists = true },
	{ "lookup without a handle",
	  4,
	  NFS_OP_LOOKUP,
	  3 + 2 + 2 + 3 + 4,
	  { V4(0, 4), V4_PUTFH, OP_LOOKUP, 0, OP_GETFH, 0, 0, V4_GETATTR },
	  -EBADMSG },
	{ "target with NUL",
	  4,
	  NFS_OP_READLINK,
	  3 + 2 + 2 + 4,
	  { V4(0, 3), V4_PUTFH, OP_LOOKUP, 0, OP_READLINK, 0, 3, 0x61006200 },
	  -EBADMSG },
	{ "listed",
	  4,
	  NFS_OP_READDIR,
	  3 + 2 + 4 + 7 + 2,
	  { V4(0, 2), V4_PUTFH, OP_READDIR, 0, 1, 2, V4_ENTRY(3, 0x61626300), 0, 1 },
	  0,
	  .entries = 1 },
	{ "empty name",
	  4,
	  NFS_OP_READDIR,
	  3 + 2 + 4 + 6 + 2,
	  { V4(0, 2), V4_PUTFH, OP_READDIR, 0, 1, 2, 1, 0, 1, 0, 0, 0, 0, 1 },
	  -EBADMSG },
	{ "name with a slash",
	  4,
	  NFS_OP_READDIR,
	  3 + 2 + 4 + 7 + 2,
	  { V4(0, 2), V4_PUTFH, OP_READDIR, 0, 1, 2, V4_ENTRY(3, 0x612f6200), 0, 1 },
	  -EBADMSG },
	{ "name with NUL",
	  4,
	  NFS_OP_READDIR,
	  3 + 2 + 4 + 7 + 2,
	  { V4(0, 2), V4_PUTFH, OP_READDIR, 0, 1, 2, V4_ENTRY(3, 0x61006200), 0, 1 },
	  -EBADMSG },
};

/* -------- the calls -------- */

static void count_entry(struct nfs_op *op, const struct nfs_entry *entry)
{
	unsigned int *entries = op->data;

	(void)entry;
	++*entries;
}

static void count_name(struct nfs_op *op, const char *bytes, uint32_t len)
{
	unsigned int *entries = op->data;

	*entries += len == 1 && *bytes == 'a';
}

START_TEST(test_reply)
{
	const struct row *row = &rows[_i];
	const struct nfs_protocol *protocol =
		row->version == 3 ? &nfs_protocol_v3 : &nfs_protocol_v4;
	struct nfs_connection conn = { .protocol = protocol };
	struct nfs_peer peer = { .words = row->words, .n = row->n };
	char buffer[BYTES] = { 0 }, link[NFS_LINK_MAX + 1];
	unsigned int entries = 0;
	struct nfs_op op = {
		.type = row->type,
		.dir = &dir,
		.name = row->version == 4 || row->type != NFS_OP_READLINK ? "name" : NULL,
		.to_dir = &dir,
		.to_name = "other",
		.buffer = buffer,
		.count = row->type == NFS_OP_READ || row->type == NFS_OP_WRITE ? BYTES : 0,
		.stable = true,
		.link = link,
		.entry = count_entry,
		.xattr = row->lists ? count_name : NULL,
		.data = &entries,
	};

	conn.client.version = row->version;
	nfs_peer_run(row->name, &peer, &conn, &op);
	check_that(row->name, "finished", op.finished);
	check_int(row->name, "error", op.error, row->want);
	check_int(row->name, "doomed", conn.doomed, row->doomed);
	check_int(row->name, "entries", entries, row->lists ? row->names : row->entries);
	check_that(row->name, "listed", op.listed == row->listed);
	if (row->lists && row->want == 0)
		check_int(row->name, "bytes", op.count, 3);
	if (row->type == NFS_OP_MKDIR)
		check_int(row->name, "handle", op.handle.len, row->handle);
	nfs_connection_break(&conn, -ECONNABORTED);
}
END_TEST

/* -------- listings that run in a circle, writes that are not on the disk -------- */

struct stub {
	struct nfs_client client;
	uint64_t tail, circle; /* pages before and in the circle */
	uint64_t pages; /* asked for */
	unsigned int commits;
	uint64_t written; /* bytes */
	bool restarts; /* the verifier of COMMIT is another one */
	uint32_t owner; /* of the object, whatever is set */
	bool tells_owner; /* in the reply to SETATTR */
};

static int stub_start(struct nfs_client *c, struct nfs_op *op)
{
	struct stub *stub = container_of(c, struct stub, client);
	struct nfs_entry entry = { .name = "name" };

	switch (op->type) {
	case NFS_OP_READDIR:
		/* Each page is a step on the way: cookie n leads to n + 1. */
		op->cookie =
			op->cookie + 1 < stub->tail + stub->circle ? op->cookie + 1 : stub->tail;
		entry.cookie = op->cookie;
		op->entry(op, &entry);
		stub->pages++;
		break;
	case NFS_OP_WRITE:
		op->stable = false;
		op->count = op->count > 3 ? 3 : op->count;
		stub->written += op->count;
		op->verifier[0] = 1;
		break;
	case NFS_OP_SETATTR:
	case NFS_OP_GETATTR:
		op->attr = (struct nfs_attr){ .uid = stub->owner, .gid = stub->owner };
		op->attr.has_owner = op->type == NFS_OP_GETATTR || stub->tells_owner;
		break;
	default:
		check_int("stub", "operation", op->type, NFS_OP_COMMIT);
		op->verifier[0] = stub->restarts ? 2 : 1;
		stub->commits++;
		break;
	}
	op->finished = true;
	return 0;
}

static const struct nfs_client_ops stub_ops = { .start = stub_start };

static int take_entry(void *data, const struct nfs_entry *entry)
{
	(void)data;
	(void)entry;
	return 0;
}

START_TEST(test_circle)
{
	static const uint64_t tails[] = { 0, 1, 2, 100 }, circles[] = { 1, 2, 3, 7, 64, 1000 };
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(tails); i++) {
		for (j = 0; j < ARRAY_SIZE(circles); j++) {
			struct stub stub = {
				.client = { .ops = &stub_ops, .version = 3 },
				.tail = tails[i],
				.circle = circles[j],
			};

			check_int("circle", "result",
				  nfs_readdir(&stub.client, &dir, take_entry, NULL), -EIO);
			check_that("circle", "found early",
				   stub.pages <= 3 * (tails[i] + circles[j]) + 3);
		}
	}
}
END_TEST

static int start_names(struct nfs_client *c, struct nfs_op *op)
{
	unsigned int i;

	(void)c;
	for (i = 0; i < 1000 && op->error == 0; i++) {
		struct nfs_entry entry = { .cookie = op->cookie + 1 };
		char name[32];
		const int n = snprintf(name, sizeof(name), "n%" PRIu64, entry.cookie);

		op->error = nfs_op_take_entry(op, name, (size_t)n, &entry);
	}
	op->finished = true;
	return 0;
}

static int start_pages(struct nfs_client *c, struct nfs_op *op)
{
	(void)c;
	op->cookie++;
	op->finished = true;
	return 0;
}

/* A server that sends new names for ever, or pages without any. */
START_TEST(test_endless)
{
	static const struct nfs_client_ops names_ops = { .start = start_names };
	static const struct nfs_client_ops pages_ops = { .start = start_pages };
	static const struct {
		const char *row;
		const struct nfs_client_ops *ops;
	} listings[] = { { "names", &names_ops }, { "empty pages", &pages_ops } };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(listings); i++) {
		char server[] = "nas", share[] = "/";
		struct nfs_client c = {
			.ops = listings[i].ops,
			.version = 3,
			.export = { .server = server, .share = share },
		};
		struct error err = { .code = ERROR_OK };
		int r = nfs_readdir(&c, &dir, take_entry, NULL);

		check_int(listings[i].row, "result", r, -EOVERFLOW);
		check_int(listings[i].row, "error", nfs_error_set(&err, &c, r, "listing 'a'"), r);
		check_error(listings[i].row, &err, ERROR_FAILED_PRECONDITION,
			    "too many entries; or the server's listing does not end");
	}
}
END_TEST

START_TEST(test_long_listing)
{
	struct nfs_cookies cookies = { .pages = 0 };
	uint64_t i;

	for (i = 1; i < 100000; i++)
		check_that("listing", "goes on", !nfs_cookies_repeat(&cookies, i * 4096));
}
END_TEST

/* A server that leaves data in its memory is asked to write it. */
START_TEST(test_unstable)
{
	struct stub stub = { .client = { .ops = &stub_ops, .version = 3 } };

	check_int("write", "result", nfs_write(&stub.client, &dir, 0, "12345678", 8), 0);
	check_int("write", "bytes", stub.written, 8);
	check_int("write", "commits", stub.commits, 3);
	stub.restarts = true;
	check_int("write", "restart", nfs_write(&stub.client, &dir, 0, "12345678", 8), -EIO);
}
END_TEST

/* A server that says OK and sets no owner, whether its reply shows it or not. */
START_TEST(test_owner)
{
	const struct nfs_change change = { .has_uid = true, .uid = 5, .has_gid = true, .gid = 5 };
	int i;

	for (i = 0; i < 4; i++) {
		struct stub stub = {
			.client = { .ops = &stub_ops, .version = 3 },
			.owner = i & 1 ? 5 : 0,
			.tells_owner = i & 2,
		};

		check_int(i & 2 ? "told" : "asked", "result",
			  nfs_setattr(&stub.client, &dir, &change), i & 1 ? 0 : -NFS_EOWNER);
	}
}
END_TEST

#define V3_DIRECTORY(fileid)                                                                       \
	1, 2, 0755, 2, 0, 0, 0, 4096, 0, 4096, 0, 0, 0, 7, 0, (fileid), 0, 0, 0, 0, 0, 0

/* A LOOKUP whose second call is put off has what it needs to begin again. */
START_TEST(test_parent_later)
{
	static const uint32_t found[] = { 0, 4, 1, V3_DIRECTORY(20), V3_DIRECTORY(10) };
	static const uint32_t later[] = { 10008, 0 };
	static const uint32_t parent[] = { 0, 4, 2, V3_DIRECTORY(10), 0 };
	static const struct {
		const char *row;
		const uint32_t *words;
		size_t n;
		int want;
	} parents[] = {
		{ "later", later, ARRAY_SIZE(later), -EAGAIN },
		{ "at once", parent, ARRAY_SIZE(parent), 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(parents); i++) {
		struct nfs_op op = { .type = NFS_OP_LOOKUP, .dir = &dir, .name = "a" };
		struct nfs_connection conn = { .protocol = &nfs_protocol_v3 };
		struct nfs_peer peer = { .words = found,
					 .n = ARRAY_SIZE(found),
					 .then = parents[i].words,
					 .n_then = parents[i].n };

		op.fileid = 30;
		nfs_peer_run(parents[i].row, &peer, &conn, &op);
		check_int(parents[i].row, "error", op.error, parents[i].want);
		check_int(parents[i].row, "fileid", op.fileid, 30);
		check_int(parents[i].row, "mounted", op.attr.is_mount, false);
		nfs_connection_break(&conn, -ECONNABORTED);
	}
}
END_TEST

CHECK_MAIN("replies",
	   .tests = { test_circle, test_endless, test_long_listing, test_unstable, test_owner,
		      test_parent_later },
	   .loops = { { test_reply, ARRAY_SIZE(rows) } })
