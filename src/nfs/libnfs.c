/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/libnfs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/str.h"
#include "net/zdr.h"
/* After libnfs-zdr.h, whose types they use. */
#include <nfsc/libnfs-raw-nfs.h>
#include <nfsc/libnfs-raw-nfs4.h>
#include <nfsc/libnfs-raw-portmap.h>

#define ROOM 128
#define CANARY 0xa5
#define BUFFER (ROOM + 2 * NET_ZDR_ENCODE_SPARE)

/* The parts of the arguments, so that each row of the table below fits on a line. */
#define HANDLE "\0\0\0\x05hndl5\0\0\0" /* opaque<>: length, bytes, padding */
#define NAME                                                                                       \
	"\0\0\0\x03"                                                                               \
	"abc\0"
#define NUMBER_64 "\x01\x02\x03\x04\x05\x06\x07\x08"
#define ONE "\0\0\0\1"
#define ZERO "\0\0\0\0"

static char handle[] = "hndl5", name[] = "abc", bytes[] = "data!!";

static LOOKUP3args lookup3 = { .what = { .dir.data = { 5, handle }, .name = name } };
static WRITE3args write3 = {
	.file.data = { 5, handle },
	.offset = UINT64_C(0x0102030405060708),
	.count = 6,
	.stable = DATA_SYNC,
	.data = { 6, bytes },
};
static SETATTR3args setattr3 = {
	.object.data = { 5, handle },
	.new_attributes = { .size = { TRUE, { UINT64_C(0x0102030405060708) } } },
};
static nfs_argop4 lookup4 = {
	.argop = OP_LOOKUP,
	.nfs_argop4_u.oplookup.objname = { 3, name },
};
static uint32_t number32 = 0x01020304;
static uint64_t number64 = UINT64_C(0x0102030405060708);

#define MESSAGE(encoder, args_, text)                                                              \
	{                                                                                          \
		.name = #encoder, .encode = (zdrproc_t)(encoder), .args = &(args_),                \
		.bytes = (text), .len = sizeof(text) - 1                                           \
	}

/* RFC 4506 and the protocols' definitions say what they look like. */
static const struct message {
	const char *name;
	zdrproc_t encode;
	void *args;
	const char *bytes;
	uint32_t len;
} messages[] = {
	MESSAGE(zdr_u_int, number32, "\x01\x02\x03\x04"),
	MESSAGE(zdr_uint64_t, number64, NUMBER_64),
	MESSAGE(zdr_LOOKUP3args, lookup3, HANDLE NAME),
	MESSAGE(zdr_WRITE3args, write3,
		HANDLE NUMBER_64 "\0\0\0\6" ONE "\0\0\0\6"
				 "data!!\0\0"),
	MESSAGE(zdr_SETATTR3args, setattr3, HANDLE ZERO ZERO ZERO ONE NUMBER_64 ZERO ZERO ZERO),
	MESSAGE(zdr_nfs_argop4, lookup4, "\0\0\0\x0f" NAME),
};

/* Encode into room bytes. Return the encoder's result, and the length of its output in *ret_len. */
static bool encode(const struct message *m, unsigned char *to, uint32_t room, uint32_t *ret_len)
{
	bool fits;
	ZDR zdr;

	memset(to, CANARY, BUFFER);
	zdrmem_create(&zdr, (char *)to, room, ZDR_ENCODE);
	fits = m->encode(&zdr, m->args);
	*ret_len = (uint32_t)zdr_getpos(&zdr);
	zdr_destroy(&zdr);
	return fits;
}

static bool is_encoded(const struct message *m)
{
	_Alignas(uint32_t) unsigned char to[BUFFER];
	uint32_t len;

	return encode(m, to, ROOM, &len) && len == m->len && memcmp(to, m->bytes, len) == 0 &&
	       to[len] == CANARY;
}

