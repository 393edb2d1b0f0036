/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * COPY, OFFLOAD_STATUS and OFFLOAD_CANCEL (RFC 7862) with a scripted peer: what is asked, and what
 * becomes of answers that are whole, torn or wrong.
 */

#include <errno.h>
#include <string.h>

#include "nfs/v4_later.h"
#include "nfs_peer.h"

#define HEAD 11 /* words of a call without a user, with its mark */

#define OFFSET UINT64_C(0x500000007)
#define LENGTH 0x1000
#define ID 0x11111111, 0x22222222, 0x33333333, 0x44444444

#define PUT_FILE OP_PUTFH, 4, 0x66696c65
#define GOT_TWO_FILES OP_PUTFH, 0, OP_SAVEFH, 0, OP_PUTFH, 0
#define GOT_COMMIT OP_COMMIT, 0, 7, 7
#define REQUIREMENTS 1, 1
#define NO_REQS V4_ERR_OFFLOAD_NO_REQS

static const struct nfs_handle file = { .len = 4, .data = "file" };

static const struct row {
	const char *name;
	enum nfs_op_type type;
	bool allow_async;
	size_t n;
	uint32_t words[PEER_WORDS_MAX]; /* of the reply, behind the header of RPC */
	int want;
	bool is_async, ended;
	int copy_error;
	uint64_t length;
	uint32_t verifier; /* both of its words; 0: not told */
} rows[] = {
	{ "copied", NFS_OP_COPY, .n = 3 + 6 + 2 + 8,
	  .words = { 0, 0, 4, GOT_TWO_FILES, V4_OP_COPY, 0, 0, 0, 9, 0, 8, 8, REQUIREMENTS },
	  .length = 9, .verifier = 8 },
	{ "goes on, though it must not", NFS_OP_COPY, .n = 3 + 6 + 2 + 12,
	  .words = { 0, 0, 4, GOT_TWO_FILES, V4_OP_COPY, 0, 1, ID, 0, 0, 0, 8, 8, 1, 0 },
	  .is_async = true, .length = LENGTH, .verifier = 8 },
	/* The verifier is that of the COMMIT in front. */
	{ "goes on", NFS_OP_COPY, .allow_async = true, .n = 3 + 6 + 4 + 2 + 12,
	  .words = { 0, 0, 5, GOT_TWO_FILES, GOT_COMMIT, V4_OP_COPY, 0, 1, ID, 0, 0, 0, 0, 0, 1,
		     0 },
	  .is_async = true, .length = LENGTH, .verifier = 7 },
	{ "may go on, and is done", NFS_OP_COPY, .allow_async = true, .n = 3 + 6 + 4 + 2 + 8,
	  .words = { 0, 0, 5, GOT_TWO_FILES, GOT_COMMIT, V4_OP_COPY, 0, 0, 0, LENGTH, 2, 7, 7,
		     REQUIREMENTS },
	  .length = LENGTH, .verifier = 7 },
	{ "more than was asked for", NFS_OP_COPY, .n = 3 + 6 + 2 + 8,
	  .words = { 0, 0, 4, GOT_TWO_FILES, V4_OP_COPY, 0, 0, 0, LENGTH + 1, 0, 8, 8,
		     REQUIREMENTS },
	  .want = -EREMOTEIO, .length = LENGTH },
	{ "only asynchronously", NFS_OP_COPY, .n = 3 + 6 + 4,
	  .words = { NO_REQS, 0, 4, GOT_TWO_FILES, V4_OP_COPY, NO_REQS, 1, 0 }, .want = -EOPNOTSUPP,
	  .is_async = true, .length = LENGTH },
	{ "only asynchronously, not said", NFS_OP_COPY, .n = 3 + 6 + 2,
	  .words = { NO_REQS, 0, 4, GOT_TWO_FILES, V4_OP_COPY, NO_REQS }, .want = -EOPNOTSUPP,
	  .is_async = true, .length = LENGTH },
	{ "only in any order", NFS_OP_COPY, .n = 3 + 6 + 4,
	  .words = { NO_REQS, 0, 4, GOT_TWO_FILES, V4_OP_COPY, NO_REQS, 0, 0 }, .want = -EOPNOTSUPP,
	  .length = LENGTH },
	{ "requirements torn", NFS_OP_COPY, .n = 3 + 6 + 3,
	  .words = { NO_REQS, 0, 4, GOT_TWO_FILES, V4_OP_COPY, NO_REQS, 1 }, .want = -EBADMSG,
	  .length = LENGTH },
	{ "not supported", NFS_OP_COPY, .n = 3 + 6 + 2,
	  .words = { NFS4ERR_NOTSUPP, 0, 4, GOT_TWO_FILES, V4_OP_COPY, NFS4ERR_NOTSUPP },
	  .want = -EOPNOTSUPP, .length = LENGTH },
	{ "no reply of COPY", NFS_OP_COPY, .n = 3 + 2,
	  .words = { NO_REQS, 0, 1, OP_PUTFH, NO_REQS }, .want = -EOPNOTSUPP, .length = LENGTH },
	{ "still copying", NFS_OP_COPY_STATUS, .n = 3 + 2 + 2 + 3,
	  .words = { 0, 0, 2, OP_PUTFH, 0, V4_OP_OFFLOAD_STATUS, 0, 1, 5, 0 },
	  .length = (UINT64_C(1) << 32) + 5 },
	{ "has ended", NFS_OP_COPY_STATUS, .n = 3 + 2 + 2 + 4,
	  .words = { 0, 0, 2, OP_PUTFH, 0, V4_OP_OFFLOAD_STATUS, 0, 0, 5, 1, 0 }, .ended = true,
	  .length = 5 },
	{ "has ended with an error", NFS_OP_COPY_STATUS, .n = 3 + 2 + 2 + 4,
	  .words = { 0, 0, 2, OP_PUTFH, 0, V4_OP_OFFLOAD_STATUS, 0, 0, 5, 1, NFS4ERR_NOSPC },
	  .ended = true, .copy_error = -ENOSPC, .length = 5 },
	{ "two ends", NFS_OP_COPY_STATUS, .n = 3 + 2 + 2 + 5,
	  .words = { 0, 0, 2, OP_PUTFH, 0, V4_OP_OFFLOAD_STATUS, 0, 0, 5, 2, 0, 0 },
	  .want = -EBADMSG, .length = LENGTH },
	{ "status torn", NFS_OP_COPY_STATUS, .n = 3 + 2 + 2 + 3,
	  .words = { 0, 0, 2, OP_PUTFH, 0, V4_OP_OFFLOAD_STATUS, 0, 0, 5, 1 }, .want = -EBADMSG,
	  .length = LENGTH },
	{ "status without one", NFS_OP_COPY_STATUS, .n = 3 + 2, .words = { 0, 0, 1, OP_PUTFH, 0 },
	  .want = -EBADMSG, .length = LENGTH },
	{ "status of a copy that is not known", NFS_OP_COPY_STATUS, .n = 3 + 2 + 2,
	  .words = { NFS4ERR_BAD_STATEID, 0, 2, OP_PUTFH, 0, V4_OP_OFFLOAD_STATUS,
		     NFS4ERR_BAD_STATEID },
	  .want = -EREMOTEIO, .length = LENGTH },
	{ "cancelled", NFS_OP_COPY_CANCEL, .n = 3 + 2 + 2,
	  .words = { 0, 0, 2, OP_PUTFH, 0, V4_OP_OFFLOAD_CANCEL, 0 }, .length = LENGTH },
	{ "not cancelled", NFS_OP_COPY_CANCEL, .n = 3 + 2 + 2,
	  .words = { NFS4ERR_NOTSUPP, 0, 2, OP_PUTFH, 0, V4_OP_OFFLOAD_CANCEL, NFS4ERR_NOTSUPP },
	  .want = -EOPNOTSUPP, .length = LENGTH },
};

