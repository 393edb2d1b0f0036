/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * nfs/v3_results.c and nfs/v4_results.c beside libnfs's encoders: what is decoded from random words
 * and encoded by libnfs has to be decoded and encoded to the same bytes again. Fields in another
 * order, or one too many or too few, would change them.
 */

#include <arpa/inet.h>

#include "net/rpc.h"
#include "net/zdr.h"
#include "nfs/v3_results.h"
#include "nfs/v4_compound.h"
#include "nfs/v4_results.h"
#include "check_util.h"

#define WORDS 256
#define BYTES (WORDS * 4)
#define TRIES 20000
#define TAKEN_MIN 50 /* of these; the rest are no messages */

struct kind {
	const char *row;
	zdrproc_t decode, encode;
	bool is_v4; /* operation opnum */
	uint32_t opnum;
	uint32_t status; /* nonzero: that follows the number of the operation */
};

/* From libnfs 6 on, its XDR of this result ends before the data, which it reads another way. */
static uint32_t encode_read(ZDR *zdr, nfs_resop4 *one)
{
	READ4res *res = &one->nfs_resop4_u.opread;
	READ4resok *ok = &res->READ4res_u.resok4;
	uint32_t opnum = OP_READ, status = (uint32_t)res->status;

	if (!zdr_u_int(zdr, &opnum) || !zdr_u_int(zdr, &status))
		return FALSE;
	if (res->status != NFS4_OK)
		return TRUE;
	return zdr_u_int(zdr, &ok->eof) && zdr_u_int(zdr, &ok->data.data_len) &&
	       net_zdr_put_fixed(zdr, ok->data.data_val, ok->data.data_len);
}

#define V3(NAME)                                                                                   \
	{                                                                                          \
#NAME, (zdrproc_t)v3_take_##NAME, (zdrproc_t)zdr_##NAME                            \
	}
#define V4(NAME)                                                                                   \
	{                                                                                          \
#NAME, (zdrproc_t)v4_take_nfs_resop4, (zdrproc_t)zdr_nfs_resop4, true, NAME        \
	}
#define V4_FAILED(NAME, STATUS)                                                                    \
	{                                                                                          \
#STATUS, (zdrproc_t)v4_take_nfs_resop4, (zdrproc_t)zdr_nfs_resop4, true, NAME,     \
			STATUS                                                                     \
	}

static const struct kind kinds[] = {
	V3(GETATTR3res),
	V3(SETATTR3res),
	V3(LOOKUP3res),
	V3(READLINK3res),
	V3(READ3res),
	V3(WRITE3res),
	V3(CREATE3res),
	V3(MKDIR3res),
	V3(SYMLINK3res),
	V3(MKNOD3res),
	V3(REMOVE3res),
	V3(RMDIR3res),
	V3(RENAME3res),
	V3(LINK3res),
	V3(READDIR3res),
	V3(READDIRPLUS3res),
	V3(FSSTAT3res),
	V3(FSINFO3res),
	V3(COMMIT3res),
	V3(mountres3),
	V3(exports),
	V4(OP_CLOSE),
	V4(OP_COMMIT),
	V4(OP_CREATE),
	V4(OP_GETATTR),
	V4(OP_GETFH),
	V4(OP_ILLEGAL),
	V4(OP_LINK),
	V4(OP_LOOKUP),
	V4(OP_OPEN),
	V4(OP_OPEN_CONFIRM),
	V4(OP_PUTFH),
	V4(OP_PUTROOTFH),
	{ "OP_READ", (zdrproc_t)v4_take_nfs_resop4, (zdrproc_t)encode_read, true, OP_READ },
	V4(OP_READDIR),
	V4(OP_READLINK),
	V4(OP_REMOVE),
	V4(OP_RENAME),
	V4(OP_SAVEFH),
	V4(OP_SETATTR),
	V4(OP_SETCLIENTID),
	V4(OP_SETCLIENTID_CONFIRM),
	V4(OP_VERIFY),
	V4(OP_WRITE),
	V4_FAILED(OP_SETATTR, NFS4ERR_PERM),
	V4_FAILED(OP_SETCLIENTID, NFS4ERR_CLID_INUSE),
	V4_FAILED(OP_READDIR, NFS4ERR_ACCESS),
};

union results {
	_Alignas(max_align_t) char bytes[NET_RPC_RESULTS_MAX];
	nfs_resop4 one;
};