/* Check that every shorter buffer is refused, and that nothing past its spare bytes is written. */
static bool stops_at_end(const struct message *m)
{
	_Alignas(uint32_t) unsigned char to[BUFFER];
	uint32_t room, len, i;

	for (room = 0; room < m->len; room += 4) {
		if (encode(m, to, room, &len))
			return false;
		for (i = room + NET_ZDR_ENCODE_SPARE; i < sizeof(to); i++) {
			if (to[i] != CANARY)
				return false;
		}
	}
	return true;
}

/* Check that integers are decoded correctly, and refused when bytes are missing. */
static bool reads_numbers(void)
{
	_Alignas(uint32_t) char text[] = "\x01\x02\x03\x04" NUMBER_64;
	uint64_t wide = 0;
	uint32_t narrow = 0, len;
	bool found = true;
	ZDR zdr;

	zdrmem_create(&zdr, text, sizeof(text) - 1, ZDR_DECODE);
	found = zdr_u_int(&zdr, &narrow) && narrow == number32 && zdr.pos == 4 &&
		zdr_uint64_t(&zdr, &wide) && wide == number64 && zdr.pos == 12 && zdr.size == 12 &&
		zdr.buf == text && !zdr_u_int(&zdr, &narrow);
	zdr_destroy(&zdr);
	for (len = 0; len < sizeof(number64) && found; len++) {
		zdrmem_create(&zdr, text, len, ZDR_DECODE);
		found = !zdr_uint64_t(&zdr, &wide);
		zdr_destroy(&zdr);
		zdrmem_create(&zdr, text, len, ZDR_DECODE);
		found = found && zdr_u_int(&zdr, &narrow) == (len >= sizeof(number32));
		zdr_destroy(&zdr);
	}
	return found;
}

/* Check that a length field cannot lead past the end of the message. */
static bool reads_strings(void)
{
	_Alignas(uint32_t) char good[] = NAME;
	_Alignas(uint32_t) char bad[] = "\xff\xff\xff\xf8"
					"abc\0";
	char *text;
	bool found;
	ZDR zdr;

	zdrmem_create(&zdr, good, sizeof(good) - 1, ZDR_DECODE);
	found = net_zdr_take_string(&zdr, &text) && str_eq(text, name) && zdr.pos == zdr.size;
	zdr_destroy(&zdr);
	zdrmem_create(&zdr, bad, sizeof(bad) - 1, ZDR_DECODE);
	found = found && !net_zdr_take_string(&zdr, &text);
	zdr_destroy(&zdr);
	return found;
}

/* Check that allocations, which zdr_destroy() frees together, do not overlap. */
static bool allocates(void)
{
	unsigned char *a, *b;
	bool found;
	ZDR zdr;

	zdrmem_create(&zdr, NULL, 0, ZDR_DECODE);
	a = net_zdr_allocate(&zdr, ROOM);
	b = net_zdr_allocate(&zdr, ROOM);
	found = a != NULL && b != NULL;
	if (found) {
		memset(a, 1, ROOM);
		memset(b, 2, ROOM);
		found = a[0] == 1 && a[ROOM - 1] == 1;
	}
	zdr_destroy(&zdr);
	return found;
}

static int refuse(struct error *err, const char *what, const char *function)
{
	(void)error_set(err, ERROR_INTERNAL, "%s%s", what, function);
	return -EPROTO;
}

int nfs_libnfs_check(struct error *err)
{
	size_t i;

	if (!reads_numbers())
		return refuse(err, "it decodes integers wrongly, or past the end of a message", "");
	if (!allocates())
		return refuse(err, "its allocations fail or overlap", "");
	if (!reads_strings())
		return refuse(err, "it decodes strings wrongly", "");
	for (i = 0; i < ARRAY_SIZE(messages); i++) {
		if (!is_encoded(&messages[i]))
			return refuse(err, "wrong output of its ", messages[i].name);
		if (!stops_at_end(&messages[i]))
			return refuse(err, "no check for the end of the buffer in its ",
				      messages[i].name);
	}
	return 0;
}
