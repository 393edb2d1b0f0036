/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/zdr.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>
#include <nfsc/libnfs-raw-nfs4.h>

#include "base/str.h"

/* The longest arrays in use are compounds of tens of operations and masks of a few words. */
#define ARRAY_MAX 4096U

/* A directory page has under a thousand entries; a server may have more exports than that. */
#define DEPTH_MAX 4096U

/* libnfs frees this memory with the ZDR. None of its public headers declares the function. */
void *zdr_malloc(ZDR *zdr, uint32_t size);

/* Align what zdr_malloc() returns, which is 12 bytes past what malloc() returned. */
void *net_zdr_allocate(ZDR *zdr, uint32_t size)
{
	const uintptr_t spare = _Alignof(max_align_t) - 1;
	char *p = zdr_malloc(zdr, size + (uint32_t)spare);

	return p != NULL ? p + (-(uintptr_t)p & spare) : NULL;
}

/*
 * Refuse the message: move the position past the end, where every further step fails. libnfs's own
 * primitives leave the position alone, which is how net_zdr_check() tells them from ours.
 */
static bool_t zdr_refuse(ZDR *zdr)
{
	zdr->pos = zdr->size + 1;
	return FALSE;
}

static bool zdr_is_refused(const ZDR *zdr)
{
	return zdr->pos > zdr->size;
}

/* Step over n bytes and their padding. Returns NULL if the message ends before them. */
static char *zdr_skip(ZDR *zdr, uint32_t n)
{
	uint32_t padded = (n + 3) & ~3U;
	char *at = zdr->buf + zdr->pos;

	if (zdr_is_refused(zdr) || padded < n || padded > (uint32_t)(zdr->size - zdr->pos))
		return NULL;
	if (zdr->x_op == ZDR_ENCODE)
		memset(at + n, 0, padded - n);
	zdr->pos += (int)padded;
	return at;
}

bool_t libnfs_zdr_opaque(ZDR *zdr, char *data, uint32_t n)
{
	char *at = zdr_skip(zdr, n);

	if (at == NULL)
		return zdr_refuse(zdr);
	if (n == 0)
		return TRUE; /* data may be NULL */
	if (zdr->x_op == ZDR_ENCODE)
		memcpy(at, data, n);
	else
		memcpy(data, at, n);
	return TRUE;
}

/*
 * Decode in place, without a copy, unless the caller provides a buffer. max is the protocol's
 * limit; like libnfs, leave it to the users of the data.
 */
bool_t libnfs_zdr_bytes(ZDR *zdr, char **data, uint32_t *n, uint32_t max)
{
	(void)max;
	if (!zdr_u_int(zdr, n))
		return zdr_refuse(zdr);
	if (zdr->x_op == ZDR_ENCODE || *data != NULL)
		return libnfs_zdr_opaque(zdr, *data, *n);
	*data = zdr_skip(zdr, *n);
	return *data != NULL ? TRUE : zdr_refuse(zdr);
}

/* Terminate the string in its padding; copy it only if there is none. */
static char *zdr_take_string(ZDR *zdr, uint32_t n)
{
	char *at = zdr_skip(zdr, n), *copy;

	/* What follows a NUL would be lost: the name of another file would be left. */
	if (at == NULL || memchr(at, '\0', n) != NULL)
		return NULL;
	if (n % 4 != 0) {
		at[n] = '\0';
		return at;
	}
	copy = net_zdr_allocate(zdr, n + 1);
	if (copy == NULL)
		return NULL;
	memcpy(copy, at, n);
	copy[n] = '\0';
	return copy;
}

bool_t libnfs_zdr_string(ZDR *zdr, char **text, uint32_t max)
{
	uint32_t n = zdr->x_op == ZDR_ENCODE ? (uint32_t)strlen(*text) : 0;

	(void)max;
	if (!zdr_u_int(zdr, &n))
		return zdr_refuse(zdr);
	if (zdr->x_op == ZDR_ENCODE)
		return libnfs_zdr_opaque(zdr, *text, n);
	*text = zdr_take_string(zdr, n);
	return *text != NULL ? TRUE : zdr_refuse(zdr);
}