/* A small generator, so that every run tests the same. */
static uint32_t draw(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

/* Words that are often a flag, a short length or the number of a small union. */
static void fill(const struct kind *kind, uint64_t *state, char *text)
{
	static const uint32_t common[] = { 0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 8, 0x61000000 };
	uint32_t words[WORDS];
	size_t i;

	for (i = 0; i < WORDS; i++)
		words[i] = draw(state) % 8 != 0 ? common[draw(state) % ARRAY_SIZE(common)]
						: draw(state);
	/* Half of the results are those of a success. */
	if (draw(state) % 2 == 0)
		words[kind->is_v4 ? 1 : 0] = kind->status;
	if (kind->is_v4)
		words[0] = kind->opnum;
	if (kind->status != 0)
		words[1] = kind->status;
	for (i = 0; i < WORDS; i++)
		words[i] = htonl(words[i]);
	memcpy(text, words, BYTES);
}

/* Of what we take, libnfs does not know why an OPEN got no delegation, of RFC 8881. */
static bool libnfs_has(const struct kind *kind, const union results *results)
{
	const nfs_resop4 *one = &results->one;

	return !kind->is_v4 || kind->opnum != OP_OPEN ||
	       one->nfs_resop4_u.opopen.status != NFS4_OK ||
	       (int)one->nfs_resop4_u.opopen.OPEN4res_u.resok4.delegation.delegation_type < 3;
}

/* Decode text and encode the results into ret, after 4 spare bytes. Returns the bytes, or 0. */
static uint32_t pass(const struct kind *kind, char *text, uint32_t len, char *ret,
		     uint32_t *ret_taken)
{
	union results results;
	uint32_t n = 0;
	ZDR from, to;

	memset(&results, 0, sizeof(results));
	zdrmem_create(&from, text, len, ZDR_DECODE);
	zdrmem_create(&to, ret, 2 * BYTES, ZDR_ENCODE);
	if (kind->decode(&from, &results) && libnfs_has(kind, &results)) {
		check_that(kind->row, "encoding by libnfs", kind->encode(&to, &results));
		n = zdr_getpos(&to);
	}
	*ret_taken = zdr_getpos(&from);
	zdr_destroy(&to);
	zdr_destroy(&from);
	return n;
}

START_TEST(test_both_ways)
{
	const struct kind *kind = &kinds[_i];
	_Alignas(8) char text[BYTES], first[2 * BYTES + NET_ZDR_ENCODE_SPARE];
	_Alignas(8) char copy[sizeof(first)], second[sizeof(first)];
	uint32_t n, again, taken, times = 0;
	uint64_t state = (uint64_t)_i;
	int i;

	for (i = 0; i < TRIES; i++) {
		fill(kind, &state, text);
		n = pass(kind, text, BYTES, first, &taken);
		if (n == 0)
			continue;
		times++;
		memcpy(copy, first, n); /* decoding terminates strings in place */
		again = pass(kind, copy, n, second, &taken);
		check_int(kind->row, "bytes read", taken, n);
		check_int(kind->row, "bytes written again", again, n);
		check_that(kind->row, "the same bytes", memcmp(first, second, n) == 0);
	}
	check_that(kind->row, "enough messages", times >= TAKEN_MIN);
}
END_TEST

/* No message that ends early is read, and nothing after its end is looked at. */
START_TEST(test_cut)
{
	const struct kind *kind = &kinds[_i];
	_Alignas(8) char text[BYTES], whole[2 * BYTES + NET_ZDR_ENCODE_SPARE];
	char again[sizeof(whole)];
	uint64_t state = (uint64_t)_i;
	uint32_t n, cut, taken;
	int i;

	for (i = 0; i < TRIES / 100; i++) {
		fill(kind, &state, text);
		n = pass(kind, text, BYTES, whole, &taken);
		for (cut = 0; cut < n; cut += 4) {
			/* Of its exact size, for AddressSanitizer and valgrind. */
			char *part = malloc(cut > 0 ? cut : 1);

			ck_assert(part != NULL);
			memcpy(part, whole, cut);
			check_int(kind->row, "bytes of a part",
				  pass(kind, part, cut, again, &taken), 0);
			free(part);
		}
	}
}
END_TEST

/* Results of operations that are never sent are not read. */
START_TEST(test_unknown)
{
	static const uint32_t opnums[] = { 0, 2, OP_ACCESS, OP_LOCK, 39, 42, 10043, UINT32_MAX };
	uint32_t words[8] = { 0 };
	nfs_resop4 one;
	size_t i;
	ZDR zdr;

	for (i = 0; i < ARRAY_SIZE(opnums); i++) {
		words[0] = htonl(opnums[i]);
		memset(&one, 0, sizeof(one));
		zdrmem_create(&zdr, (char *)words, sizeof(words), ZDR_DECODE);
		check_int("not asked for", "decoded", v4_take_nfs_resop4(&zdr, &one), FALSE);
		zdr_destroy(&zdr);
	}
}
END_TEST

/* Whatever is too long for the room is refused, and stays within the room and its spare bytes. */
START_TEST(test_no_room)
{
	struct v4_compound c = { .n = 0 };
	_Alignas(8) char whole[4096];
	uint32_t n, room, i;
	ZDR zdr;

	v4_add_putfh(&c, &(struct nfs_handle){ .len = 13 });
	v4_add_lookup(&c, "a name");
	v4_add(&c, OP_READ);
	v4_add(&c, OP_READDIR);
	v4_add(&c, OP_SETCLIENTID_CONFIRM);
	zdrmem_create(&zdr, whole, sizeof(whole), ZDR_ENCODE);
	check_int("encode", "result", v4_encode_operations(&zdr, &c), TRUE);
	n = zdr_getpos(&zdr);
	zdr_destroy(&zdr);
	for (room = 0; room < n; room += 4) {
		char *text = malloc(room + NET_ZDR_ENCODE_SPARE + 64);
		bool_t fits;

		ck_assert(text != NULL);
		memset(text, 0x5a, room + NET_ZDR_ENCODE_SPARE + 64);
		zdrmem_create(&zdr, text, room, ZDR_ENCODE);
		fits = v4_encode_operations(&zdr, &c);
		/* The last operation ends with opaque data, after which nothing can be refused. */
		check_that("no room", "an end is told",
			   !fits || zdr_getpos(&zdr) <= room + NET_ZDR_ENCODE_SPARE);
		for (i = 0; i < 64; i++)
			check_int("no room", "byte behind", text[room + NET_ZDR_ENCODE_SPARE + i],
				  0x5a);
		zdr_destroy(&zdr);
		free(text);
	}
}
END_TEST

/* clang-format off */
CHECK_MAIN("results", .tests = { test_unknown, test_no_room },
	   .loops = {
		   { test_both_ways, ARRAY_SIZE(kinds) },
		   { test_cut, ARRAY_SIZE(kinds) },
	   })