/* -------- the calls -------- */

/* Both stateids are zeros, and so is the number of other servers. */
#define NO_STATEIDS 0, 0, 0, 0, 0, 0, 0, 0
#define AT OFFSET >> 32, OFFSET &UINT32_MAX
#define ASKED_COPY(SYNCHRONOUS) V4_OP_COPY, NO_STATEIDS, AT, AT, 0, LENGTH, 1, SYNCHRONOUS, 0

/* clang-format off */
static const uint32_t asked_at_once[] = {
	0, 0, 4, PUT_FILE, OP_SAVEFH, PUT_FILE, ASKED_COPY(1)
};
static const uint32_t asked_async[] = {
	0, 0, 5, PUT_FILE, OP_SAVEFH, PUT_FILE, OP_COMMIT, AT, 1, ASKED_COPY(0)
};
/* clang-format on */
static const uint32_t asked_status[] = { 0, 0, 2, PUT_FILE, V4_OP_OFFLOAD_STATUS, ID };
static const uint32_t asked_cancel[] = { 0, 0, 2, PUT_FILE, V4_OP_OFFLOAD_CANCEL, ID };

static void check_call(const struct row *row, const struct nfs_peer *peer, const uint32_t *want,
		       size_t n)
{
	size_t i;

	check_int(row->name, "words of the call", peer->call_words - HEAD, n);
	for (i = 0; i < n; i++)
		check_int(row->name, "a word", ntohl(peer->call[HEAD + i]), want[i]);
}