bool_t libnfs_zdr_array(ZDR *zdr, char **items, uint32_t *n, uint32_t max, uint32_t size,
			zdrproc_t item)
{
	uint32_t i;

	(void)max;
	if (!zdr_u_int(zdr, n) || *n > ARRAY_MAX)
		return zdr_refuse(zdr);
	if (zdr->x_op == ZDR_DECODE) {
		*items = net_zdr_allocate(zdr, *n * size);
		if (*items == NULL)
			return zdr_refuse(zdr);
		memset(*items, 0, (size_t)*n * size);
	}
	for (i = 0; i < *n; i++)
		if (!item(zdr, *items + (size_t)i * size))
			return zdr_refuse(zdr);
	return TRUE;
}

/* Decode the link to the rest of a list. Recurses: item decodes the next link from within. */
bool_t libnfs_zdr_pointer(ZDR *zdr, char **next, uint32_t size, zdrproc_t item)
{
	static __thread unsigned int depth;
	bool_t follows = *next != NULL, decoded;

	if (!zdr_bool(zdr, &follows))
		return zdr_refuse(zdr);
	if (!follows) {
		*next = NULL;
		return TRUE;
	}
	if (zdr->x_op == ZDR_DECODE) {
		*next = depth < DEPTH_MAX ? net_zdr_allocate(zdr, size) : NULL;
		if (*next == NULL)
			return zdr_refuse(zdr);
		memset(*next, 0, size);
	}
	depth++;
	decoded = item(zdr, *next);
	depth--;
	return decoded;
}

/* -------- the check -------- */

/* Decode an empty message: libnfs's primitives refuse it as well, but only ours leave a mark. */
static bool decoder_is_checked(zdrproc_t decode)
{
	_Alignas(max_align_t) char decoded[NET_ZDR_DECODED_MAX] = { 0 };
	char empty[sizeof(uint64_t)] = { 0 };
	bool is_checked;
	ZDR zdr;

	zdrmem_create(&zdr, empty, 0, ZDR_DECODE);
	is_checked = !decode(&zdr, decoded) && zdr_is_refused(&zdr);
	zdr_destroy(&zdr);
	return is_checked;
}

int net_zdr_check_decoders(const struct net_zdr_decoder *decoders, size_t n, struct error *err)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (decoder_is_checked(decoders[i].decode))
			continue;
		(void)error_set(err, ERROR_FAILED_PRECONDITION,
				"libnfs calls its own %s() instead of csi-nfs's checked one, so a "
				"malformed reply could crash the driver: libnfs was probably linked "
				"with -Bsymbolic-functions; use a libnfs that was linked without it",
				decoders[i].primitive);
		return -ELIBBAD;
	}
	return 0;
}

static int check_result;
static struct error check_error;

static void check_libnfs(void)
{
	/* Calls are bound per library or per object file, so check a decoder of each protocol. */
	static const struct net_zdr_decoder decoders[] = {
		{ "libnfs_zdr_opaque", (zdrproc_t)zdr_verifier4 },
		{ "libnfs_zdr_opaque", (zdrproc_t)zdr_cookieverf3 },
		{ "libnfs_zdr_bytes", (zdrproc_t)zdr_fhandle3 },
		{ "libnfs_zdr_bytes", (zdrproc_t)zdr_nfs_fh3 },
		{ "libnfs_zdr_bytes", (zdrproc_t)zdr_nfs_fh4 },
		{ "libnfs_zdr_string", (zdrproc_t)zdr_dirpath },
		{ "libnfs_zdr_string", (zdrproc_t)zdr_filename3 },
		{ "libnfs_zdr_array", (zdrproc_t)zdr_bitmap4 },
		{ "libnfs_zdr_pointer", (zdrproc_t)zdr_exports },
	};

	check_result = net_zdr_check_decoders(decoders, ARRAY_SIZE(decoders), &check_error);
}

int net_zdr_check(struct error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, check_libnfs);
	if (check_result < 0 && err != NULL)
		*err = check_error;
	return check_result;
}