START_TEST(test_copy)
{
	static const uint32_t id[] = { ID };
	const struct row *row = &rows[_i];
	struct nfs_connection conn = { .protocol = &nfs_protocol_v4 };
	struct nfs_op op = {
		.type = row->type,
		.dir = &file,
		.to_dir = &file,
		.offset = OFFSET,
		.length = LENGTH,
		.allow_async = row->allow_async,
	};
	struct nfs_peer peer = { .words = row->words, .n = row->n };
	uint32_t words[4];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(words); i++)
		words[i] = htonl(id[i]);
	if (row->type != NFS_OP_COPY)
		memcpy(op.copy_id, words, sizeof(words));
	conn.client.version = 4;
	nfs_peer_run(row->name, &peer, &conn, &op);
	if (row->type == NFS_OP_COPY && row->allow_async)
		check_call(row, &peer, asked_async, ARRAY_SIZE(asked_async));
	else if (row->type == NFS_OP_COPY)
		check_call(row, &peer, asked_at_once, ARRAY_SIZE(asked_at_once));
	else if (row->type == NFS_OP_COPY_STATUS)
		check_call(row, &peer, asked_status, ARRAY_SIZE(asked_status));
	else
		check_call(row, &peer, asked_cancel, ARRAY_SIZE(asked_cancel));
	check_int(row->name, "error", op.error, row->want);
	check_int(row->name, "goes on", op.is_async, row->is_async);
	check_int(row->name, "ended", op.ended, row->ended);
	check_int(row->name, "error of the copy", op.copy_error, row->copy_error);
	check_int(row->name, "length", op.length, row->length);
	if (row->is_async && row->want == 0)
		check_that(row->name, "its id", memcmp(op.copy_id, words, sizeof(words)) == 0);
	words[0] = words[1] = htonl(row->verifier);
	if (row->verifier != 0)
		check_that(row->name, "verifier",
			   memcmp(op.verifier, words, sizeof(op.verifier)) == 0);
	check_int(row->name, "doomed", conn.doomed, row->want == -EBADMSG);
	nfs_connection_break(&conn, -ECONNABORTED);
}
END_TEST

CHECK_MAIN("copy", .loops = { { test_copy, ARRAY_SIZE(rows) } })
